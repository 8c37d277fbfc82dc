"""document.html has every word of the document, escapes everything, and says with its markup what each thing is."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lxml import etree, html

from tests import ROOT
from tests.fakes.documents import BOTTOM, MIDDLE, build_document, checkpoint, documents, element, plain_table, texts
from tests.fakes.texts import ENGLISH, KOREAN
from tests.formats.test_markdown import expected_text, link_tables
from tests.formats.test_markdown_options import markdown_options
from twopass.document import Cell, Document, Element, Figure, Formula, Kind, State, Table
from twopass.errors import Code
from twopass.format_options import FormatOptions, Markdown
from twopass.formats import flow
from twopass.formats.html import document as html_document
from twopass.formats.html.text import TextRenderer
from twopass.formats.writer_input import WriterInput
from twopass.text import prose

TAGS = {
    "html", "head", "meta", "title", "style", "body", "nav", "article", "section", "h1", "h2", "h3", "h4", "h5", "h6",
    "div", "p", "span", "ul", "ol", "li", "table", "caption", "thead", "tbody", "tr", "td", "th", "figure",
    "figcaption", "img", "details", "summary", "pre", "code", "a", "sup", "sub", "strong", "em", "s", "br",
}  # fmt: skip
ATTRIBUTES = {
    "lang", "dir", "id", "class", "role", "aria-label", "href", "title", "src", "alt", "loading", "scope", "rowspan",
    "colspan", "value", "charset", "http-equiv", "content", "name",
}  # fmt: skip
HOSTILE = "<img src=x onerror='a()'><script>a()</script>\"><b onclick=a()>&amp; </p></td></style></title>"
MARKDOWN_MARKS = (
    "*a",
    "b*",
    "**",
    "~~a",
    "<sup>",
    "</sup>",
    "<sub>",
    "</sub>",
    "[a](https://b.example)",
    "![",
    "&lt;",
    "<br>",
)
HEBREW = "שלום עולם זה טקסט"


def write_page(document: Document, **options: Any) -> str:
    return html_document.write(WriterInput(document, FormatOptions(markdown=Markdown(**options)))).decode()


def parse(document: Document, **options: Any) -> html.HtmlElement:
    return html.fromstring(write_page(document, **options).encode())


def parse_elements(*elements: Element, **options: Any) -> html.HtmlElement:
    return parse(build_document(checkpoint(1, *elements)), **options)


def write_body(*elements: Element, **options: Any) -> str:
    """The blocks of one page, without its page mark and without line breaks."""
    article = write_page(build_document(checkpoint(1, *elements)), page_marks=False, **options).partition("<article>")[
        2
    ]
    return article.partition("</article>")[0].replace("\n", "")


def find_words(tree: html.HtmlElement) -> list[str]:
    """The words that a reader finds: also those of alternative texts, link addresses and numbers of list items."""
    shown = [name for node in tree.iter() for name in map(node.get, ("alt", "href", "title", "value")) if name]
    return prose.split_words("\n".join([*tree.body.itertext(), *shown]))


@given(documents(), markdown_options)
def test_every_word_of_every_written_element_is_in_the_page(document: Document, options: Markdown) -> None:
    """Every word that markdown shows is in document.html with any options; broken words are joined."""
    tree = html.fromstring(html_document.write(WriterInput(document, FormatOptions(markdown=options))))
    found = find_words(tree)
    written = [e for e in document.elements if flow.is_written(e, options.furniture)]
    broken = "".join(prose.split_words("".join(e.text for e in written)))

    lost = {word for e in written for word in prose.split_words(expected_text(e))} - set(found)

    joined = "".join(found)
    assert all(word in joined and word in broken for word in lost)


@given(documents(), st.lists(texts, min_size=1, max_size=3))
def test_no_tag_and_no_attribute_comes_from_a_document(document: Document, hostile: list[str]) -> None:
    """Whatever a document says, the page has only our tags and attributes, no script and no address of a script."""
    page = checkpoint(1, *(element("text", "a" + HOSTILE, markdown=f"**a**{HOSTILE}{text}") for text in hostile))
    for one in (document, build_document(page, title=HOSTILE)):
        tree = parse(one)
        found = [node for node in tree.iter() if isinstance(node.tag, str)]
        maths = {node for top in tree.iter("math") for node in top.iter()}
        plain = [node for node in found if node not in maths]

        assert {node.tag for node in plain} <= TAGS
        assert {name for node in plain for name in node.attrib} <= ATTRIBUTES
        assert not [name for node in maths for name in node.attrib if name.startswith("on") or name in ("href", "src")]
        assert not [node for node in plain if (node.get("href") or "#").startswith(("javascript", "data"))]


@given(documents())
def test_every_tag_is_closed_where_it_should_be(document: Document) -> None:
    """The body is well-formed: a parser that repairs nothing accepts it, and no two elements have one id."""
    body = "<article>" + write_page(document).partition("<article>")[2].partition("</body>")[0]

    tree = etree.fromstring(re.sub(r"<(img|br)((?: [\w-]+=\"[^\"]*\")*)>", r"<\1\2/>", body))

    ids = [node.get("id") for node in tree.iter() if node.get("id")]
    assert len(ids) == len(set(ids))


@settings(max_examples=300)
@given(st.lists(st.sampled_from([*"*_~`[]()<>&\\ ab1\n", *MARKDOWN_MARKS]), max_size=20).map("".join))
def test_any_markdown_gives_balanced_tags(markdown: str) -> None:
    """Any line of a model's Markdown gives tags that are closed in the right order."""
    rendered = TextRenderer().render(markdown, is_markdown=True)

    etree.fromstring(f"<p>{rendered.replace('<br>', '<br/>')}</p>")


