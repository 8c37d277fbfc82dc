"""Test that the engine's model can read: before any page, it has to read three images whose text is known.

With a wrong driver, kernel or version a model does not fail but answers nonsense; where it was once seen to read, such
a worker does not serve. All are asked at once, and each of
several engines is asked all of them:

- a few lines in large print, with the prompt for plain text: words, spaces, the end and the length of the answer
- a page, with the prompt for documents: print too small for the view of the whole page, columns, a table and boxes;
  where a layout detector finds the elements of pages, it has to find those of this page, too
- a repeated line, with an n-gram ban so strict that no sound answer can repeat the line: the ban must act

Limit of the last one: a model that reads the line once and stops passes even without a ban. A banned model may write
the line again with other tokens, so a few repetitions are allowed. Its end is not checked: after a ban any text may
follow.

The expected answers have the form of published answers of DeepSeek-OCR. They were not compared with answers to these
images: no weights were available. Therefore, until `twopass accept` has passed, a worker that misreads one serves, and
no document that it reads is a success.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import structlog

from twopass.document import Box, Canary, Element, enclose
from twopass.engines import accepted
from twopass.engines.interface import Completion, Engine, Prompt, build_sampling
from twopass.errors import Code, EngineError
from twopass.families import agreement
from twopass.families.interface import CanaryQuestion, Family, PageFeatures, PageRequest, Rung
from twopass.pages import canary_images
from twopass.pages.canary_images import BLOCKS, LINES, REPEATED_LINE, REPEATS, TABLE, TABLE_TEXT, PageImage
from twopass.pages.shared_pixels import Pixels
from twopass.runtime import task_group
from twopass.runtime.page_pool import PagePool
from twopass.settings import Settings

TEXT = " ".join(LINES)
_REPEATED_TEXT = " ".join([REPEATED_LINE] * REPEATS)
PAGE_TEXT = " ".join([*(block.text for block in BLOCKS), TABLE_TEXT])
_MAX_TEXT_EDITS = 2  # of 14 words: another attention kernel may change a word
MAX_PAGE_EDIT_SHARE = 0.1  # of the page's 90 words
_MIN_CELL_OVERLAP = 0.85  # of nine cells one may be misread
_MIN_PART_SHARE = 0.5  # of a text's words that another one must have: some may be misread
_MIN_REGION_SHARE = 0.5  # of a region's area that lies on a block, to be a part of it
_MIN_AREA = 1e-9  # of the page
_MAX_BOX_ERROR = 20 / 999  # of the page's width or height, at each side
MAX_REPEATS = REPEATS // 2
BAN_WINDOW = 90  # tokens
_TEXT_TOKENS, _PAGE_TOKENS, _BAN_TOKENS = 200, 800, 80  # limits; sound answers have about 30, 270 and 20
BYTE_MARKS = "ĠĊ"  # of spaces and newlines in byte-level vocabularies: shown where tokens are not decoded
_SHOWN = 120  # characters of a wrong answer in the error message
_ADVICE = (
    "driver, versions, weights or settings do not fit together: use those of the container image. "
    "Random weights need CANARY=false"
)
_BAN_ADVICE = (
    "without it, answers loop: use the vLLM of the container image, or start the server with --logits-processors (see "
    "README); OPENAI_PLAIN=true is for servers that have no such ban"
)

log = structlog.get_logger()

_FindFault = Callable[[Completion], str | None]
_FindShown = Callable[[str, Box, Mapping[str, Box]], tuple[str, ...]]  # text and box of an element, and the blocks


@dataclass(frozen=True)
class Check:
    """A prompt, and the function that says what is wrong with its answer; None: nothing."""

    prompt: Prompt
    find_fault: _FindFault
    advice: str = _ADVICE


async def check(engine: Engine, family: Family, page_pool: PagePool, settings: Settings) -> Canary | None:
    """Run the test. Returns what documents record about it; None if the engine needs no test.

    Raises EngineError if the engine does not answer, or if a model that should read the images misreads one.
    """
    question = family.canary if engine.needs_canary else None
    if question is None:
        return None
    if not settings.canary:
        log.warning("canary is off")
        return Canary.OFF
    wants_ban = build_sampling(family.sampling).ngram > 0
    readers, answers = engine.members or (engine,), list[tuple[Engine, Check, asyncio.Task[Completion]]]()
    try:
        async with asyncio.timeout(settings.canary_timeout_s), task_group.open_group() as group:
            checks = await _prepare_checks(question, family, page_pool, wants_ban and engine.has_ngram_ban)
            answers += [
                (reader, one, group.create_task(reader.generate(one.prompt))) for reader in readers for one in checks
            ]
    except TimeoutError:
        silent = {_name_gpus(reader) for reader, _, answer in answers if answer.cancelled() and engine.members}
        message = f"no answer to the test images within {settings.canary_timeout_s:g} s; the GPU may hang"
        message = f"{''.join(sorted(silent))}{message}: replace the worker, or raise CANARY_TIMEOUT_S"
        raise EngineError(Code.CANARY, message) from None
    places = (_name_gpus(reader) if engine.members else "" for reader, *_ in answers)
    faults = (_find_fault(one, answer.result(), place) for (_, one, answer), place in zip(answers, places, strict=True))
    if fault := next(filter(None, faults), None):
        return await _refuse_or_report(fault, settings)
    if wants_ban and not engine.has_ngram_ban:
        log.warning("the engine has no n-gram ban: more answers will loop")
    log.info("canary passed", seconds=[round(answer.result().seconds, 3) for *_, answer in answers])
    return Canary.PASSED


async def _prepare_checks(
    question: CanaryQuestion, family: Family, page_pool: PagePool, has_ban: bool
) -> Sequence[Check]:
    mode = question.mode or "auto"

    def strip(answer: Completion) -> Completion:
        return replace(answer, text=family.strip_grammar(answer.text))

    def build_prompt(name: str, text: str, image: Pixels, draft: str, **sampling: int) -> Prompt:
        """The draft is what the image says: it must not change the answer, nor repeat what the ban forbids."""
        settings = build_sampling(family.sampling, sampling)
        return Prompt(id=f"canary/{name}", text=text, image=image, mode=mode, sampling=settings, draft=draft)

    page = await page_pool.call(canary_images.draw_page)
    rungs = family.ladder(PageFeatures(*canary_images.PAGE_SIZE), PageRequest(mode=mode))
    text = await page_pool.call(canary_images.draw_text)
    checks = [
        Check(
            build_prompt("text", question.prompt, text, TEXT, max_tokens=_TEXT_TOKENS),
            lambda answer: find_text_fault(strip(answer)),
        )
    ]
    if rung := next((rung for rung in rungs if not rung.detects), None):
        prompt = build_prompt("page", rung.prompt, page.image, PAGE_TEXT, max_tokens=_PAGE_TOKENS)
        checks.append(Check(prompt, partial(find_page_fault, family=family, rung=rung, page=page)))
    if rung := next((rung for rung in rungs if rung.detects), None):
        prompt = build_prompt("regions", rung.prompt, page.image, PAGE_TEXT)
        checks.append(Check(prompt, partial(find_detection_fault, family=family, rung=rung, page=page)))
    if has_ban:
        image = await page_pool.call(canary_images.draw_repeated_line)
        ban = {"max_tokens": _BAN_TOKENS, "ngram": question.ngram, "window": BAN_WINDOW}
        prompt = build_prompt("ban", question.prompt, image, _REPEATED_TEXT, **ban)
        checks.append(Check(prompt, lambda answer: find_ban_fault(strip(answer)), _BAN_ADVICE))
    return checks


def _name_gpus(engine: Engine) -> str:
    return "".join(f"GPU {status.gpus}: " for status in engine.statuses)


def _find_fault(check: Check, completion: Completion, place: str) -> str | None:
    if fault := check.find_fault(completion):
        answer = " ".join(completion.text.split())[:_SHOWN]
        return f"{place}{fault}: the model answered '{answer}' ({completion.finish_reason}); {check.advice}"
    return None


async def _refuse_or_report(fault: str, settings: Settings) -> Canary:
    """Refuse to serve if the model was seen to read with these weights and versions; else nobody knows if it can."""
    is_accepted = await asyncio.to_thread(accepted.find, settings) is not None
    if is_accepted or settings.canary == "enforce":
        raise EngineError(Code.CANARY, fault)
    consequence = "no document is a success until `twopass accept` has passed; then, such a worker does not serve"
    log.error("canary misread", reason=fault, consequence=consequence)
    return Canary.MISREAD


def _find_form_fault(completion: Completion) -> str | None:
    if completion.finish_reason != "stop":
        return "does not end by itself"
    return "has byte-level marks" if any(mark in completion.text for mark in BYTE_MARKS) else None


def find_text_fault(completion: Completion) -> str | None:
    """Say what is wrong with the answer to the image of LINES: its end, its words, spaces or length."""
    if fault := _find_form_fault(completion):
        return f"the answer to the text image {fault}"
    if agreement.count_word_edits(completion.text, TEXT) > _MAX_TEXT_EDITS:
        return f"the text image says '{TEXT}'"
    return None


def find_page_fault(completion: Completion, family: Family, rung: Rung, page: PageImage) -> str | None:
    """Say what is wrong with the answer to the image of the page: its end, words, order, table or boxes."""
    if fault := _find_form_fault(completion):
        return f"the answer to the page image {fault}"
    parsed = family.parse(completion.text, 1, rung)
    if parsed.reason:
        return f"the answer to the page image cannot be used ({parsed.reason})"
    edits = agreement.count_word_edits(" ".join(element.text for element in parsed.elements), PAGE_TEXT)
    if edits > MAX_PAGE_EDIT_SHARE * len(PAGE_TEXT.split()):
        return f"{edits} of the {len(PAGE_TEXT.split())} words of the page image are wrong, missing or too many"
    tables = [element.table for element in parsed.elements if element.table]
    if max((agreement.cell_overlap(table, TABLE) for table in tables), default=0) < _MIN_CELL_OVERLAP:
        return f"the table of the page image says '{TABLE_TEXT}'"
    return _find_box_fault(parsed.elements, page, _find_shown_text)


def find_detection_fault(completion: Completion, family: Family, rung: Rung, page: PageImage) -> str | None:
    """Say what is wrong with the regions of the page's image: a block that none of them shows, or their places."""
    parsed = family.parse(completion.text, 1, rung)
    if completion.finish_reason != "stop" or parsed.reason:
        return f"the layout detector did not answer about the page image ({completion.finish_reason})"
    if fault := _find_box_fault(parsed.elements, page, _find_covered):
        return f"the layout detector is wrong: {fault}"
    return None


