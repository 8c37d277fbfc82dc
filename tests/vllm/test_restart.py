"""Crashes and restarts of an engine with scripted cores: which prompts wait, and which ones fail."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from vllm.v1.engine.exceptions import EngineDeadError

from tests.fakes.waiting import wait_on_loop
from twopass.engines.gpus import GpuInfo
from twopass.engines.interface import Completion, EngineDied, Prompt
from twopass.engines.vllm import startup
from twopass.engines.vllm.arguments import build_speculative_config
from twopass.engines.vllm.core import SilenceMonitor
from twopass.engines.vllm.core_process import set_variables
from twopass.engines.vllm.engine import VllmEngine, launch_engines
from twopass.engines.vllm.plugin import NGRAM_V1, core_exit
from twopass.errors import Code, EngineError
from twopass.pages.shared_pixels import PixelBufferPool, Pixels
from twopass.runtime.page_pool import PagePool
from twopass.settings import Settings

GPU = GpuInfo(count=1, memory_gb=80, free_gb=80, capability=(9, 0))
START_S, ANSWER_S = 1.0, 0.5


class Client:
    """A core that dies after it has worked on a prompt named poison for a moment, or as it starts, if `broken`."""

    running: list[Client] = []
    broken = 0  # cores to be started that die before they answer anything

    def __init__(self) -> None:
        self.died = asyncio.Event()
        self.errored = Client.broken > 0
        Client.broken -= self.errored
        Client.running.append(self)

    async def collective_rpc(self, method: str) -> list[dict[str, float]]:
        return [{}]

    async def get_supported_tasks(self) -> None:
        if self.errored:  # vLLM does not tell calls like this that their core has died
            await asyncio.Event().wait()

    def shutdown(self) -> None:
        if self in Client.running:
            Client.running.remove(self)


class Process:
    """A process that takes a moment to start."""

    stage_ends: Mapping[str, float] = {}
    started = starting = max_starting = 0

    def __init__(self, arguments: Mapping[str, Any], variables: Mapping[str, str]) -> None:
        pass

    def wait(self) -> None:
        Process.started += 1
        Process.starting += 1
        Process.max_starting = max(Process.max_starting, Process.starting)
        time.sleep(START_S)
        Process.starting -= 1

    def connect(self) -> Client:
        return Client()

    def stop(self) -> None:
        pass


class Engine(VllmEngine):
    """The engine with scripted answers."""

    started: list[Engine] = []

    async def _answer(self, prompt: Prompt) -> Completion:
        core = self.core.client
        if core.errored:
            raise EngineDeadError
        if prompt.id == "poison":
            await asyncio.sleep(ANSWER_S / 2)
            core.errored = True
            core.died.set()
            raise EngineDeadError
        try:
            await asyncio.wait_for(core.died.wait(), ANSWER_S)
        except TimeoutError:
            return Completion("fine")
        raise EngineDeadError


def launch(
    settings: Settings, gpu_ids: tuple[str, ...] = (), process: type[Process] = Process, **more: Any
) -> VllmEngine:
    Client.running, StartingProcess.running, Process.max_starting = [], [], 0
    (engine,) = launch_engines(settings, Path("nowhere"), [gpu_ids], Engine, start=process, **more)
    Engine.started.append(engine)
    return engine


async def start(*arguments: Any, **more: Any) -> VllmEngine:
    engine = launch(*arguments, **more)
    await engine.open(PagePool(0, PixelBufferPool(0, 0)))
    return engine


@pytest.fixture(autouse=True)
def close_buffers() -> Iterator[None]:
    """An engine for 80 GB of memory has up to 1,537 of them, and descriptors from 1,024 are too large for `select`."""
    yield
    while Engine.started:
        for pool in Engine.started.pop().buffer_pools:
            pool.close()


@pytest.fixture
async def engine() -> VllmEngine:
    return await start(Settings(preset="cpu", page_workers=1, engine_restarts=12))


def build_prompt(name: str) -> Prompt:
    return Prompt(name, "Free OCR.", Pixels(1, 1, data=bytes(3)))


async def test_a_prompt_that_kills_cores_fails_alone(engine: VllmEngine) -> None:
    """At the third attempt each prompt runs alone: nineteen are answered, and only the one that kills cores fails."""
    names = ["good"] * 10 + ["poison"] + ["good"] * 9

    answers = await asyncio.gather(*(engine.generate(build_prompt(name)) for name in names))

    assert [name for name, answer in zip(names, answers, strict=True) if answer.finish_reason == "crash"] == ["poison"]
    assert {answer.text for answer in answers} == {"fine", ""}
    assert [incident.code for incident in engine.incidents] == [Code.ENGINE_DEAD] * len(engine.incidents)
    assert (await engine.generate(build_prompt("good"))).text == "fine"
    assert len(Client.running) == 1


async def test_the_last_attempt_is_alone_even_if_others_arrive(engine: VllmEngine) -> None:
    """A poison prompt that arrives during another prompt's last attempt waits, and does not make it fail."""
    first = asyncio.create_task(engine.generate(build_prompt("poison")))
    innocent = asyncio.create_task(engine.generate(build_prompt("good")))
    await wait_on_loop(lambda: len(engine.incidents) == 2)
    late = asyncio.create_task(engine.generate(build_prompt("poison")))

    async with asyncio.timeout(60):
        assert (await innocent).text == "fine"
        assert {(await first).finish_reason, (await late).finish_reason} == {"crash"}


