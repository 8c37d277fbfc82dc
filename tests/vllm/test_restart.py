"""Crashes and restarts of an engine with scripted cores: which prompts wait, and which ones fail."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from vllm.v1.engine.exceptions import EngineDeadError

from twopass.engines.gpus import GpuInfo
from twopass.engines.interface import Completion, EngineDied, Prompt
from twopass.engines.vllm import startup
from twopass.engines.vllm.arguments import build_speculative_config
from twopass.engines.vllm.core_process import set_variables
from twopass.engines.vllm.engine import VllmEngine
from twopass.engines.vllm.plugin import NGRAM_V1, core_exit
from twopass.engines.vllm.silence import SilenceMonitor
from twopass.errors import Code, EngineError
from twopass.pages.shared_pixels import Pixels
from twopass.settings import Settings

GPU = GpuInfo(count=1, memory_gb=80, free_gb=80, capability=(9, 0))
START_S, ANSWER_S = 0.2, 0.1


class Core:
    """Runs until it has worked on a prompt named poison for a moment, or as it has started, if it is `broken`."""

    running: list[Core] = []
    broken = 0  # cores to be started that die before they answer anything

    def __init__(self) -> None:
        self.died = asyncio.Event()
        self.errored = Core.broken > 0
        Core.broken -= self.errored
        Core.running.append(self)

    async def get_supported_tasks(self) -> None:
        if self.errored:  # vLLM does not tell calls like this that their core has died
            await asyncio.Event().wait()

    def shutdown(self) -> None:
        if self in Core.running:
            Core.running.remove(self)


class Engine(VllmEngine):
    """The engine with scripted cores instead of vLLM's."""

    starting = max_starting = 0

    def _start_core(self) -> Any:
        self.starting += 1
        self.max_starting = max(self.max_starting, self.starting)
        time.sleep(START_S)
        self.starting -= 1
        return Core()

    async def _answer(self, prompt: Prompt) -> Completion:
        core = self.core
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


@pytest.fixture
def engine() -> Engine:
    Core.running = []
    return Engine(Settings(preset="cpu", page_workers=1, engine_restarts=12), Path("nowhere"))


def build_prompt(name: str) -> Prompt:
    return Prompt(name, "Free OCR.", Pixels(1, 1, data=bytes(3)))


async def test_a_prompt_that_kills_cores_fails_alone(engine: Engine) -> None:
    """At the third attempt each prompt runs alone: nineteen are answered, and only the one that kills cores fails."""
    names = ["good"] * 10 + ["poison"] + ["good"] * 9

    answers = await asyncio.gather(*(engine.generate(build_prompt(name)) for name in names))

    assert [name for name, answer in zip(names, answers, strict=True) if answer.finish_reason == "crash"] == ["poison"]
    assert {answer.text for answer in answers} == {"fine", ""}
    assert [incident.code for incident in engine.incidents] == [Code.ENGINE_DEAD] * len(engine.incidents)
    assert (await engine.generate(build_prompt("good"))).text == "fine"
    assert len(Core.running) == 1


async def test_the_last_attempt_is_alone_even_if_others_arrive(engine: Engine) -> None:
    """A poison prompt that arrives during another prompt's last attempt waits, and does not make it fail."""
    first = asyncio.create_task(engine.generate(build_prompt("poison")))
    innocent = asyncio.create_task(engine.generate(build_prompt("good")))
    async with asyncio.timeout(60):
        while len(engine.incidents) < 2:
            await asyncio.sleep(0.01)
    late = asyncio.create_task(engine.generate(build_prompt("poison")))

    async with asyncio.timeout(60):
        assert (await innocent).text == "fine"
        assert {(await first).finish_reason, (await late).finish_reason} == {"crash"}


async def test_a_start_that_hangs_ends_the_worker(engine: Engine) -> None:
    """On a lost GPU no core starts; waiting prompts get an error when the time for a start is over."""
    engine.start_s = START_S / 4

    with pytest.raises(EngineError, match="did not start again"):
        await engine.generate(build_prompt("poison"))
    assert engine.is_gone
    await asyncio.sleep(2 * START_S)  # until the late core has started, which must not happen during the next test


async def test_cancelling_a_page_does_not_cancel_the_restart(engine: Engine) -> None:
    """The page that triggered the restart reaches its deadline; two others wait for the same new core."""

    async def impatient() -> None:
        async with asyncio.timeout(ANSWER_S + START_S / 2):
            await engine.generate(build_prompt("good"))

    poison = asyncio.create_task(engine.generate(build_prompt("poison")))
    first = asyncio.create_task(impatient())
    others = [asyncio.create_task(engine.generate(build_prompt("good"))) for _ in range(2)]
    await asyncio.sleep(ANSWER_S / 2 + 0.02)
    poison.cancel()

    assert [answer.text for answer in await asyncio.gather(*others)] == ["fine", "fine"]
    assert isinstance((await asyncio.gather(first, return_exceptions=True))[0], TimeoutError)
    assert (engine.max_starting, len(Core.running)) == (1, 1)


