"""A job's documents while they are read: what they share, what their pages need, which these are, and a name for each.

Knows jobs, files and options. Knows nothing of the order in which things happen: that is pipeline.py's.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Self

from twopass import job as contract
from twopass.document import Checkpoint, Document, Problem, Severity, SourceInfo
from twopass.engines.interface import describe
from twopass.errors import Code, EngineError, InvalidJob, SourceError
from twopass.families.interface import Family
from twopass.format_options import Writing
from twopass.formats import registry
from twopass.job import Door, Format, Job
from twopass.pages.source_files import CheckedFile
from twopass.runtime import scratch
from twopass.runtime.admission import Arrival, Room
from twopass.steps.previews import Drawing
from twopass.steps.upload import Finished, Folder, Made, page_name
from twopass.storage.sources import Sources
from twopass.storage.store import Store
from twopass.telemetry.progress import Tracker
from twopass.telemetry.stopwatch import Stopwatch
from twopass.worker import Worker

GIVE_UP = 32  # pages lost in a row, beyond those in flight when the engine went: it will not come back soon


class EngineFailureBudget:
    """How long a document goes on with an engine that is gone: so many pages in a row, and then without asking."""

    def __init__(self, pages: int) -> None:
        self._pages = pages
        self._lost = 0
        self._last: EngineError | None = None

    @classmethod
    def of(cls, worker: Worker) -> Self:
        return cls(worker.window.places + GIVE_UP)

    @contextmanager
    def tried(self) -> Iterator[None]:
        """A page; one that comes through lets all others be tried again. Raises EngineError."""
        if self._last and self._lost >= self._pages:
            raise EngineError(self._last.code, self._last.message)
        try:
            yield
        except EngineError as error:
            self._lost, self._last = self._lost + 1, error
            raise
        self._lost = 0


class ConcurrentReaders:
    """Whether another worker reads the same document, and where to go on when it was met.

    Two that begin together would read every page twice; who is met goes on from a place taken at random.
    """

    def __init__(self, expected: bool) -> None:
        self.expected = expected
        self._met = False

    def meet(self) -> None:
        """A page lies there that was not there before, and is not ours."""
        self.expected = self._met = True

    def in_turn(self, numbers: Iterable[int]) -> Iterator[int]:
        left = deque(numbers)
        while left:
            if self._met:
                self._met = False
                left.rotate(secrets.randbelow(len(left)))
            yield left.popleft()


@dataclass(frozen=True)
class JobContext:
    """What all documents of one job share. `deadline` is on the loop's clock, None without one."""

    job: Job
    worker: Worker
    sources: Sources
    output: Store
    deadline: float | None
    progress: Tracker


@dataclass(frozen=True)
class DocumentContext:
    """What every page of one document needs. `deadline` is on the loop's clock, None without one."""

    job: Job
    worker: Worker
    file: CheckedFile
    folder: Folder
    there: frozenset[str]
    formats: tuple[Format, ...]
    writing: Writing
    deadline: float | None
    progress: Tracker
    watch: Stopwatch
    patience: EngineFailureBudget
    company: ConcurrentReaders
    arrival: Arrival

    @property
    def source_key(self) -> str:
        """The source in prompt ids: the same whatever reads it."""
        return self.file.info.sha256[:12]

    @property
    def last_call(self) -> float | None:
        """When whatever is written of the document must be written."""
        return None if self.deadline is None else self.deadline + self.worker.settings.write_reserve_s

    def in_turn(self, numbers: Sequence[int]) -> Iterator[int]:
        """The pages that somebody read already come first: a deadline then cuts off none of them."""
        yield from (number for number in numbers if self.has(number))
        yield from self.company.in_turn(number for number in numbers if not self.has(number))

    def has(self, number: int) -> bool:
        """Whether the page lay there when the document was begun."""
        return page_name(number) in self.there

    @property
    def drawing(self) -> Drawing:
        """Where pictures for people come from."""
        return Drawing(self.file, self.worker.page_pool, self.worker.window, self.job.id)

    def made(self, document: Document, selection: Sequence[Problem]) -> Made:
        """What the manifest keeps beside the result."""
        run = document.run
        kept = {"writing": self.writing, "source": document.source, "meta": self.file.meta}
        return Made(options=run.options, prompts=run.prompts, selection=tuple(selection), **kept)


def room(worker: Worker) -> Room:
    """For one of the jobs that a worker has at once."""
    settings = worker.settings
    return Room(worker.window.places, settings.max_source_bytes, lambda: scratch.free_bytes() // settings.concurrency)


def check(job: Job, family: Family) -> None:
    """Refuse what this worker's model does not take or it cannot write, before anything is read; raises InvalidJob."""
    registry.check(job.formats_needed)
    for field, asked, taken in (("mode", job.mode, family.modes), ("task", job.task, family.tasks)):
        if asked not in taken:
            known = ", ".join(choice for choice in type(asked) if choice in taken)
            raise InvalidJob(Code.INVALID_JOB, f"{field}: {family.name} takes no {asked}; it takes {known}")


def options(job: Job, worker: Worker) -> dict[str, Any]:
    """Everything that changes what is read, and nothing else."""
    reader = {"family": worker.family.name, "revision": worker.family.revision, **describe(worker.engine)}
    return {**job.reading_options, **reader}


def document_id(file: CheckedFile, job: Job, chosen: Mapping[str, Any]) -> str:
    """The document's name; `resume: false` reads into a folder of its own, never over a finished document."""
    anew = "" if job.resume else "-" + hashlib.sha256(job.id.encode()).hexdigest()[:6]
    return contract.document_id(file.stem, file.info.sha256, chosen) + anew


def is_finished(job: Job, done: Finished) -> bool:
    """Whether all that the job asks for lies there, spelled as it asks."""
    return (
        done.is_final
        and set(job.formats_needed) <= set(done.formats)
        and job.writing(done.made.writing) == done.made.writing
    )


def wanted(job: Job, done: Finished | None) -> tuple[Format, ...]:
    """Those to write: what is asked for, and what lies there and might tell less of the pages."""
    all_of_them = {*job.formats_needed, *(done.formats if done else ())}
    return tuple(name for name in Format if name in all_of_them)


def deadline(job: Job, worker: Worker) -> float | None:
    """On the loop's clock; a local run without a deadline of its own has all the time it needs."""
    seconds = job.deadline_s or (None if job.door is Door.LOCAL else worker.settings.deadline_s)
    return None if seconds is None else asyncio.get_running_loop().time() + seconds


def selected(job: Job, file: CheckedFile) -> tuple[tuple[int, ...], tuple[Problem, ...]]:
    """The pages to read and what to say about those that do not exist; raises SourceError when none is left."""
    count = file.info.page_count
    numbers: tuple[int, ...] = tuple(range(1, count + 1))
    problems = []
    for asked in (job.page_range, job.slice_range):
        if asked is None:
            continue
        if asked.beyond(count):
            message = f"pages {asked.text} asked for, the document has {count}"
            problems.append(Problem(code=Code.PAGE_RANGE, severity=Severity.WARNING, message=message))
        numbers = tuple(sorted(set(numbers) & set(asked.select(count))))
    if not numbers:
        raise SourceError(Code.PAGE_RANGE, f"{problems[0].message}: nothing to read" if problems else "no page is left")
    return numbers, tuple(problems)


def source(file: CheckedFile, pages: Sequence[Checkpoint]) -> SourceInfo:
    """The source as the first page's reader knew it: a function of the checkpoints, whoever assembles."""
    told = pages[0].read_from
    return file.info if told is None else file.info.model_copy(update={"uri": told.uri, "etag": told.etag})
