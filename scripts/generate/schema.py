"""Generate docs/docjson.schema.json from the models in twopass.document, and the table of flags in docs/docjson.md."""

from __future__ import annotations

import json
from pathlib import Path

from scripts import ROOT
from twopass.document import Flag
from twopass.formats import docjson

SCHEMA = ROOT / "docs" / "docjson.schema.json"
PAGE = ROOT / "docs" / "docjson.md"
START, END = "<!-- flags: from src/twopass/document/flags.py -->\n", "<!-- end of flags -->\n"


def render_files() -> dict[Path, str]:
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(START)
    return {
        SCHEMA: json.dumps(docjson.schema(), indent=2, ensure_ascii=False) + "\n",
        PAGE: f"{before}{START}{_render_flags()}{END}{rest.partition(END)[2]}",
    }


def _render_flags() -> str:
    rows = ["| flag | meaning | of | raises doubt | warning |", "|---|---|---|---|---|", *map(_render_flag, Flag)]
    return "\n".join(rows) + "\n"


def _render_flag(flag: Flag) -> str:
    scope, doubt = "page" if flag.is_of_page else "element", "" if flag.informs else "yes"
    return f"| `{flag}` | {flag.sentence} | {scope} | {doubt} | {flag.warning.code if flag.warning else ''} |"
