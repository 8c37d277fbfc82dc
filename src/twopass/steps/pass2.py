"""Pass 2: read elements again from their crops, where the model family asks for it."""

from __future__ import annotations

from collections.abc import Sequence

from twopass.document import Checkpoint, Element, Flag, Problem, RawCompletion
from twopass.engines import ask
from twopass.engines.interface import Engine, Prompt, build_sampling, to_raw_completion
from twopass.families import table_parser
from twopass.families.interface import ElementContext, Family, Question, Reply
from twopass.job import Job, Pass2, Task
from twopass.pages.rendered_page import RenderedPage
from twopass.pages.shared_pixels import Pixels
from twopass.runtime import task_group
from twopass.runtime.page_pool import PagePool

MAX_QUESTIONS = 3  # per element, a bound for any family
PADDING = 8  # pixels around a crop: boxes are rounded to the model's grid and would cut off strokes


async def read(
    checkpoint: Checkpoint,
    rendered: RenderedPage,
    source_key: str,
    job: Job,
    engine: Engine,
    family: Family,
    page_pool: PagePool,
) -> Checkpoint:
    """Ask about all selected elements at once. The first failure cancels the others and is raised unchanged."""

    async def ask_about(element: Element) -> tuple[Element, list[RawCompletion], float]:
        question: Question | None = questions[element.id]
        layer_text = _layer_text(element, rendered)
        draft = written.get(element.id) or (layer_text if rendered.draft else None) or ""
        replies: list[Reply] = []
        completions: list[RawCompletion] = []
        seconds = 0.0
        while question and len(replies) < MAX_QUESTIONS:
            prompt = _build_prompt(element, question, len(replies), rendered, source_key, job, family, draft)
            completion, too_long = await ask.engine(
                engine, prompt, checkpoint.page.number, runs_model=family.canary is not None
            )
            problems.extend([too_long] if too_long else [])
            replies.append(Reply(question, completion.text, completion.finish_reason, layer_text))
            completions.append(to_raw_completion(prompt, completion))
            seconds += completion.seconds
            question = _next_question(element, checkpoint, rendered, family, job, replies)
        return await page_pool.call(apply_replies, family, element, replies), completions, seconds

    problems: list[Problem] = []
    questions = select_questions(checkpoint, rendered, family, job)
    written = _find_written(checkpoint) if engine.uses_drafts else {}
    async with task_group.open_group() as group:
        tasks = [group.create_task(ask_about(element)) for element in checkpoint.elements if element.id in questions]
    answers = [task.result() for task in tasks]
    updated = {element.id: element for element, _, _ in answers}
    engine_s = checkpoint.cost.get("engine_s", 0) + sum(seconds for _, _, seconds in answers)
    return checkpoint.model_copy(
        update={
            "elements": family.finish_page([updated.get(element.id, element) for element in checkpoint.elements]),
            "completions": (*checkpoint.completions, *(raw for _, completions, _ in answers for raw in completions)),
            "problems": (*checkpoint.problems, *problems),
            "cost": {**checkpoint.cost, "engine_s": engine_s},
        }
    )


def select_questions(checkpoint: Checkpoint, rendered: RenderedPage, family: Family, job: Job) -> dict[str, Question]:
    """The first question about each element that pass 2 reads again, by element id.

    Without pass 2, only detected regions are asked about: for them it is the first reading.
    """
    if job.task is not Task.DOCUMENT or checkpoint.page.is_lost:
        return {}
    questions = {
        element.id: _next_question(element, checkpoint, rendered, family, job)
        for element in checkpoint.elements
        if element.box and (job.pass2 is not Pass2.NONE or Flag.UNREAD_REGION in element.flags)
    }
    return {element_id: question for element_id, question in questions.items() if question is not None}


def _next_question(
    element: Element,
    checkpoint: Checkpoint,
    rendered: RenderedPage,
    family: Family,
    job: Job,
    replies: Sequence[Reply] = (),
) -> Question | None:
    everything, size = job.pass2 is Pass2.ALL, _crop_size(element, rendered.pixels)
    return family.next_question(
        ElementContext(element, everything, size, checkpoint.elements, replies, job.figure_descriptions)
    )


def apply_replies(family: Family, element: Element, replies: Sequence[Reply]) -> Element:
    """Runs in a page worker: the element after the replies about it."""
    return family.apply_replies(element, replies)


def _build_prompt(
    element: Element,
    question: Question,
    number: int,
    rendered: RenderedPage,
    source_key: str,
    job: Job,
    family: Family,
    draft: str,
) -> Prompt:
    """The first prompt's id is the element's; ids of further prompts end with their number."""
    return Prompt(
        id=f"{source_key}/{element.id}" + (f"-{number + 1}" if number else ""),
        text=question.prompt,
        image=crop(rendered.pixels, element),
        mode=question.mode or job.mode,
        max_crops=job.max_crops or family.crops.default,
        language=job.language,
        sampling=build_sampling(family.sampling, job.sampling.model_dump(exclude_none=True), question.sampling),
        priority=0,
        loop_check=family.is_looping,
        draft=draft if question.is_transcript else "",
    )


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
    x0, y0, x1, y1 = element.box.to_pixels(pixels.width, pixels.height, PADDING)
    return x1 - x0, y1 - y0


def crop(pixels: Pixels, element: Element) -> Pixels:
    """The element's pixels with padding, a view of the page's memory."""
    assert element.box is not None
    return pixels.crop(*element.box.to_pixels(pixels.width, pixels.height, PADDING))
