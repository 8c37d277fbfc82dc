"""Add to a page what only its text layer has: hidden text, and text in fonts that draw nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from twopass.document import Box, Checkpoint, Element, Finding, FindingKind, Flag, Kind, Layer, Word
from twopass.document.audit import MAX_WORDS
from twopass.pages import text_layer
from twopass.pages.hidden_words import Reason, Unseen, find_blank
from twopass.pages.text_layer import TextLayer
from twopass.steps.page_context import PageContext
from twopass.text import prose
from twopass.text.confidence import judge_undrawn

_MARGIN = 0.004  # of the page, around the boxes of an element that may hold a word


def add(page: Checkpoint, unseen: Unseen, layer: TextLayer) -> Checkpoint:
    """The page with what cannot be seen, as elements and findings; `layer` has the words that can be seen."""
    if page.page.is_lost or unseen == Unseen():
        return page
    page = _add_undrawn(page, unseen.undrawn)
    hidden = list(_group_hidden(unseen))
    elements = _build(page, [words for _, words in hidden], Flag.HIDDEN_TEXT)
    elements = [element.model_copy(update={"content_layer": Layer.INVISIBLE}) for element in elements]
    findings = [
        Finding(
            kind=FindingKind.HIDDEN_TEXT, count=len(words), element=element.id, box=element.box, said=str(reason)
        )  # without the words: a problem's message may reach a model, for which they may be meant
        for element, (reason, words) in zip(elements, hidden, strict=True)
    ]
    findings += [_report_redaction(box, layer) for box in unseen.redactions]
    if unseen.lying:  # without the words, which are wrong
        findings.append(Finding(kind=FindingKind.FONT_WRONG, count=len(unseen.lying)))
    return page.model_copy(update={"elements": (*page.elements, *elements)}).with_findings(findings)


async def flag_blank(page: PageContext, checkpoint: Checkpoint) -> Checkpoint:
    """The page with a flag on each text of a model whose box shows nothing: it is invented, or stands elsewhere.

    Raises WorkerDied.
    """
    texts = [element for element in checkpoint.elements if element.text and element.boxes and not element.is_hidden]
    if page.family.canary is None or not texts or page.rendered.unseen.undrawn:
        return checkpoint
    boxes = [box for element in texts if (box := element.box)]
    blank = set(await page.page_pool.call(find_blank, page.rendered.pixels, boxes))
    flagged = {texts[index].id for index in blank}
    elements = (one.with_flags(Flag.NO_INK) if one.id in flagged else one for one in checkpoint.elements)
    return checkpoint.model_copy(update={"elements": tuple(elements)}) if flagged else checkpoint


def _group_hidden(unseen: Unseen) -> Iterator[tuple[Reason, Sequence[Word]]]:
    """Yield the paragraphs of hidden words that have one reason."""
    pairs = zip(unseen.reasons, unseen.hidden, strict=True)
    for reason, group in groupby(pairs, key=lambda pair: pair[0]):
        for paragraph in text_layer.split_paragraphs([word for _, word in group]):
            yield reason, paragraph


def _add_undrawn(page: Checkpoint, undrawn: TextLayer) -> Checkpoint:
    """The page with all words of fonts that draw nothing: engines that read the layer have them, models do not."""
    if not undrawn:
        return page
    elements = [_doubt(element) if undrawn.inside(element.boxes, _MARGIN) else element for element in page.elements]
    known = {word for element in elements for text in element.texts for word in prose.split_words(text)}
    lost = [word for word in undrawn if not known.issuperset(prose.split_words(word.text))]
    new = map(_doubt, _build(page, text_layer.split_paragraphs(lost), Flag.NOT_DRAWN))
    finding = Finding(kind=FindingKind.TEXT_NOT_DRAWN, count=len(undrawn), words=undrawn.texts[:MAX_WORDS])
    return page.model_copy(update={"elements": (*elements, *new)}).with_findings([finding])


def _doubt(element: Element) -> Element:
    return element.model_copy(update={"confidence": judge_undrawn(element.confidence)}).with_flags(Flag.NOT_DRAWN)


def _build(page: Checkpoint, paragraphs: Sequence[Sequence[Word]], flag: Flag) -> list[Element]:
    element = Element(id="", page=page.page.number, category=Kind.TEXT.category, kind=Kind.TEXT, flags=(flag,))
    pairs = zip(paragraphs, page.iterate_free_ids(), strict=False)
    return [text_layer.fill(element, paragraph, element_id) for paragraph, element_id in pairs]


def _report_redaction(box: Box, layer: TextLayer) -> Finding:
    words = tuple(layer.inside([box]).split()[:MAX_WORDS])
    return Finding(kind=FindingKind.REDACTION_PENDING, box=box, words=words)
