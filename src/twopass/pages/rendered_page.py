"""A rendered page, as the renderer hands it to both passes."""

from __future__ import annotations

from dataclasses import dataclass, field

from twopass.document import Page, Problem
from twopass.pages.shared_pixels import Pixels
from twopass.pages.text_layer import NO_LAYER, TextLayer


@dataclass(frozen=True)
class PagePointer:
    """One page of a source file, for engines that read the file as well as its rendered image.

    `number` counts from 1. `turn` is the clockwise rotation (0, 90, 180 or 270 degrees) to apply on top of the
    file's own. `password` opens an encrypted file. `is_scalable` marks a PDF page that renders quickly, has text and
    hardly any images: render it again at a higher resolution instead of enlarging its pixels.
    """

    file: str
    number: int
    turn: int = 0
    password: str | None = field(default=None, repr=False)
    is_scalable: bool = False


@dataclass(frozen=True)
class RenderedPage:
    """A page and its pixels, which are valid only while the rendering context is open.

    `words` is the page's text layer. `ink` is the share of the page that differs from its background.
    """

    page: Page
    pixels: Pixels
    pointer: PagePointer
    words: TextLayer = NO_LAYER
    ink: float = 0.0
    problems: tuple[Problem, ...] = ()
