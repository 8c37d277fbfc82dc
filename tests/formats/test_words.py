"""Every word of the elements is in every format exactly once, and what is not is reported."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fakes.documents import build_document, checkpoint, documents, element, plain_table
from twopass.document import Document, Element, Figure, Formula, Kind
from twopass.errors import Code
from twopass.format_options import Chunks, FormatOptions, Furniture, Markdown
from twopass.formats.registry import WRITERS
from twopass.formats.words import Loss
from twopass.formats.writer_input import WriterInput
from twopass.job import Format

CHECKED = [name for name, writer in WRITERS.items() if writer.check]
FAST = [name for name in CHECKED if name is not Format.DOCLING]  # docling's classes take most of the time
ODD_TEXTS = [
    "depth-of-\nwater",
    "- one\n- two\n  - three",
    "01. First\n2) Second",
    "a | b || c",
    "C:\\temp\\new _x_ *y* `z` ~~w~~ $5 and $7",
    "<b>bold</b> <john@example.org> &lt;br> &amp;copy &copy2020 # #5;",
    "[see](https://a.example/b_c) ![x](y) [^1] [1]: note",
    "water¹ and 1900²³, H<sub>2</sub>O",
    "\\(x_1 < y\\) and \\[\\frac{a}{b}\\tag{3}\\]",
    "מים במעיין",
    "水の深さ。 한국어 요약",
    "🙂 ½ № ﬁne naïve",
    "# Head\n\n> quote\n\n    code",
    "```\nfenced\n```",
    "{.class} trailing {#id}",
    "\\begin{tabular}{l} a & b \\\\ \\end{tabular}",
    "--- \\",
]
odd_texts = st.lists(st.sampled_from(ODD_TEXTS), min_size=1, max_size=3).map("\n".join)


options = st.fixed_dictionaries(
    {
        "tables": st.sampled_from(["auto", "html", "gfm"]),
        "maths": st.sampled_from(["$", "\\("]),
        "furniture": st.sampled_from(list(Furniture)),
        "merge_tables": st.booleans(),
        "front_matter": st.booleans(),
        "page_marks": st.booleans(),
    }
)


def prepare(document: Document, **options: Any) -> WriterInput:
    sizes = Chunks(max_tokens=64, min_tokens=0)
    return WriterInput(document, FormatOptions(markdown=Markdown(**options), chunks=sizes))


def find_losses(inputs: WriterInput, name: Format) -> list[Loss]:
    writer = WRITERS[name]
    assert writer.write and writer.check
    return list(writer.check(inputs, writer.write(inputs)))


@settings(max_examples=40)
@given(documents(), options)
def test_no_word_of_any_document_is_lost_or_repeated(document: Document, options: dict[str, Any]) -> None:
    """Whatever a document holds, every format has each word of its elements once, with any options."""
    inputs = prepare(document, **options)

    assert [loss for name in FAST for loss in find_losses(inputs, name)] == []


@settings(max_examples=5)
@given(documents())
def test_no_word_is_lost_or_repeated_in_doclings_format(document: Document) -> None:
    """Docling's items have each word of the elements once."""
    assert find_losses(prepare(document), Format.DOCLING) == []


@settings(max_examples=40)
@given(st.lists(st.tuples(st.sampled_from(list(Kind)), odd_texts), min_size=1, max_size=5), options)
def test_odd_texts_are_kept_in_every_kind_of_element(parts: list[tuple[Kind, str]], options: dict[str, Any]) -> None:
    """Texts that look like markup, and other scripts, are neither lost nor repeated, in texts, cells, code and data."""
    elements = [make_odd_element(kind, text) for kind, text in parts]
    inputs = prepare(build_document(checkpoint(1, *elements), checkpoint(2, *elements)), **options)

    assert [loss for name in FAST for loss in find_losses(inputs, name)] == []


def make_odd_element(kind: Kind, text: str) -> Element:
    table = plain_table(["Head", text], [text, ""], ["", "# 5"], header=True)
    match kind:
        case Kind.TABLE:
            return element("table", f"Head\n{text}", table=table)
        case Kind.PICTURE | Kind.CHART:
            figure = Figure(visible_text=f"{text}\nmore", description=text, data=table, mermaid="graph TD; A-->B")
            return element(kind, text, figure=figure, image="images/a.png")
        case Kind.FORMULA:
            return element("formula", text, formula=Formula(latex=text))
        case _:
            return element(kind, text, markdown=f"**{text}**")


@pytest.mark.parametrize("name", CHECKED)
def test_a_lost_and_a_repeated_word_are_reported(name: Format) -> None:
    """The check names words that were lost or repeated after all, with their page."""
    rows = [["Tower", "Height"], ["Quay", "12"]]
    pages = (
        [element("text", "The harbour."), element("table", table=plain_table(*rows), text="")],
        [
            element("text", "A vessel enters."),
            element("picture", "Lamp", figure=Figure(description="It shows a pole.")),
        ],
    )
    inputs = prepare(build_document(*(checkpoint(n, *page) for n, page in enumerate(pages, 1))))
    writer = WRITERS[name]
    assert writer.write and writer.check
    data = writer.write(inputs)

    for page, word in ((1, "harbour"), (1, "Quay"), (2, "vessel"), (2, "Lamp"), (2, "pole")):
        lost = writer.check(inputs, data.replace(word.encode(), b"-" * len(word)))
        assert [(loss.page, loss.lost, loss.repeated) for loss in lost] == [(page, (word,), ())]
    wrong = writer.check(inputs, data.replace(b"harbour", b"pole    "))
    assert [(loss.page, loss.lost, loss.repeated) for loss in wrong] == [(1, ("harbour",), ("pole",))]


def test_a_loss_is_a_problem_that_names_its_words() -> None:
    """The message has the format's name and the words, and the finding counts them."""
    loss = Loss("document.html", 3, ("Quay", "12"), ("Lamp",))

    assert loss.problem.message == (
        "page 3: 2 words lost in document.html (Quay 12) and 1 word repeated in document.html (Lamp); "
        "document.json has them; report it"
    )
    assert (loss.problem.code, loss.finding.count, loss.finding.words) == (Code.FORMAT_LOST, 3, ("Quay", "12", "Lamp"))


@pytest.mark.parametrize("name", [Format.MARKDOWN, Format.HTML, Format.CHUNKS])
def test_a_repeated_head_of_a_continued_table_is_no_loss(name: Format) -> None:
    """The head of a table that continues is written once; a row that the next page repeats is written again."""
    head, row = ["Pump", "Flow"], ["North", "12"]
    first, second = (element("table", table=plain_table(head, row, header=True), box=None) for _ in range(2))
    document = build_document(checkpoint(1, first), checkpoint(2, second))
    writer = WRITERS[name]
    assert writer.write and writer.check
    data = writer.write(prepare(document))

    assert (data.count(b"Pump"), data.count(b"North")) == (1, 2)
    assert writer.check(prepare(document), data) == []
