"""Pass 1: read a page into elements with boxes, going down the ladder of fallbacks while an answer is unusable."""

from __future__ import annotations

import math

from twopass.document import Attempt, Checkpoint, Confidence, ConfidenceMethod, Element, RungName, State
from twopass.engines.interface import Completion
from twopass.errors import Code, SourceError, WorkerDied
from twopass.families.interface import Family, PageFeatures, PageRequest, ParsedPage, Rung
from twopass.job import Task
from twopass.pages.rendered_page import RenderedPage
from twopass.pages.text_layer import TextLayer
from twopass.runtime import retry
from twopass.steps import fallback
from twopass.steps.page_context import Answer, PageContext

INCOMPLETE = {
    "length": Code.TRUNCATED,
    "loop": Code.LOOP,
    "abort": Code.TRUNCATED,
    "error": Code.ENGINE_REFUSED,
    "crash": Code.ENGINE_CRASH,
}


async def read(page: PageContext, last_try: bool = False) -> Checkpoint:
    """Read the page with the first usable answer; pages that show nothing are not sent to the engine.

    If no answer is usable, or a page worker dies on the last try or for lack of time, the PDF's own text is used.
    Raises EngineError, and WorkerDied on earlier tries.
    """
    rendered = page.rendered
    try:
        checkpoint = await _try_rungs(page)
    except (WorkerDied, SourceError) as error:
        if retry.is_worker_death(error) and not last_try:
            raise
        checkpoint = Checkpoint(page=rendered.page, problems=rendered.problems)
        checkpoint = fallback.use_text_layer(checkpoint, rendered.words, error.code)
    return fallback.warn_of_unreadable_text(checkpoint)


async def _try_rungs(page: PageContext) -> Checkpoint:
    rendered = page.rendered
    checkpoint = Checkpoint(page=rendered.page, problems=rendered.problems)
    if rendered.page.state is not State.READ:  # it shows nothing, and a model would invent an answer
        return checkpoint
    if rendered.is_undrawn and page.family.canary:
        return fallback.use_text_layer(checkpoint, rendered.words, Code.CONTENT_LOST)
    best: Checkpoint | None = None
    for rung in page.family.ladder(_measure(rendered), PageRequest(page.job.mode, page.job.task, page.job.prompt)):
        answer = await _ask(page, rung)
        text = answer.completion.text
        parsed = await page.page_pool.call(parse, page.family, text, page.number, rung, rendered.words)
        reason = _find_fault(answer.completion, parsed)
        if reason is Code.EMPTY and page.job.task is Task.DOCUMENT and not rendered.words:
            picture = await page.find_picture()
            parsed = ParsedPage((picture,), flags=picture.flags) if picture else parsed
            reason = _find_fault(answer.completion, parsed)
        checkpoint = _record_attempt(checkpoint, rung, answer, parsed, reason)
        if reason is None:
            return checkpoint
        best = max(best or checkpoint, checkpoint, key=_count_characters)
        if answer.completion.finish_reason == "crash" and not rung.detects:
            break  # the same page on another rung would crash the next engine, too; a detector is another process
    first_reason = checkpoint.page.attempts[0].reason
    assert best and first_reason
    checkpoint = checkpoint.model_copy(update={"elements": best.elements})
    return fallback.use_text_layer(checkpoint, rendered.words, first_reason)


def _measure(rendered: RenderedPage) -> PageFeatures:
    pixels = rendered.pixels
    return PageFeatures(pixels.width, pixels.height, rendered.ink, sum(map(len, rendered.words.texts)))


async def _ask(page: PageContext, rung: Rung) -> Answer:
    """Ask about the page; the ids of fallback rungs end with the rung's name."""
    rendered, suffix = page.rendered, "" if rung.name is RungName.NORMAL else f"-{rung.name}"
    name, priority = f"p{page.number:04d}{suffix}", 0 if suffix else 1
    return await page.ask(name, rung, rendered.pixels, rendered.draft, page=rendered.pointer, priority=priority)


def _record_attempt(
    before: Checkpoint, rung: Rung, answer: Answer, parsed: ParsedPage, reason: Code | None
) -> Checkpoint:
    """Add the attempt of one rung to the page, and replace the page's elements by those of its answer."""
    page, completion = before.page, answer.completion
    attempt = Attempt(rung=rung.name, mode=rung.mode, finish_reason=completion.finish_reason, reason=reason)
    state = State.REPAIRED if reason is None and page.attempts else page.state
    first = page.attempts[0].reason if page.attempts else None
    update = {"attempts": (*page.attempts, attempt), "state": state, "mode": rung.mode, "reason": first}
    warnings = fallback.list_warnings(parsed.flags, page.number, before.problems)
    return before.model_copy(
        update={
            "page": page.model_copy(update=update),
            "elements": tuple(_add_confidence(element, completion) for element in parsed.elements),
            "completions": (*before.completions, answer.recorded),
            "problems": (*before.problems, *warnings, *answer.problems),
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
    """In a page worker: parse one answer with the family's grammar."""
    return family.parse(text, page, rung, layer)


def _find_fault(completion: Completion, parsed: ParsedPage) -> Code | None:
    """Why the answer is unusable; None if it is usable."""
    # A loop reaches the token limit, too, and more tokens would not help.
    if completion.finish_reason in INCOMPLETE and parsed.reason is not Code.LOOP:
        return INCOMPLETE[completion.finish_reason]
    return parsed.reason or (None if parsed.elements else Code.EMPTY)
