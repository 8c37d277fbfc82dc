"""The documentation agrees with the program."""

from __future__ import annotations

import importlib.util
import json
import re
import shlex
import subprocess
import tomllib
from importlib.metadata import distribution
from itertools import pairwise
from pathlib import Path
from typing import Any, get_args

import jsonschema
import openapi_spec_validator
import pytest
import typer

from scripts.generate import codes, contract, licences
from scripts.generate import settings as settings_tables
from tests import ROOT
from twopass.cli.app import COMMANDS, app
from twopass.errors import Code
from twopass.job import EntryPoint, Job
from twopass.models import WEIGHTS
from twopass.result import DocumentResult, Result
from twopass.runtime import vendor_reports
from twopass.settings import EngineName, Settings

PAGES = ("README.md", "CONTRIBUTING.md", *sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs").glob("*.md")))

# every shell line of these pages -> the test that runs it or a similar one
RUN_BY = {
    ".venv/bin/twopass reparse output/sample-0123456789ab --formats review,chunks": "tests/steps/test_reparse.py",
    ".venv/bin/twopass reparse output/sample-0123456789ab --reread --output newer": "tests/steps/test_reparse.py",
    "TWOPASS_VLLM_PLUGIN=1 vllm serve /models/deepseek_ocr --served-model-name deepseek_ocr --max-model-len 8192"
    """ --no-enable-prefix-caching --mm-processor-cache-gb 0 --limit-mm-per-prompt '{"image": 1}'"""
    " --scheduling-policy priority --trust-request-mm-kwargs"
    " --logits-processors twopass.engines.vllm.plugin.ngram_v2:NoRepeatNGram": "tests/vllm/test_openai.py",
    "ENGINE=openai OPENAI_BASE_URL=http://localhost:8000/v1 OPENAI_MODES=true OPENAI_PRIORITY=true"
    " .venv/bin/twopass read samples --output output": "tests/processes/test_read.py",
    ".venv/bin/twopass submit @papers.txt --endpoint ENDPOINT_ID --output s3://bucket/out/"
    """ --job '{"mode": "base", "pages": "1-20"}' --in-flight 32""": "tests/processes/test_submit.py",
    ".venv/bin/twopass submit --endpoint ENDPOINT_ID --cancel": "tests/processes/test_submit.py",
    ".venv/bin/twopass read s3://bucket/papers/ --output s3://bucket/read/": "tests/processes/test_shared_output.py",
    ".venv/bin/twopass read scans/ --formats pdf --output searchable": "tests/scans/test_searchable.py",
    ".venv/bin/twopass submit papers --ray local --output read --workers 8": "tests/cluster/test_ray.py",
    ".venv/bin/twopass submit s3://bucket/papers/ --ray auto --output s3://bucket/read/"
    " --workers 64": "tests/cluster/test_ray.py",
    ".venv/bin/python -m scripts.bench predict omnidocbench OmniDocBench"
    " --output predictions/twopass": "tests/api/test_predictions.py",
    ".venv/bin/python -m scripts.bench predict olmocr-bench olmOCR-bench/bench_data"
    " --output olmOCR-bench/bench_data/twopass": "tests/api/test_predictions.py",
    ".venv/bin/twopass serve": "tests/server/conftest.py",
    "SERVE_API_KEY=$(openssl rand -hex 24)"
    " .venv/bin/twopass serve --host 0.0.0.0 --port 8000": "tests/server/conftest.py",
    'curl -s "http://localhost:8000/v1/jobs?wait_s=300" -F file=@samples/sample.pdf'
    """ -F 'job={"pages": "1-2", "inline": ["markdown"]}'""": "tests/server/test_jobs_over_http.py",
    'curl -s "http://localhost:8000/v1/jobs?wait_s=300" -F file=@samples/sample.pdf'
    """ -F 'job={"pages": "1-2", "formats": ["pdf"]}'""": "tests/server/test_jobs_over_http.py",
    "curl -s -o out.pdf http://localhost:8000/v1/jobs/ID/document.pdf": "tests/server/test_jobs_over_http.py",
    ".venv/bin/python -m scripts.try_endpoint ENDPOINT_ID --output s3://bucket/try/"
    " --price-per-hour 1.1": "tests/quickstart/test_try_endpoint.py",
}
# docs/quickstart.md is run line by line, as it stands, by tests/quickstart/test_quickstart.py
# Lines that no test here can run, and what they need: Docker, a GPU, weights, or what makes the tests' environment.
NEEDS = {
    "docker build -t registry.example.com/twopass:0.2.0 .": "docker",
    "docker build -t registry.example.com/twopass:0.2.0-gpu --target gpu .": "docker",
    "docker push registry.example.com/twopass:0.2.0": "docker",
    "docker build -t twopass --secret id=HF_TOKEN .": "docker",
    "docker build -t twopass-cpu --target cpu .": "docker",
    "docker run --rm twopass-cpu --test_input"
    """ '{"input": {"source": "/app/samples/sample.pdf", "pages": "1", "output": "/output"}}'""": "docker",
    'docker run --rm -v "$PWD:/work" -w /work --entrypoint twopass twopass-cpu read samples/sample.pdf'
    " --output output": "docker",
    "docker compose up --build --detach": "docker",
    "docker compose exec worker twopass health http://localhost:9400": "docker",
    "docker compose run --rm --entrypoint twopass worker doctor": "docker",
    "docker compose -f compose.yaml -f compose.gpu.yaml up --build --detach": "docker",
    "ENGINE=vllm MODEL=deepseek_ocr MODEL_DIR=/models/deepseek_ocr .venv/bin/python handler.py": "gpu",
    "make gpu": "gpu",
    ".venv/bin/twopass read samples --output output --preset 24": "gpu",
    "ENGINE=hf MODEL=deepseek_ocr2 MODEL_DIR=/models/deepseek_ocr2"
    " .venv/bin/twopass read samples --output output": "weights",
    "MODEL_DIR=/models/deepseek_ocr .venv/bin/twopass accept --tune --rates --files my-documents": "weights",
    "MODEL_DIR=/models/deepseek_ocr .venv/bin/twopass accept": "weights",
    "MODEL_DIR=/models/deepseek_ocr .venv/bin/twopass accept --record my-records": "weights",
    "MODEL_DIR=/models/deepseek_ocr .venv/bin/twopass accept --records my-records": "weights",
    "make demo": "ci",
    "make test": "ci",
    "make check": "ci",
    "make bench FILES=samples/sample.pdf": "ci",
    'curl -s https://api.runpod.ai/v2/ENDPOINT_ID/runsync -H "Authorization: Bearer $RUNPOD_API_KEY"'
    """ -H 'Content-Type: application/json' -d '{"input": {"source": "https://example.com/report.pdf"}}'""": "account",
}


def find_blocks(language: str, *pages: str) -> list[str]:
    """Return the fenced blocks in one language of these pages."""
    texts = [(ROOT / page).read_text() for page in pages]
    return [block for text in texts for block in re.findall(rf"^```{language}\n(.*?)^```$", text, re.M | re.S)]


def find_shell_lines(*pages: str) -> list[str]:
    lines = "\n".join(find_blocks("sh", *pages)).replace("\\\n", " ").splitlines()
    return [line for line_with_comment in lines if (line := line_with_comment.partition("  #")[0].strip())]


def test_the_readme_fits_on_a_few_screens() -> None:
    """A newcomer reads 110 lines at most, sees a picture that exists, and no word that only we know."""
    text = (ROOT / "README.md").read_text()

    assert len(text.splitlines()) <= 110
    assert [(ROOT / path).is_file() for path in re.findall(r"!\[[^]]+\]\(([^)]+)\)", text)] == [True]
    assert not re.search(r"\b(gundam|rungs?|ladder|canary|furniture)\b", text, re.IGNORECASE)


def test_the_security_page_lists_what_is_switched_off() -> None:
    """Each variable that switches off a library's reports is in a row of the table, and no other is."""
    text = (ROOT / "SECURITY.md").read_text()

    assert set(re.findall(r"^\|.* \| `([A-Z_]+)` \|$", text, re.M)) == set(vendor_reports.SWITCHES)


def test_the_demo_says_what_it_does_not_do() -> None:
    """Its last line names what a newcomer might take as shown: a model, a GPU, a bucket, RunPod."""
    recipe = (ROOT / "Makefile").read_text().partition("\ndemo:")[2].partition("\n\n")[0]

    assert all(word in recipe.splitlines()[-1] for word in ("@echo", "no OCR model", "GPU", "bucket", "RunPod"))


def test_every_shell_line_is_run_by_a_test_or_listed_with_what_it_needs() -> None:
    """Each command in a page is listed here with what runs it or what it needs, and each listed one is in a page."""
    # the README's second block is run by tests/install/test_readme.py
    first = set(find_blocks("sh", "README.md")[1].splitlines())
    lines = {line for page in PAGES if page != "docs/quickstart.md" for line in find_shell_lines(page)} - first

    assert len(lines) > 20
    assert lines == set(RUN_BY) | (set(NEEDS) - set(find_shell_lines("docs/quickstart.md")) | (set(NEEDS) & lines))
    assert not set(RUN_BY) & set(NEEDS)


@pytest.mark.parametrize(("line", "test"), RUN_BY.items())
def test_a_documented_command_is_run_by_the_test_that_is_named(line: str, test: str) -> None:
    """The test's source names the script, command or address of the line, and its options and settings."""
    expected_words = re.findall(
        r"\w+\.py\b|--\w[\w-]+|/runsync|/v1/jobs\?wait_s|/document\.pdf|\b[A-Z][A-Z_]+(?==)|(?<=ENGINE=)\w+", line
    )
    expected_words += [f'"{command}"' for command in re.findall(r"bin/twopass ([\w-]+)", line)]
    source = (ROOT / test).read_text() + 'HANDLER = "handler.py"'

    assert expected_words
    assert not [word for word in expected_words if word.rpartition("/")[2] not in source]


@pytest.mark.parametrize(("line", "need"), NEEDS.items())
def test_a_command_that_no_test_runs_needs_what_it_says(line: str, need: str) -> None:
    """Docker commands need Docker, vLLM commands a GPU, others weights or RunPod; CI runs the rest word for word."""
    script = (ROOT / ".ci" / "run").read_text() + (ROOT / "Makefile").read_text()
    if need == "docker":
        assert line.startswith("docker ")
    elif need == "gpu":
        assert "ENGINE=vllm" in line or "--preset 24" in line or line == "make gpu"
    elif need == "weights":
        assert "MODEL_DIR=" in line
    elif need == "account":
        assert "https://api.runpod.ai/" in line
    else:
        assert line in script


@pytest.mark.parametrize("line", NEEDS)
def test_a_command_that_no_test_runs_has_correct_syntax(line: str) -> None:
    """A shell parses it; options of twopass, stages of the Dockerfile and compose files that it names exist."""
    parsed = subprocess.run(["bash", "-n", "-c", line], capture_output=True, text=True, check=False)
    words = shlex.split(line)
    stages = re.findall(r"^FROM .* AS (\S+)", (ROOT / "Dockerfile").read_text(), re.M)

    assert (parsed.returncode, parsed.stderr) == (0, "")
    assert not [after for word, after in pairwise(words) if word == "--target" and after not in stages]
    assert not [after for word, after in pairwise(words) if word == "-f" and not (ROOT / after).is_file()]
    if "twopass" in (names := [Path(word).name for word in words]) and words[0] != "docker":
        command = get_command(names[names.index("twopass") + 1])
        assert {word for word in words if word.startswith("--")} <= set(find_options(command))


def get_command(name: str) -> Any:
    group = typer.main.get_command(app)
    return group.get_command(None, name)  # type: ignore[attr-defined]


def find_options(command: Any) -> list[str]:
    return [option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)]


