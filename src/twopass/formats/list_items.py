"""List items in plain text: where one begins, and its Markdown marker."""

from __future__ import annotations

import re

from twopass.text import prose

BULLETS = "bullets"
_NUMBERED = re.compile(r"([0-9]{1,9})([.)])\s+(?=\S)")
_BULLET = re.compile(r"[•◦▪‣∙●○■□‒–—*+·-]\s+(?=\S)|[•◦▪‣∙●○■□]\s*(?=\S)")


def split(text: str) -> list[str]:
    """Split an element's text into paragraphs and list items: a model may box a whole list as one element."""
    parts: list[list[str]] = [[]]
    for line in text.splitlines():
        stripped = line.strip()
        if not stripped or begins_item(stripped):
            parts.append([])
        parts[-1].append(stripped)
    return [prose.to_one_line("\n".join(part)) for part in parts if any(part)]


def begins_item(text: str) -> bool:
    return bool(_NUMBERED.match(text) or _BULLET.match(text))


def parse(text: str) -> tuple[str, str, str]:
    """Return a list item's Markdown marker, its kind of list ("bullets", "ordered.", "ordered)") and the rest."""
    if found := _NUMBERED.match(text):
        return f"{found.group(1)}{found.group(2)} ", f"ordered{found.group(2)}", text[found.end() :]
    found = _BULLET.match(text)
    return "- ", BULLETS, text[found.end() :] if found else text
