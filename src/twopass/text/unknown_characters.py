"""Find characters that mean nothing in the texts of elements, and drop those that stand alone.

They are controls, codes for private use that symbol_fonts.py does not know, and U+FFFD. Alone, such a code is a sign: a
bullet, an arrow, a logo. In a word, it is a letter that only the page's picture shows.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from twopass.document import Element, Finding, FindingKind, Flag, Kind
from twopass.document.audit import MAX_WORDS
from twopass.text import symbol_fonts, table_markup

_UNKNOWN = "[\x00-\x08\x0e-\x1f\x7f-\x9f\ue000-\uf8ff\ufffd\U000f0000-\U0010ffff]"
_ANY = re.compile(_UNKNOWN)
_SIGN = re.compile(rf"(?<!\S){_UNKNOWN}{{1,2}}(?!\S)[ \t]?")  # more are a word
_WORD = re.compile(rf"(?:(?<!\S)(?:(?!{_UNKNOWN})\S)++)?+{_UNKNOWN}\S*+")
_IGNORED = frozenset({Flag.UNREADABLE, Flag.BROKEN_FONT})  # what they say about the whole text is enough


def resolve(elements: Sequence[Element]) -> tuple[list[Element], list[Finding]]:
    """The elements of a page without such signs, and what was found in them."""
    if not any(map(_is_concerned, elements)):
        return list(elements), []
    findings: list[Finding] = []
    has_controls = symbol_fonts.has_few_controls([element.text for element in elements])
    translate = _translate_all if has_controls else symbol_fonts.replace_codes
    return [_resolve(e, translate, findings) if _is_concerned(e) else e for e in elements], findings


def _translate_all(text: str) -> str:
    return symbol_fonts.replace_codes(symbol_fonts.replace_controls(text))


def _is_concerned(element: Element) -> bool:
    is_text = element.kind is not Kind.CODE and _IGNORED.isdisjoint(element.flags)
    return is_text and any(map(_ANY.search, _list_texts(element)))


def _list_texts(element: Element) -> tuple[str, ...]:
    visible = element.figure.visible_text if element.figure else None
    return (element.text, visible) if visible and visible != element.text else (element.text,)


def _resolve(element: Element, translate: Callable[[str], str], findings: list[Finding]) -> Element:
    signs = sum(len(_SIGN.findall(translate(text))) for text in _list_texts(element))
    element = _replace(element, lambda text: _SIGN.sub("", translate(text)).rstrip(" ") if _ANY.search(text) else text)
    words = tuple(word for text in _list_texts(element) for word in _WORD.findall(text))
    box, name = element.box, element.id
    if signs:
        findings.append(Finding(kind=FindingKind.SIGNS_DROPPED, count=signs, element=name, box=box))
    if words:
        kind = FindingKind.CHARACTERS_UNKNOWN
        findings.append(Finding(kind=kind, count=len(words), element=name, box=box, words=words[:MAX_WORDS]))
    return element


def _replace(element: Element, clean: Callable[[str], str]) -> Element:
    update: dict[str, object] = {"text": clean(element.text), "markdown": clean(element.markdown)}
    if element.figure and element.figure.visible_text:
        visible = clean(element.figure.visible_text)
        update["figure"] = element.figure.model_copy(update={"visible_text": visible or None})
    if element.table:
        update["table"] = table = table_markup.change_texts(element.table, clean)
        update["markdown"] = table.markdown or table.html
    return element.model_copy(update=update)
