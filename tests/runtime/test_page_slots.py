"""Page slots: how many pages are in flight, how jobs share the slots, and what a failure cancels."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import AsyncExitStack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes import documents, simulated_time
from tests.fakes.scripted import ScriptedEngine
from tests.fakes.simulated_time import simulated
from twopass.engines.interface import Completion, Engine, Prompt
from twopass.errors import Code, EngineError
from twopass.families.interface import ElementContext, Question
from twopass.families.layout.family import LayoutFamily
from twopass.job import EntryPoint, Job
from twopass.pages.rendered_page import PagePointer, RenderedPage
from twopass.pages.shared_pixels import Pixels
from twopass.runtime.page_pool import PagePool, slow_call_callbacks
from twopass.runtime.page_slots import PageSlots, run_all
from twopass.settings import Settings
from twopass.steps import pass2
from twopass.steps.page_context import PageContext
from twopass.worker import Worker, open_worker


def create_engine(sequences: int, prompts_per_page: int = 1) -> Engine:
    """An engine for which no page worker loads a model."""
    engine = ScriptedEngine("layout", lambda prompt: "")
    engine.sequences, engine.prompts_per_page = sequences, prompts_per_page
    return engine


@pytest.mark.parametrize(("settings", "count"), [({"engine_sequences": 512}, 640), ({"window": 3}, 3), ({}, 2)])
def test_there_are_a_quarter_more_page_slots_than_engine_sequences(settings: dict[str, int], count: int) -> None:
    """By default a worker has 1.25 slots per sequence of the engine, at least 2; WINDOW sets another number.

    Each slot, and each slow page without one, has a pixel buffer; there is room for an A4 page in every slot.
    """
    fields = Settings(page_workers=1, log_level="ERROR", **settings)
    with open_worker(fields, create_engine=lambda given: create_engine(given.engine_sequences or 1)) as worker:
        assert worker.page_slots.count == count
        assert len(worker.buffers.descriptors) == worker.page_slots.max_in_flight
        asyncio.run(borrow_all_buffers(worker))


def test_a_page_that_asks_several_prompts_at_once_counts_as_several() -> None:
    """Else a worker behind a layout detector would hold the pixels of more pages than its engine can read."""

    settings = Settings(page_workers=1, log_level="ERROR")
    with open_worker(settings, create_engine=lambda given: create_engine(512, prompts_per_page=4)) as worker:
        assert worker.page_slots.count == 160


async def borrow_all_buffers(worker: Worker) -> None:
    """Borrow a buffer of A4 size for every slot at the same time."""
    async with AsyncExitStack() as stack, asyncio.timeout(60):
        for _ in range(worker.page_slots.count):
            await stack.enter_async_context(worker.buffers.lend(1191 * 1684 * 3))


@given(st.lists(st.floats(0, 0.003), max_size=12), st.integers(1, 5))
def test_outcomes_are_in_the_order_of_the_items(delays: list[float], count: int) -> None:
    """Outcomes are in the order of the items, whichever finishes first."""

    async def work(item: tuple[int, float]) -> int:
        await asyncio.sleep(item[1])
        return item[0]

    async def run() -> list[int]:
        return await run_all(work, enumerate(delays), PageSlots(count), "job")

    assert simulated_time.run(run()) == list(range(len(delays)))


@simulated
async def test_no_more_pages_are_in_flight_than_there_are_slots() -> None:
    """With three slots a fourth item does not run."""
    in_flight = most = 0

    async def work(_: int) -> None:
        nonlocal in_flight, most
        in_flight += 1
        most = max(most, in_flight)
        await asyncio.sleep(0.001)
        in_flight -= 1

    await run_all(work, range(20), PageSlots(3), "job")

    assert most == 3


@pytest.mark.parametrize(("count", "owners"), [(3, 4), (8, 12), (2, 2)])
@simulated
async def test_no_job_starves_if_there_are_more_jobs_than_slots(count: int, owners: int) -> None:
    """Among the jobs that hold the fewest slots, the one that waits longest is next, so all advance alike."""
    page_slots, pages_read = PageSlots(count), Counter[int]()
    deadline = asyncio.get_running_loop().time() + 60

    async def job(owner: int) -> None:
        async def read_page(_: int) -> None:
            await asyncio.sleep(0)
            pages_read[owner] += 1

        await run_all(read_page, range(120), page_slots, str(owner))

    jobs = [asyncio.create_task(job(owner)) for owner in range(owners)]
    while not any(task.done() for task in jobs):
        assert asyncio.get_running_loop().time() < deadline
        await asyncio.sleep(0)
    least = min(pages_read.values())
    await asyncio.gather(*jobs)

    assert len(pages_read) == owners and least >= 100


@simulated
async def test_two_jobs_share_the_slots_equally() -> None:
    """A small job that runs beside a large one has half of the slots while both have pages to read."""
    page_slots, order = PageSlots(2), list[str]()

    async def work(owner: str) -> None:
        order.append(owner)
        await asyncio.sleep(0.001)

    await asyncio.gather(
        run_all(lambda _: work("large"), range(20), page_slots, "large"),
        run_all(lambda _: work("small"), range(5), page_slots, "small"),
    )

    assert order[:12].count("small") == 5


@simulated
async def test_a_slow_item_gives_its_slot_to_another() -> None:
    """An item whose page worker is slow goes on without a slot, and takes no part in its job's share."""
    page_slots, release = PageSlots(1, max_slow=1), asyncio.Event()

    async def wait_as_slow() -> int:
        async with page_slots.acquire("job"):
            for callback in slow_call_callbacks.get():
                callback()
            await release.wait()
            return page_slots.in_flight  # the other has ended

    slow = asyncio.create_task(wait_as_slow())
    await asyncio.sleep(0)  # it takes the only slot
    async with asyncio.timeout(60):
        async with page_slots.acquire("job"):
            both = page_slots.in_flight
        release.set()

        assert (both, await slow, page_slots.in_flight) == (2, 1, 0)


