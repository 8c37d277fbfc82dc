"""Generate docs/docjson.schema.json from the models in twopass.document, and the tables in docs/docjson.md."""

from __future__ import annotations

import json
from pathlib import Path

from scripts import ROOT
from twopass.document import FindingKind, Flag
from twopass.formats import docjson

SCHEMA = ROOT / "docs" / "docjson.schema.json"
PAGE = ROOT / "docs" / "docjson.md"
FLAGS = "<!-- flags: from src/twopass/document/flags.py -->\n", "<!-- end of flags -->\n"
FINDINGS = "<!-- findings: from src/twopass/document/audit.py -->\n", "<!-- end of findings -->\n"


def render_files() -> dict[Path, str]:
    page = PAGE.read_text(encoding="utf-8")
    page = _replace_table(page, FLAGS, _render_flags())
    page = _replace_table(page, FINDINGS, _render_findings())
    return {SCHEMA: json.dumps(docjson.schema(), indent=2, ensure_ascii=False) + "\n", PAGE: page}


def _replace_table(page: str, marks: tuple[str, str], table: str) -> str:
    start, end = marks
    before, _, rest = page.partition(start)
    return f"{before}{start}{table}{end}{rest.partition(end)[2]}"


def _render_findings() -> str:
    losses = [_render_finding(kind) for kind in FindingKind if kind.is_loss]
    rest = [_render_finding(kind) for kind in FindingKind if not kind.is_loss]
    return "\n".join(["Losses:", "", *losses, "", "Nothing is lost:", "", *rest]) + "\n"


def _render_finding(kind: FindingKind) -> str:
    code = "" if kind.code == kind.upper() else f", `{kind.code}`"
    return f"- `{kind}` ({kind.unit}{code}): {kind.sentence}"


def _render_flags() -> str:
    doubts = [_render_flag(flag) for flag in Flag if not flag.informs]
    rest = [_render_flag(flag) for flag in Flag if flag.informs]
    return "\n".join(["Doubt:", "", *doubts, "", "Information:", "", *rest]) + "\n"


def _render_flag(flag: Flag) -> str:
    notes = [*(["page"] if flag.is_of_page else []), *([f"`{flag.warning.code}`"] if flag.warning else [])]
    added = f" ({', '.join(notes)})" if notes else ""
    return f"- `{flag}`{added}: {flag.sentence}"
