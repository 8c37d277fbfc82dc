"""No format turns a document's text into markup: every reader finds the writer's elements only, and shows the text.

The readers have HTML switched on. Marked, which needs Node.js, reads the same documents in tests/browser.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
import yaml
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from tests.fakes.documents import BOTTOM, build_document, checkpoint, element, plain_table
from tests.fakes.hostile_markup import (
    ANY_VALUE,
    ELEMENTS,
    LISTS,
    PAYLOADS,
    PLAIN,
    STYLES,
    TEXT,
    UNKNOWN,
    build,
    find_faults,
    hostile_texts,
)
from tests.fakes.markdown_readers import READERS, Page
from twopass.document import Document, Element, Formula, Kind
from twopass.format_options import Chunks, FormatOptions, Markdown
from twopass.formats import chunks, docling, escaping, flow, markdown, mineru
from twopass.formats.writer_input import WriterInput
from twopass.text import prose


def assert_nothing_lives(source: str, allowed: tuple[str, ...], is_single: bool = True) -> None:
    pages = {name: Page(read(source)) for name, read in READERS.items()}
    faults = {name: list(find_faults(page, name, source, allowed, is_single)) for name, page in pages.items()}
    assert not any(faults.values()), source


def knows_syntax(name: str, source: str) -> bool:
    """Whether the reader can show the text: Python-Markdown leaves raw what is in an HTML element."""
    return not (name.startswith(PLAIN) and '<div dir="rtl">' in source) and not (
        name == PLAIN and any(mark in source for mark in UNKNOWN)
    )


@settings(max_examples=250)
@given(st.sampled_from(list(ELEMENTS)), hostile_texts, st.sampled_from(["auto", "html"]), st.sampled_from(["$", "\\("]))
def test_readers_find_only_what_the_writer_made(kind: Kind, text: str, tables: str, style: str) -> None:
    """In document.md an element of any kind and any text gives the elements of its kind, and its text is shown."""
    case = build(kind, text)

    source = markdown.write(case.document, Markdown(tables=tables, maths=style))[0]

    assert_nothing_lives(source, case.allowed)
    texts = {name: Page(read(source)).text for name, read in READERS.items() if knows_syntax(name, source)}
    assert case.shown is None or set(texts.values()) <= {case.shown}, source


@pytest.mark.parametrize("payload", PAYLOADS)
def test_no_payload_lives_in_any_element(payload: str) -> None:
    """Each known payload is shown as text, in every kind of element, and in all of them one after another."""
    cases = [build(kind, payload) for kind in ELEMENTS]
    for case in cases:
        assert_nothing_lives(markdown.write(case.document)[0], case.allowed)

    parts = [e for case in cases for e in case.document.elements if e.kind is not Kind.FOOTNOTE]
    source = markdown.write(build_document(checkpoint(1, *(e.model_copy(update={"id": ""}) for e in parts))))[0]

    assert_nothing_lives(source, tuple(tag for tags in ELEMENTS.values() for tag in tags), is_single=False)


@pytest.mark.parametrize(
    "payload", ["<!-- x", "<!--", '<a b="', "<x y='", "<b", "</x", "<?x", "<!x", "&#", "&#60d", "&#x"]
)
@pytest.mark.parametrize("kind", [*ELEMENTS])
def test_what_begins_in_one_element_does_not_reach_another(kind: Kind, payload: str) -> None:
    """Tags, comments and numbers of characters that do not end leave tables and code after them what they are."""
    cut = [e for e in build(kind, payload).document.elements if e.kind is kind]
    table = element("table", table=plain_table(["a", "[x](javascript:alert(1)) *b*"]))
    script = element("code", "<b>\n<script>alert(1)</script>")
    parts = [e.model_copy(update={"id": ""}) for e in (*cut, script, table, script)]

    for marks in (True, False):
        document = build_document(checkpoint(1, *parts), checkpoint(2, element("text", "After.")))
        source = markdown.write(document, Markdown(tables="html", page_marks=marks))[0]
        assert_nothing_lives(source, tuple({tag for tags in ELEMENTS.values() for tag in tags}), is_single=False)


@pytest.mark.parametrize("row", ["| - |", ":-|-:", "-|"])
def test_list_items_are_no_head_of_a_table(row: str) -> None:
    """An item that looks like the line below a table's head stays an item, for Python-Markdown, too."""
    document = build_document(checkpoint(1, element("list_item", "- a | b"), element("list_item", f"- {row}")))

    source = markdown.write(document)[0]

    assert_nothing_lives(source, (*TEXT, *LISTS))
    assert {Page(read(source)).text for read in READERS.values()} == {f"a | b {row}"}


