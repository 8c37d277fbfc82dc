"""A Document in, DocJSON bytes out; and back, and the JSON Schema of both.

Knows the shape of the JSON. Knows nothing of where it is stored. Equal documents give equal bytes.
"""

from __future__ import annotations

import json
from typing import Any

from twopass.document import SCHEMA, Document

LISTS = frozenset({"pages", "elements", "sections", "problems"})  # one member a line: diffs and `grep` then work
SCHEMA_ID = f"urn:twopass:{SCHEMA}"


def dumps(document: Document) -> bytes:
    """UTF-8, fields in the model's order, nulls kept: a field that is not there is a field that is not known."""
    fields = document.model_dump(mode="json", by_alias=True)
    lines = ",\n".join(f"{_compact(name)}:{_member(name, value)}" for name, value in fields.items())
    # A lone half of a surrogate pair, which broken PDFs contain, has no UTF-8: JSON's own escape carries it.
    return f"{{\n{lines}\n}}\n".encode(errors="backslashreplace")


def loads(data: bytes) -> Document:
    """Raises ValueError (pydantic's ValidationError) where the bytes are no DocJSON."""
    return Document.model_validate_json(data)


def schema() -> dict[str, Any]:
    """JSON Schema, draft 2020-12, of what `dumps` writes."""
    told = Document.model_json_schema(by_alias=True, mode="serialization")
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": SCHEMA_ID, **told}


def _member(name: str, value: Any) -> str:
    if name in LISTS and value:
        return "[\n" + ",\n".join(_compact(member) for member in value) + "\n]"
    return _compact(value)


def _compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
