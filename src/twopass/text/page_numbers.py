"""Recognise page numbers: "17", "– xiv –", "Page 3 of 12", "3/12", "Seite 3", "第3页", "A-3", also beside a title."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from typing import NamedTuple

_MAX_LENGTH = 60  # characters of a page number with all that belongs to it
_MAX_WORDS = 6  # of a page number: "Page 3 of a total of 12" is none
_MAX_TITLE = 200  # characters of a line that may begin or end with one
_ROMAN_NUMBER = r"(?=[ivxlc])c{0,3}(?:xc|xl|l?x{0,3})(?:ix|iv|v?i{0,3})"
_ROMAN_DIGITS = {"i": 1, "v": 5, "x": 10, "l": 50, "c": 100}
_WORD = (
    r"(?:pages?|p\s?a\s?g\s?e|p[aá]g(?:inas?|s)?\.?|pp?\.|pg\.?|seite|blatt|s\.|sida|side|sivu|strona|str\.?|bladzijde"
    r"|blz\.?|страница|стр\.?|с\.|σελ(?:ίδα|\.)?|sayfa|sheet|folio|fol\.|trang|صفحة|الصفحة|עמוד)"
)
_OF = r"(?:of|out of|von|de|di|sur|av|af|van|z|ze|из|από|/|من|מתוך)"
_NUMBER = rf"(?P<number>\d{{1,4}}|{_ROMAN_NUMBER})"
_TOTAL = rf"(?:\s*{_OF}\s*(?P<total>\d{{1,4}})(?:\s*(?:pages|seiten))?)"
_SIGNS = r"[\s\-–—―−|·•.,:()\[\]<>~*]*"
# What says of itself that it is a page number.
_NAMED = tuple(
    re.compile(form, re.IGNORECASE)
    for form in (
        rf"{_WORD}\s*(?:n[or]\.?)?\s*[|:.\-–—]?\s*{_NUMBER}(?:{_TOTAL}|\s*\((?P<of>\d{{1,4}})\))?",
        rf"(?P<number>\d{{1,4}})\s*[|·•\-–—]?\s*{_WORD}",  # "3 | Page"
        rf"(?P<number>\d{{1,4}}){_TOTAL}",
        rf"[-–—―−]\s*{_NUMBER}\s*[-–—―−]",
        r"第?\s*(?P<number>\d{1,4})\s*(?:页|頁|ページ|쪽|페이지|面)(?:\s*[/,，]?\s*[共全총]\s*(?P<total>\d{1,4})\s*(?:页|頁|ページ|쪽|페이지)?)?",
        r"第\s*(?P<number>\d{1,4})\s*(?:页|頁|ページ)?\s*[/,，]\s*[共全]?\s*(?P<total>\d{1,4})\s*(?:页|頁|ページ)?",
    )
)
_BARE = re.compile(_NUMBER, re.IGNORECASE)
_OF_SECTION = re.compile(r"[A-Z]{1,2}\s?[-–.]\s?(?P<number>\d{1,3})|\d{1,2}\s?[-–]\s?(?P<second>\d{1,3})")
_MONTH = (
    r"jan(?:uary?|uar|vier)?|feb(?:ruary?|ruar)?|févr?(?:ier)?|mar(?:ch|s|zo)?|märz|apr(?:il)?|avr(?:il)?|ma[iy]o?"
    r"|jui?n[ei]?o?|jul[iy]o?|juil(?:let)?|aug(?:ust)?|août|sept?(?:emb(?:er|re))?|o[ck]t(?:ob(?:er|re))?"
    r"|nov(?:emb(?:er|re))?|d[eé][cz](?:emb(?:er|re))?"
)
_DAY_AND_MONTH = re.compile(rf"\s*\d{{1,2}}(?:st|nd|rd|th|\.)?\s*(?:{_MONTH})\b", re.IGNORECASE)
# What a number after it counts, other than pages: "Chapter 3", "Invoice 17", "No. 5".
_COUNTED = re.compile(
    r"(?:article|art|section|sec|clause|chapter|chap|part|annex|appendix|schedule|exhibit|question|item|step|artikel|§"
    r"|abschnitt|kapitel|teil|anhang|anlage|frage|volume|vol|band|issue|heft|figure|fig|table|tab|lot|unit|room|day|week"
    r"|invoice|rechnung|facture|factura|fattura|receipt|quittung|beleg|order|auftrag|bestellung|delivery|lieferschein"
    r"|bill|offer|angebot|quote|statement|contract|vertrag|policy|police|customer|kunde|client|account|konto|case|akte"
    r"|file|claim|ticket|ref|reference|id|code|serial|number|nummer|numéro|no|nr|n|num|copy|form|letter|slide|lesson"
    r"|house|plot|parcel|patient|student|member|record|certificate|permit|licence|license)\.?|[#№:=°$€£¥+]"
    rf"|(?:{_MONTH})\.?",
    re.IGNORECASE,
)
_RAISED = re.compile("[⁰¹²³⁴-⁹]")  # marks of notes and exponents, which are no digits of the number before them
_AT_START = re.compile(r"(\d{1,3})(?:\s*[|·•–—]\s*|\s+)(?=[^\W\d_])")
_BETWEEN = re.compile(r"\s[|·•–—]\s(\d{1,3})(?=\s[|·•–—]\s)")
_AT_END = re.compile(r"(?: ?[|·•–—] ?| )(\d{1,3})$")


class PageNumber(NamedTuple):
    """A text that is a page number by its form.

    `is_named` if it says so itself, such as "Page 3" or "3/12". Of the others, those that are not `is_plain` need the
    other pages to be believed: "1034" may be a year or an amount, "IV" a part, "A-3" a form.
    """

    value: int
    is_named: bool = False
    is_plain: bool = True


class NumberedTitle(NamedTuple):
    """A line apart from the page number in it."""

    title: str
    number: PageNumber


def parse(text: str) -> PageNumber | None:
    """The page number that a text is; None if it is anything else."""
    if len(text) > _MAX_LENGTH or _RAISED.search(text):
        return None
    text = _normalize(text)
    if number := _parse_named(text) or _parse_named(_strip_signs(text)):
        return number
    bare = _strip_signs(text)
    if found := _BARE.fullmatch(bare):
        is_plain = len(bare) < 4 if bare.isdecimal() else bare.islower()
        return PageNumber(_read(found["number"]), is_plain=is_plain)
    found = _OF_SECTION.fullmatch(bare)
    return PageNumber(int(found["number"] or found["second"]), is_plain=False) if found else None


def split(text: str) -> NumberedTitle | None:
    """A line apart from the page number in it; None if it has none, or nothing else."""
    if len(text) > _MAX_TITLE:
        return None
    text = " ".join(_normalize(_RAISED.sub("", text)).split())
    words = text.split(" ")
    for start, end in _list_places(words):
        title = _strip_signs(" ".join([*words[:start], *words[end:]]))
        if title and (found := _parse_named(_strip_signs(" ".join(words[start:end])))):
            return NumberedTitle(title, found)
    for form in (_AT_END, _BETWEEN):
        if (number := form.search(text)) and not _is_counted(text[: number.start()]):
            title = _strip_signs(f"{text[: number.start()]} {text[number.end() :]}")
            return NumberedTitle(title, PageNumber(int(number[1]))) if title else None
    if (number := _AT_START.match(text)) and not begins_date(text):
        return NumberedTitle(_strip_signs(text[number.end() :]), PageNumber(int(number[1])))
    return None


def _list_places(words: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Where a page number that says so may stand: at both ends, and around words with digits; the longest first."""
    with_digits = [n for n, word in enumerate(words) if any(map(str.isdecimal, word))]
    for count in range(min(_MAX_WORDS, len(words) - 1), 0, -1):
        last = len(words) - count
        starts = {0, last, *(start for n in with_digits for start in range(n - count + 1, n + 1) if 0 <= start <= last)}
        yield from ((start, start + count) for start in sorted(starts))


