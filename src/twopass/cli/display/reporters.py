"""What a run in this process writes: its progress, its results and its summary, as LOG_FORMAT asks."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, Protocol

import structlog

from twopass.cli.display import terminal
from twopass.document import Problem, Severity, Status
from twopass.result import Result, merge_problems
from twopass.settings import LogFormat, Settings
from twopass.telemetry.progress import Phase, Progress

STYLES = {Status.SUCCESS: "green", Status.PARTIAL_SUCCESS: "yellow", Status.FAILURE: "red"}
MAX_PROBLEMS = 5  # of one document; the summary has all
PROGRESS_INTERVAL_S = 10.0  # between two lines of progress where no bars are drawn

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
    """Return the reporter for LOG_FORMAT; with `keeps_stdout` it prints nothing there."""
    if settings.log_format is LogFormat.QUIET:
        return QuietReporter(keeps_stdout)
    return JsonReporter(keeps_stdout) if settings.writes_json_logs else TextReporter(keeps_stdout)


class TextReporter:
    """For people: bars on a terminal, elsewhere lines."""

    def __init__(self, keeps_stdout: bool = False) -> None:
        self._console = terminal.open_console()
        self._keeps_stdout = keeps_stdout

    def report_start(self, documents: int, engine: str) -> None:
        if terminal.can_draw(self._console):  # elsewhere nobody waits for it
            self._print(f"{documents} document{'' if documents == 1 else 's'}; engine {engine} starts")

    def show_progress(self) -> AbstractContextManager[Show]:
        return self._show_progress()

    @contextmanager
    def _show_progress(self) -> Iterator[Show]:
        if terminal.can_draw(self._console):
            with terminal.open_bars(self._console) as bars:
                yield lambda bar: bars.show(bar.name, bar.share, bar.note)
        else:
            yield limit_rate(lambda bar: self._print(f"{bar.name}: {bar.note}"))

    def report_document(self, row: Mapping[str, Any]) -> None:
        first, *problems = format_row(row)
        terminal.print_line(self._console, first.removeprefix(row["status"]), STYLES[row["status"]], row["status"])
        for problem in problems:
            self._print(problem)

    def report_result(self, result: Result, summary: str) -> None:
        terminal.print_artefacts(self._console, result)
        self._print(summary)

    def report_event(self, message: str, *, is_error: bool, **fields: Any) -> None:
        self._print(message)

    def report_summary(self, text: str, summary: Mapping[str, Any]) -> None:
        if self._keeps_stdout:
            self._print(text)
        else:
            print(text)

    def _print(self, text: str) -> None:
        terminal.print_line(self._console, text)


class QuietReporter(TextReporter):
    """Documents that did not end with success, and the summary."""

    def report_start(self, documents: int, engine: str) -> None: ...

    def show_progress(self) -> AbstractContextManager[Show]:
        return nullcontext(lambda bar: None)

    def report_document(self, row: Mapping[str, Any]) -> None:
        if row["status"] != Status.SUCCESS:
            super().report_document(row)

    def report_result(self, result: Result, summary: str) -> None:
        terminal.print_problems(self._console, result)
        self._print(summary)


class JsonReporter:
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
    problems = [_format_problem(problem) for problem in merge_problems(_parse_problems(row))]
    reason = terminal.format_page_counts(row["pages"]) or (problems.pop(0) if problems else "no result")
    place = f" -> {row['folder']}/" if row["folder"] else ""
    lines = [f"{row['status']}: {name} ({reason}){place}", *(f"  {problem}" for problem in problems[:MAX_PROBLEMS])]
    more = len(problems) - MAX_PROBLEMS
    return [*lines, f"  and {more} more problem{'' if more == 1 else 's'} in the summary"] if more > 0 else lines


def _parse_problems(row: Mapping[str, Any]) -> list[Problem]:
    return [Problem.model_validate(problem) for problem in row["problems"]]


def _format_problem(problem: Problem) -> str:
    warning = "warning: " if problem.severity is Severity.WARNING else ""
    return f"{warning}{problem.code}: {problem.message}"
