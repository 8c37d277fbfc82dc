"""The `twopass parse-answer` command."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from twopass.cli import options
from twopass.document import RungName
from twopass.errors import Code
from twopass.families import registry
from twopass.families.interface import Rung
from twopass.models import DEFAULT_MODEL
from twopass.text import broken_words, prose

MAX_WORDS = 50  # shown
FIELDS = {
    "id", "category", "kind", "native_label", "boxes", "text", "markdown", "level", "table", "figure", "formula",
    "parent_id", "caption_ids", "flags",
}  # fmt: skip


def command(
    file: Annotated[
        Path,
        typer.Argument(
            exists=True, dir_okay=False, allow_dash=True, metavar="FILE", help="File with one answer; - for stdin."
        ),
    ],
    family: Annotated[
        str, typer.Option(**options.choice(sorted(registry.FAMILIES)), help="Family of the model.")
    ] = DEFAULT_MODEL,
    page: Annotated[int, typer.Option(**options.number(low=1), help="Page number, for the elements' ids.")] = 1,
    reads: Annotated[
        str, typer.Option(metavar="GRAMMAR", help="Grammar of the answer: document, plain, or a task's name.")
    ] = "document",
) -> None:
    """Parse a model's raw answer and print the page's elements as JSON.

    Needs no GPU and no page. For an answer that would not be accepted, the reason is printed on stderr.
    """
    text = sys.stdin.read() if str(file) == "-" else file.read_text(errors="replace")
    one = registry.get_family(family)
    parsed = one.parse(text, page, Rung(RungName.NORMAL, "", grammar=reads))
    if one.region_grammars and not parsed.elements:
        what = f"{family} reads one region at a time, and this answer describes none; name what the region shows: "
        raise typer.BadParameter(what + ", ".join(sorted(one.region_grammars)), param_hint="'--reads'")
    if parsed.reason:
        typer.echo(f"{parsed.reason}: the page would be read again with other sampling, mode or prompt", err=True)
    if (lost := one.account(text, parsed.elements).lost) and not parsed.reason:
        typer.echo(f"{Code.WORDS_LOST}: {len(lost)} words are in no element: {' '.join(lost[:MAX_WORDS])}", err=True)
    language = prose.detect_language("\n".join(element.text for element in parsed.elements))
    joined = broken_words.join(parsed.elements, {page: language})
    elements = [element.model_dump(mode="json", include=FIELDS, exclude_none=True) for element in joined]
    typer.echo(json.dumps(elements, ensure_ascii=False, indent=2))
