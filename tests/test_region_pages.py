"""Whole documents whose pages are read region by region: what is asked, and how pages end that were not read."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from tests.detection.test_recall import PAGE
from tests.fakes.reader import Reader
from tests.fakes.scripted import Answer, ScriptedEngine, answer_detections, detect, detect_regions
from tests.fakes.source_files import save_headline
from twopass.acceptance import drawn_pages
from twopass.cli import reparse_folder
from twopass.detection.region import DETECT, make_region
from twopass.document import Box
from twopass.engines.interface import MAX_ANSWER, Completion, Prompt
from twopass.families import registry
from twopass.families.interface import FamilyOptions
from twopass.pages.shared_pixels import PixelBufferPool
from twopass.result import Result
from twopass.runtime.page_pool import PagePool
from twopass.settings import Settings

TABLE = "<table><tr><td>Salt</td><td>418</td></tr></table>"
LABELS = ("doc_title", "text", "table")
TAGGED = "<|ref|>text<|/ref|><|det|>[[100, 100, 900, 200]]<|/det|>\nSalt came by ship."


@pytest.fixture
def reader(page_pool: PagePool, buffers: PixelBufferPool) -> Reader:
    return Reader(page_pool, buffers, ScriptedEngine("layout", lambda prompt: ""))


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a page that has a text layer, and with a scan."""
    folder = tmp_path_factory.mktemp("drawn")
    drawn_pages.save([PAGE], folder / "page.pdf")
    save_headline(folder / "scan.pdf")
    return folder


@pytest.fixture
def pdf(drawn: Path, tmp_path: Path) -> Path:
    """A page with a text layer."""
    return Path(shutil.copy(drawn / "page.pdf", tmp_path))


@pytest.fixture
def scan(drawn: Path, tmp_path: Path) -> Path:
    """A page without one."""
    return Path(shutil.copy(drawn / "scan.pdf", tmp_path))


async def read(
    reader: Reader, source: Path, engine: ScriptedEngine, structure: str = "auto", **fields: Any
) -> tuple[Result, dict[str, Any]]:
    """The result, and the document that was written."""
    family = registry.get_family(engine.family, FamilyOptions(structure=structure))
    output = source.parent / f"out-{engine.family}-{structure}"
    result = await reader.run(engine=engine, family=family, source=str(source), output=str(output), **fields)
    [path] = output.rglob("document.json")
    return result, json.loads(path.read_text())


def answer_regions(prompt: Prompt) -> str:
    """What any of the models may answer about a region, by the element's number."""
    return TABLE if prompt.id.endswith("e002") else f"Words of {prompt.id.rpartition('/')[2]}"


def list_codes(result: Result) -> list[tuple[str, str]]:
    return [(str(problem.code), str(problem.severity)) for problem in result.problems]


@pytest.mark.parametrize("name", ["deepseek_ocr", "deepseek_ocr2", "unlimited_ocr", "glm_ocr"])
@pytest.mark.parametrize("pass2", ["none", "auto"])
async def test_regions_are_read_with_and_without_pass_2(reader: Reader, scan: Path, name: str, pass2: str) -> None:
    """A detected page has no text before: `pass2: none` must not leave it without any."""
    engine = ScriptedEngine(name, answer_detections(detect(*LABELS), answer_regions))

    result, document = await read(reader, scan, engine, "detector", pass2=pass2)

    title, text, table = document["elements"]
    assert (result.status, result.problems) == ("success", ())
    assert (title["text"], text["text"]) == ("Words of p0001-e000", "Words of p0001-e001")
    assert [cell["text"] for cell in table["table"]["cells"]] == ["Salt", "418"]
    assert [prompt.text == DETECT for prompt in engine.prompts] == [True, False, False, False]
    assert all("unread_region" not in e["flags"] and e["read_by"] == 2 for e in document["elements"])


@pytest.mark.parametrize("max_tokens", [None, 100])
async def test_readers_have_a_token_limit_of_their_own(reader: Reader, scan: Path, max_tokens: int | None) -> None:
    """That of their authors, unless the job sets one; no n-gram is banned, and nothing is sampled at random."""
    for name, limit in (("glm_ocr", 8192), ("paddleocr_vl", 4096)):
        engine = ScriptedEngine(name, answer_detections(detect("text"), answer_regions))

        await read(reader, scan, engine, sampling={"max_tokens": max_tokens} if max_tokens else {})

        sampling = engine.prompts[-1].sampling
        assert (sampling.max_tokens, sampling.ngram, sampling.temperature) == (max_tokens or limit, 0, 0.0)


