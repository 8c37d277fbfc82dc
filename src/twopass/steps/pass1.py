"""Pass 1: read a page into elements with boxes, going down the ladder of fallbacks while an answer is unusable."""

from __future__ import annotations

import math
from collections.abc import Sequence

from twopass.detection.region import DETECT
from twopass.document import (
    Attempt,
    Checkpoint,
    Confidence,
    ConfidenceMethod,
    Element,
    Flag,
    Page,
    Problem,
    Severity,
    State,
)
from twopass.engines import ask
from twopass.engines.interface import Completion, Engine, Prompt, build_sampling, to_raw_completion
from twopass.errors import Code, SourceError, WorkerDied
from twopass.families.interface import NORMAL, Family, PageFeatures, PageRequest, ParsedPage, Rung
from twopass.job import Job
from twopass.pages import picture_page, text_layer
from twopass.pages.rendered_page import RenderedPage
from twopass.pages.source_files import SAVE_AGAIN
from twopass.pages.text_layer import TextLayer
from twopass.runtime import retry
from twopass.runtime.page_pool import PagePool
from twopass.runtime.shutdown import SEND_AGAIN
from twopass.text import prose

TEXT_LAYER_RUNG = "text_layer"
INCOMPLETE = {
    "length": Code.TRUNCATED,
    "loop": Code.LOOP,
    "abort": Code.TRUNCATED,
    "error": Code.ENGINE_REFUSED,
    "crash": Code.ENGINE_CRASH,
}


async def read(
    rendered: RenderedPage,
    source_key: str,
    job: Job,
    engine: Engine,
    family: Family,
    page_pool: PagePool,
    last_try: bool = False,
) -> Checkpoint:
    """Read the page with the first usable answer; blank pages are not sent to the engine.

    If no answer is usable, or a page worker dies on the last try or for lack of time, the PDF's own text is used.
    Raises EngineError, and WorkerDied on earlier tries.
    """
    try:
        checkpoint = await _try_rungs(rendered, source_key, job, engine, family, page_pool)
    except (WorkerDied, SourceError) as error:
        if retry.is_worker_death(error) and not last_try:
            raise
        checkpoint = Checkpoint(page=rendered.page, problems=rendered.problems)
        checkpoint = use_text_layer(checkpoint, rendered.words, error.code)
    return warn_of_unreadable_text(checkpoint)


async def _try_rungs(
    rendered: RenderedPage, source_key: str, job: Job, engine: Engine, family: Family, page_pool: PagePool
) -> Checkpoint:
    checkpoint = Checkpoint(page=rendered.page, problems=rendered.problems)
    if rendered.page.state is State.BLANK:
        return checkpoint
    best: Checkpoint | None = None
    for rung in family.ladder(_measure(rendered), PageRequest(job.mode, job.task, job.prompt)):
        prompt = _build_prompt(rung, rendered, source_key, job, family)
        completion, too_long = await ask.engine(
            engine, prompt, rendered.page.number, runs_model=family.canary is not None
        )
        answer = await page_pool.call(parse, family, completion.text, rendered.page.number, rung, rendered.words)
        if _find_fault(completion, answer) is Code.EMPTY and job.task == "document" and not rendered.words:
            answer = await _read_as_picture(answer, rendered, page_pool)
        reason = _find_fault(completion, answer)
        checkpoint = _record_attempt(checkpoint, rung, prompt, completion, answer, reason)
        if too_long:
            checkpoint = checkpoint.model_copy(update={"problems": (*checkpoint.problems, too_long)})
        if reason is None:
            return checkpoint
        best = max(best or checkpoint, checkpoint, key=_count_characters)
        if completion.finish_reason == "crash" and rung.prompt != DETECT:
            break  # the same page on another rung would crash the next engine, too; a detector is another process
    first_reason = checkpoint.page.attempts[0].reason
    assert best and first_reason
    return use_text_layer(checkpoint.model_copy(update={"elements": best.elements}), rendered.words, first_reason)


async def _read_as_picture(answer: ParsedPage, rendered: RenderedPage, page_pool: PagePool) -> ParsedPage:
    """Turn an empty answer about a page without any line of script into one picture; other answers are unchanged."""
    picture = await page_pool.call(picture_page.find_picture, rendered.pixels, rendered.page.number)
    return ParsedPage((picture,), flags=picture.flags) if picture else answer


