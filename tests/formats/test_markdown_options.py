"""The markdown options of a job: what each one changes, and that none loses a word."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from tests.fakes.documents import BOTTOM, TOP, any_texts, build_document, checkpoint, documents, element, plain_table
from twopass.document import Cell, Document, Element, Formula, State, Table
from twopass.errors import InvalidJob
from twopass.format_options import Chunks, FormatOptions, Furniture, Images, Markdown, Maths, Tables
from twopass.formats import flow, markdown
from twopass.job import EntryPoint, Job
from twopass.settings import Settings
from twopass.text import prose

markdown_options = st.builds(
    Markdown,
    front_matter=st.booleans(),
    images=st.sampled_from(Images),
    maths=st.sampled_from(Maths),
    tables=st.sampled_from(Tables),
    page_marks=st.booleans(),
    furniture=st.sampled_from(Furniture),
    merge_tables=st.booleans(),
)
SPANS = Table(
    html="",
    rows=2,
    cols=2,
    cells=(Cell(row=0, col=0, col_span=2, text="both"), Cell(row=1, col=0, text="a"), Cell(row=1, col=1, text="b")),
)


def write_page(*elements: Element, **options: Any) -> str:
    return markdown.write(build_document(checkpoint(1, *elements)), Markdown(**options))[0]


def expected_text(element: Element) -> str:
    if element.formula and element.formula.latex:
        return element.formula.latex
    return "\n".join([element.text, *(cell.text for cell in (element.table.cells if element.table else ()))])


@given(documents(), markdown_options)
def test_no_combination_of_options_loses_a_word(document: Document, options: Markdown) -> None:
    """With any combination of options every word is in the text, and spans are within it."""
    text, spans = markdown.write(document, options)
    found_words = "".join(prose.split_words(text))
    body = [element for element in document.elements if flow.is_written(element, options.furniture)]
    broken = "".join(prose.split_words("".join(element.text for element in body)))

    lost = [
        word for e in body for word in prose.split_words(expected_text(e)) if word not in found_words and word in broken
    ]

    assert not lost
    assert all(0 <= span.start < span.end <= len(text) for span in spans.values())
    assert set(spans) <= {element.id for element in body}


def test_front_matter_says_what_the_document_is() -> None:
    """Front matter is YAML at the start of the file, and spans count from the file's beginning."""
    document = build_document(checkpoint(1, element("text", "Water")), title='Springs: "old" #1')

    text, spans = markdown.write(document, Markdown(front_matter=True))
    front, _, rest = text.removeprefix("---\n").partition("---\n")

    assert yaml.safe_load(front)["title"] == 'Springs: "old" #1'
    assert yaml.safe_load(front)["pages"] == 1
    assert rest == "\n<!-- page: 1 -->\n\nWater\n"
    assert text[slice(*spans["p0001-e000"])] == "Water"


@settings(max_examples=200)
@given(any_texts.filter(bool))
def test_any_title_is_valid_yaml(title: str) -> None:
    """A YAML reader gets exactly the text that was written, whatever its characters."""
    document = build_document(checkpoint(1), title=title).model_copy(update={"id": title})
    rendered = markdown.write(document, Markdown(front_matter=True, page_marks=False))[0]

    assert yaml.safe_load(rendered.strip("-\n"))["document"] == title


def test_maths_has_the_requested_delimiters() -> None:
    """The maths option sets the delimiters in text, in cells and of display formulas."""
    table = plain_table(["\\(x^2\\)"])
    elements = (
        element("text", "where \\(a_1\\) and 5 $"),
        element("formula", formula=Formula(latex="E = 1")),
        element("table", table=table),
    )

    text = write_page(*elements, maths="\\(")

    assert "where \\(a_1\\) and 5 &#36;" in text
    assert "\\[\nE = 1\n\\]" in text
    assert "| \\(x^2\\) |" in text
    assert "$" in write_page(*elements) and "\\(" not in write_page(*elements)


