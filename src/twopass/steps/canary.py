"""Test that the engine's model can read: before any page, it has to read an image whose text is known.

With a wrong driver, kernel or version a model does not fail but answers nonsense. The family provides the prompt.
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
# A model is unlikely to produce these words together by chance, and no prompt suggests them.
WORDS = frozenset(re.findall(r"[a-z]{5,}", " ".join(LINES).lower()))
MIN_WORDS = 10  # of the 14 words: a sound model reads all of them, a broken one none
IMAGE_SIZE = (1000, 500)  # pixels: large enough to be tiled, so that the model's global and tiled views are both tested
FONT_SIZE, LEFT, TOP, LINE_HEIGHT = 60, 70, 40, 88  # pixels
MAX_TOKENS = 200  # the text has about 30
SHOWN = 120  # characters of a wrong answer in the error message

log = structlog.get_logger()


async def check(engine: Engine, family: Family, page_pool: PagePool, settings: Settings) -> Canary | None:
    """Run the test. Returns what documents record about it; None if the engine needs no test. Raises EngineError."""
    question = family.canary if engine.needs_canary else None
    if question is None:
        return None
    if not settings.canary:
        log.warning("canary is off")
        return Canary.OFF
    try:
        async with asyncio.timeout(settings.canary_timeout_s):
            completion = await engine.generate(_build_prompt(question, await page_pool.call(draw_test_image)))
    except TimeoutError:
        message = f"no answer to the test image within {settings.canary_timeout_s:g} s; the GPU may hang"
        raise EngineError(Code.CANARY, f"{message}: replace the worker, or raise CANARY_TIMEOUT_S") from None
    if not is_correct(completion.text):
        raise EngineError(Code.CANARY, _describe_failure(completion))
    log.info("canary passed", seconds=round(completion.seconds, 3))
    return Canary.PASSED


def _build_prompt(question: Question, image: Pixels) -> Prompt:
    sampling = Sampling(max_tokens=MAX_TOKENS)
    return Prompt(id="canary", text=question.prompt, image=image, mode=question.mode or "auto", sampling=sampling)


def is_correct(answer: str) -> bool:
    """Whether the answer has enough of the words, regardless of case, spaces and punctuation."""
    letters = re.sub(r"[\W_]+", "", answer).casefold()
    return sum(word in letters for word in WORDS) >= MIN_WORDS


def _describe_failure(completion: Completion) -> str:
    answer = " ".join(completion.text.split())[:SHOWN]
    return (
        f"the model answered '{answer}' ({completion.finish_reason}) to an image that says '{' '.join(LINES)}'; "
        "driver, versions, weights or settings do not fit together: use those of the container image. "
        "Random weights need CANARY=false"
    )


def draw_test_image() -> Pixels:
    """In a page worker: draw the test image, black on white, in Pillow's default font."""
    from PIL import Image, ImageDraw, ImageFont

    page = Image.new("RGB", IMAGE_SIZE, "white")
    draw, font = ImageDraw.Draw(page), ImageFont.load_default(FONT_SIZE)
    for number, line in enumerate(LINES):
        draw.text((LEFT, TOP + LINE_HEIGHT * number), line, fill="black", font=font)
    return Pixels(*IMAGE_SIZE, data=page.tobytes())
