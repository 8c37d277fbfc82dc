"""Parse a grounded answer into blocks: labels, boxes and contents in the order of the answer.

The grammar, as DeepSeek-OCR and Unlimited-OCR write it:

    answer  = untagged text, then blocks
    block   = tag, content up to the next tag
    tag     = <|ref|>label[<|/ref|>] [<|det|>boxes<|/det|>] | <|det|>[label ]boxes<|/det|>
            | label[[x, y, x, y], …] at the start of a line, where a server removed all special tokens
            | label [x, y, x, y] at the start of a line, in an answer that begins with such a tag
    boxes   = [x, y, x, y] | [[x, y, x, y], …] | [[[x, y], [x, y], …], …]; 0..999 inclusive

Never fails: any text gives some blocks, and only tags and special tokens are dropped. Boxes are read number by number
and never evaluated.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

from twopass.document import Box, Flag

_CACHE_SIZE, _MAX_CACHED_LENGTH = 4096, 200  # coordinates of tags, and characters of each
GRID = 999  # boxes run 0..999 inclusive (run_dpsk_ocr_pdf.py)
_CUT_TAG_LENGTH = 200  # characters at the end that are searched for a tag that is cut off
Corners = tuple[float, float, float, float]

_SPECIAL = r"(?:<\|/?[A-Za-z_▁]{1,30}\|>|<｜[^\s｜<>]{1,40}｜>)"  # no space inside: F# pipes are `f <| x |> g`
_NUMBERS = r"[0-9０-９\s\[\]［］【】()（）,，、.。．:：;；%％\-－−]"
# The coordinates of a tag, and special tokens among them.
_COORDINATES = rf"(?:{_NUMBERS}|(?!<\|/?det\|>){_SPECIAL})"
_DET_END = r"(?:<\|/det\|>|(?<=\])[ \t]*(?=\n(?!\s*[\[\],])|\Z))"  # a det that is not closed ends with its line
_SPACES = r"[ \t]{0,3}"
_INNER_LABEL = r"[A-Za-z]\w{0,30}(?:[ -]\w{1,30}){0,3}"  # of Unlimited-OCR, which writes it before the box
_TAG = re.compile(
    r"<\|ref\|>(?P<label>(?:(?!<\|/?(?:ref|det)\|>).)*)<\|/ref\|>"
    rf"(?:\s*<\|det\|>(?P<boxes>{_COORDINATES}*?){_DET_END})?"
    rf"|<\|ref\|>(?P<open>[\w -]{{1,40}})<\|det\|>(?P<beside>{_COORDINATES}*?){_DET_END}"
    rf"|<\|det\|>(?:{_SPACES}(?P<inner>{_INNER_LABEL}){_SPACES}(?=[\[［【]))?(?P<alone>{_COORDINATES}*?){_DET_END}",
    flags=re.DOTALL,
)
_BOX = r"\[\s*(?:\d{1,4}\s*,\s*){3}\d{1,4}\s*\]"
_BARE_TAG = re.compile(
    rf"^(?P<label>[^\[\]\n]{{0,2000}}?)(?P<boxes>\[\s*{_BOX}(?:\s*,\s*{_BOX})*\s*\])", flags=re.MULTILINE
)
_BARE_SINGLE_TAG = re.compile(rf"^(?P<label>[a-z]+(?:_[a-z]+)*)[ \t]?(?P<boxes>{_BOX})", flags=re.MULTILINE)
_WORD = re.compile(r"[a-z]+(?:[_-][a-z]+)*")
_CUT_TAG = re.compile(
    rf"<\|ref\|>[\w -]{{0,40}}(?:<\|/ref\|>\s*(?:<\|det\|>{_COORDINATES}*)?)?"
    r"(?:<(?:\|(?:/?[a-z]{0,3}\|?)?)?)?\s*"
)
_CUT_DET = re.compile(
    rf"<\|det\|>{_SPACES}(?:{_INNER_LABEL})?{_SPACES}{_COORDINATES}*(?:<(?:\|(?:/?[a-z]{{0,3}}\|?)?)?)?\s*"
)
_CUT_TOKEN = re.compile(r"(?:<\|/?[a-z]{0,9}\|?|<｜[^｜<>\n]{0,40})\Z")
# What is left of a tag in an answer that begins within it.
_CUT_HEAD = re.compile(
    r"\A\s*+(?:(?:(?:<?\|?r?e?f?\|?>)?[\w-]{0,30}(?<!<\|ref\|>)<\|/ref\|>|<?\|?/?r?e?f?\|?>)(?=\s*<\|det\|>)"
    rf"|(?:<?\|?d?e?t?\|?>)?{_NUMBERS}*<\|/det\|>|\|?/?(?:(?:d?e)?t)?\|>)"
)
_CUT_BARE_TAG = re.compile(r"^[a-z]+(?:_[a-z]+)*\[(?:\[[\d,\s]*)?\s*\Z", flags=re.MULTILINE)
_CUT_BARE_SINGLE_TAG = re.compile(r"^[a-z]+(?:_[a-z]+)*[ \t]?\[[\d,\s]*\Z", flags=re.MULTILINE)
_TO_STRIP = re.compile(rf"{_SPECIAL}|<image>")
_ANY_TAG = re.compile(
    r"<\|ref\|>(?P<label>(?:(?!<\|/?(?:ref|det)\|>).)*)(?:<\|/ref\|>|(?=<\|det\|>)|\Z)"
    r"|<\|det\|>[ \t]*(?P<inner>[A-Za-z]\w*(?:[ -]\w+){0,3})?.*?(?:<\|/det\|>|(?=\n[^\S\n]*+[^\s\[\],])|\Z)"
    rf"|{_TO_STRIP.pattern}",
    flags=re.DOTALL,
)
_ANY_BARE_TAG = re.compile(r"^[A-Za-z]\w*[ \t]?\[\[?\s*\d+\s*,[\d,\s\[\]]*\]", flags=re.MULTILINE)
_INNERMOST = re.compile(r"\[([^\[\]]*)\]?")
_NUMBER = re.compile(r"-?[0-9]+(?:\.[0-9]+)?")
_PLAIN_PUNCTUATION = str.maketrans("。、【】−（）", ".,[]-()")


@dataclass(frozen=True)
class Block:
    """One tag and the content up to the next.

    `label` is None for text without a tag. `corners` are the boxes as written, not yet checked. `start` is the tag's
    offset in the answer. `unread_box` means that some coordinates gave no box; `flags` are set by later checks.
    """

    label: str | None
    corners: tuple[Corners, ...]
    content: str
    start: int = 0
    unread_box: bool = False
    flags: tuple[Flag, ...] = ()

    @property
    def boxes(self) -> tuple[Box, ...]:
        """The boxes that have an area, as fractions of the page."""
        boxes = (_to_box(corners) for corners in self.corners if not _is_flat(corners))
        return tuple(box for box in boxes if box.area > 0)

    @property
    def is_degenerate(self) -> bool:
        """Whether some box has no area."""
        return len(self.boxes) < len(self.corners)


@dataclass(frozen=True)
class GroundedAnswer:
    """The blocks of an answer; `cut_off` means that it ends within a tag."""

    blocks: tuple[Block, ...]
    cut_off: bool

    @property
    def has_boxes(self) -> bool:
        return any(block.corners for block in self.blocks)


def parse(text: str, any_label: bool = False) -> GroundedAnswer:
    """Parse an answer.

    `any_label`: accept any text as the label of a bare box, for tasks where the model writes the text itself there.
    """
    complete = _drop_cut_tag(text)
    tags = list(_TAG.finditer(complete))
    if not tags:
        tags, cut_tag = _find_bare_tags(complete, any_label)
        cut = cut_tag.search(complete, max(0, len(complete) - _CUT_TAG_LENGTH)) if tags else None
        complete = complete[: cut.start()] if cut else complete
    starts = [tag.start() for tag in tags]
    head = _CUT_HEAD.match(complete) if starts and starts[0] else None
    lead = strip_special_tokens(complete[head.end() if head else 0 : starts[0] if starts else None])
    untagged = (Block(None, (), lead),) if lead.strip() else ()
    ends = [*starts[1:], len(complete)]
    blocks = (_build_block(tag, complete[tag.end() : end]) for tag, end in zip(tags, ends, strict=False))
    return GroundedAnswer((*untagged, *blocks), len(complete) < len(text))


def _find_bare_tags(text: str, any_label: bool) -> tuple[list[re.Match[str]], re.Pattern[str]]:
    """Find tags without special tokens. Returns them with the pattern of such a tag that is cut off.

    A single box in brackets may be a citation, so it counts only if the answer begins with a tag of that form.
    """
    if not any_label and _BARE_SINGLE_TAG.match(text, len(text) - len(text.lstrip())):
        return list(_BARE_SINGLE_TAG.finditer(text)), _CUT_BARE_SINGLE_TAG
    tags = [tag for tag in _BARE_TAG.finditer(text) if any_label or _WORD.fullmatch(tag["label"].strip())]
    return tags, _CUT_BARE_TAG


def strip_tags(text: str, is_label: Callable[[str], bool]) -> str:
    """The text outside tags, and labels that are text: found by the tags' signs alone, without the grammar above."""
    if "<|ref|>" in text or "<|det|>" in text:
        return _ANY_TAG.sub(lambda tag: _get_text_label(tag, is_label), _CUT_HEAD.sub("", text))
    return strip_special_tokens(_ANY_BARE_TAG.sub(" ", text))


