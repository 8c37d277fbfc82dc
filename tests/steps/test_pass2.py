"""Pass 2 hands each reply to the family together with the question it answers."""

from __future__ import annotations

from collections.abc import Sequence

from tests.fakes import documents
from twopass.document import Element
from twopass.engines.interface import Completion
from twopass.engines.replay import ReplayEngine
from twopass.families.interface import Question, Reply
from twopass.families.layout.family import LayoutFamily
from twopass.job import EntryPoint, Job
from twopass.pages.rendered_page import PagePointer, RenderedPage
from twopass.pages.shared_pixels import Pixels
from twopass.runtime.page_pool import PagePool
from twopass.settings import Settings
from twopass.steps import pass2


class OneWordingFamily(LayoutFamily):
    """Asks for the author and then the date of every element, both with the same prompt."""

    def next_question(
        self,
        element: Element,
        ask_all: bool,
        crop_size: tuple[int, int],
        page_elements: Sequence[Element],
        replies: Sequence[Reply] = (),
        descriptions: str = "all",
    ) -> Question | None:
        names = ("author", "date")
        return Question(names[len(replies)], "<image>\nRead it.") if len(replies) < len(names) else None

    def apply_replies(self, element: Element, replies: Sequence[Reply]) -> Element:
        found = {reply.question.name: reply.text for reply in replies}
        return element.model_copy(update={"summary": f"{found['author']}, {found['date']}"})


async def test_replies_are_identified_by_the_names_of_their_questions(page_pool: PagePool) -> None:
    """Two questions with the same prompt keep their own replies, also across the process that parses them."""
    checkpoint = documents.checkpoint(1, documents.element("text"))
    page = RenderedPage(checkpoint.page, Pixels(10, 10, data=bytes(300)), PagePointer("a.pdf", 1))
    job = Job.parse({"id": "job", "input": {"source": "a.pdf", "inline": ["markdown"]}}, Settings(), EntryPoint.LOCAL)
    replies = {"key/p0001-e000": Completion("Ada"), "key/p0001-e000-2": Completion("1843")}
    engine = ReplayEngine(replies, "layout")

    read = await pass2.read(checkpoint, page, "key", job, engine, OneWordingFamily(), page_pool)

    assert [element.summary for element in read.elements] == ["Ada, 1843"]
