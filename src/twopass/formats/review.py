"""Write review.html: each page's picture with a box for every element, and next to it the text that was read.

The page opens at what is least certain. Flags and states are shown in words, and confidence only where there is doubt.
It needs no network: style, script and pictures are embedded (or, if there are many pictures, stored beside it),
and its content security policy forbids everything else. All text of documents and models is escaped, and tables are
rendered from their cells.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from twopass.document import Box, Category, Document, Element, Finding, FindingKind, Flag, Page, Problem, State, Table
from twopass.formats import flow
from twopass.formats.html.page import CLICKABLE_SCHEMES, encode, load_asset, load_style, make_policy
from twopass.formats.html.text import TextRenderer
from twopass.formats.writer_input import WriterInput
from twopass.text import table_markup
from twopass.text.confidence import UNCERTAIN_BELOW

_FLAGGED_CONFIDENCE = 0.5  # upper limit for an element with a flag
_MODE_NOTES = {"gundam": "whole page and tiles"}  # the other names explain themselves
_SOUND_STATES = frozenset({State.READ, State.BLANK})  # pages that need no check unless they have a problem
GRID = 10_000  # width and height of a page picture, in the units of the boxes drawn on it
_BOX_MARGIN = 0.004  # of the page, added on each side of a box so that its outline does not cross letters


class _Shape(NamedTuple):
    """A box in units of the picture (see GRID)."""

    x: int
    y: int
    width: int
    height: int

    @classmethod
    def around(cls, box: Box) -> _Shape:
        """The box with its margin, clipped to the page: an outline beyond its edge would be invisible."""
        margin = round(_BOX_MARGIN * GRID)
        x0, y0, x1, y1 = box.to_grid(GRID)
        left, top = max(x0 - margin, 0), max(y0 - margin, 0)
        right, bottom = min(x1 + margin, GRID), min(y1 + margin, GRID)
        return cls(left, top, right - left, bottom - top)


class _Doubt(NamedTuple):
    """An entry of the list of what to check: an element or a finding, or a page as a whole if `element_id` is None."""

    page: int
    element_id: str | None
    reason: str
    label: str
    score: float


@dataclass(frozen=True)
class _ElementView:
    """What the review page shows of an element. `reason` says why nobody can see it on the page."""

    element: Element
    texts: TextRenderer
    reason: str | None = None

    @property
    def shapes(self) -> list[_Shape]:
        return [_Shape.around(box) for box in self.element.boxes]

    @property
    def alerts(self) -> list[str]:
        """Why the element may have been read badly, in words; its confidence only if there is doubt."""
        confidence = self.element.confidence
        alerts = [flag.sentence for flag in self._alert_flags]
        alerts += [f"It is {self.reason}."] if self.reason else []
        if self.is_doubtful and confidence:
            alerts.append(confidence.sentence)
        return alerts

    @property
    def notes(self) -> list[str]:
        """How the element was read, in words, where that raises no doubt."""
        return [flag.sentence for flag in self.element.flags if flag.informs and not flag.is_of_page]

    @property
    def _alert_flags(self) -> list[Flag]:
        """The flags that say the element may have been read badly."""
        return [flag for flag in self.element.flags if not flag.informs and not flag.is_of_page]

    @property
    def score(self) -> float:
        """The element's confidence, 1 if it has none; limited if a flag says that it may be wrong."""
        score = self.element.confidence.score if self.element.confidence else 1.0
        return min(score, _FLAGGED_CONFIDENCE) if self._alert_flags else score

    @property
    def is_doubtful(self) -> bool:
        return self.score < UNCERTAIN_BELOW

    @cached_property
    def label(self) -> str:
        """One line that identifies the element in lists."""
        figure = self.element.figure
        text = self.element.text or (figure and figure.description) or self.element.summary or ""
        return " ".join(text.split())[:90] or f"({self.element.kind})"

    @property
    def latex(self) -> str:
        """Empty if there is no LaTeX, also for a formula that was read as plain text."""
        return flow.get_latex(self.element)

    def render_text(self) -> Markup:
        """The element's text with its links."""
        line = flow.InlineText(self.element.text, False)
        return self.texts.render(self.element.text, shown=flow.locate_links(self.element, line))

    def render_table(self, table: Table) -> Markup:
        if not table.cells:
            return self.texts.render(flow.get_table_text(table))
        return Markup(table_markup.to_html(table.cells, self.texts.render_cell))


@dataclass(frozen=True)
class _FindingView:
    """What the review page shows of a finding of the audit that no element of the page stands for."""

    id: str
    finding: Finding

    @property
    def shapes(self) -> list[_Shape]:
        return [_Shape.around(self.finding.box)] if self.finding.box else []

    @property
    def text(self) -> str:
        """The words concerned, or what the renderer said."""
        return " ".join(self.finding.words) or self.finding.said or ""


