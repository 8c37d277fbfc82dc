"""A link of the PDF stands where its words are, in every format, and only addresses of the web and of mail are live."""

from __future__ import annotations

import json
import re
from typing import Any
from urllib.parse import urlsplit

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lxml import html as lxml_html

from tests.fakes.documents import build_document, checkpoint, element, plain_table, texts
from tests.formats.test_markdown import COMMONMARK
from twopass.document import Box, Document, Link, TextLink
from twopass.format_options import Chunks, FormatOptions, Images, Markdown, Tables
from twopass.formats import chunks, docling, markdown, mineru, review
from twopass.formats.html import document as html_document
from twopass.formats.writer_input import WriterInput
from twopass.text import prose
from twopass.text.links import Letters

TIDES, RULES, MAIL = "https://tides.example.org/2024", "http://example.org/rules_a_b", "mailto:watch@quay.example.org"
BOX, PLACE = Box(0.1, 0.1, 0.9, 0.2), Box(0.2, 0.12, 0.4, 0.14)


def link(text: str | None, uri: str = TIDES, before: str = "", box: Box = PLACE) -> Link:
    return Link(box=box, uri=uri, text=text, before=before)


def build(kind: str, text: str, *links: Link, **fields: Any) -> Document:
    return build_document(checkpoint(1, element(kind, text, BOX, **fields), links=links))


def inputs(document: Document, **options: Any) -> WriterInput:
    return WriterInput(document, FormatOptions.model_validate(options))


def to_markdown(document: Document, **options: Any) -> str:
    return markdown.write(document, Markdown.model_validate({"page_marks": False, **options}))[0].strip()


def list_html_links(document: Document) -> list[tuple[str, str | None]]:
    tree = lxml_html.fromstring(html_document.write(inputs(document)))
    return [(a.text_content(), a.get("href")) for a in tree.iter("a") if not (a.get("href") or "").startswith("#")]


@pytest.mark.parametrize(
    ("kind", "text", "expected"),
    [
        ("text", "Ask the night watch, or wait.", f"Ask the [night watch]({TIDES}), or wait."),
        ("list_item", "158. The night watch.", f"158. The [night watch]({TIDES})."),
        ("list_item", "• night watch", f"- [night watch]({TIDES})"),
        ("section_header", "The night watch", f"# The [night watch]({TIDES})"),
        ("caption", "Night watch, 1642", f"[Night watch]({TIDES}), 1642"),
        ("footnote", "See the night watch.", f"See the [night watch]({TIDES})."),
    ],
)
def test_the_words_of_a_link_are_one(kind: str, text: str, expected: str) -> None:
    """In paragraphs, items, headings, captions and notes the words are a link, and the signs behind them are not."""
    document = build(kind, text, link("night watch"))

    assert to_markdown(document) == expected
    assert [href for _, href in list_html_links(document)] == [TIDES]
    assert f"]({TIDES})" in json.dumps(mineru.make_entries(document))
    assert f'<a href="{TIDES}">' in review.write(inputs(document)).decode()


def test_equal_words_are_told_apart_by_what_is_before_them() -> None:
    """Of the same words in one paragraph, that one is the link which follows the same text as in the PDF."""
    text = "Read the rules here and the tides here, or ask here."
    document = build("text", text, link("here", TIDES, before="the tides"), link("here", RULES, before="or ask"))

    assert to_markdown(document) == f"Read the rules here and the tides [here]({TIDES}), or ask [here]({RULES})."


def test_a_link_over_two_lines_is_one() -> None:
    """Parts with one address that nothing but a line end separates are one link, also in a hyphenated word."""
    parts = link("rules for moor-", box=Box(0.2, 0.11, 0.9, 0.13)), link("ings", box=Box(0.1, 0.14, 0.2, 0.16))
    document = build("text", "Read the rules for moorings.", *parts)

    assert document.elements[0].links == (TextLink(uri=TIDES, start=9, end=27),)
    assert to_markdown(document) == f"Read the [rules for moorings]({TIDES})."


