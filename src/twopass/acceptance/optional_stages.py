"""Stages (e) and (f), which read more documents. Their workers are processes of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

from twopass.acceptance import rates
from twopass.acceptance.checks import Check, Outcome, skip
from twopass.acceptance.plan import NEEDS_GPU, NEEDS_MODEL, NEEDS_VLLM, RANDOM_WEIGHTS, Plan
from twopass.acceptance.trials import trial_documents, trial_run, tuning
from twopass.acceptance.trials.trial_run import Choice, Trial
from twopass.engines import gpus
from twopass.errors import TwopassError


def run(plan: Plan) -> Iterator[list[Check]]:
    """Yield the checks of each stage that the plan asks for. No engine may be open in this process."""
    gpu, baseline = gpus.detect_gpus(), None
    with TemporaryDirectory(prefix="twopass-accept-") as name:
        folder = Path(name)
        if plan.tune and (reason := _find_obstacle(plan, gpu)):
            yield [skip("e", "choices", reason)]
        elif plan.tune:
            documents = trial_documents.prepare(folder / "documents", plan.files)
            choices = tuning.list_choices(plan.settings, gpu.memory_gb)
            read = _make_reader(plan, [document.path for document in documents], folder)
            tuned = tuning.run(documents, choices, read, plan.announce)
            baseline = tuned.baseline
            yield tuned.checks
        if plan.rates:
            try:
                yield _check_rates(plan, folder, baseline, sets=trial_documents.SETS if gpu.count else 1)
            except TwopassError as error:
                yield [Check("f", "rates", Outcome.FAILED, "nothing could be counted", meaning=error.message)]


def _find_obstacle(plan: Plan, gpu: gpus.GpuInfo) -> str | None:
    """Why no settings can be compared here."""
    if plan.settings.engine != "vllm":
        return NEEDS_VLLM
    return RANDOM_WEIGHTS if plan.is_random else None if gpu.count else NEEDS_GPU


def _make_reader(plan: Plan, sources: Sequence[Path], folder: Path) -> Callable[[Choice], Trial]:
    numbers = count()
    return lambda choice: trial_run.read(choice, sources, plan.settings, folder / f"trial-{next(numbers)}")


def _check_rates(plan: Plan, folder: Path, baseline: Trial | None, sets: int) -> list[Check]:
    """The rates of a folder of artefacts, of the first trial of stage (e), or of a trial for this stage."""
    if plan.artefacts:
        return rates.check(trial_run.load_pages(plan.artefacts))
    if plan.settings.engine == "cpu" or plan.is_random:
        return [skip("f", "rates", RANDOM_WEIGHTS if plan.is_random else NEEDS_MODEL)]
    if baseline is None:
        documents = trial_documents.prepare(folder / "documents", plan.files, sets)
        pages = sum(len(document.truths) for document in documents)
        plan.announce(f"(f) reads {len(documents)} documents (at least {pages} pages)")
        baseline = _make_reader(plan, [document.path for document in documents], folder)(Choice(tuning.DEFAULTS))
    return rates.check(baseline.pages)
