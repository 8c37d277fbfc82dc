"""What writers write from: a Document, how it is to be spelled, and where its pictures are.

Knows nothing of how any format looks, nor of stores: whoever makes a draft has put the pictures there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from twopass.document import Document
from twopass.writing import Writing


@dataclass(frozen=True)
class Draft:
    """`crops`: paths of crops whose address is another, a data URI for example. `pages`: addresses of page pictures."""

    document: Document
    writing: Writing = Writing()
    crops: Mapping[str, str] = field(default_factory=dict)
    pages: Mapping[int, str] = field(default_factory=dict)

    def crop(self, path: str) -> str:
        return self.crops.get(path, path)
