"""Deaths and restarts of an engine whose core is scripted: who waits for whom, and who goes down with whom."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest
from vllm.v1.engine.exceptions import EngineDeadError

from twopass.engines.interface import Completion, Prompt
from twopass.engines.vllm.engine import VllmEngine
from twopass.errors import Code, EngineError
from twopass.pages.shared_pixels import Pixels
from twopass.settings import Settings

START_S, ANSWER_S = 0.2, 0.1


class Core:
    """Lives until a prompt called poison has been in it for a moment."""

    alive: list[Core] = []

    def __init__(self) -> None:
        self.errored = False
        self.died = asyncio.Event()
        Core.alive.append(self)

    def shutdown(self) -> None:
        if self in Core.alive:
            Core.alive.remove(self)


class Engine(VllmEngine):
    """The engine with scripted cores in place of vLLM's."""

    starting = most_starting = 0

    def _started(self) -> Any:
        self.starting += 1
        self.most_starting = max(self.most_starting, self.starting)
        time.sleep(START_S)
        self.starting -= 1
        return Core()

    async def _answered(self, prompt: Prompt) -> Completion:
        core = self._core
        if core.errored:
            raise EngineDeadError
        if prompt.id == "poison":
            await asyncio.sleep(ANSWER_S / 2)
            core.errored = True
            core.died.set()
        try:
            await asyncio.wait_for(core.died.wait(), ANSWER_S)
        except TimeoutError:
            return Completion("fine")
        raise EngineDeadError


@pytest.fixture
def engine() -> Engine:
    Core.alive = []
    return Engine(Settings(preset="cpu", page_workers=1, engine_restarts=12), Path("nowhere"))


def prompt(name: str) -> Prompt:
    return Prompt(name, "Free OCR.", Pixels(1, 1, held=bytes(3)))


async def test_a_prompt_that_kills_takes_no_neighbour_with_it(engine: Engine) -> None:
    """At the third try everybody is asked alone: nineteen are read, the one that kills is told apart."""
    names = ["good"] * 10 + ["poison"] + ["good"] * 9

    answers = await asyncio.gather(*(engine.generate(prompt(name)) for name in names))

    assert [name for name, answer in zip(names, answers, strict=True) if answer.finish_reason == "crash"] == ["poison"]
    assert {answer.text for answer in answers} == {"fine", ""}
    assert [one.code for one in engine.incidents] == [Code.ENGINE_DEAD] * len(engine.incidents)
    assert (await engine.generate(prompt("good"))).text == "fine"
    assert len(Core.alive) == 1


async def test_the_last_try_is_alone_though_others_come(engine: Engine) -> None:
    """A killer that arrives while an innocent prompt is asked for the last time waits, and does not take it along."""
    first = asyncio.create_task(engine.generate(prompt("poison")))
    innocent = asyncio.create_task(engine.generate(prompt("good")))
    async with asyncio.timeout(60):
        while len(engine.incidents) < 2:
            await asyncio.sleep(0.01)
    late = asyncio.create_task(engine.generate(prompt("poison")))

    async with asyncio.timeout(60):
        assert (await innocent).text == "fine"
        assert {(await first).finish_reason, (await late).finish_reason} == {"crash"}


async def test_a_start_that_hangs_ends_the_worker(engine: Engine) -> None:
    """A GPU that is lost lets nothing start: who waits is told in time."""
    engine._start_s = START_S / 4

    with pytest.raises(EngineError, match="did not start again"):
        await engine.generate(prompt("poison"))
    assert engine.is_gone
    await asyncio.sleep(2 * START_S)  # until the late core is there: it must not turn up in the next test


async def test_a_cancelled_page_does_not_take_the_restart_with_it(engine: Engine) -> None:
    """The page that began it has a deadline; the two beside it wait for the same core."""

    async def impatient() -> None:
        async with asyncio.timeout(ANSWER_S + START_S / 2):
            await engine.generate(prompt("good"))

    killer = asyncio.create_task(engine.generate(prompt("poison")))
    first = asyncio.create_task(impatient())
    others = [asyncio.create_task(engine.generate(prompt("good"))) for _ in range(2)]
    await asyncio.sleep(ANSWER_S / 2 + 0.02)
    killer.cancel()

    assert [answer.text for answer in await asyncio.gather(*others)] == ["fine", "fine"]
    assert isinstance((await asyncio.gather(first, return_exceptions=True))[0], TimeoutError)
    assert (engine.most_starting, len(Core.alive)) == (1, 1)


async def test_closing_waits_for_a_core_that_is_just_starting(engine: Engine) -> None:
    asked = asyncio.create_task(engine.generate(prompt("poison")))
    await asyncio.sleep(ANSWER_S / 2 + START_S / 2)
    asked.cancel()

    await engine.close()

    assert Core.alive == []


async def test_too_many_deaths_are_told(tmp_path: Path) -> None:
    """All who wait hear of it, and so does who comes later."""
    engine = Engine(Settings(preset="cpu", page_workers=1, engine_restarts=1), tmp_path)

    answers = await asyncio.gather(
        *(engine.generate(prompt(name)) for name in ("poison", "good")), return_exceptions=True
    )

    assert {type(answer) for answer in (*answers,)} == {EngineError}
    assert engine.is_gone
    with pytest.raises(EngineError, match="died too often"):
        await engine.generate(prompt("good"))
