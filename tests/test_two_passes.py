"""A report through both passes with recorded DeepSeek-OCR answers: what is asked, which stands, what is written."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.fakes import documents, recorded
from tests.fakes.reader import Reader
from tests.fakes.recorded import Listening
from twopass.document import Box, State, Word
from twopass.engines.cpu.engine import CpuEngine
from twopass.engines.interface import PagePointer
from twopass.engines.replay import ReplayEngine
from twopass.errors import Code, InvalidJob
from twopass.families.interface import Family
from twopass.families.registry import FAMILIES
from twopass.job import Mode, Result, Task
from twopass.pages.rendered_page import Picture
from twopass.pages.shared_pixels import PixelBufferPool, Pixels
from twopass.pages.text_layer import TextLayer
from twopass.runtime.page_pool import PagePool
from twopass.steps import pass1

SCALE = 2  # pixels a point, at 144 dpi
PADDING = 16  # pixels, both sides together


class Read(NamedTuple):
    """The report as it was read, and the engine that knows what was asked."""

    engine: Listening
    result: Result
    document: dict[str, Any]
    markdown: str
    folder: Path

    def element(self, name: str) -> dict[str, Any]:
        (found,) = (element for element in self.document["elements"] if element["id"] == name)
        return found  # type: ignore[no-any-return]

    def page(self, number: int) -> dict[str, Any]:
        return self.document["pages"][number - 1]  # type: ignore[no-any-return]


@pytest.fixture
def reader(page_pool: PagePool, buffers: PixelBufferPool) -> Reader:
    return Reader(page_pool, buffers, CpuEngine(2))


@pytest.fixture(scope="module")
async def read(page_pool: PagePool, buffers: PixelBufferPool, tmp_path_factory: pytest.TempPathFactory) -> Read:
    return await reading(Reader(page_pool, buffers, CpuEngine(2)), tmp_path_factory.mktemp("read"))


async def reading(reader: Reader, folder: Path, **fields: Any) -> Read:
    source = folder / "report.pdf"
    source.write_bytes(recorded.report())
    engine = Listening(hashlib.sha256(source.read_bytes()).hexdigest()[:12])
    result = await reader.run(engine=engine, source=str(source), output=f"{folder}/out", **fields)
    assert result.documents[0].id, result.problems
    made = next((folder / "out").glob("report-*"))
    document = json.loads((made / "document.json").read_text())
    return Read(engine, result, document, (made / "document.md").read_text(), made)


def test_every_page_ends_in_its_state(read: Read) -> None:
    """Read, repaired in another mode, taken from the text layer, failed; each with its reason and its rungs."""
    assert [page["state"] for page in read.document["pages"]] == ["read", "repaired", "text_layer", "failed"]
    assert [page["reason"] for page in read.document["pages"]] == [None, "LOOP", "LOOP", "LOOP"]
    assert [attempt["rung"] for attempt in read.page(2)["attempts"]] == ["normal", "again", "mode"]
    assert [attempt["rung"] for attempt in read.page(3)["attempts"]] == [
        "normal",
        "again",
        "mode",
        "free",
        "text_layer",
    ]
    assert read.result.status == "partial_success"


def test_a_rung_changes_what_the_model_is_asked(read: Read) -> None:
    """Tighter ban and a little temperature, then another mode, then no boxes."""
    first, again, mode, free = (read.engine.asked[f"p0003{rung}"] for rung in recorded.RUNGS)

    assert (first.sampling.temperature, first.sampling.ngram, first.sampling.window) == (0.0, 30, 90)
    assert (again.sampling.temperature, again.sampling.ngram, again.sampling.window) == (0.2, 10, 256)
    assert (first.mode, again.mode) == ("base", "base") and mode.mode == "gundam"  # few words: a sparse page
    assert first.text == mode.text == "<image>\n<|grounding|>Convert the document to markdown."
    assert free.text == "<image>\nFree OCR."


def test_what_was_read_before_the_loop_is_kept(read: Read) -> None:
    """A failed page is not an empty one."""
    kept = [element for element in read.document["elements"] if element["page"] == 4]

    assert [element["text"] for element in kept][0] == "2 Readings"
    assert any("loop" in element["flags"] for element in kept)
    assert len(kept) < 5


def test_pass_2_asks_about_tables_pictures_formulas_and_doubts_only(read: Read) -> None:
    """Each with the prompt the model knows for it, on its own crop."""
    asked = {name: prompt.text.removeprefix("<image>\n") for name, prompt in read.engine.asked.items() if "-e" in name}

    assert asked == {
        "p0001-e003": "<|grounding|>Convert the document to markdown.",
        "p0001-e005": "Parse the figure.",
        "p0001-e007": "Parse the figure.",
        "p0001-e007-2": "Describe this image in detail.",
        "p0001-e008": "Free OCR.",
        "p0001-e009": "Free OCR.",
        "p0001-e010": "Parse the figure.",
        "p0001-e010-2": "Describe this image in detail.",
    }


@pytest.mark.parametrize(
    ("name", "at", "mode"),
    [
        ("p0001-e003", recorded.TABLE_AT, "base"),
        ("p0001-e005", recorded.CHART_AT, "small"),
        ("p0001-e009", recorded.DOUBTED_AT, "base"),
    ],
)
def test_a_crop_is_the_elements_own_size(read: Read, name: str, at: tuple[float, ...], mode: str) -> None:
    """Its box with a little padding, in a mode that fits; none of them needs tiles."""
    image = read.engine.asked[name].image
    width, height = (at[2] - at[0]) * SCALE + PADDING, (at[3] - at[1]) * SCALE + PADDING

    assert abs(image.width - width) <= 4 and abs(image.height - height) <= 4
    assert read.engine.asked[name].mode == mode


def test_a_crop_shows_what_its_element_is(read: Read) -> None:
    """The chart's bars are red, the diagram's boxes blue, the photo grey."""
    red, _, blue = read.engine.colours["p0001-e005"]
    assert red > blue + 40
    red, _, blue = read.engine.colours["p0001-e007"]
    assert blue > red + 20
    red, _, blue = read.engine.colours["p0001-e010"]
    assert abs(red - blue) < 2 and red < 190


def test_the_table_has_cells_and_its_caption(read: Read) -> None:
    """The HTML stood behind the caption; both readings agree, the nearer one stands."""
    table = read.element("p0001-e003")

    assert (table["table"]["rows"], table["table"]["cols"]) == (3, 3)
    assert table["caption_ids"] == ["p0001-e004"]
    assert table["confidence"] == {"score": 1.0, "method": "agreement"}
    assert "| North | 12.5 | 2100 |" in read.markdown


def test_pictures_become_what_they_are(read: Read) -> None:
    """Data makes a graph, arrows a diagram; a description that loops leaves a complex image with a flag."""
    chart, diagram, photo = (read.element(f"p0001-e{n:03}") for n in (5, 7, 10))

    assert [e["category"] for e in (chart, diagram, photo)] == ["graph", "diagram", "complex_image"]
    assert chart["figure"]["data"]["rows"] == 3 and chart["figure"]["axes"][1] == {"label": "Rain", "unit": "mm"}
    assert diagram["figure"]["description"] == recorded.DIAGRAM and diagram["summary"].startswith("The image is a flow")
    assert diagram["figure"]["visible_text"] == "Spring\nReservoir"
    assert "pass2_loop" in photo["flags"] and photo["figure"]["description"] is None
    assert chart["analysis"] == {"source": "model", "prompt": "<image>\nParse the figure."}


def test_the_layer_decides_over_doubtful_text(read: Read) -> None:
    """Pass 1 misread it and the layer knew; pass 2 read what the layer says, and stands."""
    doubted = read.element("p0001-e009")

    assert doubted["text"] == recorded.DOUBTED
    assert (doubted["read_by"], doubted["analysis"]["prompt"]) == (2, "<image>\nFree OCR.")
    assert doubted["confidence"]["method"] == "agreement" and doubted["confidence"]["score"] < 0.9
    assert "pass2_disagrees" in doubted["flags"] and "doubtful" not in doubted["flags"]
    assert recorded.MISREAD not in read.markdown and recorded.DOUBTED in read.markdown


def test_a_formula_keeps_its_number(read: Read) -> None:
    """Pass 2 saw the tag that pass 1 had not; the rest agrees."""
    assert read.element("p0001-e008")["formula"]["latex"] == "Q = v A \\tag{1}"
    assert "$$\nQ = v A \\tag{1}\n$$" in read.markdown


def test_text_the_layer_knows_is_not_asked_about_and_sure(read: Read) -> None:
    """Its confidence is the share of its words that the layer has."""
    assert read.element("p0001-e002")["confidence"] == {"score": 1.0, "method": "text_layer"}
    assert read.element("p0001-e002")["read_by"] == 1


def test_the_markdown_is_a_document(read: Read) -> None:
    """Title, sections, captions and figures in their order, no tag and no special token."""
    order = ["# Water in the Hills", "## 1 Springs", PARAGRAPH, "| Pump |", "Table 1: The pumps", "Figure 1: Rain"]
    places = [read.markdown.index(text) for text in order]

    assert places == sorted(places)
    assert "<|" not in read.markdown and "center" not in read.markdown


PARAGRAPH = recorded.PARAGRAPH


async def test_checkpoints_replay_to_the_same_document(reader: Reader, read: Read, tmp_path: Path) -> None:
    """What was recorded with this family is read by it again, and gives the same markdown."""
    replay = ReplayEngine.from_folder(read.folder)
    source = read.folder.parents[1] / "report.pdf"
    await reader.run(engine=replay, source=str(source), output=f"{tmp_path}/again")
    again = next((tmp_path / "again").glob("report-*/document.md")).read_text()

    assert replay.family == "deepseek_ocr"
    assert again == read.markdown


async def test_all_asks_about_every_element(reader: Reader, tmp_path: Path) -> None:
    """`pass2: all` reads headings, paragraphs and captions again too, and a worse answer loses nothing."""
    source = tmp_path / "report.pdf"
    source.write_bytes(recorded.report())
    key = hashlib.sha256(source.read_bytes()).hexdigest()[:12]
    worse = {f"p0001-e{n:03}": "Something else." for n in (0, 1, 2, 4, 6)}
    engine = Listening(key, {**recorded.ANSWERS, **worse})

    await reader.run(engine=engine, source=str(source), output=f"{tmp_path}/out", pages="1", pass2="all")
    document = json.loads(next((tmp_path / "out").glob("report-*/document.json")).read_text())
    texts = {element["id"]: element for element in document["elements"]}

    assert set(worse) <= set(engine.asked)
    assert texts["p0001-e002"]["text"] == recorded.PARAGRAPH
    assert "pass2_disagrees" in texts["p0001-e002"]["flags"]


async def test_none_asks_about_nothing(reader: Reader, tmp_path: Path) -> None:
    """`pass2: none` is pass 1 alone."""
    read = await reading(reader, tmp_path, pass2="none", pages="1")

    assert list(read.engine.asked) == ["p0001"]


async def test_both_passes_choose_tokens_as_the_job_says(reader: Reader, tmp_path: Path) -> None:
    """It is part of the document's identity."""
    read = await reading(reader, tmp_path, sampling={"temperature": 0.7, "max_tokens": 500}, pages="1")

    assert {(asked.sampling.temperature, asked.sampling.max_tokens) for asked in read.engine.asked.values()} == {
        (0.7, 500)
    }
    assert len(read.engine.asked) > 1