async def test_a_page_without_grounding_is_read_region_by_region(reader: Reader, scan: Path) -> None:
    """With `fallback`, the detector is asked when no answer of the model has boxes, before the prompt without them."""

    def answer(prompt: Prompt) -> str:
        return answer_regions(prompt) if "p0001-e0" in prompt.id else "Salt came by ship, without any box."

    engine = ScriptedEngine("deepseek_ocr", answer_detections(detect("text", "text"), answer))

    result, document = await read(reader, scan, engine, "fallback")

    [page] = document["pages"]
    assert [attempt["rung"] for attempt in page["attempts"]] == ["normal", "again", "mode", "regions"]
    assert (page["state"], page["reason"], result.status) == ("repaired", "UNGROUNDED", "success")
    assert [element["text"] for element in document["elements"]] == ["Words of p0001-e000", "Words of p0001-e001"]
    assert document["run"]["options"]["structure"] == "fallback"


@pytest.mark.parametrize("detection", [Completion("", "crash"), Completion("no json"), Completion("", "error")])
async def test_a_page_that_cannot_be_detected_is_read_at_once(
    reader: Reader, scan: Path, detection: Completion
) -> None:
    """Also if the detector crashes on it: the reader runs in another process."""
    engine = ScriptedEngine("deepseek_ocr", lambda prompt: detection if prompt.text == DETECT else TAGGED)

    result, document = await read(reader, scan, engine, "detector", pass2="none")

    assert [attempt["rung"] for attempt in document["pages"][0]["attempts"]] == ["normal", "whole"]
    assert [element["text"] for element in document["elements"]] == ["Salt came by ship."]
    assert result.status == "success"


@pytest.mark.parametrize(("name", "window"), [("deepseek_ocr", 256), ("unlimited_ocr", 1024)])
async def test_an_empty_answer_about_a_region_is_asked_again(
    reader: Reader, scan: Path, name: str, window: int
) -> None:
    """With the sampling of the model's second rung, and once."""
    second = answer_detections(detect("text"), lambda prompt: "Salt." if prompt.id.endswith("e000-2") else "")
    engine = ScriptedEngine(name, second)

    result, document = await read(reader, scan, engine, "detector")

    samplings = [prompt.sampling for prompt in engine.prompts[1:]]
    assert [(one.temperature, one.window == window) for one in samplings] == [(0.0, False), (0.2, True)]
    assert (result.problems, document["elements"][0]["text"]) == ((), "Salt.")


@pytest.mark.parametrize(
    ("name", "lost"),
    [
        ("deepseek_ocr", Completion("")),
        ("unlimited_ocr", Completion("")),
        ("paddleocr_vl", Completion("")),
        ("glm_ocr", Completion("")),
        ("glm_ocr", Completion(" \n")),
        ("glm_ocr", Completion("", "error")),
        ("glm_ocr", Completion("", "crash")),
    ],
)
async def test_a_region_that_is_not_read_is_flagged_and_counted(
    reader: Reader, scan: Path, name: str, lost: Completion
) -> None:
    """The page is kept with a warning that says how many regions have no text and what to do; it is no success."""

    def answer(prompt: Prompt) -> Completion | str:
        return lost if "p0001-e001" in prompt.id else answer_regions(prompt)

    engine = ScriptedEngine(name, answer_detections(detect("doc_title", "text"), answer))

    result, document = await read(reader, scan, engine, "detector")

    assert list_codes(result) == [("REGIONS_UNREAD", "warning")]
    assert "page 1: 1 of 2 regions not read; check them, and raise dpi" in result.problems[0].message
    assert ["unread_region" in element["flags"] for element in document["elements"]] == [False, True]
    assert (document["pages"][0]["state"], result.status) == ("read", "partial_success")
    assert result.audit and result.audit.describe_losses() == ["1 region not read: page 1"]
    (finding,) = document["pages"][0]["audit"]["findings"]
    assert (finding["kind"], finding["element"]) == ("region_unread", document["elements"][1]["id"])