@pytest.mark.parametrize(
    ("text", "markdown", "expected"),
    [
        ("a bold word", "a **bold** word", "a <strong>bold</strong> word"),
        ("m2 and x_1", "m<sup>2</sup> and x_1", "m<sup>2</sup> and x_1"),
        ("a b c", "*a<sup>b*</sup> c", "<em>a<sup>b</sup></em> c"),
        ("see a", "*see* [a](javascript:b)", "<em>see</em> [a](javascript:b)"),
        ("see a", "see [a](https://b.example)", 'see <a href="https://b.example">a</a>'),
        ("see a", "see [a](HTTPS://b.example)", 'see <a href="HTTPS://b.example">a</a>'),
        ("see a", "*see* ![a](https://b.example/c.png)", '<em>see</em> !<a href="https://b.example/c.png">a</a>'),
        ("a <b>b</b> c", "a <b>b</b> *c*", "a &lt;b&gt;b&lt;/b&gt; <em>c</em>"),
    ],
)
def test_the_models_markdown_becomes_known_tags(text: str, markdown: str, expected: str) -> None:
    """Styles, scripts and links to the web become tags; images, other tags and other addresses are shown as text."""
    assert write_body(element("text", text, markdown=markdown)) == f'<p id="p0001-e000">{expected}</p>'


def test_text_of_a_document_cannot_stand_for_markup() -> None:
    """The characters that stand for formulas while a text is converted have no effect in the text itself."""
    rendered = TextRenderer().render("\ufdd00\ufdd1 \\(x\\)")

    assert rendered.startswith("\ufffd0\ufffd <math>")


@pytest.mark.parametrize(("tag", "shown"), [(r"\tag{3}", "(3)"), (r"\tag*{(3)}", "(3)"), (r"\tag*{3a}", "3a")])
def test_the_number_of_a_formula_is_shown_as_latex_shows_it(tag: str, shown: str) -> None:
    """With an asterisk, LaTeX adds no parentheses."""
    markup = TextRenderer().render_formula(f"a = b {tag}")

    assert html.fromstring(markup).text_content().replace("\u2001", "").replace(" ", "").endswith(shown)
    assert f"({shown})" not in html.fromstring(markup).text_content()


def test_formulas_are_mathml_with_their_latex() -> None:
    """Formulas of their own and in text are MathML, with the LaTeX as annotation."""
    tree = parse_elements(
        element("formula", formula=Formula(latex=r"E = \frac{m}{2} \tag{3}")), element("text", r"with \(x_1 < 2\)")
    )

    shown, inline = tree.iter("math")
    assert shown.get("display") == "block" and shown.getparent().get("class") == "formula"
    assert inline.getparent().tag == "p" and inline.find(".//msub") is not None
    assert "x_1 < 2" in [note.text for note in inline.iter("annotation")]
    assert "(3)" in shown.text_content()


def test_latex_that_cannot_be_converted_is_shown() -> None:
    """LaTeX that is no formula is shown as it is, and a formula that was read as plain text is a paragraph."""
    broken = element("formula", "x", formula=Formula(latex=r"\frac{1 < \left["))

    assert r'<code class="latex">\frac{1 &lt; \left[</code>' in write_body(broken)
    for formula in (None, Formula(), Formula(latex=" ")):
        text = write_body(element("formula", "E = mc2 at 100 %", formula=formula))
        assert '<p id="p0001-e000" class="formula">E = mc2 at 100 %</p>' in text


