"""What the documents say is what the program does."""

from __future__ import annotations

import json
import re
import sys
import tomllib
from pathlib import Path

import jsonschema
import openapi_spec_validator
import pytest

from tests import ROOT

sys.path.insert(0, str(ROOT / "scripts"))

import make_contract
import make_docs
import make_licences
from twopass.engines import factory
from twopass.errors import Code
from twopass.job import DocumentResult, Door, Job, Result
from twopass.settings import Settings

PAGES = ("README.md", "CONTRIBUTING.md", *sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs").glob("*.md")))

# every shell line of these pages -> the test that runs it or its like
RUN_BY = {
    ".venv/bin/python scripts/process.py samples --output output": "tests/test_process.py",
    ".venv/bin/python scripts/reparse.py output/sample-0123456789ab --formats review,chunks": "tests/test_reparse.py",
    ".venv/bin/python scripts/reparse.py output/sample-0123456789ab --reread --output newer": "tests/test_reparse.py",
    "vllm serve /models/deepseek_ocr --served-model-name deepseek_ocr --max-model-len 8192 --no-enable-prefix-caching"
    """ --mm-processor-cache-gb 0 --limit-mm-per-prompt '{"image": 1}' --scheduling-policy priority"""
    " --logits-processors twopass.engines.vllm.plugin.ngram_ban:NoRepeatNGram": "tests_vllm/test_openai.py",
    "ENGINE=openai OPENAI_BASE_URL=http://localhost:8000/v1 OPENAI_MODES=true OPENAI_PRIORITY=true"
    " .venv/bin/python scripts/process.py samples --output output": "tests/test_process.py",
    "ALLOWED_DIR=$PWD/samples .venv/bin/python handler.py --rp_serve_api --rp_api_port 8000": "tests/test_handler.py",
    "curl -s http://localhost:8000/runsync -H 'Content-Type: application/json'"
    """ -d '{"input": {"source": "samples/sample.pdf"}}'""": "tests/test_handler.py",
    ".venv/bin/python scripts/submit.py @papers.txt --endpoint ENDPOINT_ID --output s3://bucket/out/"
    """ --job '{"mode": "base", "pages": "1-20"}' --in-flight 32""": "tests/test_submit.py",
    ".venv/bin/python scripts/submit.py --endpoint ENDPOINT_ID --cancel": "tests/test_submit.py",
}
# docs/quickstart.md is run line by line, as it stands, by tests_doors/test_quickstart.py
# Lines that no test here can run, and what they need: Docker, a GPU, weights, or what makes the tests' environment.
NEEDS = {
    "docker build -t registry.example.com/twopass:0.1.0 .": "docker",
    "docker push registry.example.com/twopass:0.1.0": "docker",
    "docker build -t twopass-cpu --target cpu .": "docker",
    "docker run --rm twopass-cpu --test_input"
    """ '{"input": {"source": "/app/samples/sample.pdf", "pages": "1", "output": "/output"}}'""": "docker",
    "docker compose up --build --detach": "docker",
    "docker compose exec worker python3 /app/scripts/health.py http://localhost:9400": "docker",
    "docker compose -f compose.yaml -f compose.gpu.yaml up --build --detach": "docker",
    "ENGINE=vllm MODEL=deepseek_ocr MODEL_DIR=/models/deepseek_ocr .venv/bin/python handler.py": "gpu",
    "make gpu": "gpu",
    ".venv/bin/python scripts/process.py samples --output output --preset 24": "gpu",
    "ENGINE=hf MODEL=deepseek_ocr2 MODEL_DIR=/models/deepseek_ocr2"
    " .venv/bin/python scripts/process.py samples --output output": "weights",
    "make demo": "ci",
    "make test": "ci",
    "make check": "ci",
    "make bench FILES=samples/sample.pdf": "ci",
    "scripts/install.sh build/image": "ci",
}


def blocks(language: str, *pages: str) -> list[str]:
    """The fenced blocks of one language, of the README unless other pages are named."""
    texts = [(ROOT / page).read_text() for page in pages or ("README.md",)]
    return [block for text in texts for block in re.findall(rf"^```{language}\n(.*?)^```$", text, re.M | re.S)]


def shell_lines(*pages: str) -> list[str]:
    lines = "\n".join(blocks("sh", *pages)).replace("\\\n", " ").splitlines()
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
    told = {f"src/twopass/{room}/" for room in ("formats", "families", "engines", "vllm_plugin", "fleet")}

    modules = [str(path.relative_to(ROOT)) for path in (ROOT / "src").rglob("*.py") if path.name != "__init__.py"]

    assert told <= named
    assert not [name for name in modules if name not in named and not name.startswith(tuple(told))]


def test_every_shell_line_of_every_page_is_run_or_says_what_it_needs() -> None:
    """Who writes a command into a page says here what runs it; no line is listed that stands nowhere."""
    rest = {line for page in PAGES if page != "docs/quickstart.md" for line in shell_lines(page)}

    assert len(rest) > 20
    assert rest == set(RUN_BY) | (set(NEEDS) - set(shell_lines("docs/quickstart.md")) | (set(NEEDS) & rest))
    assert not set(RUN_BY) & set(NEEDS)


@pytest.mark.parametrize(("line", "test"), RUN_BY.items())
def test_a_documented_command_is_run_by_the_test_that_is_named(line: str, test: str) -> None:
    """The test starts the same script, or calls the same address, with the same options and settings."""
    telling = re.findall(r"\w+\.py\b|--\w[\w-]+|/runsync|\b[A-Z][A-Z_]+(?==)|(?<=ENGINE=)\w+", line)
    source = (ROOT / test).read_text() + 'HANDLER = "handler.py"'

    assert telling
    assert not [word for word in telling if word.rpartition("/")[2] not in source]


@pytest.mark.parametrize(("line", "need"), NEEDS.items())
def test_a_command_that_no_test_runs_needs_what_it_says(line: str, need: str) -> None:
    """Docker's commands need Docker, vLLM's a GPU, and the rest is run by CI, word for word."""
    script = (ROOT / ".ci" / "run").read_text() + (ROOT / "Makefile").read_text()
    if need == "docker":
        assert line.startswith("docker ")
    elif need == "gpu":
        assert "ENGINE=vllm" in line or "--preset 24" in line or line == "make gpu"
    elif need == "weights":
        assert "MODEL_DIR=" in line
    else:
        assert line in script


def test_what_was_not_tried_is_listed_where_a_deployer_reads_it() -> None:
    """Whatever needs Docker, an account or the weights; the deployment page says so in words."""
    page = (ROOT / "docs" / "runpod.md").read_text()
    told = page.partition("<!-- not tried -->")[2].partition("<!-- /not tried -->")[0]

    for word in ("image", "compose.yaml", "hub.json", "tests.json", "weights", "endpoint", "runpod.toml", "vLLM"):
        assert word in told
    assert len(re.findall(r"^- ", told, re.M)) >= 7


@pytest.mark.parametrize("page", [page for page in PAGES if page.startswith("docs/")])
def test_every_page_is_in_the_sites_navigation(page: str) -> None:
    """A page that nothing leads to is read by nobody."""
    assert f" {Path(page).name}\n" in (ROOT / "mkdocs.yml").read_text()


@pytest.mark.parametrize("code", Code)
def test_every_code_has_its_line_in_the_page_of_troubleshooting(code: Code) -> None:
    """What happened and what to do, in one row, and the code is told somewhere in the program."""
    row = re.search(rf"^\| `{code}` \| (.+) \| (.+) \|$", make_docs.CODES_FILE.read_text(), re.M)
    program = "".join(path.read_text() for path in (ROOT / "src").rglob("*.py") if path.name != "errors.py")

    assert row and all(len(cell) > 15 for cell in row.groups())
    assert f"Code.{code.name}" in program


def test_the_contracts_pages_are_fresh() -> None:
    """`make docs` writes them from the models; every field has a meaning."""
    assert make_contract.CONTRACT.read_text() == make_contract.contract()
    assert json.loads(make_contract.OPENAPI.read_text()) == make_contract.openapi()
    assert make_docs.CONFIGURATION.read_text() == make_docs.configuration()
    for model, told in ((Result, make_contract.RESULT), (DocumentResult, make_contract.DOCUMENT)):
        assert set(model.model_fields) == set(told)


def test_the_openapi_description_is_one_and_takes_the_jobs_of_the_readme() -> None:
    """Valid by OpenAPI's own rules; its Job accepts what the program accepts and refuses unknown fields."""
    described = make_contract.openapi()
    openapi_spec_validator.validate(described)
    job = {"$ref": "#/components/schemas/Job", "components": described["components"]}
    accepts = jsonschema.Draft202012Validator(job).is_valid

    assert accepts(json.loads(blocks("json")[0])["input"])
    assert not accepts({"source": "s3://b/k", "colour": 1})
    assert not accepts({"pages": "1"})


def test_the_page_of_licences_has_every_pin() -> None:
    """Name and version as pinned, a licence for each, and PyMuPDF's two."""
    page = make_licences.PAGE.read_text()

    for name, version in (*make_licences.pinned(), *make_licences.pinned(make_licences.IMAGE)):
        assert re.search(rf"^\| {re.escape(name)} \| {re.escape(version)} \| (?!unknown).+ \|$", page, re.M), name
    assert "AGPL-3.0" in page and "AGPL" in (ROOT / "NOTICE").read_text()


def test_a_variable_before_a_command_is_a_setting_with_such_a_value(monkeypatch: pytest.MonkeyPatch) -> None:
    """A newcomer who copies the line sets something."""
    lines = [re.findall(r"\b([A-Z_]+)=(\S+) (?=.*python)", line) for line in shell_lines()]
    told = {name.lower(): value for line in lines for name, value in line}

    assert {"engine", "model_dir", "openai_base_url", "openai_modes"} <= set(told) <= set(Settings.model_fields)
    assert {dict(line).get("ENGINE", "cpu") for line in lines} <= set(factory.NAMES)
    assert Settings(**told).openai_modes


# Targets that CI does not run, and why.
BY_HAND = {
    "gpu": "needs a GPU",
    "chaos": "takes an hour; test-chaos runs a few of each",
    "docs": "writes what tests compare",
    "pins": "writes what `make image` compares",
}


def test_whatever_a_page_names_in_passing_exists() -> None:
    """Targets, run by CI or listed with the reason; scripts; extras of the package."""
    text = "".join((ROOT / page).read_text() for page in (*PAGES, "caches/README.md") if page != "docs/LOG.md")
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.M))
    ci = set(re.findall(r"^make ([\w-]+)", (ROOT / ".ci" / "run").read_text(), re.M))
    named = set(re.findall(r"\bmake ([a-z-]+)`", text)) | set(re.findall(r"^make ([a-z-]+)", text, re.M))
    extras = set(re.findall(r"'\.\[(\w+)\]'", text))

    assert {"demo", "test", "docs", "test-vllm"} <= named <= targets
    assert named - ci == set(BY_HAND)
    assert not [name for name in re.findall(r"\bscripts/\w+\.(?:py|sh)\b", text) if not (ROOT / name).exists()]
    assert extras and extras <= set(
        tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    )


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
