"""How a job may ask for its markdown, and what each of its options leaves as it is."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from tests.fakes.documents import BOTTOM, any_texts, assembled, checkpoint, documents, element, grid
from twopass.document import Cell, Document, Element, Formula, State, Table
from twopass.errors import InvalidJob
from twopass.format_options import Chunks, Images, Markdown, Maths, Tables, Writing
from twopass.formats import front_matter, markdown
from twopass.job import Door, Job
from twopass.settings import Settings
from twopass.text import prose

spellings = st.builds(
    Markdown,
    front_matter=st.booleans(),
    images=st.sampled_from(Images),
    maths=st.sampled_from(Maths),
    tables=st.sampled_from(Tables),
    page_marks=st.booleans(),
    furniture=st.booleans(),
    merge_tables=st.booleans(),
)
SPANS = Table(
    html="",
    rows=2,
    cols=2,
    cells=(Cell(row=0, col=0, col_span=2, text="both"), Cell(row=1, col=0, text="a"), Cell(row=1, col=1, text="b")),
)


def written(*elements: Element, **options: Any) -> str:
    return markdown.write(assembled(checkpoint(1, *elements)), Markdown(**options))[0]


def said(element: Element) -> str:
    if element.formula and element.formula.latex:
        return element.formula.latex
    return "\n".join([element.text, *(cell.text for cell in (element.table.cells if element.table else ()))])


@settings(max_examples=150)
@given(documents(), spellings)
def test_no_spelling_loses_a_word(document: Document, spelling: Markdown) -> None:
    """All options at once, in any mixture; spans lie in the text they are spans of."""
    text, spans = markdown.write(document, spelling)
    have = "".join(prose.words(text))
    body = [element for element in document.elements if element.is_body or spelling.furniture]
    broken = "".join(prose.words("".join(element.text for element in body)))

    lost = [word for e in body for word in prose.words(said(e)) if word not in have and word in broken]

    assert not lost
    assert all(0 <= span.start < span.end <= len(text) for span in spans.values())
    assert set(spans) <= {element.id for element in body}


def test_front_matter_says_what_the_document_is() -> None:
    """YAML before anything else; spans count from the file's beginning."""
    document = assembled(checkpoint(1, element("text", "Water")), title='Springs: "old" #1')

    text, spans = markdown.write(document, Markdown(front_matter=True))
    front, _, rest = text.removeprefix("---\n").partition("---\n")

    assert yaml.safe_load(front)["title"] == 'Springs: "old" #1'
    assert yaml.safe_load(front)["pages"] == 1
    assert rest == "\n<!-- page: 1 -->\n\nWater\n"
    assert text[slice(*spans["p0001-e000"])] == "Water"


@settings(max_examples=200)
@given(any_texts.filter(bool))
def test_any_title_is_yaml(title: str) -> None:
    """A YAML reader finds exactly what the file says of itself."""
    told = front_matter.matter(assembled(checkpoint(1), title=title).model_copy(update={"id": title}))

    assert yaml.safe_load(told.strip("-\n"))["document"] == title


def test_maths_take_the_delimiters_that_are_asked_for() -> None:
    """In lines, cells and on lines of their own."""
    table = grid(["\\(x^2\\)"])
    elements = (
        element("text", "where \\(a_1\\) and 5 $"),
        element("formula", formula=Formula(latex="E = 1")),
        element("table", table=table),
    )

    text = written(*elements, maths="\\(")

    assert "where \\(a_1\\) and 5 \\$" in text
    assert "\\[\nE = 1\n\\]" in text
    assert "| \\(x^2\\) |" in text
    assert "$" in written(*elements) and "\\(" not in written(*elements)


def test_tables_are_html_or_gfm_as_asked() -> None:
    """GFM has no spans: the other cells stay blank, and no word is lost."""
    plain, spanning = element("table", table=grid(["a", "b"])), element("table", table=SPANS)

    assert "<table>" not in written(plain) and "<table>" in written(spanning)
    assert "<table>" in written(plain, tables="html")
    assert "| both |  |\n| --- | --- |\n| a | b |" in written(spanning, tables="gfm")


