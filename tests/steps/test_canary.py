"""The canary: a model must read a test image before any page, or its worker takes no job."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from tests import ROOT
from tests.detection import drawn
from tests.fakes import canary_answers, openai_server, recorded
from tests.fakes.openai_server import OpenAIServer, never_answer
from tests.fakes.reader import Reader
from tests.fakes.scripted import ScriptedEngine, answer_detections, detect_regions
from twopass.acceptance import run
from twopass.acceptance.run import Plan
from twopass.detection.region import Detection, make_region, to_json
from twopass.document import Canary
from twopass.engines import accepted, factory
from twopass.engines.cpu.engine import CpuEngine
from twopass.engines.interface import Completion, Engine, Prompt
from twopass.engines.replay import ReplayEngine
from twopass.engines.vllm import tiling
from twopass.errors import Code, EngineError
from twopass.families import registry
from twopass.families.deepseek import PROMPTS
from twopass.families.interface import CanaryQuestion, FamilyOptions, PageFeatures, PageRequest
from twopass.families.unlimited import UnlimitedOcrFamily
from twopass.models import MODELS
from twopass.pages import canary_images, ocr
from twopass.pages.canary_images import BLOCKS
from twopass.pages.ocr import Array
from twopass.pages.shared_pixels import PixelBufferPool, Pixels
from twopass.result import Result
from twopass.runtime.page_pool import PagePool
from twopass.settings import EngineName, Settings
from twopass.steps import canary
from twopass.worker import open_worker

FAMILY = registry.get_family("deepseek_ocr")
RUNG, *_ = FAMILY.ladder(PageFeatures(*canary_images.PAGE_SIZE), PageRequest(mode="gundam"))
NOW_REFUSED = "workers with these weights and versions do not serve if they misread the canary"
NONSENSE = "the the harbour of of of, 1 1 1 and so on and so on before"
JUNK = " ".join(f"junk{n}" for n in range(300))
PAGE_ANSWER = canary_answers.build_page_answer()


@pytest.fixture
async def server() -> AsyncIterator[OpenAIServer]:
    async with openai_server.serve(OpenAIServer(canary_answers.answer_request)) as server:
        yield server


def make_settings(server: OpenAIServer, **fields: Any) -> Settings:
    return Settings(
        **{"canary": "enforce", **fields}, engine="openai", openai_base_url=server.url, openai_tries=1, page_workers=1
    )


async def run_canary(server: OpenAIServer, page_pool: PagePool, **fields: Any) -> Canary | None:
    """The result for an engine that asks the server."""
    settings = make_settings(server, **fields)
    engine = factory.create_engine(settings)
    await engine.open(page_pool)
    try:
        return await canary.check(engine, registry.get_family(engine.family), page_pool, settings)
    finally:
        await engine.close()


draw_page = cache(canary_images.draw_page)


def find_page_fault(answer: str, finish_reason: str = "stop") -> str | None:
    return canary.find_page_fault(Completion(answer, finish_reason), FAMILY, RUNG, draw_page())


def read_words(pixels: Array) -> set[str]:
    return {word for line in ocr.read(pixels).lines for word in line.text.split()}


@pytest.mark.parametrize(
    ("draw", "text"),
    [(canary_images.draw_text, canary.TEXT), (canary_images.draw_repeated_line, canary_images.REPEATED_LINE)],
    ids=["text", "repeated line"],
)
def test_the_images_show_their_words(draw: Callable[[], Pixels], text: str) -> None:
    """A recogniser that does not know the text reads every word from the image."""
    assert set(text.split()) <= read_words(draw().array())


def test_small_print_is_legible_only_in_tiles() -> None:
    """A recogniser misreads more words in the view of the whole page than the canary allows, and fewer in the tiles."""
    page, spec = canary_images.draw_page().image, MODELS["deepseek_ocr"].vision
    grid = spec.choose_grid(page.width, page.height, "gundam", max_crops=6)
    words = set(canary.PAGE_TEXT.split())

    views = tiling.make_views(spec, page.array(), "gundam", grid)

    assert grid == (2, 3)
    assert (views.tiles.reshape(3, 2, 640, 640, 3).swapaxes(1, 2).reshape(1920, 1280, 3) == page.array()).all()
    allowed = canary.MAX_PAGE_EDIT_SHARE * len(canary.PAGE_TEXT.split())
    assert len(words - read_words(page.array())) < allowed < len(words - read_words(views.global_view))


def test_text_runs_across_the_borders_of_tiles() -> None:
    """Tiles in another order tear lines and columns apart; but no border cuts letters lengthwise."""
    ink = (canary_images.draw_page().image.array() < 128).any(axis=2)
    left, top, right, bottom = 0, 1, 2, 3

    boxes = [box.to_pixels(*canary_images.PAGE_SIZE) for box in canary_images.draw_page().block_boxes]

    assert any(box[left] < 640 < box[right] for box in boxes)
    assert sum(box[top] < 640 < box[bottom] for box in boxes) == 2
    assert not ink[639:641].any()


@pytest.mark.parametrize(
    "answer",
    [
        canary.TEXT,
        canary_answers.TEXT.upper(),
        canary_answers.TEXT.replace("frozen", "frosen").replace("western ", ""),
        f"# {canary.LINES[0]}\n\n" + "\n".join(canary.LINES[1:]),
    ],
    ids=["one line", "upper case", "two words", "heading"],
)
def test_a_few_words_and_line_ends_may_differ(answer: str) -> None:
    """Case, line ends and two words of fourteen do not matter: another attention kernel may change them."""
    assert canary.find_text_fault(Completion(answer)) is None


@pytest.mark.parametrize(
    ("answer", "finish_reason"),
    [
        ("", "stop"),
        (NONSENSE, "stop"),
        (canary.TEXT.replace(" ", ""), "stop"),
        (canary.TEXT.replace(" ", "Ġ"), "stop"),
        (canary.TEXT.replace(" ", " Ġ"), "stop"),
        ("Ċ".join(canary.LINES), "stop"),
        (f"{canary.TEXT} {JUNK}", "stop"),
        (f"{canary.LINES[0]} " * 3, "stop"),
        (" ".join(canary.LINES[:3]), "stop"),
        (" ".join(reversed(canary.LINES)), "stop"),
        (canary.TEXT, "length"),
        (canary.TEXT, "loop"),
    ],
    ids=["empty", "nonsense", "no spaces", "marks for spaces", "both", "marks for newlines", "junk after it",
         "one line", "half", "reversed", "cut off", "loop"],
)  # fmt: skip
def test_text_without_spaces_with_marks_or_junk_is_a_fault(answer: str, finish_reason: str) -> None:
    """All words in their order, with spaces between them, nothing else, and an end of its own."""
    assert canary.find_text_fault(Completion(answer, finish_reason))


@pytest.mark.parametrize(
    "answer",
    [
        PAGE_ANSWER,
        canary_answers.build_page_answer(shift=15),
        canary_answers.build_page_answer(shift=-15),
        PAGE_ANSWER.replace("## ", "# ").replace("sub_title", "title"),
        PAGE_ANSWER.replace("masons", "mason").replace("Duty", "Outy").replace("kettle", "Kettle"),
        PAGE_ANSWER.replace("<td>Cargo</td>", "<th>Cargo</th>"),
    ],
    ids=["exact", "right and down", "left and up", "label", "a few words", "header cell"],
)
def test_a_page_read_with_small_differences_passes(answer: str) -> None:
    """Boxes may be a little off, one word in ten may differ, and labels do not matter."""
    assert find_page_fault(answer) is None


BLOCK_TAGS = [f"{part}<|/det|>\n" for part in PAGE_ANSWER.split("<|/det|>\n")[:-1]]
LEFT_TEXT, RIGHT_TEXT = (block.text for block in BLOCKS[2:])
COLUMNS = PAGE_ANSWER.split("  \n\n")[2:4]
INTERLEAVED = " ".join(line for pair in zip(BLOCKS[2].lines, BLOCKS[3].lines, strict=True) for line in pair)


def merge_columns(shift: int) -> str:
    """The page with both columns as one block, whose box is moved by so many units of the grid."""
    left, right = canary_images.draw_page().block_boxes[2:]
    merged = f"{canary_answers.build_tag('text', left.union(right), shift)}{LEFT_TEXT} {RIGHT_TEXT}"
    return PAGE_ANSWER.replace("  \n\n".join(COLUMNS), merged)


def test_columns_that_are_read_as_one_block_pass() -> None:
    """Its box has to be that of both columns."""
    assert find_page_fault(merge_columns(shift=0)) is None
    assert "999" in (find_page_fault(merge_columns(shift=25)) or "")


def test_a_block_that_is_read_in_two_parts_passes() -> None:
    """Even if half of one part is misread: its box counts."""
    box = canary_images.draw_page().block_boxes[0]
    middle = (box.x0 + box.x1) / 2
    first = canary_answers.build_tag("sub_title", box._replace(x1=middle)) + "## Tho granite"
    second = canary_answers.build_tag("sub_title", box._replace(x0=middle)) + "## towpath"

    assert find_page_fault("  \n\n".join([first, second, *PAGE_ANSWER.split("  \n\n")[1:]])) is None


@pytest.mark.parametrize(
    ("answer", "fault"),
    [
        ("", "90 of the 90 words"),
        (canary.PAGE_TEXT, "UNGROUNDED"),
        (f"{PAGE_ANSWER} {JUNK}", "words"),
        (PAGE_ANSWER.replace(" ", ""), "words"),
        (PAGE_ANSWER.replace("\n", "Ċ"), "marks"),
        (PAGE_ANSWER.replace(LEFT_TEXT, "?").replace(RIGHT_TEXT, LEFT_TEXT).replace("?", RIGHT_TEXT), "words"),
        (PAGE_ANSWER.replace(LEFT_TEXT, INTERLEAVED).replace(RIGHT_TEXT, ""), "words"),
        (PAGE_ANSWER.replace(BLOCKS[1].text, "illegible"), "words"),
        (PAGE_ANSWER.replace("418", "814").replace("73", "37"), "table"),
        (PAGE_ANSWER[: PAGE_ANSWER.index("<table>")] + canary.TABLE_TEXT, "table"),
        (canary_answers.build_page_answer(shift=25), "999"),
        (canary_answers.build_page_answer(shift=-25), "999"),
        (PAGE_ANSWER.replace("[[187, 697", "[[187, 650"), "'Cargo Barrels Duty.*999"),
    ],
    ids=["empty", "no boxes", "junk", "no spaces", "marks", "tiles in another order", "columns interleaved",
         "small print", "two cells", "no table", "boxes right", "boxes left", "table's box"],
)  # fmt: skip
def test_a_page_read_wrongly_is_a_fault(answer: str, fault: str) -> None:
    """Words, spaces, order, the table and every block's place: each is compared, and the message names it."""
    assert re.search(fault, find_page_fault(answer) or "none")