def test_code_that_leaves_a_tag_open_is_written_as_html() -> None:
    """The parser of Python-Markdown would go on into what follows; every reader shows the code as it is."""
    assert escaping.write_code("a_b <!-- x\n\n&#") == "<pre><code>a&#95;b &lt;!-- x\n\n&amp;#</code></pre>"


@settings(max_examples=150)
@given(hostile_texts, st.sampled_from(["**a**", "*b*", "<sup>2</sup>", "<sub>", "</sub>", "~~c~~", "`d`", "$x$"]))
@example(text="* \x02# x\x03<b>", style="**a**")
def test_of_a_models_markdown_only_styles_are_left(text: str, style: str) -> None:
    """Links, images, attributes and tags in the Markdown of a model become text; its styles and scripts stay."""
    plain = prose.to_one_line(f"{text}{style} q")
    one = element("text", plain, markdown=f"{text}{style} **q**")

    source = markdown.write(build_document(checkpoint(1, element("text", "Before."), one)))[0]

    assert_nothing_lives(source, (*TEXT, *LISTS, *STYLES))


@settings(max_examples=150)
@given(
    hostile_texts,
    st.sampled_from(["javascript:alert(1)", 'javascript:alert(1) "t"', "x (y)", "x(y)", "<1 2>", '<> "a"', "word"]),
)
def test_a_footnote_is_no_address_of_a_link(text: str, note: str) -> None:
    """Readers without footnotes find no link at the mark of a note, whatever the note says."""
    body = element("text", f"Word¹ and {text}")

    for said in (note, text):
        page = checkpoint(1, body, element("footnote", f"1 {said}", box=BOTTOM))
        source = markdown.write(build_document(page))[0]
        for name in ("markdown-it", "python-markdown"):
            page = Page(READERS[name](source))
            assert not list(find_faults(page, name, source, (*TEXT, *LISTS))), source


@settings(max_examples=150)
@given(hostile_texts.filter(bool), hostile_texts)
def test_front_matter_is_inert_where_it_is_not_known(title: str, name: str) -> None:
    """A reader without front matter takes it for a heading and finds no markup in it; YAML still has the exact text."""
    document = build_document(checkpoint(1, element("text", "Text.")), title=title)
    document = document.model_copy(update={"source": document.source.model_copy(update={"uri": f"s3://b/{name}"})})

    source = markdown.write(document, Markdown(front_matter=True))[0]

    assert_nothing_lives(source, (*TEXT, "hr", "h2"))
    fields = yaml.safe_load(source.split("---\n")[1])
    assert (fields["title"], fields["source"]) == (title, f"s3://b/{name}")


@settings(max_examples=60)
@given(
    st.lists(st.tuples(st.sampled_from(list(ELEMENTS)), hostile_texts), min_size=1, max_size=3), st.sampled_from([1, 9])
)
def test_every_chunk_is_inert_by_itself(parts: list[tuple[Kind, str]], times: int) -> None:
    """A chunk that begins or ends within a table, code, formula or text has no more markup than the document."""
    elements = [e for kind, text in parts for e in build(kind, (text + " ") * times).document.elements]
    document = build_document(checkpoint(1, *(e.model_copy(update={"id": ""}) for e in elements)))
    assume(not flow.build(document, Markdown()).notes)  # the writer links them
    options = FormatOptions(chunks=Chunks(max_tokens=64, min_tokens=0))

    rows = [json.loads(line) for line in chunks.write(WriterInput(document, options)).splitlines()]

    allowed = tuple(tag for tags in ELEMENTS.values() for tag in tags)
    for row in rows:
        assert_nothing_lives(row["text"], allowed, is_single=False)


