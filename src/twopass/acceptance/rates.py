"""Stage (f): how often answers loop, pages are asked again, second readings are used, and text could be predicted.

Everything is counted in stored pages, so it works on any folder of artefacts. These are rates, which cannot fail.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from twopass.acceptance.checks import Check, CheckOutcome, skip
from twopass.acceptance.trials import trial_documents
from twopass.acceptance.trials.trial_run import PageKey
from twopass.acceptance.trials.trial_scores import MODEL_STATES
from twopass.document import Checkpoint, Element, Flag, RungName
from twopass.errors import Code

STAGE = "f"
MIN_RUN = 4  # parts that must follow each other in the text layer as in the answer: fewer are found anywhere
_NOT_ASKED = "not asked"  # of blank pages, and of pages that could not be rendered
_REJECTED = (Flag.PASS2_LOOP, Flag.PASS2_CUT, Flag.PASS2_EMPTY, Flag.PASS2_DISAGREES)
AGREES = "agrees with pass 1"
_PART = re.compile(
    r"<\|[^|<>]{1,30}\|>|</?[a-z]{1,10}>|[\u3040-\u30ff\u3400-\u9fff]|[^\W_\u3040-\u30ff\u3400-\u9fff]+|\S"
)
_ELEMENT = re.compile(r"/(p\d+-e\d+)(?:-\d+)?$")

ReadLayers = Callable[[Path], Mapping[int, str]]


@dataclass(frozen=True)
class Rates:
    """Counts that can be added: of pages by last rung, of answers by end, of elements that pass 2 has asked about.

    `predicted` and `parts` count words, marks and tags of the answers that are used, about pages with a text layer:
    those that could be predicted from it, and all. `layered` counts pages with a text layer.
    """

    pages: int = 0
    rungs: Counter[str] = field(default_factory=Counter)
    ends: Counter[str] = field(default_factory=Counter)
    element_ends: Counter[str] = field(default_factory=Counter)
    looped: int = 0
    looped_elements: int = 0
    asked: int = 0
    used: int = 0
    rejected: Counter[str] = field(default_factory=Counter)
    predicted: int = 0
    parts: int = 0
    layered: int = 0

    def __add__(self, other: Rates) -> Rates:
        return Rates(*(getattr(self, name) + getattr(other, name) for name in self.__dataclass_fields__))


def check(pages: Mapping[PageKey, Checkpoint], read_layers: ReadLayers | None = None) -> list[Check]:
    """The rates of all documents together, and a line for each document."""
    if not pages:
        return [skip(STAGE, "rates", "the folder has no pages: name a folder of artefacts, which has */pages/*.json")]
    rates = measure(pages, read_layers)
    total = sum(rates.values(), Rates())
    found = {
        "pages by last attempt": _format_shares(total.rungs),
        "ends of pass 1": _format_shares(total.ends),
        "ends of pass 2": _format_shares(total.element_ends),
        "loops": f"{_format_share(total.looped, total.ends.total())} answers of pass 1, "
        f"{_format_share(total.looped_elements, total.asked)} elements of pass 2",
        "second readings": f"{_format_share(total.used, total.asked)} elements use pass 2",
        "not used": _format_shares(total.rejected),
        "predicted": f"{_format_share(total.predicted, total.parts)} words, marks and tags of answers, about tokens, "
        f"in runs of {MIN_RUN} or more; {_format_share(total.layered, total.pages)} pages have a text layer",
    }
    totals = [Check(STAGE, name, CheckOutcome.PASSED, value) for name, value in found.items()]
    return [
        *totals,
        *(Check(STAGE, Path(name).name, CheckOutcome.PASSED, _describe(one)) for name, one in rates.items()),
    ]


def _describe(rates: Rates) -> str:
    repeated = rates.pages - rates.rungs[RungName.NORMAL] - rates.rungs[_NOT_ASKED]
    return (
        f"{_format_share(repeated, rates.pages)} pages needed another attempt, "
        f"{_format_share(rates.looped + rates.looped_elements, rates.ends.total() + rates.asked)} looped, "
        f"{_format_share(rates.used, rates.asked)} use pass 2, {_format_share(rates.predicted, rates.parts)} predicted"
    )


def _format_shares(counts: Counter[str]) -> str:
    return ", ".join(f"{name} {_format_share(count, counts.total())}" for name, count in counts.most_common()) or "none"


def _format_share(count: int, total: int) -> str:
    return f"{count:,} of {total:,}" + (f" ({count / total:.1%})" if total else "")


def measure(pages: Mapping[PageKey, Checkpoint], read_layers: ReadLayers | None = None) -> dict[str, Rates]:
    """The rates of each document, by its source. `read_layers` returns the text of a file's pages by number."""
    read = read_layers or trial_documents.read_text_layers
    rates: dict[str, Rates] = {}
    for source in sorted({source for source, _ in pages}):
        layers = read(Path(source))
        mine = {number: page for (one, number), page in pages.items() if one == source}
        rates[source] = sum((_measure_page(page, layers.get(number)) for number, page in mine.items()), Rates())
    return rates


def _measure_page(page: Checkpoint, layer: str | None) -> Rates:
    attempts = page.page.attempts
    answers = [completion for completion in page.completions if not _ELEMENT.search(completion.prompt_id)]
    replies = [completion for completion in page.completions if _ELEMENT.search(completion.prompt_id)]
    asked = {match[1] for one in replies if (match := _ELEMENT.search(one.prompt_id))}
    elements = [element for element in page.elements if element.id in asked]
    is_read = page.page.state in MODEL_STATES
    parts = split_parts(answers[-1].text) if answers and layer and is_read else []
    return Rates(
        pages=1,
        rungs=Counter([attempts[-1].rung if attempts else _NOT_ASKED]),
        ends=Counter(one.finish_reason for one in answers),
        element_ends=Counter(one.finish_reason for one in replies),
        looped=sum(attempt.reason is Code.LOOP for attempt in attempts),
        looped_elements=sum(Flag.PASS2_LOOP in element.flags for element in elements),
        asked=len(elements),
        used=sum(element.read_by == 2 for element in elements),
        rejected=Counter(_find_rejection(element) for element in elements if element.read_by == 1),
        predicted=count_predicted(parts, split_parts(layer or "")),
        parts=len(parts),
        layered=bool(layer),
    )


def _find_rejection(element: Element) -> str:
    """Why the first reading is used."""
    return next((flag for flag in _REJECTED if flag in element.flags), AGREES)


def split_parts(text: str) -> list[str]:
    """Split into words, marks, and tags such as <|ref|> and <td>: about the model's tokens; long words have several."""
    return _PART.findall(text)


def count_predicted(answer: Sequence[str], layer: Sequence[str]) -> int:
    """Count the parts of the answer in runs of at least MIN_RUN parts that the layer has, too.

    Runs are found from the beginning of the answer, each as long as possible. A shorter answer must be found whole.
    """
    length = min(MIN_RUN, len(answer))
    if not length:
        return 0
    places: dict[tuple[str, ...], list[int]] = {}
    for place in range(len(layer) - length + 1):
        places.setdefault(tuple(layer[place : place + length]), []).append(place)
    at = predicted = 0
    while at + length <= len(answer):
        starts = places.get(tuple(answer[at : at + length]), ())
        run = max((_count_equal(answer, at, layer, start) for start in starts), default=0)
        predicted += run
        at += run or 1
    return predicted


def _count_equal(answer: Sequence[str], at: int, layer: Sequence[str], start: int) -> int:
    count = 0
    while at + count < len(answer) and start + count < len(layer) and answer[at + count] == layer[start + count]:
        count += 1
    return count