STAMP = "Downloaded from archive 2024"


@pytest.mark.parametrize(
    ("layer", "state", "texts", "told"),
    [
        (STAMP, State.FAILED, (PARAGRAPH,), "the PDF's own text says less"),
        (f"{PARAGRAPH} {STAMP}", State.TEXT_LAYER, (f"{PARAGRAPH} {STAMP}",), "the PDF's own text was taken"),
        ("", State.FAILED, (PARAGRAPH,), "the answer repeats itself"),
    ],
)
def test_a_stamp_replaces_no_reading(layer: str, state: State, texts: tuple[str, ...], told: str) -> None:
    """The layer is taken where it says at least as much as the best bad answer; the message says which was kept."""
    read = documents.checkpoint(1, documents.element("text", PARAGRAPH))
    picture = Picture(
        page=read.page,
        pixels=Pixels(1, 1, held=b""),
        pointer=PagePointer("", 1),
        words=TextLayer.of(
            Word(Box(0.01 * n, 0.1, 0.01 * n + 0.01, 0.12), said) for n, said in enumerate(layer.split())
        ),
    )

    fallen = pass1.fallen_back(read, picture, Code.LOOP)

    assert (fallen.page.state, tuple(element.text for element in fallen.elements)) == (state, texts)
    assert fallen.problems[0].message.endswith(told)


