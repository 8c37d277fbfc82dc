"""One document of many pages, read by workers that are disturbed: what a test needs for that and to see the end."""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pymupdf

from tests.chaos.chaos import HANDLER, ROOT
from tests.fakes import s3
from tests.fakes.queue import LoopbackQueue, Outcome, Worker

PAGES = 60
LONG_S = 600.0  # for a whole document on a busy machine
CLOCKED = ("manifest.json", "progress.json", "result.json", ".twopass-probe")
LINE = "The meter of the pump was read on Monday and entered in the log book by both operators."

_PAGE = re.compile(r"/pages/(\d{4})\.json")


def document(pages: int = PAGES, name: str = "Chapter") -> bytes:
    """Pages of text, every fifth with a drawing that is cut out."""
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
class Place:
    """An S3 with a proxy before it, and the environment of a worker that writes there."""

    proxy: s3.Proxy
    client: Any
    env: Mapping[str, str]

    def names(self, prefix: str) -> list[str]:
        """What lies below the prefix."""
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket="bucket", Prefix=f"{prefix}/")
        return [entry["Key"].removeprefix(f"{prefix}/") for page in pages for entry in page.get("Contents", ())]

    def written(self, prefix: str) -> dict[str, bytes]:
        """Every artefact below the prefix by its name there; of checkpoints all but the cost block."""
        found = {}
        for key in self.names(prefix):
            if not key.endswith(CLOCKED) and not key.startswith("jobs/"):
                data = self.client.get_object(Bucket="bucket", Key=f"{prefix}/{key}")["Body"].read()
                found[key] = json.dumps({**json.loads(data), "cost": None}).encode() if _PAGE.search(key) else data
        return found

    def stored(self, prefix: str) -> int:
        """Checkpoints that lie there."""
        return sum("/pages/" in key for key in self.names(prefix))

    def times_read(self, prefix: str) -> Counter[int]:
        """How often each page was read to its end: so many different checkpoints of it were put."""
        puts = [seen for seen in self.proxy.seen if seen.method == "PUT" and f"/{prefix}/" in seen.path]
        read = {(found[1], seen.digest) for seen in puts if (found := _PAGE.search(seen.path))}
        return Counter(int(page) for page, _ in read)


def asked(prefix: str, source: str = "s3://bucket/in/long.pdf", **fields: Any) -> dict[str, Any]:
    return {"input": {"source": source, "output": f"s3://bucket/{prefix}/", **fields}}


@contextmanager
def worker(queue: LoopbackQueue, place: Place, tmp_path: Path, **env: str) -> Iterator[Worker]:
    with queue.worker(HANDLER, cwd=ROOT, env={**place.env, "TMPDIR": str(tmp_path), **env}) as started:
        yield started


def whole(place: Place, prefix: str, tmp_path: Path, **env: str) -> Outcome:
    """The document read by one worker that nothing disturbs."""
    with LoopbackQueue() as queue, worker(queue, place, tmp_path, **env):
        return queue.wait(queue.put(asked(prefix)), LONG_S)


def until(true: Callable[[], bool], timeout_s: float = 120.0) -> float:
    """Seconds until it was."""
    began = time.monotonic()
    while not true():
        if time.monotonic() - began > timeout_s:
            raise TimeoutError(f"not after {timeout_s} s")
        time.sleep(0.02)
    return time.monotonic() - began


def taken(queue: LoopbackQueue, by: Worker, job_id: str) -> bool:
    return any(take.worker == by.id and job_id in take.dealt for take in queue.takes)


def numbers_of(document_json: bytes) -> list[int]:
    return [page["number"] for page in json.loads(document_json)["pages"]]
