"""Elements in reading order and the PDF's outline in; headings with levels and numbers, and the section tree, out.

Knows numbering, outlines and the reader's level hints (hashes, font sizes). Knows nothing of files or models.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from twopass.document import FIGURES, HEADINGS, Analysis, Element, Kind, OutlineEntry, Section, Source
from twopass.text import prose as words

DEEPEST = 9  # levels; deeper numbering is read as this
SURE = 0.8  # of the headings with one hint must have one level for the hint to mean it
HEADING_LINES = 5
PROMOTED = 200  # characters: no heading is longer
SECTION_KEYWORDS, LEAST_KEYWORDS = 10, 5
SECTION_SENTENCES = 3
ENOUGH = 8  # words of prose: fewer only point at what stands below them
VISUALS = FIGURES | {Kind.TABLE}
SUMMED = 6000  # characters of a section that its summary is chosen from
_NUMBER = re.compile(
    r"\s*(?:(?P<name>(?i:chapter|section|part|appendix|annex|kapitel|abschnitt|teil|anhang|chapitre|partie|§))\s*"
    r"(?P<named>\d+(?:\.\d+)*|[IVXLC]+\b|[A-Z]\b)(?P<after>[.:)–-]*)"
    r"|[第제]\s*(?P<cjk>[0-9一二三四五六七八九十百]+)\s*(?P<unit>[编部章节條条편부장절조])"
    r"|(?P<plain>\d{1,3}(?:\.\d{1,3})*)(?:[.):：、]\s*(?=\S)(?!\d)|\s+(?=\S))"
    rf"|(?P<glued>\d{{1,3}}(?:\.\d{{1,3}})+)(?=[{words.HAN}{words.HANGUL}])"
    r"|(?P<letter>[A-Z](?:\.\d{1,3})+)[.)]?\s+|(?P<single>[A-Z]|[IVX]{2,5})[.)]\s+)"
)
_UNITS = {"节": 2, "절": 2, "條": 3, "条": 3, "조": 3}
_TOP_TITLES = (
    "abstract/summary/executive summary/introduction/conclusion/conclusions/references/bibliography/acknowledgements"
    "/acknowledgments/appendix/annex/foreword/preface/contents/table of contents/glossary/index"
    "/zusammenfassung/einleitung/literatur/inhalt/inhaltsverzeichnis/anhang/résumé/références"
    "/摘要/前言/引言/绪论/结论/参考文献/致谢/附录/目录/초록/요약/서론/결론/참고문헌/부록/목차/要旨/はじめに/まとめ/目次"
)
_TOP = frozenset(_TOP_TITLES.split("/"))
_ANNEX = re.compile(r"\s*(?:appendix|annex|anhang|annexe)\b|\s*[附부][录錄록]", flags=re.IGNORECASE)
_JUNK = re.compile(
    r"_goback|untitled.*|(?:page|slide|seite|folie|p\.)?\s*(?:number|no\.?)?\s*\d*"
    r"|powerpoint presentation|(?:document|title)\d*|microsoft word -.*"
    r"|\S+\.(?:pdf|docx?|pptx?|xlsx?|indd|tex|qxd|rtf)",
    flags=re.IGNORECASE,
)


@dataclass(frozen=True)
class Number:
    """`text` as displayed, `depth` from 1, `rest` of the heading without it."""

    text: str
    depth: int
    rest: str


def number(text: str) -> Number | None:
    """The numbering a heading begins with: 1.2.3, A.1, IV., Chapter 2, 第3章, 제2절."""
    found = _NUMBER.match(text)
    if not found:
        return None
    group = found.groupdict()
    shown = next(group[name] for name in ("named", "cjk", "plain", "glued", "letter", "single") if group[name])
    depth = _UNITS.get(group["unit"] or "", 1 + shown.removesuffix(".0").count("."))
    rest = text[found.end() :].strip(" \t\n.:|–—-")
    return Number(shown, min(depth, DEEPEST), rest)


def _folded(title: str) -> str:
    """A title for comparing: without number, case, blanks and marks."""
    found = number(title)
    title = found.rest if found and found.rest else title
    return "".join(words.words(title)) or unicodedata.normalize("NFKC", title).strip()


def says_nothing(title: str) -> bool:
    """Whether a title is only what a program puts where nobody wrote one: slide numbers, file names, defaults."""
    return bool(_JUNK.fullmatch(title.strip()))


@dataclass(frozen=True)
class Outline:
    """The PDF's outline laid over the elements: which entry heads which element, by place in both."""

    entries: tuple[OutlineEntry, ...]
    heads: Mapping[int, int]  # element's place -> entry's place

    @property
    def places(self) -> dict[int, int]:
        return {entry: place for place, entry in self.heads.items()}


