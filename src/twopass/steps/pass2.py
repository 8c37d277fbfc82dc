"""Pass 2: a page's elements in, the same elements out, those the family asks about read again from crops.

Knows which elements to ask about and how to cut them out. Knows nothing of how an answer is read.
"""

from __future__ import annotations

from collections.abc import Sequence

from twopass.document import Checkpoint, Element, RawCompletion
from twopass.engines.interface import Engine, Prompt, sampling, told
from twopass.families.interface import Family, Question, Reply
from twopass.job import Job, Pass2, Task
from twopass.pages.rendered_page import Picture
from twopass.pages.shared_pixels import Pixels
from twopass.runtime import task_group
from twopass.runtime.page_pool import PagePool

MOST_QUESTIONS = 3  # about one element, whatever its family would like to know
PADDING = 8  # pixels around a crop: boxes of a 0..999 grid cut into strokes without it


def wanted(checkpoint: Checkpoint, picture: Picture, family: Family, job: Job) -> dict[str, Question]:
    """What pass 2 asks, by the id of the element it asks about."""
    if job.pass2 is Pass2.NONE or job.task is not Task.DOCUMENT or checkpoint.page.is_lost:
        return {}
    asked = {
        element.id: _question(element, checkpoint, picture, family, job)
        for element in checkpoint.elements
        if element.box
    }
    return {name: question for name, question in asked.items() if question is not None}


def _question(
    element: Element, checkpoint: Checkpoint, picture: Picture, family: Family, job: Job, replies: Sequence[Reply] = ()
) -> Question | None:
    everything = job.pass2 is Pass2.ALL
    return family.question(element, everything, _size(element, picture.pixels), checkpoint.elements, replies)


async def read(
    checkpoint: Checkpoint,
    picture: Picture,
    source_key: str,
    job: Job,
    engine: Engine,
    family: Family,
    page_pool: PagePool,
) -> Checkpoint:
    """Every wanted element asked about at once; the first failure ends them all and is raised as it is."""

    async def ask(element: Element) -> tuple[Element, list[RawCompletion], float]:
        question: Question | None = questions[element.id]
        replies: list[Reply] = []
        completions: list[RawCompletion] = []
        seconds = 0.0
        while question and len(replies) < MOST_QUESTIONS:
            prompt = _prompt(element, question, len(replies), picture, source_key, job, family)
            completion = await engine.generate(prompt)
            replies.append(Reply(completion.text, prompt.text, completion.finish_reason, _layer(element, picture)))
            completions.append(told(prompt, completion))
            seconds += completion.seconds
            question = _question(element, checkpoint, picture, family, job, replies)
        return await page_pool.call(reread, family, element, replies), completions, seconds

    questions = wanted(checkpoint, picture, family, job)
    async with task_group.group() as group:
        asked = [group.create_task(ask(element)) for element in checkpoint.elements if element.id in questions]
    answers = [task.result() for task in asked]
    again = {element.id: element for element, *_ in answers}
    return checkpoint.model_copy(
        update={
            "elements": tuple(again.get(element.id, element) for element in checkpoint.elements),
            "completions": (*checkpoint.completions, *(told for _, completions, _ in answers for told in completions)),
            "cost": {**checkpoint.cost, "engine_s": checkpoint.cost.get("engine_s", 0) + sum(s for *_, s in answers)},
        }
    )


def reread(family: Family, element: Element, replies: Sequence[Reply]) -> Element:
    """In a page worker: the family's reading of the answers about one element."""
    return family.reread(element, replies)


def _prompt(
    element: Element, question: Question, asked: int, picture: Picture, source_key: str, job: Job, family: Family
) -> Prompt:
    """The first question's id is the element's; the next ones' count."""
    return Prompt(
        id=f"{source_key}/{element.id}" + (f"-{asked + 1}" if asked else ""),
        text=question.prompt,
        image=crop(picture.pixels, element),
        mode=question.mode or job.mode,
        max_crops=job.max_crops,
        language=job.language,
        sampling=sampling(job.sampling.model_dump(exclude_none=True)),
        priority=0,
        watch=family.looping,
    )


def _layer(element: Element, picture: Picture) -> str | None:
    """The text layer's words whose middle lies in the element; None where the page has no layer."""
    if not picture.words or element.box is None:
        return None
    return picture.words.inside([element.box])


def _size(element: Element, pixels: Pixels) -> tuple[int, int]:
    assert element.box is not None
    x0, y0, x1, y1 = element.box.to_pixels(pixels.width, pixels.height, PADDING)
    return x1 - x0, y1 - y0


def crop(pixels: Pixels, element: Element) -> Pixels:
    """The element's pixels with a little padding, in the page's own memory."""
    assert element.box is not None
    return pixels.crop(*element.box.to_pixels(pixels.width, pixels.height, PADDING))
