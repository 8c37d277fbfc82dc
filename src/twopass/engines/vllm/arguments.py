"""vLLM's engine arguments, which follow from the settings, the preset and the GPU."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from twopass.engines.detector import placement
from twopass.engines.gpus import GpuInfo
from twopass.engines.vllm import images
from twopass.engines.vllm.images import ImageInput
from twopass.engines.vllm.plugin import (
    DRAFT_TEXTS,
    NGRAM_V1,
    NGRAM_V2,
    SCHEDULER,
    STOCK_NGRAM,
    WORKER,
    compatibility,
    drafts,
)
from twopass.models import Model, Preset, find_model
from twopass.settings import Settings

NEEDED_FOR_DRAFTS = {compatibility.SCHEDULER, compatibility.WORKER, compatibility.DRAFTS, compatibility.BAN}
# Without the ban, vLLM's first model runner is used, in which whole steps with windows were not tried.
NEEDED_FOR_WINDOWS = {compatibility.WORKER, compatibility.WINDOWS, compatibility.BAN}
DEFAULT_DRAFTS = 8
# The major compute capability of H100 and H200. On other GPUs only Triton's attention has full CUDA graphs of batches
# whose requests differ in their number of drafts; whether drafts are faster there was not measured.
DRAFTING_CAPABILITY = 9
SMALL_GRAPHS, GRAPH_STEP = (1, 2, 4, 8, 16), 32  # batch sizes of the decoder's CUDA graphs; a step uses the next larger
MEMORY_REDUCTION = 0.95  # factor on its memory share after a core ran out of memory: leaves more for activations
_UNCOMPILED = {"mode": 0}  # vLLM's CompilationMode.NONE
MODEL_CONTEXT = 8192  # tokens; a shorter context cuts long answers


def choose_drafts(settings: Settings, gpus: GpuInfo, changed: Collection[str] = ()) -> int:
    """The most tokens that a step drafts for an answer: DRAFT_TOKENS, or what is known to be faster on this GPU.

    0 where the model, a machine without GPUs, or a `changed` part of the plugin does not allow any.
    """
    model = find_model(settings.model)
    if not model.is_drafted or not gpus.count or NEEDED_FOR_DRAFTS & set(changed) or _loses_windows(model, changed):
        return 0
    if settings.draft_tokens is not None:
        return settings.draft_tokens
    return DEFAULT_DRAFTS if gpus.capability[0] == DRAFTING_CAPABILITY else 0


def build_arguments(
    settings: Settings,
    model: Path,
    defaults: Preset,
    has_gpu: bool = True,
    most_drafts: int = 0,
    changed: Collection[str] = (),
) -> dict[str, Any]:
    """Build vLLM's engine arguments from the settings; the preset fills in what is not set.

    `most_drafts` are the most tokens that are drafted for an answer in a step. `changed` are parts of the plugin
    instead of which vLLM's own code is used.
    """
    kind = find_model(settings.model)
    sequences = settings.max_num_seqs or settings.engine_sequences or defaults.sequences
    eager = defaults.eager if settings.enforce_eager is None else settings.enforce_eager
    compilation = _configure_compilation(settings, kind, sequences, most_drafts, changed)
    return {
        "model": str(model),
        "dtype": settings.dtype or defaults.dtype,
        "quantization": settings.quantization or defaults.quantization,
        "kv_cache_dtype": settings.kv_cache_dtype,
        "max_model_len": settings.max_model_len or kind.context_factor * defaults.context,
        "max_num_seqs": sequences,
        "max_num_batched_tokens": _choose_step_tokens(settings, defaults, sequences, most_drafts),
        "gpu_memory_utilization": settings.gpu_memory_utilization or defaults.memory,
        "tensor_parallel_size": settings.tensor_parallel_size,
        "enforce_eager": eager,
        **({} if eager else {"compilation_config": compilation}),
        "load_format": settings.load_format,
        "stream_interval": settings.stream_interval,
        "shutdown_timeout": settings.shutdown_timeout_s,
        "scheduling_policy": "priority",
        **({} if compatibility.SCHEDULER in changed else {"scheduler_cls": SCHEDULER}),
        **({} if compatibility.WORKER in changed else {"worker_cls": WORKER}),
        **_choose_processors(kind, has_gpu, compatibility.BAN in changed, most_drafts > 0),
        **({"speculative_config": build_speculative_config(most_drafts)} if most_drafts else {}),
        "limit_mm_per_prompt": {"image": 1, "video": 0},
        "enable_prefix_caching": False,  # pages have no common prefix; vLLM's recipe disables it too
        "mm_processor_cache_gb": 0,
        "mm_device_do_normalize": False,  # the plugin's classes normalise pixels themselves
        "skip_mm_profiling": True,  # the canary page is the encoder's first image
        "disable_log_stats": True,
        "enable_flashinfer_autotune": False,  # it would measure kernels at each start
        **({"block_size": settings.block_size} if settings.block_size else {}),
        **choose_attention(kind, has_gpu),
    }


def _choose_step_tokens(settings: Settings, defaults: Preset, sequences: int, most_drafts: int) -> int:
    """How many tokens a step may have. Drafts come on top of the preset's: as many prompts enter a step with them.

    MAX_NUM_BATCHED_TOKENS includes the drafts. An image that has more tokens than a step would never be encoded.
    """
    drafted = drafts.count_in_step(most_drafts, sequences)
    usual = max(defaults.batched_tokens, sequences) + drafted
    least = max(images.choose(settings).max_tokens, sequences + drafted)
    return max(settings.max_num_batched_tokens or usual, least)


def _choose_processors(model: Model, has_gpu: bool, uses_stock: bool, has_drafts: bool) -> dict[str, Any]:
    """Name the n-gram ban for the model runner that vLLM will choose, and what keeps the texts of drafts."""
    if not model.has_ngram_ban:
        return {}
    if uses_stock:
        return {"logits_processors": [STOCK_NGRAM]}
    ban = NGRAM_V2 if has_gpu else NGRAM_V1
    return {"logits_processors": [ban, DRAFT_TEXTS] if has_drafts else [ban]}


def build_speculative_config(most_drafts: int) -> dict[str, Any]:
    """vLLM's configuration of its n-gram speculator, which the plugin replaces; it keeps all tokens on the GPU."""
    return {
        "method": "ngram_gpu",
        "num_speculative_tokens": most_drafts,
        "prompt_lookup_min": 2,
        "prompt_lookup_max": 5,
    }