def _find_box_fault(elements: Sequence[Element], page: PageImage, find_shown: _FindShown) -> str | None:
    """Compare each block's place in the image with the boxes of the elements that show it.

    A block may be split among elements, and an element may show several blocks, such as both columns: then its box has
    to be that of all of them. All differences are named.
    """
    expected = {block.text: box for block, box in zip(BLOCKS, page.block_boxes, strict=True)}
    expected[TABLE_TEXT] = page.table_box
    found: dict[tuple[str, ...], list[Box]] = defaultdict(list)
    for element in elements:
        if element.box and (texts := find_shown(element.text, element.box, expected)):
            found[texts].append(element.box)
    faults = []
    for texts, boxes in found.items():
        box, union = enclose([expected[text] for text in texts]), enclose(boxes)
        if max(abs(one - other) for one, other in zip(union, box, strict=True)) > _MAX_BOX_ERROR:
            at, instead = box.to_grid(999), union.to_grid(999)
            faults.append(f"'{texts[0][:30]}' is at {at} of 999 in the page image, not at {instead}")
    missing = set(expected) - {text for texts in found for text in texts}
    faults += [f"'{text[:30]}' of the page image has no box" for text in expected if text in missing]
    return "; ".join(faults) or None


def _find_covered(_: str, box: Box, expected: Mapping[str, Box]) -> tuple[str, ...]:
    """The texts of the blocks that a region without text shows: the one that it is part of, or all that it contains."""
    inside = tuple(block for block, place in expected.items() if _contains(box, place))
    if inside:
        return inside
    shares = {block: box.overlap(place) / max(box.area, _MIN_AREA) for block, place in expected.items()}
    best = max(shares, key=lambda block: shares[block])
    return (best,) if shares[best] >= _MIN_REGION_SHARE else ()


