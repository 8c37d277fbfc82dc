"""Programs that import twopass, each as a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pymupdf
import pytest

from tests import ROOT
from tests.api.test_submitting import answer
from tests.fakes.platform import Platform, ScriptedBackend
from tests.test_docs import find_blocks

HEAVY = {
    "boto3",
    "botocore",
    "pymupdf",
    "numpy",
    "pydantic",
    "structlog",
    "onnxruntime",
    "runpod",
    "rich",
    "httpx",
    "PIL",
}
PRINT_LOADED = "import sys; print(*sorted({name.partition('.')[0] for name in sys.modules}))"
READ = """
import os
from twopass import read, read_pages
print(read("file.pdf").status)
print([page.pages[0].number for page in read_pages("file.pdf")])
"""
FORK = """
from multiprocessing import get_context
from twopass import read
read("file.pdf")
with get_context("fork").Pool(1) as pool:
    print(pool.apply(read, ["file.pdf"]).status)
"""
LOGGED = """
import logging
logging.basicConfig(level=logging.INFO, format="%(name)s: %(message)s")
from twopass import read
read("file.pdf")
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with pymupdf.open() as pdf:
        pdf.new_page().insert_text((72, 90), "It lifts water.")
        pdf.save(tmp_path / "file.pdf")
    return tmp_path


def run(script: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a file without an `if __name__ == "__main__"`, with warnings as errors."""
    (folder / "script.py").write_text(script)
    env = {"PATH": os.environ["PATH"], "HOME": str(folder), "PAGE_WORKERS": "1", **environment}
    command = [sys.executable, "-W", "error", "script.py"]
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=300)


def test_a_plain_script_reads_and_prints_nothing_else(folder: Path) -> None:
    """Page workers do not import the script again, nothing is logged, and the engine is closed at the end."""
    ran = run(READ, folder)

    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "success\n[1]\n", "")


def test_a_forked_process_reads_with_a_worker_of_its_own(folder: Path) -> None:
    """A child of multiprocessing's fork does not wait for threads that only its parent has."""
    ran = run(FORK, folder)

    assert (ran.returncode, ran.stdout) == (0, "success\n"), ran.stderr


def test_a_program_that_sets_up_logging_gets_the_events(folder: Path) -> None:
    """Events go to the standard loggers below `twopass`."""
    ran = run(LOGGED, folder)

    assert ran.returncode == 0
    assert "twopass.worker: event='worker ready'" in ran.stderr


def test_a_finished_document_is_returned_without_an_engine(folder: Path) -> None:
    """The next program that reads into the same output gets the document, and no worker is opened for it."""
    script = LOGGED.replace('read("file.pdf")', 'print(read("file.pdf", output="out").markdown)')
    first, second = run(script, folder), run(script, folder)

    assert first.returncode == 0 and "worker ready" in first.stderr
    assert (second.returncode, second.stdout) == (0, first.stdout)
    assert "worker ready" not in second.stderr


@pytest.mark.parametrize(
    "statement",
    ["import twopass", "import twopass.engines.vllm.plugin", "from twopass import read, read_pages, submit"],
)
def test_importing_the_package_or_the_plugin_loads_nothing_heavy(statement: str, folder: Path) -> None:
    """Programs and vLLM's processes wait for these imports; what reads is imported at the first call."""
    loaded = set(run(f"{statement}\n{PRINT_LOADED}", folder).stdout.split())

    assert "twopass" in loaded and not HEAVY & loaded


def test_the_names_of_the_package_are_listed_and_others_refused(folder: Path) -> None:
    """`dir(twopass)` has the API before it is imported, and a misspelt name is an AttributeError or ImportError."""
    ran = run("import twopass\nprint(*twopass.__all__, set(twopass.__all__) <= set(dir(twopass)))", folder)
    wrong = run("from twopass import raed", folder)

    assert ran.stdout == "Document Job Settings __version__ read read_pages submit True\n"
    assert "ImportError: cannot import name 'raed'" in wrong.stderr


def test_the_examples_of_the_page_run(folder: Path) -> None:
    """Every Python block of docs/python.md runs in a folder with file.pdf and an endpoint, without a guard."""
    blocks = find_blocks("python", "docs/python.md")
    with Platform(ScriptedBackend(answer)).serve() as url:
        script = "\n".join(blocks).replace("ENDPOINT_ID", url)
        ran = run(script, folder, RUNPOD_API_KEY="secret-key")

    assert len(blocks) == 8 and ran.returncode == 0, ran.stderr
    assert "SOURCE_NOT_FOUND missing.pdf: no such file" in ran.stdout
    assert "It lifts water." in (folder / "file.md").read_text()
    assert list((folder / "out").glob("*/review.html"))


def test_without_the_extra_there_are_no_keywords_and_the_options_say_so(folder: Path) -> None:
    """Where YAKE is missing, nothing fails, and the document's identity says that it has no keywords."""
    script = """
import sys
sys.modules["yake"] = None
from twopass.steps import enrich
from twopass.text import keywords
print(keywords.extract("The pump lifts water to the tower.", "en", 5), enrich.describe_options())
"""
    ran = run(script, folder)

    assert ran.stdout == "() {'keywords': False}\n", ran.stderr


def test_the_page_of_extras_names_every_extra() -> None:
    """docs/python.md has each extra of pyproject.toml but that of the tests."""
    import tomllib

    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    page = (ROOT / "docs" / "python.md").read_text().partition("## Extras")[2]

    assert not [name for name in set(extras) - {"test"} if f"`{name}`" not in page]
