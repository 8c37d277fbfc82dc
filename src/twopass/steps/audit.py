"""The audit: compare a page with its answer after pass 2, and report what was lost.

Every engine's pages end here. Findings that earlier steps recorded are kept, those that show in the page are added, and
the problems of the page follow from them: a step that finds a loss records it and writes no message of its own.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType

from twopass.document import (
    Checkpoint,
    Element,
    Finding,
    FindingKind,
    Flag,
    PageAudit,
    Problem,
    RawCompletion,
    RungName,
    State,
)
from twopass.document.audit import MAX_WORDS
from twopass.errors import Code
from twopass.families import word_account
from twopass.families.interface import Rung
from twopass.job import Task
from twopass.pages.text_layer import TextLayer
from twopass.steps import fallback, missed_text, picture_text, unseen
from twopass.steps.page_context import PageContext
from twopass.text import prose, unknown_characters

# What an element's flags say about its contents. The first that an element has decides.
_KINDS: Mapping[Flag, FindingKind] = MappingProxyType(
    {
        Flag.UNREAD_REGION: FindingKind.REGION_UNREAD,
        Flag.CUT_OFF: FindingKind.ANSWER_CUT,
        Flag.LOOP: FindingKind.ANSWER_LOOPED,
        Flag.REPETITION_CUT: FindingKind.ANSWER_LOOPED,
        Flag.FROM_TEXT_LAYER: FindingKind.REGION_FROM_LAYER,
        Flag.UNREADABLE: FindingKind.TEXT_UNREADABLE,
        Flag.MIXED_COLUMNS: FindingKind.COLUMNS_MIXED,
    }
)
_CUT = frozenset({Flag.CUT_OFF, Flag.LOOP, Flag.REPETITION_CUT})
_WITH_ANSWER = frozenset({State.READ, State.REPAIRED})  # the page shows what an answer says
_KINDS_BY_CODE = MappingProxyType({kind.code: kind for kind in FindingKind if kind.is_loss})


async def complete(page: PageContext, first: Checkpoint, second: Checkpoint) -> Checkpoint:
    """The page with its audit and the problems that follow; `first` and `second` are what the passes made of it.

    A page of which nothing was read ends as one without a usable answer. Raises WorkerDied.
    """
    asked = {element.id for element in first.elements if Flag.UNREAD_REGION in element.flags}
    ended = await missed_text.add_rest(page, await _end_unread(page, second, asked))
    ended = await picture_text.read(page, ended)
    ended = ended.with_findings(list(_find_lost_words(page, first, ended)))
    ended = await unseen.flag_blank(page, ended)
    ended = unseen.add(ended, page.rendered.unseen, page.rendered.words)
    again = sum(element.read_by == 2 for element in ended.elements)
    ended, found = _resolve_characters(ended)
    audit = _audit(ended, page.rendered.words).with_findings(found)
    return _report(_with_audit(ended, audit.model_copy(update={"regions": len(asked), "read_again": again})))


def complete_unrendered(checkpoint: Checkpoint, words: TextLayer) -> Checkpoint:
    """The same for a page that cannot be rendered: no pass has read it, and it shows the text layer's `words`."""
    checkpoint, found = _resolve_characters(checkpoint)
    return _report(_with_audit(checkpoint, _audit(checkpoint, words).with_findings(found)))


def restore(checkpoint: Checkpoint) -> Checkpoint:
    """The page with an audit, if an earlier version stored it without one: from its flags and problems."""
    return checkpoint if checkpoint.page.audit else _with_audit(checkpoint, _audit(checkpoint))


def _audit(page: Checkpoint, words: TextLayer | None = None) -> PageAudit:
    """What the page, its flags and its problems show, in addition to what was recorded."""
    recorded = page.page.audit or PageAudit()
    known = {finding.element for finding in recorded.findings if finding.kind is not FindingKind.TEXT_MISSED}
    audit = recorded.with_findings(
        [
            Finding(kind=kind, element=element.id, box=element.box, said=_measure_cut(page, element, kind))
            for element in page.elements
            if element.id not in known and (kind := _find_kind(element))
        ]
    )
    audit = audit.with_findings(list(_find_reported(page, audit)))
    seen = _count_words(words.texts) if words else None
    read = _count_words(text for element in page.elements if not element.is_hidden for text in element.texts)
    return audit.model_copy(update={"words_seen": seen, "words_read": read})


def _resolve_characters(page: Checkpoint) -> tuple[Checkpoint, list[Finding]]:
    elements, findings = unknown_characters.resolve(page.elements)
    return page.model_copy(update={"elements": tuple(elements)}), findings


def _find_kind(element: Element) -> FindingKind | None:
    """What an element's flags say about its contents; None if they are complete."""
    if element.is_unread_ink:
        return FindingKind.LINES_LEFT_OUT if Flag.LACKS_LINES in element.flags else FindingKind.UNREAD_INK
    return next((kind for flag, kind in _KINDS.items() if flag in element.flags), None)


def _find_reported(page: Checkpoint, audit: PageAudit) -> Iterator[Finding]:
    """The losses that are only known by the page's problems. Why no answer could be used is none if there is text."""
    if page.page.is_lost:
        return
    found = {finding.kind.code for finding in audit.findings}
    if page.page.state is State.TEXT_LAYER and page.page.reason:
        found.add(page.page.reason)
    for problem in page.problems:
        if (kind := _KINDS_BY_CODE.get(problem.code)) and problem.code not in found:
            yield Finding(kind=kind)