@dataclass(frozen=True)
class _PageView:
    """What the review page shows of a page."""

    page: Page
    picture: str | None
    elements: Sequence[_ElementView]
    problems: Sequence[Problem]

    @property
    def size(self) -> tuple[int, int]:
        """Width and height reserved in the layout until the picture is loaded; A4 if unknown."""
        page = self.page
        return (round(page.width_pt) or 595, round(page.height_pt) or 842)

    @property
    def notes(self) -> list[str]:
        """The page's state, if it is not the usual one, and the flags that concern the page, in words."""
        state = [] if self.page.state is State.READ else [self.page.state.sentence]
        return list(dict.fromkeys([*state, *(flag.sentence for flag in self._flags)]))

    @property
    def _flags(self) -> list[Flag]:
        """The flags that concern the page as a whole."""
        return sorted({flag for view in self.elements for flag in view.element.flags if flag.is_of_page})

    @property
    def reason(self) -> str | None:
        """Why the page's first answer could not be used, in words; None if it could."""
        return self.page.reason.reason if self.page.reason else None

    @property
    def attempts(self) -> list[str]:
        """The attempts at the page, in words."""
        return [attempt.words for attempt in self.page.attempts]

    @property
    def doubts(self) -> list[_Doubt]:
        """What to check on the page: the page as a whole, then its doubtful elements."""
        elements = [
            _Doubt(self.page.number, view.element.id, view.alerts[0], view.label, view.score)
            for view in self.elements
            if view.is_doubtful
        ]
        number, label = self.page.number, "{0.finding.count} {0.finding.kind.unit}".format
        findings = [
            _Doubt(number, view.id, view.finding.kind.sentence, view.text or label(view), _FLAGGED_CONFIDENCE)
            for view in self.findings
        ]
        return [*self._page_doubts(), *findings, *elements]

    @cached_property
    def findings(self) -> list[_FindingView]:
        """What the audit found on the page, except what an element of it shows."""
        found = self.page.audit.findings if self.page.audit else ()
        known = {view.element.id for view in self.elements}
        others = [finding for finding in found if finding.element not in known]
        return [_FindingView(f"p{self.page.number:04d}-f{n:03d}", finding) for n, finding in enumerate(others)]

    def _page_doubts(self) -> list[_Doubt]:
        """One entry if the page had to be read in another way, if it has a problem or if a flag concerns all of it."""
        found = {view.finding.kind.code for view in self.findings}  # these have entries of their own
        page, reasons = self.page, [problem.message for problem in self.problems if problem.code not in found]
        if page.state not in _SOUND_STATES:
            reasons = [f"{page.state.label}, because {self.reason}" if self.reason else page.state.label]
        reasons += [flag.sentence for flag in self._flags if not flag.informs]
        if not reasons:
            return []
        return [_Doubt(page.number, None, reasons[0].removeprefix(f"page {page.number}: "), "", self._score())]

    def _score(self) -> float:
        """How certain the page as a whole is: lost pages come first, pages that a later attempt read come last."""
        if self.page.is_lost:
            return 0.0
        return UNCERTAIN_BELOW if self.page.state is State.REPAIRED and not self.problems else _FLAGGED_CONFIDENCE


def write(inputs: WriterInput) -> bytes:
    document = inputs.document
    pages = _build_page_views(document, inputs.pages)
    template, script = (load_asset(__package__, f"review.{kind}") for kind in ("html", "js"))
    style = load_style(__package__, "review.css")
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    html = environment.from_string(template).render(
        document=document,
        page_views=pages,
        doubts=sorted((doubt for page in pages for doubt in page.doubts), key=lambda doubt: doubt.score),
        problems=[problem for problem in document.problems if problem.page is None],
        unaudited=sum(page.audit is None for page in document.pages),
        states=Counter(view.page.state for view in pages),
        category_counts=Counter(view.element.category for page in pages for view in page.elements),
        categories=list(Category),
        mode_notes=_MODE_NOTES,
        style=Markup(style),
        script=Markup(script),
        policy=make_policy(style, script),
        grid=GRID,
        clickable_schemes=CLICKABLE_SCHEMES,
    )
    return encode(html)


def _build_page_views(document: Document, pictures: Mapping[int, str]) -> list[_PageView]:
    texts = TextRenderer()
    elements: dict[int, list[_ElementView]] = defaultdict(list)
    found = (finding for page in document.pages if page.audit for finding in page.audit.findings)
    reasons = {finding.element: finding.said for finding in found if finding.kind is FindingKind.HIDDEN_TEXT}
    for element in document.elements:
        elements[element.page].append(_ElementView(element, texts, reasons.get(element.id)))
    problems: dict[int | None, list[Problem]] = defaultdict(list)
    for problem in document.problems:
        problems[problem.page].append(problem)
    return [
        _PageView(page, pictures.get(page.number), elements[page.number], problems[page.number])
        for page in document.pages
    ]
