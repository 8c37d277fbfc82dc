"""scripts/bench/corpus: machine checks, how they are matched, and what is scored."""

from __future__ import annotations

import json
import unicodedata
from pathlib import Path
from typing import Any

import pymupdf
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scripts.bench import corpus
from scripts.bench.corpus import Reader, ReaderMissing, ReaderRun, Reading, Source, checks, drawn
from scripts.bench.corpus.checks import Check, Form, InvalidCheck, Kind
from twopass.acceptance import drawn_pages
from twopass.text import table_markup
from twopass.text.prose import split_words

DRAWN = checks.load(corpus.CHECKS / "drawn.jsonl")
CORPUS = checks.load(corpus.CHECKS / "corpus.jsonl")
FIELDS: dict[str, Any] = {"file": "a.pdf", "page": 1, "kind": "present", "class": "columns", "texts": ["spring"]}
PAGE = "The **warden** walks the line on Thursdays and listens for leaks with an iron rod.\n\n# Prices\n\nThey fell."
TABLE = "| Valve | Pressure | |\n| --- | --- | --- |\n| School | 4.0 bar | 6 May |\n| Bakery | 3.7 bar | 9 May |"
SPANNING = """<table><tr><th rowspan="2">District</th><th colspan="2">Losses</th></tr>
<tr><th>2023</th><th>2024</th></tr>
<tr><td>Upper</td><td>410</td><td>395</td></tr></table>"""

words = st.text("abc defgh,.", max_size=40)
texts = st.text(min_size=1, max_size=checks.MAX_TEXT).filter(str.strip)


def make_check(kind: Kind, *wanted: str, **fields: Any) -> Check:
    return Check("a.pdf", 1, kind, "columns", wanted, **fields)


def make_cell(text: str, **neighbours: str) -> Check:
    return make_check(Kind.CELL, text, neighbours=tuple(neighbours.items()))


# the files of checks


def test_the_drawn_pages_have_enough_checks_of_every_class() -> None:
    """At least 90, and at least five in each class: one more or less must not decide a class."""
    groups = [check.group for check in DRAWN]

    assert len(groups) >= 90
    assert min(groups.count(group) for group in set(groups)) >= 5


def test_the_real_documents_have_enough_checks_of_every_class() -> None:
    groups = [check.group for check in CORPUS]

    assert len(groups) >= 60
    assert min(groups.count(group) for group in set(groups)) >= 5


def test_no_check_is_there_twice() -> None:
    """A check that counts twice would weigh its page."""
    assert len({*DRAWN, *CORPUS}) == len(DRAWN) + len(CORPUS)


def test_every_drawn_check_names_a_page_that_is_drawn() -> None:
    pages = {f"{document.name}.pdf": len(document.pages) for document in drawn.list_documents()} | {drawn.RECEIPT: 1}

    assert {check.file for check in DRAWN} == set(pages) - {"sample_tables_scan.pdf"}  # only its cells are counted
    assert all(check.page <= pages[check.file] for check in DRAWN)


@pytest.mark.parametrize("name", ["two_columns", "cards", "tax_form", "letterhead", "table_ledger", "code", "contents"])
def test_what_the_checks_look_for_is_drawn(name: str, tmp_path: Path) -> None:
    """Every word that must be there is on the page, so that a reader can pass."""
    document = next(document for document in drawn.list_documents() if document.name == name)
    drawn_pages.save(document.pages, tmp_path / "a.pdf")
    with pymupdf.open(tmp_path / "a.pdf") as pdf:
        on_page = {word for page in pdf for word in split_words(page.get_text())}
    wanted = [check for check in DRAWN if check.file == f"{name}.pdf" and check.form is Form.PLAIN]
    some = [check for check in wanted if check.kind is not Kind.ABSENT]

    assert some
    assert not {word for check in some for text in check.texts[:1] for word in split_words(text)} - on_page


def test_arabic_is_drawn_in_joined_forms_and_lam_alef_as_one() -> None:
    """Its text layer has presentation forms, which NFKC turns into the letters of the text."""
    with pymupdf.open() as pdf:
        page = pdf.new_page()
        drawn.draw_arabic(page)
        text = page.get_text()

    assert "\ufef7" in text  # lam with alef and hamza, initial
    assert [line.strip() for line in unicodedata.normalize("NFKC", text).split("\n") if line.strip()] == list(
        drawn.ARABIC_LINES
    )


