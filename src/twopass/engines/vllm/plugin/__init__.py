"""What we add inside vLLM, in each of its processes: our model classes in place of its own.

vLLM finds `register` through the entry point `vllm.general_plugins`.
"""

from __future__ import annotations

ARCHITECTURES = {
    "DeepseekOCRForCausalLM": "twopass.engines.vllm.plugin.model:DeepseekOcr",
    "DeepseekOCR2ForCausalLM": "twopass.engines.vllm.plugin.model:DeepseekOcr2",
}
SCHEDULER = "twopass.engines.vllm.plugin.scheduler.GroupScheduler"
WORKER = "twopass.engines.vllm.plugin.worker.DecodingWorker"
NGRAM = "twopass.engines.vllm.plugin.ngram_ban:NoRepeatNGram"
MODE, MAX_CROPS = "mode", "max_crops"  # what a request may say in mm_processor_kwargs
DEFAULT_MODE, DEFAULT_CROPS = "gundam", 6


def register() -> None:
    """Our classes by name, so that nothing of CUDA is imported before vLLM has chosen its devices."""
    import logging

    from vllm import ModelRegistry

    from twopass.engines.vllm.plugin.exit_report import Listener

    log = logging.getLogger("vllm")
    if not any(isinstance(handler, Listener) for handler in log.handlers):
        log.addHandler(Listener())
    for architecture, where in ARCHITECTURES.items():
        ModelRegistry.register_model(architecture, where)