def test_headings_open_sections() -> None:
    """A heading begins a section, which ends before the next heading of its level or of a higher one."""
    headings = [
        element("title", "Report"),
        element("section_header", "1 Springs", level=1),
        element("section_header", "1.1 Upper", level=2),
        element("section_header", "2 Pumps", level=1),
    ]

    tree = parse_elements(*headings)

    depths = {node.text: (node.tag, len(list(node.iterancestors("section")))) for node in tree.iter("h1", "h2", "h3")}
    assert depths == {"Report": ("h1", 1), "1 Springs": ("h2", 2), "1.1 Upper": ("h3", 3), "2 Pumps": ("h2", 2)}


def test_list_items_become_lists() -> None:
    """Neighbouring items are one list, bulleted or numbered as they were read; a list in one element is a list, too."""
    items = [element("list_item", text) for text in ("• one", "– two", "3. three", "5. five")]

    assert [(node.tag, node.get("value")) for node in parse_elements(*items).iter("ul", "ol", "li")] == [
        ("ul", None), ("li", None), ("li", None), ("ol", None), ("li", "3"), ("li", "5"),
    ]  # fmt: skip
    whole = parse_elements(element("text", "Parts:\n- one\n- two"))
    assert [node.text_content().strip() for node in whole.find(".//article").iterdescendants("p", "li")] == [
        "Parts:", "one", "two",
    ]  # fmt: skip


def test_a_list_item_keeps_its_sign() -> None:
    """A sign without a blank is no bullet, also where the element has Markdown."""
    item = element("list_item", "-5 degrees", markdown="- -5 degrees")

    assert parse_elements(item).find(".//li").text == "-5 degrees"


def test_a_table_has_header_cells_spans_and_its_caption() -> None:
    """Header cells say whether they head a column or a row; spans are kept, and the caption is inside the table."""
    cells = (
        Cell(row=0, col=0, row_span=2, text="Pump", header=True),
        Cell(row=0, col=1, col_span=2, text="Flow <l/s>", header=True),
        Cell(row=1, col=1, text="low", header=True),
        Cell(row=1, col=2, text="high", header=True),
        Cell(row=2, col=0, text="North", header=True),
        Cell(row=2, col=2, text="9\n8"),
    )
    table = element("table", table=Table(html="<script>", rows=3, cols=3, cells=cells))
    caption = element("caption", "Table 1: Pumps", MIDDLE._replace(y0=0.37, y1=0.39))

    body = write_body(caption, table)

    assert body == (
        '<div class="scroll"><table id="p0001-e001"><caption><p id="p0001-e000" class="caption">'
        "Table 1: Pumps</p></caption><thead>"
        '<tr><th scope="col" rowspan="2">Pump</th><th scope="col" colspan="2">Flow &lt;l/s&gt;</th></tr>'
        '<tr><th scope="col">low</th><th scope="col">high</th></tr></thead>'
        '<tbody><tr><th scope="row">North</th><td></td><td>9<br>8</td></tr></tbody></table></div>'
    )


def test_a_span_from_the_head_is_not_cut() -> None:
    """A header cell that reaches into the body keeps its span: then no row group separates the two."""
    cells = (Cell(row=0, col=0, row_span=2, text="a", header=True), Cell(row=1, col=1, text="1"))
    tree = parse_elements(element("table", table=Table(html="", rows=2, cols=2, cells=cells)))

    assert tree.find(".//thead") is None
    assert [len(row) for row in tree.iter("tr")] == [1, 1]


def test_rows_without_cells_are_not_counted_by_spans() -> None:
    """A span over a row that has no cells ends where it should, because HTML has no such row."""
    cells = (Cell(row=0, col=0, row_span=2, text="a"), Cell(row=0, col=1, text="b"), Cell(row=2, col=0, text="c"))
    tree = parse_elements(element("table", table=Table(html="", rows=3, cols=2, cells=cells)))

    assert [cell.get("rowspan") for cell in tree.iter("td")] == [None, None, None]


def test_a_table_over_pages_is_one_table() -> None:
    """A table over pages is one table unless merge_tables is off, and links to its continuation lead to it."""
    document = link_tables(*(plain_table(["Order", "Cost"], [name, "1"], header=True) for name in ("a", "b")))

    tree = parse(document)
    (table,) = tree.iter("table")

    assert [row.text_content() for row in table.iter("tr")] == ["OrderCost", "a1", "b1"]
    assert tree.get_element_by_id("p0002-e000").getnext().find("table") is table
    assert len(list(parse(document, merge_tables=False).iter("table"))) == 2


