"""Several engines as one: balance, deaths, prompts that kill, aborts, the canary of each engine, closing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from tests.fakes.canary_answers import answer_prompt, build_detection
from twopass.document import Canary
from twopass.engines.detector.engine import DetectorFirstEngine
from twopass.engines.group import EngineGroup
from twopass.engines.interface import Completion, EngineDied, Incident, Prompt
from twopass.errors import Code, EngineError
from twopass.families import registry
from twopass.families.interface import FamilyOptions
from twopass.pages.shared_pixels import PixelBufferPool, Pixels
from twopass.runtime.engine_status import EngineStatus
from twopass.runtime.page_pool import PagePool
from twopass.settings import Settings
from twopass.steps import canary

MAX_WAIT_S = 30
POISON = "poison"  # in the id of a prompt that kills its engine


class Member:
    """An engine whose prompts are answered when the test says so, or at once; a dead one starts again likewise.

    A prompt with POISON in its id kills the engine as soon as it is answered.
    """

    kind, precision, family = "scripted", "none", "deepseek_ocr"
    needs_canary = has_ngram_ban = True
    uses_drafts = False
    fallbacks: Sequence[str] = ()
    detector = None
    prompts_per_page = 1
    members: Sequence[Member] = ()

    def __init__(self, gpus: str = "0", sequences: int = 4, restarts: int = 6) -> None:
        self.gpus, self.sequences = gpus, sequences
        self.buffer_pools: Sequence[PixelBufferPool] = ()
        self.stage_ends: dict[str, float] = {}
        self.incidents: list[Incident] = []
        self.is_open = self.is_gone = self.is_dead = False
        self.answers = asyncio.Event()
        self.starts = asyncio.Event()
        self.asked: list[str] = []
        self.inside: list[str] = []
        self.alone: list[str] = []
        self.answer: Callable[[Prompt], str] = lambda prompt: f"by {self.gpus}"
        self._died = asyncio.Event()
        self._restarts_left = restarts
        self._turn = asyncio.Lock()

    @property
    def statuses(self) -> Sequence[EngineStatus]:
        return [EngineStatus(self.gpus, self.sequences, len(self.inside), len(self.incidents), not self.is_dead)]

    async def open(self, page_pool: PagePool) -> None:
        self.is_open = True

    async def generate(self, prompt: Prompt) -> Completion:
        return await self.attempt(prompt)

    async def attempt(self, prompt: Prompt, is_alone: bool = False) -> Completion:
        if not is_alone:
            return await self._answer(prompt)
        async with self._turn:
            self.alone.append(prompt.id)
            return await self._answer(prompt)

    async def _answer(self, prompt: Prompt) -> Completion:
        if self.is_dead:
            raise EngineDied(had_prompt=False)
        self.asked.append(prompt.id)
        self.inside.append(prompt.id)
        died = self._died
        answered, killed = (asyncio.create_task(event.wait()) for event in (self.answers, died))
        try:
            await asyncio.wait((answered, killed), return_when=asyncio.FIRST_COMPLETED)
            if POISON in prompt.id:
                self.die()
            if died.is_set():
                raise EngineDied(had_prompt=True)
            return Completion(self.answer(prompt))
        finally:
            self.inside.remove(prompt.id)
            answered.cancel()
            killed.cancel()

    def die(self) -> None:
        self.is_dead = True
        self._died.set()

    async def wait_for_restart(self) -> None:
        if not self.is_dead:
            return
        await self.starts.wait()
        if not self._restarts_left:
            self.is_gone = True
            raise EngineError(Code.ENGINE_DEAD, "died too often")
        self._restarts_left -= 1
        self.incidents.append(Incident(Code.ENGINE_DEAD, f"GPU {self.gpus} started again"))
        self._died, self.is_dead = asyncio.Event(), False

    async def close(self) -> None:
        self.is_open = False


def build(*sizes: int, restarts: int = 6) -> tuple[EngineGroup, list[Member]]:
    """A group of engines with so many sequences each, which answer and start again only when a test says so."""
    members = [Member(str(number), size, restarts) for number, size in enumerate(sizes)]
    return EngineGroup(members), members


def let_run(members: Sequence[Member]) -> None:
    for member in members:
        member.answers.set()
        member.starts.set()


def ask(group: EngineGroup, *names: str) -> list[asyncio.Task[Completion]]:
    return [asyncio.create_task(group.generate(Prompt(name, "", Pixels(1, 1, data=bytes(3))))) for name in names]


def name_prompts(count: int, kind: str = "good") -> list[str]:
    return [f"{kind}{number}" for number in range(count)]


async def settle() -> None:
    """Let all tasks run until they wait for an event of the test."""
    for _ in range(100):
        await asyncio.sleep(0)


async def finish(tasks: Sequence[asyncio.Task[Completion]]) -> list[Completion]:
    async with asyncio.timeout(MAX_WAIT_S):
        return await asyncio.gather(*tasks)


def test_a_group_has_the_room_of_all_its_engines() -> None:
    """Sequences are added up, and page workers share the buffers of every engine."""
    group, members = build(4, 6)
    for member in members:
        member.buffer_pools = (PixelBufferPool(1, 1),)

    both = EngineGroup(members)

    assert (group.sequences, group.kind, group.family) == (10, "scripted", "deepseek_ocr")
    assert [*both.buffer_pools] == [pool for member in members for pool in member.buffer_pools]
    for pool in both.buffer_pools:
        pool.close()


def test_the_start_takes_as_long_as_the_slowest_engine() -> None:
    """The engines start at the same time, so that the stages are not added up."""
    group, (first, second) = build(4, 4)
    first.stage_ends, second.stage_ends = {"weights_s": 3.0, "graphs_s": 2.0}, {"weights_s": 4.0}

    assert group.stage_ends == {"weights_s": 4.0, "graphs_s": 2.0}


async def test_prompts_go_where_the_most_room_is() -> None:
    """The larger engine is filled first until both have equal room, then they take turns."""
    group, (small, large) = build(4, 6)

    tasks = ask(group, *name_prompts(8))
    await settle()

    assert (len(small.inside), len(large.inside)) == (3, 5)
    let_run((small, large))
    await finish(tasks)


async def test_a_freed_sequence_is_used_next() -> None:
    """Room that an answer leaves is counted at once."""
    group, (first, second) = build(4, 4)
    tasks = ask(group, *name_prompts(8))
    await settle()
    second.answers.set()
    await settle()
    second.answers.clear()

    tasks += ask(group, "late")
    await settle()

    assert second.inside == ["late"]
    let_run((first, second))
    await finish(tasks)


async def test_prompts_of_a_dead_engine_are_answered_by_the_others() -> None:
    """They move at once, before the dead engine has started again."""
    group, (first, second) = build(4, 4)
    tasks = ask(group, *name_prompts(6))
    await settle()
    second.answers.set()

    first.die()
    answers = await finish(tasks)

    assert {answer.text for answer in answers} == {"by 1"}
    assert not group.is_gone
    let_run((first, second))


async def test_an_engine_that_started_again_gets_prompts_again() -> None:
    """Until then it gets none, and its restart is counted as its own."""
    group, (first, second) = build(4, 4)
    tasks = ask(group, *name_prompts(2))
    await settle()
    first.die()
    await settle()
    tasks += ask(group, "meanwhile")
    await settle()
    assert first.inside == []

    first.starts.set()
    await settle()
    tasks += ask(group, "afterwards")
    await settle()

    assert first.inside == ["afterwards"]
    assert [status.restarts for status in group.statuses] == [1, 0]
    let_run((first, second))
    await finish(tasks)


async def test_prompts_wait_while_all_engines_start_again() -> None:
    """The first engine that runs again answers them."""
    group, (first, second) = build(4, 4)
    tasks = ask(group, *name_prompts(4))
    await settle()
    first.die()
    second.die()
    await settle()
    assert not any(task.done() for task in tasks)

    first.answers.set()
    first.starts.set()

    assert {answer.text for answer in await finish(tasks)} == {"by 0"}
    let_run((first, second))


async def test_a_group_is_gone_when_all_engines_are() -> None:
    """One engine that died too often leaves the others; after the last one, prompts get an error."""
    group, (first, second) = build(4, 4, restarts=0)
    let_run((first, second))
    first.die()
    assert [answer.text for answer in await finish(ask(group, *name_prompts(3)))] == ["by 1"] * 3
    assert (first.is_gone, group.is_gone, group.sequences) == (True, False, 4)

    second.die()

    with pytest.raises(EngineError, match="all engines died too often"):
        await finish(ask(group, "late"))
    assert group.is_gone


async def test_a_prompt_that_kills_engines_fails_alone() -> None:
    """It kills three engines at most, the last one while it is alone there; all others are answered."""
    group, members = build(8, 8, 8, 8)
    let_run(members)
    names = [*name_prompts(10), POISON, *name_prompts(10, "more")]

    answers = await finish(ask(group, *names))

    assert [name for name, answer in zip(names, answers, strict=True) if answer.finish_reason == "crash"] == [POISON]
    assert sum(len(member.incidents) for member in members) == 3
    assert [name for member in members for name in member.alone if POISON in name] == [POISON]


async def test_a_prompt_that_has_to_run_alone_leaves_the_other_engines_to_the_others() -> None:
    """Prompts that come while it runs go to the other engine, although that one has less room."""
    group, (first, second) = build(8, 4)
    poison = ask(group, POISON)
    await settle()
    for member in (first, second):  # the first and the second death
        member.die()
        await settle()
    first.starts.set()
    second.starts.set()
    await settle()
    assert first.alone == [POISON]

    others = ask(group, *name_prompts(3))
    await settle()

    assert (first.inside, len(second.inside)) == ([POISON], 3)
    let_run((first, second))
    assert {answer.text for answer in await finish(others)} == {"by 1"}
    assert [answer.finish_reason for answer in await finish(poison)] == ["crash"]


async def test_a_prompt_that_found_its_engine_dead_did_not_kill_it() -> None:
    """However many dead engines it meets, it is answered and need not run alone."""
    group, members = build(4, 4, 4)
    for member in members:
        member.is_dead = True
        member.answers.set()
    tasks = ask(group, "good")
    await settle()

    for member in members:
        member.starts.set()

    assert [answer.finish_reason for answer in await finish(tasks)] == ["stop"]
    assert not any(member.alone for member in members)


async def test_an_aborted_prompt_leaves_its_engine() -> None:
    """Cancelling it cancels the request, and its room is free again."""
    group, (first, second) = build(1, 1)
    tasks = ask(group, "aborted", "other")
    await settle()

    tasks[0].cancel()
    await settle()
    tasks += ask(group, "next")
    await settle()

    assert (first.inside, second.inside) == (["next"], ["other"])
    let_run((first, second))
    await finish(tasks[1:])


async def test_incidents_keep_their_positions() -> None:
    """A job remembers how many there were when it began: later ones of any engine are appended."""
    group, (first, second) = build(4, 4)
    second.incidents.append(Incident(Code.ENGINE_DEAD, "the second"))
    before = len(group.incidents)

    first.incidents.append(Incident(Code.ENGINE_MEMORY, "the first"))

    assert [incident.message for incident in group.incidents[before:]] == ["the first"]
    assert [incident.message for incident in group.incidents] == ["the second", "the first"]


async def test_all_engines_open_and_close(page_pool: PagePool) -> None:
    """An engine that starts again is closed, too."""
    group, members = build(4, 4)
    await group.open(page_pool)
    assert all(member.is_open for member in members)
    tasks = ask(group, "good")
    await settle()
    members[0].die()
    await settle()

    await group.close()

    assert not any(member.is_open for member in members)
    let_run(members)
    await finish(tasks)


class CanaryDetector:
    """Finds the regions of the canary's page."""

    pages = 0

    async def prepare(self, page_pool: PagePool) -> None: ...

    async def open(self, page_pool: PagePool) -> None: ...

    async def detect(self, pages: Sequence[Pixels]) -> Sequence[str]:
        self.pages += len(pages)
        return [build_detection()] * len(pages)

    async def close(self) -> None: ...


