"""Stage d: recorded answers pass, noise passes, and every deliberate fault fails."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.acceptance import perturbations
from tests.acceptance.perturbations import FAULTS, TILE_FAULTS, Perturb
from tests.fakes.recorded import html
from twopass.acceptance import recorded_answers, records, scores
from twopass.acceptance.checks import Check, CheckOutcome, has_failed
from twopass.acceptance.recorded_answers import MAX_WORD_ERRORS, Reading
from twopass.acceptance.records import SHIPPED, Record
from twopass.engines.interface import Completion, Prompt
from twopass.engines.replay import ReplayEngine
from twopass.errors import Code, EngineError
from twopass.families.deepseek import PROMPTS
from twopass.models import MODELS

DEEPSEEK_OCR, DEEPSEEK_OCR_2 = (MODELS[name].vision for name in ("deepseek_ocr", "deepseek_ocr2"))

RECORDS = records.load()
PAGE, LOOP = RECORDS[1], RECORDS[5]
SEEDS = range(10)
CLEAR = 1.75  # times the limit that the word error rate of a fault has to reach on some page
ROWS = [["Pump", "Flow", "Hours"], *([f"No. {n}", f"{n}.25", f"{2100 + n}"] for n in range(7))]

REST_OF_FORM = "\n\n".join(
    f"<|ref|>text<|/ref|><|det|>[[500, {100 * n}, 600, {100 * n + 50}]]<|/det|>\n{text}"
    for n, text in enumerate(("Rechercher", "Disable button", "TEXTAREA", "Texte", "Radio", "Drag and drop", "Frames"))
)


def name_of(record: Record) -> str:
    return record.name


def perturbed(perturb: Perturb, record: Record, seed: int) -> Completion:
    return replace(perturb(record.text, random.Random(seed)), tokens_in=record.prompt_tokens)


def judge(record: Record, completion: Completion) -> dict[str, Check]:
    """The checks by the part of their names after the record's name."""
    checks = recorded_answers.judge_answer(record, completion)
    return {check.name.removeprefix(f"{record.name}: "): check for check in checks}


def failed_names(checks: dict[str, Check]) -> list[str]:
    return [name for name, check in checks.items() if check.outcome is CheckOutcome.FAILED]


def with_text(record: Record, text: str) -> Record:
    return record.model_copy(update={"text": text})


async def test_replayed_records_pass_every_check() -> None:
    """The run on the shipped records, from image files to checks, passes with the recorded answers."""
    engine = ReplayEngine.from_folder(records.SHIPPED)

    checks = await recorded_answers.compare(RECORDS, engine.generate)

    assert {check.outcome for check in checks if check.name != "tables"} == {CheckOutcome.PASSED}
    assert {check.stage for check in checks} == {"d"}
    assert len(checks) == 6 * 3 + 5 + 3 + 1  # end, prompt tokens, words; length but for the loop; boxes; tables


async def test_tables_are_not_run_without_a_recorded_table() -> None:
    """No shipped answer has a table: the check says so instead of passing."""
    engine = ReplayEngine.from_folder(records.SHIPPED)

    *_, last = await recorded_answers.compare(RECORDS, engine.generate)

    assert last.name == "tables" and last.outcome is CheckOutcome.NOT_RUN and "--record" in last.meaning


async def test_prompts_are_asked_as_they_were_recorded() -> None:
    """The engine gets the recorded words, mode, image and sampling, with the n-gram ban over the whole answer."""
    asked: dict[str, Prompt] = {}
    engine = ReplayEngine.from_folder(records.SHIPPED)

    async def ask(prompt: Prompt) -> Completion:
        asked[prompt.id] = prompt
        return await engine.generate(prompt)

    await recorded_answers.compare(RECORDS, ask)

    for record in RECORDS:
        prompt = asked[record.prompt_id]
        assert (prompt.text, prompt.mode) == (record.prompt, "gundam")
        assert (prompt.image.width, prompt.image.height) == (record.width, record.height)
        assert (prompt.sampling.ngram, prompt.sampling.window, prompt.sampling.allowed_tokens) == (20, 8192, ())
        assert (prompt.sampling.temperature, prompt.sampling.max_tokens) == (0.0, 8192)
    assert asked[LOOP.prompt_id].loop_check and asked[LOOP.prompt_id].loop_check(LOOP.text)