def list_labels(text: str) -> list[str]:
    """The labels of all tags, found like them."""
    return [tag["label"] or tag["inner"] or "" for tag in _ANY_TAG.finditer(text)]


def _get_text_label(tag: re.Match[str], is_label: Callable[[str], bool]) -> str:
    label = (tag["label"] or tag["inner"] or "").strip()
    return f" {label} " if label and not is_label(label) else " "


def strip_special_tokens(text: str) -> str:
    # The test for "<" saves time: a growing answer is parsed many times.
    return _TO_STRIP.sub("", text) if "<" in text else text


def _drop_cut_tag(text: str) -> str:
    """Drop a tag that is cut off at the end of the answer."""
    last = text.rfind("<|ref|>")
    if last >= 0 and _CUT_TAG.fullmatch(text, last):
        return text[:last]
    last = text.rfind("<|det|>")
    if last >= 0 and _CUT_DET.fullmatch(text, last):
        return text[:last]
    token = _CUT_TOKEN.search(text, max(0, len(text) - _CUT_TAG_LENGTH))
    return text[: token.start()] if token else text


def _build_block(tag: re.Match[str], content: str) -> Block:
    groups = tag.groupdict()
    corners, unread = _parse_coordinates(_get_first(groups, "boxes", "beside", "alone") or "")
    written = _get_first(groups, "label", "open", "inner")
    label = strip_special_tokens(written).strip() if written is not None else None
    return Block(label or None, corners, strip_special_tokens(content), tag.start(), unread)


