"""The models in document.py in, docs/docjson.schema.json out: run it when a field changes."""

from __future__ import annotations

import json
from pathlib import Path

from twopass.formats import docjson

SCHEMA_FILE = Path(__file__).parent.parent / "docs" / "docjson.schema.json"


def text() -> str:
    return json.dumps(docjson.schema(), indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    SCHEMA_FILE.parent.mkdir(exist_ok=True)
    SCHEMA_FILE.write_text(text(), encoding="utf-8")
    print(SCHEMA_FILE)
