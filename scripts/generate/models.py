"""Generate the list of docs/models.md: weights, licence, revision and engines of every model."""

from __future__ import annotations

from pathlib import Path

from scripts import ROOT
from twopass.models import DETECTOR, DETECTOR_WEIGHTS, MODELS, Model

PAGE = ROOT / "docs" / "models.md"
START, END = "<!-- models: from src/twopass/models.py -->\n", "<!-- end of models -->\n"


def render_files() -> dict[Path, str]:
    before, _, rest = PAGE.read_text().partition(START)
    return {PAGE: f"{before}{START}{render_list()}{END}{rest.partition(END)[2]}"}


def render_list() -> str:
    rows = [
        *(_render_row(model) for model in MODELS.values()),
        f"- `{DETECTOR}`, beside them: {DETECTOR_WEIGHTS.repo}, `{DETECTOR_WEIGHTS.revision}` "
        f"({DETECTOR_WEIGHTS.licence})",
    ]
    return "\n".join(rows) + "\n"


def _render_row(model: Model) -> str:
    engines = ", ".join(["vllm", "openai", *(["hf"] if model.hf else [])])
    detector = ", with the layout detector" if model.reads_regions else ""
    weights = model.weights
    return f"- `{model.name}`: {weights.repo}, `{weights.revision}` ({weights.licence}); {engines}{detector}"
