"""Pass 2 of DeepSeek-OCR: an element and its replies in, the next prompt or the element that stands out.

What is asked: a table is told again as a document (it comes as HTML), a picture is parsed and, where that gives no
data, described; formulas and doubtful text are read without boxes. Which reading stands:

| the reply | the element | stands | flag |
|---|---|---|---|
| is cut off, or repeats itself | any | pass 1 | pass2_cut, pass2_loop |
| says nothing (a table's: has no table) | any | pass 1 | pass2_empty |
| says something | had nothing to say | pass 2 | |
| has other rows, columns or fewer spans | has cells | pass 1 | pass2_disagrees |
| has nearly all words of pass 1 | is a table without cells | pass 2 | |
| has not | is a table without cells | pass 1 | pass2_disagrees |
| lacks the number | is a formula with one | pass 1 | |
| says something | the text layer has words there | what agrees more with them, of equals pass 1 | |
| agrees (0.9) | is a table, a formula or doubtful | pass 2: it was nearer | |
| agrees (0.9) | any other | pass 1: its markdown comes from the whole page | |
| has all words of pass 1 and a little more | is no heading and no caption | pass 2 | |
| differs, with fewer signs of a bad reading | any | pass 2 | |
| differs | any | pass 1 | |

Two readings that agree less than 0.9 always leave pass2_disagrees. The first row that holds counts.

So nothing that pass 1 read is lost to a worse reading; both raw answers are in the checkpoint. `confidence` is how
far both agree. Knows elements and replies. Knows nothing of engines, crops or pages.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from twopass.document import Analysis, Confidence, Element, Figure, Kind, Source, Table
from twopass.families import agreement, table_parser, text_layer_check
from twopass.families.deepseek import answer_text as prose
from twopass.families.deepseek import elements, figures, grounding, loops
from twopass.families.interface import Reply
from twopass.text import prose as words

LEAST_SIDE = 20  # pixels of a crop, padding included: less shows a rule or a dot
AGREE = 0.9
KEEPS, LONGER = 0.95, 1.3  # has all of the other's words, and no neighbour of the crop beside them
CLEARLY = 0.02  # more agreement with the layer than the other reading has
LAYER_WORDS = 3
NEARER = frozenset({Kind.TABLE, Kind.FORMULA})  # a closer look writes better HTML and LaTeX of the same words
SUMMED = 3  # sentences of a description
# Signs of pass 1's bad reading, gone with it.
_ANSWERED = frozenset(
    {text_layer_check.DOUBTFUL, "no_text", "replacement_characters", "mixed_scripts", "not_in_text_layer"}
)


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
    doubtful = text_layer_check.DOUBTFUL in element.flags
    wanted = everything or element.kind is Kind.FORMULA or element.is_figure or doubtful
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


def judged(first: Element, second: Element, layer: str | None) -> Verdict:
    """The table above, for a reply that says something."""
    score = agreement.similarity(_content(first), _content(second))
    if not first.text.strip():
        return Verdict(2, score)
    if first.table and second.table and _lacks_shape(second.table, first.table):
        return Verdict(1, min(score, agreement.cells(first.table, second.table)), ("pass2_disagrees",))
    differs = ("pass2_disagrees",) if score < AGREE else ()
    return Verdict(2 if _is_better(first, second, score, layer) else 1, score, differs)


def _is_better(first: Element, second: Element, score: float, layer: str | None) -> bool:
    """Whether the second look stands, of two readings that both say something in the same shape."""
    one, other = _content(first), _content(second)
    if first.kind is Kind.TABLE and first.table is None:
        return _knows(one, other)
    if first.kind is Kind.FORMULA and prose.is_numbered(first.text) and not prose.is_numbered(second.text):
        return False
    if layer and len(words.words(layer)) >= LAYER_WORDS:
        return agreement.agrees(other, layer) - agreement.agrees(one, layer) > CLEARLY
    if score >= AGREE:
        return first.kind in NEARER or text_layer_check.DOUBTFUL in first.flags
    return _says_more(first, one, other) or _doubts(other) < _doubts(one)


def _lacks_shape(table: Table, wanted: Table) -> bool:
    return (table.rows, table.cols) != (wanted.rows, wanted.cols) or _spanning(table) < _spanning(wanted)


def _spanning(table: Table) -> int:
    return sum(cell.row_span * cell.col_span > 1 for cell in table.cells)


def _knows(first: str, second: str) -> bool:
    return (agreement.known(first, second) or 0.0) >= KEEPS


def _says_more(element: Element, first: str, second: str) -> bool:
    """Whether a reading has all that the other has, and a word or two besides; what is beside a heading is not its."""
    if element.is_heading or element.kind is Kind.CAPTION:
        return False
    return len(first) < len(second) <= LONGER * len(first) and _knows(first, second)


def _doubts(text: str) -> int:
    return len(list(text_layer_check.giveaways(text)))


def _text(element: Element, reply: Reply) -> Element:
    """Running text, headings, formulas and code."""
    if why := failure(reply):
        return flagged(element, why)
    again = elements.told(element, _said(reply.text))
    if not again.text:
        return flagged(element, "pass2_empty")
    layer = None if element.kind is Kind.FORMULA else reply.layer  # a layer spells maths otherwise
    return standing(element, again, judged(element, again, layer), reply)


def _content(element: Element) -> str:
    """What two readings are compared by: the text, a formula's without its number."""
    return prose.unnumbered(element.text) if element.kind is Kind.FORMULA else element.text


def _said(text: str) -> str:
    """A reply without tags, where it has some all the same."""
    return prose.cleaned("\n\n".join(block.content.strip() for block in grounding.read(text).blocks))


def _table(element: Element, reply: Reply) -> Element:
    if why := failure(reply):
        return flagged(element, why)
    table = _first_table(reply.text)
    if table is None or not table_parser.words(table):
        return flagged(element, "pass2_empty")
    again = elements.told(element, "", table)
    return standing(element, again, judged(element, again, reply.layer), reply)


def _first_table(text: str) -> Table | None:
    contents = (block.content for block in grounding.read(text).blocks)
    found = (part.table for content in contents for part in table_parser.parts(prose.tidied(content)) if part.table)
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
    doubts = text_layer_check.giveaways(stands.text) if verdict.read_by == 2 else ()
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
    told = prose.tidied(grounding.plain(reply.text))
    said, seen = prose.cleaned(told), figures.parsed(told)
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
        share = agreement.known(table_parser.words(seen.figure.data), reply.layer)
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


def saying(element: Element, said: str) -> Element:
    """A picture that is all of an answer: where that made no data and no words in the picture, it describes it."""
    figure = element.figure or Figure()
    if not said or figure.data or figure.smiles or figure.components or figure.connections:
        return element
    told = figure if figure.visible_text else figure.model_copy(update={"description": said})
    return element.model_copy(update={"figure": told, "text": said, "markdown": said})
