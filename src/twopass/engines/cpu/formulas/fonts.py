"""Read the characters of TeX's own mathematical fonts and of Symbol, whose codes MuPDF gives where names are missing.

Computer Modern's encodings are those of The TeXbook, appendix F, Symbol's is that of the PDF specification. A code that
could mean two things is U+FFFD.
"""

from __future__ import annotations

import re
from types import MappingProxyType

from twopass.engines.cpu.formulas import symbols

UNKNOWN = "\ufffd"
MAX_CODE = 0xFF  # characters beyond it are no codes
_FAMILY = re.compile(r"(?:^|\+)(CMEX|CMSY|CMBSY|CMMIB|CMMI|MSBM|EUFM|Symbol(?=MT|[^a-z]|$))", re.IGNORECASE)
# In the extension font, large operators, radicals and brackets have the codes of letters and of control characters.
_EXTENSION = MappingProxyType(
    {"P": "∑", "X": "∑", "Q": "∏", "Y": "∏", "R": "∫", "Z": "∫", "H": "∮", "I": "∮", "S": "⋃", "[": "⋃", "T": "⋂",
     "\\": "⋂", "L": "⨁", "M": "⨁", "N": "⨂", "O": "⨂", "V": "⋀", "^": "⋀", "W": "⋁", "_": "⋁", "`": "∐", "a": "∐",
     "p": "√", "q": "√", "r": "√", "s": "√", "h": "[", "i": "]", "j": "⌊", "k": "⌋", "l": "⌈", "m": "⌉", "n": "{",
     "o": "}", "D": "⟨", "E": "⟩", "\x00": "(", "\x01": ")", "\x02": "[", "\x03": "]", "\x08": "{", "\x0c": "|",
     "\x10": "(", "\x11": ")", "\x12": "(", "\x13": ")", "\x14": "[", "\x15": "]", "\x1a": "{", "\x1b": "}"}
)  # fmt: skip
_SYMBOL = dict(
    zip(
        "abcdefghijklmnopqrstuvwxyzJVDFGLPQSUWXY±£³´¥¶¹»ÎåòÖ×®°",
        "αβχδεφγηιϕκλμνοπθρστυϖωξψζϑςΔΦΓΛΠΘΣΥΩΞΨ±≤≥×∞∂≠≈∈∑∫√⋅→°",
        strict=True,
    )
)
_CAPITALS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_SCRIPT = dict(zip(_CAPITALS, "𝒜ℬ𝒞𝒟ℰℱ𝒢ℋℐ𝒥𝒦ℒℳ𝒩𝒪𝒫𝒬ℛ𝒮𝒯𝒰𝒱𝒲𝒳𝒴𝒵", strict=True))
_DOUBLE_STRUCK = dict(zip(_CAPITALS, "𝔸𝔹ℂ𝔻𝔼𝔽𝔾ℍ𝕀𝕁𝕂𝕃𝕄ℕ𝕆ℙℚℝ𝕊𝕋𝕌𝕍𝕎𝕏𝕐ℤ", strict=True))
_VARIANTS = MappingProxyType({"ε": "ϵ", "ϵ": "ε", "φ": "ϕ", "ϕ": "φ"})  # TeX's plain names are those of the other forms


def find_family(font: str) -> str:
    """The family of a font with codes of its own, in capitals; empty for all other fonts."""
    found = _FAMILY.search(font)
    return found.group(1).upper() if found else ""


def decode(char: str, family: str) -> str:
    """What a character of such a family means; U+FFFD where that is not certain."""
    if not family:
        return char
    if family == "CMEX":
        is_named = char in symbols.LARGE or char in symbols.INTEGRALS or char in symbols.ROOTS
        return char if is_named else _EXTENSION.get(char, UNKNOWN)
    if family in ("CMSY", "CMBSY"):
        return _SCRIPT.get(char) or (UNKNOWN if char.isalnum() and char.isascii() else char)
    if family == "SYMBOL":
        return _SYMBOL.get(char, char if char.isascii() or ord(char) > MAX_CODE else UNKNOWN)
    if family == "MSBM":
        return _DOUBLE_STRUCK.get(char) or (UNKNOWN if char.isalnum() and char.isascii() else char)
    if family.startswith("CMMI"):
        return UNKNOWN if char in symbols.ACCENTS else _VARIANTS.get(char, char)
    return UNKNOWN
