"""Stage (e): what is recommended after trials whose speed and reading are scripted."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twopass.acceptance.checks import Check, CheckOutcome
from twopass.acceptance.trials import trial_scores, tuning
from twopass.acceptance.trials.trial_documents import TrialDocument, Truth
from twopass.acceptance.trials.trial_run import Choice, Trial
from twopass.acceptance.trials.trial_scores import Effect, Errors
from twopass.acceptance.trials.tuning import AGAIN, DEFAULTS, TOGETHER, Skipped, Tuning
from twopass.document import Attempt, Cell, Checkpoint, Element, Kind, Page, State
from twopass.errors import Code, EngineError
from twopass.models import PAGE_PRESETS
from twopass.settings import Settings
from twopass.text import table_markup

WORDS = tuple(f"word{number}" for number in range(500))
ROWS = tuple(tuple(f"{row}{column}" for column in range(5)) for row in range(20))
PAGES = 20
DRAWN = TrialDocument(
    Path("drawn.pdf"),
    {number: Truth(" ".join(WORDS), (ROWS,) if number == 1 else ()) for number in range(1, PAGES + 1)},
    is_drawn=True,
)
FAST, SLOW, EQUAL = Choice("FAST=true", {"FAST": "true"}), Choice("SLOW=1", {"SLOW": "1"}), Choice("EQUAL=1")


def read_page(number: int, words: Sequence[str], cells_lost: int = 0, state: State = State.READ) -> Checkpoint:
    cells = [Cell(row=r, col=c, text=text) for r, row in enumerate(ROWS) for c, text in enumerate(row)]
    table = table_markup.build_table(len(ROWS), len(ROWS[0]), cells[cells_lost:])
    text = Element(id="e0", page=number, category=Kind.TEXT.category, kind=Kind.TEXT, text=" ".join(words))
    tables = (Element(id="e1", page=number, category=Kind.TABLE.category, kind=Kind.TABLE, table=table),)
    page = Page(number=number, width_pt=595, height_pt=842, state=state, attempts=(Attempt(rung="normal"),))
    return Checkpoint(page=page, elements=(text, *(tables if number == 1 else ())))


@dataclass
class ScriptedReader:
    """Reads the truth, less the words and cells that a choice loses, at the choice's speed; the names of its runs."""

    speeds: Mapping[str, float] = field(default_factory=dict)
    lost_words: Mapping[str, int] = field(default_factory=dict)
    lost_cells: Mapping[str, int] = field(default_factory=dict)
    lost_pages: Mapping[str, int] = field(default_factory=dict)
    broken: frozenset[str] = frozenset()
    runs: list[Choice] = field(default_factory=list)
    announced: list[str] = field(default_factory=list)
    announced_before_first: int = 0

    def read(self, choice: Choice) -> Trial:
        if not self.runs:
            self.announced_before_first = len(self.announced)
        self.runs.append(choice)
        if choice.name in self.broken:
            raise EngineError(Code.ENGINE_DEAD, "no kernel for this GPU")
        lost, gone = self.lost_words.get(choice.name, 0), self.lost_pages.get(choice.name, 0)
        pages = {
            (str(DRAWN.path), number): read_page(
                number,
                WORDS[lost if number == 2 else 0 :],
                self.lost_cells.get(choice.name, 0),
                State.TEXT_LAYER if number <= gone else State.READ,
            )
            for number in range(1, PAGES + 1)
        }
        return Trial(30.0, PAGES / self.speeds.get(choice.name, 10.0), pages)

    def tune(self, *choices: Choice | Skipped, documents: Sequence[TrialDocument] = (DRAWN,)) -> Tuning:
        return tuning.run(documents, choices, self.read, self.announced.append)


def find(tuned: Tuning, name: str) -> Check:
    (check,) = (check for check in tuned.checks if check.name == name)
    return check


def test_a_faster_choice_that_reads_equally_well_is_recommended() -> None:
    """It is named with the setting to paste, in the table and at the end of the output."""
    reader = ScriptedReader(speeds={"FAST=true": 13.0})

    tuned = reader.tune(FAST)

    assert find(tuned, "FAST=true").meaning.startswith("recommended: 30% faster")
    assert find(tuned, "recommended").value == "FAST=true"
    assert reader.announced[-1].splitlines() == ["recommended:", "FAST=true"]


def test_a_faster_choice_that_loses_words_is_not_recommended() -> None:
    """Speed never pays for words."""
    tuned = ScriptedReader(speeds={"FAST=true": 30.0}, lost_words={"FAST=true": 60}).tune(FAST)

    check = find(tuned, "FAST=true")
    assert check.outcome is CheckOutcome.PASSED and check.meaning.startswith("not recommended: 200% faster")
    assert "60 more of 10,000 words are wrong" in check.meaning
    assert find(tuned, "recommended").value == DEFAULTS


def test_a_faster_choice_that_loses_cells_is_not_recommended() -> None:
    """Cells count by themselves: a page of prose does not make up for a broken table."""
    tuned = ScriptedReader(speeds={"FAST=true": 30.0}, lost_cells={"FAST=true": 40}).tune(FAST)

    assert "40 more of 100 table cells are wrong" in find(tuned, "FAST=true").meaning
    assert find(tuned, "recommended").value == DEFAULTS