def test_tables_are_html_or_gfm_as_requested() -> None:
    """The tables option forces HTML or GFM; GFM leaves spanned cells empty and loses no word."""
    plain, spanning = element("table", table=plain_table(["a", "b"])), element("table", table=SPANS)

    assert "<table>" not in write_page(plain) and "<table>" in write_page(spanning)
    assert "<table>" in write_page(plain, tables="html")
    assert "| both |  |\n| --- | --- |\n| a | b |" in write_page(spanning, tables="gfm")


def test_page_marks_and_furniture_follow_the_options() -> None:
    """Page marks and notes of lost pages can be switched off, and furniture be written where it occurs."""
    pages = [
        checkpoint(n, element("text", f"Line {n}"), element("page_footer", f"Page {n} of 3", BOTTOM)) for n in (1, 2)
    ]
    document = build_document(*pages, checkpoint(3, state=State.FAILED))

    text = markdown.write(document, Markdown(page_marks=False, furniture=Furniture.KEEP))[0]

    assert text == "Line 1\n\nPage 1 of 3\n\nLine 2\n\nPage 2 of 3\n"


def test_furniture_is_left_out_kept_or_omitted() -> None:
    """auto believes repetition and page numbers only, keep keeps them, omit also believes the labels of one page."""
    named = [
        checkpoint(
            n,
            element("text", f"Line {n}"),
            element("page_header", "Water Board", TOP),
            *([element("page_footer", "Account 17 of the board", BOTTOM)] if n == 2 else []),
            element("page_footer", str(n), BOTTOM),
        )
        for n in (1, 2, 3)
    ]
    document = build_document(*named)

    def write(furniture: Furniture) -> list[str]:
        return markdown.write(document, Markdown(page_marks=False, furniture=furniture))[0].split("\n\n")

    account = "Account 17 of the board"
    assert write(Furniture.AUTO) == ["Line 1", "Line 2", account, "Line 3\n"]
    assert write(Furniture.OMIT) == ["Line 1", "Line 2", "Line 3\n"]
    assert sorted("".join(write(Furniture.KEEP)).replace("\n", "")) == sorted(
        "".join(f"Line {n}Water Board{n}" for n in (1, 2, 3)) + account
    )


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({"furniture": "omit"}, Furniture.OMIT),
        ({"furniture": True}, Furniture.KEEP),
        ({"furniture": False}, Furniture.AUTO),
        ({"markdown": {"furniture": True}}, Furniture.KEEP),
        ({"markdown": {"furniture": "omit"}}, Furniture.OMIT),
        ({"markdown": {"maths": "\\("}, "furniture": "keep"}, Furniture.KEEP),
        ({"markdown": {"furniture": "keep"}, "furniture": "keep"}, Furniture.KEEP),
        ({}, Furniture.AUTO),
    ],
)
def test_furniture_is_a_field_of_jobs_and_of_markdown(asked: dict[str, object], expected: Furniture) -> None:
    """Both are the same option; true and false are what they were before it had names."""
    job = Job.parse({"input": {"source": "a.pdf", **asked}}, Settings(), EntryPoint.LOCAL)

    assert job.resolve_format_options(None).markdown.furniture is expected


def test_furniture_changes_no_other_option_of_an_existing_document() -> None:
    """Its file options stay; a job that says nothing keeps the document's furniture, unless a setting has another."""
    previous = FormatOptions(markdown=Markdown(maths=Maths.BACKSLASH, furniture=Furniture.KEEP))

    def resolve(settings: Settings, **asked: object) -> Markdown:
        job = Job.parse({"input": {"source": "a.pdf", **asked}}, settings, EntryPoint.LOCAL)
        return job.resolve_format_options(previous).markdown

    assert resolve(Settings(), furniture="omit") == Markdown(maths=Maths.BACKSLASH, furniture=Furniture.OMIT)
    assert resolve(Settings()) == previous.markdown
    assert resolve(Settings(furniture=Furniture.OMIT)).furniture is Furniture.OMIT
    assert resolve(Settings(furniture=Furniture.OMIT), furniture="auto").furniture is Furniture.AUTO