async def test_with_strict_a_loss_is_a_failure(reader: Reader, scan: Path) -> None:
    """What was read is written, and the same document is a failure for each strict job, and for no other."""
    engine = ScriptedEngine(
        "glm_ocr",
        answer_detections(
            detect("doc_title", "text"), lambda prompt: "" if "p0001-e001" in prompt.id else answer_regions(prompt)
        ),
    )

    strict, document = await read(reader, scan, engine, "detector", strict=True)
    again, _ = await read(reader, scan, engine, "detector", strict=True)
    lenient, _ = await read(reader, scan, engine, "detector")

    assert [result.status for result in (strict, again, lenient)] == ["failure", "failure", "partial_success"]
    assert strict.as_answer()["error"].startswith("REGIONS_UNREAD: page 1: 1 of 2 regions not read")
    assert document["elements"][0]["text"] == "Words of p0001-e000"


@pytest.mark.parametrize(
    ("name", "lost", "reason"),
    [
        ("deepseek_ocr", Completion(""), "REGIONS_UNREAD"),
        ("glm_ocr", Completion(""), "REGIONS_UNREAD"),
        ("unlimited_ocr", Completion("", "error"), "ENGINE_REFUSED"),
        ("glm_ocr", Completion("", "error"), "ENGINE_REFUSED"),
        ("paddleocr_vl", Completion("", "crash"), "ENGINE_CRASH"),
        ("glm_ocr", Completion("", "crash"), "ENGINE_CRASH"),
    ],
)
async def test_a_page_of_which_no_region_was_read_is_no_success(
    reader: Reader, scan: Path, name: str, lost: Completion, reason: str
) -> None:
    """It fails with an error; the page shows text, so that it is no picture."""
    engine = ScriptedEngine(name, answer_detections(detect("text", "text"), lambda prompt: lost))

    result, document = await read(reader, scan, engine, "detector")

    assert (document["pages"][0]["state"], document["pages"][0]["reason"]) == ("failed", reason)
    assert (result.status, list_codes(result)) == ("failure", [(reason, "error")])


async def test_a_page_whose_engine_crashed_is_read_by_the_next_job(reader: Reader, scan: Path) -> None:
    """A crash says nothing about the page, so that nothing of it is stored."""
    engine = ScriptedEngine("glm_ocr", answer_detections(detect("text"), lambda prompt: Completion("", "crash")))
    await read(reader, scan, engine)

    again = ScriptedEngine("glm_ocr", answer_detections(detect("text"), answer_regions))
    result, document = await read(reader, scan, again)

    assert (result.status, document["elements"][0]["text"]) == ("success", "Words of p0001-e000")


@pytest.mark.parametrize("name", ["deepseek_ocr", "glm_ocr"])
async def test_a_page_that_was_not_read_shows_its_text_layer(reader: Reader, pdf: Path, name: str) -> None:
    """As any page without a usable answer, it says that the text is the PDF's own."""
    engine = ScriptedEngine(name, answer_detections(detect("text", "text"), lambda prompt: ""))

    result, document = await read(reader, pdf, engine, "detector")

    assert (document["pages"][0]["state"], document["pages"][0]["reason"]) == ("text_layer", "REGIONS_UNREAD")
    assert list_codes(result) == [("REGIONS_UNREAD", "warning")]
    assert all("text_layer" in element["flags"] and element["text"] for element in document["elements"])


@pytest.mark.parametrize(("labels", "kept"), [(("text",), ["picture"]), (("image", "text"), ["picture", "text"])])
async def test_a_picture_that_was_taken_for_text_does_not_fail_its_page(
    reader: Reader, tmp_path: Path, labels: tuple[str, ...], kept: list[str]
) -> None:
    """No line of script is on the page: it keeps its pictures, and warns of the region."""
    image = Image.new("RGB", (400, 500), "white")
    image.paste((20, 90, 160), (80, 100, 320, 400))
    image.save(tmp_path / "photo.png")
    engine = ScriptedEngine("glm_ocr", answer_detections(detect(*labels), lambda prompt: ""))

    result, document = await read(reader, tmp_path / "photo.png", engine)

    assert result.status == "success"
    assert [element["kind"] for element in document["elements"]] == kept
    expected = {("REGIONS_UNREAD", "warning")} | ({("NO_TEXT", "warning")} if labels == ("text",) else set())
    assert set(list_codes(result)) == expected