def test_what_was_not_tested_is_listed_on_the_deployment_page() -> None:
    """The deployment page lists everything untested because it needs Docker, an account or the weights."""
    page = (ROOT / "docs" / "runpod.md").read_text()
    untested = page.partition("<!-- not tried -->")[2].partition("<!-- /not tried -->")[0]

    for word in ("image", "compose.yaml", "hub.json", "tests.json", "weights", "endpoint", "runpod.toml", "vLLM"):
        assert word in untested
    assert len(re.findall(r"^- ", untested, re.M)) >= 7


@pytest.mark.parametrize("page", [page for page in PAGES if page.startswith("docs/")])
def test_every_page_is_in_the_sites_navigation(page: str) -> None:
    """Every page of docs/ is in mkdocs.yml, so that readers can find it."""
    assert f" {Path(page).name}\n" in (ROOT / "mkdocs.yml").read_text()


def test_pages_of_the_site_link_only_inside_it() -> None:
    """MkDocs refuses a link that leaves docs/, which a reader of the repository could follow."""
    pages = (ROOT / "docs").glob("*.md")
    assert [(page.name, link) for page in pages for link in re.findall(r"\]\((\.\.[^)]*)\)", page.read_text())] == []


def test_every_code_has_a_row_on_the_page_of_codes() -> None:
    """The row says what happened and what to do, and some module raises or reports the code."""
    rows = re.findall(r"^- `(\w+)`: (.{16,}?) \*(.{16,})\*$", codes.CODES_PAGE.read_text(), re.M)
    program = "".join(path.read_text() for path in (ROOT / "src").rglob("*.py") if path.name != "errors.py")

    assert {code for code, *_ in rows} >= set(Code)
    assert not [code for code in Code if f"Code.{code.name}" not in program]


