"""The vLLM plugin: registers our model classes in place of vLLM's own, in each of vLLM's processes.

vLLM finds `register` through the entry point `vllm.general_plugins`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path

CLASSES = {  # model -> vLLM's name of its architecture, and our class
    "deepseek_ocr": ("DeepseekOCRForCausalLM", "twopass.engines.vllm.plugin.model:DeepseekOcr"),
    "deepseek_ocr2": ("DeepseekOCR2ForCausalLM", "twopass.engines.vllm.plugin.model:DeepseekOcr2"),
    "unlimited_ocr": ("UnlimitedOCRForCausalLM", "twopass.engines.vllm.plugin.model:UnlimitedOcr"),
    "glm_ocr": ("GlmOcrForConditionalGeneration", "twopass.engines.vllm.plugin.readers:GlmOcr"),
    "paddleocr_vl": ("PaddleOCRVLForConditionalGeneration", "twopass.engines.vllm.plugin.readers:PaddleOcrVl"),
}
SCHEDULER = "twopass.engines.vllm.plugin.scheduler.GroupScheduler"
WORKER = "twopass.engines.vllm.plugin.worker.DraftingWorker"
NGRAM_V1 = "twopass.engines.vllm.plugin.ngram_v1:NoRepeatNGram"  # for the model runner that vLLM uses on CPUs
NGRAM_V2 = "twopass.engines.vllm.plugin.ngram_v2:NoRepeatNGram"  # for the one that it uses on GPUs
# vLLM's own ban, which exists for the first of these runners only: the variable keeps vLLM from choosing the second.
STOCK_NGRAM = "vllm.model_executor.models.deepseek_ocr:NGramPerReqLogitsProcessor"
STOCK_NGRAM_ENVIRONMENT = {"VLLM_USE_V2_MODEL_RUNNER": "0"}
DRAFT_TEXTS = "twopass.engines.vllm.plugin.draft_texts:DraftTexts"
SWITCH = "TWOPASS_VLLM_PLUGIN"  # the variable that turns the plugin on in a vLLM that twopass did not start


def register() -> None:
    """The entry point: does nothing in a vLLM that serves something else, where twopass is only installed."""
    import os

    if os.environ.get(SWITCH) == "1" or os.environ.get("ENGINE") == "vllm":
        activate()


def activate(find_changed_parts: Callable[[str], Mapping[str, str]] | None = None) -> None:
    """Register our classes by name, so that no CUDA code is imported before vLLM has chosen its devices.

    vLLM keeps its own class of a model that ours does not fit; the log says why. If none fits, nothing is changed.
    """
    import logging

    from twopass.engines.vllm.plugin import compatibility

    log = logging.getLogger("vllm")
    find = find_changed_parts or compatibility.find_changed_parts
    reasons = {model: reason for model in CLASSES if (reason := find(model).get(compatibility.MODELS))}
    if reasons:
        scope = f" for {', '.join(reasons)}" if len(reasons) < len(CLASSES) else ""
        why = "; ".join(dict.fromkeys(reasons.values()))
        log.warning("plugin of twopass is off%s, vLLM keeps its own model classes: %s", scope, why)
    if len(reasons) == len(CLASSES):
        return

    from vllm import ModelRegistry

    from twopass.engines.vllm.plugin.core_exit import OutOfMemoryHandler

    if not any(isinstance(handler, OutOfMemoryHandler) for handler in log.handlers):
        log.addHandler(OutOfMemoryHandler())
    for model, (architecture, path) in CLASSES.items():
        if model not in reasons:
            ModelRegistry.register_model(architecture, path)


def register_class(folder: Path) -> None:
    """Replace the name of this folder's model by its class, in a process that starts cores, after `activate`.

    To inspect a class that it knows by name, vLLM starts a process that imports everything again, unless it has a
    cache: 12 to 19 s. Plugins come first, because this one registers names.
    """
    from vllm import ModelRegistry
    from vllm.plugins import load_general_plugins

    load_general_plugins()
    for architecture in json.loads((folder / "config.json").read_text()).get("architectures", ()):
        if registered := ModelRegistry.models.get(architecture):
            ModelRegistry.register_model(architecture, registered.load_model_cls())