async def test_what_the_detector_got_wrong_is_a_warning_of_the_page(reader: Reader, scan: Path) -> None:
    """Dropped regions and a corrected order have codes, are stored with the page, and mark its elements."""
    upper, lower = Box(0.1, 0.1, 0.9, 0.2), Box(0.1, 0.3, 0.9, 0.4)
    regions = [
        make_region("text", lower, order=0),
        make_region("text", upper, order=1),
        make_region("text", Box(0.5, 0.5, 0.5, 0.6), order=2),
    ]
    engine = ScriptedEngine("glm_ocr", answer_detections(detect_regions(regions), answer_regions))

    result, document = await read(reader, scan, engine)

    [path] = scan.parent.rglob("pages/0001.json")
    stored = [(problem["code"], problem["severity"]) for problem in json.loads(path.read_text())["problems"]]
    assert sorted(list_codes(result)) == [("ORDER_CORRECTED", "warning"), ("REGIONS_DROPPED", "warning")]
    assert sorted(stored) == sorted(list_codes(result)) and result.status == "success"
    assert [element["boxes"][0][1] for element in document["elements"]] == [0.1, 0.3]
    assert all({"order_corrected", "degenerate_regions"} <= set(e["flags"]) for e in document["elements"])


def build_numbered_formula() -> tuple[str, Answer]:
    regions = [
        make_region("text", Box(0.1, 0.1, 0.9, 0.2), order=0),
        make_region("display_formula", Box(0.2, 0.4, 0.7, 0.45), order=1),
        make_region("formula_number", Box(0.85, 0.41, 0.9, 0.43), order=2),
        make_region("text", Box(0.1, 0.6, 0.9, 0.7), order=3),
    ]
    answers = {"e000": "First.", "e001": "a = b", "e002": "(3)", "e003": "Last."}
    return detect_regions(regions), lambda prompt: answers[prompt.id.rpartition("-")[2]]


@pytest.mark.parametrize(("name", "structure"), [("glm_ocr", "auto"), ("deepseek_ocr", "detector")])
async def test_recorded_regions_are_parsed_again_as_they_were_read(
    reader: Reader, scan: Path, name: str, structure: str
) -> None:
    """With the structure of the document, and with answers about elements that were merged into others."""
    engine = ScriptedEngine(name, answer_detections(*build_numbered_formula()))
    _, document = await read(reader, scan, engine, structure)
    [manifest] = scan.parent.rglob("manifest.json")
    stored = manifest.parent / "pages" / "0001.json"
    checkpoint = json.loads(stored.read_text())
    checkpoint["elements"][0]["text"] = "As an older parser read it."
    stored.write_text(json.dumps(checkpoint))
    again = reparse_folder.Arguments(str(manifest.parent), source=str(scan), output=f"{scan.parent}/again")

    report = await asyncio.to_thread(reparse_folder.run, again, Settings(page_workers=1))

    assert [element["text"] for element in document["elements"]] == ["First.", r"a = b \tag{3}", "Last."]
    [path] = (scan.parent / "again").rglob("document.json")
    assert report["pages_changed"] == (1,)
    assert json.loads(path.read_text())["elements"] == document["elements"]


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (Completion("Salt came by", "length"), "TRUNCATED"),
        (Completion("Salt came by ship. " + "la " * 1200, "loop"), "LOOP"),
    ],
)
async def test_a_page_with_a_cut_region_says_so(reader: Reader, scan: Path, answer: Completion, code: str) -> None:
    """What was read is kept, and the page and the job have a warning that says how many answers are concerned."""
    engine = ScriptedEngine("glm_ocr", answer_detections(detect("doc_title", "text"), lambda prompt: answer))

    result, document = await read(reader, scan, engine, "detector")

    assert (result.status, list_codes(result)) == ("partial_success", [(code, "warning")])
    assert "2 answers" in result.problems[0].message
    assert all(element["text"].startswith("Salt came by") for element in document["elements"])


@pytest.mark.parametrize(
    ("name", "structure"), [("deepseek_ocr", "model"), ("unlimited_ocr", "model"), ("glm_ocr", "auto")]
)
async def test_an_answer_without_end_is_cut_before_it_is_parsed(
    reader: Reader, scan: Path, name: str, structure: str
) -> None:
    """What a server sends beyond the longest answer about a page is not parsed; the result says how much there was."""
    words = " ".join(f"word{n}" for n in range(MAX_ANSWER // 6))
    engine = ScriptedEngine(name, answer_detections(detect("text"), lambda prompt: f"{TAGGED} {words}"))

    result, document = await read(reader, scan, engine, structure)

    cut = [problem for problem in result.problems if problem.code == "ANSWER_TOO_LONG"]
    assert cut and all(str(len(f"{TAGGED} {words}")) in problem.message for problem in cut)
    assert sum(len(element["text"]) for element in document["elements"]) <= MAX_ANSWER
