"""What a run in this process writes: its progress, its results and its summary, as LOG_FORMAT asks."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any, BinaryIO, Generic, Protocol, Self, TypeVar

import structlog
from rich.console import Console
from rich.filesize import decimal
from rich.markup import escape
from rich.progress import BarColumn, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as RichProgress
from rich.text import Text
from rich.tree import Tree

from twopass.document import Problem, Severity, State, Status
from twopass.result import DocumentResult, Result, merge_problems
from twopass.settings import LogFormat, Settings
from twopass.telemetry.progress import Listener, Phase, Progress

STYLES = {Status.SUCCESS: "green", Status.PARTIAL_SUCCESS: "yellow", Status.FAILURE: "red"}
MAX_PROBLEMS = 5  # of one document; the summary has all
PROGRESS_INTERVAL_S = 10.0  # between two lines of progress where no bars are drawn
_READING_STAGES = ("pass1", "pass2")
# files beside the artefacts in a document's folder, and what they are
_OTHER_FILES = (
    ("images/", "crops of figures and tables"),
    ("pages/", "one checkpoint per page"),
    ("manifest.json", "written last: the document is complete"),
)

File = TypeVar("File", bound=Hashable)

log = structlog.get_logger()


@dataclass(frozen=True)
class BarState:
    """What a bar shows: `share` is the done part, from 0 to 1, or None if unknown; `counts` are those in `note`."""

    name: str
    share: float | None
    note: str
    counts: Mapping[str, Any]

    @classmethod
    def of_job(cls, name: str, now: Progress) -> BarState:
        share = now.percent / 100 if now.pages_total else None
        note = f"{now.pages_done}/{now.pages_total} pages, {now.phase}"
        if now.phase is Phase.ASSEMBLING and now.parts_total:
            note += f" {now.parts_done}/{now.parts_total}"
        return cls(name, share, note, now.as_dict())


Show = Callable[[BarState], None]


class Reporter(Protocol):
    """Tells a person or a program what happens.

    Progress and logs are on stderr, the summary of a batch on stdout unless that is kept for something else.
    """

    def report_start(self, documents: int, engine: str) -> None:
        """Report that the engine of a batch starts."""

    def show_progress(self) -> AbstractContextManager[Show]:
        """Show bars until the context ends."""

    def report_document(self, row: Mapping[str, Any]) -> None:
        """Report a finished document of a batch, as a row of its summary."""

    def report_result(self, result: Result, summary: str) -> None:
        """Report a finished job and the figures of the run."""

    def report_event(self, message: str, *, is_error: bool, **fields: Any) -> None:
        """Report why a run ended before its documents."""

    def report_summary(self, text: str, summary: Mapping[str, Any]) -> None:
        """Report the end of a batch."""


def create_reporter(settings: Settings, keeps_stdout: bool = False) -> Reporter:
    """The reporter for LOG_FORMAT; with `keeps_stdout` it prints nothing there."""
    if settings.log_format is LogFormat.QUIET:
        return _QuietReporter(keeps_stdout)
    return _JsonReporter(keeps_stdout) if settings.writes_json_logs else TextReporter(keeps_stdout)


class TextReporter:
    """For people: bars on a terminal, elsewhere lines."""

    def __init__(self, keeps_stdout: bool = False) -> None:
        # No control characters where stderr is no terminal, even with FORCE_COLOR, which many CI services set.
        self._console = Console(stderr=True, force_terminal=None if sys.stderr.isatty() else False)
        self._keeps_stdout = keeps_stdout

    def report_start(self, documents: int, engine: str) -> None:
        if _can_draw(self._console):  # elsewhere nobody waits for it
            self._print(f"{documents} document{'' if documents == 1 else 's'}; engine {engine} starts")

    def show_progress(self) -> AbstractContextManager[Show]:
        return self._show_progress()

    @contextmanager
    def _show_progress(self) -> Iterator[Show]:
        if _can_draw(self._console):
            with _open_bars(self._console) as bars:
                yield lambda bar: bars.show(bar.name, bar.share, bar.note)
        else:
            yield limit_rate(lambda bar: self._print(f"{bar.name}: {bar.note}"))

    def report_document(self, row: Mapping[str, Any]) -> None:
        first, *problems = format_row(row)
        _print_line(self._console, first.removeprefix(row["status"]), STYLES[row["status"]], row["status"])
        for problem in problems:
            self._print(problem)

    def report_result(self, result: Result, summary: str) -> None:
        _print_artefacts(self._console, result)
        self._print(summary)

    def report_event(self, message: str, *, is_error: bool, **fields: Any) -> None:
        self._print(message)

    def report_summary(self, text: str, summary: Mapping[str, Any]) -> None:
        if self._keeps_stdout:
            self._print(text)
        else:
            print(text)

    def _print(self, text: str) -> None:
        _print_line(self._console, text)


class _QuietReporter(TextReporter):
    """Documents that did not end with success, and the summary."""

    def report_start(self, documents: int, engine: str) -> None: ...

    def show_progress(self) -> AbstractContextManager[Show]:
        return nullcontext(lambda bar: None)

    def report_document(self, row: Mapping[str, Any]) -> None:
        if row["status"] != Status.SUCCESS:
            super().report_document(row)

    def report_result(self, result: Result, summary: str) -> None:
        _print_problems(self._console, result)
        self._print(summary)


class _JsonReporter:
    """For programs: one object per line."""

    def __init__(self, keeps_stdout: bool = False) -> None:
        self._keeps_stdout = keeps_stdout

    def report_start(self, documents: int, engine: str) -> None:
        log.info("engine starts", documents=documents, engine=engine)

    def show_progress(self) -> AbstractContextManager[Show]:
        return nullcontext(limit_rate(lambda bar: log.info("progress", name=bar.name, **bar.counts)))

    def report_document(self, row: Mapping[str, Any]) -> None:
        log.info("document finished", **row)

    def report_result(self, result: Result, summary: str) -> None:
        log.info("job finished", summary=summary, **result.model_dump(mode="json", exclude_none=True, exclude=_INLINE))

    def report_event(self, message: str, *, is_error: bool, **fields: Any) -> None:
        (log.error if is_error else log.warning)(message, **fields)

    def report_summary(self, text: str, summary: Mapping[str, Any]) -> None:
        figures = {name: value for name, value in summary.items() if name != "results"}
        if self._keeps_stdout:
            log.info("run finished", **figures)
        else:
            print(json.dumps(figures))


_INLINE = {"documents": {"__all__": {"inline"}}}  # the text of documents is never logged


def limit_rate(
    show: Show, interval_s: float = PROGRESS_INTERVAL_S, clock: Callable[[], float] = time.monotonic
) -> Show:
    """Show a state only if the last one, or the start, is `interval_s` ago."""
    last = clock()

    def show_seldom(bar: BarState) -> None:
        nonlocal last
        if clock() - last >= interval_s:
            last = clock()
            show(bar)

    return show_seldom


def format_row(row: Mapping[str, Any]) -> list[str]:
    """Format a finished file: its status, its name, its page counts and its folder, then a line for each problem.

    The problem of a file without pages is in its first line.
    """
    name = row["file"].encode(errors="backslashreplace").decode()
    recorded = [Problem.model_validate(problem) for problem in row["problems"]]
    problems = [_format_problem(problem) for problem in merge_problems(recorded)]
    reason = _format_page_counts(row["pages"]) or (problems.pop(0) if problems else "no result")
    place = f" -> {row['folder']}/" if row["folder"] else ""
    lines = [f"{row['status']}: {name} ({reason}){place}", *(f"  {problem}" for problem in problems[:MAX_PROBLEMS])]
    more = len(problems) - MAX_PROBLEMS
    return [*lines, f"  and {more} more problem{'' if more == 1 else 's'} in the summary"] if more > 0 else lines


def _format_problem(problem: Problem) -> str:
    warning = "warning: " if problem.severity is Severity.WARNING else ""
    return f"{warning}{problem.code}: {problem.message}"


@dataclass(frozen=True)
class _FolderProgress:
    """How far a folder is. `share` counts finished files as 1 and others by the share of their pages.

    `parts` are those of files whose pages are all read, and which are written now.
    """

    name: str
    files_total: int = 0
    files_done: int = 0
    pages_done: int = 0
    share: float = 0.0
    parts_done: int = 0
    parts_total: int = 0

    @property
    def is_done(self) -> bool:
        return self.files_done == self.files_total

    def as_bar(self) -> BarState:
        counts = {"files_done": self.files_done, "files_total": self.files_total, "pages_done": self.pages_done}
        note = f"{self.files_done}/{self.files_total} files, {self.pages_done} pages"
        if self.parts_total:
            counts |= {"parts_done": self.parts_done, "parts_total": self.parts_total}
            note += f", writing {self.parts_done}/{self.parts_total}"
        return BarState(self.name, 1.0 if self.is_done else self.share / self.files_total, note, counts)


class BatchProgress(Generic[File]):
    """The progress of all files, each counted in the folder that `folders` names for it.

    It is changed on one thread; its counts may be read on any.
    """

    def __init__(self, folders: Mapping[File, str], on_change: Callable[[BarState], None]) -> None:
        self._folder_of = folders
        self._on_change = on_change
        self._files: dict[File, Progress] = {}  # of files that were started
        self._folders: dict[str, _FolderProgress] = {}
        for name in folders.values():
            folder = self._folders.get(name, _FolderProgress(name))
            self._folders[name] = replace(folder, files_total=folder.files_total + 1)

    @property
    def pages_done(self) -> int:
        return sum(progress.pages_done for progress in list(self._files.values()))

    @property
    def pages_counted(self) -> int:
        return sum(progress.pages_total for progress in list(self._files.values()))

    def start(self, file: File) -> Listener:
        """The listener for the progress of a file that starts now."""
        self._update(file, Progress())
        return lambda now: self._update(file, now)

    def finish(self, file: File) -> None:
        self._update(file, replace(self._files[file], percent=100.0, phase=Phase.DONE), files_done=1)

    def _update(self, file: File, now: Progress, files_done: int = 0) -> None:
        before = self._files.get(file, Progress())
        self._files[file] = now
        folder = self._folders[self._folder_of[file]]
        (done_before, total_before), (done, total) = _count_parts(before), _count_parts(now)
        self._folders[folder.name] = folder = replace(
            folder,
            files_done=folder.files_done + files_done,
            pages_done=folder.pages_done + now.pages_done - before.pages_done,
            share=folder.share + (now.percent - before.percent) / 100,
            parts_done=folder.parts_done + done - done_before,
            parts_total=folder.parts_total + total - total_before,
        )
        self._on_change(folder.as_bar())


def _count_parts(now: Progress) -> tuple[int, int]:
    return (now.parts_done, now.parts_total) if now.phase is Phase.ASSEMBLING else (0, 0)


@dataclass(frozen=True)
class Figures:
    """Counts of pages, and wall seconds.

    `rendering_s` and `reading_s` are sums over the pages that were read now. Pages wait for each other in both, so the
    sums exceed the seconds that the run took.
    """

    pages: int
    pages_read_now: int
    start_s: float
    total_s: float
    rendering_s: float = 0.0
    reading_s: float = 0.0

    @classmethod
    def measure(cls, documents: Iterable[DocumentResult], start_s: float, total_s: float) -> Self:
        """The figures of a run that took `total_s` seconds, the first `start_s` of them to open the engine."""
        documents = list(documents)
        return cls(
            pages=sum(count for doc in documents for state, count in doc.pages.items() if state != State.UNREAD),
            pages_read_now=sum(doc.usage.get("pages_read_now", 0) for doc in documents),
            start_s=start_s,
            total_s=total_s,
            rendering_s=sum(_sum_stages(doc, "render") for doc in documents),
            reading_s=sum(_sum_stages(doc, *_READING_STAGES) for doc in documents),
        )

    @property
    def pages_per_s(self) -> float | None:
        """Pace after the start; None if no page was read now."""
        seconds = self.total_s - self.start_s
        return self.pages_read_now / seconds if self.pages_read_now and seconds > 0 else None

    def as_dict(self) -> dict[str, Any]:
        pages = self.pages_read_now
        return {
            "pages": self.pages,
            "pages_read_now": pages,
            "pages_per_s": None if self.pages_per_s is None else round(self.pages_per_s, 4),
            "start_s": round(self.start_s, 3),
            "rendering_s_per_page": round(self.rendering_s / pages, 3) if pages else None,
            "reading_s_per_page": round(self.reading_s / pages, 3) if pages else None,
        }

    def describe(self) -> str:
        """Such as `12 pages; total 31.2 s, of which start 10.4 s; 0.58 pages per second after the start; …`."""
        stored = self.pages - self.pages_read_now
        parts = [
            f"{self.pages} page{'' if self.pages == 1 else 's'}"
            + (f" ({stored} of them stored before)" if stored > 0 else ""),
            f"total {self.total_s:.1f} s, of which start {self.start_s:.1f} s",
        ]
        if self.pages_per_s is not None:
            rendering, reading = (seconds / self.pages_read_now for seconds in (self.rendering_s, self.reading_s))
            parts += [
                f"{self.pages_per_s:.2g} pages per second after the start",
                f"mean per page, with waiting: rendering {rendering:.1f} s, reading {reading:.1f} s",
            ]
        return "; ".join(parts)


def _sum_stages(document: DocumentResult, *names: str) -> float:
    stages = document.timings.get("stages", {})
    return float(sum(stages.get(name, {}).get("wall_s", 0.0) for name in names))


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


def _can_draw(console: Console) -> bool:
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
def _open_bars(console: Console) -> Iterator[Bars]:
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


def _print_line(console: Console, text: str, style: str = "", styled: str = "") -> None:
    """Print a line, above the bars if there are any; `styled` is how it begins, in this style."""
    console.print(Text.assemble((styled, style), text), highlight=False, soft_wrap=True)


def _print_artefacts(console: Console, result: Result) -> None:
    """Print each document's artefacts as a tree, then the problems, then the URI of the stored result."""
    for document in result.documents:
        console.print(_build_tree(document), soft_wrap=True)
    _print_problems(console, result)
    if result.result_uri:
        _print_line(console, result.result_uri)


def _print_problems(console: Console, result: Result) -> None:
    for problem in result.merged_problems:
        console.print(f"[yellow]{problem.code}[/] {escape(problem.message)}", soft_wrap=True)


def _format_page_counts(pages: Mapping[str, int]) -> str:
    """Format a count for each page state, such as `9 read, 1 failed`; empty for a document that ended with an error.

    Pages of such a document may have been read and stored.
    """
    return ", ".join(f"{pages[state]} {state}" for state in State if pages.get(state))


def _build_tree(document: DocumentResult) -> Tree:
    counts = f" ({_format_page_counts(document.pages)})" if document.pages else ""
    tree = Tree(f"[bold]{escape(document.source)}[/]: {document.status}{counts}")
    for artefact in document.artefacts.values():
        tree.add(f"{escape(artefact.uri)}  [dim]{decimal(artefact.bytes)}[/]")
    for folder in {artefact.uri.rpartition("/")[0] for artefact in document.artefacts.values()}:
        for name, meaning in _OTHER_FILES:
            tree.add(f"{escape(folder)}/{name}  [dim]{meaning}[/]")
    return tree
