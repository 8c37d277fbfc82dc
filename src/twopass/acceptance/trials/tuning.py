"""Stage (e): settings that only weights can decide, each compared with the user's own settings on the same documents.

The user's settings are tried twice. By how much the two runs differ is noise: answers depend on which prompts are
computed together. A choice is recommended if it reads no worse and faster, or better. Choices are tried one by one,
and those that are recommended once more together.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from twopass.acceptance.checks import Check, CheckOutcome, skip
from twopass.acceptance.trials import trial_scores
from twopass.acceptance.trials.trial_documents import TrialDocument
from twopass.acceptance.trials.trial_run import Choice, Trial
from twopass.acceptance.trials.trial_scores import Comparison, Effect
from twopass.document import State
from twopass.errors import Code, TwopassError
from twopass.models import find_model
from twopass.settings import Settings

STAGE = "e"
DEFAULTS, AGAIN, TOGETHER = "your settings", "your settings again", "all recommended"
_OFFICIAL_BAN = Choice("n-gram 20/50", sampling={"ngram": 20, "window": 50})  # of the official script for PDFs
_FP8 = "fp8"
_MIN_GAIN = 0.05  # in pages per second; less is not worth a setting
_MAX_CHANGED = 0.02  # of the words of pages whose text is not known, beyond those that change between equal runs
# Guesses, to announce the time before anything is measured: a start with warm caches, and the pace of a GPU of 24 GB.
_EXPECTED_START_S, _EXPECTED_PAGES_PER_S = 60.0, 2.0

ReadTrial = Callable[[Choice], Trial]
Announce = Callable[[str], None]


@dataclass(frozen=True)
class Skipped:
    """A choice that cannot be made on this machine, and why."""

    name: str
    reason: str


@dataclass(frozen=True)
class _Judgement:
    """A choice that was tried, whether it is recommended, and why or why not."""

    choice: Choice
    trial: Trial
    is_recommended: bool
    reason: str


@dataclass(frozen=True)
class Tuning:
    """The checks of the stage, and the first trial with the user's settings, for stage (f)."""

    checks: list[Check] = field(default_factory=list)
    baseline: Trial | None = None


def list_choices(settings: Settings, memory_gb: float) -> list[Choice | Skipped]:
    """List the choices for a GPU with this memory, each the opposite of the user's setting."""
    choices: list[Choice | Skipped] = []
    model = find_model(settings.model)
    if model.reads_regions:
        choices += [Skipped(name, f"{settings.model} has none") for name in ("DRAW_VIEWS=true", _OFFICIAL_BAN.name)]
    else:
        choices += [_toggle("DRAW_VIEWS", settings.draw_views), _OFFICIAL_BAN]
    if not model.reads_regions and "small" in model.vision.modes:
        choices.append(_toggle("SMALL_CROPS", settings.small_crops))
    else:
        choices.append(Skipped("SMALL_CROPS=true", f"{settings.model} has no mode for small crops"))
    chosen = model.find_preset(settings.preset, memory_gb)
    cache = "auto" if settings.kv_cache_dtype == _FP8 else _FP8
    choices.append(Choice(f"KV_CACHE_DTYPE={cache}", {"KV_CACHE_DTYPE": cache}))
    if _FP8 in (settings.quantization, chosen.quantization):
        choices.append(Skipped("QUANTIZATION=fp8", "it is set already, or by the preset"))
    else:
        choices.append(Choice("QUANTIZATION=fp8", {"QUANTIZATION": _FP8}))
    for name, preset in model.presets.items():
        if name == "cpu" or preset == chosen:
            continue
        if int(name) > memory_gb + 1:
            choices.append(Skipped(f"PRESET={name}", f"needs {name} GB; this GPU has {memory_gb:.0f}"))
        else:
            choices.append(Choice(f"PRESET={name}", {"PRESET": name}))
    return choices


def _toggle(name: str, is_on: bool) -> Choice:
    value = "false" if is_on else "true"
    return Choice(f"{name}={value}", {name: value})


def run(
    documents: Sequence[TrialDocument], choices: Sequence[Choice | Skipped], read: ReadTrial, announce: Announce
) -> Tuning:
    """Try every choice. One that fails is not run, with its reason; without a baseline the stage fails."""
    usable = [choice for choice in choices if isinstance(choice, Choice)]
    announce(_announce_runs(documents, usable))
    before = time.monotonic()
    try:
        baseline = read(Choice(DEFAULTS))
        announce(_announce_rest(time.monotonic() - before, len(usable) + 1))
        again = read(Choice(AGAIN))
    except TwopassError as error:
        return Tuning([Check(STAGE, DEFAULTS, CheckOutcome.FAILED, "the first run failed", meaning=error.message)])
    judge = _Judge(documents, baseline, again)
    checks = [
        Check(STAGE, DEFAULTS, CheckOutcome.PASSED, judge.describe(baseline)),
        Check(
            STAGE,
            AGAIN,
            CheckOutcome.PASSED,
            judge.describe(again),
            meaning="the same settings: the difference is noise",
        ),
    ]
    judged = []
    for choice in choices:
        found = choice if isinstance(choice, Skipped) else _try(choice, read, judge, announce)
        judged += [found] if isinstance(found, _Judgement) else []
        checks.append(_check(found, judge))
    recommended = _keep_best_preset([one for one in judged if one.is_recommended])
    if len(recommended) > 1:
        together = _try(_merge([one.choice for one in recommended]), read, judge, announce)
        checks.append(_check(together, judge))
        recommended = [together if isinstance(together, _Judgement) and together.is_recommended else recommended[0]]
    lines = recommended[0].choice.lines if recommended else []
    announce("\n".join(["recommended:", *lines]) if lines else "recommended: your settings as they are")
    return Tuning([*checks, Check(STAGE, "recommended", CheckOutcome.PASSED, ", ".join(lines) or DEFAULTS)], baseline)


