"""The engine with a detector in front, with a scripted detector and recorded answers of the reader."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from twopass.detection.region import DETECT, Detection, to_json
from twopass.engines.detector.engine import DetectorFirstEngine
from twopass.engines.interface import Completion, Incident, Prompt, describe
from twopass.engines.replay import ReplayEngine
from twopass.errors import Code, EngineError, WorkerDied
from twopass.pages.shared_pixels import PixelBufferPool, Pixels
from twopass.runtime.page_pool import PagePool

EMPTY = to_json(Detection())
PAGE = Pixels(1, 1, data=b"abc")
BROKEN = Pixels(2, 1, data=b"abcabc")
KILLER = Pixels(1, 2, data=b"abcabc")


class ScriptedDetector:
    """Finds nothing on pages, fails on one and dies on another."""

    def __init__(self, failure: Exception | None = None) -> None:
        self.sizes: list[int] = []
        self.failure = failure
        self.is_open = False

    async def prepare(self, page_pool: PagePool) -> None: ...

    async def open(self, page_pool: PagePool) -> None:
        if self.failure:
            raise self.failure
        self.is_open = True

    async def detect(self, pages: Sequence[Pixels]) -> list[str]:
        self.sizes.append(len(pages))
        await asyncio.sleep(0)
        if KILLER in pages:
            raise WorkerDied(Code.RENDER_CRASH, "it died")
        return ["" if page == BROKEN else EMPTY for page in pages]

    async def close(self) -> None:
        self.is_open = False


def build(detector: ScriptedDetector) -> DetectorFirstEngine:
    reader = ReplayEngine({"a/p0001-e000": Completion("read", tokens_out=1)}, family="deepseek_ocr")
    return DetectorFirstEngine(detector, reader, "deepseek_ocr")


def pool() -> PagePool:
    return PagePool(0, PixelBufferPool(0, 0))


async def test_only_prompts_to_detect_go_to_the_detector() -> None:
    """A page is detected, and its crops are read by the reader."""
    detector = ScriptedDetector()
    engine = build(detector)

    page = await engine.generate(Prompt("a/p0001", DETECT, PAGE))
    crop = await engine.generate(Prompt("a/p0001-e000", "OCR:", PAGE))

    assert (page.text, page.finish_reason) == (EMPTY, "stop")
    assert crop.text == "read"
    assert detector.sizes == [1]


async def test_pages_of_all_jobs_share_batches() -> None:
    """Twenty pages that wait together are few batches."""
    detector = ScriptedDetector()
    engine = build(detector)

    await asyncio.gather(*(engine.generate(Prompt(f"job{n % 3}/p{n:04}", DETECT, PAGE)) for n in range(20)))

    assert detector.sizes == [20]


async def test_a_page_that_kills_the_detector_is_a_crash_of_that_page() -> None:
    """The other pages of its batch are detected; outputs that are no numbers are an error of their page."""
    engine = build(ScriptedDetector())

    pages = (PAGE, KILLER, BROKEN)
    answers = await asyncio.gather(*(engine.generate(Prompt(f"p{n}", DETECT, page)) for n, page in enumerate(pages)))

    assert [answer.finish_reason for answer in answers] == ["stop", "crash", "error"]


async def test_a_page_is_tried_again_after_a_death() -> None:
    """One death of the detector's process may be an accident, also for a page that was alone."""
    detector = ScriptedDetector()
    engine = build(detector)

    answer = await engine.generate(Prompt("p1", DETECT, KILLER))

    assert answer.finish_reason == "crash"
    assert detector.sizes == [1, 1]


async def test_a_detector_that_does_not_start_stops_the_worker() -> None:
    """A worker without its detector serves nothing, and says why."""
    with pytest.raises(EngineError, match="layout detector did not start"):
        await build(ScriptedDetector(WorkerDied(Code.RENDER_CRASH, "a page worker crashed"))).open(pool())


async def test_the_detector_opens_and_closes_with_the_engine() -> None:
    """Its start is one of the stages of the worker's start."""
    detector = ScriptedDetector()
    engine = build(detector)

    await engine.open(pool())
    was_open = detector.is_open
    await engine.close()

    assert was_open and not detector.is_open
    assert "detector_s" in engine.stage_ends