def test_a_page_whose_answer_is_cut_off_is_a_fault() -> None:
    """Even if all of its words are there."""
    assert "does not end" in (find_page_fault(PAGE_ANSWER, "length") or "")


@given(st.text() | st.lists(st.sampled_from([*BLOCK_TAGS, *canary.PAGE_TEXT.split()])).map(" ".join))
def test_any_answer_gets_a_verdict(answer: str) -> None:
    """No answer of a broken model raises an error of its own; none of them is the page."""
    assert find_page_fault(answer)
    assert canary.find_text_fault(Completion(answer))


@pytest.mark.parametrize(
    ("answer", "finish_reason", "fault"),
    [
        (canary_answers.BANNED, "length", None),
        (canary_images.REPEATED_LINE, "stop", None),
        (canary_answers.REPEATED, "stop", "does not act, a line was repeated 8 times"),
        (canary_answers.REPEATED, "length", "does not act"),
        (NONSENSE, "stop", "says"),
        ("", "error", "does not answer"),
    ],
)
def test_an_answer_that_repeats_the_line_shows_that_the_ban_does_not_act(
    answer: str, finish_reason: str, fault: str | None
) -> None:
    """With a ban of two tokens a sound model cannot write the same line eight times."""
    found = canary.find_ban_fault(Completion(answer, finish_reason))

    assert found is None if fault is None else fault in (found or "")


