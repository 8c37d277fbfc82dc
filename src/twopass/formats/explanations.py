"""What page states, attempts and scores mean, in words for the reader of a review page.

A test compares these tables with the rungs and codes that the code can produce.
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
