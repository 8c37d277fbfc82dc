"""Both passes on a report, with recorded DeepSeek-OCR answers: the prompts, the answer that is kept, the artefacts."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.fakes import documents, recorded
from tests.fakes.reader import Reader
from tests.fakes.recorded import RecordingEngine
from twopass.document import Box, State, Word
from twopass.engines.cpu.engine import CpuEngine
from twopass.engines.replay import ReplayEngine
from twopass.errors import Code, InvalidJob
from twopass.families.interface import Family
from twopass.families.registry import FAMILIES
from twopass.job import Mode, Task
from twopass.pages.shared_pixels import PixelBufferPool
from twopass.pages.text_layer import TextLayer
from twopass.result import Result
from twopass.runtime.page_pool import PagePool
from twopass.steps import fallback

SCALE = 2  # pixels per point at 144 dpi
PADDING = 16  # pixels of both sides together
PARAGRAPH = recorded.PARAGRAPH


class ReadReport(NamedTuple):
    """The result and the artefacts of the report, and the engine, which remembers its prompts."""

    engine: RecordingEngine
    result: Result
    document: dict[str, Any]
    markdown: str
    folder: Path

    def element(self, element_id: str) -> dict[str, Any]:
        (match,) = (element for element in self.document["elements"] if element["id"] == element_id)
        return match  # type: ignore[no-any-return]

    def page(self, number: int) -> dict[str, Any]:
        return self.document["pages"][number - 1]  # type: ignore[no-any-return]


@pytest.fixture
def reader(page_pool: PagePool, buffers: PixelBufferPool) -> Reader:
    return Reader(page_pool, buffers, CpuEngine(2))


@pytest.fixture(scope="module")
async def report(page_pool: PagePool, buffers: PixelBufferPool, tmp_path_factory: pytest.TempPathFactory) -> ReadReport:
    """The report, read with the default options."""
    return await read_report(Reader(page_pool, buffers, CpuEngine(2)), tmp_path_factory.mktemp("read"))


async def read_report(reader: Reader, folder: Path, **fields: Any) -> ReadReport:
    source = folder / "report.pdf"
    source.write_bytes(recorded.report())
    engine = RecordingEngine(hashlib.sha256(source.read_bytes()).hexdigest()[:12])
    result = await reader.run(engine=engine, source=str(source), output=f"{folder}/out", **fields)
    assert result.documents[0].id, result.problems
    output = next((folder / "out").glob("report-*"))
    document = json.loads((output / "document.json").read_text())
    return ReadReport(engine, result, document, (output / "document.md").read_text(), output)


def test_every_page_has_a_state_with_a_reason(report: ReadReport) -> None:
    """The four pages are read, repaired in another mode, read from the text layer, and failed, with all attempts."""
    assert [page["state"] for page in report.document["pages"]] == ["read", "repaired", "text_layer", "failed"]
    assert [page["reason"] for page in report.document["pages"]] == [None, "LOOP", "LOOP", "LOOP"]
    assert [attempt["rung"] for attempt in report.page(2)["attempts"]] == ["normal", "again", "mode"]
    assert [attempt["rung"] for attempt in report.page(3)["attempts"]] == [
        "normal",
        "again",
        "mode",
        "free",
        "text_layer",
    ]
    assert report.result.status == "partial_success"


def test_each_rung_changes_the_prompt(report: ReadReport) -> None:
    """The second rung has a stricter n-gram ban and a higher temperature, the third another mode, the last no boxes."""
    first, again, mode, free = (report.engine.prompts[f"p0003{rung}"] for rung in recorded.RUNGS)

    assert (first.sampling.temperature, first.sampling.ngram, first.sampling.window) == (0.0, 30, 90)
    assert (again.sampling.temperature, again.sampling.ngram, again.sampling.window) == (0.2, 30, 256)
    assert (first.mode, again.mode) == ("base", "base") and mode.mode == "gundam"  # base: few words
    assert first.text == mode.text == "<image>\n<|grounding|>Convert the document to markdown."
    assert free.text == "<image>\nFree OCR."


def test_a_failed_page_keeps_what_was_read_before_the_loop(report: ReadReport) -> None:
    """The elements before a loop are kept on a page that failed, and those of the loop have a flag."""
    kept = [element for element in report.document["elements"] if element["page"] == 4]

    assert [element["text"] for element in kept][0] == "2 Readings"
    assert any("loop" in element["flags"] for element in kept)
    assert len(kept) < 5


def test_pass_2_asks_only_about_tables_pictures_formulas_and_doubtful_text(report: ReadReport) -> None:
    """Pass 2 sends only crops of tables, pictures, formulas and doubtful text, each with the model's prompt for it."""
    prompts = {
        name: prompt.text.removeprefix("<image>\n") for name, prompt in report.engine.prompts.items() if "-e" in name
    }

    assert prompts == {
        "p0001-e003": "<|grounding|>Convert the document to markdown.",
        "p0001-e005": "Parse the figure.",
        "p0001-e005-2": "Describe this image in detail.",
        "p0001-e007": "Parse the figure.",
        "p0001-e007-2": "Describe this image in detail.",
        "p0001-e008": "Free OCR.",
        "p0001-e009": "Free OCR.",
        "p0001-e010": "Parse the figure.",
        "p0001-e010-2": "Describe this image in detail.",
    }