async def test_a_model_that_reads_the_images_passes(server: OpenAIServer) -> None:
    """It is asked about all three at once, before any job, with its family's own prompts and the strict ban."""

    def open_and_check() -> Canary | None:
        with open_worker(make_settings(server)) as worker:
            return worker.canary

    assert await asyncio.to_thread(open_and_check) is Canary.PASSED  # in a thread: the server runs on this event loop

    prompts = [request["messages"][0]["content"][1]["text"] for request in server.requests]
    assert Counter(prompts) == {PROMPTS["free"]: 2, PROMPTS["document"]: 1}
    bans = Counter(
        (request["vllm_xargs"]["ngram_size"], request["vllm_xargs"]["window_size"]) for request in server.requests
    )
    assert bans == {(30, 90): 2, (CanaryQuestion.ngram, canary.BAN_WINDOW): 1}


async def test_a_server_that_ignores_the_ban_stops_the_worker(server: OpenAIServer, page_pool: PagePool) -> None:
    """The error says what to do; vLLM ignores the parameters without a word if it has no processor for them."""

    def answer_without_ban(request: dict[str, Any]) -> str:
        answer = canary_answers.answer_request(request)
        return canary_answers.REPEATED if answer == canary_answers.BANNED else answer

    server.answer = answer_without_ban

    with pytest.raises(EngineError, match="CANARY: the n-gram ban does not act.*--logits-processors.*OPENAI_PLAIN"):
        await run_canary(server, page_pool)


