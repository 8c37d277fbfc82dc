"""A rendered page: what the renderer hands to both passes."""

from __future__ import annotations

from dataclasses import dataclass

from twopass.document import Page, Problem
from twopass.engines.interface import PagePointer
from twopass.pages.shared_pixels import Pixels
from twopass.pages.text_layer import NO_LAYER, TextLayer


@dataclass(frozen=True)
class Picture:
    """A rendered page: geometry and verdict in `page`, pixels valid while its context lasts."""

    page: Page
    pixels: Pixels
    pointer: PagePointer
    words: TextLayer = NO_LAYER
    ink: float = 0.0
    problems: tuple[Problem, ...] = ()
