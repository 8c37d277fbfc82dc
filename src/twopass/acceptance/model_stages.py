"""Stages (a) to (d): files, image input, tokens and answers of the model.

The engine is opened once; stock vLLM runs after it was closed, because both together may not fit into the GPU's
memory. So the answers of our engine are all collected before the first of them is judged.
"""

from __future__ import annotations

import asyncio
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from importlib.util import find_spec
from multiprocessing import get_context
from pathlib import Path

from twopass import __version__
from twopass.acceptance import (
    greedy_requests,
    greedy_tokens,
    model_files,
    pictures,
    recorded_answers,
    records,
    reference,
    stock_vllm,
    vision_inputs,
)
from twopass.acceptance.checks import STAGES, Check, Outcome, has_failed, skip
from twopass.acceptance.greedy_requests import Answer, Answers, Request
from twopass.acceptance.pictures import Picture
from twopass.acceptance.plan import NEEDS_MODEL, NEEDS_VLLM, RANDOM_WEIGHTS, Plan, RequestCounts
from twopass.acceptance.records import Record
from twopass.acceptance.vision_inputs import Agreement, RecordedInput
from twopass.document import Canary
from twopass.engines import weights
from twopass.engines.interface import Engine, Prompt
from twopass.engines.vllm import startup
from twopass.engines.vllm.engine import VISION_SPECS, VllmEngine, choose_context
from twopass.engines.vllm.tiling import TileGrid
from twopass.errors import Code, EngineError
from twopass.families.interface import PageFeatures, PageRequest
from twopass.families.registry import FAMILIES
from twopass.pages import canary_images
from twopass.settings import Preset, Settings, find_preset
from twopass.steps import canary
from twopass.worker import Worker, open_worker


def _list_prompts(model: str) -> list[str]:
    """The prompts with which the model reads whole pages."""
    ladder = FAMILIES[model].ladder(PageFeatures(*canary_images.PAGE_SIZE), PageRequest())
    return list(dict.fromkeys(rung.prompt for rung in ladder))


PROMPTS: Mapping[str, Sequence[str]] = {model: _list_prompts(model) for model in VISION_SPECS}
# of our engine's arguments, those that stock vLLM gets too
SHARED_ARGUMENTS = (
    "model", "dtype", "quantization", "kv_cache_dtype", "max_model_len", "max_num_seqs", "max_num_batched_tokens",
    "gpu_memory_utilization", "tensor_parallel_size", "enforce_eager", "compilation_config", "load_format",
    "limit_mm_per_prompt", "enable_prefix_caching", "mm_processor_cache_gb", "skip_mm_profiling", "block_size",
    "num_gpu_blocks_override", "attention_backend", "mm_encoder_attn_backend",
)  # fmt: skip


def run(plan: Plan) -> Iterator[list[Check]]:
    """Yield the checks of each stage as soon as it ends. Raises EngineError if an engine does not start."""
    return _run_stages(plan) if plan.settings.engine == "vllm" else _run_other_engine(plan)


def _run_other_engine(plan: Plan) -> Iterator[list[Check]]:
    """Only answers can be compared where this process does not run the model with vLLM."""
    if plan.settings.engine == "cpu":
        yield [skip(stage, STAGES[stage], NEEDS_MODEL) for stage in "abcd"]
        return
    yield [skip(stage, STAGES[stage], NEEDS_VLLM) for stage in "abc"]
    with open_worker(plan.settings.model_copy(update={"canary": False})) as worker:
        yield worker.submit(_check_recorded_answers(plan, worker)).result()