def _measure(rendered: RenderedPage) -> PageFeatures:
    pixels = rendered.pixels
    return PageFeatures(pixels.width, pixels.height, rendered.ink, sum(map(len, rendered.words.texts)))


def _build_prompt(rung: Rung, rendered: RenderedPage, source_key: str, job: Job, family: Family) -> Prompt:
    """Build the prompt of one rung; the ids of fallback rungs end with the rung's name."""
    suffix = "" if rung.name == NORMAL else f"-{rung.name}"
    return Prompt(
        id=f"{source_key}/p{rendered.page.number:04d}{suffix}",
        text=rung.prompt,
        image=rendered.pixels,
        page=rendered.pointer,
        mode=rung.mode or job.mode,
        max_crops=job.max_crops or family.crops.default,
        language=job.language,
        sampling=build_sampling(family.sampling, job.sampling.model_dump(exclude_none=True), rung.sampling),
        priority=0 if suffix else 1,
        loop_check=family.is_looping,
        draft=rendered.draft if rung.is_transcript else "",
    )


def _record_attempt(
    before: Checkpoint, rung: Rung, prompt: Prompt, completion: Completion, answer: ParsedPage, reason: Code | None
) -> Checkpoint:
    """Add the attempt of one rung to the page, and replace the page's elements by those of its answer."""
    page = before.page
    attempt = Attempt(rung=rung.name, mode=rung.mode, finish_reason=completion.finish_reason, reason=reason)
    state = State.REPAIRED if reason is None and page.attempts else page.state
    first = page.attempts[0].reason if page.attempts else None
    update = {"attempts": (*page.attempts, attempt), "state": state, "mode": rung.mode, "reason": first}
    return before.model_copy(
        update={
            "page": page.model_copy(update=update),
            "elements": tuple(_add_confidence(element, completion) for element in answer.elements),
            "completions": (*before.completions, to_raw_completion(prompt, completion)),
            "problems": (*before.problems, *list_warnings(answer.flags, page.number, before.problems)),
            "cost": {"engine_s": before.cost.get("engine_s", 0) + completion.seconds},
        }
    )


def _add_confidence(element: Element, completion: Completion) -> Element:
    """Use the mean token probability where there is no other confidence; only with LOGPROBS."""
    if completion.logprob is None or element.confidence is not None:
        return element
    score = round(math.exp(min(completion.logprob, 0.0)), 4)
    return element.model_copy(update={"confidence": Confidence(score=score, method=ConfidenceMethod.LOGPROB)})


def _count_characters(checkpoint: Checkpoint) -> int:
    """The length of an answer's text; of several unusable answers the longest is kept."""
    return sum(len(element.text) for element in checkpoint.elements)


def parse(family: Family, text: str, page: int, rung: Rung, layer: TextLayer) -> ParsedPage:
    """Runs in a page worker: parse one answer with the family's grammar."""
    return family.parse(text, page, rung, layer)


def _find_fault(completion: Completion, answer: ParsedPage) -> Code | None:
    """Why the answer is unusable; None if it is usable."""
    # A loop reaches the token limit, too, and more tokens would not help.
    if completion.finish_reason in INCOMPLETE and answer.reason is not Code.LOOP:
        return INCOMPLETE[completion.finish_reason]
    return answer.reason or (None if answer.elements else Code.EMPTY)


def use_text_layer(checkpoint: Checkpoint, words: TextLayer, reason: Code) -> Checkpoint:
    """The last rung: the PDF's own text, if it has at least as many words as were read. Otherwise the page fails."""
    layer = text_layer.to_paragraph_elements(words, checkpoint.page.number)
    elements = layer if _count_words(layer) >= _count_words(checkpoint.elements) else ()
    state = State.TEXT_LAYER if elements else State.FAILED
    attempts = checkpoint.page.attempts + ((Attempt(rung=TEXT_LAYER_RUNG),) if elements else ())
    page = checkpoint.page.model_copy(update={"state": state, "reason": reason, "attempts": attempts})
    problems = (*checkpoint.problems, _build_problem(page, reason, layer_is_shorter=bool(layer) and not elements))
    update = {"page": page, "elements": elements or checkpoint.elements, "problems": problems}
    return checkpoint.model_copy(update=update)


