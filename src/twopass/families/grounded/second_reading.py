"""Pass 2: choose the questions about an element, and decide which reading of it is used.

A table is read again as a document, because its answer is HTML. A picture is parsed for data and then described.
Formulas and doubtful text are read without boxes. The first row that applies decides:

| the reply | the element | used | flag |
|---|---|---|---|
| is cut off or repeats itself | any | pass 1 | pass2_cut, pass2_loop |
| is empty (for a table: has no table) | any | pass 1 | pass2_empty |
| has text | has no text | pass 2 | |
| has other rows or columns, or fewer spans | has cells | see below | pass2_disagrees |
| has nearly all words of pass 1 | is a table without cells | pass 2 | |
| lacks words of pass 1 | is a table without cells | pass 1 | pass2_disagrees |
| lacks the number | is a formula with one | pass 1 | |
| has text | overlaps words of the text layer | the one closer to them; pass 1 if equal | |
| agrees (0.9) | is a table, a formula or doubtful | pass 2: it saw more detail | |
| agrees (0.9) | any other | pass 1: its markdown comes from the whole page | |
| has all words of pass 1 and a few more | is no heading and no caption | pass 2 | |
| differs, with fewer signs of a bad reading | any | pass 2 | |
| differs | any | pass 1 | |

Of two tables with different shapes, pass 2 is used if its words are closer to the text layer, by _MIN_OVERLAP_GAIN.
If the layer does not decide, it is used if it has all cells of pass 1 in their order, and more: pass 1 was cut short.

A detected region has no text before pass 2. Its reply is its first reading: it is used as it is, also if it was cut
off or repeats itself, after a second try with other sampling. No second reading confirms it, so it has no `agreement`.

Two readings whose similarity is below 0.9 always get pass2_disagrees. A worse second reading therefore never replaces
the first; both raw answers are in the checkpoint. `confidence` is the similarity of the two readings.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from types import MappingProxyType
from typing import NamedTuple

from twopass.detection.labels import RULES, Label
from twopass.document import FIGURES, Analysis, Confidence, ConfidenceMethod, Element, Figure, Flag, Kind, Source, Table
from twopass.families import agreement, content, table_parser, text_layer_check
from twopass.families.detected_page import DetectionParser, fall_back
from twopass.families.grounded import answer_text, elements, figures, grounding, loops
from twopass.families.grounded.figures import FigureReading
from twopass.families.interface import ElementContext, Reply
from twopass.text import prose, table_markup

MIN_CROP_SIDE = 20  # pixels, padding included: a smaller crop shows a rule or a dot
_AGREEMENT = 0.9  # similarity from which two readings count as the same
_MIN_COVERAGE = 0.95  # share of one reading's words that the other must have, to have all of them
_MAX_LENGTH_RATIO = 1.3  # a longer second reading includes a neighbour of the crop
_MIN_OVERLAP_GAIN = 0.02  # by which pass 2 must be closer to the text layer than pass 1
_MIN_LAYER_WORDS = 3
_ALL, _CHARTS = "all", "charts"  # which figures are described; any other value means none
_BETTER_FROM_CROP = frozenset({Kind.TABLE, Kind.FORMULA})  # the same words get better HTML and LaTeX from a crop
_MAX_SUMMARY_SENTENCES = 3  # of a description
_ANSWERED = frozenset({"stop", "length", "loop"})  # the engine gave an answer, though perhaps an unusable one
# Signs of a bad reading in pass 1, dropped with that reading.
_RESOLVED_FLAGS = frozenset(
    {
        Flag.DOUBTFUL,
        Flag.NO_TEXT,
        Flag.REPLACEMENT_CHARACTERS,
        Flag.MIXED_SCRIPTS,
        Flag.NOT_IN_TEXT_LAYER,
        Flag.REPEATS_LIMITED,  # pass 1's n-gram ban may have changed equal rows or cells
    }
)


class QuestionName(StrEnum):
    """What pass 2 asks about an element; the reply is parsed accordingly."""

    TABLE = "table"
    TEXT = "text"
    FIGURE_DATA = "figure_data"
    VISIBLE_TEXT = "visible_text"  # the words in a figure, where the model has no prompts for figures
    DESCRIPTION = "description"


def choose_question(context: ElementContext, knows_figures: bool) -> QuestionName | None:
    """What to ask next, None when there is nothing more to ask."""
    element, replies = context.element, context.replies
    if min(context.crop_size) < MIN_CROP_SIDE:
        return None
    if element.is_figure and knows_figures:
        return _choose_figure_question(element, replies, context.descriptions)
    if replies and not _may_succeed_again(element, replies):
        return None
    if element.is_figure:
        return QuestionName.VISIBLE_TEXT
    if element.kind is Kind.TABLE:
        return QuestionName.TABLE
    is_wanted = context.ask_all or element.kind is Kind.FORMULA or element.needs_reading
    return QuestionName.TEXT if is_wanted else None


def _may_succeed_again(element: Element, replies: Sequence[Reply]) -> bool:
    """Whether to ask again about a region that has no text: once, unless the engine failed."""
    is_unusable = find_failure(replies[0]) is not None and replies[0].finish_reason in _ANSWERED
    return Flag.UNREAD_REGION in element.flags and len(replies) == 1 and is_unusable


def is_asked_again(name: QuestionName, replies: Sequence[Reply]) -> bool:
    """Whether the question was asked before, so that it needs another sampling to get another answer."""
    return any(reply.question.name == name for reply in replies)


def _choose_figure_question(element: Element, replies: Sequence[Reply], descriptions: str) -> QuestionName | None:
    if not replies:
        return QuestionName.FIGURE_DATA
    if len(replies) > 1:
        return None
    is_wanted = descriptions == _ALL or (descriptions == _CHARTS and apply_replies(element, replies).kind is Kind.CHART)
    return QuestionName.DESCRIPTION if is_wanted else None


def apply_replies(element: Element, replies: Sequence[Reply]) -> Element:
    """The element after pass 2. A failed reply only adds its flag."""
    if Flag.UNREAD_REGION in element.flags:
        return _apply_first_reading(element, replies)
    for reply in replies:
        flag = find_failure(reply)
        element = (
            element.with_flags(flag) if flag else _APPLY_BY_NAME[QuestionName(reply.question.name)](element, reply)
        )
    return _flag_derived_parts(element)


def _flag_derived_parts(element: Element) -> Element:
    """Flag what was derived from a figure's data: the model gave the data and nothing else."""
    figure = element.figure
    if figure is None or figure.data is None:
        return element
    derived = {Flag.DERIVED_AXES: figure.axes, Flag.DERIVED_LEGEND: figure.legend, Flag.DERIVED_TRENDS: figure.trends}
    return element.with_flags(*(flag for flag, value in derived.items() if value))