def _announce_runs(documents: Sequence[TrialDocument], usable: Sequence[Choice]) -> str:
    pages = sum(max(len(document.truths), 1) for document in documents)
    names = ", ".join([DEFAULTS, AGAIN, *(choice.name for choice in usable)])
    count = len(usable) + 2
    minutes = count * (_EXPECTED_START_S + pages / _EXPECTED_PAGES_PER_S) / 60
    return (
        f"(e) reads {len(documents)} documents (at least {pages} pages) {count} times: {names}; and once more if "
        f"several are recommended. About {minutes:.0f} minutes if a start takes {_EXPECTED_START_S:.0f} s and the GPU "
        f"reads {_EXPECTED_PAGES_PER_S:g} pages/s; the first run measures it."
    )


def _announce_rest(seconds: float, count: int) -> str:
    return f"(e) the first run took {seconds:.0f} s, so {count} more take about {count * seconds / 60:.0f} minutes"


def _try(choice: Choice, read: ReadTrial, judge: _Judge, announce: Announce) -> _Judgement | Skipped:
    try:
        trial = read(choice)
    except TwopassError as error:
        announce(f"(e) {choice.name}: failed")
        return Skipped(choice.name, error.message)
    announce(f"(e) {choice.name}: {judge.describe(trial)}")
    return judge.judge(choice, trial)


def _check(found: _Judgement | Skipped, judge: _Judge) -> Check:
    if isinstance(found, Skipped):
        return skip(STAGE, found.name, found.reason)
    word = "recommended" if found.is_recommended else "not recommended"
    return Check(
        STAGE, found.choice.name, CheckOutcome.PASSED, judge.describe(found.trial), meaning=f"{word}: {found.reason}"
    )


def _keep_best_preset(recommended: Sequence[_Judgement]) -> list[_Judgement]:
    """Sort by speed, the fastest first; of the presets, which exclude each other, only the fastest stays."""
    by_speed = sorted(recommended, key=lambda one: -one.trial.pages_per_s)
    presets = [one for one in by_speed if "PRESET" in one.choice.settings]
    return [one for one in by_speed if one not in presets[1:]]


def _merge(choices: Sequence[Choice]) -> Choice:
    merged = Choice(TOGETHER)
    for choice in choices:
        merged = replace(
            merged, settings={**merged.settings, **choice.settings}, sampling={**merged.sampling, **choice.sampling}
        )
    return merged


@dataclass(frozen=True)
class _Judge:
    """Compares trials with the two trials of the user's settings."""

    documents: Sequence[TrialDocument]
    baseline: Trial
    again: Trial

    def judge(self, choice: Choice, trial: Trial) -> _Judgement:
        scores, first, second = (trial_scores.score(self.documents, one) for one in (trial, self.baseline, self.again))
        comparisons = [trial_scores.compare(name, scores[name], first[name], second[name]) for name in scores]
        if changed := self._find_changes(trial):
            comparisons.append(changed)
        effects = {one.effect for one in comparisons}
        speed = self._compare_speed(trial)
        is_better = Effect.WORSE not in effects and (Effect.BETTER in effects or speed.effect is Effect.BETTER)
        return _Judgement(choice, trial, is_better, "; ".join(one.text for one in [speed, *comparisons]))

    def _find_changes(self, trial: Trial) -> Comparison | None:
        """Words of pages whose text is not known: many other words are a reason to look, whichever are right."""
        changed = trial_scores.count_changes(self.documents, trial, self.baseline)
        usual = trial_scores.count_changes(self.documents, self.again, self.baseline)
        if not changed.total:
            return None
        is_worse = changed.wrong > usual.wrong + _MAX_CHANGED * changed.total
        text = f"{changed.wrong:,} of {changed.total:,} words of your pages without a text layer are read otherwise"
        advice = "; read these with both settings and compare" if is_worse else f", {usual.wrong:,} of them in any case"
        return Comparison(Effect.WORSE if is_worse else Effect.EQUAL, text + advice)

    def _compare_speed(self, trial: Trial) -> Comparison:
        """Faster than the faster of both equal runs, or slower than the slower one, by _MIN_GAIN."""
        slower, faster = sorted((self.baseline.pages_per_s, self.again.pages_per_s))
        change = trial.pages_per_s / faster - 1 if faster else 0.0
        if trial.pages_per_s > faster * (1 + _MIN_GAIN):
            return Comparison(Effect.BETTER, f"{change:.0%} faster")
        if trial.pages_per_s < slower * (1 - _MIN_GAIN):
            return Comparison(Effect.WORSE, f"{-change:.0%} slower")
        return Comparison(Effect.EQUAL, "as fast")

    def describe(self, trial: Trial) -> str:
        scores = trial_scores.score(self.documents, trial)
        wrong = ", ".join(f"{errors} {name} wrong" for name, errors in scores.items() if errors.total)
        pages = [page.page for page in trial.pages.values()]
        repeated = sum(len(page.attempts) > 1 for page in pages)
        looped = sum(attempt.reason is Code.LOOP for page in pages for attempt in page.attempts)
        lost = sum(page.state not in trial_scores.MODEL_STATES and page.state is not State.BLANK for page in pages)
        return (
            f"{trial.pages_per_s:.2f} pages/s, start {trial.start_s:.0f} s; {wrong}; of {len(pages)} pages {repeated} "
            f"needed another attempt, {lost} lost; {looped} answers looped"
        )