async def test_a_server_without_a_ban_is_not_tested_for_it(server: OpenAIServer, page_pool: PagePool) -> None:
    """OPENAI_PLAIN sends no ban, so that nothing about it can be asked."""
    assert await run_canary(server, page_pool, openai_plain=True) is Canary.PASSED

    assert len(server.requests) == 2


async def test_a_model_that_reads_text_but_no_page_stops_the_worker(server: OpenAIServer, page_pool: PagePool) -> None:
    """The page's boxes are wrong, everything else is right."""

    def answer_with_wrong_boxes(request: dict[str, Any]) -> str:
        answer = canary_answers.answer_request(request)
        return canary_answers.build_page_answer(shift=40) if answer == PAGE_ANSWER else answer

    server.answer = answer_with_wrong_boxes

    with pytest.raises(EngineError, match="CANARY: 'The granite towpath' is at .* the model answered"):
        await run_canary(server, page_pool)


async def test_a_wrong_answer_stops_the_worker(server: OpenAIServer, page_pool: PagePool) -> None:
    """The error has its code, the model's answer, and advice."""
    server.answer = NONSENSE

    with pytest.raises(EngineError, match="CANARY: .*the model answered 'the the harbour.*Random weights") as caught:
        await run_canary(server, page_pool)
    assert caught.value.code is Code.CANARY


async def test_a_model_that_nobody_has_accepted_is_not_refused(
    server: OpenAIServer, page_pool: PagePool, tmp_path: Path
) -> None:
    """The worker serves and its log has the reason; once `twopass accept` has passed, such a worker does not serve."""
    server.answer = NONSENSE
    settings = make_settings(server, canary=True, engine_cache=str(tmp_path))
    with capture_logs() as logs:
        before = await run_canary(server, page_pool, canary=True, engine_cache=str(tmp_path))

    accepted.record(settings)

    assert before is Canary.MISREAD
    assert [log["reason"] for log in logs if log["event"] == "canary misread"][0].startswith("the text image says")
    with pytest.raises(EngineError, match="CANARY: the text image says"):
        await run_canary(server, page_pool, canary=True, engine_cache=str(tmp_path))


async def test_twopass_accept_records_that_it_has_passed(server: OpenAIServer, tmp_path: Path) -> None:
    """Only if the model has read the canary; the command says where."""
    lines: list[str] = []
    settings = make_settings(server, canary=True, engine_cache=str(tmp_path))
    plan = Plan(settings, announce=lines.append)
    server.answer = NONSENSE
    await asyncio.to_thread(run.run, plan)
    failed = accepted.find(settings)
    server.answer = canary_answers.answer_request

    await asyncio.to_thread(run.run, plan)

    assert failed is None
    assert lines == [f"recorded in {accepted.find(settings)}; {NOW_REFUSED}"]