def lay(outline: Iterable[OutlineEntry], elements: Sequence[Element]) -> Outline:
    """Entries that say something, each with the heading (or the line of text) of its title on its page."""
    entries = tuple(entry for entry in outline if not says_nothing(entry.title))
    on_page: dict[int, list[int]] = defaultdict(list)
    for place, element in enumerate(elements):
        if element.is_body and (element.is_heading or element.kind is Kind.TEXT) and len(element.text) <= PROMOTED:
            on_page[element.page].append(place)
    heads: dict[int, int] = {}
    for which, entry in enumerate(entries):
        if (head := _head(entry, elements, on_page, heads)) is not None:
            heads[head] = which
    return Outline(entries, heads)


def _head(
    entry: OutlineEntry, elements: Sequence[Element], on_page: Mapping[int, list[int]], taken: Mapping[int, int]
) -> int | None:
    title = _folded(entry.title)
    pages = sorted(on_page) if entry.page is None else (entry.page, entry.page + 1, entry.page - 1)
    for same in (_equal, _begins):
        for page in pages:
            for place in on_page.get(page, ()):
                element = elements[place]
                fits = element.is_heading or (same is _equal and page == entry.page)
                if place not in taken and fits and same(title, _folded(element.text)):
                    return place
    return None


def _equal(one: str, other: str) -> bool:
    return one == other


def _begins(one: str, other: str) -> bool:
    """Whether one title is the beginning of the other: outlines shorten, layouts break lines."""
    return min(len(one), len(other)) >= 8 and (one.startswith(other) or other.startswith(one))


def headed(elements: Sequence[Element], outline: Outline) -> list[Element]:
    """Headings decided over the document: one title, levels from numbering, outline or hints, numbering filled."""
    elements = [_promoted(element, place in outline.heads) for place, element in enumerate(elements)]
    elements = _one_title(elements)
    levels = _levels(elements, outline)
    return [_headed(element, levels.get(place)) for place, element in enumerate(elements)]


def _promoted(element: Element, is_head: bool) -> Element:
    return _as(Kind.SECTION_HEADER, element) if is_head and not element.is_heading else element


def _as(kind: Kind, element: Element) -> Element:
    return element.model_copy(update={"kind": kind, "category": kind.category})


def _headed(element: Element, level: int | None) -> Element:
    if not element.is_heading:
        return element.model_copy(update={"level": None})
    found = number(element.text) if element.kind is Kind.SECTION_HEADER else None
    update = {"level": level or 1, "numbering": found.text if found else element.numbering}
    return element.model_copy(update=update)


def _one_title(elements: list[Element]) -> list[Element]:
    """The title is the first page's first; one right behind it is its second line; all others head sections."""
    first_page = next((e.page for e in elements if e.is_body), None)
    known, open_ = False, True
    titled = []
    for element in elements:
        if element.is_body and element.kind is Kind.TITLE:
            fits = open_ and element.page == first_page and not number(element.text)
            known = known or fits
            element = element if fits else _as(Kind.SECTION_HEADER, element)
        if element.is_body and known and element.kind is not Kind.TITLE:
            open_ = False
        titled.append(element)
    return titled


def _levels(elements: Sequence[Element], outline: Outline) -> dict[int, int]:
    headings = [place for place, e in enumerate(elements) if e.is_body and e.kind is Kind.SECTION_HEADER]
    depths = {place: found.depth for place in headings if (found := number(elements[place].text))}
    shift = shift_of(outline, depths)
    sure = {
        place: max(1, outline.entries[outline.heads[place]].level - shift)
        for place in headings
        if place in outline.heads
    }
    sure |= depths
    meant = _meanings(elements, sure)
    ranks = {hint: rank for rank, hint in enumerate(sorted({_hint(elements[p]) for p in headings}), start=1)}
    levels: dict[int, int] = {}
    above = 0
    for place in headings:
        hint = _hint(elements[place])
        if place in sure:
            above = sure[place]
        levels[place] = sure.get(place) or meant(hint) or _guess(elements[place].text, above, ranks[hint], bool(sure))
    return levels


def shift_of(outline: Outline, depths: Mapping[int, int]) -> int:
    """By how many levels the outline lies below the numbering: 1 where it puts all under the document's title."""
    gaps = Counter(
        outline.entries[entry].level - depths[place] for place, entry in outline.heads.items() if place in depths
    )
    return gaps.most_common(1)[0][0] if gaps else 0


