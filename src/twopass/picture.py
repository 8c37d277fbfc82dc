"""A rendered page: what the renderer hands to both passes."""

from __future__ import annotations

from dataclasses import dataclass

from twopass.document import Page, Problem, Word
from twopass.engines.seam import PagePointer
from twopass.slabs import Pixels


@dataclass(frozen=True)
class Picture:
    """A rendered page: geometry and verdict in `page`, pixels valid while its context lasts."""

    page: Page
    pixels: Pixels
    pointer: PagePointer
    words: tuple[Word, ...] = ()
    ink: float = 0.0
    problems: tuple[Problem, ...] = ()
