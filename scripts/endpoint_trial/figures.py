"""What the jobs took and cost, from the times that RunPod reports."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from scripts.endpoint_trial.runner import Trial
from twopass.acceptance.checks import Check, CheckOutcome, skip

STAGE = "3"
LABELS = {
    "first_delay_s": "first job in the queue, with the cold start, s",
    "delay_p50_s": "delayTime p50, s",
    "delay_p95_s": "delayTime p95, s",
    "execution_p50_s": "executionTime p50, s",
    "execution_p95_s": "executionTime p95, s",
    "pages_per_s_p50": "pages per second of a job, p50",
    "pages_per_s_max": "pages per second of a job, largest",
    "execution_s": "executionTime of all jobs, s",
    "dollars": "cost, dollars",
}
NOT_MEASURED = {"dollars": "give --price-per-hour, or set PRICE_PER_SECOND"}
ESTIMATE = (
    "an estimate: executionTime times price; starts and idle time come on top, and jobs that ran at once on a worker"
    " are counted as if each had its own"
)


def measure(trials: Sequence[Trial], dollars_per_s: float | None) -> dict[str, float]:
    """The figures that RunPod's answers allow; those that need times it did not report are left out."""
    delays = [trial.status.queued_s for trial in trials if trial.status.queued_s is not None]
    seconds = [trial.status.seconds for trial in trials if trial.status.seconds]
    read = [trial for trial in trials if trial.pages and not trial.job.is_repeated]
    rates = [trial.pages / trial.status.seconds for trial in read if trial.status.seconds]
    figures = {}
    if trials and trials[0].status.queued_s is not None:
        figures["first_delay_s"] = trials[0].status.queued_s
    for name, values in (("delay", delays), ("execution", seconds)):
        if len(values) > 1:
            figures[f"{name}_p50_s"] = statistics.median(values)
            figures[f"{name}_p95_s"] = statistics.quantiles(values, n=20, method="inclusive")[-1]
    if rates:
        figures |= {"pages_per_s_p50": statistics.median(rates), "pages_per_s_max": max(rates)}
    if seconds:
        figures["execution_s"] = sum(seconds)
        figures |= {} if dollars_per_s is None else {"dollars": sum(seconds) * dollars_per_s}
    return {name: round(value, 6) for name, value in figures.items()}


def describe(trials: Sequence[Trial], dollars_per_s: float | None) -> list[Check]:
    figures = measure(trials, dollars_per_s)
    return [
        Check(STAGE, label, CheckOutcome.PASSED, f"{figures[name]:.4g}", meaning=ESTIMATE if name == "dollars" else "")
        if name in figures
        else skip(STAGE, label, NOT_MEASURED.get(name, "RunPod reported no times"))
        for name, label in LABELS.items()
    ]
