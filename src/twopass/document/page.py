"""A page, how it was read, and the checkpoint that stores it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from itertools import count
from typing import Annotated, Any

from pydantic import Field, WithJsonSchema

from twopass.document.audit import Finding, PageAudit
from twopass.document.box import Box
from twopass.document.element import Element, make_element_id
from twopass.errors import Code, Retry
from twopass.values import Value


class State(StrEnum):
    """How a selected page ended; exactly one."""

    label: str  # in a few words
    sentence: str

    READ = "read", "read", "The first answer could be used."
    REPAIRED = "repaired", "read again", "The first answer could not be used. A later one is shown."
    TEXT_LAYER = (
        "text_layer",
        "PDF's own text",
        "No answer could be used. The PDF's own text is shown, without tables and headings.",
    )
    BLANK = "blank", "blank", "The page is empty."
    FAILED = "failed", "failed", "The page could not be read. Text that is shown may be wrong or incomplete."
    UNREAD = "unread", "not read", "The job ended before the page was read. The same job can be sent again."

    def __new__(cls, value: str, label: str, sentence: str) -> State:
        state = str.__new__(cls, value)
        state._value_, state.label, state.sentence = value, label, sentence
        return state


_LOST_STATES = frozenset({State.FAILED, State.UNREAD})


class Status(StrEnum):
    """How a document or a job ended."""

    SUCCESS = "success"
    PARTIAL_SUCCESS = "partial_success"
    FAILURE = "failure"


class Severity(StrEnum):
    ERROR = "error"
    WARNING = "warning"


class Problem(Value):
    """One thing that went wrong, described for the person who acts on it."""

    code: Code
    severity: Severity = Severity.ERROR
    document: str | None = None
    page: int | None = None
    message: str

    @classmethod
    def warning(cls, page: int, code: Code, what: str) -> Problem:
        """A problem of a page that is read all the same; its message begins with the page."""
        return cls(code=code, severity=Severity.WARNING, page=page, message=f"page {page}: {what}")


class RungName(StrEnum):
    """What an attempt to read a page does, in words; a family's ladder is a sequence of them."""

    words: str

    NORMAL = "normal", "as usual"
    AGAIN = "again", "in the same way, with some randomness"
    MODE = "mode", "at another image resolution"
    REGIONS = "regions", "region by region, as a layout detector found them"
    WHOLE = "whole", "the whole page at once"
    FREE = "free", "as plain text without positions"
    TEXT_LAYER = "text_layer", "the PDF's own text"

    def __new__(cls, value: str, words: str) -> RungName:
        name = str.__new__(cls, value)
        name._value_, name.words = value, words
        return name

    @classmethod
    def _missing_(cls, value: object) -> RungName | None:
        """One of a later version, whose documents are read, too: its name is all that is known about it."""
        if not isinstance(value, str):
            return None
        name = str.__new__(cls, value)
        name._name_ = name._value_ = name.words = value
        return name


class Attempt(Value):
    """One attempt to read a page; `rung` names which of the family's ordered attempts it was."""

    rung: Annotated[RungName, WithJsonSchema({"type": "string", "title": "Rung"})]  # later versions have others
    mode: str | None = None
    finish_reason: str | None = None
    reason: Code | None = None

    @property
    def words(self) -> str:
        """How the page was read, and why the answer could not be used."""
        return f"{self.rung.words}: {self.reason.reason}" if self.reason else self.rung.words


class PageImage(Value):
    width_px: int
    height_px: int
    dpi: float


class Link(Value):
    """A link of the PDF to an address, of any scheme; one over several lines is one for each line."""

    box: Box
    uri: str
    text: str | None = Field(None, description="the PDF's own text in the box; null where it has none")
    before: str = Field("", description="the text in front of it, to tell it from the same words elsewhere")


class FieldType(StrEnum):
    TEXT = "text"
    CHECKBOX = "checkbox"
    RADIO = "radio"
    CHOICE = "choice"
    SIGNATURE = "signature"
    BUTTON = "button"


class FormField(Value):
    """One place of a form's field on a page, as the PDF has it; the buttons of a radio group are one each."""

    name: str = Field(description="with the names of the fields that it is a part of, and dots between them")
    type: FieldType
    value: str | None = Field(
        None,
        description="the text, the chosen options (one a line), what a box or button stands for, or who signed;"
        " null where it is empty, and for passwords",
    )
    checked: bool | None = Field(None, description="of boxes and radio buttons")
    label: str | None = Field(None, description="what the file calls the field for people")
    options: tuple[str, ...] = ()
    box: Box | None = None
    read_only: bool = False
    required: bool = False
    hidden: bool = Field(False, description="not shown on the page, and not part of its text")


