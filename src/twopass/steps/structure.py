"""Pass 1: a picture of a page in, its elements with boxes out, down the ladder where an answer is bad.

Knows rungs and verdicts. Knows nothing of S3, of neighbouring pages or of which engine answers.
"""

from __future__ import annotations

from dataclasses import replace

from twopass import text_layer
from twopass.document import Attempt, Checkpoint, Page, Problem, Severity, State
from twopass.engines.seam import Completion, Engine, Prompt, Sampling, told
from twopass.errors import Code
from twopass.families.seam import Answer, Family
from twopass.job import Job
from twopass.picture import Picture
from twopass.workers import Workers

FIRST_RUNG = "normal"
TEXT_LAYER_RUNG = "text_layer"
CUT_SHORT = {"length": Code.TRUNCATED, "loop": Code.LOOP, "abort": Code.TRUNCATED}


async def read(
    picture: Picture, source_key: str, job: Job, engine: Engine, family: Family, workers: Workers
) -> Checkpoint:
    """The page as pass 1 read it; a blank page is not asked about."""
    page = picture.page
    if page.state is State.BLANK:
        return Checkpoint(page=page, problems=picture.problems)
    prompt = Prompt(
        id=f"{source_key}/p{page.number:04d}",
        text=family.page_prompt(job.mode, job.task),
        image=picture.pixels,
        page=picture.pointer,
        mode=job.mode,
        language=job.language,
        sampling=replace(Sampling(), **job.sampling.model_dump(exclude_none=True)),
    )
    completion = await engine.generate(prompt)
    answer = await workers.call(parse, family, completion.text, page.number)
    attempt = Attempt(rung=FIRST_RUNG, finish_reason=completion.finish_reason, reason=_verdict(completion, answer))
    read = Checkpoint(
        page=page.model_copy(update={"attempts": (attempt,)}),
        elements=answer.elements,
        completions=(told(prompt, completion),),
        problems=(*picture.problems, *_warnings(answer, page.number)),
        cost={"engine_s": completion.seconds},
    )
    return read if attempt.reason is None else fallen_back(read, picture, attempt.reason)


def parse(family: Family, text: str, page: int) -> Answer:
    """In a page worker: the family's grammar on one answer."""
    return family.parse(text, page)


def _verdict(completion: Completion, answer: Answer) -> Code | None:
    """Why the answer will not do; None when it will."""
    if completion.finish_reason in CUT_SHORT:
        return CUT_SHORT[completion.finish_reason]
    return answer.reason or (None if answer.elements else Code.EMPTY)


def fallen_back(read: Checkpoint, picture: Picture, reason: Code) -> Checkpoint:
    """The last rungs: the PDF's own text, else failed with whatever was read."""
    elements = text_layer.elements(picture.words, read.page.number)
    state = State.TEXT_LAYER if elements else State.FAILED
    attempts = read.page.attempts + ((Attempt(rung=TEXT_LAYER_RUNG),) if elements else ())
    page = read.page.model_copy(update={"state": state, "reason": reason, "attempts": attempts})
    problems = (*read.problems, _problem(page, reason))
    return read.model_copy(update={"page": page, "elements": elements or read.elements, "problems": problems})


def _warnings(answer: Answer, number: int) -> tuple[Problem, ...]:
    if "dense_page" not in answer.flags:
        return ()
    why = "too many lines or too large for the layout model"
    message = f"page {number}: {why}; read along its white space, columns may be mixed"
    return (Problem(code=Code.DENSE_PAGE, severity=Severity.WARNING, page=number, message=message),)


_ADVICE = {
    Code.LOOP: "the answer repeats itself",
    Code.TRUNCATED: "the answer was cut at the token limit; raise max_tokens or lower dpi",
    Code.EMPTY: "nothing was read on an inked page",
    Code.RENDER_CRASH: "a page worker died over it, twice",
    Code.RENDER_TIMEOUT: "a page worker took too long over it, twice; raise WORKER_TIMEOUT_S",
    Code.DAMAGED: "the page is damaged",
    Code.UNGROUNDED: "the answer names no boxes",
    Code.UNREADABLE_SCRIPT: "a scan in a script that the cpu engine cannot read (it knows Latin, Chinese and Japanese)",
}


def _problem(page: Page, reason: Code) -> Problem:
    taken = page.state is State.TEXT_LAYER
    severity = Severity.WARNING if taken else Severity.ERROR
    next_step = "; the PDF's own text was taken" if taken else _again(page)
    message = f"page {page.number}: {_ADVICE.get(reason, 'the answer cannot be used')}{next_step}"
    return Problem(code=reason, severity=severity, page=page.number, message=message)


def failed(number: int, reason: Code, message: str, state: State = State.FAILED) -> Checkpoint:
    """The checkpoint of a page that could not be drawn or was not come to."""
    page = Page(number=number, width_pt=0, height_pt=0, state=state, reason=reason)
    return Checkpoint(page=page, problems=(Problem(code=reason, page=number, message=message + _again(page)),))


def _again(page: Page) -> str:
    return "; send the same job again to try this page once more" if page.is_accident else ""
