"""Read the settings from the environment and twopass.toml, and find names in both that are misspelt settings."""

from __future__ import annotations

import errno
import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from pydantic import ValidationError
from pydantic_settings import BaseSettings
from rapidfuzz.distance import OSA

from twopass.errors import Code, InvalidSetting, suggest
from twopass.settings import CONFIG_VARIABLE, GROUPS, ConfigFile, Settings, find_config_file

MIN_LENGTH = 5  # shorter words are close to too many others: MODE to MODEL, TYPE to DTYPE
LONG = 13  # letters from which a setting is recognised in spite of two errors; vLLM's WORKER_CLS is no WORKER_CALLS
# Variables of other programs. OTEL_ has many more than the one that is a setting here.
FOREIGN_PREFIXES = ("AWS_", "CUDA_", "HF_", "NVIDIA_", "OTEL_", "RUNPOD_", "VLLM_")
FOREIGN = frozenset({"LOGLEVEL"})  # PyTorch's


def load_settings(**fixed: Any) -> Settings:
    """Read the settings from the environment and twopass.toml; `fixed` ones take precedence over both.

    Raises InvalidSetting, which names every wrong setting but not its value, which may be secret.
    """
    in_file = _read_config_file()
    try:
        return Settings(**fixed)
    except ValidationError as error:
        problems = [
            f"{_name_origin(str(problem['loc'][0]), in_file, fixed)}: {problem['msg'].removeprefix('Value error, ')}"
            for problem in error.errors(include_url=False, include_input=False, include_context=False)
        ]
    advice = f"correct or unset {'it' if len(problems) == 1 else 'them'}"
    raise InvalidSetting(Code.INVALID_SETTING, f"{'; '.join(problems)}; {advice}")


def _read_config_file() -> Collection[str]:
    """The names of the settings in twopass.toml; raises InvalidSetting for a file that is not as it should be.

    Unlike the environment, it has no names of other programs: every unknown one is refused.
    """
    path = find_config_file()
    if path is None:
        return ()
    try:
        if not path.is_file():
            raise FileNotFoundError(errno.ENOENT, "no such file")
        file = ConfigFile(path)
    except (OSError, ValueError) as error:  # TOML and its encoding raise ValueError
        reason = error.strerror if isinstance(error, OSError) else str(error)
        message = f"{path}: cannot be read ({reason}); correct it, or {CONFIG_VARIABLE} if that names it"
        raise InvalidSetting(Code.INVALID_SETTING, message) from None
    if problems := list(_find_wrong_names(file.tables)):
        raise InvalidSetting(Code.INVALID_SETTING, f"{path}: {'; '.join(problems)}")
    return frozenset(file.init_kwargs)


def _find_wrong_names(tables: Mapping[str, Any]) -> Iterator[str]:
    """Describe each name in a configuration file that is no setting, or is not in its group."""
    for name, value in tables.items():
        if not isinstance(value, dict):
            yield from _find_wrong_name(name, value, "", Settings)
        elif name in GROUPS:
            for inner, setting in value.items():
                yield from _find_wrong_name(inner, setting, f"[{name}] ", GROUPS[name])
        else:
            groups = [f"[{group}]" for group in GROUPS]
            advice = suggest(name, groups) or f"; known are {', '.join(groups)}"
            yield f"[{name}]: unknown group{advice}"


def _find_wrong_name(name: str, value: object, place: str, group: type[BaseSettings]) -> Iterator[str]:
    name = name.lower()
    if name not in Settings.model_fields:
        yield f"{place}{name}: unknown setting{suggest(name, [*Settings.model_fields])}"
    elif name not in group.model_fields:
        home = next(title for title, fields in GROUPS.items() if name in fields.model_fields)
        yield f"{place}{name}: belongs into [{home}]"
    elif not isinstance(value, str | int | float):
        yield f"{place}{name}: must be a text, a number, true or false"


def _name_origin(name: str, in_file: Collection[str], fixed: Mapping[str, Any]) -> str:
    """A wrong setting as its variable, or as its name in twopass.toml if the value comes from there."""
    is_variable = any(variable.lower() == name and value for variable, value in os.environ.items())
    is_from_file = name in in_file and name not in fixed and not is_variable
    return f"{find_config_file()}: {name}" if is_from_file else name.upper()


def find_misspelt(environment: Mapping[str, str] = os.environ) -> str | None:
    """Say which variables are probably misspelt settings, and what was meant; None if there are none.

    An empty variable counts as not set.
    """
    settings = [*(name.upper() for name in Settings.model_fields), CONFIG_VARIABLE]
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
