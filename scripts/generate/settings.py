"""Generate docs/configuration.md from the settings' definitions."""

from __future__ import annotations

from pathlib import Path

from pydantic import SecretStr

from scripts import ROOT
from twopass.models import PAGE_PRESETS, REGION_PRESETS
from twopass.settings import CONFIG_FILE, CONFIG_VARIABLE, GROUPS, MEGABYTE

CONFIGURATION = ROOT / "docs" / "configuration.md"


def render_files() -> dict[Path, str]:
    return {CONFIGURATION: render_configuration()}


def render_configuration() -> str:
    """The text of docs/configuration.md."""
    return f"""# Configuration

Every setting is an environment variable, read once at start; an empty one counts as not set. `make docs` writes this
page from `src/twopass/settings.py`. `RUNPOD_LOG_LEVEL`, `RUNPOD_INIT_TIMEOUT` and so on are RunPod's.

Wrong values are refused with `INVALID_SETTING` before anything is opened. Variables that look like misspelt settings
(`ENGNE`) are refused by `twopass` commands; a worker starts and warns. `twopass doctor` checks settings and machine.

## A file

Settings can also be in `{CONFIG_FILE}`, in small letters, each in its group:

```toml
[engine]
engine = "openai"
openai_base_url = "http://localhost:8000/v1"

[storage]
output_dir = "read"
```

The file is looked for in the working directory; `--config FILE`, or `{CONFIG_VARIABLE}`, names another one in its
place. It holds for commands, workers and programs alike. An option of a command comes before a variable, and a variable
before the file. Every name in it must be a setting in its group: a wrong one is refused, with what was probably meant.
A setting may also stand above the groups. Keep keys and secrets in the environment.

{render_settings()}
## Presets

`PRESET` is the GPU's memory in GB; `auto` asks the GPU. Each number can be set alone.

{render_presets()}"""


def render_presets() -> str:
    rows = [
        "| `PRESET` | prompts at once | tokens a step | context | number format | region readers: the first three |",
        "|---|---|---|---|---|---|",
    ]
    for name, preset in PAGE_PRESETS.items():
        numbers = ", ".join(filter(None, (preset.dtype, preset.quantization and f"{preset.quantization} weights")))
        reader = REGION_PRESETS[name]
        readers = f"{reader.sequences}, {reader.batched_tokens}, {reader.context}"
        cells = (f"`{name}`", preset.sequences, preset.batched_tokens, preset.context, numbers, readers)
        rows.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(rows) + "\n"


def render_settings() -> str:
    """A table for each group."""
    tables = []
    for name, group in GROUPS.items():
        rows = [f"## `[{name}]`", "", group.__doc__, "", "| environment | default | meaning |", "|---|---|---|"]
        for field_name, field in group.model_fields.items():
            rows.append(f"| `{field_name.upper()}` | {format_default(field.default)} | {field.description} |")
        tables.append("\n".join(map(str, rows)) + "\n")
    return "\n".join(tables)


def format_default(default: object) -> str:
    """Format a default as a user would write it; byte counts in full would be unreadable, so they are given in MiB."""
    if default is None or isinstance(default, SecretStr):
        return "–"
    if isinstance(default, int) and not isinstance(default, bool) and default >= MEGABYTE and default % MEGABYTE == 0:
        return f"{default // MEGABYTE} MiB"
    return f"`{str(default).lower() if isinstance(default, bool) else default}`"
