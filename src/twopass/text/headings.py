"""Decide which elements are headings, and give them levels and numbers.

The evidence is the numbering in their text, the PDF's outline, and the reader's level hints: Markdown hashes or ranks
of font sizes, where a smaller number means a higher heading and 0 means no hint.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from twopass.document import FURNITURE, Element, Flag, Kind, OutlineEntry
from twopass.text import prose

MAX_LEVEL = 9  # deeper numbering counts as this level
_MIN_AGREEMENT = 0.8  # a hint means a level if this share of its headings of known level have that level
_MAX_HEADING_LINES = 5
_MAX_HEADING_LENGTH = 200  # characters: longer text is not promoted to a heading
_MAY_HEAD = FURNITURE | {Kind.TEXT}  # if the outline names it
_MIN_PREFIX = 8  # characters: a shorter title that begins like another one is not the same title
_NUMBERING = re.compile(
    r"\s*(?:(?P<name>(?i:chapter|section|article|part|appendix|annex|kapitel|abschnitt|artikel|teil|anhang|chapitre|partie|§))\s*"
    r"(?P<named>\d+(?:\.\d+)*|[IVXLC]+\b|[A-Z]\b)(?P<after>[.:)–-]*)"
    r"|[第제]\s*(?P<cjk>[0-9一二三四五六七八九十百]+)\s*(?P<unit>[编部章节條条편부장절조])"
    r"|(?P<plain>\d{1,3}(?:\.\d{1,3})*)(?:[.):：、]\s*(?=\S)(?!\d)|\s+(?=\S))"
    rf"|(?P<glued>\d{{1,3}}(?:\.\d{{1,3}})+)(?=[{prose.HAN}{prose.HANGUL}])"
    r"|(?P<letter>[A-Z](?:\.\d{1,3})+)[.)]?\s+|(?P<single>[A-Z]|[IVX]{2,5})[.)]\s+)"
)
_UNIT_DEPTHS = {"节": 2, "절": 2, "條": 3, "条": 3, "조": 3}


class Scheme(StrEnum):
    """A way to number headings; those with a name stand in the order in which documents nest them."""

    PART = "part"
    CHAPTER = "chapter"
    SECTION = "section"
    ARTICLE = "article"
    ANNEX = "annex"
    UNIT = "unit"  # Chinese and Korean ones, whose depth the unit says
    ROMAN = "roman"
    LETTER = "letter"
    PLAIN = "plain"


_NAMED = (Scheme.PART, Scheme.CHAPTER, Scheme.SECTION, Scheme.ARTICLE)
_SCHEMES = {
    "part": Scheme.PART, "teil": Scheme.PART, "partie": Scheme.PART,
    "chapter": Scheme.CHAPTER, "kapitel": Scheme.CHAPTER, "chapitre": Scheme.CHAPTER,
    "section": Scheme.SECTION, "abschnitt": Scheme.SECTION, "§": Scheme.SECTION,
    "article": Scheme.ARTICLE, "artikel": Scheme.ARTICLE,
    "appendix": Scheme.ANNEX, "annex": Scheme.ANNEX, "anhang": Scheme.ANNEX,
}  # fmt: skip
_ROMAN = re.compile(r"[IVX]+")
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
    scheme: Scheme = Scheme.PLAIN


def parse_numbering(text: str) -> Numbering | None:
    """Parse the number that a heading begins with: 1.2.3, A.1, IV., Chapter 2, 第3章, 제2절."""
    match = _NUMBERING.match(text)
    if not match:
        return None
    group = match.groupdict()
    displayed = next(group[name] for name in ("named", "cjk", "plain", "glued", "letter", "single") if group[name])
    depth = _UNIT_DEPTHS.get(group["unit"] or "", 1 + displayed.removesuffix(".0").count("."))
    rest = text[match.end() :].strip(" \t\n.:|–—-")
    return Numbering(displayed, min(depth, MAX_LEVEL), rest, _find_scheme(group))


def _find_scheme(group: Mapping[str, str | None]) -> Scheme:
    if name := group["name"]:
        return _SCHEMES.get(name.casefold(), Scheme.SECTION)  # the long s of old print is an s
    if single := group["single"]:
        return Scheme.ROMAN if _ROMAN.fullmatch(single) else Scheme.LETTER
    return Scheme.LETTER if group["letter"] else Scheme.UNIT if group["cjk"] else Scheme.PLAIN


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

    root_levels: int = 0  # of entries for the document itself, below which all others are

    @property
    def element_by_entry(self) -> dict[int, int]:
        return {entry: element for element, entry in self.entry_by_element.items()}

    @property
    def is_flat(self) -> bool:
        """Whether all entries have one level, which then says nothing about the headings."""
        return len({entry.level for entry in self.entries if entry.level > self.root_levels}) < 2

    def get_level(self, entry: int) -> int:
        return min(max(1, self.entries[entry].level - self.root_levels), MAX_LEVEL)


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
    sections = {entry for index, entry in entry_by_element.items() if elements[index].kind is not Kind.TITLE}
    has_root = len(entries) > 1 and 0 not in sections and _is_root(entries)
    return Outline(entries, entry_by_element, entries[0].level if has_root else 0)


def _is_root(entries: Sequence[OutlineEntry]) -> bool:
    """Whether the first entry is above all others, as the document's title is."""
    return all(entry.level > entries[0].level for entry in entries[1:])


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
    """The level of each section heading by its index: from the outline, its numbering, its hint, or a guess."""
    headings = [index for index, e in enumerate(elements) if e.is_body and e.kind is Kind.SECTION_HEADER]
    numbered = _rank_numberings(elements, headings)
    known = {i: outline.get_level(outline.entry_by_element[i]) for i in headings if i in outline.entry_by_element}
    if outline.is_flat:
        known |= {index: level for index, (_, level) in numbered.items()}
    else:
        known = _extend(known, numbered)
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


