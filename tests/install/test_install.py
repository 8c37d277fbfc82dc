"""The wheel and the sdist: what they hold, and that a fresh environment reads with nothing else."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests import ROOT

FILES = (
    "py.typed",
    "formats/review.html",
    "formats/review.css",
    "formats/review.js",
    "engines/vllm/kernels.jsonl",
    "acceptance/records/",
)
READ = """
from twopass import read, read_pages

document = read("sample.pdf", pages="1-2")
print(document.status, document.run.options["keywords"], "# " in document.markdown)
for page in read_pages("sample.pdf", pages="1-2"):
    print(page.pages[0].number)
"""
TYPED = """
from twopass import Document, Settings, read, read_pages, submit

document: Document = read("sample.pdf", pages="1", settings=Settings(page_workers=1))
numbers: list[int] = [page.pages[0].number for page in read_pages(b"", password="secret")]
statuses: list[str] = [outcome.status for outcome in submit(["sample.pdf"], endpoint="id", inline=["markdown"])]
"""


@pytest.fixture(scope="session")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sdist of the working tree, and the wheel that is built from it."""
    folder = tmp_path_factory.mktemp("dist")
    subprocess.run([sys.executable, "-m", "build", "--outdir", folder, ROOT], check=True, stdout=subprocess.DEVNULL)
    return folder


@pytest.fixture(scope="session")
def installed(dist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The `bin` folder of a fresh environment with the wheel and no extra."""
    folder = tmp_path_factory.mktemp("fresh")
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    pip = [folder / "bin" / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, find(dist, "*.whl")], check=True)
    return folder / "bin"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A working directory outside the checkout, with a document."""
    (tmp_path / "sample.pdf").write_bytes((ROOT / "samples" / "sample.pdf").read_bytes())
    return tmp_path


def find(folder: Path, pattern: str) -> Path:
    (path,) = folder.glob(pattern)
    return path


def run(folder: Path, program: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    env = {"PATH": os.environ["PATH"], "HOME": str(folder)}
    return subprocess.run([program, *arguments], cwd=folder, env=env, capture_output=True, text=True, timeout=300)


def test_the_wheel_has_the_package_with_its_data_and_licences_and_nothing_else(dist: Path) -> None:
    """Types, review page and recorded answers are in it; tests and scripts are not."""
    with zipfile.ZipFile(find(dist, "*.whl")) as wheel:
        names = wheel.namelist()

    assert all(any(name.startswith(f"twopass/{file}") for name in names) for file in FILES)
    assert {Path(name).name for name in names if "/licenses/" in name} == {"LICENSE", "NOTICE"}
    assert {re.sub(r"-.*", "", name.partition("/")[0]) for name in names} == {"twopass"}
    assert not [name for name in names if name.endswith((".pyc", ".pdf"))]


def test_the_sdist_has_the_sources_and_no_tests(dist: Path) -> None:
    """It has what a build needs and the README; tests need the checkout."""
    with tarfile.open(find(dist, "*.tar.gz")) as sdist:
        names = {name.partition("/")[2].partition("/")[0] for name in sdist.getnames()}

    assert {"LICENSE", "NOTICE", "README.md", "pyproject.toml", "src"} <= names
    assert not names & {"tests", "scripts", "docs", "samples"}


def test_the_command_reads_and_writes_the_review_page(installed: Path, folder: Path) -> None:
    """`twopass read` works without the checkout, and review.html holds its script, its style and the page."""
    ran = run(folder, installed / "twopass", "read", "sample.pdf", "--pages", "1", "--formats", "docjson,review")

    assert ran.returncode == 0, ran.stderr
    page = find(folder, "output/*/review.html").read_text()
    assert "<style>" in page and "<script" in page and "data:image/webp;base64," in page


def test_the_command_prints_the_published_schema(installed: Path, folder: Path) -> None:
    """`twopass schema` needs no file of the checkout."""
    ran = run(folder, installed / "twopass", "schema")

    assert json.loads(ran.stdout) == json.loads((ROOT / "docs" / "docjson.schema.json").read_text())


def test_a_plain_script_reads_without_optional_packages(installed: Path, folder: Path) -> None:
    """`read` and `read_pages` work in a script without a guard; the options say that there are no keywords."""
    (folder / "script.py").write_text(READ)
    ran = run(folder, installed / "python", "-W", "error", "script.py")

    assert (ran.returncode, ran.stderr) == (0, "")
    first, *numbers = ran.stdout.splitlines()
    assert first == "success False True" and sorted(numbers) == ["1", "2"]


def test_a_format_of_a_missing_extra_is_refused_with_its_name(installed: Path, folder: Path) -> None:
    """docling.json needs an extra; the error has a code and says what to install."""
    ran = run(folder, installed / "python", "-c", 'import twopass; twopass.read("sample.pdf", formats=["docling"])')

    assert "INVALID_JOB: formats: docling needs docling_core" in ran.stderr
    assert "`python -m pip install '.[docling]'` in the checkout" in ran.stderr


LACKING = {  # command -> the package that it lacks, and the extra
    "twopass serve": ("needs uvicorn", "serve"),
    "twopass mcp": ("needs mcp", "mcp"),
    "twopass submit file.pdf --ray local --output out": ("needs ray", "ray"),
    "twopass download-weights deepseek_ocr models": ("needs httpx2", "download"),
    "python handler.py": ("needs runpod", "worker"),
    "python handler.py --rp_serve_api": ("needs runpod", "worker"),
}


@pytest.mark.parametrize("line", LACKING)
def test_a_command_that_lacks_an_extra_says_in_one_line_what_to_install(
    installed: Path, folder: Path, line: str
) -> None:
    """It fails before an engine starts, without a traceback, and names the command that installs from a checkout."""
    shutil.copy(ROOT / "handler.py", folder)
    (folder / "file.pdf").touch()
    program, *arguments = line.split()
    ran = run(folder, installed / program, *arguments)

    reason, extra = LACKING[line]
    output = ran.stdout + ran.stderr
    message = output.splitlines()[-1]
    assert ran.returncode and "Traceback" not in output
    assert reason in message and f"run `python -m pip install '.[{extra}]'` in the checkout" in message


def test_doctor_says_what_each_command_lacks(installed: Path, folder: Path) -> None:
    """In an environment that can only read, it fails for the server and the worker, and not for reading."""
    everything, read = (run(folder, installed / "twopass", "doctor", *names) for names in ((), ("read",)))
    failed = [line.split()[1:3] for line in everything.stdout.splitlines() if line.startswith("failed")]

    assert (everything.returncode, read.returncode) == (1, 0)
    assert failed == [["twopass", "serve"], ["handler.py", "needs"]]
    assert "keywords, twopass mcp, twopass submit --ray, " in read.stdout
    assert ".[docling,keywords,mcp,ray,otel,download]" in read.stdout


def test_a_type_checker_knows_the_functions(installed: Path, folder: Path) -> None:
    """py.typed is found: the calls are accepted, and a misspelt option is an error."""
    (folder / "right.py").write_text(TYPED)
    (folder / "wrong.py").write_text('from twopass import read\nread("sample.pdf", page="1").markdown + 1\n')
    mypy = ["-m", "mypy", "--strict", "--python-executable", str(installed / "python")]
    right, wrong = (run(folder, Path(sys.executable), *mypy, name) for name in ("right.py", "wrong.py"))

    assert right.returncode == 0, right.stdout
    assert 'Unexpected keyword argument "page"' in wrong.stdout and "operator" in wrong.stdout
