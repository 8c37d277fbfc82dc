"""What the documents say is what the program does."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "scripts"))

import make_docs  # noqa: E402 - scripts are no package
from twopass import engines  # noqa: E402
from twopass.errors import Code  # noqa: E402
from twopass.job import Door, Job  # noqa: E402
from twopass.settings import Settings  # noqa: E402

# every shell line of the README -> the test that runs its like; None where CI or a person types it
RUN_BY = {
    "make demo": None,
    "make test": None,
    "make gpu": None,  # gigabytes
    "make bench FILES=samples/sample.pdf": None,
    ".venv/bin/python scripts/process.py samples --output output": "tests/test_process.py",
    ".venv/bin/python scripts/reparse.py output/sample-0123456789ab --formats review,chunks": "tests/test_reparse.py",
    ".venv/bin/python scripts/reparse.py output/sample-0123456789ab --reread --output newer": "tests/test_reparse.py",
    "ENGINE=vllm MODEL=deepseek_ocr MODEL_DIR=/models/deepseek_ocr .venv/bin/python handler.py": None,  # needs a GPU
    ".venv/bin/python scripts/process.py samples --output output --preset 24": "tests/test_process.py",
    "vllm serve /models/deepseek_ocr --served-model-name deepseek_ocr --max-model-len 8192 --no-enable-prefix-caching"
    """ --mm-processor-cache-gb 0 --limit-mm-per-prompt '{"image": 1}' --scheduling-policy priority"""
    " --logits-processors twopass.vllm_plugin.ngram:NoRepeatNGram": "tests_vllm/test_openai.py",
    "ENGINE=openai OPENAI_BASE_URL=http://localhost:8000/v1 OPENAI_MODES=true OPENAI_PRIORITY=true"
    " .venv/bin/python scripts/process.py samples --output output": "tests/test_process.py",
    "ENGINE=hf MODEL=deepseek_ocr2 MODEL_DIR=/models/deepseek_ocr2"
    " .venv/bin/python scripts/process.py samples --output output": "tests/test_process.py",
    "ALLOWED_DIR=$PWD/samples .venv/bin/python handler.py --rp_serve_api --rp_api_port 8000": "tests/test_handler.py",
    "curl -s http://localhost:8000/runsync -H 'Content-Type: application/json'"
    """ -d '{"input": {"source": "samples/sample.pdf"}}'""": "tests/test_handler.py",
}


def blocks(language: str) -> list[str]:
    """The README's fenced blocks of one language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", (ROOT / "README.md").read_text(), re.M | re.S)


def shell_lines() -> list[str]:
    lines = "\n".join(blocks("sh")).replace("\\\n", " ").splitlines()
    return [line for whole in lines if (line := whole.partition("  #")[0].strip())]


def test_the_readmes_tables_are_the_codes() -> None:
    """Every environment variable, its default and its meaning, and every preset; `make docs` writes them."""
    text = (ROOT / "README.md").read_text()

    assert make_docs.with_tables(text) == text
    assert "| `24` | 100 |" in text and "| `CANARY` |" in text


def tree_names() -> list[str]:
    """Paths of the README's tree: at a line's beginning, indented below their folder."""
    tree = (ROOT / "README.md").read_text().partition("<!-- tree -->")[2].split("```")[1]
    place, names = [""], []
    for line in tree.strip().splitlines():
        depth = (len(line) - len(line.lstrip())) // 2
        for name in re.match(r"\s*((?:[\w./]*[./]\w* ?)+)", line)[1].split():  # type: ignore[index]
            place[depth + 1 :] = [f"{place[depth]}{name}"]
            names.append(f"{place[depth]}{name}")
    return names


def test_the_readmes_tree_is_on_the_disk() -> None:
    """Every file and folder the tree names exists."""
    assert len(tree_names()) > 25
    assert not [name for name in tree_names() if not (ROOT / name).exists()]


