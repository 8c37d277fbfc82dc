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
    losses = [kind for kind in FindingKind if kind.is_loss]
    rest = [kind for kind in FindingKind if not kind.is_loss]
    return f"Losses:\n\n{_list_findings(losses)}\nNothing is lost:\n\n{_list_findings(rest)}"


def _list_findings(kinds: list[FindingKind]) -> str:
    """A line for each kind, and one for those whose code has their name: the page of codes explains them."""
    explained = [f"`{kind}` ({kind.unit})" for kind in kinds if _has_code(kind)]
    others = [f"- `{kind}` ({kind.unit}, `{kind.code}`): {_explain(kind)}\n" for kind in kinds if not _has_code(kind)]
    return f"- {', '.join(explained)}: see the code of that name\n{''.join(others)}"


def _explain(kind: FindingKind) -> str:
    """The finding in a sentence, or the flag that the list of flags explains with the same one."""
    flag = next((flag for flag in Flag if flag.sentence == kind.sentence), None)
    return f"flag `{flag}`" if flag else kind.sentence


def _has_code(kind: FindingKind) -> bool:
    return kind.code == kind.upper()


def _render_flags() -> str:
    doubts = [_render_flag(flag) for flag in Flag if not flag.informs]
    rest = [_render_flag(flag) for flag in Flag if flag.informs]
    return "\n".join(["Doubt:", "", *doubts, "", "Information:", "", *rest]) + "\n"


def _render_flag(flag: Flag) -> str:
    notes = [*(["page"] if flag.is_of_page else []), *([f"`{flag.warning.code}`"] if flag.warning else [])]
    added = f" ({', '.join(notes)})" if notes else ""
    explained = flag.warning and flag.warning.code == flag.upper()
    return f"- `{flag}`{added}" if explained else f"- `{flag}`{added}: {flag.sentence}"