@pytest.mark.parametrize(
    ("element_id", "box", "mode"),
    [
        ("p0001-e003", recorded.TABLE_AT, "base"),
        ("p0001-e005", recorded.CHART_AT, "base"),
        ("p0001-e009", recorded.DOUBTED_AT, "base"),
    ],
)
def test_a_crop_has_the_size_of_its_element(
    report: ReadReport, element_id: str, box: tuple[float, ...], mode: str
) -> None:
    """A crop is the element's box with padding, in a mode that fits; none of these crops needs tiles."""
    image = report.engine.prompts[element_id].image
    width, height = (box[2] - box[0]) * SCALE + PADDING, (box[3] - box[1]) * SCALE + PADDING

    assert abs(image.width - width) <= 4 and abs(image.height - height) <= 4
    assert report.engine.prompts[element_id].mode == mode


def test_a_crop_shows_its_element(report: ReadReport) -> None:
    """The mean colour of each crop fits its element: the chart is red, the diagram blue, the photo grey."""
    red, _, blue = report.engine.colours["p0001-e005"]
    assert red > blue + 40
    red, _, blue = report.engine.colours["p0001-e007"]
    assert blue > red + 20
    red, _, blue = report.engine.colours["p0001-e010"]
    assert abs(red - blue) < 2 and red < 190


def test_the_table_has_cells_and_its_caption(report: ReadReport) -> None:
    """Pass 1 gave the table's HTML with the caption; pass 2 agrees, and its answer about the crop is kept."""
    table = report.element("p0001-e003")

    assert (table["table"]["rows"], table["table"]["cols"]) == (3, 3)
    assert table["caption_ids"] == ["p0001-e004"]
    assert table["confidence"] == {"score": 1.0, "method": "agreement"}
    assert "| North | 12.5 | 2100 |" in report.markdown


def test_pictures_get_the_category_of_their_content(report: ReadReport) -> None:
    """A picture with data is a graph, one with arrows a diagram; without a usable description it is a complex image."""
    chart, diagram, photo = (report.element(f"p0001-e{n:03}") for n in (5, 7, 10))

    assert [e["category"] for e in (chart, diagram, photo)] == ["graph", "diagram", "complex_image"]
    assert chart["figure"]["data"]["rows"] == 3 and chart["figure"]["axes"][1] == {"label": "Rain", "unit": "mm"}
    assert diagram["figure"]["description"] == recorded.DIAGRAM and diagram["summary"].startswith("The image is a flow")
    assert diagram["figure"]["visible_text"] == "Spring\nReservoir"
    assert "pass2_loop" in photo["flags"] and photo["figure"]["description"] is None
    assert (chart["figure"]["type"], chart["figure"]["description"]) == ("bar_chart", recorded.CHART)
    assert chart["summary"] == recorded.CHART and chart["flags"] == ["derived_axes", "derived_keywords"]
    assert chart["analysis"] == {"source": "model", "prompt": "<image>\nDescribe this image in detail."}


def test_the_text_layer_decides_between_two_readings(report: ReadReport) -> None:
    """Pass 1 misread a text, pass 2 agrees with the text layer, so the answer of pass 2 is kept."""
    doubted = report.element("p0001-e009")

    assert doubted["text"] == recorded.DOUBTED
    assert (doubted["read_by"], doubted["analysis"]["prompt"]) == (2, "<image>\nFree OCR.")
    assert doubted["confidence"]["method"] == "agreement" and doubted["confidence"]["score"] < 0.9
    assert "pass2_disagrees" in doubted["flags"] and "doubtful" not in doubted["flags"]
    assert recorded.MISREAD not in report.markdown and recorded.DOUBTED in report.markdown


