"""Pass 2: read elements again from their crops, where the model family asks for it.

For the regions of a layout detector this is the first reading.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from twopass.document import Checkpoint, Element, Flag, Problem, RawCompletion
from twopass.families import table_parser
from twopass.families.interface import ElementContext, Family, Question, Reply
from twopass.job import Pass2, Task
from twopass.pages.rendered_page import RenderedPage
from twopass.pages.shared_pixels import Pixels
from twopass.runtime import task_group
from twopass.steps.page_context import Answer, PageContext

_MAX_QUESTIONS = 3  # per element, a bound for any family
_PADDING = 8  # pixels around a crop: boxes are rounded to the model's grid and would cut off strokes


async def read(page: PageContext, first: Checkpoint) -> Checkpoint:
    """The page after both passes; `first` is what pass 1 made of it. Raises EngineError and WorkerDied.

    All selected elements are asked about at once. The first failure cancels the others and is raised unchanged.
    """
    questions = _select_questions(page, first)
    written = _find_written(first) if page.engine.uses_drafts else {}
    async with task_group.open_group() as group:
        tasks = [
            group.create_task(_read_element(page, first, element, questions[element.id], written.get(element.id)))
            for element in first.elements
            if element.id in questions
        ]
    readings = [task.result() for task in tasks]
    updated = {reading.element.id: reading.element for reading in readings}
    engine_s = first.cost.get("engine_s", 0) + sum(reading.seconds for reading in readings)
    return first.model_copy(
        update={
            "elements": page.family.finish_page([updated.get(element.id, element) for element in first.elements]),
            "completions": (*first.completions, *(raw for reading in readings for raw in reading.completions)),
            "problems": (*first.problems, *(problem for reading in readings for problem in reading.problems)),
            "cost": {**first.cost, "engine_s": engine_s},
        }
    )


class _Reading(NamedTuple):
    """An element after the replies about it."""

    element: Element
    completions: tuple[RawCompletion, ...]
    problems: tuple[Problem, ...]
    seconds: float


async def _read_element(
    page: PageContext, first: Checkpoint, element: Element, question: Question | None, written: str | None
) -> _Reading:
    layer_text = _layer_text(element, page.rendered)
    draft = written or (layer_text if page.rendered.draft else None) or ""
    image, replies, answers = _crop(page.rendered.pixels, element), list[Reply](), list[Answer]()
    while question and len(replies) < _MAX_QUESTIONS:
        suffix = f"-{len(replies) + 1}" if replies else ""  # the first prompt's id is the element's
        answer = await page.ask(f"{element.id}{suffix}", question, image, draft)
        answers.append(answer)
        replies.append(Reply(question, answer.completion.text, answer.completion.finish_reason, layer_text))
        question = _next_question(page, first, element, replies)
    return _Reading(
        await page.page_pool.call(apply_replies, page.family, element, replies),
        tuple(answer.recorded for answer in answers),
        tuple(problem for answer in answers for problem in answer.problems),
        sum(answer.completion.seconds for answer in answers),
    )


def _select_questions(page: PageContext, first: Checkpoint) -> dict[str, Question]:
    """The first question about each element that pass 2 reads again, by element id.

    Without pass 2, only detected regions are asked about: for them it is the first reading.
    """
    if page.job.task is not Task.DOCUMENT or first.page.is_lost:
        return {}
    questions = {
        element.id: _next_question(page, first, element)
        for element in first.elements
        if element.box and (page.job.pass2 is not Pass2.NONE or Flag.UNREAD_REGION in element.flags)
    }
    return {element_id: question for element_id, question in questions.items() if question is not None}


def _next_question(
    page: PageContext, first: Checkpoint, element: Element, replies: Sequence[Reply] = ()
) -> Question | None:
    everything, size = page.job.pass2 is Pass2.ALL, _crop_size(element, page.rendered.pixels)
    return page.family.next_question(
        ElementContext(element, everything, size, first.elements, replies, page.job.figure_descriptions)
    )


def apply_replies(family: Family, element: Element, replies: Sequence[Reply]) -> Element:
    """In a page worker: the element after the replies about it."""
    return family.apply_replies(element, replies)


def _find_written(checkpoint: Checkpoint) -> dict[str, str]:
    """What pass 1 wrote about each element, by id: its text, or its table as the model wrote it.

    Where the answer has more or fewer tables than the page, a table's HTML is our own.
    """
    tables = [element.id for element in checkpoint.elements if element.table]
    sources = table_parser.find_sources(checkpoint.completions[-1].text) if tables and checkpoint.completions else []
    written = {element.id: element.table.html if element.table else element.text for element in checkpoint.elements}
    return written | dict(zip(tables, sources, strict=True)) if len(tables) == len(sources) else written


def _layer_text(element: Element, rendered: RenderedPage) -> str | None:
    """The text layer's words whose centre is inside the element; None if the page has no text layer."""
    if not rendered.words or element.box is None:
        return None
    return rendered.words.inside([element.box])


def _crop_size(element: Element, pixels: Pixels) -> tuple[int, int]:
    """Width and height in pixels, padding included."""
    assert element.box is not None
    x0, y0, x1, y1 = element.box.to_pixels(pixels.width, pixels.height, _PADDING)
    return x1 - x0, y1 - y0


def _crop(pixels: Pixels, element: Element) -> Pixels:
    """The element's pixels with padding, a view of the page's memory."""
    assert element.box is not None
    return pixels.crop(*element.box.to_pixels(pixels.width, pixels.height, _PADDING))
