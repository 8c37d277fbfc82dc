"""The house tests itself: who may import whom, and which file may import a foreign library."""

from __future__ import annotations

# ruff: noqa: E501
import ast
from pathlib import Path

import pytest

from tests import ROOT

SOURCE = ROOT / "src" / "twopass"

# A module may import those on its own level's list; the first matching prefix counts, and every module has one.
LAYERS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("errors", ()),
    ("document", ("errors",)),
    ("engine_settings", ()),
    ("settings", ("engine_settings",)),
    ("format_options", ()),
    ("storage.ssrf_guard", ("errors",)),
    ("pages.shared_pixels", ()),
    ("runtime.page_pool", ("errors", "pages.shared_pixels", "runtime.task_group")),
    ("pages.pillow_image", ()),
    ("engines.vllm.tiling", ("pages.pillow_image", "pages.shared_pixels")),
    ("text.prose", ()),
    ("formats.token_estimate", ()),
    ("runtime.page_slots", ("runtime.task_group",)),
    ("runtime.admission", ("runtime.task_group",)),
    ("runtime.shutdown", ("errors",)),
    ("runtime.signal_handlers", ()),
    ("telemetry.progress", ("errors", "runtime.task_group")),
    ("telemetry.observer", ("errors", "job")),
    ("runtime.nvml", ()),
    ("telemetry.metrics", ("errors", "runtime.nvml", "job", "runtime.page_slots")),
    ("telemetry.traces", ("errors", "job")),
    ("telemetry.stopwatch", ("telemetry.observer", "runtime.page_pool")),
    ("runtime.task_group", ("errors",)),
    ("text.table_grid", ("document", "text.table_markup")),
    ("text.keywords", ("text.prose",)),
    ("text.sections", ("document", "text.prose")),
    ("text.page_furniture", ("document", "text.prose")),
    ("text.continuations", ("document", "text.page_furniture", "text.prose")),
    ("text.surrounding_text", ("document", "text.prose")),
    ("job", ("document", "errors", "settings", "format_options")),
    ("pages.source_files", ("document", "errors")),
    ("storage.error_mapping", ("errors",)),
    ("runtime.scratch", ()),
    ("runtime.gc_tuning", ()),
    ("storage.download", ("errors", "job", "settings")),
    ("storage.store", ("errors", "storage.error_mapping", "job", "storage.s3_store", "settings")),  # s3 inside the function that opens one
    ("storage.pinned_connections", ("storage.ssrf_guard", "errors")),
    ("storage.s3_store", ("__version__", "storage.ssrf_guard", "errors", "storage.error_mapping", "job", "storage.download", "storage.pinned_connections", "settings", "storage.store")),
    ("engines.hub", ("errors",)),
    ("engines.weights", ("errors", "engines.hub", "settings")),
    ("storage.sources", ("storage.ssrf_guard", "errors", "storage.error_mapping", "job", "storage.download", "storage.s3_store", "settings")),
    ("pages.ocr", ("document", "errors")),
    ("engines.interface", ("document", "errors", "pages.shared_pixels", "runtime.page_pool")),
    ("families.interface", ("document", "errors", "pages.text_layer")),
    ("families", ("families", "text.table_grid", "document", "errors", "pages.text_layer", "text.sections", "text.surrounding_text", "text.table_markup", "text.prose")),
    ("engines.vllm.plugin", ("engines.vllm.plugin", "pages.shared_pixels", "engines.vllm.tiling")),
    (
        "engines.vllm.engine",
        ("engines", "engine_settings", "errors", "runtime.gc_tuning", "settings", "pages.shared_pixels", "engines.vllm.tiling", "engines.vllm.plugin", "runtime.page_pool"),
    ),
    ("engines.vllm.render_tiles", ("engines.interface", "pages.source_files", "pages.shared_pixels", "engines.vllm.tiling")),
    (
        "engines",
        (
            "engines", "document", "engine_settings", "errors", "pages.source_files", "runtime.nvml", "pages.ocr", "settings", "pages.shared_pixels",
            "engines.weights", "text.prose", "runtime.page_pool",
        ),
    ),
    ("pages.text_layer", ("document",)),
    ("pages.rendered_page", ("document", "engines.interface", "pages.text_layer", "pages.shared_pixels")),
    ("text.table_markup", ("document",)),
    ("pages.text_layer_paragraphs", ("document", "text.prose")),
    ("formats", ("document", "errors", "formats", "job", "text.sections", "text.table_markup", "formats.token_estimate", "text.prose", "format_options")),
    ("runtime.page_worker", ("errors", "runtime.page_pool", "pages")),
    ("steps.report", ("document", "engines.interface", "errors", "pages.source_files", "formats", "job", "telemetry", "settings", "steps.upload", "storage")),
    ("steps.previews", ("document", "errors", "pages", "formats", "job", "steps.render", "steps.upload", "runtime", "format_options")),
    ("steps.reparse", ("document", "steps", "engines", "errors", "families", "pages", "formats", "job", "runtime", "format_options")),
    (
        "steps",
        (
            "pages.pillow_image", "document", "engines.interface", "errors", "families.interface", "pages.source_files", "formats", "job", "pages.text_layer",
            "pages.rendered_page", "pages.ocr", "settings", "pages.shared_pixels", "storage.sources", "storage.store", "pages.text_layer_paragraphs", "text.prose", "text.keywords",
            "text.page_furniture", "text.continuations", "storage.error_mapping", "runtime.scratch", "text.sections", "text.surrounding_text", "runtime.task_group", "runtime.page_pool", "format_options",
        ),
    ),
    (
        "fleet",
        (
            "fleet", "errors", "storage.error_mapping", "job", "storage.download", "settings", "pages.shared_pixels", "storage.sources", "steps.fetch", "storage.store",
            "runtime.task_group", "runtime.page_pool",
        ),
    ),
    ("telemetry.logs", ("errors", "storage.error_mapping", "settings")),
    ("cli.terminal", ("job", "telemetry.progress")),
    (
        "steps.report",
        (
            "document", "engines.interface", "errors", "pages.source_files", "formats", "job", "telemetry.progress", "settings", "steps.upload",
            "telemetry.stopwatch", "storage.store",
        ),
    ),
    ("steps.canary", ("document", "engines.interface", "errors", "families.interface", "settings", "pages.shared_pixels", "runtime.page_pool")),
    (
        "worker",
        (
            "steps.canary", "runtime.shutdown", "document", "engines", "families", "runtime.gc_tuning", "telemetry.observer", "runtime.scratch", "settings", "pages.shared_pixels",
            "telemetry.stopwatch", "runtime.page_slots", "runtime.page_pool",
        ),
    ),
    (
        "steps.previews",
        (
            "document", "errors", "pages.source_files", "formats", "job", "steps.render", "steps.upload", "runtime.page_slots", "runtime.page_pool",
            "format_options",
        ),
    ),
    (
        "steps.reparse",
        (
            "document", "steps.previews", "engines", "errors", "families", "pages.source_files", "formats", "job", "pages.rendered_page", "pages.shared_pixels",
            "steps", "runtime.page_pool", "format_options",
        ),
    ),
    (
        "contexts",
        (
            "document", "steps.previews", "engines.interface", "errors", "families.interface", "pages.source_files", "formats", "worker", "runtime.admission",
            "job", "telemetry.progress", "runtime.scratch", "storage.sources", "steps.upload", "telemetry.stopwatch", "storage.store", "format_options",
        ),
    ),
    (
        "pipeline",
        (
            "runtime.shutdown", "document", "steps.previews", "errors", "pages.source_files", "worker", "runtime.admission", "job", "pages.rendered_page", "telemetry.progress",
            "contexts", "steps.report", "storage.sources", "steps", "telemetry.stopwatch", "storage.store", "runtime.page_slots",
        ),
    ),
    *((room, ()) for room in ("pages", "runtime", "storage", "telemetry", "text", "engines", "fleet", "cli") if (SOURCE / room).is_dir()),
    ("__init__", ()),
)  # fmt: skip