async def test_closing_waits_for_a_core_that_is_starting(engine: Engine) -> None:
    """After close, no core is left running."""
    task = asyncio.create_task(engine.generate(build_prompt("poison")))
    await asyncio.sleep(ANSWER_S / 2 + START_S / 2)
    task.cancel()

    await engine.close()

    assert Core.running == []


async def test_a_core_that_dies_as_it_starts_does_not_keep_its_prompts(engine: Engine) -> None:
    """They get an error instead of waiting for ever, and the next prompt starts another core."""
    Core.broken = 1

    with pytest.raises(EngineError, match="the engine died while it started"):
        async with asyncio.timeout(60):
            await engine.generate(build_prompt("poison"))

    assert (await engine.generate(build_prompt("good"))).text == "fine"


class HungCore(Core):
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


async def test_detection_of_hangs_survives_its_own_errors(engine: Engine) -> None:
    """An error while a core is killed is logged, and the core is killed at the next look."""
    core = engine.core = HungCore()
    engine.silence = SilenceMonitor(base_s=0.02, first_s=0.0, interval=1)
    engine._time_share.enter()
    watch = asyncio.create_task(engine._watch_core())

    async with asyncio.timeout(60):
        await core.is_killed.wait()
    watch.cancel()

    assert core.attempts >= 2


async def test_too_many_crashes_are_an_engine_error(tmp_path: Path) -> None:
    """All waiting prompts get the error, and so do later ones."""
    engine = Engine(Settings(preset="cpu", page_workers=1, engine_restarts=1), tmp_path)

    answers = await asyncio.gather(
        *(engine.generate(build_prompt(name)) for name in ("poison", "good")), return_exceptions=True
    )

    assert {type(answer) for answer in (*answers,)} == {EngineError}
    assert engine.is_gone
    with pytest.raises(EngineError, match="died too often"):
        await engine.generate(build_prompt("good"))


async def test_an_engine_of_several_is_named_by_its_gpu() -> None:
    """Jobs and metrics say which GPU's engine died; an engine without others is just the engine."""
    Core.running = []
    settings = Settings(preset="cpu", page_workers=1)
    alone, pinned = Engine(settings, Path("nowhere")), Engine(settings, Path("nowhere"), ("3",))

    await asyncio.gather(*(engine.generate(build_prompt("poison")) for engine in (alone, pinned)))

    assert {incident.message.partition(" died")[0] for incident in pinned.incidents} == {"the engine on GPU 3"}
    assert {incident.message.partition(" died")[0] for incident in alone.incidents} == {"the engine"}
    assert [(status.gpus, status.restarts, status.is_ready) for status in pinned.statuses] == [("3", 3, True)]


class StartingCore:
    """A core that cannot capture CUDA graphs, or not even start without them if it `always_fails`."""

    running: list[StartingCore] = []

    def __init__(self, arguments: dict[str, Any], variables: dict[str, str], always_fails: bool) -> None:
        self.has_graphs, self._variables, self._always_fails = not arguments["enforce_eager"], variables, always_fails
        StartingCore.running.append(self)

    def wait(self) -> None:
        if self.has_graphs or self._always_fails:
            with set_variables(self._variables), core_exit.report_no_graphs():  # as in the core's process
                raise RuntimeError("Engine core initialization failed")

    def stop(self) -> None:
        StartingCore.running.remove(self)


class StartingEngine(VllmEngine):
    """The engine with scripted starts of cores."""

    always_fails = False

    def _launch_core(self) -> Any:
        return StartingCore(self.arguments, self._core_variables, self.always_fails)

    def _connect(self, starting: Any) -> Any:
        return Core()


class FailingEngine(StartingEngine):
    always_fails = True


GRAPHS = Settings(preset="cpu", page_workers=1, enforce_eager=False)


