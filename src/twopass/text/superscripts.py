"""Superscripts and subscripts in plain text: Unicode's own characters, so that "2007" with a mark is not "20071"."""

from __future__ import annotations

import re
import unicodedata

_RAISED = str.maketrans("0123456789+-\u2212=()abcdefghijklmnoprstuvwxyz", "⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁻⁼⁽⁾ᵃᵇᶜᵈᵉᶠᵍʰⁱʲᵏˡᵐⁿᵒᵖʳˢᵗᵘᵛʷˣʸᶻ")
_LOWERED = str.maketrans("0123456789+-\u2212=()aehijklmnoprstuvx", "₀₁₂₃₄₅₆₇₈₉₊₋₋₌₍₎ₐₑₕᵢⱼₖₗₘₙₒₚᵣₛₜᵤᵥₓ")
_TABLES = {"^": _RAISED, "_": _LOWERED}
_STYLES = {"sup": "^", "sub": "_"}
_TAG = re.compile(r"<(su[bp])>([^<>]{1,12})</su[bp]>", re.IGNORECASE)
_WORD = re.compile(r"[^\W\d_]{2,}")  # "st" in "1st" is no mark


def to_unicode(text: str, style: str) -> str:
    """The characters of a superscript (`^`) or subscript (`_`), each replaced where Unicode has one; words stay."""
    return text if _WORD.search(text) else text.translate(_TABLES[style])


def from_unicode(text: str) -> str:
    """The characters that a tag raises or lowers."""
    return unicodedata.normalize("NFKC", text)


def replace_tags(text: str) -> str:
    """A text with Unicode's characters in place of HTML's tags for superscripts and subscripts; LaTeX stays."""
    return _TAG.sub(
        lambda found: found[2] if "\\" in found[2] else to_unicode(found[2], _STYLES[found[1].lower()]), text
    )