def test_the_disk_is_in_the_readmes_tree() -> None:
    """Every module of the package is named, or lies in a folder whose line tells of it."""
    named = set(tree_names())
    told = {f"src/twopass/{room}/" for room in ("formats", "families", "engines", "vllm_plugin")}

    modules = [str(path.relative_to(ROOT)) for path in (ROOT / "src").rglob("*.py") if path.name != "__init__.py"]

    assert told <= named
    assert not [name for name in modules if name not in named and not name.startswith(tuple(told))]


def test_every_shell_line_of_the_readme_is_known() -> None:
    """Who writes a command into the README says here what runs it."""
    assert sorted(shell_lines()) == sorted(RUN_BY)


@pytest.mark.parametrize(("line", "test"), [(line, test) for line, test in RUN_BY.items() if test])
def test_a_documented_command_is_run_by_the_test_that_is_named(line: str, test: str) -> None:
    """The test starts the same script, or calls the same address, with the same options."""
    telling = re.findall(r"\w+\.py\b|--\w+|/runsync|ALLOWED_DIR", line)
    source = (ROOT / test).read_text() + 'HANDLER = "handler.py"'

    assert telling
    assert not [word for word in telling if word.rpartition("/")[2] not in source]


def test_a_variable_before_a_command_is_a_setting_with_such_a_value(monkeypatch: pytest.MonkeyPatch) -> None:
    """A newcomer who copies the line sets something."""
    lines = [re.findall(r"\b([A-Z_]+)=(\S+) (?=.*python)", line) for line in shell_lines()]
    told = {name.lower(): value for line in lines for name, value in line}

    assert {"engine", "model_dir", "openai_base_url", "openai_modes"} <= set(told) <= set(Settings.model_fields)
    assert {dict(line).get("ENGINE", "cpu") for line in lines} <= set(engines.NAMES)
    assert Settings(**told).openai_modes


def test_the_readmes_make_targets_are_in_the_makefile() -> None:
    """A newcomer types `make demo` and `make test`; whoever changes a model types `make docs`."""
    targets = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.M))
    typed = {line.split()[1] for line in shell_lines() if line.startswith("make ")}

    assert {"demo", "test", "docs"} <= targets
    assert typed <= targets


def test_the_readmes_jobs_are_jobs() -> None:
    """Both the sample job for RunPod and the one that curl sends to the local API are accepted."""
    sample = json.loads(next(block for block in blocks("json") if '"input"' in block))
    sent = json.loads(next(line for line in shell_lines() if line.startswith("curl")).split("-d ")[1].strip("'"))

    assert Job.parse(sample, Settings(), Door.SERVERLESS).page_range
    assert Job.parse(sent, Settings(allowed_dir=ROOT / "samples"), Door.LOCAL).sources == ("samples/sample.pdf",)
    assert (ROOT / "samples" / "sample.pdf").exists()


def test_every_code_says_what_happened_and_what_to_do() -> None:
    """No code is missing, and none is told twice."""
    assert set(make_docs.MEANINGS) == set(Code)
    assert len(make_docs.JOB_CODES) + len(make_docs.PAGE_CODES) == len(Code)
    assert all(text.endswith(".") for pair in make_docs.MEANINGS.values() for text in pair)


def test_the_page_of_codes_is_fresh() -> None:
    """`make docs` writes it, and the README leads there."""
    assert make_docs.CODES_FILE.read_text() == make_docs.codes()
    assert "(docs/CODES.md)" in (ROOT / "README.md").read_text()


def test_the_licence_is_the_one_that_is_named() -> None:
    """pyproject says Apache-2.0, and the whole text lies beside it."""
    licence = (ROOT / "LICENSE").read_text()

    assert 'license = "Apache-2.0"' in (ROOT / "pyproject.toml").read_text()
    assert "Version 2.0, January 2004" in licence
    assert "END OF TERMS AND CONDITIONS" in licence