def _hint(element: Element) -> int:
    return element.level or 0


def _meanings(elements: Sequence[Element], sure: Mapping[int, int]) -> Callable[[int], int | None]:
    """What a level hint means, from the headings whose level is sure; None where it could mean anything."""
    seen: dict[int, Counter[int]] = defaultdict(Counter)
    for place, level in sure.items():
        seen[_hint(elements[place])][level] += 1
    usual = {hint: levels.most_common(1)[0] for hint, levels in seen.items()}
    known = {hint: level for hint, (level, times) in usual.items() if times >= SURE * seen[hint].total()}

    def meant(hint: int) -> int | None:
        if hint in known or hint in seen or not hint:
            return known.get(hint)
        smaller = [known[other] for other in known if other and other < hint]
        if not smaller:
            return 1 if any(other > hint for other in seen) else None  # larger than all that is sure
        return min(max(smaller) + 1, DEEPEST)

    return meant


def _guess(text: str, above: int, rank: int, some_are_sure: bool) -> int:
    """Nobody says: by name, then below the last heading that is sure, then by the order of the hints."""
    if _is_usual(text) or _ANNEX.match(text):
        return 1
    if some_are_sure:
        return min(above + 1, DEEPEST) if above else 1
    return min(rank, DEEPEST)


def _is_usual(title: str) -> bool:
    """Whether it heads a part that any document may have: Abstract, References."""
    return " ".join(title.casefold().split()).strip(" .:") in _TOP


@dataclass(frozen=True)
class Head:
    """Where a section begins: in front of the element at this place."""

    place: int
    level: int
    number: str | None
    title: str


def tree(elements: Sequence[Element], outline: Outline, pages: Sequence[int], title: str | None) -> tuple[Section, ...]:
    """The section tree in document order. Elements before the first heading belong to no section.

    The document's title heads no section, unless it is the only heading there is.
    """
    heads = sorted(_heads(elements) + _missing(elements, outline, pages, title), key=lambda head: head.place)
    if not heads:
        headings = [
            (place, element) for place, element in enumerate(elements) if element.is_body and element.is_heading
        ]
        heads = [Head(place, 1, None, whole_text(elements, place)) for place, _ in headings[:1]]
    ends = [*(head.place for head in heads[1:]), len(elements)]
    numbered = [(f"s{n:03d}", head, end) for n, (head, end) in enumerate(zip(heads, ends, strict=False), start=1)]
    return _nested(numbered, elements, ())


def _heads(elements: Sequence[Element]) -> list[Head]:
    heads = []
    for place, element in enumerate(elements):
        if element.is_body and element.kind is Kind.SECTION_HEADER and not element.continues:
            text = whole_text(elements, place)
            found = number(text)
            shown = found.text if found else element.numbering
            heads.append(Head(place, element.level or 1, shown, found.rest if found and found.rest else text))
    return heads


def foremost(elements: Sequence[Element]) -> str | None:
    """The first page's highest heading, for a document without a title; those with a number only where no other is."""
    first_page = next((element.page for element in elements if element.is_body), None)
    ranked = []
    for place, element in enumerate(elements):
        if element.page == first_page and element.is_body and element.is_heading and not element.continues:
            text, found = whole_text(elements, place), number(element.text)
            if not says_nothing(text) and not _is_usual(found.rest if found else text):
                ranked.append((found is not None, element.level or 1, place, text))
    return min(ranked)[-1] if ranked else None


def whole_text(elements: Sequence[Element], place: int) -> str:
    """The text of a heading with the lines it runs on into."""
    by_id = {e.id: e for e in elements[place : place + HEADING_LINES * 4]}
    text, element = words.flow(elements[place].text), elements[place]
    for _ in range(HEADING_LINES):
        following = by_id.get(element.continued_by or "")
        if following is None or not following.is_heading:
            break
        text, element = "".join(words.join(text, words.flow(following.text))), following
    return text


def _missing(elements: Sequence[Element], outline: Outline, pages: Sequence[int], title: str | None) -> list[Head]:
    """Entries of the outline that no element shows, in front of what follows on their page."""
    found_at = outline.places
    depths = {p: n.depth for p in outline.heads if (n := number(elements[p].text))}
    shift = shift_of(outline, depths)
    heads: list[Head] = []
    for which, entry in enumerate(outline.entries):
        is_title = title is not None and _folded(entry.title) == _folded(title)
        if which in found_at or is_title or (entry.page is not None and entry.page not in pages):
            continue
        numbered = number(entry.title)
        level = numbered.depth if numbered else min(max(1, entry.level - shift), DEEPEST)
        shown = words.flow(numbered.rest if numbered and numbered.rest else entry.title)
        heads.append(Head(_place(which, elements, outline, heads), level, numbered.text if numbered else None, shown))
    return heads


