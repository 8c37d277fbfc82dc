"""Stage (f): rates are counted in the pages that the pipeline stored."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes import recorded
from tests.fakes.reader import Reader
from tests.fakes.recorded import RecordingEngine
from twopass.acceptance import rates
from twopass.acceptance.checks import CheckOutcome
from twopass.acceptance.rates import MIN_RUN, Rates
from twopass.acceptance.trials import trial_run
from twopass.acceptance.trials.trial_run import PageKey
from twopass.document import Checkpoint
from twopass.engines.cpu.engine import CpuEngine
from twopass.errors import Code, StoreError
from twopass.pages.shared_pixels import PixelBufferPool
from twopass.runtime.page_pool import PagePool

PARTS = st.lists(st.sampled_from(["a", "b", "c", "d", "e", ","]), max_size=30)


@pytest.fixture(scope="module")
async def pages(
    page_pool: PagePool, buffers: PixelBufferPool, tmp_path_factory: pytest.TempPathFactory
) -> Mapping[PageKey, Checkpoint]:
    """The stored pages of the report: read, repaired in another mode, read from the text layer, and failed."""
    folder = tmp_path_factory.mktemp("report")
    source = folder / "report.pdf"
    source.write_bytes(recorded.report())
    engine = RecordingEngine(hashlib.sha256(source.read_bytes()).hexdigest()[:12])
    reader = Reader(page_pool, buffers, CpuEngine(2))
    await reader.run(engine=engine, source=str(source), output=f"{folder}/out")
    return trial_run.load_pages(folder / "out")


@pytest.fixture(scope="module")
def report(pages: Mapping[PageKey, Checkpoint]) -> Rates:
    (measured,) = rates.measure(pages).values()
    return measured


def test_pages_are_counted_by_their_last_attempt(report: Rates) -> None:
    """One page each was read at once, in another mode, from the text layer, and not at all."""
    assert report.pages == 4
    assert dict(report.rungs) == {"normal": 1, "mode": 1, "text_layer": 1, "free": 1}


def test_every_answer_that_loops_is_counted(report: Rates) -> None:
    """Answers of pass 1 that loop at the token limit count as loops: 2 about page 2, and 4 about pages 3 and 4 each."""
    assert report.looped == 2 + 4 + 4
    assert report.ends == {"stop": 4, "length": 8}
    assert report.ends.total() == 1 + 3 + 4 + 4


def test_second_readings_are_counted_with_the_reason_why_they_are_not_used(report: Rates) -> None:
    """Six elements are read again: four use pass 2, the table agrees, and the description of the photo loops."""
    assert report.asked == 6
    assert (report.used, report.looped_elements) == (4, 1)
    assert dict(report.rejected) == {rates.AGREES: 1, "pass2_loop": 1}
    assert report.element_ends == {"stop": 9}


def test_the_text_layer_predicts_what_was_read(report: Rates) -> None:
    """It has most words of the two answers that are used, and none of their tags and boxes; loops do not count."""
    answers = rates.split_parts(recorded.FIRST_PAGE + recorded.PROSE_PAGE)
    assert report.layered == 3
    assert report.parts == len(answers)
    assert len(rates.split_parts(recorded.LOOPED)) < report.predicted < len(answers) / 2


def test_pages_without_their_source_have_no_text_layer(pages: Mapping[PageKey, Checkpoint]) -> None:
    """The rates of a folder whose sources are gone lack only the predicted share."""
    (measured,) = rates.measure(pages, read_layers=lambda path: {}).values()

    assert (measured.layered, measured.parts, measured.asked) == (0, 0, 6)


def test_checks_show_totals_and_each_document(pages: Mapping[PageKey, Checkpoint]) -> None:
    """Every rate has its counts, and no rate can fail."""
    checks = {check.name: check for check in rates.check(pages)}

    assert {(check.stage, check.outcome) for check in checks.values()} == {("f", CheckOutcome.PASSED)}
    assert checks["loops"].value == "10 of 12 (83.3%) answers of pass 1, 1 of 6 (16.7%) elements of pass 2"
    assert checks["second readings"].value == "4 of 6 (66.7%) elements use pass 2"
    assert checks["report.pdf"].value.startswith("3 of 4 (75.0%) pages needed another attempt, 11 of 18 (61.1%) looped")


def test_a_folder_without_pages_is_named(tmp_path: Path) -> None:
    """The message says what a folder of artefacts has."""
    (check,) = rates.check(trial_run.load_pages(tmp_path))

    assert check.outcome is CheckOutcome.NOT_RUN and "pages/*.json" in check.meaning


def test_a_file_that_is_no_checkpoint_is_named(tmp_path: Path) -> None:
    """A folder of another version is an error, not a rate of zero."""
    (tmp_path / "pages").mkdir()
    (tmp_path / "pages" / "0001.json").write_text('{"page": 1}')

    with pytest.raises(StoreError, match="0001.json: not a checkpoint of this version") as raised:
        trial_run.load_pages(tmp_path)
    assert raised.value.code is Code.OUTPUT_MISSING


@given(PARTS, PARTS)
def test_the_predicted_share_is_between_none_and_all(answer: list[str], layer: list[str]) -> None:
    """No part is predicted twice."""
    assert 0 <= rates.count_predicted(answer, layer) <= len(answer)


@given(PARTS, PARTS, PARTS)
def test_text_that_the_layer_has_is_predicted_completely(
    answer: list[str], before: list[str], after: list[str]
) -> None:
    """Whatever stands around it."""
    assert rates.count_predicted(answer, [*before, *answer, *after]) == len(answer)


@given(PARTS, PARTS)
def test_other_words_are_not_predicted(answer: list[str], layer: list[str]) -> None:
    """A layer without a word of the answer predicts nothing."""
    assert rates.count_predicted(answer, [part.upper() + "x" for part in layer]) == 0


@given(PARTS, PARTS)
def test_more_layer_never_predicts_the_beginning_less(answer: list[str], layer: list[str]) -> None:
    """Each run is as long as possible: the whole answer in the layer is one run, however often parts of it occur."""
    assert rates.count_predicted(answer, [*layer, "|", *answer]) == len(answer)


def test_short_runs_are_not_predicted() -> None:
    """Runs shorter than MIN_RUN are found anywhere and predict nothing."""
    layer = ["the", "keeper", "counted", "the", "ships", "before", "dark"]
    words = layer[:MIN_RUN]

    assert rates.count_predicted([*words[:-1], "x", *words[1:]], layer) == 0
    assert rates.count_predicted([*words, "x", *words[1:]], layer) == MIN_RUN


def test_tags_and_chinese_are_parts() -> None:
    """A tag is one part, as it is one token; each Chinese character is one."""
    assert rates.split_parts("<|ref|>text<|/ref|>[[1, 20]] 灯塔, <td>1887</td>") == [
        "<|ref|>", "text", "<|/ref|>", "[", "[", "1", ",", "20", "]", "]", "灯", "塔", ",", "<td>", "1887", "</td>",
    ]  # fmt: skip


@given(st.text())
def test_any_text_can_be_split(text: str) -> None:
    """Parts have every character but white space, in its order."""
    assert "".join(rates.split_parts(text)) == "".join(text.split())
