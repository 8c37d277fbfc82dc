"""Mark page furniture: running headers, running footers and page numbers.

Text leaves the body only if three pages have it in the same margin, or if it is a page number. A label from the model
or the layout alone proves nothing, because losing a paragraph, or the invoice number in a letterhead, is worse than
keeping a header: what is labelled only stays in the body, as what it was labelled, with a flag.
"""

from __future__ import annotations

import re
import statistics
from bisect import bisect_left
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, product

from rapidfuzz.distance import Levenshtein

from twopass.document import FURNITURE, ConfidenceMethod, Element, Flag, Kind, Layer
from twopass.text import footnotes, page_numbers, prose
from twopass.text.page_numbers import PageNumber

_SIDE = 0.1  # of the page's width at left and right, for download notes and draft marks
BAND = 0.12  # of the page's height at top and bottom, for running headers and footers
_MARGIN = 0.2  # of the page's height: what is labelled header or footer here may be one
_REPEATED = 3  # pages that a text must repeat on
_COUNTING = 2  # pages whose labelled numbers count up with the pages
_SAME_PLACE = 0.03  # of the page: repetitions differ by less from their median position
_GRID_STEP = 0.02  # of the page: a header of changing text keeps its base line and an edge or its centre
_MIN_SHARE = 1 / 3  # of the pages must have such a header: books use another on left pages, none on a chapter's first
_MAX_LENGTH = 100  # characters: longer text is no running title, and a paragraph if it reads like one
_MAX_LOGO = 0.03  # of the page's area
_MIN_SHORTENED = 12  # letters of a title that a header may shorten
_MIN_MISREAD = 8  # characters: shorter texts that differ are different texts
_LETTERS_PER_ERROR = 5  # of a word that OCR read differently: names such as Berg and Borg are two
_MAX_COMPARED = 30  # texts that another one is compared with
_MAY_REPEAT = frozenset({Kind.TEXT, Kind.TITLE, Kind.SECTION_HEADER, Kind.LIST_ITEM, Kind.PICTURE}) | FURNITURE
_EXACT = frozenset({ConfidenceMethod.TEXT_LAYER, ConfidenceMethod.CHECKED_LAYER, ConfidenceMethod.UNKNOWN_LAYER})
_NUMBER = re.compile(r"(?<![#+\-])[#+\-]*+\d++|#")  # also as keys have it, with a sign in front
_TIME = re.compile(r"\d{1,2}:\d{2}(?::\d{2})?(?:\s*[ap]\.?m\b\.?)?", re.I)  # at which the pages were printed

_Name = tuple[str, str]  # of a group of repetitions: its band and its key


def mark(elements: Sequence[Element]) -> list[Element]:
    """Put each element of the document into the body or the furniture layer, whatever label the model gave it.

    Headers and footers that stay in the body come first and last on their page.
    """
    repeated = _find_repeated(elements)
    leaving = repeated | _find_page_numbers(elements) | _find_running_titles(elements, repeated)
    marked = [_to_furniture(e) if e.id in leaving else _to_body(e) for e in elements]
    return sorted(_restore_bodies(marked, elements, repeated), key=lambda element: (element.page, _rank(element)))


def is_unconfirmed_furniture(element: Element) -> bool:
    """Whether the element was labelled header or footer without other evidence. Text may continue after it."""
    return element.is_body and element.kind in FURNITURE


def is_lone_number(element: Element) -> bool:
    """Whether an element is a number and nothing else, such as a page number that nothing confirms."""
    return page_numbers.parse(element.text) is not None


def _to_furniture(element: Element) -> Element:
    return _with_margin_kind(element).model_copy(update={"content_layer": Layer.FURNITURE})


def _to_body(element: Element) -> Element:
    """The element in the body; with its label, unless it is a footnote or a paragraph."""
    if not _is_labelled(element):
        body = element.model_copy(update={"content_layer": Layer.BODY})
        return body.with_flags(Flag.APART) if _is_logo(element) else body
    if _is_note(element):
        return _to_text(element, Kind.FOOTNOTE)
    if _is_paragraph(element):
        return _to_text(element, Kind.TEXT)
    return _with_margin_kind(element).model_copy(update={"content_layer": Layer.BODY}).with_flags(Flag.APART)


def _to_text(element: Element, kind: Kind) -> Element:
    return element.model_copy(update={"kind": kind, "category": kind.category, "content_layer": Layer.BODY})


def _with_margin_kind(element: Element) -> Element:
    if element.kind in FURNITURE or element.is_figure or element.kind not in _MAY_REPEAT:
        return element
    kind = Kind.PAGE_HEADER if _find_band(element) == "top" else Kind.PAGE_FOOTER
    return element.model_copy(update={"kind": kind, "category": kind.category, "level": None})


