"""What a line of models is asked and how its answers are read: the other side of the engines' seam.

Knows prompts and answers as text. Knows nothing of engines, files or neighbouring pages.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Protocol

from twopass.document import Element
from twopass.errors import Code
from twopass.pages.text_layer import NO_LAYER, TextLayer

NORMAL = "normal"  # the name of every ladder's first rung


@dataclass(frozen=True)
class Look:
    """What rendering knows of a page before anybody reads it.

    Size in pixels; `ink` is the share of inked blocks, 0..1; `characters` counts the text layer's.
    """

    width: int
    height: int
    ink: float = 0.0
    characters: int = 0


@dataclass(frozen=True)
class Asked:
    """What the caller wants of a page: the job's mode, task and prompt, in the contract's words."""

    mode: str = "auto"
    task: str = "document"
    prompt: str | None = None


@dataclass(frozen=True)
class Rung:
    """One way of asking about a page. `sampling` holds what differs from the job's own, by field name.

    `mode` is None where a family knows none. `reads` names the grammar of the answer; the family that wrote
    the rung knows it again.
    """

    name: str
    prompt: str
    mode: str | None = None
    reads: str = "document"
    sampling: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))

    def __reduce__(self) -> tuple[type, tuple[Any, ...]]:
        # A mapping proxy does not pickle, and rungs travel to page workers.
        return type(self), (self.name, self.prompt, self.mode, self.reads, dict(self.sampling))


@dataclass(frozen=True)
class Answer:
    """A page as its answer tells it. `reason` says why it will not do; `flags` hold of the whole page."""

    elements: tuple[Element, ...] = ()
    reason: Code | None = None
    flags: tuple[str, ...] = ()
    via: str | None = None


@dataclass(frozen=True)
class Question:
    """What pass 2 asks about one crop, and in which mode."""

    prompt: str
    mode: str | None = None


@dataclass(frozen=True)
class Reply:
    """Pass 2's answer. `layer` is the text layer's words inside the element, None where the page has none."""

    text: str
    prompt: str
    finish_reason: str = "stop"
    layer: str | None = None


class Family(Protocol):
    """Prompts and the grammar of their answers; a plain value that travels to page workers."""

    @property
    def name(self) -> str: ...

    @property
    def revision(self) -> str:
        """The model revision the prompts and the grammar were written for."""
        ...

    @property
    def prompts(self) -> Mapping[str, str]:
        """Every prompt by name, for the document's `run` block."""
        ...

    @property
    def canary(self) -> Question | None:
        """How to ask for the text of a picture with nothing but text on it; None where no model is asked."""
        ...

    @property
    def modes(self) -> frozenset[str]:
        """The modes a job may ask for."""
        ...

    @property
    def tasks(self) -> frozenset[str]:
        """The tasks a job may ask for."""
        ...

    def ladder(self, look: Look, asked: Asked) -> tuple[Rung, ...]:
        """The ways to ask about a page, the normal one first; never empty."""
        ...

    def parse(self, text: str, page: int, rung: Rung, layer: TextLayer = NO_LAYER) -> Answer:
        """Elements of one page; total: any text is some answer. `layer` is a third witness, not a source."""
        ...

    def looping(self, text: str) -> bool:
        """Whether an answer that is still growing repeats itself."""
        ...

    def question(
        self,
        element: Element,
        everything: bool,
        size: tuple[int, int],
        beside: Sequence[Element],
        replies: Sequence[Reply] = (),
    ) -> Question | None:
        """What pass 2 asks next about an element, None when nothing (more); `everything` asks about all it can.

        `size` is the crop's in pixels, `beside` the page's elements, `replies` what was answered so far.
        """
        ...

    def reread(self, element: Element, replies: Sequence[Reply]) -> Element:
        """The element after pass 2: which answer stands, why, and how sure that is."""
        ...
