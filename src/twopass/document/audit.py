"""The audit of a page: what was read, what was not, and why.

A finding is one thing that the page shows and the answer lacks, or that was changed on the way. All that is known about
a kind of finding stands in its row. Steps record findings as they make them; `steps/audit.py` completes the audit.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated, NamedTuple

from pydantic import Field, WithJsonSchema

from twopass.document.box import Box
from twopass.errors import Code
from twopass.values import Value

MAX_WORDS = 50  # kept of one finding: enough to search for, and a page that lost everything stays small
MAX_SHOWN = 10  # of them in a problem's message


class Unit(StrEnum):
    """What the count of a finding counts, in the plural."""

    REGIONS = "regions"
    LINES = "lines"
    ANSWERS = "answers"
    WORDS = "words"
    PARTS = "parts"


class _Row(NamedTuple):
    name: str
    code: Code
    unit: Unit
    what: str
    sentence: str
    is_loss: bool = True
    advice: str = "check the page"


class FindingKind(StrEnum):
    """What the audit can find; each kind of loss has a code of its own.

    `what` completes a count of `unit`s, as in "2 regions not read". `sentence` explains it to readers of the document,
    `advice` to whoever reads the problem `code`. Without `is_loss` nothing is missing, and no status changes.
    """

    code: Code
    unit: Unit
    what: str
    sentence: str
    is_loss: bool
    advice: str

    # Between the file and the pixels
    CONTENT_LOST = _Row(
        "content_lost",
        Code.CONTENT_LOST,
        Unit.PARTS,
        "of the file not drawn",
        "A part of this page is damaged in the file and cannot be drawn.",
        advice="open the file in another program, and save it again if it shows more",
    )
    IMAGE_LOST = _Row(
        "image_lost",
        Code.IMAGE_LOST,
        Unit.PARTS,
        "with damaged images",
        "An image on this page is damaged in the file. What it shows may be incomplete.",
        advice="open the file in another program, and save it again if it shows more",
    )
    CONTENT_ALTERED = _Row(
        "content_altered",
        Code.CONTENT_ALTERED,
        Unit.PARTS,
        "repaired while they were drawn",
        "A part of this page is damaged in the file and was repaired. Something may be wrong or missing.",
        is_loss=False,
        advice="compare the page with the file",
    )
    ANNOTATIONS_LEFT_OUT = _Row(
        "annotations_left_out",
        Code.PARTS_OMITTED,
        Unit.PARTS,
        "left out: annotations and form fields",
        "Annotations and form fields of the page are damaged or take too long, and were left out.",
    )

    # Between the PDF's own text and the pixels
    HIDDEN_TEXT = _Row(
        "hidden_text",
        Code.HIDDEN_TEXT,
        Unit.WORDS,
        "in the file that nobody can see on the page",
        "The file has this text here, and nobody can see it on the page.",
        is_loss=False,
        advice="they are left out of all text formats but not of document.json, where content_layer is invisible; "
        "hidden_text: mark or keep writes them",
    )
    TEXT_NOT_DRAWN = _Row(
        "text_not_drawn",
        Code.TEXT_NOT_DRAWN,
        Unit.WORDS,
        "in a font that draws nothing",
        "The file has this text here, but its font is damaged and draws nothing. The text is kept.",
        is_loss=False,
        advice="open the file in another program, and compare",
    )
    FONT_WRONG = _Row(
        "font_wrong",
        Code.FONT_WRONG,
        Unit.WORDS,
        "in fonts that name other characters than they draw",
        "A font of this page names other characters than it draws. The file's own text is wrong, and is not used.",
        is_loss=False,
        advice="they were read from the pixels; compare what matters with the page",
    )
    REDACTION_PENDING = _Row(
        "redaction_pending",
        Code.REDACTION_PENDING,
        Unit.PARTS,
        "marked to be blacked out",
        "This part is marked to be blacked out. What lies below is still in the file, and in what was read.",
        is_loss=False,
        advice="apply the redactions before the document is passed on",
    )

    # Between the pixels and the answer
    REGION_UNREAD = _Row(
        "region_unread",
        Code.REGIONS_UNREAD,
        Unit.REGIONS,
        "not read",
        "The text of this region was not read.",
        advice="check them, and raise dpi if they show text",
    )
    REGION_FROM_LAYER = _Row(
        "region_from_layer",
        Code.REGIONS_UNREAD,
        Unit.REGIONS,
        "shown with the PDF's own text",
        "The model did not read this region. The PDF's own text is shown.",
        is_loss=False,
        advice="check them",
    )
    REGION_WITHOUT_TEXT = _Row(
        "region_without_text",
        Code.REGIONS_UNREAD,
        Unit.REGIONS,
        "without text",
        "No text was read in this region, and the page shows no line of script.",
        is_loss=False,
        advice="check them, and raise dpi if they show text",
    )
    LINES_LEFT_OUT = _Row(
        "lines_left_out",
        Code.UNREADABLE_SCRIPT,
        Unit.PARTS,
        "left out: lines of which OCR is not sure",
        "Some lines that only the page's pixels show were left out, because OCR is not sure of them.",
    )
    TEXT_MISSED = _Row(
        "text_missed",
        Code.MISSED_TEXT,
        Unit.LINES,
        "that the first reading missed and that were read afterwards",
        "The first reading missed this text. It was found on the page and read. Its place in the reading order is a "
        "guess.",
        is_loss=False,
        advice="check where they stand",
    )
    UNREAD_INK = _Row(
        "unread_ink",
        Code.UNREAD_INK,
        Unit.LINES,
        "that look like text and were not read",
        "This looks like text, and nothing was read here.",
    )
    INK_UNCHECKED = _Row(
        "ink_unchecked",
        Code.MISSED_TEXT,
        Unit.PARTS,
        "not compared with the answer, because a page worker died",
        "The page was not searched for text that the answer lacks.",
        is_loss=False,
    )
    TEXT_UNREADABLE = _Row(
        "text_unreadable",
        Code.UNREADABLE_TEXT,
        Unit.PARTS,
        "whose text makes no sense",
        "The text does not match what the page shows, or makes no sense.",
    )
    COLUMNS_MIXED = _Row(
        "columns_mixed",
        Code.MIXED_COLUMNS,
        Unit.PARTS,
        "probably read across columns",
        "The lines here probably run across columns, so that their order is wrong.",
        is_loss=False,
        advice="check the order of their lines",
    )
    ANSWER_CUT = _Row(
        "answer_cut",
        Code.TRUNCATED,
        Unit.ANSWERS,
        "cut at the token limit",
        "The answer was cut off here. Text may be missing.",
        advice="text may be missing; raise sampling.max_tokens",
    )
    ANSWER_LOOPED = _Row(
        "answer_looped",
        Code.LOOP,
        Unit.ANSWERS,
        "with a repetition",
        "The answer repeated itself here. The repetition was removed, and text may be missing.",
        advice="the repetition was cut, and text may be missing",
    )
    ANSWER_TOO_LONG = _Row(
        "answer_too_long",
        Code.ANSWER_TOO_LONG,
        Unit.ANSWERS,
        "longer than any page",
        "The answer about this page is longer than any page can be. The rest of it was cut.",
    )

    SIGNS_DROPPED = _Row(
        "signs_dropped",
        Code.UNKNOWN_CHARACTERS,
        Unit.PARTS,
        "left out: signs that their font does not name",
        "The font does not say what some signs of this text are, such as bullets and arrows. They were left out.",
        is_loss=False,
        advice="compare them with the page",
    )
    CHARACTERS_UNKNOWN = _Row(
        "characters_unknown",
        Code.UNKNOWN_CHARACTERS,
        Unit.WORDS,
        "with characters that their font does not name",
        "The font does not say what some characters of these words are.",
        advice="read the page with an engine that reads pictures",
    )

    # Between the answer and the document
    WORDS_LOST = _Row(
        "words_lost",
        Code.WORDS_LOST,
        Unit.WORDS,
        "of the answer in no element",
        "The model's answer has words that are in no element of the page.",
        advice="the checkpoint has the answer; report it",
    )
    FORMAT_LOST = _Row(
        "format_lost",
        Code.FORMAT_LOST,
        Unit.WORDS,
        "lost or repeated in a format",
        "Words of this page are missing or repeated in an output format.",
        advice="document.json has them; report it",
    )

    def __new__(cls, *row: object) -> FindingKind:
        return cls._create(_Row(*row))  # type: ignore[arg-type]  # the enum unpacks the row

    @classmethod
    def _create(cls, row: _Row) -> FindingKind:
        kind = str.__new__(cls, row.name)
        kind._value_ = row.name
        _, kind.code, kind.unit, kind.what, kind.sentence, kind.is_loss, kind.advice = row
        return kind

    @classmethod
    def _missing_(cls, value: object) -> FindingKind | None:
        """A kind of a later version: its name is all that is known about it, so that it counts as a loss."""
        if not isinstance(value, str):
            return None
        kind = cls._create(_Row(value, Code.INTERNAL, Unit.PARTS, value, value))
        kind._name_ = value
        return kind

    def describe(self, count: int, total: int | None = None) -> str:
        """The number of findings in a few words: "2 regions not read", or "2 of 5 regions not read"."""
        numbers, is_plural = (f"{count} of {total}", total != 1) if total else (str(count), count != 1)
        return f"{numbers} {self.unit if is_plural else self.unit.removesuffix('s')} {self.what}"


class Finding(Value):
    """One thing that the page shows and the answer lacks, or that was changed on the way."""

    kind: Annotated[FindingKind, WithJsonSchema({"type": "string"})]  # later versions have other kinds
    count: int = Field(1, description="of what the kind counts: regions, answers, words or parts")
    element: str | None = Field(None, description="id of the element concerned; null if it is none or several")
    box: Box | None = Field(None, description="where it is on the page; null where this is unknown")
    words: tuple[str, ...] = Field((), description=f"the words concerned, where they are known; at most {MAX_WORDS}")
    said: str | None = Field(None, description="what the renderer said, or how much of an answer was cut")


class PageAudit(Value):
    """What became of the contents of one page."""

    findings: tuple[Finding, ...] = ()
    words_seen: int | None = Field(None, description="words of the PDF's own text; null where the page has none")
    words_read: int = Field(0, description="words of the page's elements")
    words_left_out: int = Field(
        0,
        description="those of headers and footers that repeat and of page numbers, which `furniture: auto` leaves out",
    )
    regions: int = Field(0, description="regions of a layout detector that were to be read")
    read_again: int = Field(0, description="elements that pass 2 read again from crops")

    @property
    def has_loss(self) -> bool:
        return any(finding.kind.is_loss for finding in self.findings)

    def count(self, kind: FindingKind) -> int:
        return sum(finding.count for finding in self.findings if finding.kind is kind)

    def explain(self, kind: FindingKind) -> str:
        """What was found of this kind and what to do, with what is known of words and of the renderer's messages."""
        found = [finding for finding in self.findings if finding.kind is kind]
        words = [word for finding in found for word in finding.words]
        said = dict.fromkeys(finding.said for finding in found if finding.said)
        total = self.regions if kind.unit is Unit.REGIONS else None
        parts = [kind.describe(self.count(kind), total or None)]
        parts += [f"({', '.join(said)})"] if said else []
        parts += [f"({' '.join(words[:MAX_SHOWN])}{' …' if len(words) > MAX_SHOWN else ''})"] if words else []
        return f"{' '.join(parts)}; {kind.advice}"

    def with_findings(self, findings: Sequence[Finding]) -> PageAudit:
        """The audit with these findings, each of them once."""
        return self.model_copy(update={"findings": tuple(dict.fromkeys((*self.findings, *findings)))})