async def test_a_start_that_hangs_ends_the_worker(engine: VllmEngine) -> None:
    """On a lost GPU no core starts; waiting prompts get an error when the time for a start is over."""
    engine.core.start_s = START_S / 4

    with pytest.raises(EngineError, match="did not start again"):
        await engine.generate(build_prompt("poison"))
    assert engine.is_gone
    await wait_on_loop(lambda: len(Client.running) == 1)  # the late core, which must not start during the next test


async def test_cancelling_a_page_does_not_cancel_the_restart(engine: VllmEngine) -> None:
    """The page that triggered the restart reaches its deadline; two others wait for the same new core."""

    async def impatient() -> None:
        async with asyncio.timeout(ANSWER_S + START_S / 2):
            await engine.generate(build_prompt("good"))

    before = Process.started
    poison = asyncio.create_task(engine.generate(build_prompt("poison")))
    first = asyncio.create_task(impatient())
    others = [asyncio.create_task(engine.generate(build_prompt("good"))) for _ in range(2)]
    await wait_on_loop(lambda: Process.started > before)
    poison.cancel()

    assert [answer.text for answer in await asyncio.gather(*others)] == ["fine", "fine"]
    assert isinstance((await asyncio.gather(first, return_exceptions=True))[0], TimeoutError)
    assert (Process.max_starting, len(Client.running)) == (1, 1)


async def test_closing_waits_for_a_core_that_is_starting(engine: VllmEngine) -> None:
    """After close, no core is left running."""
    before = Process.started
    task = asyncio.create_task(engine.generate(build_prompt("poison")))
    await wait_on_loop(lambda: Process.started > before)
    task.cancel()

    await engine.close()

    assert Client.running == []


async def test_a_core_that_dies_as_it_starts_does_not_keep_its_prompts(engine: VllmEngine) -> None:
    """They get an error instead of waiting for ever, and the next prompt starts another core."""
    Client.broken = 1

    with pytest.raises(EngineError, match="the engine died while it started"):
        async with asyncio.timeout(60):
            await engine.generate(build_prompt("poison"))

    assert (await engine.generate(build_prompt("good"))).text == "fine"


class HungClient(Client):
    """Alive, but without output; the first attempt to find its process fails."""

    def __init__(self) -> None:
        super().__init__()
        self.attempts = 0
        self.is_killed = asyncio.Event()

    @property
    def engine_core(self) -> Any:
        self.attempts += 1
        if self.attempts == 1:
            raise AttributeError("engine_manager")
        process = SimpleNamespace(kill=self.is_killed.set)
        return SimpleNamespace(resources=SimpleNamespace(engine_manager=SimpleNamespace(processes=[process])))


async def test_detection_of_hangs_survives_its_own_errors(engine: VllmEngine) -> None:
    """An error while a core is killed is logged, and the core is killed at the next look."""
    client = engine.core.client = HungClient()
    engine.core.silence = SilenceMonitor(base_s=0.02, first_s=0.0, interval=1)
    engine.core._requests = 1
    watch = asyncio.create_task(engine.core._watch())

    async with asyncio.timeout(60):
        await client.is_killed.wait()
    watch.cancel()

    assert client.attempts >= 2


async def test_too_many_crashes_are_an_engine_error() -> None:
    """All waiting prompts get the error, and so do later ones."""
    engine = await start(Settings(preset="cpu", page_workers=1, engine_restarts=1))

    answers = await asyncio.gather(
        *(engine.generate(build_prompt(name)) for name in ("poison", "good")), return_exceptions=True
    )

    assert {type(answer) for answer in (*answers,)} == {EngineError}
    assert engine.is_gone
    with pytest.raises(EngineError, match="died too often"):
        await engine.generate(build_prompt("good"))


