"""Decide which elements are headings, and give them levels and numbers.

The evidence is the numbering in their text, the PDF's outline, and the reader's level hints: Markdown hashes or ranks
of font sizes, where a smaller number means a higher heading and 0 means no hint.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from twopass.document import FURNITURE, Element, Flag, Kind, OutlineEntry
from twopass.text import prose

MAX_LEVEL = 9  # deeper numbering counts as this level
_MIN_AGREEMENT = 0.8  # a hint means a level if this share of its headings of known level have that level
_MAX_HEADING_LINES = 5
_MAX_HEADING_LENGTH = 200  # characters: longer text is not promoted to a heading
_MAY_HEAD = FURNITURE | {Kind.TEXT}  # if the outline names it
_MIN_PREFIX = 8  # characters: a shorter title that begins like another one is not the same title
_NUMBERING = re.compile(
    r"\s*(?:(?P<name>(?i:chapter|section|part|appendix|annex|kapitel|abschnitt|teil|anhang|chapitre|partie|§))\s*"
    r"(?P<named>\d+(?:\.\d+)*|[IVXLC]+\b|[A-Z]\b)(?P<after>[.:)–-]*)"
    r"|[第제]\s*(?P<cjk>[0-9一二三四五六七八九十百]+)\s*(?P<unit>[编部章节條条편부장절조])"
    r"|(?P<plain>\d{1,3}(?:\.\d{1,3})*)(?:[.):：、]\s*(?=\S)(?!\d)|\s+(?=\S))"
    rf"|(?P<glued>\d{{1,3}}(?:\.\d{{1,3}})+)(?=[{prose.HAN}{prose.HANGUL}])"
    r"|(?P<letter>[A-Z](?:\.\d{1,3})+)[.)]?\s+|(?P<single>[A-Z]|[IVX]{2,5})[.)]\s+)"
)
_UNIT_DEPTHS = {"节": 2, "절": 2, "條": 3, "条": 3, "조": 3}
_COMMON_TITLE_LIST = (
    "abstract/summary/executive summary/introduction/conclusion/conclusions/references/bibliography/acknowledgements"
    "/acknowledgments/appendix/annex/foreword/preface/contents/table of contents/glossary/index"
    "/zusammenfassung/einleitung/literatur/inhalt/inhaltsverzeichnis/anhang/résumé/références"
    "/摘要/前言/引言/绪论/结论/参考文献/致谢/附录/目录/초록/요약/서론/결론/참고문헌/부록/목차/要旨/はじめに/まとめ/目次"
)
_COMMON_TITLES = frozenset(_COMMON_TITLE_LIST.split("/"))
_ANNEX = re.compile(r"\s*(?:appendix|annex|anhang|annexe)\b|\s*[附부][录錄록]", flags=re.IGNORECASE)
_PLACEHOLDER = re.compile(
    r"_goback|untitled.*|(?:page|slide|seite|folie|p\.)?\s*(?:number|no\.?)?\s*\d*"
    r"|powerpoint presentation|(?:document|title)\d*|microsoft word -.*"
    r"|\S+\.(?:pdf|docx?|pptx?|xlsx?|indd|tex|qxd|rtf)",
    flags=re.IGNORECASE,
)


@dataclass(frozen=True)
class Numbering:
    """The number at the start of a heading: `text` as displayed, `depth` from 1, and the `rest` of the heading."""

    text: str
    depth: int
    rest: str


def parse_numbering(text: str) -> Numbering | None:
    """Parse the number that a heading begins with: 1.2.3, A.1, IV., Chapter 2, 第3章, 제2절."""
    match = _NUMBERING.match(text)
    if not match:
        return None
    group = match.groupdict()
    displayed = next(group[name] for name in ("named", "cjk", "plain", "glued", "letter", "single") if group[name])
    depth = _UNIT_DEPTHS.get(group["unit"] or "", 1 + displayed.removesuffix(".0").count("."))
    rest = text[match.end() :].strip(" \t\n.:|–—-")
    return Numbering(displayed, min(depth, MAX_LEVEL), rest)


def fold_title(title: str) -> str:
    """Reduce a title to what is compared: without number, case, spaces and punctuation."""
    numbering = parse_numbering(title)
    title = numbering.rest if numbering and numbering.rest else title
    return "".join(prose.split_words(title)) or unicodedata.normalize("NFKC", title).strip()


def is_placeholder(title: str) -> bool:
    """Whether a program, not an author, set this title: a slide number, a file name or a default."""
    return bool(_PLACEHOLDER.fullmatch(title.strip()))


@dataclass(frozen=True)
class Outline:
    """The PDF's outline matched with the elements."""

    entries: tuple[OutlineEntry, ...]
    entry_by_element: Mapping[int, int]  # index of the heading in the elements -> index in `entries`

    @property
    def element_by_entry(self) -> dict[int, int]:
        return {entry: element for element, entry in self.entry_by_element.items()}


