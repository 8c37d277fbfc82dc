"""Documents in, each read by an endpoint out: sliced, a bounded number of jobs in flight, tried again, resumed.

    document --count--> slices --jobs--> checkpoints --a last job without slice--> artefacts, manifest

Knows jobs and their answers. Knows nothing of HTTP, terminals or files.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import structlog

from twopass.errors import Code, EndpointError, TwopassError
from twopass.fleet.discovery import Inbox, Item, Ready
from twopass.fleet.endpoints.runpod import Endpoint, Phase, Seen
from twopass.fleet.ledger import Ledger
from twopass.job import PageRange, shown
from twopass.runtime import task_group

log = structlog.get_logger()

AGAIN = frozenset(  # codes of failed jobs that may end better at another try, or on another worker
    {
        *(Code.STORE_UNAVAILABLE, Code.ENGINE_DEAD, Code.ENGINE_MEMORY, Code.DEADLINE, Code.SHUTDOWN),
        *(Code.CANARY, Code.WEIGHTS_MISSING, Code.INTERNAL),
    }
)
PAUSE_S = 1.0  # before a job that failed is sent again


class Watcher(Protocol):
    """Told of every document how far it is; each call may come often."""

    def found(self, name: str, pages: int | None, jobs: int) -> None: ...

    def moved(self, name: str, pages_done: int, phase: str) -> None: ...

    def ended(self, ended: Ended) -> None: ...


@dataclass(frozen=True)
class Ended:
    """How one document ended: its result as the worker told it, and what all its jobs took.

    `seconds` are those of the engine where the worker tells them, else those of the jobs; `pages_now` were read now
    and not found.
    """

    name: str
    pages: int | None
    jobs: int
    seconds: float = 0.0
    cost: float | None = None
    pages_now: int = 0
    result: Mapping[str, Any] = field(default_factory=dict)
    problems: tuple[Mapping[str, Any], ...] = ()
    error: str | None = None

    @property
    def status(self) -> str:
        return str(self.result.get("status", "failure"))


@dataclass(frozen=True)
class Plan:
    """How documents become jobs. `fields` go into every job; `price` is that of a worker's second."""

    fields: Mapping[str, Any]
    endpoint: str
    slice_pages: int = 100
    in_flight: int = 16
    tries: int = 4
    poll_s: float = 2.0
    price: float | None = None

    def slices(self, pages: int | None) -> list[str]:
        """Ranges of so many pages each, of those that are asked for; none where one job does it all."""
        if not self.slice_pages or pages is None or self.fields.get("resume") is False:
            return []
        asked = self.fields.get("pages")
        wanted = PageRange.parse(asked).select(pages) if asked else tuple(range(1, pages + 1))
        parts = [wanted[at : at + self.slice_pages] for at in range(0, len(wanted), self.slice_pages)]
        return [f"{part[0]}-{part[-1]}" for part in parts] if len(parts) > 1 else []

    def selected(self, pages: int | None) -> int | None:
        asked = self.fields.get("pages")
        return len(PageRange.parse(asked).select(pages)) if asked and pages is not None else pages

    def job(self, ready: Ready, part: str | None = None) -> dict[str, Any]:
        return {**self.fields, "source": ready.source, **({"slice": part} if part else {})}


@dataclass(frozen=True)
class _Told:
    """The end of one job, as far as it is kept: what `Ended` sums up."""

    output: Mapping[str, Any]
    error: str | None
    seconds: float
    cost: float | None
    pages_now: int = 0

    @property
    def document(self) -> Mapping[str, Any]:
        documents = self.body.get("documents")
        return documents[0] if isinstance(documents, list) and documents else {}

    @property
    def body(self) -> Mapping[str, Any]:
        """The result; a failed job has it as `detail`."""
        inner = self.output.get("detail")
        return inner if isinstance(inner, dict) else self.output

    def and_then(self, later: _Told) -> _Told:
        """The later try, with what both took; a try that told nothing leaves what was told before."""
        costs = [one.cost for one in (self, later) if one.cost is not None]
        return replace(
            later,
            output=later.output if later.document else self.output or later.output,
            seconds=self.seconds + later.seconds,
            cost=sum(costs) if costs else None,
            pages_now=self.pages_now + later.pages_now,
        )

    @property
    def unread(self) -> int:
        return int(self.document.get("pages", {}).get("unread", 0))