def _extend(known: Mapping[int, int], numbered: Mapping[int, tuple[Scheme, int]]) -> dict[int, int]:
    """The levels that the outline knows, and those of numbered headings that it leaves out, on the same scale."""
    offsets: dict[Scheme, Counter[int]] = defaultdict(Counter)
    for index, (scheme, level) in numbered.items():
        if index in known:
            offsets[scheme][known[index] - level] += 1
    extended = {
        index: min(max(1, level + (offsets[scheme].most_common(1)[0][0] if offsets[scheme] else 0)), MAX_LEVEL)
        for index, (scheme, level) in numbered.items()
    }
    return {**extended, **known}


def _rank_numberings(elements: Sequence[Element], headings: Sequence[int]) -> dict[int, tuple[Scheme, int]]:
    """The scheme and the level of each numbered heading by its index: parts above chapters, 1 below A below I.

    A scheme is below another one that begins before it and goes on after it; below parts and chapters it always is.
    """
    found = _tell_letters({i: numbering for i in headings if (numbering := parse_numbering(elements[i].text))})
    by_scheme: dict[Scheme, list[int]] = defaultdict(list)
    for index, numbering in found.items():
        by_scheme[numbering.scheme].append(index)
    bases = {}  # the level of the outermost numberings of each scheme, less their depth
    for scheme, indices in by_scheme.items():
        above = [other for other in by_scheme if _is_above(other, scheme, by_scheme)]
        first = min(found[index].depth for index in indices) if any(other in _NAMED for other in above) else 1
        larger = _count_larger(elements, headings, indices) if scheme is Scheme.PLAIN and not above else 0
        bases[scheme] = len(above) + larger + 1 - first
    return {index: (one.scheme, min(bases[one.scheme] + one.depth, MAX_LEVEL)) for index, one in found.items()}


def _tell_letters(found: Mapping[int, Numbering]) -> dict[int, Numbering]:
    """The numberings, with I, V and X as letters where they follow H, U and W, or where no II or IV is."""
    is_roman = any(n.scheme is Scheme.ROMAN and len(n.text) > 1 for n in found.values())
    told, last = {}, ""
    for index, numbering in found.items():
        if numbering.scheme is Scheme.ROMAN and len(numbering.text) == 1:
            follows = last == chr(ord(numbering.text) - 1)
            scheme = Scheme.ROMAN if is_roman and not follows else Scheme.LETTER
            numbering = replace(numbering, scheme=scheme)
        if numbering.scheme is Scheme.LETTER:
            last = numbering.text
        told[index] = numbering
    return told


def _is_above(other: Scheme, scheme: Scheme, by_scheme: Mapping[Scheme, Sequence[int]]) -> bool:
    if other is scheme or {other, scheme} & {Scheme.ANNEX, Scheme.UNIT}:
        return False
    if other in _NAMED or scheme in _NAMED:
        if other in _NAMED and scheme in _NAMED:
            return _NAMED.index(other) < _NAMED.index(scheme)
        return other in _NAMED and by_scheme[other][0] < max(by_scheme[scheme])
    first = by_scheme[scheme][0]
    return by_scheme[other][0] < first < max(by_scheme[other])


def _count_larger(elements: Sequence[Element], headings: Sequence[int], numbered: Sequence[int]) -> int:
    """1 if headings in larger type stand above the numbered ones, several times: these are then their subsections."""
    hints = [hint for index in numbered if (hint := _hint(elements[index]))]
    if not hints:
        return 0
    larger = [
        index
        for index in headings
        if 0 < _hint(elements[index]) < min(hints)
        and not parse_numbering(elements[index].text)
        and not _is_common_title(elements[index].text)
    ]
    sections = [bisect_left(numbered, index) for index in larger]
    return int(len({n for n in sections if n < len(numbered)}) > 1 and sections[0] == 0)


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