def begins_date(text: str) -> bool:
    """Whether a text begins with the day and the month of a date."""
    return bool(_DAY_AND_MONTH.match(text))


def _normalize(text: str) -> str:
    return unicodedata.normalize("NFKC", text).strip()


def _strip_signs(text: str) -> str:
    return re.sub(rf"^{_SIGNS}|{_SIGNS}$", "", text)


def _parse_named(text: str) -> PageNumber | None:
    for form in _NAMED:
        if found := form.fullmatch(text):
            groups = found.groupdict()
            value, total = _read(found["number"]), groups.get("total") or groups.get("of")
            return PageNumber(value, is_named=True) if total is None or value <= int(total) else None
    return None


def _read(number: str) -> int:
    """The value of an Arabic or Roman number."""
    if number.isdecimal():
        return int(number)
    digits = [_ROMAN_DIGITS[letter] for letter in number.lower()]
    return sum(-one if one < max(digits[n:]) else one for n, one in enumerate(digits))


def _is_counted(before: str) -> bool:
    """Whether a text ends in a word or sign that counts something else than pages."""
    last = before.rsplit(None, 1)[-1:] or [""]
    return bool(_COUNTED.fullmatch(last[0].lstrip("(["))) or bool(_COUNTED.fullmatch(last[0][-1:]))
