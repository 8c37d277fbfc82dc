"""Pass 1: a picture of a page in, its elements with boxes out, down the ladder where an answer is bad.

Knows rungs and verdicts. Knows nothing of S3, of neighbouring pages or of which engine answers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from twopass.document import Attempt, Checkpoint, Confidence, Element, Page, Problem, Severity, State
from twopass.engines.interface import Completion, Engine, Prompt, sampling, told
from twopass.errors import Code
from twopass.families.interface import NORMAL, Answer, Asked, Family, Look, Rung
from twopass.job import Job
from twopass.pages import text_layer_paragraphs
from twopass.pages.rendered_page import Picture
from twopass.pages.text_layer import TextLayer
from twopass.runtime.page_pool import PagePool
from twopass.text import prose

TEXT_LAYER_RUNG = "text_layer"
CUT_SHORT = {
    "length": Code.TRUNCATED,
    "loop": Code.LOOP,
    "abort": Code.TRUNCATED,
    "error": Code.ENGINE_REFUSED,
    "crash": Code.ENGINE_CRASH,
}


async def read(
    picture: Picture, source_key: str, job: Job, engine: Engine, family: Family, page_pool: PagePool
) -> Checkpoint:
    """The page as pass 1 read it, rung by rung until an answer will do; a blank page is not asked about."""
    read = Checkpoint(page=picture.page, problems=picture.problems)
    if picture.page.state is State.BLANK:
        return read
    best: Checkpoint | None = None
    for rung in family.ladder(_look(picture), Asked(job.mode, job.task, job.prompt)):
        prompt = _prompt(rung, picture, source_key, job, family)
        completion = await engine.generate(prompt)
        answer = await page_pool.call(parse, family, completion.text, picture.page.number, rung, picture.words)
        reason = _verdict(completion, answer)
        read = _tried(read, rung, prompt, completion, answer, reason)
        if reason is None:
            return read
        best = max(best or read, read, key=_amount)
        if completion.finish_reason == "crash":
            break  # the same picture on another rung would kill the next engine
    assert best and read.page.attempts[0].reason
    kept = read.model_copy(update={"elements": best.elements})
    return fallen_back(kept, picture, read.page.attempts[0].reason)


def _look(picture: Picture) -> Look:
    pixels = picture.pixels
    return Look(pixels.width, pixels.height, picture.ink, sum(map(len, picture.words.texts)))


def _prompt(rung: Rung, picture: Picture, source_key: str, job: Job, family: Family) -> Prompt:
    """The first rung's id is the page's; the others' say which they are."""
    suffix = "" if rung.name == NORMAL else f"-{rung.name}"
    return Prompt(
        id=f"{source_key}/p{picture.page.number:04d}{suffix}",
        text=rung.prompt,
        image=picture.pixels,
        page=picture.pointer,
        mode=rung.mode or job.mode,
        max_crops=job.max_crops,
        language=job.language,
        sampling=sampling(job.sampling.model_dump(exclude_none=True), rung.sampling),
        priority=0 if suffix else 1,
        watch=family.looping,
    )


def _tried(
    before: Checkpoint, rung: Rung, prompt: Prompt, completion: Completion, answer: Answer, reason: Code | None
) -> Checkpoint:
    """The page after one more rung."""
    page = before.page
    attempt = Attempt(rung=rung.name, mode=rung.mode, finish_reason=completion.finish_reason, reason=reason)
    state = State.REPAIRED if reason is None and page.attempts else page.state
    first = page.attempts[0].reason if page.attempts else None
    said = {"attempts": (*page.attempts, attempt), "state": state, "mode": rung.mode, "reason": first}
    return before.model_copy(
        update={
            "page": page.model_copy(update=said),
            "elements": tuple(_sure(element, completion) for element in answer.elements),
            "completions": (*before.completions, told(prompt, completion)),
            "problems": (*before.problems, *_warnings(answer, page.number)),
            "cost": {"engine_s": before.cost.get("engine_s", 0) + completion.seconds},
        }
    )