async def check_canary(
    engine: EngineGroup | DetectorFirstEngine, page_pool: PagePool, structure: str = "model", **fields: Any
) -> Canary | None:
    family = registry.get_family("deepseek_ocr", FamilyOptions(structure=structure))
    return await canary.check(engine, family, page_pool, Settings(**fields))


async def test_every_engine_reads_the_canary(page_pool: PagePool) -> None:
    """The test images are sent to each engine, not to the one with the most room."""
    group, members = build(8, 8)
    let_run(members)
    for member in members:
        member.answer = answer_prompt

    assert await check_canary(group, page_pool) is Canary.PASSED
    assert members[0].asked == members[1].asked == ["canary/text", "canary/page", "canary/ban"]


async def test_one_misread_canary_stops_the_worker(page_pool: PagePool) -> None:
    """The error names the GPU whose engine misread it."""
    group, members = build(8, 8)
    let_run(members)
    members[0].answer, members[1].answer = answer_prompt, lambda prompt: "gibberish"

    with pytest.raises(EngineError, match="^CANARY: GPU 1: .*gibberish"):
        await check_canary(group, page_pool, canary="enforce")


async def test_an_engine_that_does_not_answer_the_canary_is_named(page_pool: PagePool) -> None:
    """With several GPUs, one may hang while the others answer."""
    group, members = build(8, 8)
    members[0].answer = answer_prompt
    members[0].answers.set()

    with pytest.raises(EngineError, match="^CANARY: GPU 1: no answer"):
        await check_canary(group, page_pool, canary_timeout_s=3)


