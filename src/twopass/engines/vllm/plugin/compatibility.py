"""What the plugin replaces in vLLM or relies on beyond its public interfaces, and whether it is in the installed vLLM.

vLLM's files are searched and not imported: importing its runner may initialise CUDA before vLLM has chosen its devices.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from twopass.models import MODELS as MODEL_ROWS

# The table below was written for these; requirements/ and the Dockerfile pin them. No later vLLM exists for CPUs.
GPU_VLLM, CPU_VLLM = "0.33.0", "0.32.0"
HASH_DIGITS = 12

# Parts of the plugin. Without the first two, there is no engine; the others can be replaced by vLLM's own code.
MODELS, START = "models", "start"
SCHEDULER, WORKER, DRAFTS, BAN, RESTARTS = "scheduler", "worker", "drafts", "ngram_ban", "restarts"
DECODE_GRAPHS, MEMORY = "decode_graphs", "memory"
REQUIRED = (MODELS, START)
INSTEAD: Mapping[str, str] = {
    SCHEDULER: "vLLM's scheduler: prompts enter one at a time, every token is a message, answers are not drafted",
    WORKER: "vLLM's worker: the start is not timed or repeated without CUDA graphs, and answers are not drafted",
    DRAFTS: "no speculative decoding",
    RESTARTS: "a core that replaces a dead one imports vLLM again, which takes twice as long",
    DECODE_GRAPHS: "CUDA graphs for any step: answers without drafts take longer while drafts are on",
    MEMORY: "vLLM's measure of memory, without images and drafts, and no limit for what it keeps of freed memory",
    BAN: "vLLM's first model runner with its own n-gram ban: slower, and answers are not drafted",
}

_PROCESSOR, _ENCODER = "multimodal/processing/processor.py", "model_executor/models/deepencoder.py"
_CLIP = "model_executor/models/clip.py"
_OCR1_FILE, _OCR2_FILE = "model_executor/models/deepseek_ocr.py", "model_executor/models/deepseek_ocr2.py"
_UNLIMITED_FILE, _PADDLE_FILE = "model_executor/models/unlimited_ocr.py", "model_executor/models/paddleocr_vl.py"
_GLM4V, _GLM_FILE = "model_executor/models/glm4_1v.py", "model_executor/models/glm_ocr.py"
_SCHEDULER, _ASYNC = "v1/core/sched/scheduler.py", "v1/core/sched/async_scheduler.py"
_WORKER, _RUNNER = "v1/worker/gpu_worker.py", "v1/worker/gpu/model_runner.py"
_BATCH, _REJECTION = "v1/worker/gpu/input_batch.py", "v1/worker/gpu/spec_decode/rejection_sampler.py"
_LOGITS = "v1/worker/gpu/sample/logits_processor/interface.py"
_GRAPHS = "v1/worker/gpu/cudagraph_utils.py"
_RUNNER_OF_CPUS, _RUNNER_OF_GPUS = "v1/sample/", "v1/worker/gpu/"

# The models whose classes depend on a row.
_OCR1, _OCR2, _UNLIMITED = ("deepseek_ocr",), ("deepseek_ocr2",), ("unlimited_ocr",)
_GLM, _PADDLE = ("glm_ocr",), ("paddleocr_vl",)
_TILED, _OCR1_LIKE = _OCR1 + _OCR2 + _UNLIMITED, _OCR1 + _UNLIMITED


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
        conditions = {DRAFTS: is_drafted, DECODE_GRAPHS: is_drafted, MEMORY: has_gpu, BAN: row.has_ngram_ban}
        has_part = conditions.get(self.part, True)
        has_runner = not self.file.startswith(_RUNNER_OF_CPUS if has_gpu else _RUNNER_OF_GPUS)
        return has_part and has_runner and (not self.models or model in self.models)


REPLACED = (
    Replaced(MODELS, _PROCESSOR, "BaseMultiModalProcessor._call_hf_processor", ("2d3e6bfc0992",), _TILED),
    Replaced(MODELS, _PROCESSOR, "BaseMultiModalProcessor._apply_hf_processor_main", ("4758de032782",), _TILED),
    Replaced(MODELS, _OCR1_FILE, "DeepseekOCRMultiModalProcessor._get_hf_mm_inputs", ("a07a9dcb3040",), _TILED),
    Replaced(MODELS, _OCR1_FILE, "DeepseekOCRMultiModalProcessor._get_mm_fields_config", ("6443c5ea7b7f",), _TILED),
    Replaced(MODELS, _OCR1_FILE, "DeepseekOCRMultiModalProcessor._get_prompt_updates", ("85cfc688bda4",), _TILED),
    Replaced(
        MODELS, _OCR1_FILE, "DeepseekOCRProcessingInfo.get_image_size_with_most_features", ("c8dc8f5b404f",), _OCR1
    ),
    Replaced(
        MODELS, _OCR2_FILE, "DeepseekOCR2ProcessingInfo.get_image_size_with_most_features", ("dc7fed714fb0",), _OCR2
    ),
    Replaced(
        MODELS,
        _UNLIMITED_FILE,
        "UnlimitedOCRProcessingInfo.get_image_size_with_most_features",
        ("ab797b025033", "2856d80f9358"),
        _UNLIMITED,
    ),
    Replaced(MODELS, _OCR1_FILE, "DeepseekOCRDummyInputsBuilder.get_dummy_text", ("cf595970e15e",), _OCR1_LIKE),
    Replaced(MODELS, _OCR2_FILE, "DeepseekOCR2DummyInputsBuilder.get_dummy_text", ("cf595970e15e",), _OCR2),
    Replaced(MODELS, _OCR1_FILE, "DeepseekOCRForCausalLM.__init__", ("3e0c41fc43c3",), _OCR1_LIKE),
    Replaced(MODELS, _OCR1_FILE, "DeepseekOCRForCausalLM.embed_multimodal", ("3291cbc39587",), _OCR1_LIKE),
    Replaced(MODELS, _OCR2_FILE, "DeepseekOCR2ForCausalLM.__init__", ("9877d8dc9b5d",), _OCR2),
    Replaced(MODELS, _OCR2_FILE, "DeepseekOCR2ForCausalLM.embed_multimodal", ("3291cbc39587",), _OCR2),
    Replaced(MODELS, _UNLIMITED_FILE, "UnlimitedOCRForCausalLM.__init__", ("4bdffad086da",), _UNLIMITED),
    Replaced(MODELS, _ENCODER, "ImageEncoderViT.forward", ("7053d1ce525b",), _TILED),
    Replaced(MODELS, _ENCODER, "ImageEncoderViT.get_abs_pos", ("2e5a5b12c443",), _TILED),
    Replaced(MODELS, _ENCODER, "Block.forward", ("6de63173984b",), _TILED),
    Replaced(MODELS, _ENCODER, "MLPBlock", ("f6b63c9ae0cd",), _TILED),
    Replaced(MODELS, _ENCODER, "LayerNorm2d", ("2f3d1cb5e304",), _TILED),
    Replaced(MODELS, _ENCODER, "DeepCLIPVisionTransformer.forward", ("da80badc2235",), _OCR1_LIKE),
    Replaced(MODELS, _CLIP, "CLIPEncoder.forward", ("904e590024f0",), _OCR1_LIKE),
    Replaced(MODELS, _CLIP, "CLIPEncoderLayer.forward", ("fdd55712eafc",), _OCR1_LIKE),
    Replaced(MODELS, _ENCODER, "RelPosAttention.forward", ("e2de817f14e6",), _TILED),
    Replaced(MODELS, _ENCODER, "get_rel_pos", ("b0008058e288",), _TILED),
    Replaced(MODELS, _GLM_FILE, "GlmOcrForConditionalGeneration.__init__", ("6d18b37e35af",), _GLM),
    Replaced(MODELS, _GLM4V, "Glm4vForConditionalGeneration.embed_multimodal", ("b5a3ad56f84c",), _GLM),
    Replaced(MODELS, _GLM4V, "Glm4vForConditionalGeneration.get_mrope_input_positions", ("bf6568f8f75f",), _GLM),
    Replaced(MODELS, _PADDLE_FILE, "PaddleOCRVLForConditionalGeneration.__init__", ("6514729f0e6b",), _PADDLE),
    Replaced(MODELS, _PADDLE_FILE, "PaddleOCRVLForConditionalGeneration.embed_multimodal", ("85e3e90e3d7d",), _PADDLE),
    Replaced(
        MODELS,
        _PADDLE_FILE,
        "PaddleOCRVLForConditionalGeneration.get_mrope_input_positions",
        ("a9625dffea07",),
        _PADDLE,
    ),
    Replaced(MODELS, _PADDLE_FILE, "SiglipVisionModel.forward", ("d4850ddf5ba1",), _PADDLE),
    Replaced(MODELS, _PADDLE_FILE, "Projector.forward", ("91dc96fcde1c", "96a8fea1e995"), _PADDLE),
    Replaced(MODELS, "inputs/engine.py", "mm_input", ("24b38b61d1ec",)),
    Replaced(START, "v1/engine/utils.py", "launch_core_engines", ("4ed5b0e227ae", "40497a6d4e61")),
    Replaced(START, "v1/engine/core_client.py", "MPClient.start_engine_core_monitor", ("5417b1b5265f",)),
    Replaced(START, "v1/engine/async_llm.py", "AsyncLLM.__init__", ("2bae2ebdc454",)),
    Replaced(SCHEDULER, _SCHEDULER, "Scheduler.schedule", ("c14d1b25e51b", "9ba0a4e5e577")),
    Replaced(SCHEDULER, _SCHEDULER, "Scheduler.update_from_output", ("4079580025d0", "1a8ab7a97905")),
    Replaced(SCHEDULER, _SCHEDULER, "Scheduler._update_request_with_output", ("4978297aa945", "84d06d18670e")),
    Replaced(SCHEDULER, _ASYNC, "AsyncScheduler.__init__", ("4af73758451f",)),
    Replaced(SCHEDULER, _ASYNC, "AsyncScheduler._update_after_schedule", ("5b71aff1e8c9",)),
    Replaced(SCHEDULER, "config/vllm.py", "VllmConfig.num_lookahead_tokens", ("26703e370367",)),
    Replaced(SCHEDULER, "v1/core/kv_cache_manager.py", "KVCacheManager.allocate_slots", ("b1984c9f459c",)),
    Replaced(WORKER, _WORKER, "Worker.__init__", ("97079b8f27a7", "380377be868b")),
    Replaced(WORKER, _WORKER, "Worker.init_device", ("d11d7423fc50", "bf1a483935e7")),
    Replaced(WORKER, _WORKER, "Worker.load_model", ("149e800c4f2f",)),
    Replaced(WORKER, _WORKER, "Worker.determine_available_memory", ("522a78d9fe9e", "9510027465ea")),
    Replaced(WORKER, _RUNNER, "GPUModelRunner.capture_model", ("d80fdb8b7f10", "7e610dc0e634")),
    Replaced(WORKER, _WORKER, "Worker.compile_or_warm_up_model", ("51f3894dc59d", "164e084d5738")),
    Replaced(DRAFTS, _RUNNER, "GPUModelRunner.__init__", ("3353ead0d4ed", "bd77042a4ac6")),
    Replaced(DRAFTS, _RUNNER, "GPUModelRunner.load_model", ("8dc6fae305bb", "f0d35996904d")),
    Replaced(DRAFTS, _RUNNER, "GPUModelRunner.initialize_kv_cache", ("2ab20e112089", "a5a3180a103a")),
    Replaced(DRAFTS, _RUNNER, "GPUModelRunner.sample_tokens", ("ced2b8b84c83", "d38ff36c6373")),
    Replaced(DRAFTS, _RUNNER, "GPUModelRunner.add_requests", ("1fc1f8be56e5",)),
    Replaced(DRAFTS, _RUNNER, "GPUModelRunner.finish_requests", ("3eb9a96ac29b",)),
    Replaced(DRAFTS, _RUNNER, "GPUModelRunner.postprocess_sampled", ("0fd729c557f7", "b2260bf52932")),
    Replaced(DRAFTS, _BATCH, "combine_sampled_and_draft_tokens", ("34a5e10878e4",)),
    Replaced(DRAFTS, _BATCH, "expand_idx_mapping", ("3ecf689a9f7c",)),
    Replaced(DRAFTS, _BATCH, "post_update", ("83e1e0d03746", "494698acd0fb")),
    Replaced(DRAFTS, _REJECTION, "gather_draft_sampled", ("577affeb0558",)),
    Replaced(DRAFTS, _REJECTION, "RejectionSampler._verify", ("1a410cc6984a", "841da9527529")),
    Replaced(DRAFTS, _REJECTION, "RejectionSampler._verify_in_chunks", ("6dcbc5f7dd92",)),
    Replaced(DRAFTS, "v1/worker/gpu/spec_decode/speculator.py", "BaseSpeculator", ("2c6d4fa7dc2e",)),
    Replaced(DRAFTS, "v1/worker/gpu/spec_decode/ngram/speculator.py", "NgramGPUSpeculator.propose", ("bc290a6f9eaf",)),
    Replaced(DRAFTS, "v1/worker/gpu/states.py", "RequestState.__init__", ("f7f6d85a7f15",)),
    Replaced(DECODE_GRAPHS, _GRAPHS, "BatchExecutionDescriptor", ("8e506b7a9ed0",)),
    Replaced(DECODE_GRAPHS, _GRAPHS, "_is_compatible", ("632d7dc5ac59",)),
    Replaced(DECODE_GRAPHS, _GRAPHS, "CudaGraphManager.__init__", ("9230835dedee",)),
    Replaced(DECODE_GRAPHS, _GRAPHS, "CudaGraphManager._init_candidates", ("6d274dc3a02f",)),
    Replaced(DECODE_GRAPHS, _GRAPHS, "CudaGraphManager.capture", ("94d91d7311c7",)),
    Replaced(DECODE_GRAPHS, _GRAPHS, "CudaGraphManager.dispatch", ("5641324adf70",)),
    Replaced(DECODE_GRAPHS, _GRAPHS, "ModelCudaGraphManager.capture", ("a006c9369733", "7edf4087acd7")),
    Replaced(DECODE_GRAPHS, _GRAPHS, "prepare_inputs_to_capture", ("e4ebddcea1f7", "eab726a5fcba")),
    Replaced(DECODE_GRAPHS, _GRAPHS, "profile_cudagraph_memory", ("fa7042aec98c", "9fc5e1286d87")),
    Replaced(DECODE_GRAPHS, _BATCH, "InputBatch.make_dummy", ("ae9c07fe6d19",)),
    Replaced(DECODE_GRAPHS, _RUNNER, "GPUModelRunner.execute_model", ("1b0c75387779", "5f8d96133dd0")),
    Replaced(DECODE_GRAPHS, _RUNNER, "GPUModelRunner.gather_batch_req_state", ("7cdfd392a83f",)),
    Replaced(MEMORY, _RUNNER, "GPUModelRunner.profile_run", ("3acb16627cd9",)),
    Replaced(MEMORY, _WORKER, "Worker._scoped_allocator_max_split", ("2eb7d41bb82f",)),
    Replaced(MEMORY, _RUNNER, "GPUModelRunner.sample", ("20088238536e",)),
    Replaced(MEMORY, _REJECTION, "get_max_chunk_logits", ("8131e2405601",)),
    Replaced(MEMORY, "utils/mem_utils.py", "memory_profiling", ("284569700fc8",)),
    Replaced(RESTARTS, "v1/engine/utils.py", "CoreEngineProcManager.__init__", ("b7b386e0f08c", "847a7f54bf77")),
    Replaced(BAN, _LOGITS, "LogitsProcessor", ("d8e18f158e70",)),
    Replaced(BAN, _LOGITS, "LogitsContext", ("6b0b677dd145",)),
    Replaced(BAN, _LOGITS, "LogitsProcRequestState", ("db95b96cb1a9",)),
    Replaced(BAN, "v1/worker/gpu/sample/sampler.py", "Sampler.add_request", ("db8e58017a22",)),
    Replaced(BAN, "v1/worker/gpu/sample/sampler.py", "Sampler.apply_sampling_params", ("da3036b9f32e",)),
    Replaced(BAN, _REJECTION, "RejectionSampler.__call__", ("860bcd7d1f39",)),
    Replaced(BAN, "v1/worker/gpu/states.py", "RequestState.add_request", ("9cf125693265", "565aaa893c41")),
    Replaced(BAN, "v1/sample/logits_processor/interface.py", "LogitsProcessor.update_state", ("fc7e4b694ebb",)),
    Replaced(BAN, "v1/sample/logits_processor/builtin.py", "process_dict_updates", ("3ffcbf2c9a9b",)),
)


def find_changed_parts(model: str, has_gpu: bool = True) -> Mapping[str, str]:
    """The parts of an engine with this model that the installed vLLM does not fit, with the reason."""
    return _join_problems((row for row in REPLACED if row.is_used(model, has_gpu)), _find_installed_problem)


def fits(part: str) -> bool:
    """Whether the installed vLLM fits a part that is the same for all models."""
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
    source = _find_source(folder / row.file, row.name)
    if source is None:
        return f"{row} is missing"
    return None if hash_source(source) in row.hashes else f"{row} is not that of vLLM {CPU_VLLM} or {GPU_VLLM}"


def _find_source(path: Path, name: str) -> str | None:
    """The source of a function, method or class; None if there is no such file or nothing of that name in it."""
    source = path.read_text() if path.exists() else ""
    owner, _, own_name = name.rpartition(".")
    indent = ""
    if owner:
        body = re.search(rf"^class {owner}\b.*?(?=^[A-Za-z_@]|\Z)", source, re.MULTILINE | re.DOTALL)
        source, indent = body[0] if body else "", "    "
    # Until the next line with the same indentation, but for the parenthesis that closes the parameters.
    pattern = rf"^{indent}(?:def|async def|class) {own_name}\b.*?(?=^{indent}[^\s)]|^[^\s)]|\Z)"
    found = re.search(pattern, source, re.MULTILINE | re.DOTALL)
    return found[0].rstrip() if found else None


def hash_source(source: str) -> str:
    return hashlib.sha256(source.encode()).hexdigest()[:HASH_DIGITS]