def _sure(element: Element, completion: Completion) -> Element:
    """Where nothing else says how sure a reading is, what the model thought of its tokens; only if it was told to."""
    if completion.logprob is None or element.confidence is not None:
        return element
    score = round(math.exp(min(completion.logprob, 0.0)), 4)
    return element.model_copy(update={"confidence": Confidence(score=score, method="logprob")})


def _amount(read: Checkpoint) -> int:
    """Characters read: of several bad answers the one that says most is kept."""
    return sum(len(element.text) for element in read.elements)


def parse(family: Family, text: str, page: int, rung: Rung, layer: TextLayer) -> Answer:
    """In a page worker: the family's grammar on one answer."""
    return family.parse(text, page, rung, layer)


def _verdict(completion: Completion, answer: Answer) -> Code | None:
    """Why the answer will not do; None when it will."""
    # A loop runs into the token limit too, and more tokens would not help it.
    if completion.finish_reason in CUT_SHORT and answer.reason is not Code.LOOP:
        return CUT_SHORT[completion.finish_reason]
    return answer.reason or (None if answer.elements else Code.EMPTY)


def fallen_back(read: Checkpoint, picture: Picture, reason: Code) -> Checkpoint:
    """The last rungs: the PDF's own text where it says as much as was read, else failed with what was read."""
    layer = text_layer_paragraphs.elements(picture.words, read.page.number)
    elements = layer if _said(layer) >= _said(read.elements) else ()
    state = State.TEXT_LAYER if elements else State.FAILED
    attempts = read.page.attempts + ((Attempt(rung=TEXT_LAYER_RUNG),) if elements else ())
    page = read.page.model_copy(update={"state": state, "reason": reason, "attempts": attempts})
    problems = (*read.problems, _problem(page, reason, kept=bool(layer) and not elements))
    return read.model_copy(update={"page": page, "elements": elements or read.elements, "problems": problems})


def _said(elements: Sequence[Element]) -> int:
    """Words: a stamp on a scan has a few, and the page's reading, however it ended, more."""
    return sum(len(prose.words(element.text)) for element in elements)


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
    Code.ENGINE_CRASH: "the engine died over it, the last time with nothing else in it",
    Code.RENDER_TIMEOUT: "a page worker took too long over it, twice; raise WORKER_TIMEOUT_S",
    Code.RENDER_MEMORY: "a page worker took too much memory over it, twice; raise WORKER_MEMORY_BYTES or lower dpi",
    Code.DAMAGED: "the page is damaged",
    Code.UNGROUNDED: "the answer names no boxes",
    Code.ENGINE_REFUSED: "the engine refused the prompt; its log says why",
    Code.UNREADABLE_SCRIPT: "a scan in a script that the cpu engine cannot read (it knows Latin, Chinese and Japanese)",
}


def _problem(page: Page, reason: Code, kept: bool) -> Problem:
    taken = page.state is State.TEXT_LAYER
    severity = Severity.WARNING if taken else Severity.ERROR
    unlike = "; what was read is kept, the PDF's own text says less" if kept else _again(page)
    next_step = "; the PDF's own text was taken" if taken else unlike
    message = f"page {page.number}: {_ADVICE.get(reason, 'the answer cannot be used')}{next_step}"
    return Problem(code=reason, severity=severity, page=page.number, message=message)


def unread(number: int, reason: Code, why: str) -> Checkpoint:
    """A page that was not come to, or not to its end; never stored, so that the next job reads it."""
    return failed(number, reason, f"page {number}: {why}", State.UNREAD)


def failed(number: int, reason: Code, message: str, state: State = State.FAILED) -> Checkpoint:
    """The checkpoint of a page that could not be drawn."""
    page = Page(number=number, width_pt=0, height_pt=0, state=state, reason=reason)
    return Checkpoint(page=page, problems=(Problem(code=reason, page=number, message=message + _again(page)),))


def _again(page: Page) -> str:
    return "; send the same job again to try this page once more" if page.is_accident else ""