def _run_stages(plan: Plan) -> Iterator[list[Check]]:
    if not find_spec("vllm"):
        message = "stages (a) to (c) need vllm, which is not installed: make gpu, or use the container image"
        raise EngineError(Code.ENGINE_DEAD, message)
    folder, model = weights.find(plan.settings), plan.settings.model
    gpu = startup.prepare_environment(plan.settings.engine_cache)
    # In a process of its own: PyTorch starts threads, and the engine's core is forked from this process.
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        yield pool.submit(_check_files, model, folder, plan.is_random, plan.usable_records).result()
        images = [*plan.pictures, *_list_images(plan.usable_records)]
        views = pool.submit(_check_inputs, model, folder, images, plan.usable_records).result()
    if has_failed(views):
        yield views
        return
    counts = plan.counts
    requests = greedy_requests.build_requests(PROMPTS[model], plan.pictures, counts.together, counts.max_tokens)
    preset = find_preset(plan.settings.preset, gpu.memory_gb)
    with _open_worker(plan.settings, folder, _count_blocks(plan.settings, preset, requests, counts)) as worker:
        engine = worker.engine
        assert isinstance(engine, VllmEngine)
        yield [*views, *worker.submit(_check_embeddings(engine, model, images)).result()]
        alone = worker.submit(_ask(engine, requests[: counts.alone], at_once=False)).result()
        together = worker.submit(_ask(engine, requests, at_once=True)).result()
        ours = Answers(alone, together, _count_preemptions())
        answers = worker.submit(_check_recorded_answers(plan, worker)).result()
        arguments = {name: engine.arguments[name] for name in SHARED_ARGUMENTS if name in engine.arguments}
    yield greedy_tokens.check_answers(requests, ours, stock_vllm.ask(arguments, requests, counts.alone))
    yield answers


async def _check_recorded_answers(plan: Plan, worker: Worker) -> list[Check]:
    """Stage (d); keeps the answers to the pictures if asked to."""
    if plan.recording:
        await _record(plan.recording, plan, worker.engine)
    if plan.is_random:
        return [skip("d", name, RANDOM_WEIGHTS) for name in ("canary", "recorded answers")]
    canary_check = await _check_canary(worker, plan.settings)
    if not plan.usable_records:
        reason = f"no record is of {plan.settings.model}: make some with --record"
        return [canary_check, skip("d", "recorded answers", reason)]
    try:
        return [canary_check, *await recorded_answers.compare(plan.usable_records, worker.engine.generate)]
    except EngineError as error:
        return [canary_check, Check("d", "recorded answers", Outcome.FAILED, "no answer", meaning=error.message)]


async def _check_canary(worker: Worker, settings: Settings) -> Check:
    """Read the pictures that every worker reads when it starts, whose text, table and boxes are known."""
    try:
        verdict = await canary.check(worker.engine, worker.family, worker.page_pool, settings)
    except EngineError as error:
        return Check("d", "canary", Outcome.FAILED, "not as drawn", "as drawn", error.message)
    if verdict is not Canary.PASSED:
        return skip("d", "canary", "CANARY=false" if verdict else f"ENGINE={worker.engine.kind} runs no model")
    return Check("d", "canary", Outcome.PASSED, "text, boxes, table and n-gram ban")


async def _record(folder: Path, plan: Plan, engine: Engine) -> None:
    pinned = weights.look_up(plan.settings.model)
    made_with = f"twopass {__version__}, {engine.kind}, {engine.precision}"
    images = pictures.save(plan.pictures, folder)
    answers = await recorded_answers.record_answers(
        images, engine.generate, VISION_SPECS[plan.settings.model], pinned.repo, pinned.revision, made_with
    )
    records.write(folder, answers)


@contextmanager
def _open_worker(settings: Settings, folder: Path, blocks: int) -> Iterator[Worker]:
    """Open a worker whose engine has a KV cache of so many blocks and counts preemptions."""
    os.environ["VLLM_ALLOW_INSECURE_SERIALIZATION"] = "1"  # so that a function can be sent to vLLM's worker

    def create_engine(settings: Settings) -> Engine:
        return VllmEngine(settings, folder, num_gpu_blocks_override=blocks, disable_log_stats=False)

    # vLLM's own class cuts images into as many tiles as the model can have; the model is compared, not the detector
    model = {"max_tiles": reference.MAX_CROPS[settings.model], "structure": "auto"}
    settings = settings.model_copy(update={"canary": False, **model})
    with open_worker(settings, create_engine=create_engine) as worker:
        yield worker


