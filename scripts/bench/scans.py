"""Read drawn scans with the cpu engine and with Tesseract: characters right, word order, time, confidence.

    python -m scripts.bench scans [--only KIND] [--seed N] [--pictures FOLDER] [--json FILE]

Tesseract is Debian's `tesseract`, told the right language; it is left out where it is not installed.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import mean
from typing import Any

from PIL import Image, ImageDraw
from rapidfuzz.distance import Indel, LCSseq

from scripts.bench.drawn_scans import Scan, draw_all
from scripts.bench.harness import create_parser
from twopass.engines.cpu.page import read_page
from twopass.families.layout.family import LayoutFamily
from twopass.pages import scripts, tesseract
from twopass.pages.rendered_page import PagePointer
from twopass.pages.shared_pixels import Pixels

_WORD = re.compile(r"[^\W_]+")
_MARKUP = re.compile(r"[*_#\\]")


@dataclass(frozen=True)
class Row:
    """How one reader read one scan. `order` is the share of the words found that are in their order."""

    kind: str
    language: str
    reader: str
    characters: float
    order: float
    seconds: float
    confidence: float | None = None


def main(arguments: list[str]) -> None:
    options = _parse(arguments)
    rows: list[Row] = []
    engine = scripts.open_tesseract(tesseract.find_folder())
    for scan in draw_all(options.seed):
        if options.only and options.only not in f"{scan.kind} {scan.language.code}":
            continue
        rows.append(_read_ours(scan, engine, options.pictures))
        if shutil.which("tesseract") and not options.ours:
            rows.append(_read_tesseract(scan))
        print(
            *(_format(row) for row in rows if (row.kind, row.language) == (scan.kind, scan.language.code)),
            sep="\n",
            flush=True,
        )
    _summarise(rows)
    if options.json:
        options.json.write_text(json.dumps([asdict(row) for row in rows], indent=1))


def _parse(arguments: list[str]) -> argparse.Namespace:
    parser = create_parser("scripts.bench scans", __doc__)
    parser.add_argument("--only", help="scans whose kind and language have this text")
    parser.add_argument("--ours", action="store_true", help="without Tesseract")
    parser.add_argument("--pictures", type=Path, help="a folder for the pages with boxes in reading order")
    parser.add_argument(
        "--seed", type=int, default=0, help="draw the same kinds in another type, size, gutter and order of sentences"
    )
    parser.add_argument("--json", type=Path)
    return parser.parse_args(arguments)


def _read_ours(scan: Scan, engine: scripts.Tesseract | None, pictures: Path | None) -> Row:
    height, width = scan.pixels.shape[:2]
    pixels = Pixels(width, height, data=scan.pixels.tobytes())
    started = time.process_time()
    answer = read_page(PagePointer("", 1, is_pdf=False), pixels, scan.language.code, engine)
    seconds = time.process_time() - started
    page = LayoutFamily().parse(answer, 1)
    texts = [element.text or "" for element in page.elements]
    if pictures:
        _draw_boxes(scan, page.elements, pictures)
    scores = [(element.confidence.score, len(element.text or "")) for element in page.elements if element.confidence]
    total = sum(length for _, length in scores)
    confidence = sum(score * length for score, length in scores) / total if total else None
    return _score(scan, "twopass", texts, seconds, confidence)


def _read_tesseract(scan: Scan) -> Row:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "scan.png"
        Image.fromarray(scan.pixels).save(path, dpi=(144, 144))
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        command = ["tesseract", str(path), "stdout", "-l", scan.language.tesseract]
        run = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "OMP_THREAD_LIMIT": "1"})
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return _score(scan, "tesseract", [run.stdout], after.ru_utime - before.ru_utime, None)


def _score(scan: Scan, reader: str, texts: Iterable[str], seconds: float, confidence: float | None) -> Row:
    read, truth = _MARKUP.sub("", "".join(texts)), "".join(scan.truth)
    characters = Indel.normalized_similarity("".join(read.split()), "".join(truth.split()))
    found, words = _split(scan, texts), _split(scan, scan.truth)
    common = (Counter(found) & Counter(words)).total()
    order = LCSseq.similarity(found, words) / common if common else 0.0
    return Row(scan.kind, scan.language.code, reader, characters, order, seconds, confidence)


def _split(scan: Scan, texts: Iterable[str]) -> list[str]:
    text = "\n".join(texts)
    return _WORD.findall(text.casefold()) if scan.language.spaced else [letter for letter in text if letter.isalnum()]


def _format(row: Row) -> str:
    confidence = "    " if row.confidence is None else f"{row.confidence:.2f}"
    return (
        f"{row.kind:22} {row.language} {row.reader:9} characters {row.characters:.3f} order {row.order:.3f} "
        f"confidence {confidence} cpu {row.seconds:5.1f} s"
    )


def _summarise(rows: Sequence[Row]) -> None:
    for reader in dict.fromkeys(row.reader for row in rows):
        own = [row for row in rows if row.reader == reader]
        columns = [row.order for row in own if "column" in row.kind or row.kind == "spread"]
        print(
            f"{reader:9} {len(own)} scans: characters {mean(row.characters for row in own):.3f}, order of columns "
            f"{mean(columns or [0.0]):.3f}, {sum(row.seconds for row in own):.0f} s of processor time"
        )
        judged = [(row.confidence, row.characters) for row in own if row.confidence is not None]
        if judged:
            print(f"{'':9} confidence is off by {mean(abs(one - other) for one, other in judged):.3f}")


def _draw_boxes(scan: Scan, elements: Sequence[Any], folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    image = Image.fromarray(scan.pixels).convert("RGB")
    pen = ImageDraw.Draw(image)
    for number, element in enumerate(elements):
        for box in element.boxes:
            corners = [box.x0 * image.width, box.y0 * image.height, box.x1 * image.width, box.y1 * image.height]
            pen.rectangle(corners, outline="red", width=2)
            pen.text((corners[0] + 3, corners[1] + 3), f"{number} {element.kind}", fill="blue")
    image.save(folder / f"{scan.kind} {scan.language.code}.png")


if __name__ == "__main__":
    main(sys.argv[1:])
