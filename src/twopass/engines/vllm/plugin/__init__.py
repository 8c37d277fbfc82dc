"""The vLLM plugin: registers our model classes in place of vLLM's own, in each of vLLM's processes.

vLLM finds `register` through the entry point `vllm.general_plugins`.
"""

from __future__ import annotations

ARCHITECTURES = {
    "DeepseekOCRForCausalLM": "twopass.engines.vllm.plugin.model:DeepseekOcr",
    "DeepseekOCR2ForCausalLM": "twopass.engines.vllm.plugin.model:DeepseekOcr2",
    "UnlimitedOCRForCausalLM": "twopass.engines.vllm.plugin.model:UnlimitedOcr",
    "GlmOcrForConditionalGeneration": "twopass.engines.vllm.plugin.readers:GlmOcr",
    "PaddleOCRVLForConditionalGeneration": "twopass.engines.vllm.plugin.readers:PaddleOcrVl",
}
SCHEDULER = "twopass.engines.vllm.plugin.scheduler.GroupScheduler"
WORKER = "twopass.engines.vllm.plugin.worker.DecodingWorker"
NGRAM = "twopass.engines.vllm.plugin.ngram_ban:NoRepeatNGram"
MODE_KEY, MAX_CROPS_KEY = "mode", "max_crops"  # keys that a request may set in mm_processor_kwargs
DEFAULT_MODE = "gundam"


def register() -> None:
    """Register our classes by name, so that no CUDA code is imported before vLLM has chosen its devices.

    Changes nothing in a vLLM that the plugin was not tested with; the log says why.
    """
    import logging

    from twopass.engines.vllm.plugin import compatibility

    log = logging.getLogger("vllm")
    if problems := compatibility.find_problems_of_installed():
        log.warning("plugin of twopass is off, vLLM keeps its own model classes: %s", "; ".join(problems))
        return

    from vllm import ModelRegistry

    from twopass.engines.vllm.plugin.exit_report import OutOfMemoryHandler

    if not any(isinstance(handler, OutOfMemoryHandler) for handler in log.handlers):
        log.addHandler(OutOfMemoryHandler())
    for architecture, path in ARCHITECTURES.items():
        ModelRegistry.register_model(architecture, path)
