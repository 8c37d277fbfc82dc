"""How a page ends that no answer describes: with the PDF's own text or failed; and the warnings of pages."""

from __future__ import annotations

from collections.abc import Sequence

from twopass.document import Attempt, Checkpoint, Element, Flag, Page, Problem, RungName, Severity, State
from twopass.errors import Code
from twopass.pages import text_layer
from twopass.pages.source_files import SAVE_AGAIN
from twopass.pages.text_layer import TextLayer
from twopass.runtime.shutdown import SEND_AGAIN
from twopass.text import prose


def use_text_layer(checkpoint: Checkpoint, words: TextLayer, reason: Code) -> Checkpoint:
    """The last rung: the PDF's own text, if it has at least as many words as were read. Otherwise the page fails."""
    layer = text_layer.to_paragraph_elements(words, checkpoint.page.number)
    elements = layer if _count_words(layer) >= _count_words(checkpoint.elements) else ()
    state = State.TEXT_LAYER if elements else State.FAILED
    attempts = checkpoint.page.attempts + ((Attempt(rung=RungName.TEXT_LAYER),) if elements else ())
    page = checkpoint.page.model_copy(update={"state": state, "reason": reason, "attempts": attempts})
    cut = _measure_cut(checkpoint, () if elements else checkpoint.elements, reason)
    problems = (*checkpoint.problems, _build_problem(page, reason, bool(layer) and not elements, cut))
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
    return checkpoint.with_problems(list_warnings((Flag.UNREADABLE,), page.number))


def list_warnings(flags: Sequence[Flag], number: int, before: Sequence[Problem] = ()) -> tuple[Problem, ...]:
    """The warnings that the flags of a page stand for, without those that the problems `before` have."""
    known = {problem.code for problem in before}
    warnings = [flag.warning for flag in Flag if flag in flags and flag.warning and flag.warning.code not in known]
    return tuple(Problem.warning(number, *warning) for warning in warnings)


_EXPLANATIONS = {
    Code.LOOP: "the answer repeats itself; another mode or dpi often helps",
    Code.TRUNCATED: "the answer was cut at the token limit; raise max_tokens or lower dpi",
    Code.EMPTY: "the answer is empty, but the page is not blank; raise dpi or try another mode",
    Code.RENDER_CRASH: "a page worker crashed on it twice",
    Code.ENGINE_CRASH: "the engine crashed on it, the last time while it read nothing else",
    Code.RENDER_TIMEOUT: "it needs more processor time than the limit; raise WORKER_TIMEOUT_S",
    Code.RENDER_MEMORY: "a page worker exceeded its memory limit on it twice; raise WORKER_MEMORY_BYTES or lower dpi",
    Code.DAMAGED: f"the page is damaged; {SAVE_AGAIN}",
    Code.CONTENT_LOST: f"the page is damaged, and nothing of it is drawn; {SAVE_AGAIN}",
    Code.UNGROUNDED: "the answer has no boxes; another mode may help",
    Code.ENGINE_REFUSED: "the engine rejected the prompt; see its log",
    Code.REGIONS_UNREAD: "none of its regions was read; raise dpi, or see the worker's log",
    Code.UNREADABLE_SCRIPT: "it shows writing that the cpu engine cannot read here; if it is small, blurred or "
    "handwritten, raise dpi or scan it again; if it is in a script other than Latin, Chinese or Japanese, install its "
    "language file of Tesseract, such as Debian's tesseract-ocr-tha for Thai, or set TESSDATA_DIR",
}


def _measure_cut(checkpoint: Checkpoint, kept: Sequence[Element], reason: Code) -> str:
    """How much of the answer is shown that was cut or repeats itself; "" for other reasons."""
    if reason not in (Code.LOOP, Code.TRUNCATED) or not checkpoint.completions:
        return ""
    shown = sum(len(element.text) for element in kept)
    length = max(shown, *(len(answer.text) for answer in checkpoint.completions))
    return f" (of {length} characters, {length - shown} are left out)"


def _build_problem(page: Page, reason: Code, layer_is_shorter: bool, cut: str) -> Problem:
    uses_layer = page.state is State.TEXT_LAYER
    severity = Severity.WARNING if uses_layer else Severity.ERROR
    otherwise = "; the answer is kept, because the PDF's own text is shorter" if layer_is_shorter else _retry_hint(page)
    next_step = "; the PDF's own text is used" if uses_layer else otherwise
    message = f"page {page.number}: {_EXPLANATIONS.get(reason, 'the answer is unusable')}{cut}{next_step}"
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
