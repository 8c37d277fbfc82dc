"""Send documents to an endpoint and wait for them: what `twopass submit` and `twopass.submit` share."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import structlog

from twopass import locations
from twopass.errors import Code, InvalidJob, InvalidSetting, SourceError
from twopass.fleet.campaign import Campaign, CampaignListener, DocumentOutcome, Plan
from twopass.fleet.discovery import DocumentPreparer, DocumentRef, open_page_counter
from twopass.fleet.endpoints.ray_cluster import RayCluster, RayOptions
from twopass.fleet.endpoints.runpod import LocalApi, RunPod
from twopass.fleet.ledger import Ledger, lock
from twopass.job import EntryPoint, Inline, Job
from twopass.settings import Settings
from twopass.storage.outputs import create_store
from twopass.storage.sources import Sources, open_sources

log = structlog.get_logger()

_STATE = "state.jsonl"
GRACE_S = 60.0  # from the job's own deadline to the moment at which RunPod ends the job
_MAX_DOWNLOADS = 4  # concurrent, of artefacts
_FILE_NAMES = {Inline.MARKDOWN: "document.md", Inline.DOCJSON: "document.json"}


@dataclass(frozen=True)
class Submission:
    """Where documents are sent, and how: to a RunPod `endpoint`, a `local` API or `ray`; none if nothing is sent.

    `folder` holds the state for a repeated call; `save` fetches every artefact into it. `job` has more fields of each
    job. `price_per_hour` and `max_cost` are in dollars.
    """

    folder: Path
    endpoint: str | None = None
    local: str | None = None
    ray: RayOptions | None = None
    api_key: str | None = field(default=None, repr=False)
    output: str | None = None
    upload: str | None = None
    save: bool = False
    job: Mapping[str, Any] = field(default_factory=dict)
    slice_pages: int = Plan.slice_pages
    in_flight: int = Plan.in_flight
    tries: int = Plan.attempts
    poll_s: float = Plan.poll_s
    price_per_hour: float | None = None
    max_runs: int = Plan.max_runs
    max_cost: float | None = None

    @property
    def state_file(self) -> Path:
        return self.folder / _STATE

    @property
    def results(self) -> tuple[str, ...]:
        """Where results are, in which no documents are looked for."""
        return (str(self.folder), *((self.output,) if self.output else ()))

    @property
    def job_fields(self) -> dict[str, Any]:
        """The fields of every job."""
        # The worker's current folder is another one.
        return {**self.job, **({"output": locations.absolute(self.output)} if self.output else {})}

    @property
    def plan(self) -> Plan:
        price = None if self.price_per_hour is None else self.price_per_hour / 3600
        # Ray's address is left out: what was read counts in another cluster, too.
        where = self.endpoint or self.local or ("ray" if self.ray else "")
        return Plan(
            fields=self.job_fields,
            endpoint=where,
            slice_pages=self.slice_pages,
            in_flight=self.in_flight,
            attempts=self.tries,
            poll_s=self.poll_s,
            price=price,
            outlives_command=bool(self.endpoint),
            max_runs=self.max_runs,
            max_cost=self.max_cost,
        )

    def check(self, settings: Settings) -> None:
        """Raise InvalidJob or InvalidSetting for wrong fields, before pages are counted or anything is sent."""
        if self.ray:
            self.ray.check()
        if self.ray and not (self.output or settings.default_output):
            message = "--output: needed with --ray; name s3://bucket/prefix/ or a folder that all nodes see"
            raise InvalidJob(Code.OUTPUT_MISSING, message)
        self._check_money()
        if "idempotency_key" in self.job:
            message = "idempotency_key: leave it out, because each job gets a key of its own"
            raise InvalidJob(Code.INVALID_JOB, message)
        Job.parse({"input": {**self.job_fields, "source": "any"}}, settings, EntryPoint.LOCAL)

    def _check_money(self) -> None:
        if self.max_cost is not None and not self.price_per_hour:
            message = "--max-cost: set --price-per-hour, too; without a worker's price nothing is known of the cost"
            raise InvalidSetting(Code.INVALID_SETTING, message)

    def open_endpoint(self, settings: Settings) -> AbstractAsyncContextManager[RunPod | LocalApi | RayCluster]:
        if self.ray:
            return RayCluster(self.ray, settings)
        if self.local:
            return LocalApi(self.local)
        deadline_s = float(self.job.get("deadline_s") or Settings.model_fields["deadline_s"].default)
        return RunPod(self.endpoint or "", self.api_key, deadline_s + GRACE_S)


async def _open_preparer(
    submission: Submission, settings: Settings, stack: AsyncExitStack, ledger: Ledger | None, *, counts_pages: bool
) -> DocumentPreparer:
    """Open what makes documents available to workers; what it counts is remembered in the ledger."""
    password = submission.job.get("password")
    counter = await stack.enter_async_context(open_page_counter(settings, password)) if counts_pages else None
    # The nodes of a Ray cluster see this machine's files unless these are uploaded.
    shares_files = bool(submission.local or (submission.ray and not submission.upload))
    upload = submission.upload or (f"{settings.default_output}in/" if settings.default_output else None)
    if upload is None or shares_files:
        return DocumentPreparer(counter, None, shares_files, ledger)
    store = create_store(upload, settings, None)
    stack.push_async_callback(store.close)
    return DocumentPreparer(counter, store, ledger=ledger)


async def send(
    documents: Sequence[DocumentRef], submission: Submission, settings: Settings, listener: CampaignListener
) -> None:
    """Read the documents with the endpoint's workers; the listener gets each outcome. Raises EndpointError.

    Raises InvalidSetting if another command uses the folder.
    """
    async with AsyncExitStack() as stack:
        stack.enter_context(lock(submission.folder))
        ledger, counts_pages = Ledger(submission.state_file), bool(submission.slice_pages)
        preparer = await _open_preparer(submission, settings, stack, ledger, counts_pages=counts_pages)
        endpoint = await stack.enter_async_context(submission.open_endpoint(settings))
        sources = await stack.enter_async_context(open_sources(settings)) if submission.save else None
        saver = ResultSaver(listener, submission.folder, sources)
        await Campaign(endpoint, preparer, ledger, submission.plan, saver).run(documents)


class ResultSaver:
    """Saves the artefacts of documents that end in a folder, and passes all events on to the next listener.

    Inline artefacts are always saved, because no other copy exists. Without `sources` the others are not downloaded.
    """

    def __init__(self, listener: CampaignListener, folder: Path, sources: Sources | None) -> None:
        self._listener, self._folder, self._sources = listener, folder, sources
        self._slots = asyncio.Semaphore(_MAX_DOWNLOADS)

    def document_started(self, name: str, pages: int | None, jobs: int) -> None:
        self._listener.document_started(name, pages, jobs)

    def document_progressed(self, name: str, pages_done: int, phase: str) -> None:
        self._listener.document_progressed(name, pages_done, phase)

    def pages_found(self, name: str, pages: int) -> None:
        self._listener.pages_found(name, pages)

    async def document_ended(self, outcome: DocumentOutcome) -> None:
        if outcome.result.get("id"):
            try:
                await self._save(outcome)
            except OSError as error:  # the document was read all the same; the summary says where its artefacts are
                log.warning("artefacts not saved", document=outcome.name, reason=error.strerror)
        await self._listener.document_ended(outcome)

    async def _save(self, outcome: DocumentOutcome) -> None:
        folder = self._folder / Path(str(outcome.result["id"])).name
        inline = outcome.result.get("inline", {})
        for name in [name for name in _FILE_NAMES if name in inline]:
            folder.mkdir(parents=True, exist_ok=True)
            text = inline[name] if isinstance(inline[name], str) else json.dumps(inline[name], ensure_ascii=False)
            (folder / _FILE_NAMES[name]).write_text(text)
        if self._sources is None:
            return
        for name, artefact in outcome.result.get("artefacts", {}).items():
            folder.mkdir(parents=True, exist_ok=True)
            async with self._slots:
                try:
                    await self._sources.fetch(artefact["uri"], folder / Path(name).name)
                except SourceError as error:
                    log.warning("artefact not saved", uri=artefact["uri"], code=error.code, reason=error.message)