def test_the_sample_has_its_tables_as_rows_of_equal_length() -> None:
    """Spanning headers leave empty places, as in what readers are compared with."""
    first = drawn.load()[0]

    assert first.page == 3
    assert list(first.rows[0]) == ["Group", "Source", "2023", "", "2024", ""]
    assert {len(row) for row in first.rows} == {6}
    assert sum(len(page.tables) for page in drawn.list_pages()) == 4


# the parser


@given(st.text(max_size=300))
def test_any_text_is_checks_or_an_invalid_check(text: str) -> None:
    try:
        assert all(isinstance(check, Check) for check in checks.parse(text))
    except InvalidCheck as error:
        assert str(error).startswith("checks:")


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=70),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=5,
)


@given(st.dictionaries(st.sampled_from(sorted(checks.NAMES)), json_values))
def test_any_values_of_the_fields_are_a_check_or_an_invalid_one(fields: dict[str, Any]) -> None:
    try:
        checks.parse(json.dumps(FIELDS | fields))
    except InvalidCheck as error:
        assert str(error).startswith("checks:1: ")


@given(texts, st.integers(1, 500), st.floats(checks.MIN_SIMILARITY, 1))
def test_a_check_is_parsed_as_it_is_written(text: str, page: int, similarity: float) -> None:
    fields = FIELDS | {"texts": [text], "page": page, "similarity": similarity}

    (check,) = checks.parse(json.dumps(fields, ensure_ascii=False))

    assert check == Check("a.pdf", page, Kind.PRESENT, "columns", (text,), similarity=similarity)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"kind": "near"}, "near"), ({"texts": []}, "at least 1"), ({"kind": "order"}, "at least 2"),
        ({"texts": "spring"}, "must be a list"), ({"page": 0}, "at least 1"), ({"page": True}, "at least 1"),
        ({"similarity": 1.5}, "from 0.5 to 1"), ({"left": "x"}, "neighbours"), ({"texts": ["a" * 65]}, "1 to 64"),
        ({"colour": 1}, "'colour'"), ({"kind": "cell", "form": "markdown"}, "only for"),
    ],
)  # fmt: skip
def test_the_message_names_what_is_wrong(change: dict[str, Any], reason: str) -> None:
    with pytest.raises(InvalidCheck, match=reason):
        checks.parse(json.dumps(FIELDS | change))


# matching


def test_markup_does_not_hide_a_text() -> None:
    assert checks.passes(make_check(Kind.PRESENT, "The warden walks the line"), PAGE)


def test_a_text_may_differ_by_the_share_that_the_check_allows() -> None:
    wanted = "listens for leeks with an iron rod"

    assert checks.passes(make_check(Kind.PRESENT, wanted, similarity=0.95), PAGE)
    assert not checks.passes(make_check(Kind.PRESENT, wanted, similarity=0.99), PAGE)


def test_texts_must_be_in_the_order_of_the_check() -> None:
    assert checks.passes(make_check(Kind.ORDER, "Thursdays", "iron rod", "Prices"), PAGE)
    assert not checks.passes(make_check(Kind.ORDER, "iron rod", "Thursdays", "Prices"), PAGE)


def test_nothing_is_absent_from_a_page_that_was_not_read() -> None:
    check = make_check(Kind.ABSENT, "Annual report")

    assert checks.passes(check, PAGE)
    assert not checks.passes(check, "![picture](images/1.png)")


def test_the_form_markdown_sees_markup_and_white_space() -> None:
    assert checks.passes(make_check(Kind.PRESENT, "**warden**", form=Form.MARKDOWN), PAGE)
    assert not checks.passes(make_check(Kind.PRESENT, "The warden", form=Form.MARKDOWN), PAGE)


def test_the_form_formula_ignores_the_space_of_latex() -> None:
    page = r"$$ Q = \frac { V } { t } \, . $$"

    assert checks.passes(make_check(Kind.PRESENT, r"Q=\frac{V}{t}", form=Form.FORMULA), page)


