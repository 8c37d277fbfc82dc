"""Check that the installed vLLM is the one that the plugin was tested with, and has what the plugin replaces or uses.

With another version, a renamed method would be replaced by nothing and another placeholder for tokens would switch the
n-gram ban off, both without an error. vLLM's files are searched and not imported: importing its runner may initialise
CUDA before vLLM has chosen its devices.
"""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

TESTED_VLLM = "0.26.0"  # requirements/ and the Dockerfile pin it


class Function(NamedTuple):
    """A function of vLLM: its file, its class (None: of the module), its name, and its parameters' names in order."""

    file: str
    owner: str | None
    name: str
    parameters: str

    def __str__(self) -> str:
        return f"{'.'.join(filter(None, (self.owner, self.name)))} in {self.file}"


class Fragment(NamedTuple):
    """A piece of code in a file of vLLM on which the plugin relies."""

    file: str
    code: str

    def __str__(self) -> str:
        return f"`{self.code}` in {self.file}"


_RUNNER, _WORKER = "v1/worker/gpu_model_runner.py", "v1/worker/gpu_worker.py"
_SCHEDULER, _CACHE = "v1/core/sched/scheduler.py", "v1/core/kv_cache_manager.py"
_LOGITS = "v1/sample/logits_processor"
_OCR, _OCR2 = "model_executor/models/deepseek_ocr.py", "model_executor/models/deepseek_ocr2.py"
_PROCESSOR, _DUMMY, _INFO = (
    "DeepseekOCRMultiModalProcessor",
    "DeepseekOCRDummyInputsBuilder",
    "DeepseekOCRProcessingInfo",
)
_UNLIMITED = "model_executor/models/unlimited_ocr.py"
_GLM4V, _GLM, _PADDLE = (f"model_executor/models/{name}.py" for name in ("glm4_1v", "glm_ocr", "paddleocr_vl"))
_DUMMY2, _INFO2 = "DeepseekOCR2DummyInputsBuilder", "DeepseekOCR2ProcessingInfo"
_LAUNCH = "vllm_config executor_class log_stats addresses num_api_servers"
_CLIENT = (
    "self vllm_config executor_class log_stats usage_context mm_registry log_requests start_engine_loop stat_loggers "
    "aggregate_engine_logging client_addresses client_count client_index"
)
_FILL_IN = "self scheduler_output sampler_output logits hidden_states num_scheduled_tokens"