def _place(which: int, elements: Sequence[Element], outline: Outline, before: Sequence[Head]) -> int:
    """At the top of its page, or behind the entry before it on that page; never past the next entry we know."""
    entry, found_at = outline.entries[which], outline.places
    known = [found_at[other] for other in range(which) if other in found_at]
    least = max([*(place + 1 for place in known), *(head.place for head in before)], default=0)
    most = min((found_at[o] for o in range(which + 1, len(outline.entries)) if o in found_at), default=len(elements))
    if entry.page is None:
        return max(least, most) if most < len(elements) else least
    crowded = any(other.page == entry.page for other in outline.entries[:which])
    page = entry.page + crowded
    top = bisect_left(elements, page, key=lambda element: element.page)
    return max(least, min(top, most)) if least <= most else least


def _nested(
    heads: Sequence[tuple[str, Head, int]], elements: Sequence[Element], path: tuple[str, ...]
) -> tuple[Section, ...]:
    """The first head and all deeper ones behind it make one section; then the next."""
    sections = []
    start = 0
    while start < len(heads):
        name, head, end = heads[start]
        stop = start + 1
        while stop < len(heads) and heads[stop][1].level > head.level:
            stop += 1
        here = (*path, head.title)
        children = _nested(heads[start + 1 : stop], elements, here)
        own = [element for element in elements[head.place : end] if element.is_body]
        whole = [element for element in elements[head.place : heads[stop - 1][2]] if element.is_body]
        found = _keywords(whole)
        summary = _summary(own, whole, found)
        sections.append(
            Section(
                id=name,
                number=head.number,
                title=head.title,
                level=head.level,
                path=here,
                element_ids=tuple(element.id for element in own),
                keywords=found,
                summary=summary,
                analysis=Analysis(source=Source.DERIVED if found or summary else Source.NONE),
                children=children,
            )
        )
        start = stop
    return tuple(sections)


def gist(elements: Sequence[Element]) -> tuple[tuple[str, ...], str | None]:
    """Keywords and summary of any elements that stand together."""
    found = _keywords(elements)
    return found, _summary(elements, elements, found)


def _keywords(elements: Sequence[Element]) -> tuple[str, ...]:
    """The keywords most of the section's elements agree on; a heading's count double."""
    score: dict[str, float] = defaultdict(float)
    spelled: dict[str, str] = {}
    for element in elements:
        for rank, keyword in enumerate(element.keywords):
            folded = keyword.casefold()
            spelled.setdefault(folded, keyword)
            score[folded] += (2 if element.is_heading else 1) / (rank + 1)
    best = sorted(score, key=lambda folded: -score[folded])
    return words.distinct((spelled[folded] for folded in best), SECTION_KEYWORDS, LEAST_KEYWORDS)


def _summary(own: Sequence[Element], whole: Sequence[Element], keywords: Sequence[str]) -> str | None:
    """From its prose with its children's; where it has next to none, what its elements tell, at last its headings."""
    prose = words.summary(_prose(whole), keywords, SECTION_SENTENCES)
    if prose and len(words.words(_prose(own))) >= ENOUGH:
        return prose
    rest = (VISUALS, frozenset(Kind) - HEADINGS, HEADINGS)
    return _told(own, VISUALS) or prose or next(filter(None, (_told(whole, kinds) for kinds in rest)), None)


def _told(elements: Sequence[Element], kinds: Collection[Kind]) -> str | None:
    """The first summaries that its elements of these kinds have."""
    told = (element.summary for element in elements if element.kind in kinds and not element.continues)
    return words.close_up([summary for summary in dict.fromkeys(told) if summary][:SECTION_SENTENCES]) or None


def _prose(elements: Sequence[Element]) -> str:
    """The section's paragraphs, broken ones whole, and its list items where they are next to none."""
    paragraphs = [element for element in elements if element.kind is Kind.TEXT]
    counts = accumulate(len(words.words(element.text)) for element in paragraphs)
    if not any(count >= ENOUGH for count in counts):
        paragraphs = [element for element in elements if element.kind in (Kind.TEXT, Kind.LIST_ITEM)]
    told: list[str] = []
    for element in paragraphs:
        text = words.flow(element.text)
        if element.continues and told:
            told[-1] = "".join(words.join(told[-1], text))
        elif sum(map(len, told)) > SUMMED:
            break
        else:
            told.append(text)
    return "\n\n".join(told)[:SUMMED]