async def test_an_engine_that_is_gone_ends_the_stage() -> None:
    """Its error is raised unchanged; it is no failed comparison."""
    engine = ReplayEngine({})

    with pytest.raises(EngineError, match="no completion is recorded"):
        await recorded_answers.compare(RECORDS, engine.generate)


@pytest.mark.parametrize("record", RECORDS, ids=name_of)
def test_noise_passes(record: Record) -> None:
    """A third of the words that another prompt changes, other quotes, and box sides 3 of 999 off are no fault."""
    perturb = perturbations.add_noise(perturbations.estimate_noise(record, RECORDS))

    for seed in SEEDS:
        assert not failed_names(judge(record, perturbed(perturb, record, seed)))


def list_affected() -> list[tuple[Record, str]]:
    """Each fault with the records that it affects: only tiles have an order, and the end of a loop is ignored."""
    return [
        (record, name)
        for record in RECORDS
        for name in FAULTS
        if not (name in TILE_FAULTS and record.columns == 1)
        and not (name in perturbations.AT_THE_END and record is LOOP)
    ]


@pytest.mark.parametrize(("record", "name"), list_affected(), ids=lambda part: getattr(part, "name", part))
def test_every_fault_fails_on_every_record(record: Record, name: str) -> None:
    """Whatever the page and the prompt, an answer with the fault does not pass."""
    for seed in SEEDS:
        assert failed_names(judge(record, perturbed(FAULTS[name], record, seed)))


@pytest.mark.parametrize("name", FAULTS)
def test_faults_fail_by_a_clear_margin(name: str) -> None:
    """On some page, each fault gives at least 1.75 times the word errors that are allowed."""
    pages = [record for record in RECORDS if record.columns > 1]

    for seed in SEEDS:
        answers = [perturbed(FAULTS[name], record, seed).text for record in pages]
        rates = [
            scores.word_error_rate(Reading.of(answer).text, Reading.of(record.text).text)
            for answer, record in zip(answers, pages, strict=True)
        ]
        assert max(rates) >= CLEAR * MAX_WORD_ERRORS


@pytest.mark.parametrize(
    ("name", "meaning"),
    [
        ("byte-level marks", "tokens are not decoded"),
        ("lost spaces", "but not the spaces"),
        ("tiles left and right swapped", "check the order of tiles"),
        ("wrong normalisation", "words are misread"),
    ],
)
def test_the_meaning_names_the_likely_cause(name: str, meaning: str) -> None:
    """Who reads the table learns where to look."""
    assert meaning in judge(PAGE, perturbed(FAULTS[name], PAGE, 0))["word error rate"].meaning


def test_an_answer_that_does_not_end_by_itself_fails() -> None:
    """All words are right, but the token limit or the loop check ended the answer."""
    for reason in ("length", "loop"):
        checks = judge(PAGE, replace(PAGE.completion, finish_reason=reason))

        assert failed_names(checks) == ["end"]


def test_a_refused_prompt_fails_once() -> None:
    """Where there is no answer, there are no scores."""
    assert list(judge(PAGE, Completion("", "error"))) == ["end"]
    assert failed_names(judge(PAGE, Completion("", "error"))) == ["end"]


def test_another_number_of_prompt_tokens_fails() -> None:
    """With a token more or less, the model got another image or other words, even if it reads the page."""
    checks = judge(PAGE, replace(PAGE.completion, tokens_in=PAGE.prompt_tokens - 33))

    assert failed_names(checks) == ["prompt tokens"]


def test_prompt_tokens_that_are_not_reported_are_not_compared() -> None:
    """A server that does not count the prompt's tokens is no fault."""
    checks = judge(PAGE, replace(PAGE.completion, tokens_in=0))

    assert checks["prompt tokens"].outcome is CheckOutcome.NOT_RUN and not failed_names(checks)


@pytest.mark.parametrize(
    ("change", "finish_reason"),
    [
        (lambda text: text, "length"),
        (lambda text: text[:3000], "loop"),
        (lambda text: text[: text.index("\nF\n\n<|ref|>text<|/ref|><|det|>[[20")], "stop"),
        (lambda text: text[: text.index("<|ref|>text<|/ref|><|det|>[[15, 844")] + REST_OF_FORM, "stop"),
    ],
    ids=["longer loop", "stopped loop", "no loop", "reads on"],
)
def test_of_a_recorded_loop_only_the_blocks_before_it_count(change: Callable[[str], str], finish_reason: str) -> None:
    """Another engine may loop longer, may be stopped, may not loop at all or may read on."""
    checks = judge(LOOP, Completion(change(LOOP.text), finish_reason))

    assert not failed_names(checks) and "characters" not in checks