def test_a_formula_keeps_its_number(report: ReadReport) -> None:
    """If both passes agree on a formula and only pass 2 has its number, the number is kept."""
    assert report.element("p0001-e008")["formula"]["latex"] == "Q = v A \\tag{1}"
    assert "$$\nQ = v A \\tag{1}\n$$" in report.markdown


def test_text_that_agrees_with_the_text_layer_is_not_read_again(report: ReadReport) -> None:
    """Text that agrees with the text layer is read once; its confidence is the share of its words in that layer."""
    assert report.element("p0001-e002")["confidence"] == {"score": 1.0, "method": "found_in_layer"}
    assert report.element("p0001-e002")["read_by"] == 1


def test_the_markdown_contains_everything_in_reading_order(report: ReadReport) -> None:
    """The markdown has title, sections, tables and captions in reading order, and no special tokens or layout tags."""
    order = ["# Water in the Hills", "## 1 Springs", PARAGRAPH, "| Pump |", "Table 1: The pumps", "Figure 1: Rain"]
    positions = [report.markdown.index(text) for text in order]

    assert positions == sorted(positions)
    assert "<|" not in report.markdown and "center" not in report.markdown


async def test_checkpoints_replay_to_the_same_document(reader: Reader, report: ReadReport, tmp_path: Path) -> None:
    """The answers in the checkpoints, replayed with the same family, give the same markdown."""
    replay = ReplayEngine.from_folder(report.folder)
    source = report.folder.parents[1] / "report.pdf"
    await reader.run(engine=replay, source=str(source), output=f"{tmp_path}/again")
    again = next((tmp_path / "again").glob("report-*/document.md")).read_text()

    assert replay.family == "deepseek_ocr"
    assert again == report.markdown


async def test_pass2_all_asks_about_every_element(reader: Reader, tmp_path: Path) -> None:
    """`pass2: all` reads headings, paragraphs and captions again, too; a worse answer replaces no text."""
    source = tmp_path / "report.pdf"
    source.write_bytes(recorded.report())
    key = hashlib.sha256(source.read_bytes()).hexdigest()[:12]
    worse = {f"p0001-e{n:03}": "Something else." for n in (0, 1, 2, 4, 6)}
    engine = RecordingEngine(key, {**recorded.ANSWERS, **worse})

    await reader.run(engine=engine, source=str(source), output=f"{tmp_path}/out", pages="1", pass2="all")
    document = json.loads(next((tmp_path / "out").glob("report-*/document.json")).read_text())
    elements = {element["id"]: element for element in document["elements"]}

    assert set(worse) <= set(engine.prompts)
    assert elements["p0001-e002"]["text"] == recorded.PARAGRAPH
    assert "pass2_disagrees" in elements["p0001-e002"]["flags"]


@pytest.mark.parametrize(
    ("descriptions", "described"),
    [
        ("all", {"p0001-e005-2", "p0001-e007-2", "p0001-e010-2"}),
        ("charts", {"p0001-e005-2"}),
        ("none", set()),
    ],
)
async def test_a_job_chooses_the_figures_that_are_described(
    reader: Reader, tmp_path: Path, descriptions: str, described: set[str]
) -> None:
    """`figure_descriptions` decides which figures get a second prompt; all of them are parsed for data."""
    report = await read_report(reader, tmp_path, figure_descriptions=descriptions, pages="1")

    asked = {name: prompt.text for name, prompt in report.engine.prompts.items()}
    assert {name for name, text in asked.items() if "Describe" in text} == described
    assert {name for name, text in asked.items() if "Parse" in text} == {"p0001-e005", "p0001-e007", "p0001-e010"}


async def test_pass2_none_asks_about_no_element(reader: Reader, tmp_path: Path) -> None:
    """`pass2: none` sends the prompt of pass 1 and no other."""
    report = await read_report(reader, tmp_path, pass2="none", pages="1")

    assert list(report.engine.prompts) == ["p0001"]


