"""A rendered page, as the renderer hands it to both passes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from twopass.document import Page, Problem
from twopass.errors import Code
from twopass.pages.hidden_words import Unseen
from twopass.pages.shared_pixels import Pixels
from twopass.pages.text_layer import NO_LAYER, TextLayer

# What a page may lack; see report_omission.
ANNOTATIONS = "annotations and form fields"
LINKS = "links"
SOME_LINKS = "some links"

BLANK_INK = 4e-5  # of `RenderedPage.ink`: with less, it shows nothing; a 9-point page number on A4 has 1.2e-4


@dataclass(frozen=True)
class PagePointer:
    """One page of a source file, for engines that read the file as well as its rendered image.

    `number` counts from 1. `turn` is the clockwise rotation (0, 90, 180 or 270 degrees) to apply on top of the
    file's own. `password` opens an encrypted file. `is_scalable` marks a PDF page that renders quickly, has text and
    hardly any images: render it again at a higher resolution instead of enlarging its pixels. `is_pdf` is False for
    an image file. `hidden` are words of its text layer that cannot be seen. `is_bare` means that the page was drawn
    without its annotations, at which MuPDF failed or did not return.
    """

    file: str
    number: int
    turn: int = 0
    password: str | None = field(default=None, repr=False)
    is_scalable: bool = False
    is_pdf: bool = True
    hidden: TextLayer = field(default=NO_LAYER, repr=False)
    is_bare: bool = False


@dataclass(frozen=True)
class RenderedPage:
    """A page and its pixels, which are valid only while the rendering context is open.

    `words` is what can be seen of the page's text layer, `unseen` has the rest. `ink` is the share of the
    page that differs from its background. `draft` is the text of the layer as an answer probably has it; empty if it
    is garbage or the engine has no use for it.
    """

    page: Page
    pixels: Pixels
    pointer: PagePointer
    words: TextLayer = NO_LAYER
    ink: float = 0.0
    problems: tuple[Problem, ...] = ()
    draft: str = ""
    unseen: Unseen = Unseen()

    @property
    def is_undrawn(self) -> bool:
        """Whether the page is damaged and shows nothing, so that a model would have to invent an answer."""
        return self.ink < BLANK_INK and (self.page.has_loss or bool(self.unseen.undrawn))


def report_omission(number: int, parts: Sequence[str]) -> Problem:
    """The warning about a page that lacks these parts."""
    what = f"{' and '.join(parts)} left out, because they are damaged or take too long"
    return Problem.warning(number, Code.PARTS_OMITTED, what)