def test_the_contracts_pages_are_up_to_date() -> None:
    """`make docs` writes them from the models, and every field of a result has a meaning."""
    assert contract.CONTRACT.read_text() == contract.render_contract()
    assert json.loads(contract.OPENAPI.read_text()) == contract.build_openapi()
    assert settings_tables.CONFIGURATION.read_text() == settings_tables.render_configuration()
    for model, meanings in ((Result, contract.RESULT), (DocumentResult, contract.DOCUMENT)):
        assert set(model.model_fields) == set(meanings)


def test_the_openapi_description_is_valid_and_accepts_the_readmes_job() -> None:
    """A validator for OpenAPI accepts it; its Job accepts what the program accepts and rejects unknown fields."""
    description = contract.build_openapi()
    openapi_spec_validator.validate(description)
    job = {"$ref": "#/components/schemas/Job", "components": description["components"]}
    is_valid = jsonschema.Draft202012Validator(job).is_valid

    assert is_valid(json.loads(find_blocks("json", "README.md")[0])["input"])
    assert not is_valid({"source": "s3://b/k", "colour": 1})
    assert not is_valid({"pages": "1"})


def test_the_page_of_licences_has_every_model() -> None:
    """Every model has a row with its licence, and so has the detector."""
    for name, pinned in WEIGHTS.items():
        assert f"| {pinned.repo} | `{name}` | {pinned.licence} |" in licences.PAGE.read_text()


