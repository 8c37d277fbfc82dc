"""Generate docs/docjson.schema.json from the models in twopass.document."""

from __future__ import annotations

import json
from pathlib import Path

from scripts import ROOT
from twopass.formats import docjson

SCHEMA = ROOT / "docs" / "docjson.schema.json"


def render_files() -> dict[Path, str]:
    return {SCHEMA: json.dumps(docjson.schema(), indent=2, ensure_ascii=False) + "\n"}
