"""review.html escapes everything, allows only its own script and style, and lists doubtful elements first."""

from __future__ import annotations

import base64
import hashlib
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lxml import html

from tests import ROOT
from tests.fakes.documents import MIDDLE, any_texts, build_document, checkpoint, documents, element, plain_table
from twopass.document import Box, Confidence, Document, Figure, Formula, State
from twopass.errors import Code
from twopass.formats import mathml, review
from twopass.formats.draft import Draft

TAGS = {
    "html", "head", "meta", "title", "style", "body", "header", "h1", "h2", "h3", "span", "input", "label", "button",
    "div", "i", "b", "nav", "section", "p", "ol", "li", "a", "em", "main", "article", "svg", "rect", "img", "details",
    "summary", "pre", "code", "table", "tr", "td", "th", "dialog", "dl", "dt", "dd", "form", "script",
}  # fmt: skip


def write_page(document: Document) -> str:
    return review.write(Draft(document)).decode()


@settings(max_examples=25)
@given(documents())
def test_no_tag_of_a_document_gets_through(document: Document) -> None:
    """Whatever a document says, the page has only our tags, MathML and one script, and no event handlers."""
    tree = html.fromstring(write_page(document).encode())
    found = [node for node in tree.iter() if isinstance(node.tag, str)]
    maths = {node for top in tree.iter("math") for node in top.iter()}

    assert {node.tag for node in found if node not in maths} <= TAGS
    assert len(list(tree.iter("script"))) == 1
    assert not [name for node in found for name in node.attrib if name.startswith("on")]
    assert not [n for node in maths for n in node.attrib if n in ("href", "src", "xlink:href")]


def test_the_policy_allows_the_script_and_style_by_hash() -> None:
    """The content security policy allows the page's own script and style by hash, and nothing else."""
    page = write_page(build_document(checkpoint(1, element("text", "Water"))))
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', page)
    assert policy

    for tag in ("script", "style"):
        (body,) = re.findall(rf"<{tag}>(.*?)</{tag}>", page, re.S)
        assert f"sha256-{base64.b64encode(hashlib.sha256(body.encode()).digest()).decode()}" in policy[1]
    assert policy[1].startswith("default-src &#39;none&#39;;")


@settings(max_examples=200)
@given(st.one_of(any_texts, st.text(alphabet="\\{}[]&%$_^abc12<>'\" \n", max_size=40)), st.booleans())
def test_any_latex_gives_mathml_or_none(latex: str, display: bool) -> None:
    """Any LaTeX converts to MathML or to None; it never raises and never adds a tag outside MathML."""
    converted = mathml.make_converter()(latex, display)

    assert converted is None or re.fullmatch(r"<math[ >].*</math>", converted, re.S)
    assert not converted or not re.search(r"<(?!/?(?:math|m[a-z]+|semantics|annotation)\b)", converted)


@pytest.mark.parametrize(
    ("latex", "mathml_part"),
    [
        (r"Q = v A \tag{1}", "<mtext>(1)</mtext>"),
        (r"a &= b \\ c &= d", "<mtable"),
        (r"\mathrm{e}^{i\pi}", "<msup>"),
        (r"a < b", "&lt;"),
    ],
)
def test_formulas_as_models_write_them_are_converted(latex: str, mathml_part: str) -> None:
    """Equation numbers, rows without an environment and comparison signs convert to MathML."""
    assert mathml_part in (mathml.make_converter()(latex, True) or "")


def test_a_formula_that_cannot_be_converted_is_shown_as_source() -> None:
    """LaTeX that cannot be converted is shown as escaped source and not left out."""
    page = write_page(
        build_document(checkpoint(1, element("formula", "x", formula=Formula(latex=r"\frac{1 < \left["))))
    )

    assert r'<code class="latex">\frac{1 &lt; \left[</code>' in page


def test_the_least_certain_come_first() -> None:
    """Lost pages come first, then flagged and uncertain elements; informational flags raise no doubt."""
    sure = element("text", "sure", confidence=Confidence(score=0.99, method="ocr"), flags=("derived_summary",))
    unsure = element("text", "unsure", confidence=Confidence(score=0.7, method="ocr"))
    flagged = element("text", "flagged", flags=("loop",))
    lost = checkpoint(2, state=State.FAILED, reason=Code.EMPTY)

    page = write_page(build_document(checkpoint(1, sure, unsure, flagged), lost))

    listed = page.partition('id="doubts"')[2].partition("</section>")[0]
    assert re.findall(r"failed EMPTY|\bsure|unsure|flagged", listed) == ["failed EMPTY", "flagged", "unsure"]


def test_tables_are_written_from_their_cells() -> None:
    """Tables are rendered from escaped cells; HTML that a model wrote is never used."""
    table = plain_table(["<b>a</b>", "1 \\(x^2\\)"]).model_copy(update={"html": "<table onclick=x><script>"})
    figure = Figure(data=plain_table(["2021", "610"]))

    page = write_page(
        build_document(checkpoint(1, element("table", "", table=table), element("chart", "", figure=figure)))
    )

    assert "<td>&lt;b&gt;a&lt;/b&gt;</td>" in page and "<msup>" in page and "<td>610</td>" in page
    assert "onclick" not in page


def test_the_pages_assets_are_in_the_package() -> None:
    """The page's template, style and script are declared as package data; a wheel without them would fail."""
    pyproject = (ROOT / "pyproject.toml").read_text()
    assets = {path.name for path in Path(review.__file__).parent.glob("review.*") if path.suffix != ".py"}

    assert assets == set(re.findall(r'"(review\.\w+)"', pyproject))


def test_boxes_surround_their_elements_within_the_page() -> None:
    """A box is drawn slightly outside its element, but never beyond the page's edge, where it is invisible."""
    page = write_page(build_document(checkpoint(1, element("text", "a"), element("text", "b", box=Box(0, 0, 1, 1)))))
    attributes = re.findall(r'x="(-?\d+)" y="(-?\d+)" width="(\d+)" height="(\d+)"', page)
    rects = [tuple(map(int, numbers)) for numbers in attributes]

    x, y, width, height = rects[0]
    assert x < MIDDLE.x0 * review.GRID and x + width > MIDDLE.x1 * review.GRID
    assert y < MIDDLE.y0 * review.GRID and y + height > MIDDLE.y1 * review.GRID
    assert rects[1] == (0, 0, review.GRID, review.GRID)