@pytest.mark.parametrize("library", ["libheif", "libde265", "libgeos", "libavcodec"])
def test_libraries_under_the_lgpl_are_named(library: str) -> None:
    """Wheels bring them, whatever the licence that the package's metadata states."""
    (bundled,) = {
        package
        for package in licences.BUNDLED
        if any(library in str(file) for file in distribution(package).files or ())
    }

    (row,) = (line for line in licences.PAGE.read_text().splitlines() if line.startswith(f"| {bundled} |"))
    assert "LGPL" in row


def test_the_page_of_licences_has_every_pinned_package() -> None:
    """Each has a row with its pinned version and a known licence, and PyMuPDF's AGPL-3.0 is named."""
    page = licences.PAGE.read_text()

    for name, version in (*licences.read_pins(), *licences.read_pins(licences.IMAGE_PINS)):
        assert re.search(rf"^\| {re.escape(name)} \| {re.escape(version)} \| (?!unknown).+ \|$", page, re.M), name
    assert "AGPL-3.0" in page and "AGPL" in (ROOT / "NOTICE").read_text()


def test_a_variable_set_before_a_command_is_a_setting_with_a_valid_value(monkeypatch: pytest.MonkeyPatch) -> None:
    """The variables set before the pages' commands are settings, and their values are valid."""
    lines = [re.findall(r"\b([A-Z_]+)=([^\s$]+) (?=.*\.venv/bin/)", line) for line in find_shell_lines(*PAGES)]
    values = {name.lower(): value for line in lines for name, value in line}

    assert {"engine", "model_dir", "openai_base_url", "openai_modes"} <= set(values) <= set(Settings.model_fields)
    assert {dict(line).get("ENGINE", "cpu") for line in lines} <= set(get_args(EngineName))
    assert Settings(**values).openai_modes


