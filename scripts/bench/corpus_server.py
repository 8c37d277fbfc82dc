"""A loopback S3 with a corpus that does not exist: documents are listed page by page and made when they are fetched.

    python -m scripts.bench.corpus_server DOCUMENTS PAGES        prints its endpoint URL

Nothing is stored. A document is a PDF with empty pages and a mark that makes its bytes its own.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cache, cached_property

import pymupdf
from aiohttp import web

from scripts.bench import local_s3

BUCKET, PREFIX = "corpus", "shelf/"
LISTED = 1000  # keys in one answer, S3's own limit
# Pages of ten documents in turn, whose mean is 50: many short ones, few long ones.
LENGTHS = (1, 2, 4, 8, 12, 20, 30, 48, 95, 280)
MEAN_LENGTH = sum(LENGTHS) / len(LENGTHS)


@dataclass(frozen=True)
class Corpus:
    """So many documents with about so many pages in total. Documents are named by their number."""

    documents: int
    pages: int

    def key(self, number: int) -> str:
        return f"{PREFIX}{number % 97:02d}/{number:08d}.pdf"

    def number(self, key: str) -> int:
        return int(key.rpartition("/")[2].removesuffix(".pdf"))

    def page_count(self, number: int) -> int:
        scale = self.pages / (self.documents * MEAN_LENGTH)
        return max(1, round(LENGTHS[number % len(LENGTHS)] * scale))

    @cached_property
    def total_pages(self) -> int:
        return sum(map(self.page_count, range(self.documents)))

    def etag(self, number: int) -> str:
        return hashlib.md5(f"{number}/{self.page_count(number)}".encode(), usedforsecurity=False).hexdigest()

    def sorted_numbers(self) -> Iterator[int]:
        """The documents in the order of their keys, as S3 lists them."""
        for shelf in range(97):
            yield from range(shelf, self.documents, 97)

    def build(self, number: int) -> bytes:
        return build_pdf(self.page_count(number)) + b"\n% " + str(number).encode() + b"\n"


@cache
def build_pdf(pages: int) -> bytes:
    with pymupdf.open() as document:
        for _ in range(pages):
            document.new_page()
        return bytes(document.tobytes())


def create_application(corpus: Corpus) -> web.Application:
    order = list(corpus.sorted_numbers())

    async def get(request: web.Request) -> web.Response:
        if "list-type" in request.query:
            start = int(request.query.get("continuation-token", "0"))
            return _list(corpus, order, start)
        number = corpus.number(request.path)
        return web.Response(body=corpus.build(number), headers={"ETag": f'"{corpus.etag(number)}"'})

    application = web.Application()
    application.router.add_get("/{path:.*}", get)
    return application


def _list(corpus: Corpus, order: list[int], start: int) -> web.Response:
    numbers = order[start : start + LISTED]
    rows = "".join(
        f"<Contents><Key>{corpus.key(number)}</Key><LastModified>2026-11-21T00:00:00.000Z</LastModified>"
        f"<ETag>&quot;{corpus.etag(number)}&quot;</ETag><Size>{len(corpus.build(number))}</Size>"
        "<StorageClass>STANDARD</StorageClass></Contents>"
        for number in numbers
    )
    end = start + len(numbers)
    more = f"<NextContinuationToken>{end}</NextContinuationToken>" if end < len(order) else ""
    truncated = "true" if more else "false"
    text = f"<ListBucketResult><IsTruncated>{truncated}</IsTruncated>{more}{rows}</ListBucketResult>"
    return web.Response(text=text, content_type="application/xml")


def start_server(corpus: Corpus) -> AbstractContextManager[str]:
    """Yield the endpoint URL of a new server, a process of its own."""
    return local_s3.start_process("scripts.bench.corpus_server", str(corpus.documents), str(corpus.pages))


if __name__ == "__main__":
    local_s3.serve_for_ever(create_application(Corpus(int(sys.argv[1]), int(sys.argv[2]))))
