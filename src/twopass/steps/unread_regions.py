"""After pass 2: warn of detected regions that were not or only partly read, and fail a page of which nothing was."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from twopass.document import Checkpoint, Element, Flag, Problem, Severity
from twopass.errors import Code
from twopass.pages import picture_page
from twopass.pages.rendered_page import RenderedPage
from twopass.runtime.page_pool import PagePool
from twopass.steps import pass1

# A code, the flags of elements whose answers ended in this way, and what to do.
_CUTS = (
    (
        Code.TRUNCATED,
        {Flag.CUT_OFF},
        "were cut at the token limit, text may be missing; raise sampling.max_tokens",
    ),
    (Code.LOOP, {Flag.LOOP, Flag.REPETITION_CUT}, "repeat themselves; the repetition was cut, and text may be missing"),
)


class _Failed(NamedTuple):
    """The regions whose text the model did not give: those without any, and those with the text layer's."""

    unread: tuple[Element, ...]
    from_layer: tuple[Element, ...]

    @property
    def ids(self) -> set[str]:
        return {element.id for element in (*self.unread, *self.from_layer)}


async def report(first: Checkpoint, second: Checkpoint, rendered: RenderedPage, page_pool: PagePool) -> Checkpoint:
    """Return the page after both passes with warnings of unread and cut regions; `first` is the page before pass 2.

    A page of which nothing was read ends as one without a usable answer: with its text layer, or failed. If it shows
    no line of script, its regions were mistaken for text, and it keeps its pictures. Raises WorkerDied.
    """
    asked = {element.id for element in first.elements if Flag.UNREAD_REGION in element.flags}
    second = _warn_of_cuts(second, asked)
    failed = _find_failed(asked, second.elements)
    if first.page.is_lost or not failed.ids:
        return second
    if any(_has_content(element) for element in second.elements if element.id not in failed.ids):
        return _warn(second, failed, len(asked))
    reason = _find_reason(second, failed)
    if reason is Code.REGIONS_UNREAD and not rendered.words:
        picture = await page_pool.call(picture_page.find_picture, rendered.pixels, second.page.number)
        if picture:
            return _keep_pictures(second, picture, failed, len(asked))
    return pass1.warn_of_unreadable_text(pass1.use_text_layer(second, rendered.words, reason))


def _warn_of_cuts(page: Checkpoint, asked: set[str]) -> Checkpoint:
    """The page with a warning for each way in which answers about regions ended too early."""
    regions = [element for element in page.elements if element.id in asked]
    number, problems = page.page.number, []
    for code, flags, what in _CUTS:
        if count := sum(bool(flags & set(element.flags)) for element in regions):
            message = f"page {number}: {count} of {len(asked)} regions {what}"
            problems.append(Problem(code=code, severity=Severity.WARNING, page=number, message=message))
    return page.model_copy(update={"problems": (*page.problems, *problems)}) if problems else page


def _find_failed(asked: set[str], elements: Sequence[Element]) -> _Failed:
    regions = [element for element in elements if element.id in asked]
    return _Failed(
        tuple(element for element in regions if Flag.UNREAD_REGION in element.flags),
        tuple(
            element
            for element in regions
            if Flag.UNREAD_REGION not in element.flags and Flag.FROM_TEXT_LAYER in element.flags
        ),
    )


def _has_content(element: Element) -> bool:
    """Whether anything of the element was read, also what a picture shows."""
    figure = element.figure
    return bool(element.text or element.table or (figure and (figure.data or figure.description)))


def _find_reason(page: Checkpoint, failed: _Failed) -> Code:
    """Why nothing was read: the engine crashed on a region or rejected all of them, or its answers had no text."""
    names = (completion.prompt_id.rpartition("/")[2] for completion in page.completions)
    pairs = zip(names, page.completions, strict=True)
    reasons = {completion.finish_reason for name, completion in pairs if name.startswith(tuple(failed.ids))}
    if "crash" in reasons:
        return Code.ENGINE_CRASH
    return Code.ENGINE_REFUSED if reasons == {"error"} else Code.REGIONS_UNREAD


def _warn(page: Checkpoint, failed: _Failed, count: int) -> Checkpoint:
    number = page.page.number
    shown = f"; {len(failed.from_layer)} of them show the PDF's own text" if failed.from_layer else ""
    message = (
        f"page {number}: {len(failed.ids)} of {count} regions were not read{shown}; check them, and raise dpi if they "
        "show text"
    )
    problem = Problem(code=Code.REGIONS_UNREAD, severity=Severity.WARNING, page=number, message=message)
    return page.model_copy(update={"problems": (*page.problems, problem)})


def _keep_pictures(page: Checkpoint, picture: Element, failed: _Failed, count: int) -> Checkpoint:
    """The page with its pictures; if the detector found none, the page is one picture."""
    page = _warn(page, failed, count)
    if any(element.is_figure for element in page.elements):
        return page
    warnings = pass1.list_warnings(picture.flags, page.page.number)
    return page.model_copy(update={"elements": (picture,), "problems": (*page.problems, *warnings)})
