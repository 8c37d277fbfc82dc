"""Whole documents whose pages are detected first and read region by region, with a scripted detector and reader."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.detection.test_recall import PAGE, tilt
from tests.fakes.reader import Reader
from twopass.acceptance import drawn_pages
from twopass.detection import ink
from twopass.detection.region import Detection, Region, make_region, to_json
from twopass.document import Box
from twopass.engines.detector.engine import DetectorFirstEngine
from twopass.engines.interface import Completion, Engine, Prompt
from twopass.engines.replay import ReplayEngine
from twopass.families.registry import FAMILIES
from twopass.pages.shared_pixels import PixelBufferPool, Pixels
from twopass.runtime.page_pool import PagePool

FAMILY = FAMILIES["glm_ocr"]
LOST = 3  # the region that the doctored detector drops


class DoctoredDetector:
    """Finds every paragraph of the drawn page but one."""

    def __init__(self, regions: Sequence[Region]) -> None:
        self._regions = tuple(region for index, region in enumerate(regions) if index != LOST)
        self.pages = 0

    async def prepare(self, page_pool: PagePool) -> None:
        """Do nothing: there is nothing to load."""

    async def open(self, page_pool: PagePool) -> None:
        """Do nothing: there is nothing to load."""

    async def detect(self, pages: Sequence[Pixels]) -> list[str]:
        self.pages += len(pages)
        boxes = [region.box for region in self._regions]
        missed = [ink.find_missed_ink(page.array(), boxes) for page in pages]
        return [to_json(Detection(regions=self._regions, ink=found)) for found in missed]

    async def close(self) -> None:
        """Do nothing: nothing was opened."""


class ScriptedReader(Engine):
    """Answers with the size of each crop, which differs from crop to crop, and remembers the prompts."""

    kind = "scripted"
    precision = "none"
    family = "glm_ocr"
    sequences = 8
    needs_canary = False

    def __init__(self) -> None:
        self.prompts: list[str] = []

    async def open(self, page_pool: PagePool) -> None:
        """Do nothing: there is nothing to load."""

    async def generate(self, prompt: Prompt) -> Completion:
        self.prompts.append(prompt.text)
        return Completion(f"{prompt.id.rpartition('/')[2]} has {prompt.image.width} x {prompt.image.height} pixels")

    async def close(self) -> None:
        """Do nothing: nothing was opened."""


@pytest.fixture
def reader(page_pool: PagePool, buffers: PixelBufferPool) -> Reader:
    return Reader(page_pool, buffers, ScriptedReader())


def find_paragraphs(path: Path) -> list[Region]:
    import pymupdf

    with pymupdf.open(path) as document:
        boxes = [Box.of(*block[:4], *drawn_pages.A4) for block in document[0].get_text("blocks")]
    return [make_region("text", box, order=index) for index, box in enumerate(boxes)]


def load(folder: Path) -> dict[str, Any]:
    [path] = folder.rglob("document.json")
    return json.loads(path.read_text())  # type: ignore[no-any-return]


@pytest.mark.parametrize("is_scan", [False, True], ids=["pdf", "scan"])
async def test_a_paragraph_that_the_detector_dropped_is_in_the_document(
    reader: Reader, tmp_path: Path, is_scan: bool
) -> None:
    """It is read as an element of its own, in its place, from the text layer's words or from the scan's ink."""
    drawn_pages.save([PAGE], tmp_path / "page.pdf")
    regions = find_paragraphs(tmp_path / "page.pdf")
    if is_scan:
        drawn_pages.save_scans([PAGE], tmp_path / "page.pdf")
        regions = [region.model_copy(update={"box": tilt(region.box)}) for region in regions]
    scripted = ScriptedReader()
    engine = DetectorFirstEngine(DoctoredDetector(regions), scripted, "glm_ocr")

    result = await reader.run(
        engine=engine, family=FAMILY, source=str(tmp_path / "page.pdf"), output=f"{tmp_path}/out", dpi=144
    )

    elements = load(tmp_path / "out")["elements"]
    assert result.status == "success"
    assert scripted.prompts == ["Text Recognition:"] * len(regions)
    assert [index for index, element in enumerate(elements) if "missed_by_detector" in element["flags"]] == [LOST]
    assert all(element["text"] and element["read_by"] == 2 for element in elements)


async def test_recorded_detections_give_the_same_document_again(reader: Reader, tmp_path: Path) -> None:
    """A detection is a recorded answer like any other: no detector and no reader is needed to read it again."""
    drawn_pages.save([PAGE, PAGE], tmp_path / "page.pdf")
    detector = DoctoredDetector(find_paragraphs(tmp_path / "page.pdf"))
    engine = DetectorFirstEngine(detector, ScriptedReader(), "glm_ocr")
    source = {"source": str(tmp_path / "page.pdf"), "dpi": 144}
    await reader.run(engine=engine, family=FAMILY, output=f"{tmp_path}/first", **source)

    replayed = ReplayEngine.from_folder(tmp_path / "first", "glm_ocr")
    await reader.run(engine=replayed, family=FAMILY, output=f"{tmp_path}/second", **source)

    first, second = load(tmp_path / "first"), load(tmp_path / "second")
    assert detector.pages == 2
    assert first["elements"] == second["elements"]
    assert first["id"] != second["id"]  # another engine read it


async def test_pages_that_are_stored_are_not_detected_again(reader: Reader, tmp_path: Path) -> None:
    """A job that is sent again, with the manifest lost, finds its pages."""
    drawn_pages.save([PAGE, PAGE], tmp_path / "page.pdf")
    regions = find_paragraphs(tmp_path / "page.pdf")
    job = {"source": str(tmp_path / "page.pdf"), "output": f"{tmp_path}/out", "dpi": 144}
    await reader.run(
        engine=DetectorFirstEngine(DoctoredDetector(regions), ScriptedReader(), "glm_ocr"), family=FAMILY, **job
    )
    [manifest] = (tmp_path / "out").rglob("manifest.json")
    manifest.unlink()
    before = load(tmp_path / "out")
    detector, scripted = DoctoredDetector(regions), ScriptedReader()

    await reader.run(engine=DetectorFirstEngine(detector, scripted, "glm_ocr"), family=FAMILY, **job)

    assert (detector.pages, scripted.prompts) == (0, [])
    assert load(tmp_path / "out") == before
