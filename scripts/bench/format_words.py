"""Compare the elements of finished documents with each format: words lost and repeated, and the cost of comparing."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from twopass.document import Document
from twopass.formats import docjson
from twopass.formats.registry import WRITERS, check_installed
from twopass.formats.words import Loss
from twopass.formats.writer_input import WriterInput
from twopass.job import Format

CHECKED = [name for name, writer in WRITERS.items() if writer.check]


@dataclass
class Counts:
    """What was found of one format."""

    seconds: float = 0.0
    losses: list[tuple[str, Loss]] = field(default_factory=list)


def print_losses(folders: Iterable[Path]) -> None:
    """Print a row per format for the document.json files in folders of any depth, and a line for each loss."""
    counts, pages = defaultdict[Format, Counts](Counts), 0
    for path in (path for folder in folders for path in sorted(folder.rglob("document.json"))):
        document = docjson.loads(path.read_bytes())
        pages += len(document.pages)
        compare(document, CHECKED, counts)
    print(f"{'format':12}{'pages':>7}{'words lost':>12}{'repeated':>10}{'ms a page':>11}")
    for name, count in counts.items():
        lost = sum(len(loss.lost) for _, loss in count.losses)
        repeated = sum(len(loss.repeated) for _, loss in count.losses)
        print(f"{name:12}{pages:7}{lost:12}{repeated:10}{1000 * count.seconds / max(pages, 1):11.2f}")
    for count in counts.values():
        for document_id, loss in count.losses:
            print(f"    {document_id}: {loss.problem.message}")


def compare(document: Document, formats: Iterable[Format], counts: dict[Format, Counts]) -> None:
    """Write the formats of one document, and compare each with its elements."""
    check_installed(formats)
    inputs = WriterInput(document)
    for name in formats:
        writer = WRITERS[name]
        if writer.write and writer.check:
            data, began = writer.write(inputs), time.process_time()
            losses = writer.check(inputs, data)
            counts[name].seconds += time.process_time() - began
            counts[name].losses += [(document.id, loss) for loss in losses]