# foreign library -> the files that may import it; one library, as few files as it can be
HOMES = {
    "runpod": {"handler.py"},
    "vllm": {"engines/vllm/engine.py", "engines/gpus.py", "engines/vllm/plugin"},
    "pymupdf": {"pages/source_files.py", "steps/render.py", "engines/cpu/"},
    "pymupdf4llm": {"engines/cpu/page.py"},
    "PIL": {
        "pages/pillow_image.py",
        "engines/vllm/tiling.py",
        "steps/canary.py",
        "pages/source_files.py",
        "steps/render.py",
        "pages/ocr.py",
        "engines/cpu/scanned_page.py",
        "engines/hf/models.py",
        "engines/openai/request.py",
    },
    "boto3": {"storage/s3_store.py", "storage/error_mapping.py"},
    "botocore": {"storage/s3_store.py", "storage/error_mapping.py", "storage/pinned_connections.py"},
    "urllib3": {"storage/error_mapping.py", "storage/pinned_connections.py"},
    "httpx": {"storage/sources.py", "engines/openai/engine.py", "fleet/endpoints/runpod.py", "engines/hub.py"},
    "torch": {"engines/hf/models.py", "engines/gpus.py", "engines/vllm/plugin"},
    "transformers": {"engines/hf/models.py", "engines/vllm/plugin"},
    "huggingface_hub": {"engines/hub.py"},
    "jinja2": {"formats/review.py"},
    "docling_core": {"formats/docling.py"},
    "markupsafe": {"formats/review.py"},
    "math_core": {"formats/mathml.py"},
    "tenacity": {"engines/openai/engine.py", "fleet/endpoints/runpod.py", "storage/s3_store.py"},
    "rapidocr": {"pages/ocr.py"},
    "onnxruntime": {"engines/cpu/page.py"},
    "yake": {"text/keywords.py"},
    "rjieba": {"text/keywords.py"},
    "rapidfuzz": {"families/agreement.py"},
    "prometheus_client": {"telemetry/metrics.py"},
    "pynvml": {"runtime/nvml.py"},
    "opentelemetry": {"telemetry/traces.py"},
    "rich": {"cli/terminal.py", "fleet/display.py"},
    "triton": {"engines/vllm/plugin/ngram_kernel.py", "engines/vllm/plugin/sam_kernel.py"},
}