# Targets that CI does not run, and why.
BY_HAND = {
    "gpu": "needs a GPU",
    "chaos": "takes an hour; test-chaos runs a few of each",
    "docs": "writes the pages that tests compare",
    "pins": "writes the pins that `make image` compares",
}


def test_targets_scripts_and_extras_named_in_the_pages_exist() -> None:
    """Make targets, scripts, subcommands and extras named in the pages exist; targets are run by CI or in BY_HAND."""
    text = "".join((ROOT / page).read_text() for page in (*PAGES, "caches/README.md"))
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.M))
    ci = set(re.findall(r"^make ([\w-]+)", (ROOT / ".ci" / "run").read_text(), re.M))
    named = set(re.findall(r"\bmake ([a-z-]+)`", text)) | set(re.findall(r"^make ([a-z-]+)", text, re.M))
    extras = set(re.findall(r"'\.\[(\w+)\]'", text))

    assert {"demo", "test", "docs", "test-vllm"} <= named <= targets
    assert named - ci == set(BY_HAND)
    assert not [name for name in re.findall(r"\bscripts/[\w/]+\.(?:py|sh)\b", text) if not (ROOT / name).exists()]
    assert set(re.findall(r"`twopass ([\w-]+)", text)) <= set(COMMANDS)
    for name in re.findall(r"\bpython -m (scripts[\w.]*)", text):
        assert importlib.util.find_spec(name), name
    assert extras and extras <= set(
        tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    )


def test_the_jobs_in_the_pages_are_valid() -> None:
    """The README's sample job for RunPod and the job that curl sends to the local API are accepted."""
    sample = json.loads(next(block for block in find_blocks("json", "README.md") if '"input"' in block))
    lines = find_shell_lines("docs/quickstart.md")
    sent = json.loads(next(line for line in lines if line.startswith("curl")).split("-d ")[1].strip("'"))

    assert Job.parse(sample, Settings(), EntryPoint.SERVERLESS).page_range
    assert Job.parse(sent, Settings(allowed_dir=ROOT / "samples"), EntryPoint.LOCAL).sources == ("samples/sample.pdf",)
    assert (ROOT / "samples" / "sample.pdf").exists()


def test_every_code_is_explained_once() -> None:
    """No code is missing, none is in both tables, and every explanation is a sentence."""
    assert set(codes.MEANINGS) == set(Code)
    assert len(codes.JOB_CODES) + len(codes.PAGE_CODES) == len(Code)
    assert all(text.endswith(".") for pair in codes.MEANINGS.values() for text in pair)


def test_the_page_of_codes_is_up_to_date() -> None:
    """`make docs` writes it, and the README links to it."""
    assert codes.CODES_PAGE.read_text() == codes.render_codes()
    assert "(docs/CODES.md)" in (ROOT / "README.md").read_text()


def test_the_licence_file_matches_pyproject() -> None:
    """pyproject.toml names Apache-2.0, and LICENSE has its full text."""
    licence = (ROOT / "LICENSE").read_text()

    assert 'license = "Apache-2.0"' in (ROOT / "pyproject.toml").read_text()
    assert "Version 2.0, January 2004" in licence
    assert "END OF TERMS AND CONDITIONS" in licence