def find_failure(reply: Reply) -> Flag | None:
    """The flag of a reply that loops, is truncated or is empty; None for any other."""
    if reply.finish_reason == "loop" or loops.has_loop(reply.text):
        return Flag.PASS2_LOOP
    if reply.finish_reason != "stop":
        return Flag.PASS2_CUT
    return None if grounding.strip_special_tokens(reply.text).strip() else Flag.PASS2_EMPTY


class Verdict(NamedTuple):
    """Which pass is used (1 or 2), how similar the two readings are (0 to 1), and the flags to add."""

    read_by: int
    score: float
    flags: tuple[Flag, ...] = ()


def judge(first: Element, second: Element, layer_text: str | None) -> Verdict:
    """Compare the readings of both passes by the table at the top of this file. The second must not be empty."""
    score = agreement.similarity(_compared_text(first), _compared_text(second))
    if not first.text.strip():
        return Verdict(2, score)
    if first.table and second.table and _has_other_shape(second.table, first.table):
        score = min(score, agreement.cell_overlap(first.table, second.table))
        return Verdict(2 if _is_more_complete(first, second, layer_text) else 1, score, (Flag.PASS2_DISAGREES,))
    flags = (Flag.PASS2_DISAGREES,) if score < _AGREEMENT else ()
    return Verdict(2 if _is_better(first, second, score, layer_text) else 1, score, flags)


def _is_better(first: Element, second: Element, score: float, layer_text: str | None) -> bool:
    """Whether to use the second of two readings that both have text and the same table shape."""
    one, other = _compared_text(first), _compared_text(second)
    if first.kind is Kind.TABLE and first.table is None:
        return _covers(one, other)
    if first.kind is Kind.FORMULA and answer_text.has_number(first.text) and not answer_text.has_number(second.text):
        return False
    gain = _measure_gain(one, other, layer_text)
    if gain is not None:
        return gain > _MIN_OVERLAP_GAIN
    if score >= _AGREEMENT:
        return first.kind in _BETTER_FROM_CROP or Flag.DOUBTFUL in first.flags
    return _extends(first, one, other) or _count_defects(other) < _count_defects(one)


def _is_more_complete(first: Element, second: Element, layer_text: str | None) -> bool:
    """Whether to use the second of two tables with different shapes."""
    assert first.table and second.table
    gain = _measure_gain(first.text, second.text, layer_text) or 0.0
    if gain < 0 or gain > _MIN_OVERLAP_GAIN:
        return gain > 0
    # The layer has no words of the table, or the missing cells are a small part of it.
    keeps_spans = _count_spans(second.table) >= _count_spans(first.table)
    return keeps_spans and agreement.has_cells_of(second.table, first.table)


