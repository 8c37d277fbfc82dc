"""The window: how many pages are in flight, and whose; and that what is begun together ends together."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from contextlib import AsyncExitStack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes import documents
from twopass.document import Element
from twopass.engines.interface import Completion, Engine, PagePointer, Prompt
from twopass.errors import Code, EngineError
from twopass.families.interface import Question, Reply
from twopass.families.layout import LayoutFamily
from twopass.job import Door, Job
from twopass.pages.rendered_page import Picture
from twopass.pages.shared_pixels import Pixels
from twopass.runtime.page_pool import PagePool
from twopass.runtime.page_slots import PageSlots, windowed
from twopass.settings import Settings
from twopass.steps import pass2
from twopass.worker import Worker, open_worker


@pytest.mark.parametrize(("told", "places"), [({"engine_sequences": 512}, 640), ({"window": 3}, 3), ({}, 2)])
def test_a_quarter_more_pages_are_in_flight_than_the_engine_takes(told: dict[str, int], places: int) -> None:
    """Each with a slab of its own, however many: WINDOW says otherwise, and one worker has two."""
    with open_worker(Settings(page_workers=1, log_level="ERROR", **told)) as opened:
        assert opened.window.places == len(opened.buffers.descriptors) == places
        asyncio.run(_all_lent(opened))


async def _all_lent(opened: Worker) -> None:
    """At once, A4 pages all of them: there are bytes for each place."""
    async with AsyncExitStack() as stack, asyncio.timeout(60):
        for _ in range(opened.window.places):
            await stack.enter_async_context(opened.buffers.lend(1191 * 1684 * 3))


@given(st.lists(st.floats(0, 0.003), max_size=12), st.integers(1, 5))
def test_order_is_kept_under_any_delays(delays: list[float], places: int) -> None:
    """Outcomes stand in the order of the items, whichever finishes first."""

    async def work(item: tuple[int, float]) -> int:
        await asyncio.sleep(item[1])
        return item[0]

    async def run() -> list[int]:
        return await windowed(work, enumerate(delays), PageSlots(places), "job")

    assert asyncio.run(run()) == list(range(len(delays)))


async def test_no_more_than_the_window_is_in_flight() -> None:
    """A window of three never holds a fourth."""
    now = most = 0

    async def work(_: int) -> None:
        nonlocal now, most
        now += 1
        most = max(most, now)
        await asyncio.sleep(0.001)
        now -= 1

    await windowed(work, range(20), PageSlots(3), "job")

    assert most == 3


@pytest.mark.parametrize(("places", "owners"), [(3, 4), (8, 12), (2, 2)])
async def test_nobody_waits_for_ever_where_there_are_more_jobs_than_places(places: int, owners: int) -> None:
    """Of those that hold as few, who waits longest is next."""
    window, read = PageSlots(places), Counter[int]()
    until = asyncio.get_running_loop().time() + 60

    async def job(owner: int) -> None:
        async def page(_: int) -> None:
            await asyncio.sleep(0)
            read[owner] += 1

        await windowed(page, range(120), window, str(owner))

    jobs = [asyncio.create_task(job(owner)) for owner in range(owners)]
    while not any(task.done() for task in jobs):
        assert asyncio.get_running_loop().time() < until
        await asyncio.sleep(0)
    least = min(read.values())
    await asyncio.gather(*jobs)

    assert len(read) == owners and least >= 100


async def test_two_jobs_share_the_window_equally() -> None:
    """A small job beside a large one holds half of the places while both have pages."""
    window, order = PageSlots(2), list[str]()

    async def work(owner: str) -> None:
        order.append(owner)
        await asyncio.sleep(0.001)

    await asyncio.gather(
        windowed(lambda _: work("large"), range(20), window, "large"),
        windowed(lambda _: work("small"), range(5), window, "small"),
    )

    assert order[:12].count("small") == 5


async def test_the_first_failure_is_raised_as_it_is_and_ends_the_rest() -> None:
    """A store that is gone ends the document at once, with its own error."""
    finished: list[int] = []

    async def work(item: int) -> None:
        if item == 1:
            raise LookupError("gone")
        await asyncio.sleep(5)
        finished.append(item)

    with pytest.raises(LookupError):
        await windowed(work, range(3), PageSlots(3), "job")

    assert not finished


class CuriousFamily(LayoutFamily):
    """Asks about every element."""

    def question(
        self,
        element: Element,
        everything: bool,
        size: tuple[int, int],
        beside: Sequence[Element],
        replies: Sequence[Reply] = (),
    ) -> Question | None:
        return Question("describe")


class FailingEngine(Engine):
    """Fails over the first element while it is busy with the others; remembers which it finished or left."""

    kind, precision, family, sequences = "replay", "recorded", "layout", 64

    def __init__(self) -> None:
        self.left: list[str] = []

    async def open(self, page_pool: PagePool) -> None:
        """Nothing to open."""

    async def generate(self, prompt: Prompt) -> Completion:
        try:
            await asyncio.sleep(0.01 if prompt.id.endswith("e000") else 5)
        except asyncio.CancelledError:
            self.left.append(prompt.id[-4:])
            raise
        raise EngineError(Code.ENGINE_MEMORY, "out of memory")

    async def close(self) -> None:
        """Nothing to close."""


async def test_a_failed_prompt_of_pass_2_ends_those_beside_it(page_pool: PagePool) -> None:
    """An engine's error leaves no prompt of the page running, and comes through as it is."""
    page = documents.checkpoint(1, *(documents.element("text") for _ in range(3)))
    picture = Picture(page.page, Pixels(10, 10, held=bytes(300)), PagePointer("a.pdf", 1))
    job = Job.parse({"id": "job", "input": {"source": "a.pdf", "inline": ["markdown"]}}, Settings(), Door.LOCAL)
    engine = FailingEngine()

    with pytest.raises(EngineError):
        await pass2.read(page, picture, "source", job, engine, CuriousFamily(), page_pool)

    assert sorted(engine.left) == ["e001", "e002"]