async def test_another_task_is_one_prompt_and_one_element(reader: Reader, tmp_path: Path) -> None:
    """`locate` gives the boxes of what was looked for, and no pass 2."""
    source = tmp_path / "report.pdf"
    source.write_bytes(recorded.report())
    key = hashlib.sha256(source.read_bytes()).hexdigest()[:12]
    engine = Listening(key, {"p0001": "<|ref|>the table<|/ref|><|det|>[[120, 237, 672, 344]]<|/det|>"})

    await reader.run(
        engine=engine, source=str(source), output=f"{tmp_path}/out", pages="1", task="locate", prompt="the table"
    )
    document = json.loads(next((tmp_path / "out").glob("report-*/document.json")).read_text())

    assert engine.asked["p0001"].text == "<image>\nLocate <|ref|>the table<|/ref|> in the image."
    assert [(len(e["boxes"]), e["text"]) for e in document["elements"]] == [(1, "the table")]


@pytest.mark.parametrize(
    ("family", "fields", "message"),
    [
        ("deepseek_ocr2", {"mode": "large"}, "mode: deepseek_ocr2 takes no large; it takes auto, base, gundam"),
        ("deepseek_ocr2", {"task": "figure"}, "task: deepseek_ocr2 takes no figure; it takes document, free, custom"),
        ("layout", {"task": "locate", "prompt": "the seal"}, "task: layout takes no locate; it takes document"),
    ],
)
async def test_what_the_model_does_not_take_is_refused_before_anything_is_read(
    reader: Reader, tmp_path: Path, family: str, fields: dict[str, Any], message: str
) -> None:
    """Nobody gets another mode than the one asked for; the error names the field and what there is."""
    engine = Listening("", {}, family)

    with pytest.raises(InvalidJob, match=f"^INVALID_JOB: {message}$"):
        await reader.run(
            engine=engine, source=f"{tmp_path}/not-even-looked-for.pdf", output=f"{tmp_path}/out", **fields
        )
    assert not engine.asked
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("family", FAMILIES.values(), ids=list(FAMILIES))
def test_every_mode_and_task_of_a_family_is_one_of_the_contracts(family: Family) -> None:
    """`auto` and `document`, the defaults, are always among them."""
    assert {Mode.AUTO} <= family.modes <= set(Mode)
    assert {Task.DOCUMENT} <= family.tasks <= set(Task)
