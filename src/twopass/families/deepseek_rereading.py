"""Pass 2 of DeepSeek-OCR: an element and its replies in, the next prompt or the element that stands out.

What is asked: a table is told again as a document (it comes as HTML), a picture is parsed and, where that gives no
data, described; formulas and doubtful text are read without boxes. Which reading stands:

| the reply | the element | stands | flag |
|---|---|---|---|
| is cut off, or repeats itself | any | pass 1 | pass2_cut, pass2_loop |
| says nothing (a table's: has no table) | any | pass 1 | pass2_empty |
| says something | had nothing to say | pass 2 | |
| says something | the text layer has words there | what agrees more with them, of equals pass 1 | |
| agrees (0.9), or has all words of pass 1 | no layer | pass 2: it was nearer | |
| differs, with fewer signs of a bad reading | no layer | pass 2 | pass2_disagrees |
| differs | no layer | pass 1 | pass2_disagrees |

So nothing that pass 1 read is lost to a worse reading; both raw answers are in the checkpoint. `confidence` is how
far both agree. Knows elements and replies. Knows nothing of engines, crops or pages.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from twopass import words
from twopass.document import Analysis, Confidence, Element, Figure, Kind, Source, Table
from twopass.families import agreement, deepseek_elements, figures, grounding, loops, witness, written_table
from twopass.families import deepseek_prose as prose
from twopass.families.seam import Reply

LEAST_SIDE = 20  # pixels of a crop, padding included: less shows a rule or a dot
AGREE = 0.9
KEEPS, LONGER, SLACK = 0.95, 3, 20  # has all of the other's words, and is not many times as long
CLEARLY = 0.02  # more agreement with the layer than the other reading has
LAYER_WORDS = 3
SUMMED = 3  # sentences of a description
# Signs of pass 1's bad reading, gone with it.
_ANSWERED = frozenset({witness.DOUBTFUL, "no_text", "replacement_characters", "mixed_scripts", "not_in_text_layer"})


def next_prompt(
    element: Element, everything: bool, size: tuple[int, int], replies: Sequence[Reply], knows_figures: bool
) -> str | None:
    """The name of the prompt to ask next, None when no more is wanted."""
    if min(size) < LEAST_SIDE:
        return None
    if element.is_figure and knows_figures:
        return _of_figure(replies)
    if replies:
        return None
    if element.kind is Kind.TABLE:
        return "document"
    wanted = everything or element.kind is Kind.FORMULA or element.is_figure or witness.DOUBTFUL in element.flags
    return "free" if wanted else None


def _of_figure(replies: Sequence[Reply]) -> str | None:
    if not replies:
        return "figure"
    data = len(replies) == 1 and not failure(replies[0]) and figures.parsed(grounding.plain(replies[0].text))
    return "describe" if len(replies) == 1 and not data else None


def reread(element: Element, replies: Sequence[Reply]) -> Element:
    """The element after pass 2."""
    if not replies:
        return element
    if element.is_figure:
        return _seen(element, replies)
    reply = replies[-1]
    return _table(element, reply) if element.kind is Kind.TABLE else _text(element, reply)


def failure(reply: Reply) -> str | None:
    """The flag of a reply that cannot stand, whatever it says."""
    if reply.finish_reason == "loop" or loops.looping(reply.text):
        return "pass2_loop"
    if reply.finish_reason != "stop":
        return "pass2_cut"
    return None if grounding.plain(reply.text).strip() else "pass2_empty"


def flagged(element: Element, *flags: str) -> Element:
    return element.model_copy(update={"flags": tuple(dict.fromkeys((*element.flags, *flags)))})


class Verdict(NamedTuple):
    """Which pass stands, how far both agree, and what to say about it."""

    read_by: int
    score: float
    flags: tuple[str, ...] = ()


def judged(first: str, second: str, layer: str | None) -> Verdict:
    """The table above, for two readings that both say something or where the first says nothing."""
    score = agreement.similarity(first, second)
    differs = ("pass2_disagrees",) if score < AGREE else ()
    if not first.strip():
        return Verdict(2, score)
    if layer and len(words.words(layer)) >= LAYER_WORDS:
        better = agreement.agrees(second, layer) - agreement.agrees(first, layer) > CLEARLY
        return Verdict(2 if better else 1, score, differs)
    if score >= AGREE or _keeps(first, second):
        return Verdict(2, score)
    cleaner = len(list(witness.giveaways(second))) < len(list(witness.giveaways(first)))
    return Verdict(2 if cleaner else 1, score, differs)


def _keeps(first: str, second: str) -> bool:
    return (agreement.known(first, second) or 0.0) >= KEEPS and len(second) <= LONGER * len(first) + SLACK


def _text(element: Element, reply: Reply) -> Element:
    """Running text, headings, formulas and code."""
    if why := failure(reply):
        return flagged(element, why)
    again = deepseek_elements.told(element, _said(reply.text))
    if not again.text:
        return flagged(element, "pass2_empty")
    layer = None if element.kind is Kind.FORMULA else reply.layer  # a layer spells maths otherwise
    return standing(element, again, judged(_content(element), _content(again), layer), reply)


def _content(element: Element) -> str:
    """What two readings are compared by: a formula's LaTeX, all else's text."""
    return (element.formula and element.formula.latex) or element.text


def _said(text: str) -> str:
    """A reply without tags, where it has some all the same."""
    return prose.cleaned("\n\n".join(block.content.strip() for block in grounding.read(text).blocks))


def _table(element: Element, reply: Reply) -> Element:
    if why := failure(reply):
        return flagged(element, why)
    table = _first_table(reply.text)
    if table is None or not written_table.words(table):
        return flagged(element, "pass2_empty")
    again = deepseek_elements.told(element, "", table)
    verdict = judged(element.text, again.text, reply.layer)
    if verdict.read_by == 1 and element.table is None:  # its words, and no cells: a table it must be
        verdict = verdict._replace(read_by=2)
    return standing(element, again, verdict, reply)


def _first_table(text: str) -> Table | None:
    contents = (block.content for block in grounding.read(text).blocks)
    found = (part.table for content in contents for part in written_table.parts(content) if part.table)
    return next(found, None)


def standing(first: Element, second: Element, verdict: Verdict, reply: Reply) -> Element:
    """The element whose reading stands, with who read it and how sure that is."""
    stands = second if verdict.read_by == 2 else first
    kept = tuple(flag for flag in first.flags if verdict.read_by == 1 or flag not in _ANSWERED)
    update = {
        "read_by": verdict.read_by,
        "analysis": Analysis(source=Source.MODEL, prompt=reply.prompt),
        "confidence": Confidence(score=verdict.score, method="agreement"),
        "flags": kept,
    }
    doubts = witness.giveaways(stands.text) if verdict.read_by == 2 else ()
    return flagged(stands.model_copy(update=update), *doubts, *verdict.flags)


def _seen(element: Element, replies: Sequence[Reply]) -> Element:
    """A picture with what was read out of it; a failed reply only leaves its flag."""
    known = element
    for reply in replies:
        why = failure(reply)
        known = flagged(known, why) if why else _with(known, reply)
    return known


def _with(element: Element, reply: Reply) -> Element:
    """One reply more. Data stands whatever follows; a description decides only where there is no data."""
    said = prose.cleaned(grounding.plain(reply.text))
    seen = figures.parsed(said)
    if seen is None and "Describe" not in reply.prompt:
        return _labelled(element, said, reply.prompt)
    seen = seen or figures.described(said)
    found = seen.figure.model_copy(update={"visible_text": (element.figure or Figure()).visible_text})
    update: dict[str, object] = {
        "kind": seen.kind,
        "category": seen.category,
        "figure": found,
        "analysis": Analysis(source=Source.MODEL, prompt=reply.prompt),
        "read_by": 2,
    }
    if seen.figure.description:
        update["summary"] = words.close_up(words.sentences(words.plain(said))[:SUMMED]) or None
    if seen.figure.data and reply.layer:
        share = agreement.known(written_table.words(seen.figure.data), reply.layer)
        update["confidence"] = Confidence(score=share, method="text_layer") if share is not None else element.confidence
    return element.model_copy(update=update)


def _labelled(element: Element, said: str, prompt: str) -> Element:
    """What `Parse the figure.` read as words stands in the picture; a sentence about it does not."""
    figure = element.figure or Figure()
    if figure.visible_text or figures.is_about(said):
        return element
    update = {
        "figure": figure.model_copy(update={"visible_text": said}),
        "text": said,
        "read_by": 2,
        "analysis": Analysis(source=Source.MODEL, prompt=prompt),
    }
    return element.model_copy(update=update)