def choose_attention(model: Model, has_gpu: bool) -> dict[str, Any]:
    """Name the attention of a model whose answers see the prompt and their own last tokens only.

    vLLM would choose FlashAttention 4 on some GPUs, which was never run with this model. In the encoder, FlashAttention
    is its choice even without a GPU.
    """
    if not model.has_windowed_attention:
        return {}
    encoder = {} if has_gpu else {"mm_encoder_attn_backend": "TORCH_SDPA"}
    return {"attention_backend": "TRITON_ATTN", **encoder}


def choose_preset(settings: Settings, memory_gb: float) -> Preset:
    """The preset of these settings, with room for a detector on the GPU if there is one."""
    return placement.leave_room(find_model(settings.model).find_preset(settings.preset, memory_gb), settings, memory_gb)


def predict_precision(settings: Settings, gpus: GpuInfo) -> str:
    """The precision of an engine with these settings on these GPUs, before it is started."""
    gpus = GpuInfo() if settings.preset == "cpu" else gpus
    preset = choose_preset(settings, gpus.memory_gb)
    arguments = build_arguments(settings, Path(), preset, gpus.count > 0)
    return describe_precision(arguments, images.choose(settings), settings.logprobs)


def _configure_compilation(
    settings: Settings, model: Model, sequences: int, most_drafts: int, changed: Collection[str]
) -> dict[str, Any]:
    uncompiled = _UNCOMPILED if settings.torch_compile == "off" else {}
    piecewise = {"cudagraph_mode": "PIECEWISE"} if _loses_windows(model, changed) else {}
    return cuda_graph_config(sequences, most_drafts) | piecewise | uncompiled


