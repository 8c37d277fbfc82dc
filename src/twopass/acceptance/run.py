"""The acceptance run: what it is asked to do, and its stages in order, until one fails.

The engine is opened once for the stages (a) to (d); stock vLLM runs after it was closed, because both together may not
fit into the GPU's memory. So the answers of our engine are all collected before the first of them is judged. The
stages (e) and (f) read more documents, with workers in processes of their own.
"""

from __future__ import annotations

import asyncio
import math
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from itertools import chain, count
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory

from twopass.acceptance import (
    drawn_pages,
    greedy_tokens,
    model_files,
    rates,
    recorded_answers,
    records,
    reference,
    stock_vllm,
)
from twopass.acceptance.checks import STAGES, Check, CheckOutcome, has_failed, skip
from twopass.acceptance.drawn_pages import Picture
from twopass.acceptance.greedy_tokens import Answer, Answers, Request
from twopass.acceptance.records import Record
from twopass.acceptance.tested_models import RegionReaderModel, TestedModel, WholePageModel
from twopass.acceptance.trials import trial_documents, trial_run, tuning
from twopass.acceptance.trials.trial_run import Choice, Trial
from twopass.document import Canary
from twopass.engines import accepted, factory, gpus, structure, weights
from twopass.engines.interface import Engine
from twopass.engines.vllm import startup
from twopass.engines.vllm.arguments import choose_preset
from twopass.engines.vllm.engine import VllmEngine, launch_engines
from twopass.errors import Code, EngineError, TwopassError
from twopass.models import MODELS, Preset, Structure, find_model
from twopass.settings import Settings
from twopass.steps import canary
from twopass.version import VERSION
from twopass.worker import Worker, open_worker

_RANDOM_WEIGHTS = "random weights (LOAD_FORMAT=dummy)"
_CANARY = "canary"  # the check
NEEDS_VLLM = "needs ENGINE=vllm"
_NEEDS_MODEL = "needs an engine that runs a model: ENGINE=vllm, hf or openai"
_NEEDS_GPU = "needs a GPU: without one, speed says nothing"
# of our engine's arguments, those that stock vLLM gets too
_SHARED_ARGUMENTS = (
    "model", "dtype", "quantization", "kv_cache_dtype", "max_model_len", "max_num_seqs", "max_num_batched_tokens",
    "gpu_memory_utilization", "tensor_parallel_size", "enforce_eager", "compilation_config", "load_format",
    "limit_mm_per_prompt", "enable_prefix_caching", "mm_processor_cache_gb", "skip_mm_profiling", "block_size",
    "num_gpu_blocks_override", "attention_backend", "mm_encoder_attn_backend",
)  # fmt: skip
# vLLM's counters
PREEMPTIONS = "vllm:num_preemptions_total"
DRAFT_TOKENS = "vllm:spec_decode_num_draft_tokens_total"
_ACCEPTED_TOKENS = "vllm:spec_decode_num_accepted_tokens_total"


@dataclass(frozen=True)
class RequestCounts:
    """How many requests stage (c) makes at once, and how many of them also one at a time.

    `block_tokens` are the tokens of a block of the KV cache, `max_tokens` those of an answer.
    """

    together: int
    alone: int
    block_tokens: int
    max_tokens: int


_ON_GPU, _ON_CPU = RequestCounts(96, 16, 16, 256), RequestCounts(6, 2, 128, 32)


@dataclass(frozen=True)
class Plan:
    """What to run: `report` gets the checks of each stage as soon as it ends.

    `records` are compared with; to `recording`, if a folder is named, the answers to the pictures are written.
    `tune` and `rates` ask for the stages (e) and (f), which also read the documents below `files`, if a folder is
    named; with `artefacts`, the rates are those of that folder. `announce` gets lines about what the stages are doing.
    """

    settings: Settings
    report: Callable[[Sequence[Check]], None] = lambda checks: None
    pictures: Sequence[Picture] = field(default_factory=drawn_pages.draw_pictures)
    records: Sequence[Record] = ()
    recording: Path | None = None
    counts: RequestCounts = field(default_factory=lambda: _ON_GPU if gpus.detect_gpus().count else _ON_CPU)
    tune: bool = False
    rates: bool = False
    files: Path | None = None
    artefacts: Path | None = None
    announce: Callable[[str], None] = lambda line: None

    @property
    def is_random(self) -> bool:
        return self.settings.load_format == "dummy"

    @property
    def family(self) -> str:
        return self.settings.openai_family if self.settings.engine == "openai" else self.settings.model

    @property
    def reads_regions(self) -> bool:
        """Whether the model reads single regions, so that it has no answers about pages that could be recorded."""
        return self.family in MODELS and MODELS[self.family].reads_regions

    @property
    def usable_records(self) -> list[Record]:
        """The records of the model that is tested."""
        repo = MODELS[self.family].weights.repo if self.family in MODELS else None
        return [record for record in self.records if record.model == repo and not self.is_random]


