"""A chat model's answer in, the object it meant out, whatever stands around it.

Taken, in this order: JSON in a fence, what stands between the first brace and the last, bracket labels as people
ask for them ([항목] [키워드] [자연어 요약], or [items] [keywords] [summary]). Nothing is evaluated. Knows spellings.
Knows nothing of what the fields mean.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

KEYS = {"항목": "items", "키워드": "keywords", "자연어요약": "summary", "요약": "summary"}
LONGEST = 100_000
_FENCED = re.compile(r"```(?:json)?\s*(\{.*?\})\s*```", flags=re.DOTALL | re.IGNORECASE)
_LABEL = re.compile(
    r"(?:^|\n)\s*(?:\d+\.\s*)?\**\[\s*(항목|키워드|자연어\s*요약|요약|items?|keywords?|summary)\s*\]\**:?",
    flags=re.IGNORECASE,
)
_BULLET = re.compile(r"^\s*(?:[-*•]|\d+[.)])\s+")
_TRAILING = re.compile(r",(\s*[}\]])")


def read(text: str) -> dict[str, Any] | None:
    """The object with English keys; None where there is none."""
    text = text[:LONGEST]
    found = next(_objects(text), None)
    return found if found is not None else _labelled(text)


def _objects(text: str) -> Iterator[dict[str, Any]]:
    first, last = text.find("{"), text.rfind("}")
    for candidate in (*_FENCED.findall(text), text[first : last + 1] if 0 <= first < last else ""):
        for spelled in (candidate, _TRAILING.sub(r"\1", candidate)):
            value = _loaded(spelled)
            if isinstance(value, dict):
                yield {_key(key): one for key, one in value.items()}


def _loaded(text: str) -> Any:
    try:
        return json.loads(text, strict=False)
    except (ValueError, RecursionError):
        return None


def _key(name: str) -> str:
    bare = re.sub(r"[\s\[\]]", "", name)
    return KEYS.get(bare, bare)


def _labelled(text: str) -> dict[str, Any] | None:
    labels = list(_LABEL.finditer(text))
    if not labels:
        return None
    ends = [*(label.start() for label in labels[1:]), len(text)]
    told = ((_key(label[1].lower()), text[label.end() : end].strip()) for label, end in zip(labels, ends, strict=True))
    found: dict[str, Any] = {}
    for name, said in told:
        plural = name if name in ("items", "keywords", "summary") else f"{name}s"
        found[plural] = said if plural == "summary" else _listed(said, plural)
    return found


def _listed(text: str, name: str) -> list[str]:
    lines = [_BULLET.sub("", line).strip() for line in text.splitlines() if line.strip()]
    if name == "keywords":
        lines = [part.strip() for line in lines for part in re.split(r"[,，、;]", line)]
    return [line for line in lines if line]


def string(value: Any) -> str | None:
    """A value as one text; None where it says nothing."""
    if isinstance(value, (str, int, float)) and not isinstance(value, bool):
        return str(value).encode("utf-8", "replace").decode().strip() or None
    return None


def strings(value: Any) -> tuple[str, ...]:
    """A value as texts: of a list each, of a text the one, of an object its values."""
    if isinstance(value, dict):
        value = list(value.values())
    told = value if isinstance(value, list) else [value]
    found = (", ".join(strings(one)) if isinstance(one, (dict, list)) else string(one) for one in told[:200])
    return tuple(one for one in found if one)


def table(value: Any) -> dict[str, Any]:
    """A value as an object; an empty one where it is none."""
    return value if isinstance(value, dict) else {}


def tables(value: Any) -> list[dict[str, Any]]:
    return [one for one in value if isinstance(one, dict)][:200] if isinstance(value, list) else []