def test_pages_that_the_text_layer_replaced_count_as_unread() -> None:
    """A choice with which the model loops is not recommended because the PDF's own text has all words."""
    tuned = ScriptedReader(speeds={"FAST=true": 30.0}, lost_pages={"FAST=true": 2}).tune(FAST)

    check = find(tuned, "FAST=true")
    assert "1,000 more of 10,000 words are wrong" in check.meaning and "2 lost" in check.value


def test_a_choice_that_reads_better_is_recommended_at_any_speed() -> None:
    """Fewer errors by more than noise are worth time, which the reason states."""
    reader = ScriptedReader(speeds={"SLOW=1": 5.0}, lost_words={DEFAULTS: 200, AGAIN: 200, "SLOW=1": 10})

    tuned = reader.tune(SLOW)

    assert find(tuned, "SLOW=1").meaning.startswith("recommended: 50% slower")
    assert "190 fewer of 10,000 words" in find(tuned, "SLOW=1").meaning


def test_a_choice_that_changes_nothing_is_not_recommended() -> None:
    """A setting that is neither faster nor better stays as it is."""
    assert find(ScriptedReader().tune(EQUAL), "EQUAL=1").meaning.startswith("not recommended: as fast")


def test_a_difference_within_noise_is_said_to_be_chance() -> None:
    """Equal runs differ by 30 words here, so 25 fewer wrong words prove nothing."""
    reader = ScriptedReader(lost_words={DEFAULTS: 60, AGAIN: 90, "EQUAL=1": 35})

    tuned = reader.tune(EQUAL)

    meaning = find(tuned, "EQUAL=1").meaning
    assert (
        meaning.startswith("not recommended") and "25 fewer of 10,000 words are wrong, which may be chance" in meaning
    )


def test_a_speed_within_the_difference_of_equal_runs_is_no_gain() -> None:
    """A choice has to be faster than the faster of both equal runs."""
    tuned = ScriptedReader(speeds={DEFAULTS: 10.0, AGAIN: 13.0, "FAST=true": 13.2}).tune(FAST)

    assert find(tuned, "FAST=true").meaning.startswith("not recommended: as fast")


def test_a_choice_that_fails_is_not_run_and_the_others_go_on() -> None:
    """A GPU without a kernel for one choice is no reason to lose the comparison of the others."""
    reader = ScriptedReader(speeds={"FAST=true": 13.0}, broken=frozenset({"SLOW=1"}))

    tuned = reader.tune(Skipped("PRESET=80", "needs 80 GB"), SLOW, FAST)

    assert [(find(tuned, name).outcome, find(tuned, name).meaning) for name in ("PRESET=80", "SLOW=1")] == [
        (CheckOutcome.NOT_RUN, "needs 80 GB"),
        (CheckOutcome.NOT_RUN, "no kernel for this GPU"),
    ]
    assert find(tuned, "recommended").value == "FAST=true"
    assert len(reader.runs) == 4


def test_without_a_baseline_the_stage_fails() -> None:
    """Nothing can be compared with settings that do not work."""
    reader = ScriptedReader(broken=frozenset({DEFAULTS}))

    tuned = reader.tune(FAST)

    assert [(check.outcome, check.meaning) for check in tuned.checks] == [
        (CheckOutcome.FAILED, "no kernel for this GPU")
    ]
    assert len(reader.runs) == 1 and tuned.baseline is None


def test_runs_and_time_are_announced_before_the_first_run() -> None:
    """First an estimate with every run, after the first run one that is measured."""
    reader = ScriptedReader()

    reader.tune(FAST, EQUAL, Skipped("PRESET=80", "needs 80 GB"))

    assert reader.announced_before_first == 1
    assert f"(at least 20 pages) 4 times: {DEFAULTS}, {AGAIN}, FAST=true, EQUAL=1;" in reader.announced[0]
    assert "About 5 minutes" in reader.announced[0]  # 4 × (60 + 10) s
    assert reader.announced[1].startswith("(e) the first run took") and "so 3 more take about" in reader.announced[1]


def test_several_recommended_choices_are_tried_together() -> None:
    """They are recommended together only if they read as well together; of the presets, the fastest is kept."""
    small, large = Choice("PRESET=16", {"PRESET": "16"}), Choice("PRESET=24", {"PRESET": "24"})
    speeds = {"FAST=true": 12.0, "PRESET=16": 13.0, "PRESET=24": 14.0, TOGETHER: 16.0}
    reader = ScriptedReader(speeds=speeds)

    tuned = reader.tune(FAST, small, large)

    assert dict(reader.runs[-1].settings) == {"PRESET": "24", "FAST": "true"}
    assert find(tuned, "recommended").value == "PRESET=24, FAST=true"

    tuned = ScriptedReader(speeds=speeds, lost_words={TOGETHER: 100}).tune(FAST, small, large)

    assert find(tuned, TOGETHER).meaning.startswith("not recommended")
    assert find(tuned, "recommended").value == "PRESET=24"


