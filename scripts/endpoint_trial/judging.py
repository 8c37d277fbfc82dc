"""Compare how jobs ended with what was expected."""

from __future__ import annotations

from scripts.endpoint_trial.jobs import TrialJob, find_words
from scripts.endpoint_trial.runner import Trial
from twopass.acceptance.checks import Check, judge, skip
from twopass.document import Status
from twopass.errors import Code
from twopass.fleet.endpoints.interface import JobState
from twopass.result import Result

STAGE = "2"
WORDS_FOUND = 0.9  # of the expected words; the cpu engine finds all, and a model may spell a few differently


def judge_trial(trial: Trial) -> list[Check]:
    """Compare how the job ended with what was expected."""
    job, error = trial.job, trial.status.error
    advice = f"see the worker's log of job {trial.id}"
    if job.is_cancelled:
        return [_judge_cancelled(trial, advice)]
    if job.error:
        code = (error or "no error").partition(":")[0]
        meaning = f"{Code.INTERNAL}: the job must end with this error; {advice}" if not error else f"{error}; {advice}"
        return [judge(STAGE, f"{job.name}: error", code == job.error, code, job.error, meaning)]
    result = trial.result
    if error or result is None or result.status is not Status.SUCCESS:
        problems = "; ".join(f"{problem.code}: {problem.message}" for problem in result.problems[:3]) if result else ""
        other = f"{Code.INTERNAL}: the answer does not follow the contract; use the same version here and there"
        meaning = f"{error or problems or other}; {advice}"
        status = "failure" if error else result.status if result else "not a result"
        return [judge(STAGE, f"{job.name}: status", False, status, Status.SUCCESS, meaning)]
    found = [judge(STAGE, f"{job.name}: status", True, result.status, Status.SUCCESS, "")]
    meaning = f"{Code.INTERNAL}: pages are missing; {advice}"
    found.append(judge(STAGE, f"{job.name}: pages", trial.pages == job.pages, trial.pages, job.pages, meaning))
    missing = sorted(job.words - find_words(trial.markdown))
    share = 1 - len(missing) / len(job.words)
    meaning = f"{Code.CANARY}: the engine misread a known document, missing are {', '.join(missing[:8])}; {advice}"
    found.append(judge(STAGE, f"{job.name}: words", share >= WORDS_FOUND, f"{share:.3f}", f"≥ {WORDS_FOUND}", meaning))
    if job.artefacts:
        found.append(_judge_artefacts(job, result, advice))
    return found


def _judge_cancelled(trial: Trial, advice: str) -> Check:
    name, error = f"{trial.job.name}: error", trial.status.error
    if not trial.was_cancelled and not error:
        return skip(STAGE, name, "it ended before it could be cancelled")
    code = (error or "no error").partition(":")[0]
    is_good = trial.was_cancelled and trial.status.state is JobState.ENDED and code == trial.job.error
    meaning = error or f"{Code.INTERNAL}: the job went on after it was cancelled"
    return judge(STAGE, name, is_good, code, trial.job.error, f"{meaning}; {advice}")


def _judge_artefacts(job: TrialJob, result: Result, advice: str) -> Check:
    """Without an output only those that are returned inline can be seen."""
    expected = job.artefacts if result.result_uri else set(job.fields["inline"])
    written = {name for document in result.documents for name in (*document.artefacts, *document.inline)}
    meaning = f"{Code.INTERNAL}: missing: {', '.join(sorted(expected - written))}; {advice}"
    return judge(STAGE, f"{job.name}: artefacts", expected <= written, len(expected & written), len(expected), meaning)


def judge_repetition(original: Trial, repeated: Trial) -> Check:
    name = f"{repeated.job.name}: pages read again"
    if not (original.result and repeated.result):
        return skip(STAGE, name, "one of the two jobs has no result")
    if not repeated.result.result_uri:
        return skip(STAGE, name, "there are no checkpoints without a bucket; name an --output")
    pages = repeated.result.usage.get("pages_read_now")
    meaning = f"{Code.STORE_UNAVAILABLE}: checkpoints were not found; check s3:GetObject and s3:ListBucket of the keys"
    return judge(STAGE, name, pages == 0, pages, 0, meaning)
