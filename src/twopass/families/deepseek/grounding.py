"""A grounded answer in, its blocks out: what stands in which boxes, each where the answer tells it.

The grammar, as DeepSeek-OCR writes it:

    answer  = untagged text, then blocks
    block   = tag, content up to the next tag
    tag     = <|ref|>label<|/ref|> [<|det|>boxes<|/det|>] | <|det|>boxes<|/det|>
            | label[[x, y, x, y], …] at a line's beginning, where a server has skipped all special tokens
    boxes   = [x, y, x, y] | [[x, y, x, y], …] | [[[x, y], [x, y], …], …]; 0..999 inclusive

Total: any text is some blocks, and no text is lost but tags and special tokens. Boxes are read number by number
and never evaluated. Knows this grammar and nothing of kinds, pages or models.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from twopass.document import Box

KEPT, SHORT = 4096, 200  # tags' coordinates that are remembered, of so many characters at most
GRID = 999  # boxes run 0..999 inclusive (run_dpsk_ocr_pdf.py)
TAIL = 200  # characters at the end where a cut-off tag begins
Corners = tuple[float, float, float, float]

_SPECIAL = r"(?:<\|/?[A-Za-z_▁]{1,30}\|>|<｜[^\s｜<>]{1,40}｜>)"  # no blank: F# pipes `f <| x |> g`
_NUMBERS = r"[0-9０-９\s\[\]［］【】()（）,，、.。．:：;；%％\-－−]"
_INSIDE = rf"(?:{_NUMBERS}|(?!<\|/?det\|>){_SPECIAL})"  # a tag's coordinates, and special tokens that strayed there
_END = r"(?:<\|/det\|>|(?<=\])[ \t]*(?=\n(?!\s*[\[\],])|\Z))"  # a det that nobody closed ends with its line
_TAG = re.compile(
    r"<\|ref\|>(?P<label>(?:(?!<\|/?(?:ref|det)\|>).)*)<\|/ref\|>"
    rf"(?:\s*<\|det\|>(?P<boxes>{_INSIDE}*?){_END})?|<\|det\|>(?P<alone>{_INSIDE}*?){_END}",
    flags=re.DOTALL,
)
_BOX = r"\[\s*(?:\d{1,4}\s*,\s*){3}\d{1,4}\s*\]"
_BARE = re.compile(
    rf"^(?P<label>[^\[\]\n]{{0,2000}}?)(?P<boxes>\[\s*{_BOX}(?:\s*,\s*{_BOX})*\s*\])", flags=re.MULTILINE
)
_WORD = re.compile(r"[a-z]+(?:[_-][a-z]+)*")
_CUT = re.compile(
    rf"<\|ref\|>[\w -]{{0,40}}(?:<\|/ref\|>\s*(?:<\|det\|>{_INSIDE}*)?)?"
    r"(?:<(?:\|(?:/?[a-z]{0,3}\|?)?)?)?\s*"
)
_CUT_TOKEN = re.compile(r"(?:<\|/?[a-z]{0,9}\|?|<｜[^｜<>\n]{0,40})\Z")
_CUT_BARE = re.compile(r"^[a-z]+(?:_[a-z]+)*\[(?:\[[\d,\s]*)?\s*\Z", flags=re.MULTILINE)
_STRIPPED = re.compile(rf"{_SPECIAL}|<image>")
_INNERMOST = re.compile(r"\[([^\[\]]*)\]?")
_NUMBER = re.compile(r"-?[0-9]+(?:\.[0-9]+)?")
_PLAIN = str.maketrans("。、【】−（）", ".,[]-()")


@dataclass(frozen=True)
class Block:
    """One tag and what follows it. `label` is None where text stands without a tag, `start` is the tag's offset.

    `corners` are the boxes as written, in whatever order and wherever they lie; `unread` tells that some
    coordinates made no box, `flags` what a reader of the block found wrong with it.
    """

    label: str | None
    corners: tuple[Corners, ...]
    content: str
    start: int = 0
    unread: bool = False
    flags: tuple[str, ...] = ()

    @property
    def boxes(self) -> tuple[Box, ...]:
        """Those that can be drawn, as fractions of the page."""
        found = (_box(corners) for corners in self.corners if not _flat(corners))
        return tuple(box for box in found if box.area > 0)

    @property
    def is_degenerate(self) -> bool:
        """Whether a box was told that cannot be drawn."""
        return len(self.boxes) < len(self.corners)


@dataclass(frozen=True)
class Grounded:
    """An answer's blocks; `cut` tells that it ends within a tag."""

    blocks: tuple[Block, ...]
    cut: bool

    @property
    def has_boxes(self) -> bool:
        return any(block.corners for block in self.blocks)