async def test_a_detector_in_front_finds_regions_for_every_engine(page_pool: PagePool) -> None:
    """The group behind a detector is still checked engine by engine."""
    group, members = build(8, 8)
    let_run(members)
    for member in members:
        member.answer = answer_prompt
    detector = CanaryDetector()

    engine = DetectorFirstEngine(detector, group, group.family)
    verdict = await check_canary(engine, page_pool, structure="fallback")

    assert verdict is Canary.PASSED
    assert members[0].asked == members[1].asked == ["canary/text", "canary/page", "canary/ban"]
    assert detector.pages == 2


@pytest.mark.parametrize("uses_drafts", [False, True])
def test_a_group_uses_drafts_if_its_engines_do(uses_drafts: bool) -> None:
    """Drafts are made for a group as for a single engine."""
    member = Member()
    member.uses_drafts = uses_drafts

    assert EngineGroup([member]).uses_drafts is uses_drafts


def test_a_group_does_more_slowly_what_one_of_its_engines_does() -> None:
    """One GPU may be too full for CUDA graphs; what all have in common is named once."""
    members = [Member("0"), Member("1")]
    members[0].fallbacks = ("own_worker_of_vllm",)
    members[1].fallbacks = ("own_worker_of_vllm", "no_cuda_graphs")

    assert EngineGroup(members).fallbacks == ("own_worker_of_vllm", "no_cuda_graphs")