def _measure_gain(first: str, second: str, layer_text: str | None) -> float | None:
    """By how much the second text is closer to the text layer; None where the layer has too few words to tell."""
    if not layer_text or len(prose.split_words(layer_text)) < _MIN_LAYER_WORDS:
        return None
    return agreement.word_overlap(second, layer_text) - agreement.word_overlap(first, layer_text)


def _has_other_shape(table: Table, wanted: Table) -> bool:
    """Whether a table has other rows or columns, or fewer spans. More spans are no other shape."""
    return (table.rows, table.cols) != (wanted.rows, wanted.cols) or _count_spans(table) < _count_spans(wanted)


def _count_spans(table: Table) -> int:
    return sum(cell.row_span * cell.col_span > 1 for cell in table.cells)


def _covers(first: str, second: str) -> bool:
    """Whether the second text has nearly all words of the first."""
    return (agreement.word_coverage(first, second) or 0.0) >= _MIN_COVERAGE


def _extends(element: Element, first: str, second: str) -> bool:
    """Whether the second text has all words of the first and a few more.

    Never for headings and captions: what a crop shows beside them belongs to a neighbour.
    """
    if element.is_heading or element.kind is Kind.CAPTION:
        return False
    return len(first) < len(second) <= _MAX_LENGTH_RATIO * len(first) and _covers(first, second)


def _count_defects(text: str) -> int:
    return len(list(text_layer_check.find_text_defects(text)))


def build_detection_parser(layer_text: bool) -> DetectionParser:
    """The parser of detections for models that are asked about every region but figures for its text."""

    def is_read(label: Label | None) -> bool:
        return label is None or RULES[label].kind not in FIGURES

    return DetectionParser(is_read, elements.with_content, layer_text)


def _apply_first_reading(element: Element, replies: Sequence[Reply]) -> Element:
    """The region with the text of the last usable reply, else with what can be kept of an unusable one."""
    answered = [reply for reply in replies if reply.finish_reason in _ANSWERED]
    for reply in sorted(reversed(answered), key=lambda one: find_failure(one) is not None):
        read = _write_first_reading(element, reply)
        if read.text or read.table:
            update = {"read_by": 2, "analysis": Analysis(source=Source.MODEL, prompt=reply.question.prompt)}
            return text_layer_check.check_region(
                read.without_flag(Flag.UNREAD_REGION).model_copy(update=update), reply.layer_text
            )
    failures = [failure for reply in replies if (failure := find_failure(reply))]
    words = replies[-1].layer_text if replies else None
    return fall_back(element.with_flags(*failures), words, elements.with_content)


def _write_first_reading(element: Element, reply: Reply) -> Element:
    """The region with a reply, without what repeats itself in it."""
    text = reply.text.encode("utf-8", "replace").decode()
    repeated = loops.find_repetition(text)
    blocks, has_loop = loops.remove_loops(grounding.parse(text[:repeated]).blocks)
    if has_loop or repeated is not None or reply.finish_reason == "loop":
        element = element.with_flags(Flag.LOOP)
    elif reply.finish_reason != "stop":
        element = element.with_flags(Flag.CUT_OFF)
    written = "\n\n".join(block.content.strip() for block in blocks)
    if element.kind is Kind.TABLE:
        parts = table_parser.split_tables(answer_text.fix_markup(written))
        if table := table_parser.join_parts(parts):
            element = element.with_flags(Flag.REPEATS_LIMITED) if reply.question.sampling else element
            return content.write_table(element, table)
        element = element.with_flags(Flag.NOT_A_TABLE)
    return elements.with_content(element, answer_text.clean_prose(written))


def _apply_text_reply(element: Element, reply: Reply) -> Element:
    """Apply the reply about running text, a heading, a formula or code."""
    second = elements.with_content(element, _reply_text(reply.text))
    if not second.text:
        return element.with_flags(Flag.PASS2_EMPTY)
    layer_text = None if element.kind is Kind.FORMULA else reply.layer_text  # a text layer spells maths differently
    return apply_verdict(element, second, judge(element, second, layer_text), reply)


def _compared_text(element: Element) -> str:
    """The text by which two readings are compared; a formula's without its number."""
    return answer_text.strip_number(element.text) if element.kind is Kind.FORMULA else element.text


def _reply_text(text: str) -> str:
    """A reply without tags: the model sometimes writes them although it was not asked to."""
    return answer_text.clean_prose("\n\n".join(block.content.strip() for block in grounding.parse(text).blocks))


