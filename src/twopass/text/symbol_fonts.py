"""Replace codes that no text has by the characters that fonts draw for them: symbol fonts, small capitals, controls.

Such fonts draw bullets, check boxes and arrows for the codes of letters or for private-use codes (U+F020 to U+F0FF), so
that text extraction gives "3" or U+F0B7. Adobe's fonts have private-use codes for small capitals, figures and pieces of
brackets. Programs that take Windows-1252 for Latin-1 write controls (U+0080 to U+009F) for quotation marks and dashes.
Unknown codes stay as they are.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType

PRIVATE_USE = range(0xF020, 0xF100)  # where symbol fonts in TrueType format have the codes 0x20 to 0xFF


def _number(first: int, characters: str) -> dict[int, str]:
    """Map codes from `first` to the characters; a blank stands for a code that is left as it is."""
    return {first + index: character for index, character in enumerate(characters) if character != " "}


_SYMBOL = MappingProxyType(
    _number(0x21, "!∀#∃%&∋()∗+,−./0123456789:;<=>?≅ΑΒΧΔΕΦΓΗΙϑΚΛΜΝΟΠΘΡΣΤΥςΩΞΨΖ[∴]⊥_‾")
    | _number(0x61, "αβχδεφγηιϕκλμνοπθρστυϖωξψζ{|}∼")
    | _number(0xA0, "€ϒ′≤⁄∞ƒ♣♦♥♠↔←↑→↓°±″≥×∝∂•÷≠≡≈…  ↵ℵℑℜ℘⊗⊕∅∩∪⊃⊇⊄⊂⊆∈∉∠∇®©™∏√⋅¬∧∨⇔⇐⇑⇒⇓◊〈®©™∑")
    | {0xF1: "〉", 0xF2: "∫"}
)
_ZAPF_DINGBATS = MappingProxyType(
    {code: chr(0x26E0 + code) for code in range(0x21, 0x7F)}
    | {code: chr(0x26C0 + code) for code in (*range(0xA1, 0xF0), *range(0xF1, 0xFF))}
    | {0x25: "☎", 0x2A: "☛", 0x2B: "☞", 0x48: "★", 0x6C: "●", 0x6E: "■", 0x73: "▲", 0x74: "▼", 0x75: "◆", 0x77: "◗"}
    | _number(0xA8, "♣♦♥♠①②③④⑤⑥⑦⑧⑨⑩")
    | _number(0xD5, "→↔↕")
)
# Of the codes that have no equal in Unicode, the most similar character; boxes are those that forms use.
_WINGDINGS = MappingProxyType(
    _number(0x22, "✂✁    ☎✆✉") | _number(0x45, "☜☞☝☟") | _number(0x4A, "☺ ☹") | _number(0x51, "✈☼ ❄")
    | _number(0x6C, "●❍■☐❐❑❒⬧⧫◆❖⬥☒ ⌘❀✿❝❞") | _number(0x80, "⓪①②③④⑤⑥⑦⑧⑨⑩⓿❶❷❸❹❺❻❼❽❾❿")
    | _number(0x9E, "·•") | _number(0xA1, "○ ○◉◎ ▪☐ ✦★✶✴✹✵") | _number(0xD8, "➢") | _number(0xDF, "←→↑↓↖↗↙↘")
    | _number(0xE8, "➔") | _number(0xEF, "⇦⇨⇧⇩⬄") | _number(0xFB, "✗✓☒☑")
)  # fmt: skip
_WINGDINGS_2 = MappingProxyType(
    {0x4F: "✗", 0x50: "✓", 0x51: "☒", 0x52: "☑", 0x53: "☒", 0x54: "☒", 0x97: "●", 0xA3: "☐"}
)
# What office programs write for bullets and boxes, where the font's name says nothing.
_COMMON_CODES = (0x6C, 0x6E, 0x6F, 0x71, 0x76, 0xA7, 0xA8, 0xD8, 0xE0, 0xFB, 0xFC, 0xFD, 0xFE)
_COMMON = MappingProxyType({0xB7: "•"} | {code: _WINGDINGS[code] for code in _COMMON_CODES})
_ADOBE = MappingProxyType(
    {0xF6D9: "©", 0xF6DA: "®", 0xF6DB: "™", 0xF6DC: "1", 0xF721: "!", 0xF724: "$", 0xF726: "&", 0xF73F: "?"}
    | _number(0xF730, "0123456789") | _number(0xF761, "abcdefghijklmnopqrstuvwxyz")
    | _number(0xF8E8, "®©™⎛⎜⎝⎡⎢⎣⎧⎨⎩⎪") | _number(0xF8F5, "⎮⎞⎟⎠⎤⎥⎦⎫⎬⎭")
)  # fmt: skip
_CONTROLS = MappingProxyType(
    {code: text for code in range(0x80, 0xA0) if (text := bytes([code]).decode("cp1252", "ignore"))}
)
_CONTROL = re.compile("[\x80-\x9f]")
_MAX_CONTROLS = 0.3  # of the characters of a page: with more, its fonts have codes of their own
_TABLES: tuple[tuple[str, Mapping[int, str]], ...] = (
    ("zapfdingbats", _ZAPF_DINGBATS),
    ("itczapfdingbats", _ZAPF_DINGBATS),
    ("dingbats", _ZAPF_DINGBATS),
    ("wingdings2", _WINGDINGS_2),
    ("wingdings", _WINGDINGS),
    ("symbol", _SYMBOL),
)


def is_symbol_font(font: str) -> bool:
    return _find_table(font) is not None


def translate(character: str, font: str) -> str:
    """What the font of this name draws for the character, or the character if that is not known."""
    code = ord(character)
    table = _find_table(font)
    if code in PRIVATE_USE:
        code -= PRIVATE_USE.start - 0x20
        return (_COMMON if table is None else table).get(code, character)
    if code in _ADOBE:
        return _ADOBE[code]
    # The letters of a font named Symbol may have been mapped already: only its bullet cannot be anything else.
    if table is None or (table is _SYMBOL and character != "·"):
        return character
    return table.get(code, character)


def has_few_controls(texts: Sequence[str]) -> bool:
    """Whether the controls in a page's texts can be those of Windows-1252; a page full of them has other codes."""
    return sum(len(_CONTROL.findall(text)) for text in texts) <= _MAX_CONTROLS * sum(map(len, texts))


def replace_controls(text: str) -> str:
    """The text with the characters of Windows-1252 in place of controls; five of them have none."""
    return text.translate(_CONTROLS)


def replace_codes(text: str) -> str:
    """A text of unknown fonts with what its private-use codes most likely draw."""
    return "".join(translate(character, "") for character in text)


def _find_table(font: str) -> Mapping[int, str] | None:
    """The table of a font, by its name: `ABCDEF+` marks a subset, and styles follow a comma or hyphen."""
    name = font.rpartition("+")[2].replace(" ", "").replace("-", "").lower()
    return next((table for start, table in _TABLES if name.startswith(start)), None)
