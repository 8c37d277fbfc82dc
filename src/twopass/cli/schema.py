"""The `twopass schema` command."""

from __future__ import annotations

import json

import typer


def command() -> None:
    """Print the JSON Schema of document.json."""
    from twopass.formats import docjson

    typer.echo(json.dumps(docjson.schema(), ensure_ascii=False, indent=1))