def _find_shown_text(text: str, box: Box, expected: Mapping[str, Box]) -> tuple[str, ...]:
    """The texts of the blocks that an element shows: the one that it is part of, or all that its box contains."""
    inside = tuple(block for block, place in expected.items() if _is_part(block, text) and _contains(box, place))
    if len(inside) > 1:
        return inside
    best = max(expected, key=lambda block: agreement.word_coverage(text, block) or 0)
    return (best,) if _is_part(text, best) else ()


def _is_part(text: str, other: str) -> bool:
    return (agreement.word_coverage(text, other) or 0) >= _MIN_PART_SHARE


def _contains(outer: Box, inner: Box) -> bool:
    pairs = ((outer.x0, inner.x0), (outer.y0, inner.y0), (inner.x1, outer.x1), (inner.y1, outer.y1))
    return all(small <= large + _MAX_BOX_ERROR for small, large in pairs)


def find_ban_fault(completion: Completion) -> str | None:
    """Say what is wrong with the answer to the image of the repeated line: how often it has the line."""
    if completion.finish_reason not in ("stop", "length"):
        return "the engine does not answer with a strict n-gram ban"
    count = " ".join(completion.text.split()).casefold().count(REPEATED_LINE.casefold().rstrip("."))
    if count == 0:
        return f"the image of a repeated line says '{REPEATED_LINE}'"
    return f"the n-gram ban does not act, a line was repeated {count} times" if count > MAX_REPEATS else None