@pytest.mark.parametrize(
    ("check", "passes"),
    [
        (make_cell("4.0 bar", left="School", right="6 May", down="3.7 bar"), True),
        (make_cell("4.0 bar", left="6 May"), False),
        (make_cell("9 May", row="Bakery"), True),
        (make_cell("9 May", left="Bakery"), False),
        (make_cell("3.7 bar", heading="Pressure"), True),
        (make_cell("3.7 bar", up="Pressure"), False),
    ],
)
def test_a_cell_is_found_by_its_neighbours(check: Check, passes: bool) -> None:
    assert checks.passes(check, f"Text.\n\n{TABLE}\n\nText.") is passes


def test_a_spanning_cell_is_the_heading_of_all_its_columns() -> None:
    assert checks.passes(make_cell("395", heading="Losses", left="410", up="2024"), SPANNING)
    assert checks.passes(make_cell("2024", up="Losses"), SPANNING)


@given(words, texts, words)
def test_a_text_is_found_wherever_it_stands(before: str, text: str, after: str) -> None:
    assert checks.find(text, before + text + after, 1.0) is not None


@given(st.text(max_size=200), texts, st.sampled_from(Kind), st.sampled_from(Form))
def test_any_markdown_passes_or_fails(markdown: str, text: str, kind: Kind, form: Form) -> None:
    assert checks.passes(make_check(kind, text, text, form=form), markdown) in (True, False)


@given(words, st.text("abc ", min_size=1, max_size=12).filter(str.strip))
def test_a_text_is_present_or_absent_and_never_both(more: str, text: str) -> None:
    kinds = [make_check(kind, text, similarity=0.9) for kind in (Kind.PRESENT, Kind.ABSENT)]

    assert sorted(checks.passes(check, PAGE + more) for check in kinds) == [False, True]


# scores


@given(st.lists(st.text("abcdefgh", min_size=1, max_size=5), min_size=1, max_size=30))
def test_words_in_order_are_all_right(words: list[str]) -> None:
    assert checks.measure_order("# " + " ".join(words), " ".join(words)) == 1.0


def test_interleaved_columns_cost_order() -> None:
    page, mixed = "one two three four five six seven eight", "one five two six three seven four eight"

    assert checks.measure_order(mixed, page) == pytest.approx(5 / 8)


@given(st.lists(st.lists(st.text("abc|*12 ", max_size=6), min_size=2, max_size=2), min_size=1, max_size=4))
def test_all_cells_of_a_table_as_it_is_are_exact(rows: list[list[str]]) -> None:
    escaped = [[checks.to_plain(text).replace("|", " ").strip() for text in row] for row in rows]
    table = table_markup.to_gfm(escaped, 2)

    assert checks.measure_cells(f"Text.\n\n{table}\n\nText.", [escaped]) == 1.0


def test_a_shifted_column_makes_its_cells_wrong() -> None:
    rows = [["Valve", "Pressure", ""], ["School", "4.0 bar", "6 May"], ["Bakery", "9 May", "3.7 bar"]]

    assert checks.measure_cells(TABLE, [rows]) == pytest.approx(7 / 9)


def test_a_cell_below_a_spanning_one_is_empty() -> None:
    rows = [["District", "Losses", ""], ["", "2023", "2024"], ["Upper", "410", "395"]]

    assert checks.measure_cells(SPANNING, [rows]) == 1.0


def test_checks_are_counted_by_class_and_failed_ones_are_listed() -> None:
    some = [make_check(Kind.PRESENT, "warden"), make_check(Kind.PRESENT, "miller")]
    run = ReaderRun("reader", {"a.pdf": Reading((PAGE,), 2.0)})

    rows, misses = corpus.count_passed(some, [run], {"a.pdf": Source(Path("a.pdf"), 1, False)})

    assert rows == [["columns", "2", "1"], ["all", "2", "1"]]
    assert misses == [["a.pdf 1", "columns", "present", "miller", "no"]]


