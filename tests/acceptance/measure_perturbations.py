"""Print the scores of perturbed recorded answers: python -m tests.acceptance.measure_perturbations."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence

from tests.acceptance import perturbations
from tests.acceptance.perturbations import AT_THE_END, FAULTS, TILE_FAULTS
from twopass.acceptance import recorded_answers, records, scores
from twopass.acceptance.checks import CheckOutcome
from twopass.acceptance.recorded_answers import Reading
from twopass.acceptance.records import Record
from twopass.engines.interface import Completion

SEEDS = range(20)
RECORDS = records.load()
NOISE = "noise"


def measure(record: Record, completion: Completion) -> tuple[float, float | None, float | None, frozenset[str]]:
    """Word error rate, box IoU, length and the failed checks; None for what is not compared of the record."""
    checks = recorded_answers.judge_answer(record, completion)
    failed = frozenset(c.name.rpartition(": ")[2] for c in checks if c.outcome is CheckOutcome.FAILED)
    expected, answer = Reading.of(record.text), Reading.of(completion.text)
    if expected.is_looping:
        answer = answer.cut(len(expected.blocks))
    return (
        scores.word_error_rate(answer.text, expected.text),
        scores.mean_box_iou(answer.blocks, expected.blocks) if expected.has_boxes else None,
        None if expected.is_looping else len(answer.text) / len(expected.text),
        failed,
    )


def perturb(name: str, record: Record, seed: int) -> Completion:
    if name == NOISE:
        share = perturbations.estimate_noise(record, RECORDS)
        return perturbations.add_noise(share)(record.text, random.Random(seed))
    return FAULTS[name](record.text, random.Random(seed))


def show(values: Iterable[float | None]) -> str:
    found = [value for value in values if value is not None]
    if not found:
        return "–"
    least, most = f"{min(found):.2f}", f"{max(found):.2f}"
    return least if least == most else f"{least} to {most}"


def print_rows(title: str, chosen: Sequence[Record], is_affected: Callable[[str], bool]) -> None:
    for name in filter(is_affected, [NOISE, *FAULTS]):
        results = [measure(record, perturb(name, record, seed)) for record in chosen for seed in SEEDS]
        failed = sum(bool(result[3]) for result in results)
        cells = (show(result[column] for result in results) for column in range(3))
        print(f"| {title} | {name} | {' | '.join(cells)} | {failed} of {len(results)} |")


def main() -> None:
    print("| answers | change | word error rate | box IoU | length | failed |")
    print("|---|---|---|---|---|---|")
    for image in dict.fromkeys(record.image for record in RECORDS):
        *_, loop = same_page = [record for record in RECORDS if record.image == image]
        has_tiles, is_loop = loop.columns > 1, Reading.of(loop.text).is_looping
        title = image.partition(".")[0]
        if is_loop:
            print_rows(f"{title}, free OCR", same_page[:1], lambda name: name not in TILE_FAULTS)
            print_rows(f"{title}, grounding", [loop], lambda name: name not in TILE_FAULTS | AT_THE_END)
        else:
            print_rows(title, same_page, lambda name, has_tiles=has_tiles: has_tiles or name not in TILE_FAULTS)


if __name__ == "__main__":
    main()