def _loses_windows(model: Model, changed: Collection[str]) -> bool:
    """Whether CUDA graphs of whole steps might lose the windows of this model's attention."""
    return model.has_windowed_attention and bool(NEEDED_FOR_WINDOWS & set(changed))


def cuda_graph_config(sequences: int, most_drafts: int = 0) -> dict[str, Any]:
    """vLLM's compilation settings: CUDA graphs in few sizes, because capturing vLLM's own 51 and 35 sizes takes 11 s.

    Without drafts, a step that prefills a page has more tokens than any graph, so graphs are for decoding only. With
    drafts, a request may have any number of tokens in a step from one to 1 + `most_drafts`: graphs of any batch are
    needed, and a page alone is prefilled by one of them, too. There are sizes for requests that all have drafts and for
    requests of which none has; decode_graphs.py divides them among both kinds of steps. Where vLLM's attention cannot
    have graphs of any batch (FlashAttention 2, FlashInfer), vLLM itself captures piecewise graphs for such batches.
    """
    return {
        "cudagraph_mode": "FULL" if most_drafts else "FULL_DECODE_ONLY",
        "cudagraph_capture_sizes": _list_graph_sizes(sequences, most_drafts),
    }


def _list_graph_sizes(sequences: int, most_drafts: int) -> list[int]:
    counts = {*SMALL_GRAPHS, *range(GRAPH_STEP, sequences, GRAPH_STEP), sequences}
    answers = [count for count in counts if count <= sequences]
    return sorted({*answers, *(count * (1 + drafts.choose_count(most_drafts, count)) for count in answers)})


def reduce_load(arguments: Mapping[str, Any], largest_image: int) -> dict[str, Any]:
    """The arguments of the next core after one that ran out of memory: half the sequences, less of the GPU's memory.

    A step has half as many tokens besides drafts, so that half as many images are encoded at once. `largest_image` are
    the tokens for which a step needs room.
    """
    sequences = max(1, arguments["max_num_seqs"] // 2)
    most_drafts = arguments.get("speculative_config", {}).get("num_speculative_tokens", 0)
    usual = arguments["max_num_batched_tokens"] - drafts.count_in_step(most_drafts, arguments["max_num_seqs"])
    tokens = max(usual // 2, sequences) + drafts.count_in_step(most_drafts, sequences)
    graphs = arguments.get("compilation_config", {})
    sizes = {"cudagraph_capture_sizes": _list_graph_sizes(sequences, most_drafts)}
    return {
        **arguments,
        "max_num_seqs": sequences,
        "gpu_memory_utilization": round(arguments["gpu_memory_utilization"] * MEMORY_REDUCTION, 3),
        "max_num_batched_tokens": max(tokens, largest_image),
        **({"compilation_config": graphs | sizes} if graphs else {}),
    }


def forgo_compilation(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a core that runs the model as it is written, in CUDA graphs."""
    return {**arguments, "compilation_config": arguments["compilation_config"] | _UNCOMPILED}


def forgo_graphs(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a core without CUDA graphs."""
    return {name: value for name, value in arguments.items() if name != "compilation_config"} | {"enforce_eager": True}


def describe_precision(arguments: Mapping[str, Any], image_input: ImageInput, logprobs: bool) -> str:
    """Name everything about the engine that changes what is read: arithmetic, context, weights, tiles, confidences."""
    parts = [arguments["dtype"], arguments["quantization"]]
    parts += [f"{arguments['kv_cache_dtype']}-kv"] if arguments["kv_cache_dtype"] != "auto" else []
    parts += [f"{arguments['max_model_len']}-context"] if arguments["max_model_len"] != MODEL_CONTEXT else []
    parts += ["random-weights"] if arguments["load_format"] == "dummy" else []
    return "+".join(filter(None, [*parts, image_input.precision, "logprobs" if logprobs else ""]))