def test_many_other_words_on_pages_without_truth_are_a_reason_to_compare() -> None:
    """Which reading of a user's scan is right is not known, so the choice is not recommended without a look."""
    own = TrialDocument(DRAWN.path)  # the same pages, without what they say

    tuned = ScriptedReader(speeds={"FAST=true": 13.0}, lost_words={"FAST=true": 400}).tune(FAST, documents=[own])

    meaning = find(tuned, "FAST=true").meaning
    assert meaning.startswith("not recommended") and "400 of 10,000 words of your pages without a text layer" in meaning


@pytest.mark.parametrize(
    ("errors", "baseline", "effect", "is_chance"),
    [
        (20, 0, Effect.WORSE, False),  # 0.2 % of the words, and more than chance explains
        (3, 0, Effect.EQUAL, True),  # three words may be chance
        (1060, 1000, Effect.WORSE, True),  # may be chance, but 0.6 % of the words are too many to accept
        (1040, 1000, Effect.EQUAL, True),
        (900, 1000, Effect.BETTER, False),
        (940, 1000, Effect.EQUAL, True),
    ],
)
def test_errors_are_worse_beyond_noise_or_margin(errors: int, baseline: int, effect: Effect, is_chance: bool) -> None:
    """Of 10,000 words: more errors than chance explains are worse, and in any case more than 0.5 % of the words."""
    found = trial_scores.compare("words", *(Errors(count, 10_000) for count in (errors, baseline, baseline)))

    assert found.effect is effect
    assert ("may be chance" in found.text) is is_chance


@given(st.lists(st.integers(0, 500), min_size=3, max_size=3))
def test_more_errors_are_never_better(counts: list[int]) -> None:
    """Whatever the noise: more errors are never better, fewer never worse, and equal ones are equal."""
    errors, baseline, again = (Errors(count, 10_000) for count in counts)

    effect = trial_scores.compare("words", errors, baseline, again).effect

    forbidden = {Effect.BETTER} if errors.wrong >= baseline.wrong else {Effect.WORSE}
    assert effect not in forbidden
    assert errors.wrong != baseline.wrong or effect is Effect.EQUAL


@given(st.lists(st.sampled_from(WORDS[:20]), max_size=60), st.randoms())
def test_the_order_of_words_is_no_error(words: list[str], generator: random.Random) -> None:
    """The same words in any order have no errors; no words at all are all wrong."""
    shuffled = generator.sample(words, len(words))

    assert trial_scores.count_wrong_words(" ".join(shuffled), " ".join(words)) == Errors(0, len(words))
    assert trial_scores.count_wrong_words("", " ".join(words)) == Errors(len(words), len(words))


def test_presets_that_need_more_memory_are_not_tried() -> None:
    """On a GPU of 24 GB: the smaller presets, not its own, and none that is larger."""
    choices = {choice.name: choice for choice in tuning.list_choices(Settings(), 24)}

    presets = {name: isinstance(choice, Choice) for name, choice in choices.items() if name.startswith("PRESET")}
    assert presets == {
        "PRESET=8": True,
        "PRESET=16": True,
        "PRESET=32": False,
        "PRESET=48": False,
        "PRESET=80": False,
        "PRESET=141": False,
    }
    assert set(choices) - set(presets) == {
        "DRAW_VIEWS=true", "SMALL_CROPS=true", "n-gram 20/50", "KV_CACHE_DTYPE=fp8", "QUANTIZATION=fp8",
    }  # fmt: skip


def test_a_region_reader_has_choices_of_its_own() -> None:
    """It has no tiles to render and no ban, and the preset in use, which is one for readers, is not tried again."""
    choices = {choice.name: choice for choice in tuning.list_choices(Settings(model="glm_ocr"), 24)}

    assert isinstance(choices["DRAW_VIEWS=true"], Skipped) and isinstance(choices["n-gram 20/50"], Skipped)
    assert "PRESET=24" not in choices and isinstance(choices["PRESET=16"], Choice)


def test_choices_are_the_opposite_of_what_is_set() -> None:
    """A setting that is on is tried off, and fp8 weights that a small GPU needs are not tried again."""
    settings = Settings(draw_views=True, small_crops=True, kv_cache_dtype="fp8")

    choices = {choice.name: choice for choice in tuning.list_choices(settings, 8)}

    assert {"DRAW_VIEWS=false", "SMALL_CROPS=false", "KV_CACHE_DTYPE=auto"} < set(choices)
    assert isinstance(choices["QUANTIZATION=fp8"], Skipped)


@pytest.mark.parametrize("choice", tuning.list_choices(Settings(), 141), ids=lambda choice: choice.name)
def test_every_choice_is_a_valid_setting(choice: Choice) -> None:
    """Each choice changes a setting to a value that a worker accepts, or the sampling of a job."""
    assert isinstance(choice, Choice) or choice.name == f"PRESET={[*PAGE_PRESETS][-1]}"
    if isinstance(choice, Choice) and choice.settings:
        fields = {name.lower(): value for name, value in choice.settings.items()}
        assert Settings(**fields) != Settings()  # type: ignore[arg-type]