def _count_words(elements: Sequence[Element]) -> int:
    """Count words to compare answer and text layer: that of a scan may hold only a stamp, fewer than any answer."""
    return sum(len(prose.split_words(element.text)) for element in elements)


def warn_of_unreadable_text(checkpoint: Checkpoint) -> Checkpoint:
    """Add a warning if text was kept that makes no sense; a failed page has an error already."""
    page = checkpoint.page
    if page.is_lost or not any(Flag.UNREADABLE in element.flags for element in checkpoint.elements):
        return checkpoint
    warnings = list_warnings((Flag.UNREADABLE,), page.number)
    return checkpoint.model_copy(update={"problems": (*checkpoint.problems, *warnings)})


def list_warnings(flags: Sequence[Flag], number: int, before: Sequence[Problem] = ()) -> tuple[Problem, ...]:
    """The warnings that the flags of a page stand for, without those that the problems `before` have."""
    known = {problem.code for problem in before}
    warnings = [flag.warning for flag in Flag if flag in flags and flag.warning and flag.warning.code not in known]
    return tuple(
        Problem(code=code, severity=Severity.WARNING, page=number, message=f"page {number}: {message}")
        for code, message in warnings
    )


_EXPLANATIONS = {
    Code.LOOP: "the answer repeats itself; another mode or dpi often helps",
    Code.TRUNCATED: "the answer was cut at the token limit; raise max_tokens or lower dpi",
    Code.EMPTY: "the answer is empty, but the page is not blank; raise dpi or try another mode",
    Code.RENDER_CRASH: "a page worker crashed on it twice",
    Code.ENGINE_CRASH: "the engine crashed on it, the last time while it read nothing else",
    Code.RENDER_TIMEOUT: "it needs more processor time than the limit; raise WORKER_TIMEOUT_S",
    Code.RENDER_MEMORY: "a page worker exceeded its memory limit on it twice; raise WORKER_MEMORY_BYTES or lower dpi",
    Code.DAMAGED: f"the page is damaged; {SAVE_AGAIN}",
    Code.UNGROUNDED: "the answer has no boxes; another mode may help",
    Code.ENGINE_REFUSED: "the engine rejected the prompt; see its log",
    Code.REGIONS_UNREAD: "none of its regions was read; raise dpi, or see the worker's log",
    Code.UNREADABLE_SCRIPT: "a scan in a script that the cpu engine cannot read here: it reads Latin, Chinese and "
    "Japanese; install a language file of Tesseract, such as Debian's tesseract-ocr-kor, or set TESSDATA_DIR",
}


def _build_problem(page: Page, reason: Code, layer_is_shorter: bool) -> Problem:
    uses_layer = page.state is State.TEXT_LAYER
    severity = Severity.WARNING if uses_layer else Severity.ERROR
    otherwise = "; the answer is kept, because the PDF's own text is shorter" if layer_is_shorter else _retry_hint(page)
    next_step = "; the PDF's own text is used" if uses_layer else otherwise
    message = f"page {page.number}: {_EXPLANATIONS.get(reason, 'the answer is unusable')}{next_step}"
    return Problem(code=reason, severity=severity, page=page.number, message=message)


def unread_page(number: int, reason: Code, message: str) -> Checkpoint:
    """The checkpoint of a page that was not read completely. It is never stored, so that the next job reads it."""
    return failed_page(number, reason, f"page {number}: {message}", State.UNREAD)


def failed_page(number: int, reason: Code, message: str, state: State = State.FAILED) -> Checkpoint:
    """The checkpoint of a page without elements; `reason` and `message` say why it was not read."""
    page = Page(number=number, width_pt=0, height_pt=0, state=state, reason=reason)
    return Checkpoint(page=page, problems=(Problem(code=reason, page=number, message=message + _retry_hint(page)),))


def _retry_hint(page: Page) -> str:
    return f"; {SEND_AGAIN} to retry this page" if page.is_transient_failure else ""