def test_seconds_are_those_of_a_page_and_documents_that_failed_do_not_count() -> None:
    sources = {name: Source(Path(name), pages, False) for name, pages in (("a.pdf", 2), ("b.pdf", 1), ("c.pdf", 1))}
    readings = {"a.pdf": Reading(("", ""), 2.0), "b.pdf": Reading(("",), 4.0), "c.pdf": Reading((), 0.1, "broken")}

    rows = corpus.measure_seconds([ReaderRun("reader", readings)], sources)

    assert rows[0] == ["text layer, median, s a page", "1.00"]
    assert rows[2] == ["scan, median, s a page", corpus.NONE]
    assert rows[-1] == ["documents not read", "1"]


def test_a_cell_counts_on_whatever_page_its_table_begins() -> None:
    """Readers join tables across pages."""
    check = Check("a.pdf", 3, Kind.CELL, "tables", ("3.7 bar",))
    run = ReaderRun("reader", {"a.pdf": Reading((TABLE, "", ""), 1.0)})

    assert run.passes(check, {"a.pdf": Source(Path("a.pdf"), 3, False)})


# files


def test_only_the_first_pages_of_a_file_are_read(tmp_path: Path) -> None:
    with pymupdf.open() as pdf:
        for number in range(1, 5):
            pdf.new_page().insert_text((72, 100), f"Page {number}")
        pdf.save(tmp_path / "a.pdf")
    (tmp_path / "output").mkdir()

    source = corpus.cut(tmp_path / "a.pdf", 3, tmp_path / "output")

    assert source == Source(tmp_path / "output" / "a.pdf", 3, False)


def test_a_page_below_a_picture_is_a_scan(tmp_path: Path) -> None:
    letter = drawn_pages.prose(drawn.DROP_CAP)
    drawn_pages.save_scans((letter,), tmp_path / "scan.pdf")
    drawn_pages.save((letter,), tmp_path / "text.pdf")

    assert [corpus.describe(tmp_path / name).is_scan for name in ("scan.pdf", "text.pdf")] == [True, False]


def test_files_that_are_missing_in_the_folder_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The public PDFs are not part of the project."""
    names = corpus.find_files(tmp_path, CORPUS)

    assert names == []
    assert "edgar.pdf, edgar_image.pdf" in capsys.readouterr().out


# readers


def test_a_paragraph_that_crosses_pages_is_looked_for_on_both() -> None:
    """Readers put it on the page where it begins."""
    reading = Reading(("one", "two", "three"), 1.0)

    assert reading.get_page(1, 3) == "one"
    assert reading.get_page(3, 3) == "two\n\nthree"
    assert Reading(("all",), 1.0).get_page(3, 3) == "all"


def test_an_unknown_reader_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="choose from twopass"):
        Reader.parse("nothing=/bin/python")


@pytest.mark.parametrize(("python", "reason"), [("/nowhere/python", "No such file"), ("/bin/false", "does not start")])
def test_a_reader_that_does_not_start_is_left_out_with_a_sentence(python: str, reason: str, tmp_path: Path) -> None:
    with pytest.raises(ReaderMissing, match=reason):
        list(Reader("docling", python).read([tmp_path / "a.pdf"]))


def test_a_reader_answers_each_file_with_pages_or_an_error(tmp_path: Path) -> None:
    """One bad document ends no comparison."""
    good, bad = tmp_path / "good.pdf", tmp_path / "bad.pdf"
    with pymupdf.open() as pdf:
        pdf.new_page().insert_text((72, 100), "The miller kept the sluice shut.")
        pdf.save(good)
    bad.write_bytes(b"no PDF")

    unread, read = Reader("pymupdf4llm-no-ocr").read([bad, good])

    assert unread.error
    assert "The miller kept the sluice shut." in "".join(read.pages)
    assert read.cpu_s > 0


@pytest.mark.parametrize("end", ["exit 1", "sleep 60"])
def test_a_reader_that_ends_or_hangs_is_started_again_for_the_next_file(end: str, tmp_path: Path) -> None:
    """It costs the one document, after a limit of time."""
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\necho null\nread path\n{end}\n")
    python.chmod(0o755)

    readings = list(Reader("docling", str(python), limit_s=0.5).read([tmp_path / "a.pdf", tmp_path / "b.pdf"]))

    assert [reading.error for reading in readings] == ["the reader ended, or did not answer for 0.5 s"] * 2
