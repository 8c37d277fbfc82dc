"""Progress in, a bar on the terminal out; a result in, a tree of what lies where out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from rich.console import Console
from rich.filesize import decimal
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as Bars
from rich.tree import Tree

from twopass.job import DocumentResult, Result
from twopass.telemetry.progress import Listener, Progress


@contextmanager
def several() -> Iterator[Bars]:
    """Bars that live while the context lasts; on stderr, so that stdout stays for results."""
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("pages {task.fields[phase]}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Bars(*columns, console=Console(stderr=True)) as bars:
        yield bars


@contextmanager
def one(name: str) -> Iterator[Listener]:
    """One bar for one job."""
    with several() as bars:
        yield _listener(bars, _added(bars, name))


@contextmanager
def one_of_many(bars: Bars, name: str) -> Iterator[Listener]:
    """A bar that goes with its file: a thousand finished ones would push what is being read off the screen."""
    task = _added(bars, name)
    try:
        yield _listener(bars, task)
    finally:
        bars.remove_task(task)


def _added(bars: Bars, name: str) -> TaskID:
    return bars.add_task(name, total=None, phase="")


def _listener(bars: Bars, task: TaskID) -> Listener:
    def show(now: Progress) -> None:
        bars.update(task, total=now.pages_total or None, completed=now.pages_done, phase=str(now.phase))

    return show


def line(bars: Bars, text: str) -> None:
    """Said above the bars, and at once where there is no terminal to draw them on."""
    bars.console.print(text, markup=False, highlight=False, soft_wrap=True)


BESIDE = (("images/", "crops of figures and tables"), ("pages/", "a checkpoint a page"), ("manifest.json", "complete"))


def what_lies_where(result: Result) -> None:
    """Print the artefacts of every document, every problem and where the result lies."""
    console = Console(stderr=True, soft_wrap=True)
    for document in result.documents:
        console.print(_tree(document))
    for problem in result.problems:
        console.print(f"[yellow]{problem.code}[/] {escape(problem.message)}")
    if result.result_uri:
        console.print(escape(result.result_uri))


def counted(pages: Mapping[str, int]) -> str:
    """How many pages are in which state, in words."""
    return ", ".join(f"{count} {state}" for state, count in pages.items()) or "nothing read"


def _tree(document: DocumentResult) -> Tree:
    tree = Tree(f"[bold]{escape(document.source)}[/]: {document.status} ({counted(document.pages)})")
    for artefact in document.artefacts.values():
        tree.add(f"{escape(artefact.uri)}  [dim]{decimal(artefact.bytes)}[/]")
    for folder in {artefact.uri.rpartition("/")[0] for artefact in document.artefacts.values()}:
        for name, meaning in BESIDE:
            tree.add(f"{escape(folder)}/{name}  [dim]{meaning}[/]")
    return tree