def _check_files(model: str, folder: Path, is_random: bool, recorded: Sequence[Record]) -> list[Check]:
    """Stage (a); runs in a child process."""
    files = [skip("a", "checksums", RANDOM_WEIGHTS)] if is_random else model_files.check_files(model, folder)
    if has_failed(files):
        return files
    try:
        tokenizer = reference.load_tokenizer(folder)
    except Exception as error:  # the libraries raise errors of many types, some of them plain exceptions
        meaning = f"{type(error).__name__}: {error}; {model_files.WRONG_FILES}"
        return [*files, Check("a", "tokenizer", Outcome.FAILED, "cannot be loaded", meaning=meaning)]
    return [
        *files,
        *model_files.check_tokenizer(tokenizer, folder),
        *model_files.check_prompts(tokenizer, folder, PROMPTS[model]),
        *model_files.check_prompt_lengths(
            tokenizer, [(one.prompt, one.prompt_tokens - one.image_tokens) for one in recorded if one.prompt_tokens]
        ),
    ]


def _check_inputs(model: str, folder: Path, images: Sequence[Picture], recorded: Sequence[Record]) -> list[Check]:
    """The part of stage (b) that needs no engine; runs in a child process."""
    inputs = {
        one.image: RecordedInput(one.image, one.width, one.height, TileGrid(one.columns, one.rows), one.image_tokens)
        for one in recorded
    }
    views = vision_inputs.check_views(model, reference.load_tokenizer(folder), PROMPTS[model][0], images)
    return [*vision_inputs.check_recorded_inputs(model, inputs.values()), *views]


def _list_images(recorded: Sequence[Record]) -> list[Picture]:
    """The images of the records, each once."""
    return [Picture(name, record.read_image()) for name, record in {one.image: one for one in recorded}.items()]


async def _check_embeddings(engine: VllmEngine, model: str, images: Sequence[Picture]) -> list[Check]:
    async def compare(picture: Picture) -> Agreement:
        image = picture.image
        arguments = (model, image.width, image.height, image.array().tobytes())
        try:
            found, *_ = await engine.core.collective_rpc(vision_inputs.compare_in_worker, args=arguments)
        except Exception as error:  # vLLM raises a plain Exception for whatever fails in its worker
            return Agreement(error=f"{type(error).__name__}: {error}")
        return Agreement(*found)

    return await vision_inputs.check_embeddings(images, compare)


async def _ask(engine: Engine, requests: Sequence[Request], at_once: bool) -> list[Answer]:
    limit = asyncio.Semaphore(len(requests) if at_once else 1)

    async def ask(request: Request) -> Answer:
        prompt = Prompt(
            request.name,
            request.prompt,
            request.image,
            mode=reference.MODE,
            max_crops=reference.MAX_CROPS[engine.family],
            sampling=request.sampling,
        )
        async with limit:
            completion = await engine.generate(prompt)
        return Answer(completion.text, completion.finish_reason)

    return await asyncio.gather(*map(ask, requests))


def _count_blocks(settings: Settings, preset: Preset, requests: Sequence[Request], counts: RequestCounts) -> int:
    """Choose a KV cache that holds one context, and half of the requests that run at once: some are interrupted."""
    spec, block_tokens = VISION_SPECS[settings.model], settings.block_size or counts.block_tokens

    def count(request: Request) -> int:
        image = request.image
        grid = spec.choose_grid(image.width, image.height, reference.MODE, reference.MAX_CROPS[settings.model])
        tokens = spec.count_tokens(reference.MODE, grid) + counts.max_tokens
        return math.ceil(tokens / block_tokens)

    running = requests[: settings.max_num_seqs or settings.engine_sequences or preset.sequences]
    context = settings.max_model_len or choose_context(settings.model, preset.context)
    return max(math.ceil(context / block_tokens) + 1, sum(map(count, running)) // 2)


def _count_preemptions() -> int:
    """How often vLLM's scheduler in this process's engine has interrupted a request."""
    from prometheus_client import REGISTRY

    samples = (sample for metric in REGISTRY.collect() for sample in metric.samples)
    return round(sum(sample.value for sample in samples if sample.name == "vllm:num_preemptions_total"))
