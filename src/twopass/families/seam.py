"""What a line of models is asked and how its answers are read: the other side of the engines' seam.

Knows prompts and answers as text. Knows nothing of engines, files or neighbouring pages.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from twopass.document import Element
from twopass.errors import Code


@dataclass(frozen=True)
class Answer:
    """A page as its answer tells it. `reason` says why it will not do; `flags` hold of the whole page."""

    elements: tuple[Element, ...] = ()
    reason: Code | None = None
    flags: tuple[str, ...] = ()
    via: str | None = None


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

    def page_prompt(self, mode: str, task: str) -> str: ...

    def crop_prompt(self, element: Element, everything: bool) -> str | None:
        """What pass 2 asks about an element, None when nothing; `everything` asks about all that can be asked."""
        ...

    def parse(self, text: str, page: int) -> Answer:
        """Elements of one page; total: any text is some answer."""
        ...

    def reread(self, element: Element, text: str) -> Element:
        """The element as pass 2's answer tells it."""
        ...