def test_what_comes_before_a_recorded_loop_counts() -> None:
    """Other words before the loop are a failure, although the answer loops as recorded."""
    wrong = LOOP.text.replace("Password", "Vorname").replace("Button", "x").replace("Date", "y").replace("code", "z")
    wrong = wrong.replace("Texte", "u").replace("Finland", "v").replace("France", "w")

    assert failed_names(judge(LOOP, Completion(wrong, "loop"))) == ["word error rate"]


def table_record(rows: list[list[str]]) -> Record:
    return with_text(PAGE, f"<|ref|>table<|/ref|><|det|>[[100, 100, 900, 500]]<|/det|>\n{html(rows)}")


@pytest.mark.parametrize(
    ("rows", "is_good"),
    [
        (ROWS, True),
        ([[cell.replace("25", "26") for cell in row] for row in ROWS], True),
        (ROWS[:-1], False),
        ([row[:-1] for row in ROWS], False),
        ([[*row[1:], row[0]] for row in ROWS], False),
    ],
    ids=["equal", "a digit", "a row less", "a column less", "columns in another order"],
)
def test_tables_are_compared_by_their_cells(rows: list[list[str]], is_good: bool) -> None:
    """Wrong digits pass; a missing row or column, or cells in other places, do not."""
    checks = judge(table_record(ROWS), table_record(rows).completion)

    assert (checks["table TEDS"].outcome is CheckOutcome.PASSED) == is_good


def test_a_table_that_is_written_as_text_fails() -> None:
    """The words of a table without its cells are not the table."""
    text = "\n".join(" ".join(row) for row in ROWS)
    answer = f"<|ref|>table<|/ref|><|det|>[[100, 100, 900, 500]]<|/det|>\n{text}"

    assert failed_names(judge(table_record(ROWS), Completion(answer))) == ["table TEDS"]


async def test_answers_to_own_images_are_recorded_and_compared(tmp_path: Path) -> None:
    """What one run records, a later run with the same answers passes, and one with other answers fails."""
    answers = {PROMPTS["document"]: RECORDS[3].completion, PROMPTS["free"]: RECORDS[2].completion}

    async def ask(prompt: Prompt) -> Completion:
        return answers[prompt.text]

    recorded = await recorded_answers.record_answers(
        [SHIPPED / RECORDS[2].image], ask, DEEPSEEK_OCR, "model", "1a2b", "a test"
    )
    records.write(tmp_path / "mine", recorded)
    loaded = records.load(tmp_path / "mine")

    assert not has_failed(await recorded_answers.compare(loaded, ask))
    assert not has_failed(await recorded_answers.compare(loaded, ReplayEngine.from_folder(tmp_path / "mine").generate))
    answers[PROMPTS["free"]] = RECORDS[0].completion
    assert has_failed(await recorded_answers.compare(loaded, ask))
    assert [(record.columns, record.rows, record.image_tokens) for record in loaded] == [(2, 3, 903)] * 2
    assert {record.sampling.ngram for record in loaded} == {30}


async def test_records_of_another_model_have_its_tiles() -> None:
    """DeepSeek-OCR-2 cuts a page into tiles of another size and has no newline tokens."""

    async def ask(prompt: Prompt) -> Completion:
        return RECORDS[0].completion

    image = SHIPPED / "commons_test_ocr_document.jpg"
    recorded = await recorded_answers.record_answers([image], ask, DEEPSEEK_OCR_2, "model", "1a2b", "a test")

    assert [(record.columns, record.rows, record.image_tokens) for record in recorded] == [(2, 3, 1121)] * 2


async def test_a_prompt_without_an_answer_is_not_recorded() -> None:
    """Otherwise every later run would be compared with nothing."""

    async def refuse(prompt: Prompt) -> Completion:
        return Completion("", "error")

    with pytest.raises(EngineError, match=r"simple_form.png.document: the engine gave no answer \(error\)") as caught:
        await recorded_answers.record_answers(
            [SHIPPED / "simple_form.png"], refuse, DEEPSEEK_OCR, "model", "1a2b", "a test"
        )

    assert caught.value.code is Code.ENGINE_REFUSED
