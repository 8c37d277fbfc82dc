"""Write the YAML front matter of document.md.

A reader that knows no front matter takes it for text, so that it holds no character with a meaning in Markdown.
"""

from __future__ import annotations

import json
import re

from twopass.document import Document

# YAML allows the first ones only escaped, and all of them may be escaped.
_UNPRINTABLE = "[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff\ud800-\udfff]"
_ESCAPED = re.compile(rf"{_UNPRINTABLE}|[<>\[\]`*~]|(?<!\w)_|_(?!\w)|&(?=#|\w+;)")


def render(document: Document) -> str:
    """Return the front matter; fields without a value are left out."""
    meta = document.meta
    fields = {
        "title": meta.title,
        "author": meta.author,
        "subject": meta.subject,
        "date": meta.date,
        "language": meta.language,
        "source": document.source.uri,
        "sha256": document.source.sha256,
        "document": document.id,
        "pages": len(document.pages),
        "status": document.status,
    }
    lines = (f"{name}: {_quote_scalar(value)}" for name, value in fields.items() if value is not None)
    return "\n".join(["---", *lines, "---"])


def _quote_scalar(value: str | int) -> str:
    # Every JSON string is a YAML string.
    return _ESCAPED.sub(lambda found: f"\\u{ord(found.group()):04x}", json.dumps(value, ensure_ascii=False))
