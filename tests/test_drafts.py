"""The drafts of a report's prompts: what each contains, and that they change the speed only."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.fakes import recorded
from tests.fakes.reader import Reader
from tests.fakes.recorded import RecordingEngine
from twopass.engines.cpu.engine import CpuEngine
from twopass.pages.shared_pixels import PixelBufferPool
from twopass.runtime.page_pool import PagePool


class ReadReport(NamedTuple):
    """The draft of each prompt by the end of the prompt's id, and the document's files by their paths."""

    drafts: dict[str, str]
    stored: dict[str, Any]


async def read_report(source: Path, reader: Reader, output: Path, uses_drafts: bool) -> ReadReport:
    engine = RecordingEngine(hashlib.sha256(source.read_bytes()).hexdigest()[:12])
    engine.uses_drafts = uses_drafts
    await reader.run(engine=engine, source=str(source), output=str(output))
    paths = [path for path in output.glob("report-*/**/*") if path.is_file()]
    stored = {str(path.relative_to(output)): load(path) for path in paths}
    return ReadReport({name: prompt.draft for name, prompt in engine.prompts.items()}, stored)


def load(path: Path) -> Any:
    """A stored file without times, nonces and the place of the output."""
    if path.suffix != ".json":
        return path.read_bytes()
    content = json.loads(path.read_bytes())
    return {name: value for name, value in content.items() if name not in ("cost", "result")}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("drafts") / "report.pdf"
    path.write_bytes(recorded.report())
    return path


@pytest.fixture(scope="module")
async def report(page_pool: PagePool, buffers: PixelBufferPool, source: Path) -> ReadReport:
    """The report, read by an engine that uses drafts."""
    return await read_report(
        source, Reader(page_pool, buffers, CpuEngine(2), dpi=72), source.parent / "out", uses_drafts=True
    )


def test_prompts_about_a_page_have_its_text(report: ReadReport) -> None:
    """Every rung, with and without boxes, has the page's own text; a page without a text layer has none."""
    assert recorded.PARAGRAPH in report.drafts["p0001"]
    assert {report.drafts[f"p0003{rung}"] for rung in recorded.RUNGS} == {f"2 Readings {recorded.LOOPED}"}
    assert {report.drafts[f"p0004{rung}"] for rung in recorded.RUNGS} == {""}


@pytest.mark.parametrize(
    ("element_id", "draft"),
    [
        ("p0001-e003", recorded.HTML),
        ("p0001-e008", "\\[ Q = v A \\]"),
        ("p0001-e009", recorded.MISREAD),
    ],
)
def test_prompts_about_an_element_have_pass_1s_answer(report: ReadReport, element_id: str, draft: str) -> None:
    """A table has its HTML, a formula its LaTeX, as the model wrote them, also where the text layer knows better."""
    assert report.drafts[element_id] == draft


def test_a_description_has_no_draft(report: ReadReport) -> None:
    """A description is no text of the picture."""
    assert report.drafts["p0001-e005-2"] == report.drafts["p0001-e007-2"] == ""


async def test_what_is_stored_is_the_same_without_drafts(
    report: ReadReport, source: Path, page_pool: PagePool, buffers: PixelBufferPool, tmp_path: Path
) -> None:
    """Document id, checkpoints, recorded prompts, manifest and artefacts do not depend on drafts."""
    plain = await read_report(source, Reader(page_pool, buffers, CpuEngine(2), dpi=72), tmp_path, uses_drafts=False)

    assert set(plain.drafts.values()) == {""}
    assert "pages/0001.json" in {name.partition("/")[2] for name in plain.stored}
    assert plain.stored == report.stored