FUNCTIONS = (
    # worker.py
    Function(_RUNNER, "GPUModelRunner", "_gather_mm_embeddings", "self scheduler_output shift_computed_tokens"),
    Function(
        _RUNNER,
        "GPUModelRunner",
        "_prepare_input_ids",
        "self scheduler_output num_reqs total_num_scheduled_tokens cu_num_tokens",
    ),
    Function(_RUNNER, "GPUModelRunner", "_bookkeeping_sync", _FILL_IN),
    Function(_WORKER, "Worker", "init_device", "self"),
    Function(_WORKER, "Worker", "load_model", "self load_dummy_weights"),
    Function(_WORKER, "Worker", "determine_available_memory", "self"),
    Function(_WORKER, "Worker", "compile_or_warm_up_model", "self"),
    # scheduler.py
    Function(_SCHEDULER, "Scheduler", "schedule", "self throttle_prefills"),
    Function(
        _SCHEDULER,
        "Scheduler",
        "_try_schedule_encoder_inputs",
        "self request num_computed_tokens num_new_tokens encoder_compute_budget shift_computed_tokens",
    ),
    Function(_SCHEDULER, "Scheduler", "_update_request_with_output", "self request new_token_ids"),
    Function(
        "v1/core/sched/async_scheduler.py",
        "AsyncScheduler",
        "_update_request_with_output",
        "self request new_token_ids",
    ),
    Function(
        _CACHE,
        "KVCacheManager",
        "allocate_slots",
        "self request num_new_tokens num_new_computed_tokens new_computed_blocks num_lookahead_tokens "
        "num_external_computed_tokens delay_cache_blocks num_encoder_tokens full_sequence_must_fit reserved_blocks "
        "has_scheduled_reqs",
    ),
    # ngram_ban.py
    Function(f"{_LOGITS}/interface.py", "LogitsProcessor", "__init__", "self vllm_config device is_pin_memory"),
    Function(f"{_LOGITS}/interface.py", "LogitsProcessor", "validate_params", "cls sampling_params"),
    Function(f"{_LOGITS}/interface.py", "LogitsProcessor", "is_argmax_invariant", "self"),
    Function(f"{_LOGITS}/interface.py", "LogitsProcessor", "update_state", "self batch_update"),
    Function(f"{_LOGITS}/interface.py", "LogitsProcessor", "apply", "self logits"),
    Function(f"{_LOGITS}/builtin.py", None, "process_dict_updates", "req_entries batch_update new_state"),
    Function("v1/worker/gpu_input_batch.py", "InputBatch", "update_async_output_token_ids", "self"),
    # model.py
    Function(_OCR, _PROCESSOR, "_call_hf_processor", "self prompt mm_data mm_kwargs tok_kwargs"),
    Function(_OCR, _PROCESSOR, "_get_mm_fields_config", "self hf_inputs hf_processor_mm_kwargs"),
    Function(_OCR, _PROCESSOR, "_get_prompt_updates", "self mm_items hf_processor_mm_kwargs out_mm_kwargs"),
    Function(
        "multimodal/processing/processor.py",
        "BaseMultiModalProcessor",
        "_hf_processor_applies_updates",
        "self prompt_text mm_items hf_processor_mm_kwargs tokenization_kwargs",
    ),
    Function(_OCR, _INFO, "get_image_size_with_most_features", "self"),
    Function(_OCR2, _INFO2, "get_image_size_with_most_features", "self"),
    Function(_UNLIMITED, "UnlimitedOCRProcessingInfo", "get_image_size_with_most_features", "self"),
    Function(_OCR, _DUMMY, "get_dummy_text", "self mm_counts"),
    Function(_OCR2, _DUMMY2, "get_dummy_text", "self mm_counts"),
    Function(_OCR, "DeepseekOCRForCausalLM", "__init__", "self vllm_config prefix"),
    Function(_OCR, "DeepseekOCRForCausalLM", "embed_multimodal", "self kwargs"),
    Function(_OCR2, "DeepseekOCR2ForCausalLM", "__init__", "self vllm_config prefix"),
    Function(_OCR2, "DeepseekOCR2ForCausalLM", "embed_multimodal", "self kwargs"),
    Function(_UNLIMITED, "UnlimitedOCRForCausalLM", "__init__", "self vllm_config prefix"),
    # readers.py
    Function(_GLM, "GlmOcrForConditionalGeneration", "__init__", "self vllm_config prefix"),
    Function(_GLM4V, "Glm4vForConditionalGeneration", "embed_multimodal", "self kwargs"),
    Function(_PADDLE, "PaddleOCRVLForConditionalGeneration", "__init__", "self vllm_config prefix"),
    Function(_PADDLE, "PaddleOCRVLForConditionalGeneration", "embed_multimodal", "self kwargs"),
    Function(
        _PADDLE,
        "SiglipVisionModel",
        "forward",
        "self pixel_values interpolate_pos_encoding position_ids image_grid_thw cu_seqlens",
    ),
    Function(_PADDLE, "Projector", "forward", "self image_features image_grid_thw"),
    # sam.py, inputs.py
    Function("model_executor/models/deepencoder.py", None, "get_rel_pos", "q_size k_size rel_pos"),
    Function("model_executor/models/deepencoder.py", "ImageEncoderViT", "get_abs_pos", "self abs_pos tgt_size"),
    Function(
        "inputs/engine.py", None, "mm_input", "prompt_token_ids mm_kwargs mm_hashes mm_placeholders prompt cache_salt"
    ),
    # core_process.py
    Function("v1/engine/utils.py", None, "launch_core_engines", _LAUNCH),
    Function(
        "v1/engine/utils.py", None, "get_engine_zmq_addresses", "vllm_config num_api_servers defer_api_server_ports"
    ),
    Function("v1/engine/core_client.py", "MPClient", "start_engine_core_monitor", "self"),
    Function("v1/engine/async_llm.py", "AsyncLLM", "__init__", _CLIENT),
)
FRAGMENTS = (
    # The placeholder of a token that is not on the host yet: worker.py appends it, ngram_ban.py marks it.
    Fragment(_RUNNER, "req_state.output_token_ids.append(-1)"),
    Fragment("v1/worker/gpu_input_batch.py", "req_output_token_ids[-1] != -1"),
    # What worker.py sets instead of `_bookkeeping_sync`.
    Fragment(_RUNNER, "self.input_batch.prev_sampled_token_ids"),
    Fragment(_RUNNER, "self.input_batch.prev_req_id_to_index"),
    Fragment(_RUNNER, "num_tokens_no_spec"),
    # What scheduler.py lowers so that a free sequence waits, and what it reads of the KV cache.
    Fragment(_SCHEDULER, "num_running >= self.max_num_running_reqs"),
    Fragment(_CACHE, "self.empty_kv_cache_blocks"),
    Fragment("v1/core/single_type_kv_cache_manager.py", "self.req_to_blocks"),
    # Which runner worker.py changes, and where positions of region readers come from (inputs.py).
    Fragment(_WORKER, "self.use_v2_model_runner"),
    Fragment(_GLM4V, 'mm_feature.data["image_grid_thw"].data.tolist()'),
    Fragment(_PADDLE, 'mm_feature.data["image_grid_thw"].data.tolist()'),
    # How core_process.py tells a client where its core is.
    Fragment("v1/engine/core_client.py", 'client_addresses["input_address"]'),
    Fragment("v1/engine/core_client.py", 'client_addresses["output_address"]'),
    # How engine.py finds the processes of a core that hangs.
    Fragment("v1/engine/core_client.py", "self.resources.engine_manager"),
    Fragment("v1/engine/utils.py", "self.processes"),
    # Why model.py can give Unlimited-OCR the encoder of DeepSeek-OCR, and who chooses its attention.
    Fragment(_UNLIMITED, "class UnlimitedOCRForCausalLM(DeepseekOCRForCausalLM)"),
    Fragment("model_executor/models/config.py", "class UnlimitedOCRForCausalLMConfig"),
)