def run(plan: Plan) -> list[Check]:
    """Run the stages until one fails, and return all checks; raises EngineError if an engine does not start.

    If none fails and the model has read the canary, that is recorded: from then on, workers that misread it are broken.
    """
    checks: list[Check] = []
    # Rates of a folder that is there need no model.
    run_model = _run_vllm if plan.settings.engine == "vllm" else _run_other_engine
    stages = () if plan.artefacts and not plan.tune else run_model(plan)
    for stage in chain(stages, _run_optional_stages(plan)):
        plan.report(stage)
        checks += stage
        if has_failed(stage):
            break
    else:
        _record_pass(plan, checks)
    return checks


def _record_pass(plan: Plan, checks: Sequence[Check]) -> None:
    """Keep that nothing failed, if the model was seen to read: random weights were not."""
    if any(check.name == _CANARY and check.outcome is CheckOutcome.PASSED for check in checks):
        files = ", ".join(map(str, accepted.record(plan.settings)))
        kept = f"recorded in {files}; workers with these weights and versions do not serve if they misread the canary"
        plan.announce(kept if files else "not recorded, because no folder may be written: set CANARY=enforce")


def _choose_model(name: str) -> TestedModel:
    """What the stages know of a model."""
    return RegionReaderModel(name) if find_model(name).reads_regions else WholePageModel(name)


def _run_other_engine(plan: Plan) -> Iterator[list[Check]]:
    """Only answers can be compared where this process does not run the model with vLLM."""
    if plan.settings.engine == "cpu":
        yield [skip(stage, STAGES[stage], _NEEDS_MODEL) for stage in "abcd"]
        return
    yield [skip(stage, STAGES[stage], NEEDS_VLLM) for stage in "abc"]
    with open_worker(plan.settings.model_copy(update={"canary": False})) as worker:
        yield worker.submit(_check_recorded_answers(plan, worker)).result()


def _run_vllm(plan: Plan) -> Iterator[list[Check]]:
    """The stages (a) to (d); raises EngineError if an engine does not start."""
    if not find_spec("vllm"):
        message = "stages (a) to (c) need vllm, which is not installed: make gpu, or use the container image"
        raise EngineError(Code.ENGINE_DEAD, message)
    folder, model = weights.find(plan.settings), _choose_model(plan.settings.model)
    gpu = startup.prepare_environment(plan.settings.engine_cache)
    # In a process of its own: PyTorch starts threads, and the engine's core is forked from this process.
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        yield pool.submit(_check_files, plan.settings.model, folder, plan.is_random, plan.usable_records).result()
        images = [*plan.pictures, *_list_images(plan.usable_records)]
        inputs = pool.submit(_check_inputs, plan.settings.model, folder, images, plan.usable_records).result()
    if has_failed(inputs):
        yield inputs
        return
    counts = plan.counts
    sampling = replace(model.sampling, max_tokens=counts.max_tokens)
    requests = greedy_tokens.build_requests(model.prompts, plan.pictures, counts.together, sampling)
    preset = choose_preset(plan.settings, gpu.memory_gb)
    blocks = _count_blocks(model, plan.settings, preset, requests, counts)
    with _open_worker(model, plan, folder, blocks) as (worker, engine):
        yield [*inputs, *worker.submit(model.check_embeddings(engine, images)).result()]
        alone = worker.submit(_ask(model, engine, requests[: counts.alone], at_once=False)).result()
        drafted = greedy_tokens.add_drafts(requests, alone)
        together = worker.submit(_ask(model, engine, drafted, at_once=True)).result()
        ours = Answers(
            alone,
            together,
            _count(PREEMPTIONS),
            uses_drafts=engine.uses_drafts,
            drafted=_count(DRAFT_TOKENS),
            accepted=_count(_ACCEPTED_TOKENS),
        )
        answers = worker.submit(_check_recorded_answers(plan, worker)).result()
        arguments = {name: engine.core.arguments[name] for name in _SHARED_ARGUMENTS if name in engine.core.arguments}
    stock = stock_vllm.ask(arguments, requests, counts.alone, model.build_stock_input)
    yield greedy_tokens.check_answers(requests, ours, stock)
    yield answers