class Page(Value):
    """One page as displayed. `number` counts from 1 in the source and is never renumbered."""

    number: int
    width_pt: float
    height_pt: float
    rotation_in: int = 0
    rotation_applied: int = 0
    image: PageImage | None = None
    mode: str | None = Field(None, description="the mode whose answer was kept; null where none was used")
    state: State
    reason: Code | None = None
    attempts: tuple[Attempt, ...] = ()
    language: str | None = None
    links: tuple[Link, ...] = ()
    fields: tuple[FormField, ...] = ()
    audit: PageAudit | None = Field(None, description="null in documents of versions that made none")

    @property
    def is_lost(self) -> bool:
        """Whether nothing of the page was read."""
        return self.state in _LOST_STATES

    @property
    def has_loss(self) -> bool:
        """Whether the page or some of its contents are lost."""
        return self.is_lost or (self.audit is not None and self.audit.has_loss)

    @property
    def is_transient_failure(self) -> bool:
        """Whether a worker or engine failed, not the page. Never checkpointed, so that the next job tries again."""
        return self.state is State.FAILED and self.reason is not None and self.reason.retry is Retry.AT_ONCE


class RawCompletion(Value):
    """The engine's answer verbatim; enough to parse the page again without an engine."""

    prompt_id: str
    prompt: str
    text: str
    finish_reason: str
    tokens_in: int = 0
    tokens_out: int = 0


_MISREAD = (
    "the model misread a test image when its worker started, whose log says how; `twopass accept` has not passed with "
    "these weights and versions, so that nobody knows what they can read: run it, compare the pages with the source, "
    "and read the document again with resume: false"
)


class Canary(StrEnum):
    """Whether the engine had to read known test pictures before it read pages, and could.

    MISREAD: it could not, but nobody knows whether the model can: `twopass accept` has not passed yet.
    """

    PASSED = "passed"
    OFF = "off"
    MISREAD = "misread"


class SourceVersion(Value):
    """The URI and ETag of the file a worker read.

    The document takes those of its first page, so that two workers with different URIs of one file write equal bytes.
    """

    uri: str
    etag: str | None = None


class Checkpoint(Value):
    """One finished page: `pages/NNNN.json`. Only `cost` holds clocks, hosts and nonces."""

    page: Page
    read_from: SourceVersion | None = None
    canary: Canary | None = Field(None, description="of the engine that read the page; null when it needs none")
    elements: tuple[Element, ...] = ()
    completions: tuple[RawCompletion, ...] = ()
    problems: tuple[Problem, ...] = ()
    cost: dict[str, Any] = Field(default_factory=dict)

    @property
    def without_completions(self) -> Checkpoint:
        """What assembly needs; the raw completions stay in the store, to save memory."""
        return self.model_copy(update={"completions": ()})

    def iterate_free_ids(self) -> Iterator[str]:
        """Yield ids that none of its elements has."""
        used = {element.id for element in self.elements}
        ids = (make_element_id(self.page.number, index) for index in count(len(used)))
        return (name for name in ids if name not in used)

    def with_problems(self, problems: Iterable[Problem]) -> Checkpoint:
        return self.model_copy(update={"problems": (*self.problems, *problems)})

    def with_findings(self, findings: Sequence[Finding]) -> Checkpoint:
        """The page with these findings of its audit; a step may record them before the audit is complete."""
        audit = (self.page.audit or PageAudit()).with_findings(findings)
        return self.model_copy(update={"page": self.page.model_copy(update={"audit": audit})})


def count_states(pages: Iterable[Checkpoint]) -> dict[str, int]:
    """How many pages ended in each state, by its name."""
    return dict(sorted(Counter(str(page.page.state) for page in pages).items()))


def derive_canary(pages: Sequence[Checkpoint]) -> Canary | None:
    """The document's canary: the worst of its pages. Any worker can derive it."""
    found = {page.canary for page in pages}
    return next((verdict for verdict in (Canary.MISREAD, Canary.OFF, Canary.PASSED) if verdict in found), None)


def list_canary_problems(pages: Sequence[Checkpoint]) -> tuple[Problem, ...]:
    """The problem of a document of which pages were read by a model that misread a test picture."""
    return (Problem(code=Code.CANARY, message=_MISREAD),) if derive_canary(pages) is Canary.MISREAD else ()