async def test_both_passes_use_the_sampling_options_of_the_job(reader: Reader, tmp_path: Path) -> None:
    """Temperature and token limit of the job apply to the prompts of both passes."""
    report = await read_report(reader, tmp_path, sampling={"temperature": 0.7, "max_tokens": 500}, pages="1")

    samplings = [prompt.sampling for prompt in report.engine.prompts.values()]
    assert {(sampling.temperature, sampling.max_tokens) for sampling in samplings} == {(0.7, 500)}
    assert len(report.engine.prompts) > 1


STAMP = "Downloaded from archive 2024"


@pytest.mark.parametrize(
    ("layer", "state", "texts", "ending"),
    [
        (STAMP, State.FAILED, (PARAGRAPH,), "the PDF's own text is shorter"),
        (f"{PARAGRAPH} {STAMP}", State.TEXT_LAYER, (f"{PARAGRAPH} {STAMP}",), "the PDF's own text is used"),
        ("", State.FAILED, (PARAGRAPH,), "the answer repeats itself; another mode or dpi often helps"),
    ],
)
def test_a_stamp_does_not_replace_an_answer(layer: str, state: State, texts: tuple[str, ...], ending: str) -> None:
    """The text layer is used if it has as many words as the best unusable answer; the message says which was kept."""
    checkpoint = documents.checkpoint(1, documents.element("text", PARAGRAPH))
    words = TextLayer.of(Word(Box(0.01 * n, 0.1, 0.01 * n + 0.01, 0.12), text) for n, text in enumerate(layer.split()))

    final = fallback.use_text_layer(checkpoint, words, Code.LOOP)

    assert (final.page.state, tuple(element.text for element in final.elements)) == (state, texts)
    assert final.problems[0].message.endswith(ending)


async def test_other_tasks_send_one_prompt_and_give_one_element(reader: Reader, tmp_path: Path) -> None:
    """The task `locate` gives one element with the boxes of what the prompt names; there is no pass 2."""
    source = tmp_path / "report.pdf"
    source.write_bytes(recorded.report())
    key = hashlib.sha256(source.read_bytes()).hexdigest()[:12]
    engine = RecordingEngine(key, {"p0001": "<|ref|>the table<|/ref|><|det|>[[120, 237, 672, 344]]<|/det|>"})

    await reader.run(
        engine=engine, source=str(source), output=f"{tmp_path}/out", pages="1", task="locate", prompt="the table"
    )
    document = json.loads(next((tmp_path / "out").glob("report-*/document.json")).read_text())

    assert engine.prompts["p0001"].text == "<image>\nLocate <|ref|>the table<|/ref|> in the image."
    assert [(len(e["boxes"]), e["text"]) for e in document["elements"]] == [(1, "the table")]


@pytest.mark.parametrize(
    ("family", "fields", "message"),
    [
        (
            "deepseek_ocr2",
            {"mode": "large"},
            "mode: deepseek_ocr2 does not support large; use one of auto, base, gundam",
        ),
        (
            "deepseek_ocr2",
            {"task": "figure"},
            "task: deepseek_ocr2 does not support figure; use one of document, free, custom",
        ),
        (
            "deepseek_ocr2",
            {"max_crops": 12},
            "max_crops: deepseek_ocr2 on this worker takes 2 to 9",
        ),
        (
            "layout",
            {"task": "locate", "prompt": "the seal"},
            "task: layout does not support locate; use one of document",
        ),
    ],
)
async def test_an_unsupported_mode_or_task_is_refused_before_the_source_is_fetched(
    reader: Reader, tmp_path: Path, family: str, fields: dict[str, Any], message: str
) -> None:
    """A mode or task that the model does not support is not replaced by another; the error lists the supported ones."""
    engine = RecordingEngine("", {}, family)

    with pytest.raises(InvalidJob, match=f"^INVALID_JOB: {message}$"):
        await reader.run(engine=engine, source=f"{tmp_path}/missing.pdf", output=f"{tmp_path}/out", **fields)
    assert not engine.prompts
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("family", FAMILIES.values(), ids=list(FAMILIES))
def test_every_family_supports_the_default_mode_and_task(family: Family) -> None:
    """Every family supports mode `auto` and task `document`, and only modes and tasks that a job may name."""
    assert {Mode.AUTO} <= family.modes <= set(Mode)
    assert {Task.DOCUMENT} <= family.tasks <= set(Task)
