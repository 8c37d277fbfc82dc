"""Detected regions to elements, and what a reader answered to their text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from twopass.detection.labels import RULES, Label
from twopass.detection.region import Region
from twopass.document import (
    HEADINGS,
    Analysis,
    Element,
    Figure,
    Formula,
    Kind,
    Layer,
    Source,
    Table,
    make_element_id,
)
from twopass.families import table_parser
from twopass.families.grounded.captions import link_captions
from twopass.families.interface import Reply
from twopass.families.regions import cleanup, otsl
from twopass.families.regions.reader import RegionReader, TableGrammar, Task
from twopass.pages.text_layer import TextLayer
from twopass.text import headings, prose
from twopass.text.confidence import judge_unknown_layer

MISSED = "missed_by_detector"  # element flags
UNREAD = "unread_region"
LOOP_CUT = "repetition_cut"
FROM_LAYER = "text_layer"
HEADER_HALF = 0.5  # of the page's height: a page number above it is in the header
_LAYER_KINDS = frozenset(
    {Kind.TEXT, Kind.TITLE, Kind.SECTION_HEADER, Kind.CAPTION, Kind.FOOTNOTE, Kind.PAGE_HEADER, Kind.PAGE_FOOTER}
)


def build_elements(regions: Sequence[Region], page: int, layer: TextLayer | None) -> tuple[Element, ...]:
    """One element per region, without text; with that of `layer` where one is given and has words in the region."""
    built = [_build(region, make_element_id(page, index), page) for index, region in enumerate(regions)]
    if layer:
        built = [_take_words(element, layer) for element in built]
    # Captions of figures and of tables have one label here, whose name would exclude tables.
    neutral = [e.model_copy(update={"native_label": "caption"}) if e.kind is Kind.CAPTION else e for e in built]
    return tuple(
        linked.model_copy(update={"native_label": element.native_label})
        for linked, element in zip(link_captions(neutral), built, strict=True)
    )


def _build(region: Region, element_id: str, page: int) -> Element:
    kind, layer = (RULES[region.label].kind, RULES[region.label].layer) if region.label else (Kind.TEXT, Layer.BODY)
    if region.label is Label.NUMBER and region.box.centre[1] < HEADER_HALF:
        kind = Kind.PAGE_HEADER
    return Element(
        id=element_id,
        page=page,
        category=kind.category,
        kind=kind,
        native_label=region.native_label,
        boxes=(region.box,),
        content_layer=layer,
        level=1 if kind in HEADINGS else None,
        figure=Figure() if kind in (Kind.PICTURE, Kind.CHART) else None,
        formula=Formula() if kind is Kind.FORMULA else None,
        flags=(MISSED,) if region.order is None else (),
    )


def _take_words(element: Element, layer: TextLayer) -> Element:
    words = layer.inside(element.boxes) if element.kind in _LAYER_KINDS else ""
    if not words or prose.is_garbage(words):
        return element
    confidence, doubts = judge_unknown_layer(words)
    update = {"confidence": confidence, "flags": (*element.flags, FROM_LAYER, *doubts)}
    return with_text(element, words).model_copy(update=update)


def with_text(element: Element, text: str) -> Element:
    """The element with its text, and what follows from it for its kind."""
    update: dict[str, Any] = {"text": text, "markdown": text}
    if element.kind in HEADINGS:
        line = prose.to_one_line(text)
        found = headings.parse_numbering(line)
        update = {"text": line, "markdown": f"# {line}"}
        if element.kind is Kind.SECTION_HEADER:
            level = found.depth if found else 2
            update |= {"level": level, "numbering": found.text if found else None}
            update["markdown"] = f"{'#' * level} {line}"
    elif element.kind is Kind.CODE:
        update["markdown"] = f"```\n{text}\n```"
    elif element.kind is Kind.FORMULA:
        update |= {"formula": Formula(latex=text), "markdown": f"$$\n{text}\n$$"}
    elif element.figure:
        update["figure"] = element.figure.model_copy(update={"visible_text": text})
    return element.model_copy(update=update)


def with_table(element: Element, table: Table) -> Element:
    """A table, or a chart with its data."""
    text = table_parser.table_text(table)
    update: dict[str, Any] = {"text": text, "markdown": table.markdown or table.html}
    if element.figure:
        return element.model_copy(update={**update, "figure": element.figure.model_copy(update={"data": table})})
    return element.model_copy(update={**update, "table": table})


def apply_reply(element: Element, reply: Reply, reader: RegionReader) -> Element:
    """The element as its reader read it. Where that is nothing, the words of the text layer are used."""
    task = Task(reply.question.name)
    limit = reader.long_table if task is Task.TABLE else reader.long_text
    text, was_cut = cleanup.clean_text(reply.text, limit)
    element = element.model_copy(update={"read_by": 2, "analysis": Analysis(source=Source.MODEL, prompt=task)})
    if was_cut or reply.finish_reason == "loop":
        element = _add_flag(element, LOOP_CUT)
    if reply.finish_reason == "length":
        element = _add_flag(element, "cut_off")
    if not text or reply.finish_reason in ("error", "crash"):
        return _use_layer_text(element, reply.layer_text)
    if task is Task.TABLE:
        table = otsl.parse(text) if reader.tables is TableGrammar.OTSL else None
        table = table or cleanup.parse_table(text)
        return with_table(element, table) if table else with_text(_add_flag(element, "not_a_table"), text)
    if task is Task.CHART:
        data = cleanup.parse_chart(text)
        return with_table(element, data) if data else with_text(element, text)
    return with_text(element, cleanup.unwrap_formula(text) if task is Task.FORMULA else text)


def _use_layer_text(element: Element, words: str | None) -> Element:
    if words and not prose.is_garbage(words):
        return _add_flag(with_text(element, words), FROM_LAYER).model_copy(update={"read_by": 1})
    return _add_flag(element, UNREAD)


def _add_flag(element: Element, flag: str) -> Element:
    return element.model_copy(update={"flags": tuple(dict.fromkeys((*element.flags, flag)))})