async def _check_recorded_answers(plan: Plan, worker: Worker) -> list[Check]:
    """Stage (d); keeps the answers to the pictures if asked to."""
    if plan.recording:
        await _record(plan.recording, plan, worker.engine)
    if plan.is_random:
        return [skip("d", name, _RANDOM_WEIGHTS) for name in (_CANARY, "recorded answers")]
    canary_check = await _check_canary(worker, plan.settings)
    if not plan.usable_records:
        made = "answers about single regions are not recorded" if plan.reads_regions else "make some with --record"
        reason = f"no record is of {plan.settings.model}: {made}"
        return [canary_check, skip("d", "recorded answers", reason)]
    try:
        return [canary_check, *await recorded_answers.compare(plan.usable_records, worker.engine.generate)]
    except EngineError as error:
        return [canary_check, Check("d", "recorded answers", CheckOutcome.FAILED, "no answer", meaning=error.message)]


async def _check_canary(worker: Worker, settings: Settings) -> Check:
    """Read the pictures that every worker reads when it starts, whose text, table and boxes are known."""
    try:
        enforced = settings.model_copy(update={"canary": settings.canary and "enforce"})
        verdict = await canary.check(worker.engine, worker.family, worker.page_pool, enforced)
    except EngineError as error:
        return Check("d", _CANARY, CheckOutcome.FAILED, "not as drawn", "as drawn", error.message)
    if verdict is not Canary.PASSED:
        return skip("d", _CANARY, "CANARY=false" if verdict else f"ENGINE={worker.engine.kind} runs no model")
    return Check("d", _CANARY, CheckOutcome.PASSED, "text, boxes, table and n-gram ban")


async def _record(folder: Path, plan: Plan, engine: Engine) -> None:
    model = find_model(plan.settings.model)
    made_with = f"twopass {VERSION}, {engine.kind}, {engine.precision}"
    images = drawn_pages.save_pictures(plan.pictures, folder)
    answers = await recorded_answers.record_answers(
        images, engine.generate, model.vision, model.weights.repo, model.weights.revision, made_with
    )
    records.write(folder, answers)


@contextmanager
def _open_worker(model: TestedModel, plan: Plan, folder: Path, blocks: int) -> Iterator[tuple[Worker, VllmEngine]]:
    """Open a worker whose engine has a KV cache of so many blocks and counts preemptions; yields both.

    The model is compared, not the detector: only a model that cannot read without one gets it, for its canary.
    """
    os.environ["VLLM_ALLOW_INSECURE_SERIALIZATION"] = "1"  # so that a function can be sent to vLLM's worker
    settings = plan.settings.model_copy(update={"canary": False, "structure": "auto"})
    if model.max_tiles:  # vLLM's own class cuts images into as many tiles as the model can have
        settings = settings.model_copy(update={"max_tiles": model.max_tiles})
    needs_detector = structure.choose(settings) is not Structure.MODEL and not plan.is_random
    detector = weights.find_detector(settings) if needs_detector else None
    engines: list[VllmEngine] = []

    def create_engine(settings: Settings) -> Engine:
        (engine,) = launch_engines(settings, folder, num_gpu_blocks_override=blocks, disable_log_stats=False)
        engines.append(engine)
        return factory.put_detector_first(engine, settings, detector) if detector else engine

    with open_worker(settings, create_engine=create_engine) as worker:
        yield worker, engines[0]


def _check_files(model: str, folder: Path, is_random: bool, recorded: Sequence[Record]) -> list[Check]:
    """Stage (a); runs in a child process."""
    files = [skip("a", "checksums", _RANDOM_WEIGHTS)] if is_random else model_files.check_files(model, folder)
    if has_failed(files):
        return files
    try:
        tokenizer = reference.load_tokenizer(folder)
    except Exception as error:  # the libraries raise errors of many types, some of them plain exceptions
        meaning = f"{type(error).__name__}: {error}; {model_files.WRONG_FILES}"
        return [*files, Check("a", "tokenizer", CheckOutcome.FAILED, "cannot be loaded", meaning=meaning)]
    tested = _choose_model(model)
    return [
        *files,
        *model_files.check_tokenizer(tokenizer, folder),
        *tested.check_tokens(tokenizer, folder, recorded),
    ]