def test_a_figure_has_its_image_and_caption() -> None:
    """A picture is a figure with image, visible text and caption; the alternative text repeats none of them."""
    picture = element("picture", image="images/p0001-e000.png", figure=Figure(visible_text='Spring "A"'))
    caption = element("caption", "Figure 1: The lake", MIDDLE._replace(y0=0.51, y1=0.53))

    figure = parse_elements(picture, caption).find(".//figure")

    assert [child.tag for child in figure] == ["img", "details", "figcaption"]
    assert (figure[0].get("src"), figure[0].get("alt")) == ("images/p0001-e000.png", "picture")
    assert [child.text_content() for child in figure[1:]] == ['Text in the figureSpring "A"', "Figure 1: The lake"]


def test_images_can_be_embedded() -> None:
    """With addresses for its crops, for example data URIs, the page uses these."""
    document = build_document(checkpoint(1, element("picture", image="images/a.png")))
    page = html_document.write(WriterInput(document, crops={"images/a.png": "data:image/png;base64,AAAA"})).decode()

    assert 'src="data:image/png;base64,AAAA"' in page and "images/a.png" not in page


def test_a_footnote_and_its_reference_link_to_each_other() -> None:
    """A reference leads to its footnote, and the footnote's mark leads back."""
    tree = parse_elements(element("text", "people1 here"), element("footnote", "1 Residents.", BOTTOM))

    reference, back = tree.iter("a")
    assert reference.get("href") == "#p0001-e001" and back.get("href") == f"#{reference.get('id')}"
    assert tree.get_element_by_id("p0001-e001").text_content() == "1 Residents."
    assert tree.get_element_by_id("p0001-e000").text_content() == "people1 here"


def test_a_footnote_without_a_reference_is_text() -> None:
    """A footnote that no text refers to is shown, and links nowhere."""
    tree = parse_elements(element("text", "No mark."), element("footnote", "1 Residents.", BOTTOM))

    assert not list(tree.iter("a"))
    assert tree.get_element_by_id("p0001-e001").text_content() == "1 Residents."


def test_only_references_are_links() -> None:
    """A name with a number is no reference, and the second of two notes with one mark is text."""
    body = element("text", "Db2 was bought by people1(old) and residents2 who know Db2 well.")
    notes = [element("footnote", text, BOTTOM) for text in ("1 All.", "2 Some.", "2 Others.")]

    tree = parse_elements(body, *notes)

    assert [link.text for link in tree.iter("a")] == ["1", "2", "1", "2"]
    assert tree.get_element_by_id("p0001-e000").text_content() == body.text
    assert tree.get_element_by_id("p0001-e003").text_content() == "2 Others."


def test_a_paragraph_over_pages_is_one_and_both_ids_exist() -> None:
    """A word broken over pages is joined, and the ids of both parts lead into the paragraph."""
    document = build_document(
        checkpoint(1, element("text", "The mea-")), checkpoint(2, element("text", "surement ended."))
    )

    tree = parse(document)

    assert tree.get_element_by_id("p0001-e000").text_content() == "The measurement ended."
    assert tree.get_element_by_id("p0002-e000").text == "surement ended."


def test_pages_are_marked_and_lost_pages_explained() -> None:
    """Each page has an anchor with its number, and a lost page a note in words; the option leaves both out."""
    document = build_document(
        checkpoint(1, element("text", "One.")), checkpoint(2, state=State.FAILED, reason=Code.LOOP)
    )

    tree = parse(document)

    assert [tree.get_element_by_id(f"page-{number}").text for number in (1, 2)] == ["1", "2"]
    assert "the answer repeated itself" in tree.find_class("note")[0].text
    assert not parse(document, page_marks=False).find_class("page")


def test_unreadable_text_has_a_visible_note() -> None:
    """A reader sees where text begins and ends that the reader itself calls unreadable."""
    noise = element("text", "mmtZk rrnbh", flags=("unreadable",))
    article = parse_elements(element("text", "Before."), noise, element("text", "After."), page_marks=False)

    begin, end = flow.UNREADABLE_NOTES
    assert [p.text for p in article.iter("p")] == [
        "Before.", f"[{begin}]", "mmtZk rrnbh", f"[{end}]", "After.",
    ]  # fmt: skip


def test_furniture_follows_the_option() -> None:
    """Headers and footers are left out by default, and written where they occur if asked for."""
    page = (element("text", "Body."), element("page_footer", "Page 3", BOTTOM))

    assert "Page 3" not in write_body(*page)
    assert "Page 3" in write_body(*page, furniture=True)


def test_code_keeps_its_lines() -> None:
    """Code is preformatted, with its indentation, and from left to right."""
    body = write_body(element("code", "if a < b:\n    c()"))

    code = html.fromstring(body)
    assert code.get("dir") == "ltr" and "if a &lt; b:" in body