async def test_an_engine_of_several_is_named_by_its_gpu() -> None:
    """Jobs and metrics say which GPU's engine died; an engine without others is just the engine."""
    settings = Settings(preset="cpu", page_workers=1)
    alone, pinned = await start(settings), await start(settings, ("3",))

    await asyncio.gather(*(engine.generate(build_prompt("poison")) for engine in (alone, pinned)))

    assert {incident.message.partition(" died")[0] for incident in pinned.incidents} == {"the engine on GPU 3"}
    assert {incident.message.partition(" died")[0] for incident in alone.incidents} == {"the engine"}
    assert [(status.gpus, status.restarts, status.is_ready) for status in pinned.statuses] == [("3", 3, True)]


class StartingProcess(Process):
    """A core that cannot capture CUDA graphs."""

    running: list[StartingProcess] = []

    def __init__(self, arguments: Mapping[str, Any], variables: Mapping[str, str]) -> None:
        self.has_graphs, self._variables = not arguments["enforce_eager"], variables
        StartingProcess.running.append(self)

    def wait(self) -> None:
        if self.has_graphs:
            self.fail()

    def fail(self) -> None:
        with set_variables(self._variables), core_exit.report_no_graphs():  # as in the core's process
            raise RuntimeError("Engine core initialization failed")

    def stop(self) -> None:
        StartingProcess.running.remove(self)


class FailingProcess(StartingProcess):
    """A core that cannot even start without them."""

    def wait(self) -> None:
        self.fail()


GRAPHS = Settings(preset="cpu", page_workers=1, enforce_eager=False)


