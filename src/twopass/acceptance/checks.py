"""What the stages of the acceptance run return, and the table that it ends with.

A stage is a function that returns its checks. The run ends after the first stage with a failed check, because later
stages would only show consequences of the same fault.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

STAGES = {  # letter -> subject
    "a": "model files, tokenizer and prompts",
    "b": "images: views, tokens and embeddings",
    "c": "tokens compared with those of stock vLLM",
    "d": "answers compared with recorded ones",
    "e": "choices that weights decide (--tune)",
    "f": "rates of loops, second readings and drafts (--rates)",
}


class CheckOutcome(StrEnum):
    PASSED = "passed"
    FAILED = "failed"
    NOT_RUN = "not run"


@dataclass(frozen=True)
class Check:
    """One comparison: the measured value, what was required of it, and for a failed one what it means and what to do.

    A check that was not run says why in `meaning`.
    """

    stage: str
    name: str
    outcome: CheckOutcome
    value: str = ""
    required: str = ""
    meaning: str = ""


def judge(stage: str, name: str, is_good: bool, value: object, required: object, meaning: str) -> Check:
    """A passed or failed check; `meaning` is kept only for a failed one."""
    outcome = CheckOutcome.PASSED if is_good else CheckOutcome.FAILED
    return Check(stage, name, outcome, str(value), str(required), "" if is_good else meaning)


def skip(stage: str, name: str, reason: str) -> Check:
    return Check(stage, name, CheckOutcome.NOT_RUN, meaning=reason)


def has_failed(checks: Iterable[Check]) -> bool:
    return any(check.outcome is CheckOutcome.FAILED for check in checks)


def has_passed(checks: Iterable[Check]) -> bool:
    """Whether no check failed and at least one was run."""
    outcomes = {check.outcome for check in checks}
    return CheckOutcome.FAILED not in outcomes and CheckOutcome.PASSED in outcomes


def count_outcomes(checks: Sequence[Check]) -> str:
    """The number of checks by outcome, such as `12 passed, 1 not run`."""
    counts = Counter(check.outcome for check in checks)
    return ", ".join(f"{counts[outcome]} {outcome}" for outcome in CheckOutcome if counts[outcome])


def format_table(checks: Sequence[Check], titles: Mapping[str, str] = STAGES) -> str:
    """Format the checks as a table in plain text, stage by stage; meanings stand below the lines that they explain."""
    width = max((len(check.name) for check in checks), default=0)
    lines = []
    for stage in sorted({check.stage for check in checks}):
        lines.append(f"({stage}) {titles[stage]}")
        for check in (check for check in checks if check.stage == stage):
            required = f" (required: {check.required})" if check.required else ""
            lines.append(f"    {check.outcome:<7}  {check.name:<{width}}  {check.value}{required}".rstrip())
            if check.meaning:
                lines.append(f"             {check.meaning}")
    return "\n".join(lines)