async def test_an_answer_that_takes_too_long_stops_the_worker(server: OpenAIServer, page_pool: PagePool) -> None:
    """A GPU that hangs makes the start fail after the timeout."""
    server.script = [never_answer] * 3

    with pytest.raises(EngineError, match=r"CANARY: no answer to the test images within 0.5 s.*CANARY_TIMEOUT_S"):
        await run_canary(server, page_pool, canary_timeout_s=0.5)


async def test_a_setting_turns_the_canary_off(server: OpenAIServer, page_pool: PagePool) -> None:
    """The model is not asked, and the worker records that the canary is off."""
    server.answer = NONSENSE

    assert await run_canary(server, page_pool, canary=False) is Canary.OFF
    assert not server.requests


@pytest.mark.parametrize("engine", [CpuEngine(1), ReplayEngine({}, "deepseek_ocr")], ids=lambda engine: engine.kind)
async def test_an_engine_without_a_model_needs_no_canary(engine: Engine, page_pool: PagePool) -> None:
    """This holds for the cpu engine and for replayed answers."""
    assert await canary.check(engine, registry.get_family(engine.family), page_pool, Settings()) is None


def test_every_engine_that_runs_a_model_needs_the_canary() -> None:
    """Every family for such an engine has a canary prompt, in a mode that the family supports."""
    pytest.importorskip("twopass.engines.hf")
    from twopass.engines.hf.engine import HfEngine
    from twopass.engines.openai.engine import OpenAIEngine
    from twopass.engines.vllm.engine import VllmEngine

    families = [family for name, family in registry.FAMILIES.items() if name != "layout"]

    engines = (HfEngine, OpenAIEngine, VllmEngine, CpuEngine, ReplayEngine)
    assert set(get_args(EngineName)) == {engine.kind for engine in engines}
    assert HfEngine.needs_canary and OpenAIEngine.needs_canary and VllmEngine.needs_canary
    assert families and all(family.canary and family.canary.mode in family.modes for family in families)


async def test_a_model_that_writes_tags_in_every_answer_passes(page_pool: PagePool) -> None:
    """Unlimited-OCR has no prompt for text without tags: they are not words, and the ban leaves room for them."""
    family = registry.get_family("unlimited_ocr")
    engine = TaggingEngine({}, family.name)

    assert await canary.check(engine, family, page_pool, Settings()) is Canary.PASSED

    assert {prompt.text for prompt in engine.prompts} == {family.prompts["document"]}
    bans = Counter((prompt.sampling.ngram, prompt.sampling.window) for prompt in engine.prompts)
    assert bans == {(35, 128): 2, (8, canary.BAN_WINDOW): 1}
    drafts = {prompt.id: prompt.draft for prompt in engine.prompts}
    assert drafts["canary/text"] == canary.TEXT
    assert drafts["canary/ban"].count(canary_images.REPEATED_LINE) > canary.MAX_REPEATS  # what the ban has to prevent


class UnbannedFamily(UnlimitedOcrFamily):
    """A family that was made for answers without a ban, as those of region readers."""

    @property
    def sampling(self) -> Mapping[str, Any]:
        return {"ngram": 0}


async def test_a_family_without_a_ban_is_not_tested_for_one(page_pool: PagePool) -> None:
    """Nor is it a loss that its engine has none."""
    engine, family = TaggingEngine({}, "unlimited_ocr"), UnbannedFamily(MODELS["unlimited_ocr"])
    engine.has_ngram_ban = False

    with capture_logs() as logs:
        assert await canary.check(engine, family, page_pool, Settings()) is Canary.PASSED

    assert {prompt.sampling.ngram for prompt in engine.prompts} == {0}
    assert len(engine.prompts) == 2
    assert [entry["event"] for entry in logs] == ["canary passed"]


