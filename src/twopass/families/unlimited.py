"""Unlimited-OCR: its prompt, modes and rungs, and the grammar of its answers.

What differs from DeepSeek-OCR's answers, apart from the form of the tags:

- `<PAGE>` may open an answer; the prompt for several pages makes the model write it before every page.
- A `list` is a box without text around its items, before or after them.
- Every heading is a `title`, without hashes; so are entries of a table of contents and some captions.
- Captions may be `text`.
- Fixed sentences stand for content that was not read.
- Letters and digits in maths are spaced: `\\mathrm {c u r}`, `c u r`, `1. 3 4`.
- Citations such as [1, 2] are written as maths.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from types import MappingProxyType
from typing import Any, Self

from twopass.document import FIGURES, HEADINGS, Box, Element, Flag, Kind, RungName
from twopass.families import word_account
from twopass.families.grounded import elements, grounding, page_answer, second_reading
from twopass.families.grounded.family import DOCUMENT, GroundedFamily, ModeLimits, choose_mode
from twopass.families.grounded.grounding import Block
from twopass.families.grounded.second_reading import QuestionName
from twopass.families.interface import (
    CanaryQuestion,
    CropRange,
    ElementContext,
    FamilyOptions,
    PageFeatures,
    PageRequest,
    ParsedPage,
    Question,
    Reply,
    Rung,
)
from twopass.families.word_account import WordAccount
from twopass.pages.text_layer import TextLayer
from twopass.text import maths

# Word for word as in infer.py and README of baidu/Unlimited-OCR: no line end after the image, no space at the end. The
# model was trained with this prompt and one for several pages; it misreads or ignores those of DeepSeek-OCR.
PROMPTS: Mapping[str, str] = MappingProxyType({DOCUMENT: "<image>document parsing."})
# As in infer.py. Without the ban, boxes loop; with shorter n-grams, tables and repeated words are misread.
_SAMPLING: Mapping[str, Any] = MappingProxyType({"ngram": 35, "window": 128, "allowed_tokens": ()})
# Some randomness, so that an answer that was empty or in a loop is not given again, and the window for several pages.
_RETRY_SAMPLING: Mapping[str, Any] = MappingProxyType({"temperature": 0.2, "window": 1024})
# Tiles show what a view of 1,024 pixels does not: without them, OmniDocBench falls from 92.4 to 88.8.
_PAGE_MODES = (
    ModeLimits("base", side=640, characters=2500),  # not tiled in gundam either
    ModeLimits("base", ink=0.04, characters=800),
    ModeLimits("gundam"),
)
_OTHER_MODE = MappingProxyType({"base": "gundam", "gundam": "base"})
# Pixels, of the longer side: the model invents text in small crops, and cuts larger ones into tiles.
_MIN_CROP_SIDE = 640
_CANARY_NGRAM = 8  # tokens: shorter than the line that must not be repeated, longer than what coordinates share
LIST = "list"
# What the model writes where it read no text, in lower case and without the full stop.
_BOILERPLATE = frozenset({"[non-text]", "the image is too blurry to recognize any text content"})
MAX_LISTS, MAX_ITEMS = 200, 100  # lists of a page, and blocks before and after one that may lie in it
_MIN_ENTRIES = 5  # of a table of contents, and at least half of its page
_ENTRY_EDGE = 0.02  # of the page's width: the page numbers of a table of contents end at the same place
_MAX_CAPTION_LENGTH = 400  # characters
_ENTRY = re.compile(r"(?=.*[^\W\d_])\S.*?[\s.·…]\s?(\d{1,4}|[ivxlc]{1,7})", flags=re.DOTALL)
_TABLE_NAME = r"table|tab\.|tabelle|tableau|tabla|表"
_FIGURE_NAME = r"figure|fig\.|abbildung|abb\.|figura|chart|图|圖|図"
_CAPTION = re.compile(
    rf"(?:(?P<table>{_TABLE_NAME})|{_FIGURE_NAME})\s*[A-Z]?[\d.]*\d(?P<end>\s*[.:|：]|\s)", flags=re.IGNORECASE
)
_PAGE_MARK = re.compile(r"^[ \t]*<PAGE>[ \t]*\n?", flags=re.MULTILINE)
_CITATION = re.compile(r"(?:(?<!\s)\s+)?\\\(\s*(\[\d{1,4}(?:\s?[,–-]\s?\d{1,4})*\])\s*\\\)")
# Outside of \text, LaTeX shows no space between two letters. Two letters may be meant as two; commands are not letters.
_SPACED_LETTERS = re.compile(
    r"(\\(?:text\w{0,2}|mbox) ?\{[^{}]*\})|(?<![\\A-Za-z])[A-Za-z](?: [A-Za-z]){2,}(?![A-Za-z])"
)
_SPACED_NUMBER = re.compile(r"(?<!\d)\d+(?: ?\. ?\d+| \d+)+")
_MATHS_FONT = r"\\(?:mathrm|mathbf|mathit|mathsf|mathtt|operatorname)"
_SPACED_NAME = re.compile(rf"({_MATHS_FONT}) ?\{{ ?(\w(?: \w)+) ?\}}|(\\text\w{{0,2}}) ?\{{ ?(\w(?: \w){{2,}}) ?\}}")


@dataclass(frozen=True)
class UnlimitedOcrFamily(GroundedFamily):
    """Unlimited-OCR, one page at a time. An image is cut into `max_tiles` at most, by default as `model` says."""

    max_tiles: int | None = None

    @property
    def options(self) -> Mapping[str, Any]:
        """With another number of tiles than the usual one, which changes what is read."""
        tiles = {"max_tiles": self.max_tiles} if self.max_tiles else {}
        return MappingProxyType({**super().options, **tiles})

    def configure(self, options: FamilyOptions) -> Self:
        is_usual = options.max_tiles == self.model.vision.default_crops
        return replace(super().configure(options), max_tiles=None if is_usual else options.max_tiles)

    @property
    def crops(self) -> CropRange:
        spec = self.model.vision.with_crops(self.max_tiles)
        return CropRange(spec.default_crops, spec.most_crops)

    @property
    def page_prompts(self) -> Mapping[str, str]:
        return PROMPTS

    @property
    def sampling(self) -> Mapping[str, Any]:
        return _SAMPLING

    @property
    def canary(self) -> CanaryQuestion:
        return CanaryQuestion(QuestionName.TEXT, PROMPTS[DOCUMENT], "gundam", ngram=_CANARY_NGRAM)

    @property
    def tasks(self) -> frozenset[str]:
        return frozenset({DOCUMENT, "custom"})

    def ladder(self, features: PageFeatures, request: PageRequest) -> tuple[Rung, ...]:
        """The prompt; the same with _RETRY_SAMPLING; another mode. The model has no prompt for text without boxes."""
        mode = choose_mode(_PAGE_MODES, features) if request.mode == "auto" else request.mode
        prompt = request.prompt if request.task == "custom" and request.prompt else PROMPTS[DOCUMENT]
        normal = Rung(RungName.NORMAL, prompt, mode, request.task)
        again = replace(normal, name=RungName.AGAIN, sampling=_RETRY_SAMPLING)
        if request.task != DOCUMENT:
            return normal, again
        other = replace(again, name=RungName.MODE, mode=_OTHER_MODE[mode])
        return self.add_detection((normal, again, other), last=3)

    def parse_answer(self, text: str, page: int, rung: Rung, layer: TextLayer) -> ParsedPage:
        read = page_answer.read_blocks(_drop_page_marks(text))
        blocks, lists = split_lists(_clean_blocks(read.blocks))
        parsed = page_answer.build_page(blocks, read.reason, page, layer)
        parsed = replace(parsed, elements=_set_kinds(parsed.elements, lists, page))
        return page_answer.require_boxes(parsed, read) if rung.grammar == DOCUMENT else parsed

    def strip_grammar(self, text: str) -> str:
        return "\n".join(block.content.strip() for block in grounding.parse(_drop_page_marks(text)).blocks)

    def account(self, text: str, elements: Sequence[Element]) -> WordAccount:
        blocks = (block for block in grounding.parse(text).blocks if _is_boilerplate(block.content))
        boilerplate = [line for block in blocks for line in word_account.list_words(block.content)]
        found = super().account(_drop_page_marks(text), elements)
        return found._replace(lost=tuple(word for word in found.lost if word not in boilerplate))

    def next_question(self, context: ElementContext) -> Question | None:
        """Ask about large tables, formulas and doubtful texts, and about detected regions of any size.

        The model has no prompts for figures.
        """
        element = context.element
        if element.is_figure or (max(context.crop_size) <= _MIN_CROP_SIDE and Flag.UNREAD_REGION not in element.flags):
            return None
        replies = _clean_replies(context.replies)
        name = second_reading.choose_question(replace(context, replies=replies), self.model.reads_figures)
        if name is None:
            return None
        sampling = _RETRY_SAMPLING if second_reading.is_asked_again(name, replies) else {}
        return Question(name, PROMPTS[DOCUMENT], "gundam", sampling)

    def apply_replies(self, element: Element, replies: Sequence[Reply]) -> Element:
        return super().apply_replies(element, _clean_replies(replies))


def _clean_replies(replies: Sequence[Reply]) -> list[Reply]:
    return [replace(reply, text=_clean_reply(reply.text)) for reply in replies]


def _drop_page_marks(text: str) -> str:
    return _PAGE_MARK.sub("", text)


def _clean_blocks(blocks: Iterable[Block]) -> tuple[Block, ...]:
    """Close the spaces in maths, and drop boilerplate: pictures keep their box, other blocks go with it."""
    cleaned = []
    for block in blocks:
        if not _is_boilerplate(block.content):
            cleaned.append(replace(block, content=close_spaces_in_maths(block.content)))
        elif elements.classify_label(block.label) in FIGURES:
            cleaned.append(replace(block, content=""))
    return tuple(cleaned)


def _is_boilerplate(text: str) -> bool:
    """Whether a text has lines, and all of them are boilerplate, which may be repeated."""
    lines = [line for line in grounding.strip_special_tokens(text).lower().splitlines() if line.strip()]
    return bool(lines) and all(" ".join(line.split()).rstrip(".") in _BOILERPLATE for line in lines)


def close_spaces_in_maths(text: str) -> str:
    """Close spaces that LaTeX does not show, within numbers and names in maths; citations become text."""
    if "\\" not in text:
        return text
    return maths.FORMULA.sub(lambda formula: _close_spaces(formula[0]), _CITATION.sub(r" \1", text))


def _close_spaces(formula: str) -> str:
    names_closed = _SPACED_NAME.sub(
        lambda name: f"{name[1] or name[3]}{{{(name[2] or name[4]).replace(' ', '')}}}", formula
    )
    letters_closed = _SPACED_LETTERS.sub(lambda run: run[1] or run[0].replace(" ", ""), names_closed)
    return _SPACED_NUMBER.sub(lambda number: number[0].replace(" ", ""), letters_closed)


def _clean_reply(text: str) -> str:
    """Clean a reply of pass 2; boilerplate is no reply."""
    text = close_spaces_in_maths(_drop_page_marks(text))
    contents = [block.content for block in grounding.parse(text).blocks if block.content.strip()]
    return "" if all(map(_is_boilerplate, contents)) else text


def split_lists(blocks: Sequence[Block]) -> tuple[tuple[Block, ...], tuple[Box, ...]]:
    """Take out the empty lists around other blocks. Returns the other blocks and the boxes of the lists."""
    empty = (n for n, block in enumerate(blocks) if block.label == LIST and not block.content.strip())
    first = islice(empty, MAX_LISTS)
    lists = [n for n in first if _has_item(blocks[n], blocks[max(n - MAX_ITEMS, 0) : n + MAX_ITEMS])]
    taken = set(lists)
    others = tuple(block for n, block in enumerate(blocks) if n not in taken)
    return others, tuple(box for n in lists for box in blocks[n].boxes)


def _has_item(one: Block, near: Sequence[Block]) -> bool:
    return any(_contains(one.boxes, other.boxes) for other in near if other.label != LIST)


def _contains(outer: Sequence[Box], inner: Sequence[Box]) -> bool:
    """Whether the centre of the first inner box lies in an outer one."""
    if not inner:
        return False
    return any(box.contains(inner[0].centre) for box in outer)


def _set_kinds(found: Sequence[Element], lists: Sequence[Box], page: int) -> tuple[Element, ...]:
    """Give elements the kinds that the labels do not tell: list items, captions, entries of contents, headings.

    Of the titles, only the first one of the document remains; the others become section headings.
    """
    result, has_title = [], page > 1
    entries = _find_entries(found)
    page_kinds = {one.kind for one in found}
    for index, element in enumerate(found):
        if element.kind is Kind.TEXT and _contains(lists, element.boxes):
            element = element.model_copy(update={"kind": Kind.LIST_ITEM})
        elif _is_caption(index, found, page_kinds):
            element = _change_kind(element, Kind.CAPTION)
        elif element.kind in HEADINGS and index in entries:
            element = _change_kind(element, Kind.TEXT)
        elif element.kind is Kind.TITLE:
            # Numbers give a heading its level when the document is assembled.
            element = _change_kind(element, Kind.SECTION_HEADER) if has_title else element
            has_title = True
        result.append(element)
    return tuple(result)


def _find_entries(found: Sequence[Element]) -> frozenset[int]:
    """Find the entries of a table of contents: they end in page numbers that never decrease, at the same place."""
    numbered = [(index, match) for index, one in enumerate(found) if (match := _ENTRY.fullmatch(one.text.strip()))]
    right_edges = [found[index].boxes[0].x1 for index, _ in numbered if found[index].boxes]
    if len(right_edges) < max(_MIN_ENTRIES, len(found) / 2) or max(right_edges) - min(right_edges) > _ENTRY_EDGE:
        return frozenset()
    pages = [int(match[1]) if match[1].isdecimal() else 0 for _, match in numbered]  # a preface has Roman numbers
    return frozenset(index for index, _ in numbered) if pages == sorted(pages) else frozenset()


def _is_caption(index: int, found: Sequence[Element], page_kinds: Collection[Kind]) -> bool:
    """Whether a text or heading is a caption.

    It begins with the name and number of a table or figure. A heading does so on a page that has one; a text is next to
    one, and a full stop, colon or bar ends the number: "Table 2 shows" is no caption.
    """
    element = found[index]
    match = _CAPTION.match(element.text + "\n")
    if not match or element.kind not in (Kind.TEXT, *HEADINGS) or len(element.text) > _MAX_CAPTION_LENGTH:
        return False
    if element.kind is Kind.TEXT and not match["end"].strip():
        return False
    is_heading = element.kind in HEADINGS
    near = page_kinds if is_heading else {one.kind for one in found[max(index - 1, 0) : index + 2]}
    return not FIGURES.isdisjoint(near) if not match["table"] else Kind.TABLE in near


def _change_kind(element: Element, kind: Kind) -> Element:
    changed = element.model_copy(update={"kind": kind, "category": kind.category, "level": None, "numbering": None})
    return elements.with_content(changed, element.text)
