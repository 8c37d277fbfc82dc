"""How well a trial has read: words and cells that are wrong, and a comparison of two trials.

The order of words is ignored: the settings that are compared do not change it, and the order of a text layer is often
another than that of reading. A page that was not read by the model counts as empty, also where its text layer was used.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from twopass.acceptance.drawn_pages import Rows
from twopass.acceptance.trials.trial_documents import TrialDocument
from twopass.acceptance.trials.trial_run import Trial
from twopass.document import Checkpoint, State, Table
from twopass.text import prose

MODEL_STATES = frozenset({State.READ, State.REPAIRED})
WORDS, CELLS, _LAYER_WORDS = "words", "table cells", "words of your files' text layers"
MARGIN = 0.005  # of the words or cells: more additional errors are never accepted
_SIGMAS = 2.0  # of the counting error √(errors + errors): a smaller difference may be chance


@dataclass(frozen=True)
class Errors:
    """How many of so many words or cells are wrong; additional words count, too, so it can be more than all."""

    wrong: int = 0
    total: int = 0

    def __add__(self, other: Errors) -> Errors:
        return Errors(self.wrong + other.wrong, self.total + other.total)

    def __str__(self) -> str:
        return f"{self.wrong:,} of {self.total:,}" + (f" ({self.wrong / self.total:.2%})" if self.total else "")


class Effect(StrEnum):
    WORSE = "worse"
    EQUAL = "equal"
    BETTER = "better"


@dataclass(frozen=True)
class Comparison:
    effect: Effect
    text: str


def score(documents: Sequence[TrialDocument], trial: Trial) -> dict[str, Errors]:
    """Count the errors in the words and cells of drawn pages, and in the words of the text layers of own files."""
    scores = {WORDS: Errors(), CELLS: Errors()}
    for document in documents:
        for number, truth in document.truths.items():
            page = trial.pages.get((str(document.path), number))
            name = WORDS if document.is_drawn else _LAYER_WORDS
            scores[name] = scores.get(name, Errors()) + count_wrong_words(_text_of(page), truth.text)
            scores[CELLS] += _count_wrong_cells(_tables_of(page), truth.tables)
    return scores


def count_changes(documents: Sequence[TrialDocument], trial: Trial, baseline: Trial) -> Errors:
    """Compare the words of pages whose text is not known with those of another trial."""
    known = {(str(document.path), number) for document in documents for number in document.truths}
    keys = {*trial.pages, *baseline.pages} - known
    pairs = ((_text_of(trial.pages.get(key)), _text_of(baseline.pages.get(key))) for key in keys)
    return sum((count_wrong_words(text, other) for text, other in pairs), Errors())


def _text_of(page: Checkpoint | None) -> str:
    """What the model has read."""
    if page is None or page.page.state not in MODEL_STATES:
        return ""
    return "\n".join(element.text for element in page.elements)


def _tables_of(page: Checkpoint | None) -> list[Table]:
    if page is None or page.page.state not in MODEL_STATES:
        return []
    return [element.table for element in page.elements if element.table]


def count_wrong_words(text: str, truth: str) -> Errors:
    """Count the words that are missing or added, whichever are more: a misread word is one of each."""
    found, expected = (Counter(prose.split_words(prose.strip_markup(one))) for one in (text, truth))
    return Errors(max((expected - found).total(), (found - expected).total()), expected.total())


def _count_wrong_cells(tables: Iterable[Table], expected: Sequence[Rows]) -> Errors:
    """Count the cells that are not read, or not in their row and column; of several tables the most similar counts."""
    found = [{(cell.row, cell.col): _normalize(cell.text) for cell in table.cells} for table in tables]
    wrong = total = 0
    for rows in expected:
        cells = {(row, col): _normalize(text) for row, texts in enumerate(rows) for col, text in enumerate(texts)}
        differences = (sum(other.get(place) != text for place, text in cells.items()) for other in found)
        wrong += min(differences, default=len(cells))
        total += len(cells)
    return Errors(wrong, total)


def _normalize(text: str) -> str:
    return " ".join(prose.split_words(text))


def compare(name: str, errors: Errors, baseline: Errors, again: Errors) -> Comparison:
    """Compare two counts of errors; `again` is a second count with the baseline's settings.

    Noise is the larger of two numbers: by how much the two baselines differ, and _SIGMAS times the counting error. More
    errors than noise or MARGIN allow are worse; fewer errors by more than noise are better.
    """
    more = errors.wrong - baseline.wrong
    noise = max(abs(baseline.wrong - again.wrong), _SIGMAS * math.sqrt(errors.wrong + baseline.wrong))
    is_noise = abs(more) <= noise
    if more > min(MARGIN * baseline.total, noise):
        effect = Effect.WORSE
    else:
        effect = Effect.BETTER if more < 0 and not is_noise else Effect.EQUAL
    difference = f"{abs(more):,} {'more' if more > 0 else 'fewer'} of {baseline.total:,} {name} are wrong"
    chance = ", which may be chance" if is_noise and more else ""
    return Comparison(effect, f"{difference}{chance}" if more else f"as many {name} are wrong")
