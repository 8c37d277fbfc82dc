"""Draw progress bars and print a result's artefacts on the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from rich.console import Console
from rich.filesize import decimal
from rich.markup import escape
from rich.progress import BarColumn, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as Bars
from rich.tree import Tree

from twopass.result import DocumentResult, Result
from twopass.telemetry.progress import Listener, Progress

# files beside the artefacts in a document's folder, and what they are
OTHER_FILES = (
    ("images/", "crops of figures and tables"),
    ("pages/", "one checkpoint per page"),
    ("manifest.json", "written last: the document is complete"),
)


@contextmanager
def open_progress() -> Iterator[Bars]:
    """Show progress bars until the context ends; on stderr, because stdout is for results."""
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.fields[note]}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Bars(*columns, console=Console(stderr=True)) as bars:
        yield bars


@contextmanager
def track_job(name: str) -> Iterator[Listener]:
    """Show one bar for one job; yields the listener that moves it."""
    with open_progress() as bars:
        yield _make_listener(bars, _add_task(bars, name))


@contextmanager
def track_file(bars: Bars, name: str) -> Iterator[Listener]:
    """Show a file's bar and remove it when the file is done: bars of finished files would fill the screen."""
    task = _add_task(bars, name)
    try:
        yield _make_listener(bars, task)
    finally:
        bars.remove_task(task)


def _add_task(bars: Bars, name: str) -> TaskID:
    return bars.add_task(name, total=None, note="")


def _make_listener(bars: Bars, task: TaskID) -> Listener:
    def show(now: Progress) -> None:
        # The bar shows the percentage: while documents are not counted, all counted pages may be done.
        note = f"{now.pages_done}/{now.pages_total} pages {now.phase}"
        bars.update(task, total=100 if now.pages_total else None, completed=now.percent, note=note)

    return show


def print_line(bars: Bars, text: str) -> None:
    """Print a line above the bars; without a terminal, where no bars are drawn, it is printed at once."""
    bars.console.print(text, markup=False, highlight=False, soft_wrap=True)


def print_artefacts(result: Result) -> None:
    """Print each document's artefacts as a tree, then the problems, then the URI of the stored result."""
    console = Console(stderr=True, soft_wrap=True)
    for document in result.documents:
        console.print(_build_tree(document))
    for problem in result.merged_problems:
        console.print(f"[yellow]{problem.code}[/] {escape(problem.message)}")
    if result.result_uri:
        console.print(escape(result.result_uri))


def format_page_counts(pages: Mapping[str, int]) -> str:
    """Format a count for each page state, such as `9 read, 1 failed`; empty for a document that ended with an error.

    Pages of such a document may have been read and stored.
    """
    return ", ".join(f"{count} {state}" for state, count in pages.items())


def _build_tree(document: DocumentResult) -> Tree:
    counts = f" ({format_page_counts(document.pages)})" if document.pages else ""
    tree = Tree(f"[bold]{escape(document.source)}[/]: {document.status}{counts}")
    for artefact in document.artefacts.values():
        tree.add(f"{escape(artefact.uri)}  [dim]{decimal(artefact.bytes)}[/]")
    for folder in {artefact.uri.rpartition("/")[0] for artefact in document.artefacts.values()}:
        for name, meaning in OTHER_FILES:
            tree.add(f"{escape(folder)}/{name}  [dim]{meaning}[/]")
    return tree