@pytest.mark.parametrize("waits", [True, False])
def test_an_engine_without_room_for_cuda_graphs_starts_without_them(
    waits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A small card serves, more slowly, with a warning; the core that failed is ended, alone and among others."""
    monkeypatch.setenv("VLLM_WORKER_MULTIPROC_METHOD", "fork")
    StartingCore.running = []

    engine = StartingEngine(GRAPHS, Path("nowhere"), waits=waits)
    if not waits:
        engine.wait_for_core()
        engine.connect()

    assert [core.has_graphs for core in StartingCore.running] == [False]
    assert engine.arguments["enforce_eager"] and "compilation_config" not in engine.arguments
    assert [incident.code for incident in engine.incidents] == [Code.ENGINE_DEAD]
    assert "ENFORCE_EAGER=true" in engine.incidents[0].message
    assert engine.fallbacks == ("no_cuda_graphs",)
    assert [status.restarts for status in engine.statuses] == [0]


def test_an_engine_that_fails_without_cuda_graphs_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is started twice and not for ever, and no core is left running."""
    monkeypatch.setenv("VLLM_WORKER_MULTIPROC_METHOD", "fork")
    StartingCore.running = []

    with pytest.raises(EngineError, match="vLLM did not start"):
        FailingEngine(GRAPHS, Path("nowhere"))

    assert StartingCore.running == []


def report_out_of_memory(variables: dict[str, str]) -> None:
    """Report as a core does, in whose process the variables are set."""
    with set_variables(variables):
        core_exit._write(core_exit.OUT_OF_MEMORY)


class FullEngine(Engine):
    """The engine with scripted cores that report that they ran out of memory when they die."""

    async def _answer(self, prompt: Prompt) -> Completion:
        if prompt.id == "poison":
            report_out_of_memory(self._core_variables)
        return await super()._answer(prompt)


async def test_a_core_that_ran_out_of_memory_gets_less_to_do(tmp_path: Path) -> None:
    """Half the sequences, less memory, no room for drafts of the other half, and CUDA graphs for no more sequences."""
    Core.running = []
    tokens = {"max_num_batched_tokens": 2048 + 4 * 64, "speculative_config": build_speculative_config(4)}
    engine = FullEngine(GRAPHS.model_copy(update={"max_num_seqs": 64}), tmp_path, **tokens)
    before = engine.arguments["gpu_memory_utilization"]

    await engine.attempt(build_prompt("good"))
    with pytest.raises(EngineDied):
        await engine.attempt(build_prompt("poison"))
    await engine.wait_for_restart()

    assert [incident.code for incident in engine.incidents] == [Code.ENGINE_MEMORY]
    assert engine.arguments["max_num_seqs"] == 32
    assert engine.arguments["gpu_memory_utilization"] < before
    assert engine.arguments["max_num_batched_tokens"] == 2048 + 4 * 32
    assert engine.arguments["compilation_config"]["cudagraph_capture_sizes"][-1] == 5 * 32


class FillingCore(StartingCore):
    """A core that starts with or without CUDA graphs, until the memory `is_full`."""

    is_full = False

    def wait(self) -> None:
        if self.is_full:
            report_out_of_memory(self._variables)
            raise RuntimeError("Engine core initialization failed")


class FillingEngine(StartingEngine):
    def _launch_core(self) -> Any:
        return FillingCore(self.arguments, self._core_variables, self.always_fails)


@pytest.mark.parametrize("eager", [True, False])
async def test_a_core_that_runs_out_of_memory_as_it_starts_gets_less_to_do(
    eager: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its report is kept for the next restart, which lowers the sequences; CUDA graphs are not given up."""
    StartingCore.running, Core.running = [], []
    engine = FillingEngine(GRAPHS.model_copy(update={"max_num_seqs": 64, "enforce_eager": eager}), tmp_path)
    engine.core.errored = True
    monkeypatch.setattr(FillingCore, "is_full", True)

    for _ in range(2):
        with pytest.raises(EngineError, match="vLLM did not start"):
            await engine.restart()

    assert [incident.code for incident in engine.incidents] == [Code.ENGINE_DEAD, Code.ENGINE_MEMORY]
    assert engine.arguments["max_num_seqs"] == 32
    assert engine.arguments["enforce_eager"] == eager


@pytest.mark.parametrize(("model", "parts"), [("deepseek_ocr", ("own_ngram_ban_of_vllm",)), ("glm_ocr", ())])
def test_only_a_model_with_a_ban_falls_back_to_that_of_vllm(
    model: str, parts: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """GLM-OCR has no ban, so that vLLM's first model runner is not asked for on its behalf."""
    monkeypatch.setenv("VLLM_USE_V2_MODEL_RUNNER", "0")
    monkeypatch.setattr(startup, "detect_gpus", lambda ids: GPU)

    assert Engine(Settings(model=model, page_workers=1), Path("nowhere")).fallbacks == parts


def test_an_engine_without_a_gpu_ignores_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """PRESET=cpu with vLLM for CPUs, on a machine with an NVIDIA driver: V1's ban and no drafts."""
    monkeypatch.setattr(startup, "detect_gpus", lambda ids: GPU)

    engine = Engine(Settings(preset="cpu", page_workers=1), Path("nowhere"))

    assert engine.arguments["logits_processors"] == [NGRAM_V1]
    assert not engine.uses_drafts