def _get_first(groups: Mapping[str, str | None], *names: str) -> str | None:
    return next((found for name in names if (found := groups.get(name)) is not None), None)


def _parse_coordinates(text: str) -> tuple[tuple[Corners, ...], bool]:
    """The boxes in a text of brackets and numbers, and whether some numbers gave no box."""
    return _parse_cached(text) if len(text) <= _MAX_CACHED_LENGTH else _parse_uncached(text)


def _parse_uncached(text: str) -> tuple[tuple[Corners, ...], bool]:
    text = unicodedata.normalize("NFKC", strip_special_tokens(text))
    text = text.translate(_PLAIN_PUNCTUATION).replace("(", "[").replace(")", "]")
    groups = [numbers for found in _INNERMOST.findall(text) if (numbers := _parse_numbers(found))]
    groups = groups or [_parse_numbers(text)]
    if len(groups) > 1 and all(len(group) == 2 for group in groups):
        return tuple(_polygon_boxes(text)), False
    boxes = [_corners(group[n : n + 4]) for group in groups for n in range(0, len(group) - 3, 4)]
    return tuple(boxes), any(len(group) % 4 for group in groups)


# A growing answer is parsed many times while it is watched for loops.
_parse_cached = lru_cache(_CACHE_SIZE)(_parse_uncached)


def _parse_numbers(text: str) -> list[float]:
    return [float(number) for number in _NUMBER.findall(text)]


def _polygon_boxes(text: str) -> Iterator[Corners]:
    """Yield the bounding box of each polygon; a polygon ends where two brackets close."""
    for polygon in re.split(r"\]\s*\]", text):
        if numbers := _parse_numbers(polygon):
            xs, ys = numbers[::2], numbers[1::2]
            yield min(xs), min(ys), max(xs), max(ys)


def _corners(numbers: list[float]) -> Corners:
    x0, y0, x1, y1 = numbers
    return x0, y0, x1, y1


def _is_flat(corners: Corners) -> bool:
    x0, y0, x1, y1 = corners
    return x1 <= x0 or y1 <= y0


def _to_box(corners: Corners) -> Box:
    x0, y0, x1, y1 = (_clamp(value) for value in corners)
    return Box.from_grid(x0, y0, x1, y1, GRID)


def _clamp(value: float) -> int:
    return round(min(max(value, -GRID), 2 * GRID))  # Box cuts it at the page's edge; numbers can have any size
