"""scripts/bench acceptance: answers replayed with drafts, and how the answers are made."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from scripts.bench import acceptance
from tests import ROOT
from tests.fakes import answers
from twopass.document import Box, Element, Kind
from twopass.families.agreement import word_coverage
from twopass.families.registry import FAMILIES
from twopass.families.table_parser import parse_html

BOX = Box.from_grid(100, 200, 300, 400, acceptance.GRID)
BLANK = Element(id="", page=1, category=Kind.TEXT.category, kind=Kind.TEXT, boxes=(BOX,))
RECORDED = answers.block("text", " ".join(f"word{number}" for number in range(60)))


@given(st.text())
@example(answers.PAGE)
def test_tokens_are_the_text(text: str) -> None:
    """Nothing is lost or doubled, whatever the kinds."""
    assert "".join(acceptance.split_tokens(text)) == text
    assert "".join(token for _, token in acceptance.split_kinds(text)) == text


@pytest.mark.parametrize("count", [1, 4])
def test_a_perfect_draft_is_accepted_whole(count: int) -> None:
    """Each step then yields the drafts and one more token; the first token comes before the first step."""
    text = "Seven springs give water to a village in hills above Bern"
    tokens = [("text", token) for token in acceptance.split_tokens(text)]

    assert acceptance.replay(tokens, text, count).total() == -(-(len(tokens) - 1) // (count + 1))


def test_without_drafts_that_fit_a_step_yields_one_token() -> None:
    """No word of the answer is in the text, and none is repeated."""
    tokens = [("text", token) for token in acceptance.split_tokens("one two three")]

    assert acceptance.replay(tokens, "four five", 4).total() == len(tokens) - 1


def test_the_written_answer_is_read_back() -> None:
    """The family's own parser finds the same elements in it."""
    written = [
        BLANK.model_copy(update={"kind": Kind.SECTION_HEADER, "text": "Springs", "level": 2}),
        BLANK.model_copy(update={"text": "The springs give water."}),
        BLANK.model_copy(update={"kind": Kind.TABLE, "table": parse_html(answers.TABLE)}),
    ]

    read = FAMILIES["deepseek_ocr"].parse(acceptance.write_answer(written), 1).elements

    assert [(element.kind, element.boxes) for element in read] == [(e.kind, e.boxes) for e in written]
    assert [element.text for element in read[:2]] == ["Springs", "The springs give water."]
    assert read[2].table == written[2].table


def test_words_of_an_answer_are_what_a_text_layer_would_have() -> None:
    """No tags, no markdown, no HTML."""
    answer = answers.block("title", "# The daisy- chain") + answers.block("table", answers.TABLE)

    assert acceptance.strip_answer(answer) == "The daisy-chain Pump Flow (m³/h) P-1 12.5"


def test_a_page_is_drafted_from_its_text_layer(monkeypatch: pytest.MonkeyPatch) -> None:
    """The cpu engine's reading of the sample's first page has the words of the layer, in the model's grammar."""
    monkeypatch.setenv("PAGE_WORKERS", "1")
    [page] = acceptance.read_pdf(ROOT / "samples" / "sample.pdf", pages=1, with_ocr=False)

    assert (page.group, page.file) == ("born-digital page", "sample")
    assert "<|ref|>title<|/ref|><|det|>[[" in page.answer
    assert word_coverage(acceptance.strip_answer(page.answer), page.text) == 1


def test_the_command_reports_recorded_answers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Drafts from the text save steps; the true count of tokens is shown beside ours."""
    (tmp_path / "page.document.txt").write_text(RECORDED)
    page = {"stem": "page", "modes": {"document": {"n_output_tokens": 99}}}
    (tmp_path / "records.json").write_text(json.dumps({"manifest": {"pages": [page]}}))
    (tmp_path / "none").mkdir()
    result = tmp_path / "acceptance.json"

    acceptance.main([str(tmp_path / "none"), "--answers", str(tmp_path), "--json", str(result)])

    facts = json.loads(result.read_text())["acceptance"]
    rates = facts["groups"]["recorded answer"]["tokens_per_step"]
    assert rates["right"]["4"] > rates["wrong"]["4"] > rates["none"]["4"] >= 1
    assert [count["true_tokens"] for count in facts["recorded_tokens"]] == [99]
    assert "page.document" in capsys.readouterr().out
