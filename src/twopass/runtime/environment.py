"""Read the settings from the environment, and find variables that are probably misspelt settings."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import ValidationError
from rapidfuzz.distance import OSA

from twopass.errors import Code, InvalidSetting
from twopass.settings import Settings

MIN_LENGTH = 5  # shorter words are close to too many others: MODE to MODEL, TYPE to DTYPE
LONG = 13  # letters from which a setting is recognised in spite of two errors; vLLM's WORKER_CLS is no WORKER_CALLS
# Variables of other programs. OTEL_ has many more than the one that is a setting here.
FOREIGN_PREFIXES = ("AWS_", "CUDA_", "HF_", "NVIDIA_", "OTEL_", "RUNPOD_", "VLLM_")
FOREIGN = frozenset({"LOGLEVEL"})  # PyTorch's


def load_settings(**fixed: Any) -> Settings:
    """Read the settings from the environment; `fixed` ones take precedence over it.

    Raises InvalidSetting, which names every wrong setting but not its value, which may be secret.
    """
    try:
        return Settings(**fixed)
    except ValidationError as error:
        problems = [
            f"{'.'.join(map(str, problem['loc'])).upper()}: {problem['msg'].removeprefix('Value error, ')}"
            for problem in error.errors(include_url=False, include_input=False, include_context=False)
        ]
    advice = f"correct or unset {'it' if len(problems) == 1 else 'them'}"
    raise InvalidSetting(Code.INVALID_SETTING, f"{'; '.join(problems)}; {advice}")


def find_misspelt(environment: Mapping[str, str] = os.environ) -> str | None:
    """Say which variables are probably misspelt settings, and what was meant; None if there are none.

    An empty variable counts as not set.
    """
    settings = [name.upper() for name in Settings.model_fields]
    found = {name: _find_meant(name.upper(), settings) for name, value in sorted(environment.items()) if value}
    messages = [f"{name}: unknown setting; did you mean {meant}?" for name, meant in found.items() if meant]
    return " ".join(messages) or None


def _find_meant(name: str, settings: list[str]) -> str | None:
    is_known = name in settings or name in FOREIGN or name.startswith(FOREIGN_PREFIXES)
    return None if is_known else find_similar(name, settings)


def find_similar(name: str, choices: Iterable[str]) -> str | None:
    """Return the choice that a misspelt name is closest to; None if none is close.

    Close is one letter that is missing, added, wrong or swapped with the next one; two for a long choice.
    """
    if len(name) < MIN_LENGTH:
        return None
    errors, closest = min((OSA.distance(name, choice), choice) for choice in choices)
    return closest if errors <= (2 if len(closest) >= LONG else 1) else None