def test_right_to_left_text_has_its_direction() -> None:
    """The page of a Hebrew document is right-to-left; an English paragraph in it is not, and the reverse."""
    hebrew = parse_elements(*(element("text", HEBREW) for _ in range(3)), element("text", "One in English"))
    english = parse_elements(
        element("text", ENGLISH), element("text", HEBREW), element("table", table=plain_table([HEBREW]))
    )

    assert hebrew.get("dir") == "rtl"
    assert [p.get("dir") for p in hebrew.iter("p")] == [None, None, None, "ltr"]
    assert english.get("dir") is None and [p.get("dir") for p in english.iter("p")] == [None, "rtl"]
    assert [table.get("dir") for table in english.iter("table")] == ["rtl"]


def test_the_language_of_the_document_and_of_other_paragraphs_is_given() -> None:
    """The page has the document's language, and a paragraph in another one has its own."""
    pages = (
        checkpoint(1, element("text", ENGLISH), element("text", KOREAN), language="en"),
        checkpoint(2, element("section_header", "Summaries"), element("text", ENGLISH), language="ko"),
        checkpoint(3, element("table", table=plain_table([KOREAN])), language="en"),
    )

    tree = parse(build_document(*pages))

    assert tree.get("lang") == "en"
    assert [p.get("lang") for p in tree.iter("h1", "p", "table")] == [None, "ko", None, None, "ko"]


def test_the_policy_allows_only_the_style_and_pictures() -> None:
    """The content security policy forbids scripts and everything from other places."""
    page = write_page(build_document(checkpoint(1, element("text", "Water"))))

    policy = html.fromstring(page.encode()).find(".//meta[@http-equiv]").get("content")
    assert policy.startswith("default-src 'none'; style-src-elem 'sha256-") and "script" not in policy + page


def test_equal_documents_give_equal_bytes() -> None:
    """The page depends on the document only."""
    document = build_document(checkpoint(1, element("text", r"a \(x\)"), element("table", table=plain_table(["a"]))))

    assert write_page(document) == write_page(document)


def test_the_style_sheet_is_in_the_package() -> None:
    """The style sheet is declared as package data; a wheel without it would fail."""
    folder = Path(html_document.__file__).parent
    assets = {path.name for path in folder.iterdir() if path.suffix not in (".py", "")}
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]

    assert assets == set(declared["twopass.formats.html"])


def test_every_kind_is_written() -> None:
    """An element of any kind with only a text shows that text."""
    for kind in Kind:
        assert "Water" in write_body(element(kind, "Water"), furniture=True), kind


def find_contents(tree: html.HtmlElement) -> list[tuple[int, str, str]]:
    """Depth, text and target of each link in the contents."""
    return [
        (sum(1 for _ in link.iterancestors("ul")), link.text_content(), link.get("href")) for link in tree.iter("a")
    ]


def test_a_document_with_many_headings_has_contents_that_lead_to_them() -> None:
    """A folded list before the document links to every heading of three levels, nested as the sections are."""
    titles = ["1 Springs <b>", "1.1 Upper", "1.1.1 Cold", "1.1.1.1 Deep", "2 Pumps", "2.1 Old"]
    sections = [element("section_header", title, level=title.count(".") + 1) for title in titles]
    page = checkpoint(1, element("title", "Water"), *sections)
    headings = page.elements

    tree = parse(build_document(page))

    assert find_contents(tree.find(".//nav/details")) == [
        (depth, headings[n].text, f"#{headings[n].id}") for n, depth in [(0, 1), (1, 2), (2, 3), (5, 2), (6, 3)]
    ]
    assert [node.get("id") for node in tree.xpath("//h1|//h2|//h3|//h4|//h5")] == [one.id for one in headings]


def test_a_document_with_few_headings_has_no_contents() -> None:
    """Four headings are found without a list of them."""
    tree = parse_elements(*(element("section_header", f"Part {n}", level=1) for n in range(4)))

    assert tree.find(".//nav") is None


@given(documents())
def test_links_of_the_contents_lead_to_headings_and_hold_no_links(document: Document) -> None:
    """Every link has the id of a heading as its target, in the order of the document."""
    tree = parse(document)
    nav = tree.find(".//nav")
    links = [] if nav is None else list(nav.iter("a"))
    ids = [node.get("id") for node in tree.iter("h1", "h2", "h3")]

    assert [link.get("href") for link in links] == ([f"#{name}" for name in ids] if len(ids) >= 5 else [])
    assert not [link for link in links if link.find(".//a") is not None]
