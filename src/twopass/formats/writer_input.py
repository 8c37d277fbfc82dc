"""What every format is written from: a Document, the format options and the addresses of its pictures.

It also holds document.md, because most other formats refer to spans of it. The caller has already stored the pictures.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from twopass.document import Document, Span
from twopass.format_options import FormatOptions
from twopass.formats import flow, hidden_text, markdown
from twopass.formats.flow import Flow


@dataclass(frozen=True)
class WriterInput:
    """A document with what its formats need.

    `crops` maps crop paths to addresses where they differ, for example to data URIs. `pages` maps page numbers to the
    addresses of page pictures.
    """

    document: Document
    options: FormatOptions = FormatOptions()
    crops: Mapping[str, str] = field(default_factory=dict)
    pages: Mapping[int, str] = field(default_factory=dict)

    @cached_property
    def shown(self) -> Document:
        """The document as readers see it: its hidden text as the option says."""
        return hidden_text.show(self.document, self.options.hidden_text)

    @cached_property
    def flow(self) -> Flow:
        """What Markdown, HTML and chunks show."""
        return flow.build(self.shown, self.options.markdown)

    @cached_property
    def markdown(self) -> tuple[str, dict[str, Span]]:
        """The text of document.md and the span of each element in it; rendered once for all formats."""
        return markdown.write(self.shown, self.options.markdown, self.crops, shown=self.flow)

    @cached_property
    def with_spans(self) -> Document:
        """The document with `md_span` set on every element."""
        _, spans = self.markdown
        elements = tuple(e.model_copy(update={"md_span": spans.get(e.id)}) for e in self.document.elements)
        return self.document.model_copy(update={"elements": elements})