def _count_words(texts: Iterable[str]) -> int:
    return sum(len(prose.split_words(text)) for text in texts)


def _measure_cut(page: Checkpoint, element: Element, kind: FindingKind) -> str | None:
    """How much of an answer is shown that was cut or repeated itself; None for other kinds, or without the answer."""
    own = [answer for answer in page.completions if _find_element(answer) == element.id] or page.completions[:1]
    if kind not in (FindingKind.ANSWER_CUT, FindingKind.ANSWER_LOOPED) or not own:
        return None
    length = len(own[-1].text)
    if kind is FindingKind.ANSWER_CUT:
        return f"it ends after {length} characters"
    shown = element.table.html if element.table else element.text
    return f"{max(length - len(shown), 0)} of its {length} characters were left out"


# ---- words of an answer ----------------------------------------------------------------------------


def _find_lost_words(page: PageContext, first: Checkpoint, second: Checkpoint) -> Iterator[Finding]:
    """Find the words of the answers in use that are in no element.

    An answer of pass 2 may have words of its neighbours: those of its words are lost that no element of the page has.
    What is cut from repetitions, and what pass 2 replaced by a better reading, is not counted here.
    """
    if page.job.task is not Task.DOCUMENT or second.page.state not in _WITH_ANSWER:
        return
    if first.completions and not Rung(RungName.NORMAL, first.completions[-1].prompt).detects:
        yield from _report_lost(page.family.account(first.completions[-1].text, first.elements).lost)
    again = [element for element in second.elements if element.read_by == 2 and not element.is_figure]
    answers: dict[str, list[str]] = defaultdict(list)
    for answer in second.completions[len(first.completions) :]:
        answers[_find_element(answer)].append(answer.text)
    for element in again:
        if _CUT.isdisjoint(element.flags) and (texts := answers[element.id]):
            lost = min((page.family.account(text, [element]).lost for text in texts), key=len)
            yield from _report_lost(word_account.drop_known(lost, second.elements), element)


def _report_lost(words: Sequence[str], element: Element | None = None) -> Iterator[Finding]:
    if words:
        place = {"element": element.id, "box": element.box} if element else {}
        yield Finding(kind=FindingKind.WORDS_LOST, count=len(words), words=tuple(words[:MAX_WORDS]), **place)


def _find_element(answer: RawCompletion) -> str:
    """The id of the element that an answer is about; further answers about it have a number behind the id."""
    return "-".join(answer.prompt_id.rpartition("/")[2].split("-")[:2])


def _with_audit(checkpoint: Checkpoint, audit: PageAudit) -> Checkpoint:
    return checkpoint.model_copy(update={"page": checkpoint.page.model_copy(update={"audit": audit})})


def _report(page: Checkpoint) -> Checkpoint:
    """Add a warning for each kind of finding whose code no problem of the page has; a lost page has its error."""
    audit, known = page.page.audit, {problem.code for problem in page.problems}
    if audit is None or page.page.is_lost:
        return page
    return page.with_problems(
        Problem.warning(page.page.number, kind.code, audit.explain(kind))
        for kind in FindingKind
        if kind.code not in known and audit.count(kind)
    )


# ---- detected regions without text -----------------------------------------------------------------


async def _end_unread(page: PageContext, second: Checkpoint, asked: set[str]) -> Checkpoint:
    """End a page of which no region was read: with its text layer, or failed.

    If it shows no line of script, its regions were mistaken for text, and it keeps its pictures; if the detector found
    none, the page is one picture.
    """
    failed = [element for element in second.elements if element.id in asked and _is_unread(element)]
    others = [element for element in second.elements if element not in failed]
    if second.page.is_lost or not failed or any(map(_has_content, others)):
        return second
    reason = _find_reason(second, failed)
    if reason is Code.REGIONS_UNREAD and not page.rendered.words and (picture := await page.find_picture()):
        return _keep_pictures(second, picture, failed)
    return fallback.warn_of_unreadable_text(fallback.use_text_layer(second, page.rendered.words, reason))


def _keep_pictures(page: Checkpoint, picture: Element, failed: Sequence[Element]) -> Checkpoint:
    """The page with its pictures, and with `picture` as its only element if it has none."""
    kind, has_figures = FindingKind.REGION_WITHOUT_TEXT, any(element.is_figure for element in page.elements)
    page = page.with_findings(
        [Finding(kind=kind, element=region.id if has_figures else None, box=region.box) for region in failed]
    )
    if has_figures:
        return page
    warnings = fallback.list_warnings(picture.flags, page.page.number)
    return page.model_copy(update={"elements": (picture,)}).with_problems(warnings)


def _is_unread(element: Element) -> bool:
    return not {Flag.UNREAD_REGION, Flag.FROM_TEXT_LAYER}.isdisjoint(element.flags)


def _has_content(element: Element) -> bool:
    """Whether anything of the element was read, also what a picture shows."""
    figure = element.figure
    return bool(element.text or element.table or (figure and (figure.data or figure.description)))


def _find_reason(page: Checkpoint, failed: Sequence[Element]) -> Code:
    """Why nothing was read: the engine crashed on a region or rejected all of them, or its answers had no text."""
    names = (completion.prompt_id.rpartition("/")[2] for completion in page.completions)
    pairs = zip(names, page.completions, strict=True)
    regions = tuple(element.id for element in failed)
    reasons = {completion.finish_reason for name, completion in pairs if name.startswith(regions)}
    if "crash" in reasons:
        return Code.ENGINE_CRASH
    return Code.ENGINE_REFUSED if reasons == {"error"} else Code.REGIONS_UNREAD
