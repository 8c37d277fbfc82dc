"""Generate docs/configuration.md from the settings' definitions."""

from __future__ import annotations

from pathlib import Path

from pydantic import SecretStr

from scripts import ROOT
from twopass.models import PAGE_PRESETS, REGION_PRESETS, Preset
from twopass.settings import CONFIG_FILE, CONFIG_VARIABLE, GROUPS, MEGABYTE

CONFIGURATION = ROOT / "docs" / "configuration.md"


def render_files() -> dict[Path, str]:
    return {CONFIGURATION: render_configuration()}


def render_configuration() -> str:
    """The text of docs/configuration.md."""
    return f"""# Configuration

Every setting is an environment variable, read once at start; an empty one counts as not set. Wrong values are refused
with `INVALID_SETTING`, and so are variables that look like misspelt settings (`ENGNE`); workers only warn of these.
[`twopass doctor`](service.md#before-the-start) checks them. Defaults stand after `=`. This page is generated:
`make docs` writes it from `src/twopass/settings.py`.

## A file

Settings can also be in `{CONFIG_FILE}`, each in its group:

```toml
[engine]
engine = "openai"
openai_base_url = "http://localhost:8000/v1"
```

It is looked for in the working directory; `--config FILE`, or `{CONFIG_VARIABLE}`, names another one. It holds for
commands, workers and programs. Options of a command override variables, and these the file. A wrong name in it is
refused. Keep secrets in the environment.

{render_settings()}
## Presets

`PRESET` is the GPU's memory in GB; `auto` asks the GPU. It sets prompts at once, tokens a step and context, which can
also be set alone. Without a note, the number format is {_describe_numbers(PAGE_PRESETS["24"])}.

{render_presets()}"""


def render_presets() -> str:
    usual, rows = (
        _describe_numbers(PAGE_PRESETS["24"]),
        ["| `PRESET` | models of pages | region readers |", "|---|---|---|"],
    )
    for name, preset in PAGE_PRESETS.items():
        numbers = _describe_numbers(preset)
        note = f" ({numbers})" if numbers != usual else ""
        rows.append(f"| `{name}`{note} | {_list_sizes(preset)} | {_list_sizes(REGION_PRESETS[name])} |")
    return "\n".join(rows) + "\n"


def _list_sizes(preset: Preset) -> str:
    return f"{preset.sequences}, {preset.batched_tokens}, {preset.context}"


def _describe_numbers(preset: Preset) -> str:
    return ", ".join(filter(None, (preset.dtype, preset.quantization and f"{preset.quantization} weights")))


def render_settings() -> str:
    """A list for each group."""
    lists = []
    for name, group in GROUPS.items():
        rows = [f"## `[{name}]`", "", group.__doc__, ""]
        for field_name, field in group.model_fields.items():
            rows.append(f"- {format_variable(field_name.upper(), field.default)}: {field.description}")
        lists.append("\n".join(map(str, rows)) + "\n")
    return "\n".join(lists)


def format_variable(name: str, default: object) -> str:
    """Format a variable with its default as a user would set it; byte counts, unreadable in full, are given in MiB."""
    if default is None or isinstance(default, SecretStr):
        return f"`{name}`"
    if isinstance(default, int) and not isinstance(default, bool) and default >= MEGABYTE and default % MEGABYTE == 0:
        return f"`{name}` ({default // MEGABYTE} MiB)"
    return f"`{name}={str(default).lower() if isinstance(default, bool) else default}`"
