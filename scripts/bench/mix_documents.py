"""Turn pages of the mix into PDFs on S3 or in a folder, with the answers that an engine is to give about them."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pymupdf

from scripts.bench.local_s3 import BUCKET
from scripts.bench.page_drawing import ScriptedAnswer, draw_page, make_photo

PAGES_PER_DOCUMENT = 16
PHOTOS = 4  # different ones


def build_documents(
    pages: Sequence[Mapping[str, Any]], pages_per_document: int = PAGES_PER_DOCUMENT
) -> Iterator[tuple[bytes, dict[str, ScriptedAnswer]]]:
    """Yield PDFs of so many pages each, and their answers by prompt id."""
    rng = np.random.default_rng(1)
    photos = [make_photo(rng) for _ in range(PHOTOS)]
    for start in range(0, len(pages), pages_per_document):
        chunk = pages[start : start + pages_per_document]
        with pymupdf.open() as pdf:
            drawn_pages = [draw_page(pdf, page, photos) for page in chunk]
            data = bytes(pdf.tobytes(deflate=True, garbage=1)) + b"%% %d" % start  # no two documents are equal
        key = hashlib.sha256(data).hexdigest()[:12]
        answers = {}
        for number, (page, drawn) in enumerate(zip(chunk, drawn_pages, strict=True), 1):
            answers[f"{key}/p{number:04d}"] = ScriptedAnswer("".join(drawn.blocks), page["tokens"])
            answers |= {f"{key}/p{number:04d}-{name}": answer for name, answer in drawn.answers.items()}
        yield data, answers


def select_asked(answers: Mapping[str, ScriptedAnswer], pass2_all: bool = False) -> dict[str, ScriptedAnswer]:
    """What a job asks for: texts only with `pass2: all`."""
    return {name: answer for name, answer in answers.items() if answer.is_asked_by_auto or pass2_all}


@dataclass(frozen=True)
class DocumentSet:
    """Documents on S3 or in a folder, the scripted answers of each, and where jobs write."""

    pages: Sequence[Mapping[str, Any]]
    uris: Sequence[str]
    document_answers: Sequence[Mapping[str, ScriptedAnswer]]
    pass2_all: bool = False
    output: str = f"s3://{BUCKET}/out"

    def take(self, count: int) -> DocumentSet:
        """The first documents that have at least so many pages."""
        documents = math.ceil(count / PAGES_PER_DOCUMENT)
        return replace(
            self, pages=self.pages[: documents * PAGES_PER_DOCUMENT], uris=self.uris[:documents],
            document_answers=self.document_answers[:documents],
        )  # fmt: skip

    @cached_property
    def answers(self) -> dict[str, ScriptedAnswer]:
        return {name: answer for answers in self.document_answers for name, answer in answers.items()}

    @cached_property
    def asked(self) -> dict[str, ScriptedAnswer]:
        return select_asked(self.answers, self.pass2_all)

    @property
    def prompts_per_page(self) -> float:
        return len(self.asked) / len(self.pages)

    @property
    def tokens_per_page(self) -> float:
        return sum(answer.tokens for answer in self.asked.values()) / len(self.pages)

    @property
    def asked_pages(self) -> int:
        """Number of pages that reach the engine; blank ones do not."""
        return sum(page["elements"] > 0 for page in self.pages)


def upload_documents(
    pages: Sequence[Mapping[str, Any]], client: Any, folder: str = "in", pages_per_document: int = PAGES_PER_DOCUMENT
) -> DocumentSet:
    uris, document_answers = list[str](), list[Mapping[str, ScriptedAnswer]]()
    for number, (data, answers) in enumerate(build_documents(pages, pages_per_document)):
        uris.append(f"s3://{BUCKET}/{folder}/{number:03d}.pdf")
        client.put_object(Bucket=BUCKET, Key=f"{folder}/{number:03d}.pdf", Body=data)
        document_answers.append(answers)
    return DocumentSet(pages, uris, document_answers)


def write_documents(pages: Sequence[Mapping[str, Any]], folder: Path) -> DocumentSet:
    """Write the documents into a folder, where jobs write, too: no server and no boto3 are needed."""
    paths, document_answers = list[str](), list[Mapping[str, ScriptedAnswer]]()
    for number, (data, answers) in enumerate(build_documents(pages)):
        path = folder / f"{number:03d}.pdf"
        path.write_bytes(data)
        paths.append(str(path))
        document_answers.append(answers)
    return DocumentSet(pages, paths, document_answers, output=str(folder / "out"))
