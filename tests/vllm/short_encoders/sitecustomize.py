"""Give DeepSeek's vision encoders two layers each instead of 12 and 24, in vLLM and in Transformers.

Their sizes are not in a model's configuration, and in full size an image takes seconds on a CPU. Python imports this
file when it starts, if PYTHONPATH names its folder, so that it acts in vLLM's own processes, too, also without plugins.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

LAYERS = 2
GLOBAL = (1,)  # SAM's layers without windows


def _shorten(owner: Any, **values: Any) -> None:
    """Make a class's constructor use these values, whatever its caller says."""
    construct = owner.__init__
    owner.__init__ = lambda self, *arguments, **more: construct(self, *arguments, **{**more, **values})


def _shorten_vllm(module: ModuleType) -> None:
    _shorten(module.ImageEncoderViT, depth=LAYERS, global_attn_indexes=GLOBAL)
    _shorten(module.DeepCLIPVisionTransformer, num_hidden_layers_override=LAYERS)


def _shorten_vllm2(module: ModuleType) -> None:
    _shorten(module.Qwen2Decoder2Encoder, decoder_layer=LAYERS)


def _shorten_transformers(module: ModuleType) -> None:
    _shorten(module.DeepseekOcr2SamVisionConfig, num_hidden_layers=LAYERS, global_attn_indexes=GLOBAL)
    _shorten(module.DeepseekOcr2VisionEncoderConfig, num_hidden_layers=LAYERS)


CHANGES: dict[str, Callable[[ModuleType], None]] = {
    "vllm.model_executor.models.deepencoder": _shorten_vllm,
    "vllm.model_executor.models.deepencoder2": _shorten_vllm2,
    "transformers.models.deepseek_ocr2.configuration_deepseek_ocr2": _shorten_transformers,
}


class _Finder(MetaPathFinder):
    """Changes a module of CHANGES after it was imported."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        spec = PathFinder.find_spec(name, path, target) if name in CHANGES else None
        if spec and spec.loader:
            execute = spec.loader.exec_module

            def execute_and_change(module: ModuleType) -> None:
                execute(module)
                CHANGES[name](module)

            spec.loader.exec_module = execute_and_change
        return spec


sys.meta_path.insert(0, _Finder())