def test_page_marks_and_furniture_come_as_asked() -> None:
    """Marks and the notes of lost pages go, what every page repeats comes where it stands."""
    pages = [
        checkpoint(n, element("text", f"Line {n}"), element("page_footer", f"Page {n} of 3", BOTTOM)) for n in (1, 2)
    ]
    document = assembled(*pages, checkpoint(3, state=State.FAILED))

    text = markdown.write(document, Markdown(page_marks=False, furniture=True))[0]

    assert text == "Line 1\n\nPage 1 of 3\n\nLine 2\n\nPage 2 of 3\n"


def test_a_long_table_is_one_or_several() -> None:
    """Merged across pages unless somebody wants each page's own."""
    first = checkpoint(1, element("table", table=grid(["h", "i"], ["1", "2"], header=True), box=None))
    second = checkpoint(2, element("table", table=grid(["3", "4"]), box=None))
    document = assembled(first, second)

    merged = markdown.write(document)[0]
    apart = markdown.write(document, Markdown(merge_tables=False))[0]

    assert len(re.findall("^.*---.*\\|$", merged, re.M)) == 1
    assert len(re.findall("^.*---.*\\|$", apart, re.M)) == 2


def test_crops_may_lie_in_the_markdown() -> None:
    """The image's address is whatever it is given; a reader shows it."""
    document = assembled(checkpoint(1, element("picture", image="images/p0001-e000.png")))
    uri = "data:image/png;base64,AAAA"

    text = markdown.write(document, Markdown(images=Images.DATA), {"images/p0001-e000.png": uri})[0]

    (image,) = [c for t in MarkdownIt().parse(text) for c in t.children or () if c.type == "image"]
    assert image.attrGet("src") == uri


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"markdown": {"maths": "$$"}}, "markdown.maths"),
        ({"markdown": {"page_mark": False}}, "markdown.page_mark: unknown field"),
        ({"formats": ["docjson"], "markdown": {"furniture": True}}, "markdown: changes nothing"),
        ({"chunks": {"max_tokens": 256}}, "chunks: changes nothing"),
        ({"formats": ["chunks"], "chunks": {"max_tokens": 100, "min_tokens": 200}}, "chunks: min_tokens: larger"),
        ({"formats": ["pdf"]}, "formats.0"),
    ],
)
def test_a_spelling_that_cannot_be_is_refused_by_name(fields: dict[str, Any], named: str) -> None:
    """Before anything is read."""
    with pytest.raises(InvalidJob) as refused:
        Job.parse({"input": {"source": "a.pdf", "output": "out", **fields}}, Settings(), Door.LOCAL)

    assert refused.value.message.startswith(named)


def test_a_spelling_is_no_part_of_what_is_read() -> None:
    """Same options of reading, and so the same document; what a job leaves out stays as it was."""
    plain = Job.parse({"input": {"source": "a.pdf"}}, Settings(), Door.LOCAL)
    asked = Job.parse({"input": {"source": "a.pdf", "markdown": {"maths": "\\("}}}, Settings(), Door.LOCAL)
    before = Writing(markdown=Markdown(furniture=True), chunks=Chunks(max_tokens=99, min_tokens=9))

    assert plain.reading_options == asked.reading_options
    assert plain.writing(before) == before
    assert asked.writing(before) == Writing(markdown=Markdown(maths=Maths.BACKSLASH), chunks=before.chunks)
    assert plain.writing(None) == Writing()


def test_an_archive_needs_what_is_in_it() -> None:
    """DocJSON and markdown are written for it, whether asked for or not."""
    job = Job.parse({"input": {"source": "a.pdf", "formats": ["zip"]}}, Settings(), Door.LOCAL)

    assert [str(name) for name in job.formats_needed] == ["docjson", "markdown", "zip"]
