"""An engine in, a verdict on it out: its model reads a picture drawn here before it reads anybody's pages.

A wrong driver, kernel or version makes a model talk nonsense and not fail. Knows the picture and its words. Knows
nothing of how a model is asked: that is the family's.
"""

from __future__ import annotations

import asyncio
import re

import structlog

from twopass.document import Canary
from twopass.engines.interface import Completion, Engine, Prompt, Sampling
from twopass.errors import Code, EngineError
from twopass.families.interface import Family, Question
from twopass.pages.shared_pixels import Pixels
from twopass.runtime.page_pool import PagePool
from twopass.settings import Settings

LINES = (
    "The harbour master counted",
    "seventeen yellow lanterns",
    "before the western ferry",
    "crossed the frozen river",
    "on Wednesday morning.",
)
# Nobody says these by chance, and no prompt suggests their company.
WORDS = frozenset(re.findall(r"[a-z]{5,}", " ".join(LINES).lower()))
ENOUGH = 10  # of the fourteen: a sound model reads all of them, a broken one none
SIDES = (1000, 500)  # pixels; tiled in every mode that tiles, so that both views of the model are tried
FONT, LEFT, TOP, STEP = 60, 70, 40, 88  # pixels
MOST_TOKENS = 200  # the text has about thirty
SHOWN = 120  # characters of a wrong answer

log = structlog.get_logger()


async def verdict(engine: Engine, family: Family, page_pool: PagePool, settings: Settings) -> Canary | None:
    """What a document says of the engine that read it, None where it needs no canary; raises EngineError."""
    question = family.canary if engine.canary else None
    if question is None:
        return None
    if not settings.canary:
        log.warning("canary is off")
        return Canary.OFF
    try:
        async with asyncio.timeout(settings.canary_timeout_s):
            completion = await engine.generate(_prompt(question, await page_pool.call(picture)))
    except TimeoutError:
        late = f"no answer to a known picture within {settings.canary_timeout_s:g} s; the GPU may hang"
        raise EngineError(Code.CANARY, f"{late}: replace the worker, or raise CANARY_TIMEOUT_S") from None
    if not is_read(completion.text):
        raise EngineError(Code.CANARY, _misread(completion))
    log.info("canary passed", seconds=round(completion.seconds, 3))
    return Canary.PASSED


def _prompt(question: Question, image: Pixels) -> Prompt:
    sampling = Sampling(max_tokens=MOST_TOKENS)
    return Prompt(id="canary", text=question.prompt, image=image, mode=question.mode or "auto", sampling=sampling)


def is_read(answer: str) -> bool:
    """Whether enough of the words are there, however they are set."""
    letters = re.sub(r"[\W_]+", "", answer).casefold()
    return sum(word in letters for word in WORDS) >= ENOUGH


def _misread(completion: Completion) -> str:
    said = " ".join(completion.text.split())[:SHOWN]
    return (
        f"the model answered '{said}' ({completion.finish_reason}) to a picture that says '{' '.join(LINES)}'; driver, "
        "versions, weights or settings do not fit together: use those of the image. Random weights need CANARY=false"
    )


def picture() -> Pixels:
    """In a page worker: black on white, in Pillow's own font."""
    from PIL import Image, ImageDraw, ImageFont

    page = Image.new("RGB", SIDES, "white")
    draw, font = ImageDraw.Draw(page), ImageFont.load_default(FONT)
    for number, line in enumerate(LINES):
        draw.text((LEFT, TOP + STEP * number), line, fill="black", font=font)
    return Pixels(*SIDES, held=page.tobytes())
