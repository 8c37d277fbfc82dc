"""A Draft in, review.html out: each page's picture with a box for every element, and beside it what was read there.

One file that asks no network for anything: style, script and pictures are in it (many pictures lie beside it), and its
content policy forbids all else. Everything that a document or model says is escaped; tables are written from their
cells. Knows nothing of where it is stored.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib import resources
from typing import NamedTuple

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup, escape

from twopass.document import Category, Document, Element, Page, Problem, Table
from twopass.formats import escaping, mathml
from twopass.formats.draft import Draft
from twopass.text import table_markup

SURE = 0.9  # of confidence: RapidOCR gives clean print 0.98 and more, agreement of two readings is as high
UNKNOWN = 0.5  # confidence of what is flagged, at most
# Flags that tell how something was read, not that it was read badly.
HARMLESS = frozenset({"apart", "derived_keywords", "derived_summary", "heading_repeated", "hidden_layer", "untagged"})
GRID = 10_000  # units of a page's picture across and down, in which boxes are drawn
SPARE = 0.004  # of the page around a box: its line beside letters and not through them
OPENED = ("http://", "https://", "mailto:")  # links that a click may follow
_MATHS = re.compile(r"\\\((.+?)\\\)|\\\[(.+?)\\\]", flags=re.DOTALL)
_UNDRAWN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")  # HTML has no place for these


class Shape(NamedTuple):
    """A box in units of the picture."""

    x: int
    y: int
    width: int
    height: int


@dataclass(frozen=True)
class Shown:
    """An element as the page tells of it."""

    element: Element
    prose: Callable[[str], Markup]
    formula: Callable[[str], Markup]

    @property
    def shapes(self) -> list[Shape]:
        spare = round(SPARE * GRID)
        corners = (box.to_grid(GRID) for box in self.element.boxes)
        wider = [
            (max(x0 - spare, 0), max(y0 - spare, 0), min(x1 + spare, GRID), min(y1 + spare, GRID))
            for x0, y0, x1, y1 in corners
        ]  # but within the page, whose edge would hide their lines
        return [Shape(x0, y0, x1 - x0, y1 - y0) for x0, y0, x1, y1 in wider]

    @property
    def alarms(self) -> list[str]:
        return [flag for flag in self.element.flags if flag not in HARMLESS]

    @property
    def score(self) -> float:
        """How far it is to be believed."""
        told = self.element.confidence.score if self.element.confidence else 1.0
        return min(told, UNKNOWN) if self.alarms else told

    @property
    def is_doubtful(self) -> bool:
        return self.score < SURE

    @cached_property
    def label(self) -> str:
        """A line that names it in lists."""
        figure = self.element.figure
        told = self.element.text or (figure and figure.description) or self.element.summary or ""
        return " ".join(told.split())[:90] or f"({self.element.kind})"

    @property
    def latex(self) -> str | None:
        """None of a formula that was read as plain text: that is no LaTeX."""
        known = self.element.formula and self.element.formula.latex
        return escaping.maths(known) if known else None

    def table(self, known: Table) -> Markup:
        if not known.cells:
            return self.prose(escaping.flat(known.markdown or known.html))
        return Markup(table_markup.html(known.cells, self.prose))


@dataclass(frozen=True)
class Sheet:
    """A page with its picture and elements."""

    page: Page
    picture: str | None
    elements: Sequence[Shown]
    problems: Sequence[Problem]

    @property
    def size(self) -> tuple[int, int]:
        """Width and height that the picture has in the layout before it is loaded."""
        page = self.page
        return (round(page.width_pt) or 595, round(page.height_pt) or 842)

    @property
    def doubts(self) -> list[Shown]:
        return sorted((one for one in self.elements if one.is_doubtful), key=lambda one: one.score)


def write(draft: Draft) -> bytes:
    document = draft.document
    sheets = _sheets(document, draft.pages)
    text, style, script = (_asset(f"review.{kind}") for kind in ("html", "css", "js"))
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    page = environment.from_string(text).render(
        document=document,
        sheets=sheets,
        doubts=sorted((one for sheet in sheets for one in sheet.doubts), key=lambda one: one.score),
        lost=[sheet.page for sheet in sheets if sheet.page.is_lost],
        states=Counter(sheet.page.state for sheet in sheets),
        categories=Counter(one.element.category for sheet in sheets for one in sheet.elements),
        order=list(Category),
        style=Markup(style),
        script=Markup(script),
        policy=_policy(style, script),
        grid=GRID,
        opened=OPENED,
    )
    return _UNDRAWN.sub("\ufffd", page).encode()


def _asset(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text("utf-8")


def _policy(style: str, script: str) -> str:
    """Nothing from anywhere, but this script, this style and the pictures; MathML brings styles of its own."""
    return (
        f"default-src 'none'; script-src {_hash(script)}; style-src-elem {_hash(style)}; "
        "style-src-attr 'unsafe-inline'; img-src 'self' file: data:; base-uri 'none'; form-action 'none'"
    )


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _sheets(document: Document, pictures: Mapping[int, str]) -> list[Sheet]:
    convert = mathml.converter()

    def formula(latex: str, display: bool = True) -> Markup:
        """Drawn, or as it is written where nobody can draw it."""
        drawn = convert(latex, display)
        return Markup(drawn) if drawn else Markup('<code class="latex">{}</code>').format(latex)

    def prose(text: str) -> Markup:
        parts, start = [], 0
        for found in _MATHS.finditer(text):
            parts += [escape(text[start : found.start()]), formula(found.group(1) or found.group(2), False)]
            start = found.end()
        return Markup("").join([*parts, escape(text[start:])])

    elements: dict[int, list[Shown]] = defaultdict(list)
    for element in document.elements:
        elements[element.page].append(Shown(element, prose, formula))
    problems: dict[int | None, list[Problem]] = defaultdict(list)
    for problem in document.problems:
        problems[problem.page].append(problem)
    return [
        Sheet(page, pictures.get(page.number), elements[page.number], problems[page.number]) for page in document.pages
    ]