def test_tables_over_pages_are_joined_unless_disabled() -> None:
    """A table over pages is one table, unless merge_tables is off."""
    first = checkpoint(1, element("table", table=plain_table(["h", "i"], ["1", "2"], header=True), box=None))
    second = checkpoint(2, element("table", table=plain_table(["3", "4"]), box=None))
    document = build_document(first, second)

    joined = markdown.write(document)[0]
    separate = markdown.write(document, Markdown(merge_tables=False))[0]

    assert len(re.findall("^.*---.*\\|$", joined, re.M)) == 1
    assert len(re.findall("^.*---.*\\|$", separate, re.M)) == 2


def test_crops_can_be_embedded_in_the_markdown() -> None:
    """An image has the address given for its crop, for example a data URI, and a reader finds it."""
    document = build_document(checkpoint(1, element("picture", image="images/p0001-e000.png")))
    uri = "data:image/png;base64,AAAA"

    text = markdown.write(document, Markdown(images=Images.DATA), {"images/p0001-e000.png": uri})[0]

    (image,) = [c for t in MarkdownIt().parse(text) for c in t.children or () if c.type == "image"]
    assert image.attrGet("src") == uri


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"markdown": {"maths": "$$"}}, "markdown.maths"),
        ({"markdown": {"page_mark": False}}, "markdown.page_mark: unknown field"),
        ({"formats": ["docjson"], "markdown": {"furniture": True}}, "markdown: has no effect"),
        ({"formats": ["docjson"], "furniture": "keep"}, "furniture: has no effect"),
        ({"furniture": "none"}, "furniture: "),
        ({"furniture": "omit", "markdown": {"furniture": "keep"}}, "furniture: contradicts markdown.furniture"),
        ({"chunks": {"max_tokens": 256}}, "chunks: has no effect"),
        ({"formats": ["chunks"], "chunks": {"max_tokens": 100, "min_tokens": 200}}, "chunks: min_tokens: larger"),
        ({"formats": ["docx"]}, "formats.0"),
    ],
)
def test_an_invalid_option_is_refused_by_name(fields: dict[str, Any], named: str) -> None:
    """An unknown, invalid or ineffective option is refused with its name before anything is read."""
    with pytest.raises(InvalidJob) as refused:
        Job.parse({"input": {"source": "a.pdf", "output": "out", **fields}}, Settings(), EntryPoint.LOCAL)

    assert refused.value.message.startswith(named)


def test_format_options_are_not_part_of_the_identity() -> None:
    """Format options do not change reading options, and a job without them keeps the previous ones."""
    plain = Job.parse({"input": {"source": "a.pdf"}}, Settings(), EntryPoint.LOCAL)
    changed = Job.parse({"input": {"source": "a.pdf", "markdown": {"maths": "\\("}}}, Settings(), EntryPoint.LOCAL)
    previous = FormatOptions(markdown=Markdown(furniture=Furniture.KEEP), chunks=Chunks(max_tokens=99, min_tokens=9))

    assert plain.reading_options == changed.reading_options
    assert plain.resolve_format_options(previous) == previous
    assert changed.resolve_format_options(previous) == FormatOptions(
        markdown=Markdown(maths=Maths.BACKSLASH), chunks=previous.chunks
    )
    assert plain.resolve_format_options(None) == FormatOptions()


def test_an_archive_adds_docjson_and_markdown() -> None:
    """A job for the archive alone also writes DocJSON and markdown, which are in it."""
    job = Job.parse({"input": {"source": "a.pdf", "formats": ["zip"]}}, Settings(), EntryPoint.LOCAL)

    assert [str(name) for name in job.formats_needed] == ["docjson", "markdown", "zip"]
