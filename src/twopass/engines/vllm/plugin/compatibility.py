"""What the plugin replaces in vLLM or relies on beyond its public interfaces, and whether it is in the installed vLLM.

vLLM's files are searched and not imported: importing its runner may initialise CUDA before vLLM has chosen its devices.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from twopass.models import MODELS as MODEL_ROWS

# The table below was written for these; requirements/ and the Dockerfile pin them. No later vLLM exists for CPUs.
GPU_VLLM, CPU_VLLM = "0.33.0", "0.32.0"
HASH_DIGITS = 12

_Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef

# Parts of the plugin. Without the first two, there is no engine; the others can be replaced by vLLM's own code.
MODELS, START = "models", "start"
SCHEDULER, WORKER, DRAFTS, BAN, RESTARTS = "scheduler", "worker", "drafts", "ngram_ban", "restarts"
DECODE_GRAPHS, DECODE_STEPS, MEMORY, WINDOWS = "decode_graphs", "decode_steps", "memory", "windows"
REQUIRED = (MODELS, START)
INSTEAD: Mapping[str, str] = {
    SCHEDULER: "vLLM's scheduler: prompts enter one at a time, every token is a message, answers are not drafted",
    WORKER: "vLLM's worker: the start is not timed or repeated without CUDA graphs, and answers are not drafted",
    DRAFTS: "no speculative decoding",
    RESTARTS: "a core that replaces a dead one imports vLLM again, which takes twice as long",
    DECODE_GRAPHS: "CUDA graphs for any step: answers without drafts take longer while drafts are on",
    DECODE_STEPS: "vLLM's own passes over all requests: a step with hundreds of answers takes milliseconds longer",
    MEMORY: "vLLM's measure of memory, without images and drafts, and no limit for what it keeps of freed memory",
    WINDOWS: "piecewise CUDA graphs, and answers are not drafted: a page alone takes several times as long",
    BAN: "vLLM's first model runner with its own n-gram ban: slower, and answers are not drafted",
}

_PROCESSOR, _ENCODER = "multimodal/processing/processor.py", "model_executor/models/deepencoder.py"
_CLIP = "model_executor/models/clip.py"
_OCR1_FILE, _OCR2_FILE = "model_executor/models/deepseek_ocr.py", "model_executor/models/deepseek_ocr2.py"
_UNLIMITED_FILE, _PADDLE_FILE = "model_executor/models/unlimited_ocr.py", "model_executor/models/paddleocr_vl.py"
_GLM4V, _GLM_FILE = "model_executor/models/glm4_1v.py", "model_executor/models/glm_ocr.py"
_SCHEDULER, _ASYNC = "v1/core/sched/scheduler.py", "v1/core/sched/async_scheduler.py"
_GRAMMARS = "v1/structured_output/__init__.py"
_BLOCKS, _ENCODER_CACHE = "v1/core/single_type_kv_cache_manager.py", "v1/core/encoder_cache_manager.py"
_WORKER, _RUNNER = "v1/worker/gpu_worker.py", "v1/worker/gpu/model_runner.py"
_BATCH, _REJECTION = "v1/worker/gpu/input_batch.py", "v1/worker/gpu/spec_decode/rejection_sampler.py"
_LOGITS = "v1/worker/gpu/sample/logits_processor/interface.py"
_GRAPHS, _STATES = "v1/worker/gpu/cudagraph_utils.py", "v1/worker/gpu/model_states/default.py"
_TRITON = "v1/attention/backends/triton_attn.py"
_RUNNER_OF_CPUS, _RUNNER_OF_GPUS = "v1/sample/", "v1/worker/gpu/"

# The models whose classes depend on a row.
_OCR1, _OCR2, _UNLIMITED = ("deepseek_ocr",), ("deepseek_ocr2",), ("unlimited_ocr",)
_GLM, _PADDLE = ("glm_ocr",), ("paddleocr_vl",)
_TILED, _OCR1_LIKE = _OCR1 + _OCR2 + _UNLIMITED, _OCR1 + _UNLIMITED


_RUNNER_INIT = ("69c85773c26e", "ff7a1f23d411")  # where the attributes are set that three parts use
_RUNNER_LOAD = ("ff4b9192826e", "6a521d7a979f")
_MAKE_DUMMY = ("16db177c434d",)
_PREPARE_CAPTURE = ("90ae9706936f", "70e5d6142372")
_RUNNER_EXECUTE = ("ad97c4ac95c0", "83b7fbda6a7d")


class Replaced(NamedTuple):
    """A function or class of vLLM that a part of the plugin replaces, uses, or is called by in a certain way.

    `hashes` are those of its source in the versions that the part was written for. `models` are the models whose
    classes depend on it; empty for a part that does not depend on the model.
    """

    part: str
    file: str
    name: str  # of a method, with its class
    hashes: tuple[str, ...]
    models: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.name} in {self.file}"

    def is_used(self, model: str, has_gpu: bool) -> bool:
        """Whether an engine with this model depends on it: vLLM has one model runner for GPUs, another for CPUs."""
        row = MODEL_ROWS[model]
        is_drafted = row.is_drafted and has_gpu
        conditions = {
            DRAFTS: is_drafted, DECODE_GRAPHS: is_drafted, MEMORY: has_gpu, WINDOWS: has_gpu, BAN: row.has_ngram_ban
        }  # fmt: skip
        has_part = conditions.get(self.part, True)
        has_runner = not self.file.startswith(_RUNNER_OF_CPUS if has_gpu else _RUNNER_OF_GPUS)
        return has_part and has_runner and (not self.models or model in self.models)


# What vLLM 0.33 offers publicly instead is named beside the rows, with what it would cost.
REPLACED = (
    Replaced(MODELS, _PROCESSOR, "BaseMultiModalProcessor._call_hf_processor", ("144234a6b68a",), _TILED),
    Replaced(MODELS, _PROCESSOR, "BaseMultiModalProcessor._apply_hf_processor_main", ("cad32b019fbc",), _TILED),
    Replaced(MODELS, _OCR1_FILE, "DeepseekOCRMultiModalProcessor._get_hf_mm_inputs", ("ea15e3936db2",), _TILED),
    Replaced(MODELS, _OCR1_FILE, "DeepseekOCRMultiModalProcessor._get_mm_fields_config", ("6533a2280ed3",), _TILED),
    Replaced(MODELS, _OCR1_FILE, "DeepseekOCRMultiModalProcessor._get_prompt_updates", ("31f00ddc937c",), _TILED),
    Replaced(
        MODELS, _OCR1_FILE, "DeepseekOCRProcessingInfo.get_image_size_with_most_features", ("85e002a29b52",), _OCR1
    ),
    Replaced(
        MODELS, _OCR2_FILE, "DeepseekOCR2ProcessingInfo.get_image_size_with_most_features", ("34ef14739560",), _OCR2
    ),
    Replaced(
        MODELS,
        _UNLIMITED_FILE,
        "UnlimitedOCRProcessingInfo.get_image_size_with_most_features",
        ("40d3bc0b8c8c", "77fe5cb218e7"),
        _UNLIMITED,
    ),
    Replaced(MODELS, _OCR1_FILE, "DeepseekOCRDummyInputsBuilder.get_dummy_text", ("e8d6a64813b2",), _OCR1_LIKE),
    Replaced(MODELS, _OCR2_FILE, "DeepseekOCR2DummyInputsBuilder.get_dummy_text", ("e8d6a64813b2",), _OCR2),
    Replaced(MODELS, _OCR1_FILE, "DeepseekOCRForCausalLM.__init__", ("09debbfab271",), _OCR1_LIKE),
    Replaced(MODELS, _OCR1_FILE, "DeepseekOCRForCausalLM.embed_multimodal", ("3b251c3287f5",), _OCR1_LIKE),
    Replaced(MODELS, _OCR2_FILE, "DeepseekOCR2ForCausalLM.__init__", ("b866b226ff83",), _OCR2),
    Replaced(MODELS, _OCR2_FILE, "DeepseekOCR2ForCausalLM.embed_multimodal", ("3b251c3287f5",), _OCR2),
    Replaced(MODELS, _UNLIMITED_FILE, "UnlimitedOCRForCausalLM.__init__", ("cd6e2a6b0e36",), _UNLIMITED),
    # `cudagraph_mm_encoder` (SupportsEncoderCudaGraph) packs images into a budget of tokens and pads the rest: it made
    # stock vLLM 0.26 no faster. Without it, the encoder of 0.33 takes 39 ms a page, and these take 10.5.
    Replaced(MODELS, _ENCODER, "ImageEncoderViT.forward", ("8fab7d78ddd4",), _TILED),
    Replaced(MODELS, _ENCODER, "ImageEncoderViT.get_abs_pos", ("d2a43c1eb77b",), _TILED),
    # These three choose the sizes and the activation (GELU) with which sam.py computes.
    Replaced(MODELS, _ENCODER, "ImageEncoderViT.__init__", ("4db4e7e31d15",), _TILED),
    Replaced(MODELS, _ENCODER, "Block.__init__", ("0556b4ed9d8c",), _TILED),
    Replaced(MODELS, _ENCODER, "RelPosAttention.__init__", ("3e23b5025509",), _TILED),
    Replaced(MODELS, _ENCODER, "Block.forward", ("59ced14714c5",), _TILED),
    Replaced(MODELS, _ENCODER, "MLPBlock", ("7c2fa05dd4d6",), _TILED),
    Replaced(MODELS, _ENCODER, "LayerNorm2d", ("43df0b3dc291",), _TILED),
    Replaced(MODELS, _ENCODER, "DeepCLIPVisionTransformer.forward", ("6772ebe06786",), _OCR1_LIKE),
    Replaced(MODELS, _CLIP, "CLIPEncoder.forward", ("679e8edd731d",), _OCR1_LIKE),
    Replaced(MODELS, _CLIP, "CLIPEncoderLayer.forward", ("90c884d730ae",), _OCR1_LIKE),
    Replaced(MODELS, _ENCODER, "RelPosAttention.forward", ("ba17057642fe",), _TILED),
    Replaced(MODELS, _ENCODER, "get_rel_pos", ("84da81562235",), _TILED),
    Replaced(MODELS, _GLM_FILE, "GlmOcrForConditionalGeneration.__init__", ("6c3f05ba7531",), _GLM),
    Replaced(MODELS, _GLM4V, "Glm4vForConditionalGeneration.embed_multimodal", ("e3a61417da97",), _GLM),
    Replaced(MODELS, _GLM4V, "Glm4vForConditionalGeneration.get_mrope_input_positions", ("4455f5975bab",), _GLM),
    Replaced(MODELS, _PADDLE_FILE, "PaddleOCRVLForConditionalGeneration.__init__", ("3103d6144d7f",), _PADDLE),
    Replaced(MODELS, _PADDLE_FILE, "PaddleOCRVLForConditionalGeneration.embed_multimodal", ("6f15f4dd8d03",), _PADDLE),
    Replaced(
        MODELS,
        _PADDLE_FILE,
        "PaddleOCRVLForConditionalGeneration.get_mrope_input_positions",
        ("1cfd94d11500",),
        _PADDLE,
    ),
    Replaced(MODELS, _PADDLE_FILE, "SiglipVisionModel.forward", ("733bf0b0fe6c",), _PADDLE),
    Replaced(MODELS, _PADDLE_FILE, "Projector.forward", ("0b0e6381eadc", "3f988410fb8d"), _PADDLE),
    # `mm_tensor_ipc="torch_shm"` shares tensors that the front end has made: 10 MB a page copied once more, into memory
    # that is not registered with the GPU. A page worker's buffer is read by the GPU itself.
    Replaced(MODELS, "inputs/engine.py", "mm_input", ("7229cdfb8ed3",)),
    # `AsyncLLM` without `client_addresses` starts a core and waits for it in one call. For one GPU it would save the
    # first two rows, but a start could not be stopped or repeated without graphs, and several GPUs need them anyway.
    Replaced(START, "v1/engine/utils.py", "launch_core_engines", ("04450127bb00", "3317a3e53dcb")),
    Replaced(START, "v1/engine/core_client.py", "MPClient.start_engine_core_monitor", ("801384c55833",)),
    Replaced(START, "v1/engine/async_llm.py", "AsyncLLM.__init__", ("8b29f6a30864",)),
    # `prefill_schedule_interval` holds every prompt back for so many steps, also while sequences are free, and parts of
    # a prompt that has begun. Ours waits only in a full engine. Tokens in groups and drafts by request need the class.
    Replaced(SCHEDULER, _SCHEDULER, "Scheduler.schedule", ("120d59f5c9c5", "90d459726de8")),
    Replaced(SCHEDULER, _SCHEDULER, "Scheduler.update_from_output", ("3e2d104b3146", "77a6bd692ecf")),
    Replaced(SCHEDULER, _SCHEDULER, "Scheduler._update_request_with_output", ("16fcae2c2d5b", "dd729fcd304d")),
    Replaced(SCHEDULER, _ASYNC, "AsyncScheduler.__init__", ("639d2741f66c",)),
    Replaced(SCHEDULER, _ASYNC, "AsyncScheduler._update_after_schedule", ("c1b177287ae6",)),
    Replaced(SCHEDULER, "config/vllm.py", "VllmConfig.num_lookahead_tokens", ("8c9c8102d712",)),
    Replaced(SCHEDULER, "v1/core/kv_cache_manager.py", "KVCacheManager.allocate_slots", ("b4930083ef64",)),
    Replaced(WORKER, _WORKER, "Worker.__init__", ("06ee55a4d8f2", "744ee1495abc")),
    Replaced(WORKER, _WORKER, "Worker.init_device", ("48b1311278b6", "6db0093afce5")),
    Replaced(WORKER, _WORKER, "Worker.load_model", ("7318387266fd",)),
    Replaced(WORKER, _WORKER, "Worker.determine_available_memory", ("8c628ddc0b85", "f636da2d955c")),
    Replaced(WORKER, _RUNNER, "GPUModelRunner.capture_model", ("31736a4c4200", "8883be6d20fc")),
    Replaced(WORKER, _WORKER, "Worker.compile_or_warm_up_model", ("c042dba36c09", "44509dd9aecf")),
    Replaced(DRAFTS, _RUNNER, "GPUModelRunner.__init__", _RUNNER_INIT),
    Replaced(DRAFTS, _RUNNER, "GPUModelRunner.load_model", _RUNNER_LOAD),
    Replaced(DRAFTS, _RUNNER, "GPUModelRunner.initialize_kv_cache", ("a9076c309d52", "5092d35d42f1")),
    Replaced(DRAFTS, _RUNNER, "GPUModelRunner.sample_tokens", ("c48491bc91af", "a6cc36611e7d")),
    Replaced(DRAFTS, _RUNNER, "GPUModelRunner.add_requests", ("6a0c7bee28c6",)),
    Replaced(DRAFTS, _RUNNER, "GPUModelRunner.finish_requests", ("ae0fbe022ec3",)),
    Replaced(DRAFTS, _RUNNER, "GPUModelRunner.postprocess_sampled", ("6b96878113bd", "6f42c77a673f")),
    Replaced(DRAFTS, _BATCH, "combine_sampled_and_draft_tokens", ("a07471857411",)),
    Replaced(DRAFTS, _BATCH, "expand_idx_mapping", ("b6d38698bb40",)),
    Replaced(DRAFTS, _BATCH, "post_update", ("6d3c26afa62a", "2664ce4574ea")),
    Replaced(DRAFTS, _REJECTION, "gather_draft_sampled", ("5c1258137922",)),
    Replaced(DRAFTS, _REJECTION, "RejectionSampler._verify", ("8b2ab7f16ae2", "97265816113c")),
    Replaced(DRAFTS, _REJECTION, "RejectionSampler._verify_in_chunks", ("8e0330dcb89f",)),
    Replaced(DRAFTS, "v1/worker/gpu/spec_decode/speculator.py", "BaseSpeculator", ("6fdba1cf5153",)),
    Replaced(DRAFTS, "v1/worker/gpu/spec_decode/ngram/speculator.py", "NgramGPUSpeculator.propose", ("da7d4d7b0371",)),
    Replaced(DRAFTS, "v1/worker/gpu/states.py", "RequestState.__init__", ("fd278377bf3a",)),
    # Beside those of the scheduler, without which there are no steps of ours.
    Replaced(DECODE_STEPS, _SCHEDULER, "Scheduler._try_schedule_encoder_inputs", ("32418f7011b3", "80fa7b470269")),
    Replaced(DECODE_STEPS, _SCHEDULER, "Scheduler._reserve_prefill_lookahead", ("43eb2715c35d",)),
    Replaced(DECODE_STEPS, _SCHEDULER, "Scheduler._make_cached_request_data", ("f7821a81cec8",)),
    Replaced(DECODE_STEPS, _SCHEDULER, "Scheduler._update_after_schedule", ("7fa9ce46d1a8",)),
    Replaced(DECODE_STEPS, _SCHEDULER, "Scheduler._free_encoder_inputs", ("082137dbbbce", "5443d76da731")),
    Replaced(DECODE_STEPS, "v1/core/sched/output.py", "SchedulerOutput", ("ea0f97bbf77d", "fd32cbf889b6")),
    Replaced(DECODE_STEPS, "v1/core/sched/output.py", "CachedRequestData", ("b58610fcfe7f",)),
    Replaced(DECODE_STEPS, "v1/core/sched/utils.py", "check_stop", ("323f3b3cdfe6",)),
    Replaced(DECODE_STEPS, "v1/core/kv_cache_manager.py", "KVCacheManager.cache_blocks", ("62e21bf11f6f",)),
    Replaced(DECODE_STEPS, _BLOCKS, "SingleTypeKVCacheManager.get_num_blocks_to_allocate", ("6ec784bc6715",)),
    Replaced(DECODE_STEPS, _BLOCKS, "SingleTypeKVCacheManager.allocate_new_blocks", ("8eb47c77bdfe",)),
    Replaced(DECODE_STEPS, _ENCODER_CACHE, "EncoderCacheManager.get_cached_input_ids", ("bdd55ea67ef9",)),
    Replaced(DECODE_STEPS, "multimodal/utils.py", "get_mm_features_in_window", ("c600a5b96172",)),
    Replaced(DECODE_STEPS, _GRAMMARS, "StructuredOutputManager.accept_tokens", ("1b2bbd0d6a3b",)),
    Replaced(DECODE_STEPS, "v1/request.py", "Request", ("eb3e21b82b3a",)),
    Replaced(DECODE_STEPS, "v1/outputs.py", "ModelRunnerOutput", ("dda5c166a638",)),
    Replaced(DECODE_GRAPHS, _RUNNER, "GPUModelRunner.__init__", _RUNNER_INIT),
    Replaced(DECODE_GRAPHS, _GRAPHS, "BatchExecutionDescriptor", ("b175a3fabdf7",)),
    Replaced(DECODE_GRAPHS, _GRAPHS, "_is_compatible", ("284d1a005556",)),
    Replaced(DECODE_GRAPHS, _GRAPHS, "CudaGraphManager.__init__", ("3ec77eb6afff",)),
    Replaced(DECODE_GRAPHS, _GRAPHS, "CudaGraphManager._init_candidates", ("6a103f6c602d",)),
    Replaced(DECODE_GRAPHS, _GRAPHS, "CudaGraphManager.capture", ("9d6b55335a5b",)),
    Replaced(DECODE_GRAPHS, _GRAPHS, "CudaGraphManager.dispatch", ("10a7275ec2a7",)),
    Replaced(DECODE_GRAPHS, _GRAPHS, "ModelCudaGraphManager.capture", ("e4fcff476139", "f1c0c22b9f4b")),
    Replaced(DECODE_GRAPHS, _GRAPHS, "prepare_inputs_to_capture", _PREPARE_CAPTURE),
    Replaced(DECODE_GRAPHS, _GRAPHS, "profile_cudagraph_memory", ("b4e9be410c97", "ece7eb7a281e")),
    Replaced(DECODE_GRAPHS, _BATCH, "InputBatch.make_dummy", _MAKE_DUMMY),
    Replaced(DECODE_GRAPHS, _RUNNER, "GPUModelRunner.execute_model", _RUNNER_EXECUTE),
    Replaced(DECODE_GRAPHS, _RUNNER, "GPUModelRunner.gather_batch_req_state", ("74d5a7f6d2fa",)),
    Replaced(MEMORY, _RUNNER, "GPUModelRunner.__init__", _RUNNER_INIT),
    Replaced(MEMORY, _RUNNER, "GPUModelRunner.profile_run", ("0ac6bdf28f7a",)),
    Replaced(MEMORY, _WORKER, "Worker._scoped_allocator_max_split", ("3ff82369783c",)),
    Replaced(MEMORY, _RUNNER, "GPUModelRunner.sample", ("ba725553357e",)),
    Replaced(MEMORY, _REJECTION, "get_max_chunk_logits", ("62b64357992b",)),
    Replaced(MEMORY, "utils/mem_utils.py", "memory_profiling", ("b13b2d9d10ee",)),
    Replaced(WINDOWS, _RUNNER, "GPUModelRunner.load_model", _RUNNER_LOAD, _UNLIMITED),
    Replaced(WINDOWS, _RUNNER, "GPUModelRunner.prepare_inputs", ("9be299cd2198", "fe3c8349ecec"), _UNLIMITED),
    Replaced(WINDOWS, _RUNNER, "GPUModelRunner.execute_model", _RUNNER_EXECUTE, _UNLIMITED),
    Replaced(WINDOWS, _GRAPHS, "prepare_inputs_to_capture", _PREPARE_CAPTURE, _UNLIMITED),
    Replaced(WINDOWS, _BATCH, "InputBatch.make_dummy", _MAKE_DUMMY, _UNLIMITED),
    Replaced(WINDOWS, _STATES, "DefaultModelState.prepare_attn", ("f7ea089cb2fa", "521e5c60794b"), _UNLIMITED),
    Replaced(WINDOWS, "v1/worker/gpu/attn_utils.py", "build_attn_metadata", ("c9fe1aa6c1a1",), _UNLIMITED),
    Replaced(WINDOWS, _TRITON, "TritonAttentionMetadataBuilder.__init__", ("6756002f57c2", "280c90b0516b"), _UNLIMITED),
    Replaced(WINDOWS, _TRITON, "TritonAttentionMetadataBuilder.build", ("45e08c0db68c",), _UNLIMITED),
    Replaced(
        WINDOWS, _TRITON, "TritonAttentionMetadataBuilder.build_for_cudagraph_capture", ("ef3a3196914f",), _UNLIMITED
    ),
    Replaced(WINDOWS, _TRITON, "TritonAttentionImpl.forward", ("b35807046171", "7375ad2cb676"), _UNLIMITED),
    Replaced(RESTARTS, "v1/engine/utils.py", "CoreEngineProcManager.__init__", ("6d706c59bcf4", "db07c9eb6887")),
    Replaced(BAN, _LOGITS, "LogitsProcessor", ("714d7c7fe470",)),
    Replaced(BAN, _LOGITS, "LogitsContext", ("09e36879ce60",)),
    Replaced(BAN, _LOGITS, "LogitsProcRequestState", ("4287d06c0952",)),
    Replaced(BAN, "v1/worker/gpu/sample/sampler.py", "Sampler.add_request", ("50375b226d9d",)),
    Replaced(BAN, "v1/worker/gpu/sample/sampler.py", "Sampler.apply_sampling_params", ("aa4253bdb048",)),
    Replaced(BAN, _REJECTION, "RejectionSampler.__call__", ("34a5c277334d",)),
    Replaced(BAN, "v1/worker/gpu/states.py", "RequestState.add_request", ("b724ef91fccb", "107ee9a02f9b")),
    Replaced(BAN, "v1/sample/logits_processor/interface.py", "LogitsProcessor.update_state", ("863e959522fd",)),
    Replaced(BAN, "v1/sample/logits_processor/builtin.py", "process_dict_updates", ("0e1bb2f66428",)),
)


def find_changed_parts(model: str, has_gpu: bool = True) -> Mapping[str, str]:
    """The parts of an engine with this model that the installed vLLM does not fit, with the reason."""
    return _join_problems((row for row in REPLACED if row.is_used(model, has_gpu)), _find_installed_problem)


def fits(part: str) -> bool:
    """Whether the installed vLLM fits all rows of a part."""
    return not any(_find_installed_problem(row) for row in REPLACED if row.part == part)


def compare(folder: Path, replaced: Iterable[Replaced]) -> Mapping[str, str]:
    """The parts that the vLLM package in this folder does not fit, with the reason."""
    return _join_problems(replaced, lambda row: _find_problem(folder, row))


def _join_problems(replaced: Iterable[Replaced], find: Callable[[Replaced], str | None]) -> Mapping[str, str]:
    reasons: dict[str, list[str]] = {}
    for row in replaced:
        if problem := find(row):
            reasons.setdefault(row.part, []).append(problem)
    return {part: "; ".join(found) for part, found in reasons.items()}


@cache
def _find_installed_problem(row: Replaced) -> str | None:
    spec = find_spec("vllm")
    assert spec and spec.origin
    return _find_problem(Path(spec.origin).parent, row)


def _find_problem(folder: Path, row: Replaced) -> str | None:
    definitions = _load_definitions(folder / row.file).get(row.name)
    if definitions is None:
        return f"{row} is missing"
    return None if hash_code(*definitions) in row.hashes else f"{row} is not that of vLLM {CPU_VLLM} or {GPU_VLLM}"


@cache
def _load_definitions(path: Path) -> Mapping[str, Sequence[_Definition]]:
    """The functions and classes of a file by name, methods as CLASS.NAME; none if there is no such file.

    A name may be defined more than once: a property and its setter, overloads.
    """
    found: dict[str, list[_Definition]] = {}
    for node in ast.parse(path.read_bytes() if path.exists() else "").body:
        if isinstance(node, _Definition):
            found.setdefault(node.name, []).append(node)
            methods = node.body if isinstance(node, ast.ClassDef) else ()
            for one in methods:
                if isinstance(one, _Definition):
                    found.setdefault(f"{node.name}.{one.name}", []).append(one)
    return found


def hash_code(*definitions: ast.AST) -> str:
    """The hash of a function or class with its decorators, without comments, docstrings and the layout of lines.

    Of several definitions of one name, it is that of all of them.
    """
    code = "".join(repr(_simplify(definition)) for definition in definitions)
    return hashlib.sha256(code.encode()).hexdigest()[:HASH_DIGITS]


def _simplify(value: object) -> object:
    """A syntax tree as tuples, the same in each version of Python: what is empty is left out."""
    if isinstance(value, list):
        return tuple(_simplify(item) for item in value if not _is_docstring(item))
    if not isinstance(value, ast.AST):
        return value
    fields = ((name, field) for name, field in ast.iter_fields(value) if field not in (None, []))
    return (type(value).__name__, *((name, _simplify(field)) for name, field in fields))


def _is_docstring(node: object) -> bool:
    """Whether it is a text that stands alone, which does nothing wherever it is."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