class Campaign:
    """Reads documents through one endpoint. What was sent and has ended is in the ledger, and not sent again."""

    def __init__(self, endpoint: Endpoint, inbox: Inbox, ledger: Ledger, plan: Plan, watcher: Watcher) -> None:
        self._endpoint, self._inbox, self._ledger = endpoint, inbox, ledger
        self._plan, self._watcher = plan, watcher
        self._places = asyncio.Semaphore(plan.in_flight)

    async def run(self, items: Sequence[Item]) -> list[Ended]:
        """Every item's end, in their order. Raises EndpointError when the endpoint takes no more."""
        documents = asyncio.Semaphore(self._plan.in_flight)  # the next is counted and uploaded when one has ended

        async def one(item: Item) -> Ended:
            async with documents:
                ended = await self._attempted(item)
                self._watcher.ended(ended)
                return ended

        tasks = [asyncio.create_task(one(item)) for item in items]
        try:
            return await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _attempted(self, item: Item) -> Ended:
        try:
            return await self._document(item)
        except EndpointError:
            raise
        except TwopassError as error:
            return Ended(item.name, None, 0, error=str(error))

    async def _document(self, item: Item) -> Ended:
        ready = await self._inbox.ready(item)
        parts = self._plan.slices(ready.pages)
        pages = self._plan.selected(ready.pages)
        self._watcher.found(item.name, pages, len(parts) + 1)
        done: dict[str | None, int] = {}

        def moved(part: str | None, told: Mapping[str, Any]) -> None:
            done[part] = max(done.get(part, 0), int(told.get("pages_done", 0)))
            # The last job finds what the slices read: it counts again, and counts alone once it is ahead.
            count = max(done.get(None, 0), sum(count for part, count in done.items() if part))
            self._watcher.moved(item.name, count, str(told.get("phase", "")))

        async with task_group.group() as group:
            slices = [group.create_task(self._job(ready, part, moved)) for part in parts]
        last = await self._job(ready, None, moved)  # what a slice lost, this one reads
        return self._ended(item, pages, [*(one.result() for one in slices), last])

    def _ended(self, item: Item, pages: int | None, told: Sequence[_Told]) -> Ended:
        last = told[-1]
        costs = [one.cost for one in told if one.cost is not None]
        counts = last.document.get("pages", {})
        return Ended(
            name=item.name,
            pages=sum(counts.values()) if counts else pages,
            jobs=len(told),
            seconds=round(sum(one.seconds for one in told), 3),
            cost=round(sum(costs), 9) if costs else None,
            pages_now=sum(one.pages_now for one in told),
            result=last.document,
            problems=tuple(last.body.get("problems", ())),
            error=last.error,
        )

    async def _job(self, ready: Ready, part: str | None, moved: Any) -> _Told:
        """One job to its end, sent again where that may help; its error is JOB_LOST when it never does."""
        job = self._plan.job(ready, part)
        key = Ledger.key(self._plan.endpoint, ready.sha256, {**job, "source": ready.source[:4096]})
        if kept := self._ledger.ended(key):
            return _Told(kept["output"], kept["error"], 0.0, None)
        left, lost = self._plan.tries, "never sent"
        spent = _Told({}, None, 0.0, None)  # on all tries; what the last one told
        while left:
            async with self._places:
                seen = await self._watched(key, job, lambda told: moved(part, told))
            told = self._told(seen)
            spent = spent.and_then(told)
            lost = told.error or f"{told.unread} pages unread"
            again = seen.phase is Phase.GONE or _is_worth_another_try(told)
            hopeless = left == 1 and seen.phase is Phase.ENDED and not told.pages_now
            if not again or hopeless:
                if told.body.get("status") == "success":  # anything less may end better another day
                    self._ledger.end(key, {"output": _kept(told.output), "error": None})
                return spent
            log.warning("job sent again", document=shown(ready.source)[:200], slice=part, reason=lost[:200])
            left -= 0 if told.pages_now else 1  # a job that came further has not failed
            await asyncio.sleep(PAUSE_S)
        never = EndpointError(Code.JOB_LOST, f"{lost}, {self._plan.tries} times")
        return replace(spent, error=str(never))

    async def _watched(self, key: str, job: Mapping[str, Any], moved: Any) -> Seen:
        """Sent, unless an earlier run sent it, and looked at until it ends."""
        job_id = self._ledger.sent(key)
        if job_id is None:
            job_id = await self._endpoint.submit(job)
            self._ledger.send(key, job_id)
        while True:
            seen = await self._endpoint.look(job_id)
            if seen.phase in (Phase.ENDED, Phase.GONE):
                self._ledger.forget(key)
                return seen
            moved(seen.output if isinstance(seen.output, dict) else {"phase": str(seen.phase)})
            await asyncio.sleep(self._plan.poll_s)

    def _told(self, seen: Seen) -> _Told:
        output = seen.output if isinstance(seen.output, dict) else {}
        told = _Told(output, seen.error, seen.seconds or 0.0, None)
        usage = told.body.get("usage", {})
        seconds = usage.get("engine_s") or told.seconds
        price = self._plan.price
        cost = usage.get("cost") or (None if price is None else seconds * price)
        return replace(told, seconds=seconds, cost=cost, pages_now=int(usage.get("pages_read_now", 0)))


def _is_worth_another_try(told: _Told) -> bool:
    if told.error is None:
        return told.unread > 0
    return told.unread > 0 or told.error.partition(":")[0] in AGAIN


def _kept(output: Mapping[str, Any]) -> dict[str, Any]:
    """The output as the ledger keeps it: artefacts that came inline are files by then."""
    documents = output.get("documents")
    if not isinstance(documents, list):
        return dict(output)
    return {**output, "documents": [{n: v for n, v in one.items() if n != "inline"} for one in documents]}
