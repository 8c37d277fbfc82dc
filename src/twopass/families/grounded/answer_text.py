"""Clean the text that a model writes between its tags: maths, entities, hyphens and repeated headings."""

from __future__ import annotations

import re
from functools import partial

from twopass.text import hyphenation, list_items, maths, prose, superscripts

_MIN_HEADING_LETTERS = 6  # shorter headings are not cut: their words may begin the paragraph by chance
_LATEX_FIXES = {r"\coloneqq": ":=", r"\eqqcolon": "=:"}  # as run_dpsk_ocr_pdf.py does: KaTeX and MathJax know neither
_CENTER_TAG = re.compile(r"</?center\s*>", flags=re.IGNORECASE)
_BREAK = re.compile(r"(?:(?<![ \t])[ \t]+)?<br\s*/?>[ \t]*\n?", flags=re.IGNORECASE)
_DOUBLE_ESCAPED = re.compile(r"&amp;(?=(?:lt|gt|amp|quot|nbsp|#\d{1,7});)")
# Behind a Latin letter, a digit or the end of a term, as in x**2 + y**2 and 0.5**/0.3**, none begins.
_EMPHASIS = (
    r"(?<![A-Za-z0-9)\]*~])(?P<style>\*{2,3}|~~)(?=[^\s*~])(?P<styled>(?:(?!(?P=style)).)++)(?<=\S)(?P=style)(?![*~])"
)
_STYLED = re.compile(rf"{maths.FORMULA.pattern}|{_EMPHASIS}")
_MARKS = re.compile(
    rf"{maths.FORMULA.pattern}|{_EMPHASIS}|(?<![\w*])\*(?=\w)[^*\n]++(?<=[^\s*])\*(?![\w*])"
    r"|(?P<mark>(?<=\S)\*+|\*+(?=\S)|~{2,})"
)
_NOT_PAIRED = rf"(?!(?:{'|'.join(sorted(hyphenation.CONJUNCTIONS))})\b)"
_HYPHEN = re.compile(rf"(?<=\w)-[ ]+{_NOT_PAIRED}(?=\w)")
_WORD_HYPHEN = re.compile(rf"(?<![^\W\d_])([^\W\d_]++)-[ ]+{_NOT_PAIRED}(?=([^\W\d_]++))")
_JOINED_ITEM = re.compile(r"((?<!\S)[^\s-]+(?:-[^\s-]+)*)-\s+(?=([^\W\d_]))")
_JOINED_BULLET = re.compile(rf"(?<=\S) *(?=([{list_items.BULLETS}]))")
_JOINED_NUMBER = re.compile(r"(?<=[^\W\d_A-Z])(?=(\d{1,3})[.)]\s+[^\W\d_a-z])")
_FIRST_NUMBER = re.compile(r"\s*(\d{1,3})[.)]\s")
_POSSIBLE_ITEM = re.compile(r"(?<=[^\W\d_]{2})-[ ]+(?=[^\W\d_a-zß-öø-ÿ][^\W\d_A-Z])")
# German stems that are not words of their own: before a lower-case letter the hyphen comes from a line break. After any
# other ending the hyphen may be part of the word, as in rot-grün, rabbit-hole and operations-based.
_BROKEN_WORD = re.compile(rf"([^\W\d_]{{3}}(?:ungs|heits|keits|schafts|täts))-\s*{_NOT_PAIRED}(?=[a-zäöüß])")
_HASHES = re.compile(r"^[ \t]*(#{1,6})(?:[ \t]+|(?=[^\s#]))", flags=re.MULTILINE)
# With a space after the hashes: #include and #1 are no headings. Four spaces before them are the indentation of code.
_HEADING = re.compile(r" {0,3}#{1,6}[ \t]+")
_COMMENT = re.compile(r"\s*#[ \t]+(?=[^\W\d_])(?P<first>.)")
# What ends or begins a line of code, and no line of prose.
_CODE = re.compile(
    r"^[ \t]*+(?:import [\w.]+|from [\w.]+ import |(?:async )?def \w+\(|class \w+[(:]|return\b|#include\b|#!/|@\w+$"
    r"|(?:const|let|var) \w+|(?:if|elif|for|while|with|try|else|except)\b.*:$|(?:sudo|pip|npm|apt-get|git|cd) \S"
    r"|[\w.\[\]\"']+[ \t]*[-+*/|&]?=[ \t]*[^\s=].*|[\w.]+\(.*\)$|.*[;{}]$|\$ \S)"
)
_NUMBER = re.compile(rf"\\tag\s*\{{[^{{}}]{{0,40}}\}}|(?<=\\\])(?:{maths.TRAILING_NUMBER.pattern})")


def clean_prose(text: str) -> str:
    """Clean prose: fix markup, turn breaks into line ends, decode entities, drop trailing spaces.

    Take tables out first: a decoded `&lt;td&gt;` looks like a tag.
    """
    text = _unescape(superscripts.replace_tags(_BREAK.sub("\n", fix_markup(text))))
    text = "\n".join(line.rstrip() for line in text.split("\n"))
    return re.sub(r"\n{3,}", "\n\n", text).strip()


def clean_code(text: str) -> str:
    """Decode the entities of code; whatever else it has is its own."""
    lines = [line.rstrip() for line in _unescape(text).splitlines()]
    return "\n".join(lines).strip("\n")