def _check_inputs(model: str, folder: Path, images: Sequence[Picture], recorded: Sequence[Record]) -> list[Check]:
    """The part of stage (b) that needs no engine; runs in a child process."""
    return _choose_model(model).check_inputs(reference.load_tokenizer(folder), folder, images, recorded)


def _list_images(recorded: Sequence[Record]) -> list[Picture]:
    """The images of the records, each once."""
    return [Picture(name, record.read_image()) for name, record in {one.image: one for one in recorded}.items()]


async def _ask(model: TestedModel, engine: Engine, requests: Sequence[Request], at_once: bool) -> list[Answer]:
    limit = asyncio.Semaphore(len(requests) if at_once else 1)

    async def ask(request: Request) -> Answer:
        async with limit:
            completion = await engine.generate(model.build_prompt(request))
        return Answer(completion.text, completion.finish_reason)

    return await asyncio.gather(*map(ask, requests))


def _count_blocks(
    model: TestedModel, settings: Settings, preset: Preset, requests: Sequence[Request], counts: RequestCounts
) -> int:
    """Choose a KV cache that holds one context, and half of the requests that run at once: some are interrupted."""
    block_tokens = settings.block_size or counts.block_tokens
    running = requests[: settings.max_num_seqs or settings.engine_sequences or preset.sequences]
    needed = [
        math.ceil((model.count_image_tokens(request.image) + counts.max_tokens) / block_tokens) for request in running
    ]
    context = settings.max_model_len or find_model(settings.model).context_factor * preset.context
    return max(math.ceil(context / block_tokens) + 1, sum(needed) // 2)


def _count(metric: str) -> int:
    """A counter of vLLM's in this process; 0 if there is none."""
    from prometheus_client import REGISTRY

    samples = (sample for found in REGISTRY.collect() for sample in found.samples)
    return round(sum(sample.value for sample in samples if sample.name == metric))


def _run_optional_stages(plan: Plan) -> Iterator[list[Check]]:
    """Yield the checks of each stage that the plan asks for. No engine may be open in this process."""
    gpu, baseline = gpus.detect_gpus(), None
    with TemporaryDirectory(prefix="twopass-accept-") as name:
        folder = Path(name)
        if plan.tune and (reason := _find_obstacle(plan, gpu)):
            yield [skip("e", "choices", reason)]
        elif plan.tune:
            documents = trial_documents.prepare(folder / "documents", plan.files)
            choices = tuning.list_choices(plan.settings, gpu.memory_gb)
            read = _make_reader(plan, [document.path for document in documents], folder)
            tuned = tuning.run(documents, choices, read, plan.announce)
            baseline = tuned.baseline
            yield tuned.checks
        if plan.rates:
            try:
                yield _check_rates(plan, folder, baseline, sets=trial_documents.SETS if gpu.count else 1)
            except TwopassError as error:
                yield [Check("f", "rates", CheckOutcome.FAILED, "nothing could be counted", meaning=error.message)]


def _find_obstacle(plan: Plan, gpu: gpus.GpuInfo) -> str | None:
    """Why no settings can be compared here."""
    if plan.settings.engine != "vllm":
        return NEEDS_VLLM
    return _RANDOM_WEIGHTS if plan.is_random else None if gpu.count else _NEEDS_GPU


def _make_reader(plan: Plan, sources: Sequence[Path], folder: Path) -> Callable[[Choice], Trial]:
    numbers = count()
    return lambda choice: trial_run.read(choice, sources, plan.settings, folder / f"trial-{next(numbers)}")


def _check_rates(plan: Plan, folder: Path, baseline: Trial | None, sets: int) -> list[Check]:
    """The rates of a folder of artefacts, of the first trial of stage (e), or of a trial for this stage."""
    if plan.artefacts:
        return rates.check(trial_run.load_pages(plan.artefacts))
    if plan.settings.engine == "cpu" or plan.is_random:
        return [skip("f", "rates", _RANDOM_WEIGHTS if plan.is_random else _NEEDS_MODEL)]
    if baseline is None:
        documents = trial_documents.prepare(folder / "documents", plan.files, sets)
        pages = sum(len(document.truths) for document in documents)
        plan.announce(f"(f) reads {len(documents)} documents (at least {pages} pages)")
        baseline = _make_reader(plan, [document.path for document in documents], folder)(Choice(tuning.DEFAULTS))
    return rates.check(baseline.pages)
