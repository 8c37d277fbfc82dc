"""Print what a benchmark found: JSON lines, as soon as it is known, or tables."""

from __future__ import annotations

import json
from typing import Any

from rich.console import Console
from rich.table import Table


def print_json(**facts: Any) -> None:
    """Print one line; floats have three decimals."""
    rounded = {name: round(value, 3) if isinstance(value, float) else value for name, value in facts.items()}
    print(json.dumps(rounded), flush=True)


def print_table(table: Table, as_markdown: bool) -> None:
    """Print a table for the terminal, or its rows for docs/log/."""
    if not as_markdown:
        Console(width=160).print(table)
        return
    columns: list[list[Any]] = [list(column.cells) for column in table.columns]
    print("| " + " | ".join(str(column.header) for column in table.columns) + " |")
    print("|" + "---|" * len(columns))
    for row in zip(*columns, strict=True):
        print("| " + " | ".join(row) + " |")
    print()  # or the next table would be rows of this one