def _rank(element: Element) -> int:
    """The place of a header or footer of the body among the elements of its page: before or after the others."""
    if not is_unconfirmed_furniture(element) or element.box is None or not _in_margin(element):
        return 0
    is_low = element.box.centre[1] > 0.5
    return int(is_low) if element.kind is Kind.PAGE_FOOTER else int(is_low) - 1


def _restore_bodies(marked: Sequence[Element], elements: Sequence[Element], repeated: set[str]) -> list[Element]:
    """Restore text on pages that have nothing but headers and footers.

    Page numbers are restored only if the page has no other text; of the rest, elements that repeat on other pages only
    if there are no others.
    """
    pages = {element.page for element in elements if element.text.strip()}
    pages -= {element.page for element in marked if _is_content(element)}
    texts_of: dict[int, list[Element]] = defaultdict(list)
    for element in elements:
        if element.page in pages and element.text.strip():
            texts_of[element.page].append(element)
    restored: set[str] = set()
    for on_page in texts_of.values():
        candidates = [element for element in on_page if not is_lone_number(element)] or on_page
        restored |= {element.id for element in [e for e in candidates if e.id not in repeated] or candidates}
    return [_restore(old) if old.id in restored else new for new, old in zip(marked, elements, strict=True)]


def _is_content(element: Element) -> bool:
    """Whether a page with this element has more than headers and footers."""
    has_any = bool(element.text.strip() or element.table or element.is_figure)
    return element.is_body and Flag.APART not in element.flags and has_any


def _restore(element: Element) -> Element:
    if element.kind in FURNITURE:
        return _to_text(element, Kind.FOOTNOTE if _is_note(element) else Kind.TEXT)
    return element.model_copy(update={"content_layer": Layer.BODY})


# ---- one element -------------------------------------------------------------------------------------


def _is_labelled(element: Element) -> bool:
    """Whether the model or the layout of the page calls the element a header, footer or page number."""
    return element.kind in FURNITURE or element.content_layer is Layer.FURNITURE or Flag.IN_MARGIN in element.flags


def _is_logo(element: Element) -> bool:
    """Whether a small picture with a few words stands where headers and footers do, as those of letters do."""
    has_phrase = 0 < len(element.text.strip()) <= _MAX_LENGTH
    is_small = element.box is not None and element.box.area <= _MAX_LOGO
    return element.kind is Kind.PICTURE and has_phrase and is_small and _find_band(element) in ("top", "bottom")


def _in_margin(element: Element) -> bool:
    if element.box is None or Flag.IN_MARGIN in element.flags:  # the flag also says so of a page set sideways
        return True
    return not _MARGIN < element.box.centre[1] < 1 - _MARGIN


def _is_note(element: Element) -> bool:
    """Whether a footer is a footnote. One that its page confirms begins with the page's number instead."""
    is_low = element.box is None or element.box.centre[1] > 0.5
    may_be = element.kind is Kind.PAGE_FOOTER and is_low and Flag.IN_MARGIN not in element.flags
    return may_be and footnotes.is_note(element.text) and not page_numbers.begins_date(element.text)


def _is_paragraph(element: Element) -> bool:
    """Whether a labelled text is too long for a header or footer, and reads like a paragraph or a part of one."""
    if element.is_figure or len(element.text) <= _MAX_LENGTH or Flag.IN_MARGIN in element.flags:
        return False
    line = prose.to_one_line(element.text)
    return prose.starts_mid_sentence(line) or prose.is_unfinished(line) or prose.ends_sentence(line)


def _find_band(element: Element) -> str | None:
    """The margin in which the element lies: top, bottom or side; None for the rest of the page."""
    box = element.box
    if element.kind not in _MAY_REPEAT:
        return None
    if box is None or (element.kind in FURNITURE and _in_margin(element)):
        is_top = box.centre[1] < 0.5 if box else element.kind is Kind.PAGE_HEADER
        return ("top" if is_top else "bottom") if element.kind in FURNITURE else None
    if element.kind in FURNITURE:  # of a page that is cropped, or empty below it
        return "top" if element.kind is Kind.PAGE_HEADER else "bottom"
    if box.y1 <= BAND or box.y0 >= 1 - BAND:
        return "top" if box.y1 <= BAND else "bottom"
    return "side" if box.x1 <= _SIDE or box.x0 >= 1 - _SIDE else None


def _measure_position(element: Element, band: str) -> float:
    """The centre of the element across its band: x in a side band, y in the others."""
    x, y = element.box.centre if element.box else (0.0, 0.0)
    return x if band == "side" else y


def _count_pages(elements: Iterable[Element]) -> int:
    return len({element.page for element in elements})


def _align(group: Sequence[Element], band: str) -> list[Element]:
    """The elements of a group that share a position across their band."""
    median = statistics.median_low(_measure_position(element, band) for element in group)
    return [element for element in group if abs(_measure_position(element, band) - median) <= _SAME_PLACE]