def read(text: str, any_label: bool = False) -> Grounded:
    """The blocks of an answer. `any_label`: what stands in front of a bare box is text, and not the name of a kind."""
    whole = _before_cut(text)
    tags = list(_TAG.finditer(whole))
    if not tags:
        tags = [tag for tag in _BARE.finditer(whole) if any_label or _WORD.fullmatch(tag["label"].strip())]
        cut = _CUT_BARE.search(whole, max(0, len(whole) - TAIL)) if tags else None
        whole = whole[: cut.start()] if cut else whole
    starts = [tag.start() for tag in tags]
    lead = plain(whole[: starts[0]] if starts else whole)
    untagged = (Block(None, (), lead),) if lead.strip() else ()
    ends = [*starts[1:], len(whole)]
    blocks = (_block(tag, whole[tag.end() : end]) for tag, end in zip(tags, ends, strict=False))
    return Grounded((*untagged, *blocks), len(whole) < len(text))


def plain(text: str) -> str:
    """Without special tokens."""
    return _STRIPPED.sub("", text) if "<" in text else text  # a growing answer is read again and again


def written(label: str, corners: tuple[tuple[int, int, int, int], ...], content: str) -> str:
    """A block as the model writes it: the way back, for tests and small answers of our own."""
    return f"<|ref|>{label}<|/ref|><|det|>{[list(box) for box in corners]}<|/det|>\n{content}  \n\n"


def _before_cut(text: str) -> str:
    """The answer without a last tag that breaks off."""
    last = text.rfind("<|ref|>")
    if last >= 0 and _CUT.fullmatch(text, last):
        return text[:last]
    token = _CUT_TOKEN.search(text, max(0, len(text) - TAIL))
    return text[: token.start()] if token else text


def _block(tag: re.Match[str], content: str) -> Block:
    found = tag.groupdict()
    told = found["boxes"] if found["boxes"] is not None else found.get("alone")
    corners, unread = coordinates(told or "")
    label = plain(found["label"]).strip() if found["label"] is not None else None
    return Block(label or None, corners, plain(content), tag.start(), unread)


def coordinates(text: str) -> tuple[tuple[Corners, ...], bool]:
    """The boxes in a text of brackets and numbers, and whether some numbers made none."""
    return _remembered(text) if len(text) <= SHORT else _coordinates(text)


def _coordinates(text: str) -> tuple[tuple[Corners, ...], bool]:
    text = unicodedata.normalize("NFKC", plain(text)).translate(_PLAIN).replace("(", "[").replace(")", "]")
    groups = [numbers for found in _INNERMOST.findall(text) if (numbers := _numbers(found))] or [_numbers(text)]
    if len(groups) > 1 and all(len(group) == 2 for group in groups):
        return tuple(_polygons(text)), False
    boxes = [_corners(group[n : n + 4]) for group in groups for n in range(0, len(group) - 3, 4)]
    return tuple(boxes), any(len(group) % 4 for group in groups)


_remembered = lru_cache(KEPT)(_coordinates)  # a growing answer is read again and again while it is watched


def _numbers(text: str) -> list[float]:
    return [float(number) for number in _NUMBER.findall(text)]


def _polygons(text: str) -> Iterator[Corners]:
    """The box around the points of each polygon: polygons end where two brackets close."""
    for polygon in re.split(r"\]\s*\]", text):
        if numbers := _numbers(polygon):
            xs, ys = numbers[::2], numbers[1::2]
            yield min(xs), min(ys), max(xs), max(ys)


def _corners(numbers: list[float]) -> Corners:
    x0, y0, x1, y1 = numbers
    return x0, y0, x1, y1


def _flat(corners: Corners) -> bool:
    x0, y0, x1, y1 = corners
    return x1 <= x0 or y1 <= y0


def _box(corners: Corners) -> Box:
    x0, y0, x1, y1 = (_whole(value) for value in corners)
    return Box.from_grid(x0, y0, x1, y1, GRID)


def _whole(value: float) -> int:
    return round(min(max(value, -GRID), 2 * GRID))  # of whatever size: the page's edge cuts it
