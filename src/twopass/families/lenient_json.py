"""Find the object in a chat model's answer, whatever text surrounds it.

Tried in this order: JSON in a code fence, JSON between the first and the last brace, and labels in brackets ([항목]
[키워드] [자연어 요약], or [items] [keywords] [summary]). Nothing is evaluated.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

_ENGLISH_KEYS = {"항목": "items", "키워드": "keywords", "자연어요약": "summary", "요약": "summary"}
_MAX_CHARACTERS = 100_000  # of an answer that are searched
_MAX_ITEMS = 200  # of a list that are kept
_LANGUAGE = re.compile(r"json(?![A-Za-z])", flags=re.IGNORECASE)
_LABEL = re.compile(
    r"(?:^|\n)[^\S\n]*(?:\d+\.[^\S\n]*)?\**\[\s*(항목|키워드|자연어\s*요약|요약|items?|keywords?|summary)\s*\]\**:?",
    flags=re.IGNORECASE,
)
_BULLET = re.compile(r"^\s*(?:[-*•]|\d+[.)])\s+")
_TRAILING_COMMA = re.compile(r",(\s*[}\]])")


def parse_object(text: str) -> dict[str, Any] | None:
    """The object with English keys, None where there is none."""
    text = text[:_MAX_CHARACTERS]
    found = next(_find_json_objects(text), None)
    return found if found is not None else _parse_labels(text)


def _find_json_objects(text: str) -> Iterator[dict[str, Any]]:
    first, last = text.find("{"), text.rfind("}")
    fenced = [_LANGUAGE.sub("", part, count=1).strip() for part in text.split("```")[1:-1]]
    for candidate in (
        *(part for part in fenced if part[:1] + part[-1:] == "{}"),
        text[first : last + 1] if 0 <= first < last else "",
    ):
        for source in (candidate, _TRAILING_COMMA.sub(r"\1", candidate)):
            fields = _load_json(source)
            if isinstance(fields, dict):
                yield {_normalize_key(key): value for key, value in fields.items()}


def _load_json(text: str) -> Any:
    try:
        return json.loads(text, strict=False)
    except (ValueError, RecursionError):
        return None


def _normalize_key(name: str) -> str:
    bare = re.sub(r"[\s\[\]]", "", name)
    return _ENGLISH_KEYS.get(bare, bare)


def _parse_labels(text: str) -> dict[str, Any] | None:
    labels = list(_LABEL.finditer(text))
    if not labels:
        return None
    ends = [*(label.start() for label in labels[1:]), len(text)]
    sections = (
        (_normalize_key(label[1].lower()), text[label.end() : end].strip())
        for label, end in zip(labels, ends, strict=True)
    )
    found: dict[str, Any] = {}
    for name, content in sections:
        plural = name if name in ("items", "keywords", "summary") else f"{name}s"
        found[plural] = content if plural == "summary" else _split_list(content, plural)
    return found


def _split_list(text: str, name: str) -> list[str]:
    lines = [_BULLET.sub("", line).strip() for line in text.splitlines() if line.strip()]
    if name == "keywords":
        lines = [part.strip() for line in lines for part in re.split(r"[,，、;]", line)]
    return [line for line in lines if line]


def as_string(value: Any) -> str | None:
    """A string or number as a string, None for anything else and for blank text."""
    if isinstance(value, (str, int, float)) and not isinstance(value, bool):
        return str(value).encode("utf-8", "replace").decode().strip() or None
    return None


def as_strings(value: Any) -> tuple[str, ...]:
    """The texts of a list or of an object's values; of any other value the one text."""
    if isinstance(value, dict):
        value = list(value.values())
    values = value if isinstance(value, list) else [value]
    texts = (
        ", ".join(as_strings(item)) if isinstance(item, (dict, list)) else as_string(item)
        for item in values[:_MAX_ITEMS]
    )
    return tuple(item for item in texts if item)


def as_object(value: Any) -> dict[str, Any]:
    """An object as it is, an empty one for any other value."""
    return value if isinstance(value, dict) else {}


def as_objects(value: Any) -> list[dict[str, Any]]:
    """The objects of a list, none for any other value."""
    return [item for item in value if isinstance(item, dict)][:_MAX_ITEMS] if isinstance(value, list) else []