# ---- page numbers ------------------------------------------------------------------------------------


def _find_page_numbers(elements: Sequence[Element]) -> set[str]:
    """The ids of page numbers: those that say so, and numbers alone that count up with the pages.

    A labelled one is also believed if nothing can be counted: that of a single page, or beside pages without numbers.
    """
    found: set[str] = set()
    series: dict[tuple[str, int], list[Element]] = defaultdict(list)  # by band and distance from the page
    alone: list[tuple[Element, PageNumber]] = []
    for element, number, band in _list_numbers(elements):
        is_labelled = _is_labelled(element)
        if number.is_named or (is_labelled and number.is_plain and not re.search(r"\d", element.text)):
            found.add(element.id)
        elif element.kind is not Kind.LIST_ITEM:
            series[band, number.value - element.page].append(element)
            alone += [(element, number)] if is_labelled else []
    counted = {element.id for (band, _), group in series.items() for element in _find_counted(group, band)}
    if not counted and _count_pages(element for element, _ in alone) < _REPEATED:
        counted = {element.id for element, number in alone if number.is_plain}
    return found | counted


def _list_numbers(elements: Sequence[Element]) -> list[tuple[Element, PageNumber, str]]:
    """The numbers in the margins with their bands; several in one side margin are those of lines or paragraphs."""
    numbers = [
        (element, number, band)
        for element in elements
        if not element.is_figure and (number := page_numbers.parse(element.text)) and (band := _find_band(element))
    ]
    beside = Counter(element.page for element, _, band in numbers if band == "side")
    return [entry for entry in numbers if entry[2] != "side" or beside[entry[0].page] == 1]


def _find_counted(group: Sequence[Element], band: str) -> list[Element]:
    """The numbers of one distance from their pages, if there are enough of them."""
    labelled, aligned = [element for element in group if _is_labelled(element)], _align(group, band)
    return [
        *(labelled if _count_pages(labelled) >= _COUNTING else ()),
        *(aligned if _count_pages(aligned) >= _REPEATED else ()),
    ]


# ---- repetitions -------------------------------------------------------------------------------------


def _find_repeated(elements: Sequence[Element]) -> set[str]:
    """The ids of elements whose text repeats in one position of a margin."""
    groups: dict[_Name, list[Element]] = defaultdict(list)
    for element in elements:
        if band := _find_band(element):
            for key in _make_keys(element):
                groups[band, key].append(element)
    return {
        element.id for (band, _), group in _join_misread(groups).items() for element in _find_repetitions(group, band)
    }


def _make_keys(element: Element) -> Iterator[str]:
    """Keys that repetitions share: the text, and the text without the page's number; for a logo, its box.

    A number beside a title must count up with the pages, so its distance from them is part of the key.
    """
    text = _TIME.sub("#", " ".join(element.text.casefold().split()))
    if element.is_figure and element.box:
        if text:
            yield text
        # Also of a logo whose text OCR reads differently each time.
        yield "box " + " ".join(f"{side:.2f}" for side in element.box)
        return
    if text:
        yield text
    if element.kind is not Kind.LIST_ITEM and (split := page_numbers.split(element.text)):
        offset = "#" if split.number.is_named else f"#{split.number.value - element.page:+d}"
        yield f"{_TIME.sub('#', split.title.casefold())} {offset}"


def _find_repetitions(group: Sequence[Element], band: str) -> list[Element]:
    """A group's elements that share a position, if they repeat on enough pages.

    Without a label, an unfinished line may be the same in several letters, and a heading above each page of a chapter
    is its heading once.
    """
    aligned = _align(group, band)
    if _count_pages(aligned) < _REPEATED or _are_notes(aligned):
        return []
    if any(map(_is_labelled, aligned)) or aligned[0].is_figure:
        return aligned
    if prose.is_unfinished(aligned[0].text):
        return []
    return aligned[1:] if aligned[0].is_heading else aligned


def _are_notes(group: Sequence[Element]) -> bool:
    """Whether these footers are footnotes, and not footers that begin with the page number."""
    notes = [footnotes.parse_note(element.text) for element in group if _is_note(element)]
    if len(notes) < len(group):
        return False
    offsets = Counter(
        int(note[0]) - element.page for note, element in zip(notes, group, strict=True) if note and note[0].isdecimal()
    )
    return not offsets or offsets.most_common(1)[0][1] < _REPEATED