def test_a_word_that_was_read_differently_is_still_the_link() -> None:
    """A model's answer may differ in a letter from the PDF's own text."""
    assert f"[harbour offlce]({TIDES})" in to_markdown(build("text", "At the harbour offlce.", link("harbour office")))


def test_words_of_no_element_make_no_link() -> None:
    """Where an element lacks the words, its text stays as it was read, and the page still has the link."""
    document = build("text", "Something else.", link("harbour office"))

    assert to_markdown(document) == "Something else."
    assert document.pages[0].links[0].uri == TIDES


@pytest.mark.parametrize(
    "uri",
    [
        "javascript:alert(1)",
        "JaVaScRiPt:alert(1)",
        "data:text/html,x",
        "file:///etc/passwd",
        "ftp://a.b/c",
        "tel:112",
        "https://a.b/\u202egpj",
        "https://a.b/c d",
        "https://a.b/\nc",
        "https://",
        "vbscript:x",
        " https://a.b",
        "//a.b/c",
    ],
)
def test_other_addresses_are_not_live(uri: str) -> None:
    """Only http, https and mailto become links; every other address stays data of the page."""
    document = build("text", "The night watch.", link("night watch", uri))
    (chunk,) = chunks.write(inputs(document)).decode().splitlines()

    assert to_markdown(document) == "The night watch."
    assert list_html_links(document) == []
    assert json.loads(chunk)["links"] == [] and document.pages[0].links[0].uri == uri


@pytest.mark.parametrize(
    ("uri", "written"),
    [
        ("https://a.b/c(d)", "https://a.b/c%28d%29"),
        ("https://a.b/?x=1&copy;=<b>|*$`", "https://a.b/?x=1&amp;copy;=%3Cb%3E%7C%2A%24%60"),
        ("https://a.b/\"onclick='x'{#y}", "https://a.b/%22onclick=%27x%27%7B#y%7D"),
    ],
)
def test_an_address_cannot_leave_its_link(uri: str, written: str) -> None:
    """Signs that would end the address or begin markup are percent-encoded in Markdown, and escaped in HTML."""
    document = build("text", "The night watch.", link("night watch", uri))

    assert to_markdown(document) == f"The [night watch]({written})."
    assert [href for _, href in list_html_links(document)] == [written.replace("&amp;", "&")]


@pytest.mark.parametrize(
    ("text", "words", "expected"),
    [
        ("See [1] for more.", "[1]", rf"See [\[1\]]({TIDES}) for more."),
        ("Wow! watch this", "watch", rf"Wow! [watch]({TIDES}) this"),
        ("Wow!watch", "watch", rf"Wow\![watch]({TIDES})"),
        ("a watch(x) b", "watch", rf"a [watch]({TIDES})\(x) b"),
        ("a watch: b", "watch", rf"a [watch]({TIDES}): b"),
        ("a watch{.x}", "watch", rf"a [watch]({TIDES})\{{.x}}"),
        ("1 * 2 * watch * 3", "watch", rf"1 * 2 * [watch]({TIDES}) * 3"),
    ],
)
def test_the_words_of_a_link_and_its_neighbours_are_escaped(text: str, words: str, expected: str) -> None:
    """Brackets in the words, and signs beside the link, have no effect."""
    assert to_markdown(build("text", text, link(words))) == expected


def test_a_link_keeps_the_styles_around_it() -> None:
    """A link within bold text, or with bold words, keeps them; where the marks would cross, the link is kept."""
    text = "Ask the night watch now."
    whole, part = "Ask the **night watch** now.", "Ask **the night** watch now."

    assert to_markdown(build("text", text, link("the night watch"), markdown=whole)) == (
        f"Ask [the **night watch**]({TIDES}) now."
    )
    assert (
        to_markdown(build("text", text, link("night watch"), markdown=part)) == f"Ask the [night watch]({TIDES}) now."
    )


