"""Helpers for tests that disturb workers while they read one document of many pages, and check the artefacts."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pymupdf

from tests.chaos.chaos import HANDLER, ROOT
from tests.fakes import s3
from tests.fakes.queue import LoopbackQueue, Outcome, Worker

PAGES = 60
LONG_S = 600.0  # enough for the whole document on a busy machine
TIME_DEPENDENT = ("manifest.json", "progress.json", "result.json", ".twopass-probe")
LINE = "The meter of the pump was read on Monday and entered in the log book by both operators."

PAGE_PATH = re.compile(r"/pages/(\d{4})\.json")


def build_document(pages: int = PAGES, name: str = "Chapter") -> bytes:
    """Build a PDF with pages of text; every fifth page has an image that is stored as a crop."""
    with pymupdf.open() as pdf:
        for number in range(1, pages + 1):
            page = pdf.new_page()
            page.insert_text((72, 90), f"{number} {name} {number}", fontsize=18, fontname="hebo")
            page.insert_textbox((72, 120, 500, 300), f"{LINE} Page {number}. " * 4, fontsize=11)
            if number % 5 == 0:
                pixels = pymupdf.Pixmap(pymupdf.csRGB, (0, 0, 64, 64), False)
                pixels.clear_with(40 * (number % 6))
                page.insert_image((100, 400, 300, 600), pixmap=pixels)
        return bytes(pdf.tobytes())


@dataclass
class ProxiedStore:
    """An S3 server behind a proxy, and the environment of a worker that writes there."""

    proxy: s3.Proxy
    client: Any
    env: Mapping[str, str]

    def list_names(self, prefix: str) -> list[str]:
        """Return the names of all objects below the prefix."""
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket="bucket", Prefix=f"{prefix}/")
        return [entry["Key"].removeprefix(f"{prefix}/") for page in pages for entry in page.get("Contents", ())]

    def read_artefacts(self, prefix: str) -> dict[str, bytes]:
        """Return every artefact below the prefix by name, without those that hold times; checkpoints without `cost`."""
        artefacts = {}
        for key in self.list_names(prefix):
            if not key.endswith(TIME_DEPENDENT) and not key.startswith("jobs/"):
                data = self.client.get_object(Bucket="bucket", Key=f"{prefix}/{key}")["Body"].read()
                if PAGE_PATH.search(key):
                    data = json.dumps({**json.loads(data), "cost": None}).encode()
                artefacts[key] = data
        return artefacts

    def count_checkpoints(self, prefix: str) -> int:
        """Return the number of checkpoints below the prefix."""
        return sum("/pages/" in key for key in self.list_names(prefix))

    def count_reads(self, prefix: str) -> Counter[int]:
        """Return how often each page was read: the number of different checkpoints that were put for it."""
        puts = [request for request in self.proxy.requests if request.method == "PUT" and f"/{prefix}/" in request.path]
        read_versions = {(match[1], request.digest) for request in puts if (match := PAGE_PATH.search(request.path))}
        return Counter(int(page) for page, _ in read_versions)


def build_job(prefix: str, source: str = "s3://bucket/in/long.pdf", **fields: Any) -> dict[str, Any]:
    return {"input": {"source": source, "output": f"s3://bucket/{prefix}/", **fields}}


@contextmanager
def start_worker(queue: LoopbackQueue, store: ProxiedStore, tmp_path: Path, **env: str) -> Iterator[Worker]:
    with queue.worker(HANDLER, cwd=ROOT, env={**store.env, "TMPDIR": str(tmp_path), **env}) as process:
        yield process


def read_document(store: ProxiedStore, prefix: str, tmp_path: Path, **env: str) -> Outcome:
    """Read the document with one worker from start to end."""
    with LoopbackQueue() as queue, start_worker(queue, store, tmp_path, **env):
        return queue.wait(queue.put(build_job(prefix)), LONG_S)


def has_taken(queue: LoopbackQueue, by: Worker, job_id: str) -> bool:
    return any(take.worker == by.id and job_id in take.job_ids for take in queue.takes)


def list_page_numbers(document_json: bytes) -> list[int]:
    return [page["number"] for page in json.loads(document_json)["pages"]]