def modules() -> list[Path]:
    return sorted(SOURCE.rglob("*.py"))


def name_of(path: Path) -> str:
    return ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__")


def imported(path: Path) -> set[str]:
    """Every module imported anywhere in the file, inside functions too."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
    return names


def test_the_house_was_found() -> None:
    """The checks below look at real files."""
    found = {name_of(path) for path in modules()}

    assert {"pipeline", "document", "steps.render", "engines.cpu.engine", "families.layout"} <= found
    assert len(found) > 20


@pytest.mark.parametrize("path", modules(), ids=name_of)
def test_imports_run_one_way(path: Path) -> None:
    """A room imports only rooms below it; steps, families and engines never reach each other."""
    name = name_of(path)
    allowed = next((allowed for prefix, allowed in LAYERS if f"{name}.".startswith(f"{prefix}.")), None)
    inside = {module.removeprefix("twopass.") for module in imported(path) if module.startswith("twopass.")}

    assert allowed is not None, f"{name} needs a line in LAYERS"
    assert not {module for module in inside if not any(f"{module}.".startswith(f"{room}.") for room in allowed)}


@pytest.mark.parametrize("step", ("fetch", "render", "pass1", "pass2", "enrich", "assemble", "upload", "canary"))
def test_steps_never_import_each_other(step: str) -> None:
    """What two of them need lies below both."""
    inside = {module for module in imported(SOURCE / "steps" / f"{step}.py") if module.startswith("twopass.steps")}

    assert not inside


def test_every_line_of_the_layers_is_needed() -> None:
    """A line for a room that nobody built allows nothing."""
    names = {name_of(path) for path in modules()}
    unbuilt = {prefix for prefix, _ in LAYERS if not any(f"{name}.".startswith(f"{prefix}.") for name in names)}

    assert not unbuilt


@pytest.mark.parametrize("path", [*modules(), ROOT / "handler.py"], ids=str)
def test_a_foreign_library_is_imported_only_at_home(path: Path) -> None:
    """One library lives in as few files as it can."""
    place = str(path.relative_to(SOURCE if path.is_relative_to(SOURCE) else ROOT))
    used = {module.partition(".")[0] for module in imported(path)}

    homeless = {lib for lib in used & set(HOMES) if not any(place.startswith(home) for home in HOMES[lib])}

    assert not homeless


@pytest.mark.parametrize("path", modules(), ids=name_of)
def test_every_file_says_what_it_is_for(path: Path) -> None:
    """The first line of every module is one sentence."""
    docstring = ast.get_docstring(ast.parse(path.read_text()))

    assert docstring and len(docstring.splitlines()[0]) <= 119