def match_outline(outline: Iterable[OutlineEntry], elements: Sequence[Element]) -> Outline:
    """Drop placeholder entries; match the others with a heading or a line of text of the same title on their page."""
    entries = tuple(entry for entry in outline if not is_placeholder(entry.title))
    candidates: dict[int, list[int]] = defaultdict(list)
    for index, element in enumerate(elements):
        may_head = element.is_heading or element.kind in _MAY_HEAD
        if element.is_body and may_head and len(element.text) <= _MAX_HEADING_LENGTH:
            candidates[element.page].append(index)
    entry_by_element: dict[int, int] = {}
    for entry_index, entry in enumerate(entries):
        heading = _find_heading(entry, elements, candidates, entry_by_element)
        if heading is not None:
            entry_by_element[heading] = entry_index
    return Outline(entries, entry_by_element)


def _find_heading(
    entry: OutlineEntry, elements: Sequence[Element], candidates: Mapping[int, list[int]], taken: Mapping[int, int]
) -> int | None:
    """Look for an equal title, then for one with the same beginning; on the entry's page first, then next to it."""
    title = fold_title(entry.title)
    pages = sorted(candidates) if entry.page is None else (entry.page, entry.page + 1, entry.page - 1)
    for matches in (_is_equal, _is_prefix):
        for page in pages:
            for index in candidates.get(page, ()):
                element = elements[index]
                may_head = element.is_heading or (matches is _is_equal and page == entry.page)
                if index not in taken and may_head and matches(title, fold_title(element.text)):
                    return index
    return None


def _is_equal(one: str, other: str) -> bool:
    return one == other


def _is_prefix(one: str, other: str) -> bool:
    """Whether one title begins with the other: outlines shorten titles, layouts break them into lines."""
    return min(len(one), len(other)) >= _MIN_PREFIX and (one.startswith(other) or other.startswith(one))


def resolve(elements: Sequence[Element], outline: Outline) -> list[Element]:
    """Decide the headings of the whole document: one title, and a level and a number for every heading."""
    promoted = [
        _change_kind(element.without_flag(Flag.APART), Kind.SECTION_HEADER)
        if index in outline.entry_by_element and not element.is_heading
        else element
        for index, element in enumerate(elements)
    ]
    headed = _keep_one_title(promoted)
    levels = _find_levels(headed, outline)
    return [_set_level(element, levels.get(index)) for index, element in enumerate(headed)]


def _change_kind(element: Element, kind: Kind) -> Element:
    return element.model_copy(update={"kind": kind, "category": kind.category})


def _set_level(element: Element, level: int | None) -> Element:
    if not element.is_heading:
        return element.model_copy(update={"level": None})
    numbering = parse_numbering(element.text) if element.kind is Kind.SECTION_HEADER else None
    update = {"level": level or 1, "numbering": numbering.text if numbering else element.numbering}
    return element.model_copy(update=update)


def _keep_one_title(elements: list[Element]) -> list[Element]:
    """Keep the first title of the first page and those directly after it, its further lines; demote all others."""
    first_page = next((e.page for e in elements if e.is_body), None)
    has_title, may_continue = False, True
    result = []
    for element in elements:
        if element.is_body and element.kind is Kind.TITLE:
            is_title = may_continue and element.page == first_page and not parse_numbering(element.text)
            has_title = has_title or is_title
            element = element if is_title else _change_kind(element, Kind.SECTION_HEADER)
        if element.is_body and has_title and element.kind is not Kind.TITLE:
            may_continue = False
        result.append(element)
    return result


