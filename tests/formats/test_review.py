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
from twopass.document import (
    Attempt,
    Box,
    Confidence,
    Document,
    Figure,
    Finding,
    FindingKind,
    Flag,
    Formula,
    PageAudit,
    Problem,
    Severity,
    State,
)
from twopass.errors import Code
from twopass.formats import review
from twopass.formats.html.text import make_mathml_converter
from twopass.formats.writer_input import WriterInput

TAGS = {
    "html", "head", "meta", "title", "style", "body", "header", "h1", "h2", "h3", "span", "input", "label", "button",
    "div", "i", "b", "nav", "section", "p", "ol", "li", "a", "em", "main", "article", "svg", "rect", "img", "details",
    "summary", "pre", "code", "table", "tr", "td", "th", "dialog", "dl", "dt", "dd", "form", "script", "br",
}  # fmt: skip


def write_page(document: Document) -> str:
    return review.write(WriterInput(document)).decode()


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
    converted = make_mathml_converter()(latex, display)

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
    assert mathml_part in (make_mathml_converter()(latex, True) or "")


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
    assert re.findall(r"failed, because|\bsure|unsure|flagged", listed) == ["failed, because", "flagged", "unsure"]


def list_doubts(page: str) -> str:
    """The text of the list of what to check."""
    return html.fromstring(page.encode()).get_element_by_id("doubts").text_content()


def test_confidence_is_shown_only_where_there_is_doubt() -> None:
    """Elements below the limit show their confidence in words, others none; it is never rounded up to the limit."""
    confidences = [Confidence(score=score, method="ocr") for score in (0.85, 0.849, 0.57, 1.0)]
    texts = [element("text", "Water", confidence=confidence) for confidence in confidences]

    page = write_page(build_document(checkpoint(1, *texts)))

    shown = re.findall(r'<p class="alert">The text recognition was (\d+) % certain', page)
    assert shown == ["84", "57"]
    assert "90 %" not in page and "100 %" not in page


def test_a_certain_document_shows_no_percentages_and_says_so_once() -> None:
    """Where nothing is doubtful the page has no percentage and no alert, and says once that nothing is uncertain."""
    texts = [element("text", "Water", confidence=Confidence(score=0.97, method="ocr")) for _ in range(3)]

    pages = checkpoint(1, *texts, audit=PageAudit()), checkpoint(2, state=State.BLANK, audit=PageAudit())
    page = write_page(build_document(*pages))

    body = html.fromstring(page.encode()).body.text_content().partition('"use strict"')[0]
    assert "%" not in body
    assert body.count("Nothing is marked as uncertain") == 1
    assert 'class="alert"' not in page


def test_flags_are_shown_in_words_and_unknown_ones_as_they_are() -> None:
    """A card says what its flags mean; a flag of a later version is shown by its name and raises doubt, too."""
    flags = ("uncertain", "newer_flag", "heading_repeated")

    page = write_page(build_document(checkpoint(1, element("text", "Water", flags=flags))))

    card = html.fromstring(page.encode()).get_element_by_id("p0001-e000")
    assert [p.text for p in card.find_class("alert")] == [Flag.UNCERTAIN.sentence, "newer_flag"]
    assert [p.text for p in card.find_class("note")] == [Flag.HEADING_REPEATED.sentence]


def test_flags_that_concern_a_page_are_explained_once() -> None:
    """Flags that all elements of a page have are explained on the page, which is listed instead of its elements."""
    texts = [element("text", f"paragraph {n}", flags=("dense_page",)) for n in range(3)]

    page = write_page(build_document(checkpoint(1, *texts)))

    assert page.count(Flag.DENSE_PAGE.sentence) == 2
    assert Flag.DENSE_PAGE.sentence in list_doubts(page) and "paragraph" not in list_doubts(page)
    assert "element text_paragraph doubted" not in page


def test_pages_that_need_a_check_are_listed() -> None:
    """Pages read again, shown from the PDF's own text or with a problem are listed; those read and blank are not."""
    warning = Problem(code=Code.PIXEL_LIMIT, severity=Severity.WARNING, page=4, message="page 4: rendered at 72 dpi")
    pages = [
        checkpoint(1, element("text", "a")),
        checkpoint(2, element("text", "b"), state=State.REPAIRED, reason=Code.LOOP),
        checkpoint(3, element("text", "c", flags=("text_layer",)), state=State.TEXT_LAYER, reason=Code.TRUNCATED),
        checkpoint(4, element("text", "d")).model_copy(update={"problems": (warning,)}),
        checkpoint(5, state=State.BLANK),
    ]

    listed = list_doubts(write_page(build_document(*pages)))

    entries = [" ".join(entry.split()) for entry in re.split(r"(?=\bp \d )", listed)][1:]
    assert entries == [
        "p 3 PDF's own text, because the answer was cut off at its limit",
        "p 4 rendered at 72 dpi",
        "p 2 read again, because the answer repeated itself",
    ]


def test_the_state_and_the_attempts_of_a_page_are_shown_in_words() -> None:
    """A page that was read again says so in words, with each attempt and why its answer could not be used."""
    attempts = (Attempt(rung="normal", reason=Code.LOOP), Attempt(rung="again", reason=Code.LOOP), Attempt(rung="mode"))

    page = write_page(build_document(checkpoint(1, state=State.REPAIRED, reason=Code.LOOP, attempts=attempts)))

    assert f'<p class="note">{State.REPAIRED.sentence}</p>' in page
    listed = html.fromstring(page.encode()).find_class("attempts")[0]
    assert [item.text for item in listed.iter("li")] == [attempt.words for attempt in attempts]
    assert "repaired" not in "".join(html.fromstring(page.encode()).find_class("text")[0].itertext())


def test_problems_of_the_whole_document_are_shown() -> None:
    """A problem without a page is shown above the list, and the document is not called certain."""
    problem = Problem(code=Code.PAGE_RANGE, severity=Severity.WARNING, message="pages 7-9 do not exist")
    document = build_document(checkpoint(1, element("text", "Water"))).model_copy(update={"problems": (problem,)})

    listed = list_doubts(write_page(document))

    assert "pages 7-9 do not exist" in listed and "Nothing is marked" not in listed


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


def test_what_the_audit_found_is_listed_and_leads_to_its_place() -> None:
    """A finding without an element has an entry, a box on the picture and a card with what is known of it."""
    found = Finding(kind=FindingKind.WORDS_LOST, count=2, words=("Salt", "418"), box=MIDDLE)
    page = write_page(build_document(checkpoint(1, element("text", "Water"), audit=PageAudit(findings=(found,)))))
    tree = html.fromstring(page.encode())

    (entry,) = tree.xpath("//section[@id='doubts']//li/a")
    assert "in no element" in entry.text_content() and "Salt 418" in entry.text_content()
    (card,) = tree.xpath(f"//section[@id='{entry.get('href')[1:]}']")
    assert "Salt 418" in card.text_content()
    assert tree.xpath(f"//rect[@data-element='{card.get('id')}']")


def test_pages_of_an_earlier_version_do_not_count_as_checked() -> None:
    """Without an audit, nobody knows whether a page is complete."""
    audited, stored = checkpoint(1, element("text", "Salt"), audit=PageAudit()), checkpoint(2, element("text", "Ash"))

    assert "the audit found nothing" in write_page(build_document(audited))
    assert "earlier version read 1 of these pages" in write_page(build_document(audited, stored))
