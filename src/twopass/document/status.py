"""How pages, documents and jobs end, and the problems they report."""

from __future__ import annotations

from enum import StrEnum

from twopass.document.base import Value
from twopass.errors import Code


class State(StrEnum):
    """How a selected page ended; exactly one."""

    READ = "read"
    REPAIRED = "repaired"
    TEXT_LAYER = "text_layer"
    BLANK = "blank"
    FAILED = "failed"
    UNREAD = "unread"


LOST_STATES = frozenset({State.FAILED, State.UNREAD})
# A page worker or the engine failed, not the page: another try may succeed.
TRANSIENT_CODES = frozenset({Code.RENDER_CRASH, Code.RENDER_TIMEOUT, Code.RENDER_MEMORY, Code.ENGINE_CRASH})


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