def _find_levels(elements: Sequence[Element], outline: Outline) -> dict[int, int]:
    """The level of each section heading by its index: from its numbering, the outline, its hint, or a guess."""
    headings = [index for index, e in enumerate(elements) if e.is_body and e.kind is Kind.SECTION_HEADER]
    depths = {i: numbering.depth for i in headings if (numbering := parse_numbering(elements[i].text))}
    shift = find_level_shift(outline, depths)
    known = {
        index: max(1, outline.entries[outline.entry_by_element[index]].level - shift)
        for index in headings
        if index in outline.entry_by_element
    }
    known |= depths
    level_of_hint = _learn_hints(elements, known)
    ranks = {hint: rank for rank, hint in enumerate(sorted({_hint(elements[i]) for i in headings}), start=1)}
    levels: dict[int, int] = {}
    last_known = 0
    for index in headings:
        hint = _hint(elements[index])
        if index in known:
            last_known = known[index]
        guess = _guess_level(elements[index].text, last_known, ranks[hint], bool(known))
        levels[index] = known.get(index) or level_of_hint(hint) or guess
    return levels


def find_level_shift(outline: Outline, depths: Mapping[int, int]) -> int:
    """How many levels the outline is deeper than the numbering: 1 if it puts everything under the title.

    `depths` are the depths of numbered headings by their index in the elements.
    """
    gaps = Counter(
        outline.entries[entry].level - depths[index]
        for index, entry in outline.entry_by_element.items()
        if index in depths
    )
    return gaps.most_common(1)[0][0] if gaps else 0


def _hint(element: Element) -> int:
    return element.level or 0


def _learn_hints(elements: Sequence[Element], known: Mapping[int, int]) -> Callable[[int], int | None]:
    """Learn what level a hint means from the headings of known level. The function returns None if it cannot tell."""
    counts: dict[int, Counter[int]] = defaultdict(Counter)
    for index, level in known.items():
        counts[_hint(elements[index])][level] += 1
    most_common = {hint: levels.most_common(1)[0] for hint, levels in counts.items()}
    learned = {hint: level for hint, (level, n) in most_common.items() if n >= _MIN_AGREEMENT * counts[hint].total()}

    def level_of_hint(hint: int) -> int | None:
        if hint in counts or not hint:
            return learned.get(hint)
        higher = [learned[other] for other in learned if other and other < hint]
        if not higher:
            return 1 if any(other > hint for other in counts) else None  # above every heading of known level
        return min(max(higher) + 1, MAX_LEVEL)

    return level_of_hint


def _guess_level(text: str, last_known: int, rank: int, some_known: bool) -> int:
    """Without other evidence: by a common title, else below the last known level, else by the rank of the hint."""
    if _is_common_title(text) or _ANNEX.match(text):
        return 1
    if some_known:
        return min(last_known + 1, MAX_LEVEL) if last_known else 1
    return min(rank, MAX_LEVEL)


def _is_common_title(title: str) -> bool:
    """Whether many documents have a part with this title: Abstract, References."""
    return " ".join(title.casefold().split()).strip(" .:") in _COMMON_TITLES


def find_top_heading(elements: Sequence[Element]) -> str | None:
    """The highest heading of the first page, for a document without a title; a numbered one only if all are."""
    first_page = next((element.page for element in elements if element.is_body), None)
    ranked = []
    for index, element in enumerate(elements):
        if element.page == first_page and element.is_body and element.is_heading and not element.continues:
            text, numbering = join_heading(elements, index), parse_numbering(element.text)
            if not is_placeholder(text) and not _is_common_title(numbering.rest if numbering else text):
                ranked.append((numbering is not None, element.level or 1, index, text))
    return min(ranked)[-1] if ranked else None


def join_heading(elements: Sequence[Element], index: int) -> str:
    """The text of the heading at this index with the lines that continue it."""
    by_id = {e.id: e for e in elements[index : index + _MAX_HEADING_LINES * 4]}
    text, element = prose.to_one_line(elements[index].text), elements[index]
    for _ in range(_MAX_HEADING_LINES):
        following = by_id.get(element.continued_by or "")
        if following is None or not following.is_heading:
            break
        text, element = "".join(prose.join_lines(text, prose.to_one_line(following.text))), following
    return text