def _unescape(text: str) -> str:
    return prose.unescape(_DOUBLE_ESCAPED.sub("&", text))


def fix_markup(text: str) -> str:
    """Drop center tags and fix LaTeX commands; tables and entities stay as the model wrote them."""
    for wrong, right in _LATEX_FIXES.items():
        text = text.replace(wrong, right)
    return "\n".join(line.rstrip() for line in re.sub(r"\r\n?", "\n", _CENTER_TAG.sub("", text)).split("\n"))


def fix_hyphens(text: str) -> str:
    """Remove the space that the model puts after every hyphen (01- C), and hyphens of line breaks.

    In one word (har- bours), a line end takes the place of the space: the document's words decide on the hyphen. Items
    of a list that the model wrote on one line get lines, or keep their blank where it is not sure that they are items.
    """
    if not text.lstrip().startswith("- "):
        return _fix_hyphens(split_items(text))
    text = _JOINED_ITEM.sub(_split_item, text)
    return "- ".join(map(_fix_hyphens, _POSSIBLE_ITEM.split(text)))


def _fix_hyphens(text: str) -> str:
    text = _BROKEN_WORD.sub(r"\1", text)
    if _WORD_HYPHEN.search(text):
        text = _WORD_HYPHEN.sub(partial(_end_line, language=prose.detect_language(text)), text)
    return _HYPHEN.sub("-", text)


def _end_line(found: re.Match[str], language: str | None) -> str:
    return f"{found[1]}-\n" if hyphenation.is_one_word(found[1], found[2], language) else f"{found[1]}-"


def split_items(text: str) -> str:
    """Begin a line where the first bullet of a text comes again, and where a word ends with the next item's number.

    Boxes to tick stand beside each other.
    """
    first = text.lstrip()[:1]
    text = _JOINED_BULLET.sub(lambda found: "\n" if found[1] == first else found.group(), text)
    if not (number := _FIRST_NUMBER.match(text)):
        return text
    last = int(number[1])

    def split(found: re.Match[str]) -> str:
        nonlocal last
        is_next = int(found[1]) == last + 1
        last += is_next
        return "\n" if is_next else ""

    return _JOINED_NUMBER.sub(split, text)


def _split_item(found: re.Match[str]) -> str:
    """A word, and the next item of a list behind its hyphen; a word with a capital may be half of a name."""
    word, next_letter = found[1], found[2]
    return f"{word}\n- " if next_letter.isupper() and not word[0].isupper() else found.group()


def strip_emphasis(text: str) -> str:
    """Remove Markdown's marks for bold and struck-out text. Maths stays as the model wrote it."""
    return _STYLED.sub(lambda found: found["styled"] or found.group(), text)


def to_markdown(text: str) -> str:
    """Write maths between dollar signs. Where there is maths, other dollar signs are escaped.

    Where there is maths or emphasis, marks that style nothing are escaped.
    """
    if _STYLED.search(text):
        text = _MARKS.sub(lambda found: re.sub("(.)", r"\\\1", found["mark"] or "") or found.group(), text)
    if not maths.FORMULA.search(text):
        return text
    return maths.rewrite(text, _fence, _escape_dollars)


def _fence(formula: re.Match[str]) -> str:
    fence = "$" if formula[1] else "$$"
    return f"{fence}{(formula[1] or formula[2]).strip()}{fence}"


def _escape_dollars(text: str) -> str:
    return re.sub(r"(?<!\\)\$", r"\\$", text)


def is_heading(text: str) -> bool:
    """Whether a text starts with the hashes of a Markdown heading."""
    return bool(_HEADING.match(text))


def is_comment(text: str) -> bool:
    """Whether a text is one hash before a small letter, as no heading begins."""
    found = _COMMENT.match(text)
    return found is not None and found["first"].islower()


def is_code(text: str) -> bool:
    """Whether the first or the last line of a text is code and no prose."""
    lines = [line.rstrip() for line in text.splitlines() if line.strip()]
    return any(
        _CODE.match(line) and not line.endswith((".", "?", "!", "\\]", "\\)")) for line in (lines[:1] + lines[-1:])
    )


def heading_level(text: str) -> int | None:
    """The number of hashes of a heading, None without hashes."""
    found = _HASHES.match(text)
    return len(found[1]) if found else None


def strip_hashes(text: str) -> str:
    return _HASHES.sub("", text).strip()


def has_number(formula: str) -> bool:
    """Whether a formula has a number, in it or after it."""
    return bool(_NUMBER.search(formula))


def strip_number(formula: str) -> str:
    return _NUMBER.sub("", formula)


def cut_headings(text: str, headings: str) -> str:
    """Cut the headings above a paragraph from its start, where the model repeated them there.

    Only if all their letters match and the next word follows without a space. A paragraph that itself starts with the
    words of its heading keeps them.
    """
    expected, matched = re.sub(r"\s+", "", headings), 0
    for index, letter in enumerate(text):
        if matched == len(expected):
            is_next_word = not letter.isspace() and not letter.islower() and letter.isalpha()
            return text[index:] if is_next_word and matched >= _MIN_HEADING_LETTERS else text
        if letter.isspace():
            continue
        if letter != expected[matched]:
            return text
        matched += 1
    return text
