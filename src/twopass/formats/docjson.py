"""Convert a Document to DocJSON bytes and back, and describe them with a JSON Schema.

Equal documents give equal bytes.
"""

from __future__ import annotations

import json
from typing import Any

from twopass.document import SCHEMA, Document

_LINE_PER_MEMBER = frozenset({"pages", "elements", "sections", "problems"})  # one line per member, for diffs and grep
_SCHEMA_ID = f"urn:twopass:{SCHEMA}"


def dumps(document: Document) -> bytes:
    """UTF-8 JSON with fields in the model's order. Nulls are kept, so every field is present."""
    fields = document.model_dump(mode="json", by_alias=True)
    lines = ",\n".join(f"{_dump_compact(name)}:{_dump_field(name, value)}" for name, value in fields.items())
    # Broken PDFs contain unpaired surrogates, which UTF-8 cannot encode: write them as JSON escapes.
    return f"{{\n{lines}\n}}\n".encode(errors="backslashreplace")


def loads(data: bytes) -> Document:
    """Parse DocJSON; raises ValueError (pydantic's ValidationError) for anything else."""
    return Document.model_validate_json(data)


def schema() -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of what `dumps` writes."""
    model_schema = Document.model_json_schema(by_alias=True, mode="serialization")
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": _SCHEMA_ID, **model_schema}


def _dump_field(name: str, value: Any) -> str:
    if name in _LINE_PER_MEMBER and value:
        return "[\n" + ",\n".join(_dump_compact(member) for member in value) + "\n]"
    return _dump_compact(value)


def _dump_compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