def join_mineru(document: Document) -> Iterator[str]:
    """The texts of content_list.json, as tools write them into Markdown."""
    for entry in mineru.make_entries(document):
        yield from (entry[name] for name in ("text", "table_body", "content") if name in entry)
        yield from ("\n".join(f"- {item}" for item in entry.get("list_items", ())), *entry.get("table_caption", ()))
        if "code_body" in entry:
            yield f"```\n{entry['code_body']}\n```"


LIVE = {"script", "img", "svg", "details", "a", "b", "javascript:alert(1)", "https:", "!", "?"}


@settings(max_examples=100)
@given(st.sampled_from(list(ELEMENTS)), hostile_texts)
@example(Kind.CODE, "<script>alert(1)</script>```\t")
def test_minerus_texts_are_inert(kind: Kind, text: str) -> None:
    """The entries of content_list.json hold Markdown that is escaped as that of document.md."""
    for source in join_mineru(build(kind, text).document):
        assert_nothing_lives(source, (*ELEMENTS[kind], "pre", "code"))


@settings(max_examples=60)
@given(st.sampled_from(list(ELEMENTS)), hostile_texts)
@example(Kind.TITLE, "x {: onclick=alert(1)}#")
def test_doclings_export_has_no_tag_and_no_link(kind: Kind, text: str) -> None:
    """Docling, whose export escapes few of its plain texts, exports neither tags nor links nor attributes of a text."""
    source = docling.convert(build(kind, text).document).export_to_markdown()

    for read in READERS.values():
        page = Page(read(source))
        assert not LIVE & set(page.elements), source
        assert not [found for found in page.attributes if found[:2] not in ANY_VALUE and found[1] != "class"], source


def write_one(one: Element) -> str:
    return markdown.write(build_document(checkpoint(1, one)), Markdown(page_marks=False))[0].rstrip("\n")


@pytest.mark.parametrize(
    ("latex", "written"),
    [
        ("a<b", "a< b"),
        (r"\frac{a_1}{b_2} < x_{i}^2", r"\frac{a_1}{b_2} < x_{i}^2"),
        (r"\begin{align*}a &= b \\ c &= d\end{align*}", r"\begin{aligned}a &= b \\ c &= d\end{aligned}"),
        ("a*b", "a * b"),
        (r"\text{`x'}", r"\text{\u2018x'}".replace(r"\u2018", "\u2018")),
        ("x\n- y", "x\n{}- y"),
        ("x\n+ y\n= z", "x\n{}+ y\n= z"),
        ("x~y", r"x\ y"),
    ],
)
def test_formulas_stay_readable(latex: str, written: str) -> None:
    """In a formula only what a reader would misread is written otherwise, as LaTeX that reads the same."""
    assert write_one(element("formula", formula=Formula(latex=latex))) == f"$$\n{written}\n$$"


@pytest.mark.parametrize(
    "text",
    [
        "a < b, c > d, R&D, AT&T, x_1, file_name.py",
        "It costs $5, -3 % (see [1]) at 10:30.",
        "f(x) = {a, b}; 5 * 3 = 15; 4*",
        "Visit https://example.org/a_b?c=d&e=f or write to info@example.org.",
        "C# is not #5; 3.5 m; ~5 m",
    ],
)
def test_ordinary_texts_are_written_as_they_are(text: str) -> None:
    """Where no reader would misread a text, it has no escape."""
    assert write_one(element("text", text)) == text


def test_code_with_tags_is_indented() -> None:
    """Code is fenced, but indented where a reader without fences would run it; the code itself is unchanged."""
    assert write_one(element("code", "if a < b:\n    x[1](2)")) == "<!-- -->\n\n    if a < b:\n        x[1](2)"
    assert write_one(element("code", "if a < b:\n    c")) == "```\nif a < b:\n    c\n```"
    assert escaping.write_code("a\n\n<b>") == "<!-- -->\n\n    a\n\n    <b>"