@simulated
async def test_only_some_slow_items_give_their_slot_away() -> None:
    """Beyond `max_slow`, a slow item keeps its slot, so that memory stays bounded."""
    page_slots = PageSlots(2, max_slow=1)
    async with page_slots.acquire("a"), page_slots.acquire("a"):
        for callback in slow_call_callbacks.get():
            callback()

        assert page_slots.in_flight == 2
        async with asyncio.timeout(60), page_slots.acquire("b"):
            assert page_slots.in_flight == 3
            waiting = asyncio.create_task(page_slots.acquire("b").__aenter__())
            await asyncio.sleep(0)
            assert page_slots.waiting == 1
            waiting.cancel()


@simulated
async def test_the_first_failure_is_raised_unchanged_and_cancels_the_rest() -> None:
    """If one page fails, for example because the store is down, its error is raised and no other page completes."""
    finished: list[int] = []

    async def work(item: int) -> None:
        if item == 1:
            raise LookupError("gone")
        await asyncio.sleep(5)
        finished.append(item)

    with pytest.raises(LookupError):
        await run_all(work, range(3), PageSlots(3), "job")

    assert not finished


class AskingFamily(LayoutFamily):
    """Asks in pass 2 about every element."""

    def next_question(self, context: ElementContext) -> Question | None:
        return Question("anything", "describe")


class FailingEngine(Engine):
    """Fails for the first element while it answers about the others; remembers which of them were cancelled."""

    kind, precision, family, sequences = "replay", "recorded", "layout", 64

    def __init__(self) -> None:
        self.cancelled: list[str] = []
        self._all_asked = asyncio.Barrier(3)

    async def open(self, page_pool: PagePool) -> None:
        """Nothing to open."""

    async def generate(self, prompt: Prompt) -> Completion:
        try:
            await self._all_asked.wait()
            if not prompt.id.endswith("e000"):
                await asyncio.sleep(60)
        except asyncio.CancelledError:
            self.cancelled.append(prompt.id[-4:])
            raise
        raise EngineError(Code.ENGINE_MEMORY, "out of memory")

    async def close(self) -> None:
        """Nothing to close."""


async def test_a_failed_prompt_of_pass_2_cancels_the_others_of_its_page(page_pool: PagePool) -> None:
    """If the engine fails for one element, its error is raised unchanged and the page's other prompts are cancelled."""
    checkpoint = documents.checkpoint(1, *(documents.element("text") for _ in range(3)))
    picture = RenderedPage(checkpoint.page, Pixels(10, 10, data=bytes(300)), PagePointer("a.pdf", 1))
    job = Job.parse({"id": "job", "input": {"source": "a.pdf", "inline": ["markdown"]}}, Settings(), EntryPoint.LOCAL)
    engine = FailingEngine()

    with pytest.raises(EngineError):
        await pass2.read(PageContext(picture, "source", job, engine, AskingFamily(), page_pool), checkpoint)

    assert sorted(engine.cancelled) == ["e001", "e002"]
