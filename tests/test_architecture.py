"""The structure of the package: which room may import which, how much, and where third-party libraries are used.

A room is a package or a module directly below `src/twopass`; the term is used only in this file.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from tests import ROOT

SOURCE = ROOT / "src" / "twopass"
# Names that modules take from each other, per 1,000 lines of code: what somebody new has to know. When it is exceeded,
# nothing is split or merged to please it: look whether names that only one module uses belong there, or are private.
MAX_NAMES = 39

# The rooms that each room may import, from the lowest room to the highest.
ROOMS: dict[str, tuple[str, ...]] = {
    "version": (),
    "errors": (),
    "values": (),
    "locations": (),
    "models": ("errors",),
    "format_options": ("values",),
    "settings": ("errors", "format_options", "models"),
    "page_range": (),
    "document": ("errors", "values"),
    "result": ("document", "errors", "page_range", "values"),
    "job": ("errors", "format_options", "locations", "page_range", "result", "settings", "values"),
    "text": ("document",),
    "pages": ("document", "errors", "text"),
    "detection": ("document", "pages", "values"),
    "runtime": ("errors", "pages", "settings", "values"),
    "storage": ("errors", "job", "locations", "runtime", "settings", "version"),
    "telemetry": ("errors", "result", "runtime", "settings", "storage"),
    "formats": ("document", "errors", "format_options", "job", "text"),
    "engines": (
        "detection", "document", "errors", "locations", "models", "pages", "runtime", "settings", "storage", "text",
        "version",
    ),
    "families": ("detection", "document", "errors", "models", "pages", "text", "values"),
    "steps": (
        "detection", "document", "engines", "errors", "families", "format_options", "formats", "job", "locations",
        "page_range", "pages", "result", "runtime", "settings", "storage", "telemetry", "text", "values",
    ),
    "worker": ("document", "engines", "families", "models", "pages", "runtime", "settings", "steps", "telemetry"),
    "contexts": (
        "document", "engines", "errors", "families", "format_options", "formats", "job", "pages", "runtime", "steps",
        "settings", "storage", "telemetry", "worker",
    ),
    "pipeline": (
        "contexts", "document", "engines", "errors", "job", "locations", "pages", "result", "runtime", "settings",
        "steps", "storage", "telemetry", "worker",
    ),
    "fleet": (
        "errors", "job", "locations", "page_range", "pages", "pipeline", "runtime", "settings", "steps", "storage",
        "telemetry", "values", "version", "worker",
    ),
    "api": (
        "contexts", "document", "engines", "errors", "fleet", "formats", "job", "pipeline", "runtime", "settings",
        "steps", "storage", "telemetry", "worker",
    ),
    "__init__": ("api", "job", "settings", "version"),
    "acceptance": (
        "document", "engines", "errors", "families", "job", "models", "pages", "pipeline", "runtime",
        "settings", "steps", "telemetry", "text", "values", "version", "worker",
    ),
    "server": (
        "contexts", "document", "engines", "errors", "formats", "job", "locations", "pages", "pipeline", "result",
        "runtime", "settings", "steps", "storage", "telemetry", "values", "worker",
    ),
    "integrations": ("api", "errors", "fleet", "formats", "job", "runtime", "settings"),
    "mcp_server": (
        "api", "document", "errors", "fleet", "formats", "job", "locations", "result", "runtime", "settings",
        "telemetry", "values", "version", "worker",
    ),
    "cli": (
        "acceptance", "contexts", "document", "engines", "errors", "families", "fleet", "format_options", "formats",
        "job", "locations", "mcp_server", "models", "page_range", "pages", "pipeline", "result", "runtime", "server",
        "settings", "steps", "storage", "telemetry", "text", "values", "version", "worker",
    ),
}  # fmt: skip

# Modules that may import less than their room: what runs inside vLLM's processes stays light.
LIGHT = {
    "engines.vllm.plugin": ("engines.vllm.plugin", "engines.vllm.kernels", "engines.vllm.tiling", "models", "pages")
}
SHARED = ("audit", "fallback", "missed_text", "page_context", "picture_text")  # what both passes and stored pages need
STEPS = ("fetch", "render", "pass1", "pass2", "enrich", "assemble", "document_folder", "canary")

# The files that may import a third-party library: as few as possible.
HOMES = {
    "runpod": {"handler.py"},
    "vllm": {
        "acceptance/reference.py",
        "acceptance/stock_vllm.py",
        "engines/vllm/core.py",
        "engines/vllm/core_process.py",
        "engines/vllm/engine.py",
        "engines/gpus.py",
        "engines/vllm/plugin",
    },
    "pymupdf": {
        "acceptance/drawn_pages.py",
        "pages/damage.py",
        "pages/epub.py",
        "pages/colored_ink.py",
        "pages/hidden_words.py",
        "pages/own_ink.py",
        "pages/lying_fonts.py",
        "pages/optional_content.py",
        "pages/page_annotations.py",
        "pages/searchable_pdf.py",
        "pages/source_files.py",
        "pages/tesseract.py",
        "pages/word_places.py",
        "steps/render.py",
        "engines/cpu/",
    },
    "pymupdf4llm": {"engines/cpu/layout_regions.py"},
    "PIL": {
        "acceptance/stock_vllm.py",
        "pages/pillow_image.py",
        "pages/image_bands.py",
        "engines/vllm/tiling.py",
        "pages/canary_images.py",
        "pages/source_files.py",
        "steps/render.py",
        "pages/orientation.py",
        "pages/tesseract.py",
        "engines/cpu/scanned_page.py",
        "engines/hf/models.py",
        "engines/openai/request.py",
        "acceptance/records.py",
        "mcp_server/library.py",
    },
    "boto3": {"storage/s3.py", "storage/error_mapping.py"},
    "botocore": {"storage/s3.py", "storage/error_mapping.py", "storage/ssrf_guard.py"},
    "urllib3": {"storage/error_mapping.py", "storage/ssrf_guard.py"},
    "httpx": {
        "storage/https.py",
        "engines/openai/engine.py",
        "fleet/endpoints/runpod.py",
        "engines/hub.py",
        "cli/health.py",
    },
    "torch": {
        "acceptance/vision_inputs.py",
        "engines/hf/models.py",
        "engines/gpus.py",
        "engines/vllm/plugin",
        "engines/detector/model.py",
        "engines/detector/process.py",
    },
    "tokenizers": {"acceptance/reference.py"},
    "transformers": {
        "acceptance/tested_models.py",
        "engines/detector/model.py",
        "engines/hf/models.py",
        "engines/vllm/plugin",
    },
    "huggingface_hub": {"engines/hub.py"},
    "fastapi": {"server/"},
    "starlette": {"server/"},
    "uvicorn": {"server/app.py", "server/connections.py"},
    "langchain_core": {"integrations/langchain.py"},
    "llama_index": {"integrations/llama_index.py"},
    "mcp": {"mcp_server/server.py"},
    "jinja2": {"formats/review.py"},
    "docling_core": {"formats/docling.py"},
    "markdown_it": {"formats/html/text.py"},
    "markupsafe": {"formats/html/", "formats/review.py", "server/reference.py"},
    "math_core": {"formats/html/text.py"},
    "tenacity": {"runtime/retry.py"},
    "rapidocr": {"pages/ocr.py"},
    "cv2": {
        "detection/ink.py",
        "engines/cpu/layout_regions.py",
        "engines/cpu/tables/rules.py",
        "engines/detector/decode.py",
        "pages/colored_ink.py",
        "pages/hidden_words.py",
        "pages/own_ink.py",
        "pages/lying_fonts.py",
        "pages/ink.py",
        "pages/strips.py",
    },
    "onnxruntime": {"engines/cpu/layout_regions.py", "pages/ocr.py"},
    "yake": {"text/keywords.py"},
    "rjieba": {"text/keywords.py"},
    "simplemma": {"text/hyphenation.py"},
    "rapidfuzz": {
        "acceptance/greedy_tokens.py",
        "families/agreement.py",
        "settings.py",
        "text/links.py",
        "text/page_furniture.py",
    },
    "apted": {"acceptance/scores.py"},
    "prometheus_client": {"acceptance/run.py", "telemetry/metrics.py"},
    "pynvml": {"runtime/nvml.py"},
    "opentelemetry": {"telemetry/traces.py"},
    "ray": {"fleet/endpoints/ray_cluster.py"},
    "rich": {"cli/", "fleet/display.py"},
    "typer": {"cli/"},
    "triton": {
        "engines/vllm/kernels.py",
        *(f"engines/vllm/plugin/{name}.py" for name in ("layer_norm", "ngram_kernel", "sam_kernel", "speculator")),
    },
}


def find_modules() -> list[Path]:
    return sorted(SOURCE.rglob("*.py"))


def name_of(path: Path) -> str:
    return ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__")


def room_of(name: str) -> str:
    return name.partition(".")[0]


@cache
def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


@cache
def find_imports(path: Path) -> set[str]:
    """Every module that the file imports, also inside functions."""
    names: set[str] = set()
    for node in ast.walk(parse(path)):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.update(_as_module(f"{node.module}.{alias.name}") for alias in node.names)
    return names


def _as_module(name: str) -> str:
    """`twopass.errors.Code` as `twopass.errors`; names of modules are returned unchanged."""
    path = SOURCE.parent / name.replace(".", "/")
    is_module = not name.startswith("twopass.") or path.is_dir() or path.with_suffix(".py").exists()
    return name if is_module else name.rpartition(".")[0]


def find_own_imports(path: Path) -> set[str]:
    own = {name for name in find_imports(path) if name == "twopass" or name.startswith("twopass.")}
    return {name.removeprefix("twopass").lstrip(".") or "__init__" for name in own}


def test_the_package_was_found() -> None:
    """The checks below look at real files."""
    names = {name_of(path) for path in find_modules()}

    assert {"pipeline", "job", "steps.render", "engines.cpu.engine", "families.layout.family"} <= names
    assert len(names) > 100


def test_a_room_imports_only_the_rooms_below_it() -> None:
    """Every room has a row in ROOMS, and no module imports a room that its row does not name."""
    imports = {name_of(path) or "__init__": find_own_imports(path) for path in find_modules()}

    assert not {room_of(name) for name in imports} - set(ROOMS), "rooms that need a row in ROOMS"
    assert not [
        (name, module)
        for name, modules in imports.items()
        for module in modules
        if room_of(module) not in {room_of(name), *ROOMS[room_of(name)]}
    ]


def test_rows_name_only_rooms_above_them() -> None:
    """Imports run one way: a row may name only rooms that come before it."""
    order = list(ROOMS)

    assert not [(room, low) for room, lower in ROOMS.items() for low in lower if order.index(low) >= order.index(room)]


def test_every_row_is_needed() -> None:
    """A row names rooms that exist and that it imports."""
    imports = {room: set[str]() for room in ROOMS}
    for path in find_modules():
        imports[room_of(name_of(path)) or "__init__"] |= {room_of(module) for module in find_own_imports(path)}

    assert {room: set(lower) for room, lower in ROOMS.items()} == {
        room: found - {room} for room, found in imports.items()
    }


def test_no_module_imports_itself_through_others() -> None:
    """There is no import cycle, also none that an import inside a function hides."""
    imports = {name_of(path) or "__init__": find_own_imports(path) for path in find_modules()}

    def walk(name: str, above: tuple[str, ...]) -> None:
        assert name not in above, " -> ".join((*above[above.index(name) :], name))
        if name not in checked:
            for module in imports.get(name, ()):
                walk(module, (*above, name))
            checked.add(name)

    checked: set[str] = set()
    for name in imports:
        imports[name].discard(name)
        walk(name, ())


@pytest.mark.parametrize("prefix", LIGHT)
def test_light_modules_import_little(prefix: str) -> None:
    """vLLM imports the plugin in each of its processes, so it must not bring in the rest of the package."""
    paths = [path for path in find_modules() if f"{name_of(path)}.".startswith(f"{prefix}.")]
    imports = {module for path in paths for module in find_own_imports(path)}

    assert len(paths) > 5
    assert not {module for module in imports if not any(f"{module}.".startswith(f"{low}.") for low in LIGHT[prefix])}


@pytest.mark.parametrize("step", STEPS)
def test_steps_do_not_import_each_other(step: str) -> None:
    """What two steps need is in SHARED or below both. Only report, artefacts and reparse are built from other steps."""
    imports = {module for module in find_own_imports(SOURCE / "steps" / f"{step}.py") if room_of(module) == "steps"}

    assert not imports - {"steps", *(f"steps.{shared}" for shared in SHARED)}


def find_names(path: Path) -> set[tuple[str, str]]:
    """Every name that the file takes from another module of the package: imported, or called through the module."""
    tree, names, modules = parse(path), set[tuple[str, str]](), dict[str, str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.partition(".")[0] == "twopass":
            for alias in node.names:
                if _as_module(full := f"{node.module}.{alias.name}") == full:
                    modules[alias.asname or alias.name] = full
                else:
                    names.add((node.module, alias.name))
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in modules:
            names.add((modules[node.value.id], node.attr))
    return names


def count_code(path: Path) -> int:
    """Lines without blank ones, comments and docstrings."""
    text, documented = path.read_text(), ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    nodes = (node for node in ast.walk(parse(path)) if isinstance(node, documented) and ast.get_docstring(node))
    docstrings = {n for node in nodes for n in range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1)}
    lines = ((n, line.strip()) for n, line in enumerate(text.splitlines(), start=1))
    return sum(bool(line) and not line.startswith("#") and n not in docstrings for n, line in lines)


def test_few_names_cross_the_borders_of_modules() -> None:
    """Much stands behind few names: what a module shares is little beside what it does."""
    users = Counter(name for path in find_modules() for name in find_names(path))
    names_per_1000 = 1000 * len(users) / sum(map(count_code, find_modules()))
    single = Counter(module for (module, _), count in users.items() if count == 1)

    assert users["twopass.document", "Element"] > 10 and users["twopass.runtime.task_group", "open_group"] > 5
    assert names_per_1000 <= MAX_NAMES, f"names that one module uses: {single.most_common(20)}"


def tree_names() -> list[str]:
    """The paths that the tree in docs/architecture.md names; entries are indented by two spaces per folder."""
    tree = (ROOT / "docs" / "architecture.md").read_text().partition("<!-- tree -->")[2].split("```")[1]
    parents, names = [""], []
    for line in tree.strip("\n").splitlines():
        depth = (len(line) - len(line.lstrip())) // 2
        for entry in re.match(r"\s*((?:[\w./]*[./]\w* ?)+)", line)[1].split():  # type: ignore[index]
            parents[depth + 1 :] = [f"{parents[depth]}{entry}"]
            names.append(f"{parents[depth]}{entry}")
    return names


def test_every_line_of_the_tree_says_what_is_there() -> None:
    """Somebody new finds things by a few words about each file and folder."""
    tree = (ROOT / "docs" / "architecture.md").read_text().partition("<!-- tree -->")[2].split("```")[1]

    assert not [line for line in tree.splitlines() if line.strip() and not re.search(r"[./]\w* +\S+", line.strip())]


def test_the_documented_tree_exists() -> None:
    """Every file and folder of the tree in docs/architecture.md exists."""
    assert len(tree_names()) > 100
    assert not [name for name in tree_names() if not (ROOT / name).exists()]


def test_every_module_is_in_the_documented_tree() -> None:
    """The tree has a line for every room and every module of the package."""
    paths = [path for path in find_modules() if path.name != "__init__.py"]
    folders = {path.parent for path in paths} - {SOURCE}
    expected = {str(path.relative_to(ROOT)) for path in paths}
    expected |= {f"{folder.relative_to(ROOT)}/" for folder in folders}

    assert not expected - set(tree_names())


def test_a_third_party_library_is_used_in_few_files() -> None:
    """A library is imported only by the files that HOMES lists, so that it can be replaced."""
    places = {str(path.relative_to(SOURCE)): path for path in find_modules()} | {"handler.py": ROOT / "handler.py"}

    assert not [
        (place, library)
        for place, path in places.items()
        for library in {module.partition(".")[0] for module in find_imports(path)} & set(HOMES)
        if not any(place.startswith(home) for home in HOMES[library])
    ]


def test_every_file_says_what_it_is_for() -> None:
    """Every module begins with a docstring whose first line is one sentence."""
    docstrings = {name_of(path): ast.get_docstring(parse(path)) or "" for path in find_modules()}

    assert not [name for name, text in docstrings.items() if not text.partition("\n")[0].endswith((".", ":"))]