@pytest.mark.parametrize("gpu_ids", [(), ("3",)], ids=["alone", "among others"])
async def test_an_engine_without_room_for_cuda_graphs_starts_without_them(
    gpu_ids: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A small card serves, more slowly, with a warning; the core that failed is ended."""
    monkeypatch.setenv("VLLM_WORKER_MULTIPROC_METHOD", "fork")

    engine = await start(GRAPHS, gpu_ids, process=StartingProcess)

    assert [process.has_graphs for process in StartingProcess.running] == [False]
    assert engine.core.arguments["enforce_eager"] and "compilation_config" not in engine.core.arguments
    assert [incident.code for incident in engine.incidents] == [Code.ENGINE_DEAD]
    assert "ENFORCE_EAGER=true" in engine.incidents[0].message
    assert engine.fallbacks == ("no_cuda_graphs",)
    assert [status.restarts for status in engine.statuses] == [0]
    assert os.environ["VLLM_WORKER_MULTIPROC_METHOD"] == "spawn"


async def test_an_engine_that_fails_without_cuda_graphs_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is started twice and not for ever, and no core is left running."""
    monkeypatch.setenv("VLLM_WORKER_MULTIPROC_METHOD", "fork")

    with pytest.raises(EngineError, match="vLLM did not start"):
        await start(GRAPHS, process=FailingProcess)

    assert StartingProcess.running == []


def report_out_of_memory(variables: Mapping[str, str]) -> None:
    """Report as a core does, in whose process the variables are set."""
    with set_variables(variables):
        core_exit._write(core_exit.OUT_OF_MEMORY)


class FullProcess(Process):
    """A process whose core reports that it ran out of memory when it dies."""

    started: list[FullProcess] = []

    def __init__(self, arguments: Mapping[str, Any], variables: Mapping[str, str]) -> None:
        self._variables = variables
        FullProcess.started.append(self)

    def connect(self) -> Client:
        report_out_of_memory(self._variables)
        return Client()


async def test_a_core_that_ran_out_of_memory_gets_less_to_do() -> None:
    """Half the sequences and tokens, less memory, no room for drafts of the other half, and fewer CUDA graphs."""
    tokens = {"max_num_batched_tokens": 4096 + 4 * 64, "speculative_config": build_speculative_config(4)}
    engine = await start(GRAPHS.model_copy(update={"max_num_seqs": 64}), process=FullProcess, **tokens)
    arguments = engine.core.arguments

    await engine.attempt(build_prompt("good"))
    with pytest.raises(EngineDied):
        await engine.attempt(build_prompt("poison"))
    await engine.wait_for_restart()

    assert [incident.code for incident in engine.incidents] == [Code.ENGINE_MEMORY]
    reduced = engine.core.arguments
    assert reduced["max_num_seqs"] == engine.sequences == 32
    assert reduced["gpu_memory_utilization"] < arguments["gpu_memory_utilization"]
    assert reduced["max_num_batched_tokens"] == 2048 + 4 * 32
    assert reduced["compilation_config"]["cudagraph_capture_sizes"][-1] == 5 * 32


@pytest.mark.parametrize("environment", [{}, {startup.MEMORY_PLAN: "1"}], ids=["by default", "set by the user"])
async def test_a_core_that_ran_out_of_memory_measures_its_cache_again(
    environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """vLLM would use the size that it measured for the larger share, and store that of the smaller one for others."""
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(FullProcess, "started", [])
    engine = await start(GRAPHS, process=FullProcess)

    with pytest.raises(EngineDied):
        await engine.attempt(build_prompt("poison"))
    await engine.wait_for_restart()

    first, second = (process._variables for process in FullProcess.started)
    assert first.get(startup.MEMORY_PLAN, "1") == "1"
    assert second[startup.MEMORY_PLAN] == "0"


class FillingProcess(StartingProcess):
    """A core that starts with or without CUDA graphs, until the memory `is_full`."""

    is_full = False

    def wait(self) -> None:
        if self.is_full:
            report_out_of_memory(self._variables)
            raise RuntimeError("Engine core initialization failed")


@pytest.mark.parametrize("eager", [True, False])
async def test_a_core_that_runs_out_of_memory_as_it_starts_gets_less_to_do(
    eager: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its report is kept for the next restart, which lowers the sequences; CUDA graphs are not given up."""
    settings = GRAPHS.model_copy(update={"max_num_seqs": 64, "enforce_eager": eager})
    engine = await start(settings, process=FillingProcess)
    engine.core.client.errored = True
    monkeypatch.setattr(FillingProcess, "is_full", True)

    for _ in range(2):
        with pytest.raises(EngineError, match="vLLM did not start"):
            await engine.wait_for_restart()

    assert [incident.code for incident in engine.incidents] == [Code.ENGINE_DEAD, Code.ENGINE_MEMORY]
    assert engine.core.arguments["max_num_seqs"] == 32
    assert engine.core.arguments["enforce_eager"] == eager


@pytest.mark.parametrize(("model", "parts"), [("deepseek_ocr", ("own_ngram_ban_of_vllm",)), ("glm_ocr", ())])
def test_only_a_model_with_a_ban_falls_back_to_that_of_vllm(
    model: str, parts: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """GLM-OCR has no ban, so that vLLM's first model runner is not asked for on its behalf."""
    monkeypatch.setenv("VLLM_USE_V2_MODEL_RUNNER", "0")
    monkeypatch.setattr(startup, "detect_gpus", lambda ids: GPU)

    assert launch(Settings(model=model, page_workers=1)).fallbacks == parts


def test_an_engine_without_a_gpu_ignores_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """PRESET=cpu with vLLM for CPUs, on a machine with an NVIDIA driver: V1's ban and no drafts."""
    monkeypatch.setattr(startup, "detect_gpus", lambda ids: GPU)

    engine = launch(Settings(preset="cpu", page_workers=1))

    assert engine.core.arguments["logits_processors"] == [NGRAM_V1]
    assert not engine.uses_drafts


def test_a_model_runs_uncompiled_only_where_no_compiled_code_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TORCH_COMPILE=auto: what is kept from an earlier start is used, and `started` says when there was none."""
    monkeypatch.setenv("VLLM_CACHE_ROOT", str(tmp_path / "vllm"))
    settings = GRAPHS.model_copy(update={"torch_compile": "auto"})
    usual = launch(GRAPHS).core.arguments["compilation_config"]

    without = launch(settings)
    adapted = without._finish_arguments(without.core.arguments)
    assert adapted["compilation_config"] == usual | {"mode": 0}
    assert without.fallbacks == ("not_compiled",)

    asyncio.run(launch(GRAPHS)._cache.share())
    found = launch(settings)
    assert found._finish_arguments(found.core.arguments) == found.core.arguments
    assert found.fallbacks == ()


def test_only_the_first_of_several_engines_fetches_compiled_code() -> None:
    """The others find it on this machine, in the same folders."""
    settings = Settings(engine_cache="s3://bucket/caches/", preset="cpu", page_workers=1)
    own = startup.without_sharing(settings)

    assert own.engine_cache == str(startup.find_cache_folder("s3://bucket/caches/"))
    assert startup.find_cache_folder(own.engine_cache or "") == startup.find_cache_folder("s3://other/caches/")