class TaggingEngine(ReplayEngine):
    """Answers the canary in the grammar of Unlimited-OCR; remembers the prompts."""

    needs_canary, has_ngram_ban = True, True

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.prompts: list[Prompt] = []

    async def generate(self, prompt: Prompt) -> Completion:
        self.prompts.append(prompt)
        return Completion(canary_answers.build_tagged_answer(prompt.id.removeprefix("canary/")))


async def test_a_worker_that_fails_the_canary_exits_with_an_error(server: OpenAIServer) -> None:
    """handler.py exits before it takes a job; its log has the error code and no traceback."""
    server.answer = NONSENSE
    env = {"ENGINE": "openai", "OPENAI_BASE_URL": server.url, "OPENAI_TRIES": "1", "PAGE_WORKERS": "1"}
    env["CANARY"] = "enforce"
    pipes = {"stdout": asyncio.subprocess.PIPE, "stderr": asyncio.subprocess.STDOUT}
    handler = await asyncio.create_subprocess_exec(sys.executable, "handler.py", cwd=ROOT, env=env, **pipes)
    output, _ = await handler.communicate()

    assert handler.returncode == 1
    assert "worker cannot serve" in output.decode() and "CANARY" in output.decode()
    assert "Traceback" not in output.decode()


class AnsweringEngine(ReplayEngine):
    """Answers with the recorded report, like an engine that runs a model."""

    async def generate(self, prompt: Prompt) -> Completion:
        return await super().generate(replace(prompt, id=prompt.id.rpartition("/")[2]))


@pytest.fixture
def reader(page_pool: PagePool, buffers: PixelBufferPool) -> Reader:
    answers = {name: Completion(text) for name, text in recorded.ANSWERS.items()}
    return Reader(page_pool, buffers, AnsweringEngine(answers, "deepseek_ocr"), dpi=72)


async def read_report(reader: Reader, folder: Path, **fields: Any) -> tuple[Result, dict[str, Any]]:
    if not (folder / "report.pdf").exists():
        (folder / "report.pdf").write_bytes(recorded.report())
    result = await reader.run(source=f"{folder}/report.pdf", output=f"{folder}/out", **fields)
    found = list((folder / "out").rglob("document.json"))
    return result, json.loads(found[0].read_text()) if found else {}


@pytest.mark.parametrize("recorded_canary", [Canary.PASSED, Canary.OFF, Canary.MISREAD, None])
async def test_document_and_result_record_the_canary(
    reader: Reader, tmp_path: Path, recorded_canary: Canary | None
) -> None:
    """Readers of the document can see whether the model was tested first."""
    result, document = await read_report(replace(reader, canary=recorded_canary), tmp_path, pages="1-2")

    assert document["run"]["canary"] == recorded_canary
    assert result.as_answer()["documents"][0].get("canary") == recorded_canary


@pytest.mark.parametrize("strict", [False, True])
async def test_no_document_of_a_model_that_misread_is_a_success(reader: Reader, tmp_path: Path, strict: bool) -> None:
    """Whole or in slices, read now or found again by a sound worker: the problem is that of its pages."""
    misread = replace(reader, canary=Canary.MISREAD)
    sliced, _ = await read_report(misread, tmp_path, slice="1", strict=strict)
    whole, document = await read_report(misread, tmp_path, pages="1-2", strict=strict)
    again, _ = await read_report(replace(reader, canary=Canary.PASSED), tmp_path, pages="1-2", strict=strict)

    expected = "failure" if strict else "partial_success"
    assert [result.documents[0].status for result in (sliced, whole, again)] == [expected] * 3
    assert all(Code.CANARY in {problem.code for problem in result.problems} for result in (sliced, whole, again))
    assert document["run"]["canary"] == whole.documents[0].canary == "misread"
    assert document["status"] == "partial_success"


async def test_one_page_read_without_the_canary_marks_the_document(reader: Reader, tmp_path: Path) -> None:
    """The document's value comes from its pages, so that two workers write equal bytes under the same id."""
    sliced, _ = await read_report(replace(reader, canary=Canary.OFF), tmp_path, slice="1")
    whole, document = await read_report(replace(reader, canary=Canary.PASSED), tmp_path)

    assert document["run"]["canary"] == "off"
    assert sliced.documents[0].canary == whole.documents[0].canary == "off"
    assert sliced.documents[0].id == whole.documents[0].id