def _apply_table_reply(element: Element, reply: Reply) -> Element:
    table = _find_table(reply.text)
    if table is None or not table_markup.to_text(table):
        return element.with_flags(Flag.PASS2_EMPTY)
    second = content.write_table(element, table)
    return apply_verdict(element, second, judge(element, second, reply.layer_text), reply)


def _find_table(text: str) -> Table | None:
    written = (answer_text.fix_markup(block.content) for block in grounding.parse(text).blocks)
    parts = (part for one in written for part in table_parser.split_tables(one))
    return next((part.table for part in parts if part.table), None)


def apply_verdict(first: Element, second: Element, verdict: Verdict, reply: Reply) -> Element:
    """The element of the pass that is used, with the pass, its confidence and its flags."""
    used = second if verdict.read_by == 2 else first
    kept = tuple(flag for flag in first.flags if verdict.read_by == 1 or flag not in _RESOLVED_FLAGS)
    update = {
        "read_by": verdict.read_by,
        "analysis": Analysis(source=Source.MODEL, prompt=reply.question.prompt),
        "confidence": Confidence(score=verdict.score, method=ConfidenceMethod.AGREEMENT),
        "flags": kept,
    }
    defects = text_layer_check.find_text_defects(used.text) if verdict.read_by == 2 else ()
    return used.model_copy(update=update).with_flags(*defects, *verdict.flags)


def _apply_figure_reply(element: Element, reply: Reply) -> Element:
    """Use the data in the reply; where it has none, its words are the text in the picture."""
    text = _strip_tags(reply)
    if reading := figures.parse_figure_data(text):
        return _apply_figure_reading(element, reading, reply)
    return _add_visible_text(element, answer_text.clean_prose(text), reply)


def _apply_description(element: Element, reply: Reply) -> Element:
    """Add the description to what is known of the figure; a reply with data instead is used if there is none yet."""
    text, figure = _strip_tags(reply), element.figure or Figure()
    if reading := figures.parse_figure_data(text):
        return element if figure.data else _apply_figure_reading(element, reading, reply)
    return _apply_figure_reading(element, figures.add_description(figure, answer_text.clean_prose(text)), reply)


def _strip_tags(reply: Reply) -> str:
    return answer_text.fix_markup(grounding.strip_special_tokens(reply.text))


def _apply_figure_reading(element: Element, reading: FigureReading, reply: Reply) -> Element:
    figure = reading.figure.model_copy(update={"visible_text": (element.figure or Figure()).visible_text})
    update: dict[str, object] = {
        "kind": reading.kind,
        "category": reading.category,
        "figure": figure,
        "analysis": Analysis(source=Source.MODEL, prompt=reply.question.prompt),
        "read_by": 2,
    }
    if figure.description:
        update["summary"] = _summarize(figure.description)
    if figure.data and reply.layer_text:
        share = agreement.word_coverage(table_markup.to_text(figure.data), reply.layer_text)
        if share is not None:
            update["confidence"] = Confidence(score=share, method=ConfidenceMethod.FOUND_IN_LAYER)
    return element.model_copy(update=update)


def _summarize(description: str) -> str | None:
    return prose.join_sentences(prose.split_sentences(prose.strip_markup(description))[:_MAX_SUMMARY_SENTENCES]) or None


def _add_visible_text(element: Element, text: str, reply: Reply) -> Element:
    """Keep the words that were read in a picture; a sentence about the picture is not one of them."""
    figure = element.figure or Figure()
    if figure.visible_text or figures.is_description(text):
        return element
    update = {
        "figure": figure.model_copy(update={"visible_text": text}),
        "text": text,
        "read_by": 2,
        "analysis": Analysis(source=Source.MODEL, prompt=reply.question.prompt),
    }
    return element.model_copy(update=update)


_APPLY_BY_NAME: Mapping[QuestionName, Callable[[Element, Reply], Element]] = MappingProxyType(
    {
        QuestionName.TABLE: _apply_table_reply,
        QuestionName.TEXT: _apply_text_reply,
        QuestionName.FIGURE_DATA: _apply_figure_reply,
        QuestionName.VISIBLE_TEXT: _apply_figure_reply,
        QuestionName.DESCRIPTION: _apply_description,
    }
)


def add_answer_text(element: Element, text: str) -> Element:
    """Keep the text of an answer that is all about one picture; without data or visible text it is the description."""
    figure = element.figure or Figure()
    if not text or figure.data or figure.smiles or figure.components or figure.connections:
        return element
    figure = figure if figure.visible_text else figure.model_copy(update={"description": text})
    return element.model_copy(update={"figure": figure, "text": text, "markdown": text})