def _join_misread(groups: Mapping[_Name, list[Element]]) -> dict[_Name, list[Element]]:
    """The groups, and as one those that differ only by mistakes of OCR."""
    often = [name for name, group in groups.items() if _count_pages(group) >= _REPEATED][:_MAX_COMPARED]
    recent: deque[_Name] = deque(maxlen=_MAX_COMPARED)
    joined: dict[_Name, list[Element]] = {}
    for name, group in groups.items():
        others = chain(often, recent) if any(map(_may_be_misread, group)) else ()
        same = next((other for other in others if other != name and _differ_by_mistakes(other, name)), name)
        joined.setdefault(same, []).extend(group)
        if same == name:
            recent.append(name)
    return joined


def _may_be_misread(element: Element) -> bool:
    return element.confidence is None or element.confidence.method not in _EXACT


def _differ_by_mistakes(one: _Name, other: _Name) -> bool:
    """Whether two texts of one band have the same numbers, and almost the same letters in each word."""
    (band, first), (other_band, second) = one, other
    if band != other_band or min(len(first), len(second)) < _MIN_MISREAD:
        return False
    if abs(len(first) - len(second)) > len(first) // _LETTERS_PER_ERROR:
        return False  # most others end here, which keeps this fast
    if _NUMBER.findall(first) != _NUMBER.findall(second):
        return False
    pairs = list(zip(first.split(), second.split(), strict=False))
    if len(pairs) == max(len(first.split()), len(second.split())):
        return all(Levenshtein.distance(a, b) <= min(len(a), len(b)) // _LETTERS_PER_ERROR for a, b in pairs)
    return first.replace(" ", "") == second.replace(" ", "")


# ---- titles that change ------------------------------------------------------------------------------


def _find_running_titles(elements: Sequence[Element], repeated: set[str]) -> set[str]:
    """The ids of lines in the place of other pages' headers that say what a heading or a repetition says.

    A line without the label must be the only one there on its page.
    """
    pages_of: dict[tuple[int, ...], set[int]] = defaultdict(set)
    for element in elements:
        if element.id in repeated or _may_be_running(element):
            for cell in _locate_on_grids(element):
                pages_of[cell].add(element.page)
    required = max(_REPEATED, _count_pages(elements) * _MIN_SHARE)
    said = {_make_title_key(element.text) for element in elements if element.id in repeated}
    headings = Counter(
        key for e in elements if e.is_heading and e.id not in repeated for key in _list_heading_keys(e.text)
    )
    titles = sorted(headings)

    def is_running(element: Element) -> bool:
        key, is_labelled = _make_title_key(element.text), _may_be_running(element)
        if element.id in repeated or not key or not (is_labelled or _may_be_unlabelled(element)):
            return False
        if not (key in said or headings[key] > element.is_heading or (is_labelled and _begins_any(titles, key))):
            return False
        if is_labelled and key in said:
            return True
        cells = [cell for cell in _locate_on_grids(element) if len(pages_of[cell]) >= required]
        return bool(cells) and (is_labelled or all(element.page not in pages_of[cell] for cell in cells))

    return {element.id for element in elements if is_running(element)}


def _begins_any(titles: Sequence[str], key: str) -> bool:
    """Whether one of the sorted titles begins with this one, which a header may shorten."""
    nearest = titles[bisect_left(titles, key) :][:1]
    return len(key) >= _MIN_SHORTENED and any(title.startswith(key) for title in nearest)


def _make_title_key(text: str) -> str:
    """The letters and digits of a title, without the page's number before or after it."""
    split = page_numbers.split(text)
    return " ".join(re.sub(r"[\W_]+", " ", (split.title if split else text).casefold()).split())


def _list_heading_keys(text: str) -> set[str]:
    """What a header may say of a heading: all of it, or all but its own number."""
    key = " ".join(re.sub(r"[\W_]+", " ", text.casefold()).split())
    return {key, re.sub(r"^(?:\d+ )+", "", key)}


def _may_be_unlabelled(element: Element) -> bool:
    """Whether a line may be a running title although no label says so."""
    is_line = element.kind in (Kind.TEXT, Kind.TITLE, Kind.SECTION_HEADER) and len(element.text) <= _MAX_LENGTH
    return is_line and _find_band(element) in ("top", "bottom")


def _may_be_running(element: Element) -> bool:
    is_short = len(element.text) <= _MAX_LENGTH
    return element.kind in FURNITURE and _in_margin(element) and is_short and not _is_note(element)


def _locate_on_grids(element: Element) -> Iterator[tuple[int, ...]]:
    """The cells of a line's left end, centre and right end, in a grid and in grids shifted by half a cell.

    The shifted grids catch positions near the border of a cell. A number has no cells, because any text may be beside
    it.
    """
    if element.box is None or element.is_figure or is_lone_number(element):
        return
    x, y = element.box.centre
    anchors = enumerate((element.box.x0, x, element.box.x1))
    for (anchor, at), right, down in product(anchors, (0, 0.5), (0, 0.5)):
        yield anchor, int(2 * right), int(2 * down), int(at / _GRID_STEP + right), int(y / _GRID_STEP + down)