class WaitingReader(ReplayEngine):
    """Opens when the detector is prepared."""

    def __init__(self, detector: PreparingDetector) -> None:
        super().__init__({}, "deepseek_ocr")
        self.detector_ahead = detector

    async def open(self, page_pool: PagePool) -> None:
        await self.detector_ahead.is_prepared.wait()
        self.detector_ahead.steps.append("reader open")


class PreparingDetector(ScriptedDetector):
    """Remembers in which order everything opens."""

    def __init__(self, failure: Exception | None = None) -> None:
        super().__init__()
        self.prepare_failure = failure
        self.is_prepared = asyncio.Event()
        self.steps: list[str] = []

    async def prepare(self, page_pool: PagePool) -> None:
        if self.prepare_failure:
            raise self.prepare_failure
        self.steps.append("detector prepared")
        self.is_prepared.set()

    async def open(self, page_pool: PagePool) -> None:
        self.steps.append("detector open")


async def test_the_detector_prepares_while_the_reader_opens() -> None:
    """It needs memory of the GPU, which the reader measures, only after that."""
    detector = PreparingDetector()

    await DetectorFirstEngine(detector, WaitingReader(detector), "deepseek_ocr").open(pool())

    assert detector.steps == ["detector prepared", "reader open", "detector open"]


async def test_a_detector_that_cannot_prepare_ends_the_start_of_the_reader() -> None:
    """Its error is known long before a large model is loaded."""
    detector = PreparingDetector(WorkerDied(Code.RENDER_CRASH, "a page worker crashed"))

    with pytest.raises(EngineError, match="layout detector did not start"):
        await DetectorFirstEngine(detector, WaitingReader(detector), "deepseek_ocr").open(pool())

    assert detector.steps == []


class ChangingReader(ReplayEngine):
    """Learns its precision when it opens, loses half of its sequences, and ends."""

    def __init__(self) -> None:
        super().__init__({}, "deepseek_ocr", sequences=8)
        self.incidents: list[Incident] = []

    async def open(self, page_pool: PagePool) -> None:
        self.precision = "as served by the server"
        self.stage_ends = {"imports_s": 2.0}

    def run_out_of_memory(self) -> None:
        self.sequences = 4
        self.incidents = [*self.incidents, Incident(Code.ENGINE_MEMORY, "restarted")]
        self.is_gone = True


async def test_what_the_reader_changes_is_passed_on() -> None:
    """Jobs, ids and the health check see the reader as it is now, and both starts."""
    reader = ChangingReader()
    engine = DetectorFirstEngine(ScriptedDetector(), reader, "deepseek_ocr", name="detector@1")
    before = (engine.precision, engine.sequences, list(engine.incidents), engine.is_gone)

    await engine.open(pool())
    reader.run_out_of_memory()

    assert before == ("recorded", 8, [], False)
    assert describe(engine) == {"engine": "replay", "precision": "as served by the server", "detector": "detector@1"}
    assert (engine.sequences, engine.incidents, engine.is_gone) == (4, reader.incidents, True)
    assert engine.stage_ends.keys() == {"imports_s", "open_s", "detector_s"}


async def test_a_detector_that_says_why_it_cannot_start_is_quoted() -> None:
    """An error with a code and advice reaches the operator as it is."""
    detector = ScriptedDetector(EngineError(Code.ENGINE_DEAD, "set DETECTOR_DEVICE=cpu"))

    with pytest.raises(EngineError, match="^ENGINE_DEAD: set DETECTOR_DEVICE=cpu$"):
        await build(detector).open(pool())


@pytest.mark.parametrize("uses_drafts", [False, True])
def test_drafts_are_made_for_the_reader(uses_drafts: bool) -> None:
    """With a detector in front, drafts are made if the reader uses them."""
    reader = ReplayEngine({})
    reader.uses_drafts = uses_drafts

    assert DetectorFirstEngine(ScriptedDetector(), reader, "deepseek_ocr").uses_drafts is uses_drafts
