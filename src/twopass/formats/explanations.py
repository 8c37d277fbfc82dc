"""What flags, page states, attempts and scores mean, in words for the reader of a review page.

A test compares these tables with the flags, rungs and codes that the code can produce.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from twopass.document import Attempt, Confidence, ConfidenceMethod, State
from twopass.errors import Code


class Words(NamedTuple):
    """A page state in a few words, and as a sentence."""

    label: str
    sentence: str


FLAGS: Mapping[str, str] = MappingProxyType(
    {
        "apart": "Labelled as a header or footer of the page, but kept as text because other pages do not repeat it.",
        "broken_font": "A font of the PDF names characters wrongly or not at all. They were read from the pixels.",
        "cut_off": "The answer was cut off here. Text may be missing.",
        "degenerate_box": "Its box has no area, so its position is unknown.",
        "degenerate_regions": "The layout detector gave regions without an area. They were dropped.",
        "dense_page": "The page has too many lines or drawings for the layout model. Columns may be mixed.",
        "derived_axes": "The axes were taken from the titles of the data's columns.",
        "derived_keywords": "The keywords were taken from the text, because the model gave none.",
        "derived_legend": "The legend was taken from the titles of the data's columns.",
        "derived_summary": "The summary was taken from the text, because the model gave none.",
        "derived_trends": "The trends were calculated from the data.",
        "doubtful": "The first reading shows signs of mistakes.",
        "from_text_layer": "The model did not read this region. The PDF's own text is shown.",
        "heading_repeated": "The answer repeated the heading above in front of this text. The repetition was removed.",
        "hidden_layer": "The text is the invisible text of a scan, which another program recognized.",
        "lacks_annotations": "Annotations and form fields of the page are damaged or take too long, and were left out.",
        "lacks_lines": "Some lines that only the page's pixels show were left out, because OCR is not sure of them.",
        "image_text": "The PDF's own text lacks this text. It was read from the pixels of an image on the page.",
        "in_margin": "A header, footer, page number or note in the margin, by its label and its place on the page.",
        "layer_text": "The text is the PDF's own, as this worker was set up to use it. The model did not read it.",
        "loop": "The answer repeated itself here. The repetition was removed, and text may be missing.",
        "missed_by_detector": "The layout detector missed this text. It was found in the PDF's own text or as ink.",
        "mixed_scripts": "A word mixes Latin with Greek or Cyrillic letters. Letters may have been confused.",
        "no_box": "The model gave no position for this element.",
        "no_text": "No text was read here.",
        "not_a_table": "The answer about this table is not a table and is shown as text.",
        "not_in_text_layer": "Many of these words are not in the PDF's own text.",
        "orphan": "The layout model missed this text. Its place in the reading order is a guess.",
        "order_corrected": "The layout detector's order contradicted the columns of the page and was corrected.",
        "pass2_cut": "The second reading was cut off and is not used.",
        "pass2_disagrees": "The two readings of this element differ.",
        "pass2_empty": "The second reading found nothing and is not used.",
        "pass2_loop": "The second reading repeated itself and is not used.",
        "pass2_unparsed": "The second reading did not have the expected form and is not used.",
        "picture_page": "No text was found on the page. It is kept as one picture.",
        "repeats": "The same words were read several times at even distances. Some may not be on the page.",
        "repeats_limited": "A later attempt allowed fewer repetitions in this table. Equal cells or rows may be wrong.",
        "replacement_characters": "Some characters could not be read. They are shown as \ufffd.",
        "repetition_cut": "The answer repeated itself here. The repetition was cut.",
        "text_layer": "No answer could be used. The PDF's own text is shown, without tables and headings.",
        "unasked": "A second reading of this element is missing in the stored answers.",
        "uncertain": "It is probably wrong in places: words, their order, or their structure.",
        "unparsed": "The answer did not have the expected form and is shown as it is.",
        "unreadable": "The text does not match what the page shows, or makes no sense.",
        "unread_box": "A part of this element's position could not be read.",
        "unread_region": "The text of this region was not read.",
        "untagged": "The model gave neither a label nor a position for this text.",
    }
)
# Flags that say how an element was read, not that it was read badly.
INFORMATIONAL_FLAGS = frozenset(
    {
        "apart",
        "broken_font",
        "derived_axes",
        "derived_keywords",
        "derived_legend",
        "derived_summary",
        "derived_trends",
        "heading_repeated",
        "hidden_layer",
        "image_text",
        "in_margin",
        "layer_text",
        "picture_page",
        "untagged",
    }
)
# Flags that all elements of a page have. They are explained once, and the page is in doubt instead of each element.
PAGE_FLAGS = frozenset(
    {
        "degenerate_regions", "dense_page", "hidden_layer", "lacks_annotations", "lacks_lines", "order_corrected",
        "picture_page", "text_layer",
    }
)  # fmt: skip

STATES: Mapping[State, Words] = MappingProxyType(
    {
        State.READ: Words("read", "The first answer could be used."),
        State.REPAIRED: Words("read again", "The first answer could not be used. A later one is shown."),
        State.TEXT_LAYER: Words(
            "PDF's own text", "No answer could be used. The PDF's own text is shown, without tables and headings."
        ),
        State.BLANK: Words("blank", "The page is empty."),
        State.FAILED: Words("failed", "The page could not be read. Text that is shown may be wrong or incomplete."),
        State.UNREAD: Words("not read", "The job ended before the page was read. The same job can be sent again."),
    }
)

RUNGS: Mapping[str, str] = MappingProxyType(
    {
        "normal": "as usual",
        "again": "in the same way, with some randomness",
        "mode": "at another image resolution",
        "regions": "region by region, as a layout detector found them",
        "whole": "the whole page at once",
        "free": "as plain text without positions",
        "text_layer": "the PDF's own text",
    }
)

# Why an answer could not be used or a page was not read.
REASONS: Mapping[Code, str] = MappingProxyType(
    {
        Code.LOOP: "the answer repeated itself",
        Code.TRUNCATED: "the answer was cut off at its limit",
        Code.EMPTY: "the answer was empty, but the page is not blank",
        Code.UNGROUNDED: "the answer had no positions",
        Code.UNREADABLE_SCRIPT: "the engine cannot read this script",
        Code.REGIONS_UNREAD: "none of the page's regions was read",
        Code.ENGINE_REFUSED: "the engine rejected the page",
        Code.ENGINE_CRASH: "the engine crashed on the page",
        Code.ENGINE_DEAD: "the engine stopped",
        Code.ENGINE_MEMORY: "the engine ran out of memory",
        Code.RENDER_CRASH: "the page crashed the process that renders it",
        Code.RENDER_TIMEOUT: "the page took too long",
        Code.RENDER_MEMORY: "the page needed too much memory",
        Code.DAMAGED: "the page is damaged",
        Code.DEADLINE: "the job's deadline passed",
        Code.SHUTDOWN: "the worker was shut down",
        Code.STORE_UNAVAILABLE: "the storage did not answer",
        Code.INTERNAL: "there was an unexpected error",
    }
)

# What a confidence below the limit means, by the method that found it.
METHODS: Mapping[ConfidenceMethod, str] = MappingProxyType(
    {
        ConfidenceMethod.TEXT_LAYER: "The PDF's own text was not compared with its picture: {percent} % certain.",
        ConfidenceMethod.CHECKED_LAYER: "Compared with its picture, the PDF's own text is {percent} % certain.",
        ConfidenceMethod.HIDDEN_LAYER: "The invisible text of a scan, never checked: {percent} % certain.",
        ConfidenceMethod.UNKNOWN_LAYER: "The PDF's own text was used and not checked: {percent} % certain.",
        ConfidenceMethod.OCR: "The text recognition was {percent} % certain.",
        ConfidenceMethod.LOST_STRUCTURE: "The text of a formula without its structure: {percent} % certain.",
        ConfidenceMethod.MIXED_ORDER: "A very long text in one piece, whose columns may be mixed: {percent} % certain.",
        ConfidenceMethod.FOUND_IN_LAYER: "{percent} % of the words are in the PDF's own text.",
        ConfidenceMethod.AGREEMENT: "The two readings agree to {percent} %.",
        ConfidenceMethod.LOGPROB: "The model was {percent} % certain of its words.",
    }
)
MODES: Mapping[str, str] = MappingProxyType({"gundam": "whole page and tiles"})  # the other names explain themselves


def explain_flag(flag: str) -> str:
    """Say what a flag means; a flag without words is shown as it is."""
    return FLAGS.get(flag, flag)


def explain_attempt(attempt: Attempt) -> str:
    """Say how a page was read, and why the answer could not be used; names without words are shown as they are."""
    rung = RUNGS.get(attempt.rung, attempt.rung)
    return f"{rung}: {explain_reason(attempt.reason)}" if attempt.reason else rung


def explain_reason(reason: Code) -> str:
    """Say why an answer could not be used; a code without words is shown as it is."""
    return REASONS.get(reason, reason)


def explain_confidence(confidence: Confidence) -> str:
    """Say how certain a reading is, in per cent, never rounded up to a limit."""
    percent = int(round(confidence.score * 100, 2))
    return METHODS[confidence.method].format(percent=percent)