@pytest.mark.parametrize(
    ("name", "structure", "asked"),
    [
        ("glm_ocr", "auto", ["text", "regions"]),
        ("paddleocr_vl", "auto", ["text", "regions"]),
        ("deepseek_ocr", "model", ["text", "page", "ban"]),
        ("deepseek_ocr", "detector", ["text", "page", "regions", "ban"]),
        ("deepseek_ocr2", "fallback", ["text", "page", "regions", "ban"]),
        ("unlimited_ocr", "detector", ["text", "page", "regions", "ban"]),
    ],
)
async def test_a_detector_has_to_find_the_page(
    page_pool: PagePool, name: str, structure: str, asked: list[str]
) -> None:
    """Readers are asked for text with their own prompt, and for no page; only families with a ban are tested for it."""
    family = registry.get_family(name, FamilyOptions(structure=structure))
    engine = ScriptedEngine(name, canary_answers.answer_prompt, needs_canary=True)

    assert await canary.check(engine, family, page_pool, Settings()) is Canary.PASSED

    prompts = {prompt.id.removeprefix("canary/"): prompt.text for prompt in engine.prompts}
    question = family.canary
    assert question and prompts["text"] == question.prompt
    assert list(prompts) == asked


@pytest.mark.parametrize(
    ("detection", "fault"),
    [
        (canary_answers.build_detection(shift=0.03), "layout detector is wrong: 'The granite towpath' is at .*not at"),
        (canary_answers.build_detection(dropped=BLOCKS[2].text), "'Marigold seeds.*has no box"),
        (canary_answers.build_detection(dropped="table"), "'Cargo Barrels.*has no box"),
        ("", "layout detector did not answer"),
        ('{"regions": []}', "has no box"),
    ],
    ids=["boxes right", "a paragraph", "the table", "empty", "no regions"],
)
async def test_a_detector_that_misses_a_block_stops_the_worker(page_pool: PagePool, detection: str, fault: str) -> None:
    """Its boxes have to be those of the page's blocks, and the message says which one is wrong."""
    answer = answer_detections(detection, canary_answers.answer_prompt)
    engine = ScriptedEngine("glm_ocr", answer, needs_canary=True)

    with pytest.raises(EngineError, match=f"CANARY: .*{fault}"):
        await canary.check(engine, registry.get_family("glm_ocr"), page_pool, Settings(canary="enforce"))


async def test_a_reader_that_answers_nonsense_stops_the_worker(page_pool: PagePool) -> None:
    """Although the detector finds every block."""
    engine = ScriptedEngine(
        "glm_ocr", answer_detections(canary_answers.build_detection(), lambda prompt: NONSENSE), needs_canary=True
    )

    with pytest.raises(EngineError, match="CANARY: the text image says"):
        await canary.check(engine, registry.get_family("glm_ocr"), page_pool, Settings(canary="enforce"))


def test_regions_may_join_or_split_blocks() -> None:
    """A region of both columns, and a paragraph in two regions, are as good as one region for each block."""
    family = registry.get_family("glm_ocr")
    rung, *_ = family.ladder(PageFeatures(*canary_images.PAGE_SIZE), PageRequest())
    title, intro, left, right = draw_page().block_boxes
    middle = (intro.x0 + intro.x1) / 2
    boxes = [title, intro._replace(x1=middle), intro._replace(x0=middle), left.union(right), draw_page().table_box]
    regions = tuple(make_region("text", box, order=n) for n, box in enumerate(boxes))

    fault = canary.find_detection_fault(Completion(to_json(Detection(regions=regions))), family, rung, draw_page())

    assert fault is None


@given(st.text() | st.lists(drawn.regions, max_size=6).map(detect_regions))
def test_any_answer_of_a_detector_gets_a_verdict(answer: str) -> None:
    """No answer raises an error of its own; none of them is the page."""
    family = registry.get_family("glm_ocr")
    rung, *_ = family.ladder(PageFeatures(*canary_images.PAGE_SIZE), PageRequest())

    assert canary.find_detection_fault(Completion(answer), family, rung, draw_page())
