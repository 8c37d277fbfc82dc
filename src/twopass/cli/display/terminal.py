"""Draw progress bars and print a result's artefacts on the terminal."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import BinaryIO

from rich.console import Console
from rich.filesize import decimal
from rich.markup import escape
from rich.progress import BarColumn, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as RichProgress
from rich.text import Text
from rich.tree import Tree

from twopass.document import State
from twopass.result import DocumentResult, Result

# files beside the artefacts in a document's folder, and what they are
OTHER_FILES = (
    ("images/", "crops of figures and tables"),
    ("pages/", "one checkpoint per page"),
    ("manifest.json", "written last: the document is complete"),
)


def open_console() -> Console:
    """Return a console on stderr, because stdout is for results.

    It writes no control characters where stderr is not a terminal, even if FORCE_COLOR is set, as on many CI services.
    """
    return Console(stderr=True, force_terminal=None if sys.stderr.isatty() else False)


@contextmanager
def reserve_stdout() -> Iterator[BinaryIO]:
    """Yield stdout for results alone: what libraries and child processes print to it meanwhile goes to stderr."""
    sys.stdout.flush()
    kept = os.dup(1)
    try:
        os.dup2(2, 1)
        with open(kept, "wb", buffering=0, closefd=False) as stdout:
            yield stdout
    finally:
        os.dup2(kept, 1)
        os.close(kept)


def can_draw(console: Console) -> bool:
    """Whether bars can be drawn and moved."""
    return console.is_terminal and not console.is_dumb_terminal


def show_cursor() -> None:
    """Show the cursor, which rich hides while it draws, and begin a new line, if stderr is a terminal."""
    if os.isatty(2):
        os.write(2, b"\x1b[?25h\n")  # not through rich, which may be interrupted while it holds its lock


class Bars:
    """Bars by name, each from its first state until its share is 1: bars of finished work would fill the screen."""

    def __init__(self, progress: RichProgress) -> None:
        self._progress = progress
        self._tasks: dict[str, TaskID] = {}

    def show(self, name: str, share: float | None, note: str) -> None:
        """Show a bar; a `share` of None is drawn as a pulse."""
        if share == 1 and name in self._tasks:
            self._progress.remove_task(self._tasks.pop(name))
        elif share != 1:
            if name not in self._tasks:
                self._tasks[name] = self._progress.add_task(name, total=None, note="")
            total = None if share is None else 1.0
            self._progress.update(self._tasks[name], total=total, completed=share or 0.0, note=note)


@contextmanager
def open_bars(console: Console) -> Iterator[Bars]:
    """Draw bars until the context ends, then remove them."""
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.fields[note]}", markup=False),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with RichProgress(*columns, console=console, transient=True) as progress:
        yield Bars(progress)


def print_line(console: Console, text: str, style: str = "", styled: str = "") -> None:
    """Print a line, above the bars if there are any; `styled` is how it begins, in this style."""
    console.print(Text.assemble((styled, style), text), highlight=False, soft_wrap=True)


def print_artefacts(console: Console, result: Result) -> None:
    """Print each document's artefacts as a tree, then the problems, then the URI of the stored result."""
    for document in result.documents:
        console.print(_build_tree(document), soft_wrap=True)
    print_problems(console, result)
    if result.result_uri:
        print_line(console, result.result_uri)


def print_problems(console: Console, result: Result) -> None:
    for problem in result.merged_problems:
        console.print(f"[yellow]{problem.code}[/] {escape(problem.message)}", soft_wrap=True)


def format_page_counts(pages: Mapping[str, int]) -> str:
    """Format a count for each page state, such as `9 read, 1 failed`; empty for a document that ended with an error.

    Pages of such a document may have been read and stored.
    """
    return ", ".join(f"{pages[state]} {state}" for state in State if pages.get(state))


def _build_tree(document: DocumentResult) -> Tree:
    counts = f" ({format_page_counts(document.pages)})" if document.pages else ""
    tree = Tree(f"[bold]{escape(document.source)}[/]: {document.status}{counts}")
    for artefact in document.artefacts.values():
        tree.add(f"{escape(artefact.uri)}  [dim]{decimal(artefact.bytes)}[/]")
    for folder in {artefact.uri.rpartition("/")[0] for artefact in document.artefacts.values()}:
        for name, meaning in OTHER_FILES:
            tree.add(f"{escape(folder)}/{name}  [dim]{meaning}[/]")
    return tree
