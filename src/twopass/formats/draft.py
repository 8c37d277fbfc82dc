"""What writers write from: a Document, how it is to be spelled, and where its pictures are.

Of formats it knows document.md alone, which most others point into. Knows nothing of stores: whoever makes a draft has
put the pictures there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from twopass.document import Document, Span
from twopass.format_options import Writing
from twopass.formats import markdown


@dataclass(frozen=True)
class Draft:
    """`crops`: paths of crops whose address is another, a data URI for example. `pages`: addresses of page pictures."""

    document: Document
    writing: Writing = Writing()
    crops: Mapping[str, str] = field(default_factory=dict)
    pages: Mapping[int, str] = field(default_factory=dict)

    def crop(self, path: str) -> str:
        return self.crops.get(path, path)

    @cached_property
    def markdown(self) -> tuple[str, dict[str, Span]]:
        """The text of document.md, and where in it each element stands that has a place; written once for all."""
        return markdown.write(self.document, self.writing.markdown, self.crops)

    @cached_property
    def placed(self) -> Document:
        """The document with every element's `md_span`."""
        _, spans = self.markdown
        elements = tuple(e.model_copy(update={"md_span": spans.get(e.id)}) for e in self.document.elements)
        return self.document.model_copy(update={"elements": elements})
