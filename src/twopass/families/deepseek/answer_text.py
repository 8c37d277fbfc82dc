"""What DeepSeek-OCR writes between its tags in; the same as people mean it out.

Knows the model's maths, entities, hyphens and doubled headings. Knows nothing of tags, boxes or kinds.
"""

from __future__ import annotations

import re
from html import unescape

_SPELLED = {r"\coloneqq": ":=", r"\eqqcolon": "=:"}  # run_dpsk_ocr_pdf.py: KaTeX and MathJax know neither
_MATHS = re.compile(r"\\\((.+?)\\\)|\\\[(.+?)\\\]", flags=re.DOTALL)
_DISPLAY = re.compile(r"\\\[(.+?)\\\]|\$\$(.+?)\$\$", flags=re.DOTALL)
_CENTRED = re.compile(r"</?center\s*>", flags=re.IGNORECASE)
_BREAK = re.compile(r"[ \t]*<br\s*/?>[ \t]*\n?", flags=re.IGNORECASE)
_TWICE = re.compile(r"&amp;(?=(?:lt|gt|amp|quot|nbsp|#\d{1,7});)")
_ENTITY = re.compile(r"&(?:lt|gt|amp|quot|apos|nbsp|#\d{1,7}|#x[0-9a-fA-F]{1,6});")
_STRONG = re.compile(r"(\*\*|~~)(?=\S)(.+?)(?<=\S)\1")
# After a hyphen that stands for a word's other half: "in- and output", "Bildungs- und Kulturamt".
_PAIRED = r"(?!(?:und|u|oder|od|bis|bzw|beziehungsweise|respektive|sowie|als|wie|noch|statt|and|or|to|et|ou|y|o|e)\b)"
_HYPHEN = re.compile(rf"(?<=\w)-[ ]+{_PAIRED}(?=\w)")
# A German stem that never stands alone: before a small letter its hyphen is a line's end and no spelling. No other
# ending tells; rot-grün, rabbit-hole and operations-based have theirs.
_BROKEN = re.compile(rf"([^\W\d_]{{3}}(?:ungs|heits|keits|schafts|täts))-\s*{_PAIRED}(?=[a-zäöüß])")
_HASHES = re.compile(r"^[ \t]*(#{1,6})(?:[ \t]+|(?=[^\s#]))", flags=re.MULTILINE)
_HEADING = re.compile(r"[ \t]*#{1,6}[ \t]+")  # #include and #1 need no blank, and are no headings
_TAGGED = re.compile(r"(?:\\q?quad|~|\s)*\(\s*([0-9A-Za-z.]{1,8})\s*\)\s*\Z")
_NUMBER = re.compile(rf"\\tag\s*\{{[^{{}}]{{0,40}}\}}|(?<=\\\])(?:{_TAGGED.pattern})")
_ORDERED = r"(?:\d{1,3}[.)]|\(?[a-z]\)|\(\d{1,3}\))"
_ITEM = re.compile(rf"\s*(?:[•◦▪‣·●○■□☐☑☒]\s*|[-–*+]\s+|{_ORDERED}\s+)(?=\S)")


def cleaned(text: str) -> str:
    """Prose without centring, line-end blanks and the second layer of escapes; breaks are line ends.

    What it makes of `&lt;td&gt;` looks like a tag: tables are taken out before.
    """
    text = _BREAK.sub("\n", tidied(text))
    text = _ENTITY.sub(lambda found: unescape(found.group()), _TWICE.sub("&", text))
    text = "\n".join(line.rstrip() for line in text.split("\n"))
    return re.sub(r"\n{3,}", "\n\n", text).strip()


def tidied(text: str) -> str:
    """An answer without centring and misspelled maths: its tables and entities are as the model wrote them."""
    for wrong, right in _SPELLED.items():
        text = text.replace(wrong, right)
    return "\n".join(line.rstrip() for line in _CENTRED.sub("", text).replace("\r", "\n").split("\n"))


def hyphenated(text: str) -> str:
    """The model puts a blank behind every hyphen (daisy- chain, 01- C), and keeps those of line ends."""
    return _HYPHEN.sub("-", _BROKEN.sub(r"\1", text))


def unmarked(text: str) -> str:
    """Plain text: what is strong or struck out in Markdown without its marks. Maths stays as the model wrote it."""
    return _STRONG.sub(r"\2", text)


def markdown(text: str) -> str:
    """With maths between dollars; a dollar that is money is escaped where there is maths."""
    if not _MATHS.search(text):
        return text
    parts, at = [], 0
    for found in _MATHS.finditer(text):
        fence = "$" if found[1] else "$$"
        parts += [_escaped(text[at : found.start()]), f"{fence}{(found[1] or found[2]).strip()}{fence}"]
        at = found.end()
    return "".join([*parts, _escaped(text[at:])])


def _escaped(text: str) -> str:
    return re.sub(r"(?<!\\)\$", r"\\$", text)


def is_heading(text: str) -> bool:
    """Whether hashes alone make a text a heading."""
    return bool(_HEADING.match(text))


def hashes(text: str) -> int | None:
    """The level that the hashes of what is a heading tell; None without."""
    found = _HASHES.match(text)
    return len(found[1]) if found else None


def without_hashes(text: str) -> str:
    return _HASHES.sub("", text).strip()


def is_display(text: str) -> bool:
    """Whether a text is one displayed formula and nothing else."""
    found = _DISPLAY.match(text)
    return found is not None and not _TAGGED.sub("", text[found.end() :]).strip(" .,;")


def latex(text: str) -> str:
    """A formula without delimiters, its number as a tag; several in lines of their own."""
    shown = [(found[1] or found[2]).strip() for found in _DISPLAY.finditer(text)]
    if not shown:
        return re.sub(r"\A\s*(?:\\\(|\$)|(?:\\\)|\$)\s*\Z", "", text).strip()
    number = _TAGGED.search(_DISPLAY.sub("", text))
    tag = rf" \tag{{{number[1]}}}" if number and len(shown) == 1 and r"\tag" not in shown[0] else ""
    return " \\\\\n".join(shown) + tag


def is_numbered(formula: str) -> bool:
    """Whether a formula's number is told, in it or behind it."""
    return bool(_NUMBER.search(formula))


def unnumbered(formula: str) -> str:
    return _NUMBER.sub("", formula)


def is_item(text: str) -> bool:
    """Whether a text is a list: each of its lines begins with a bullet or a number."""
    lines = [line for line in text.splitlines() if line.strip()]
    return bool(lines) and all(_ITEM.match(line) for line in lines)


def after_heading(text: str, headings: str) -> str:
    """A paragraph without the headings above it where the model has glued them to its first word.

    Cut only where they are there to the letter and the next word follows without a blank: a paragraph that begins
    with its heading's words keeps them.
    """
    told, said = re.sub(r"\s+", "", headings), 0
    for place, letter in enumerate(text):
        if said == len(told):
            glued = not letter.isspace() and not letter.islower() and letter.isalpha()
            return text[place:] if glued and said >= 6 else text
        if letter.isspace():
            continue
        if letter != told[said]:
            return text
        said += 1
    return text
