"""A Document in, the YAML front matter of its markdown out.

Knows as much YAML as that JSON's strings are YAML's. What nobody knows is left out.
"""

from __future__ import annotations

import json
import re

from twopass.document import Document

_UNPRINTABLE = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff\ud800-\udfff]")  # YAML has them only escaped


def matter(document: Document) -> str:
    """Title, author, subject, date, language, what was read of which source, and how that ended."""
    meta = document.meta
    told = {
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
    lines = (f"{name}: {_scalar(value)}" for name, value in told.items() if value is not None)
    return "\n".join(["---", *lines, "---"])


def _scalar(value: str | int) -> str:
    return _UNPRINTABLE.sub(lambda found: f"\\u{ord(found.group()):04x}", json.dumps(value, ensure_ascii=False))
