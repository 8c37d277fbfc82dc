"""Which methods of vLLM the plugin's classes replace, and whether the plugin's table has them."""

from __future__ import annotations

from collections.abc import Iterator

from twopass.engines.vllm.plugin.compatibility import REPLACED


def find_replaced(ours: type, base: type) -> Iterator[set[str]]:
    """For each method of our class, that method in `base` and its bases, if vLLM defines it: CLASS.METHOD."""
    for name, value in vars(ours).items():
        is_method = callable(value) or isinstance(value, classmethod | staticmethod | property)
        owners = [other for other in base.__mro__ if other is not ours and other.__module__.startswith("vllm.")]
        methods = {f"{owner.__name__}.{name}" for owner in owners if name in vars(owner)}
        if is_method and methods and name != "__subclasshook__":  # that one is from ABC
            yield methods


def has_row(methods: set[str], model: str, has_gpu: bool = True) -> bool:
    """Whether the table has one of these methods, or its class, for an engine with this model."""
    rows = {row.name for row in REPLACED if row.is_used(model, has_gpu)}
    return bool({*methods, *(method.partition(".")[0] for method in methods)} & rows)
