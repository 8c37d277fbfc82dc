"""Pass 2 hands each reply to the family together with the question it answers, and drafts to engines that use them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from tests.fakes import documents
from tests.fakes.scripted import ScriptedEngine
from twopass.document import Box, Element, Flag, RawCompletion, Word
from twopass.engines.interface import Completion
from twopass.engines.replay import ReplayEngine
from twopass.families import table_parser
from twopass.families.interface import ElementContext, Question, Reply
from twopass.families.layout.family import LayoutFamily
from twopass.families.registry import FAMILIES
from twopass.job import EntryPoint, Job
from twopass.pages.rendered_page import PagePointer, RenderedPage
from twopass.pages.shared_pixels import Pixels
from twopass.pages.text_layer import TextLayer
from twopass.runtime.page_pool import PagePool
from twopass.settings import Settings
from twopass.steps import pass2
from twopass.steps.page_context import PageContext


class OneWordingFamily(LayoutFamily):
    """Asks for the author and then the date of every element, both with the same prompt."""

    def next_question(self, context: ElementContext) -> Question | None:
        names = ("author", "date")
        return Question(names[len(context.replies)], "<image>\nRead it.") if len(context.replies) < len(names) else None

    def apply_replies(self, element: Element, replies: Sequence[Reply]) -> Element:
        found = {reply.question.name: reply.text for reply in replies}
        return element.model_copy(update={"summary": f"{found['author']}, {found['date']}"})


INSIDE, OUTSIDE = Word(Box(0.2, 0.25, 0.3, 0.27), "Spring"), Word(Box(0.9, 0.95, 0.99, 0.97), "margin")
CENTRE = Box(0.1, 0.2, 0.8, 0.6)
WORDS = TextLayer.of([INSIDE, OUTSIDE])
CELL = table_parser.parse_html("<table><tr><td>7 &amp; 8</td></tr></table>")


def build_job() -> Job:
    return Job.parse({"id": "job", "input": {"source": "a.pdf", "inline": ["markdown"]}}, Settings(), EntryPoint.LOCAL)


async def test_replies_are_identified_by_the_names_of_their_questions(page_pool: PagePool) -> None:
    """Two questions with the same prompt keep their own replies, also across the process that parses them."""
    checkpoint = documents.checkpoint(1, documents.element("text"))
    page = RenderedPage(checkpoint.page, Pixels(10, 10, data=bytes(300)), PagePointer("a.pdf", 1))
    replies = {"key/p0001-e000": Completion("Ada"), "key/p0001-e000-2": Completion("1843")}
    engine = ReplayEngine(replies, "layout")

    context = PageContext(page, "key", build_job(), engine, OneWordingFamily(), page_pool)
    read = await pass2.read(context, checkpoint)

    assert [element.summary for element in read.elements] == ["Ada, 1843"]


async def read_drafts(element: Element, page_pool: PagePool, answer: str = "", **page: Any) -> list[str]:
    """The drafts of the prompts about an element of a page with these fields, whose pass 1 had this answer."""
    raw = RawCompletion(prompt_id="", prompt="", text=answer, finish_reason="stop")
    checkpoint = documents.checkpoint(1, element).model_copy(update={"completions": (raw,)})
    rendered = RenderedPage(checkpoint.page, Pixels(400, 400, data=bytes(480_000)), PagePointer("a.pdf", 1), **page)
    engine = ScriptedEngine("deepseek_ocr", lambda prompt: "Pump")
    engine.uses_drafts = True
    context = PageContext(rendered, "key", build_job(), engine, FAMILIES["deepseek_ocr"], page_pool)
    await pass2.read(context, checkpoint)
    return [prompt.draft for prompt in engine.prompts]


@pytest.mark.parametrize(
    ("kind", "flags", "drafts"), [("picture", (), ["Spring", ""]), ("text", (Flag.UNREAD_REGION,), ["Spring"])]
)
async def test_an_element_without_text_is_drafted_from_the_text_layer(
    page_pool: PagePool, kind: str, flags: tuple[str, ...], drafts: list[str]
) -> None:
    """A picture and a detected region have the layer's words inside them; a picture's description has no draft."""
    element = documents.element(kind, box=CENTRE, flags=flags)

    assert await read_drafts(element, page_pool, words=WORDS, draft="Spring\nmargin") == drafts


async def test_a_text_layer_that_is_garbage_drafts_no_element(page_pool: PagePool) -> None:
    """The draft of the page is empty if its layer is garbage; then those of its elements are, too."""
    element = documents.element("picture", box=CENTRE)

    assert await read_drafts(element, page_pool, words=WORDS) == ["", ""]


@pytest.mark.parametrize(
    ("answer", "draft"),
    [
        ("<table><tr><td>7 &amp; 8</td></tr></table>", "<table><tr><td>7 &amp; 8</td></tr></table>"),
        ("<table><tr><td>7 &amp; 8</td></tr></table>\n\n<table><tr><td>9</td></tr></table>", CELL.html),
        ("", CELL.html),
    ],
)
async def test_a_table_is_drafted_as_the_model_wrote_it(page_pool: PagePool, answer: str, draft: str) -> None:
    """Our own HTML is used only where the answer has more or fewer tables than the page has."""
    element = documents.element("table", "7 & 8", CENTRE, table=CELL)

    assert await read_drafts(element, page_pool, answer) == [draft]
