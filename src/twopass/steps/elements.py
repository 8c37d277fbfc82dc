"""Pass 2: a page's elements in, the same elements out, those the family asks about read again from crops.

Knows which elements to ask about and how to cut them out. Knows nothing of how an answer is read.
"""

from __future__ import annotations

from twopass import together
from twopass.document import Checkpoint, Element, RawCompletion
from twopass.engines.seam import Engine, Prompt, told
from twopass.families.seam import Family
from twopass.job import Job, Pass2
from twopass.picture import Picture
from twopass.slabs import Pixels
from twopass.workers import Workers

PADDING = 8  # pixels around a crop: boxes of a 0..999 grid cut into strokes without it


def wanted(checkpoint: Checkpoint, family: Family, pass2: Pass2) -> tuple[Element, ...]:
    """The elements that pass 2 asks about."""
    if pass2 is Pass2.NONE:
        return ()
    return tuple(e for e in checkpoint.elements if e.box and family.crop_prompt(e, pass2 is Pass2.ALL) is not None)


async def read(
    checkpoint: Checkpoint,
    picture: Picture,
    source_key: str,
    job: Job,
    engine: Engine,
    family: Family,
    workers: Workers,
) -> Checkpoint:
    """Every wanted element asked about at once; the first failure ends them all and is raised as it is."""

    async def ask(element: Element) -> tuple[Element, RawCompletion, float]:
        prompt = _prompt(element, picture, source_key, job, family)
        completion = await engine.generate(prompt)
        return (
            await workers.call(reread, family, element, completion.text),
            told(prompt, completion),
            completion.seconds,
        )

    chosen = wanted(checkpoint, family, job.pass2)
    async with together.group() as group:
        asked = [group.create_task(ask(element)) for element in chosen]
    answers = [task.result() for task in asked]
    again = {element.id: element for element, *_ in answers}
    return checkpoint.model_copy(
        update={
            "elements": tuple(again.get(element.id, element) for element in checkpoint.elements),
            "completions": checkpoint.completions + tuple(told for _, told, _ in answers),
            "cost": {**checkpoint.cost, "engine_s": checkpoint.cost.get("engine_s", 0) + sum(s for *_, s in answers)},
        }
    )


def reread(family: Family, element: Element, text: str) -> Element:
    """In a page worker: the family's reading of one answer about one element."""
    return family.reread(element, text)


def _prompt(element: Element, picture: Picture, source_key: str, job: Job, family: Family) -> Prompt:
    text = family.crop_prompt(element, job.pass2 is Pass2.ALL)
    assert text is not None and element.box is not None
    return Prompt(
        id=f"{source_key}/{element.id}",
        text=text,
        image=crop(picture.pixels, element),
        mode=job.mode,
        language=job.language,
        priority=0,
    )


def crop(pixels: Pixels, element: Element) -> Pixels:
    """The element's pixels with a little padding, copied out of the page's slab."""
    assert element.box is not None
    x0, y0, x1, y1 = element.box.to_pixels(pixels.width, pixels.height, PADDING)
    return Pixels(x1 - x0, y1 - y0, held=pixels.array()[y0:y1, x0:x1].tobytes())