def test_links_in_cells_are_in_their_cells() -> None:
    """A cell's words are the link in GFM, in HTML tables and in HTML; equal words are told apart by their rows."""
    table = plain_table(["Lamp", "Page"], ["East", "open"], ["West", "open | all"])
    links = link("open", TIDES, "Lamp Page East"), link("open | all", RULES, "East open West")
    document = build("table", "", *links, table=table)

    assert f"| East | [open]({TIDES}) |\n| West | [open \\| all]({RULES}) |" in to_markdown(document)
    assert f'<a href="{RULES}">open | all</a>' in to_markdown(document, tables=Tables.HTML)
    assert list_html_links(document) == [("open", TIDES), ("open | all", RULES)]


def test_a_link_over_a_picture_is_the_pictures() -> None:
    """A link that covers a picture without words leads from its image; one place of a map does not."""
    whole = link(None, box=BOX), link(None, RULES, box=Box(0.1, 0.1, 0.2, 0.12))
    document = build("picture", "", *whole, image="images/a.png")

    assert to_markdown(document, images=Images.FOLDER) == f"[![picture](images/a.png)]({TIDES})"
    assert document.elements[0].links == (TextLink(uri=TIDES),)
    assert [href for _, href in list_html_links(document)] == [TIDES]


def test_the_upper_of_two_links_stays() -> None:
    """Of links over the same words, the PDF's last one is on top."""
    document = build("text", "The night watch.", link("night watch", TIDES), link("watch", RULES))

    assert to_markdown(document) == f"The night [watch]({RULES})."


def test_a_joined_paragraph_keeps_the_links_of_its_parts() -> None:
    """A paragraph that continues on the next page has the links of both pages."""
    first = checkpoint(1, element("text", "Ask the night watch and", BOX), links=[link("night watch")])
    second = checkpoint(2, element("text", "read the rules first.", BOX), links=[link("rules", RULES)])

    text = to_markdown(build_document(first, second))

    assert text == f"Ask the [night watch]({TIDES}) and read the [rules]({RULES}) first."


def test_chunks_cut_no_link() -> None:
    """A long paragraph is cut between its links, and each chunk names the addresses on its text."""
    sentence = "Go to the old harbour office of the town and ask there for the tables of the year"
    document = build("text", ", ".join([sentence] * 12), link("harbour office"), link("tables of the year", RULES))
    written = chunks.write(inputs(document, chunks=Chunks(max_tokens=64, min_tokens=1))).decode()
    texts = [json.loads(line)["text"] for line in written.splitlines()]

    assert len(texts) > 3
    for whole in (f"[harbour office]({TIDES})", f"[tables of the year]({RULES})"):
        assert sum(text.count(whole) for text in texts) == 1


def test_doclings_item_has_the_link_of_its_whole_text() -> None:
    """A text that is one link is a hyperlink in docling; links of parts are kept for the way back."""
    document = build("text", "night watch", link("night watch"))

    (item,) = docling.convert(document).texts

    assert str(item.hyperlink) == TIDES


@settings(max_examples=150)
@given(texts, st.integers(0, 40), st.integers(1, 40), st.text(max_size=30))
def test_any_link_in_any_text_leaves_the_text_as_it_was_read(text: str, start: int, length: int, path: str) -> None:
    """Whatever the text and the address, a reader sees the same letters, and no address but the link's."""
    line = prose.to_one_line(re.sub(r"\\[()\[\]]|[$~]", "", text).replace("http", ""))
    document = build("text", line, link(line[start : start + length], f"https://a.b/{path}"))

    tokens = [token for token in COMMONMARK.parse(to_markdown(document)) if token.type == "inline"]
    children = [child for token in tokens for child in token.children or ()]

    seen = "".join(child.content for child in children if child.type == "text")
    assert Letters.of(seen).text == Letters.of(line).text
    assert {urlsplit(str(child.attrGet("href"))).netloc for child in children if child.type == "link_open"} <= {"a.b"}