@cache
def find_problems_of_installed() -> tuple[str, ...]:
    """Say why the plugin must not change the vLLM that this process uses; empty if it may."""
    import vllm

    return find_problems(vllm.__version__, Path(vllm.__file__).parent)


def find_problems(version: str, folder: Path) -> tuple[str, ...]:
    """Say why the plugin must not change the vLLM of this version, whose package is in this folder."""
    if version.partition("+")[0] != TESTED_VLLM:  # +cpu or +cu130 names a build
        return (f"vLLM {version} is not {TESTED_VLLM}, the version that it was tested with",)
    problems = []
    for function in FUNCTIONS:
        parameters = _find_parameters(function, folder)
        if parameters is None:
            problems.append(f"{function} is missing")
        elif parameters != function.parameters.split():
            problems.append(f"{function} takes other arguments")
    absent = [fragment for fragment in FRAGMENTS if fragment.code not in _read(folder / fragment.file)]
    return *problems, *(f"{fragment} is missing" for fragment in absent)


def require_tested() -> None:
    """Raise RuntimeError if the plugin must not be used with this vLLM."""
    if problems := find_problems_of_installed():
        raise RuntimeError(f"twopass cannot be used with this vLLM: {'; '.join(problems)}")


def _find_parameters(function: Function, folder: Path) -> list[str] | None:
    """The names of a function's parameters in order; None if there is no such function."""
    source, indent = _read(folder / function.file), ""
    if function.owner:
        body = re.search(rf"^class {function.owner}\b.*?(?=^[A-Za-z_@]|\Z)", source, re.MULTILINE | re.DOTALL)
        source, indent = body[0] if body else "", "    "
    header = re.search(
        rf"^{indent}def {function.name}(\(.*?\))(?:\s*->.*?)?:[ ]*(?:#.*)?$", source, re.MULTILINE | re.DOTALL
    )
    if header is None:
        return None
    arguments = ast.parse(f"def f{header[1]}: pass").body[0].args  # type: ignore[attr-defined]
    extra = (arguments.vararg, arguments.kwarg)
    return [one.arg for one in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, *extra) if one]


def _read(path: Path) -> str:
    return path.read_text() if path.exists() else ""
