"""Controls and private-use codes in the texts of elements: replaced, dropped or reported."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes.documents import element
from twopass.document import Cell, Element, Figure, FindingKind
from twopass.families import content
from twopass.text import table_markup, unknown_characters


def resolve(*elements: Element) -> tuple[list[str], list[tuple[FindingKind, int]]]:
    resolved, findings = unknown_characters.resolve(elements)
    return [one.text for one in resolved], [(finding.kind, finding.count) for finding in findings]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x93Quay\x94 \x96 it\x92s \x80 5\x85 the end of the line", "“Quay” – it’s € 5… the end of the line"),
        ("\uf0b7 one \uf0a7 two", "• one ▪ two"),
        ("\uf731\uf739\uf738\uf734 H\uf761\uf772bour", "1984 Harbour"),
        ("\uf8ebx\uf8f6", "⎛x⎞"),
    ],
)
def test_known_codes_become_what_they_draw(text: str, shown: str) -> None:
    """Quotation marks of Windows-1252, bullets, old-style figures and small capitals: nothing is lost."""
    assert resolve(element("text", text)) == ([shown], [])


def test_signs_that_stand_alone_are_dropped_and_counted() -> None:
    """A bullet or arrow without a name is no loss."""
    found = resolve(element("text", "\ue001 the quay \ue002\ue002 the lock \x81"))

    assert found == (["the quay the lock"], [(FindingKind.SIGNS_DROPPED, 3)])
    assert not FindingKind.SIGNS_DROPPED.is_loss


def test_letters_without_a_name_stay_and_are_a_loss() -> None:
    """A word keeps what it has, and the audit names it."""
    resolved, (finding,) = unknown_characters.resolve([element("text", "the har\ue010our")])

    assert resolved[0].text == "the har\ue010our"
    assert (finding.kind, finding.words) == (FindingKind.CHARACTERS_UNKNOWN, ("har\ue010our",))
    assert finding.kind.is_loss


def test_replacement_characters_are_unknown_ones() -> None:
    """U+FFFD stands for a letter that the font does not name, or for a bullet."""
    found = resolve(element("text", "\ufffd the \ufffd-oxidation of"))

    expected = [(FindingKind.SIGNS_DROPPED, 1), (FindingKind.CHARACTERS_UNKNOWN, 1)]
    assert found == (["the \ufffd-oxidation of"], expected)


def test_a_page_full_of_controls_is_not_read_as_windows_1252() -> None:
    """Its fonts have codes of their own."""
    text = "\x93\x8a\x99\x8b\x97 \x93\x8a\x96"

    assert resolve(element("text", text)) == ([text], [(FindingKind.CHARACTERS_UNKNOWN, 2)])


def test_cells_are_cleaned_in_all_forms_of_the_table() -> None:
    """Cells, text, HTML and GFM."""
    cells = [Cell(row=0, col=0, text="\ue001 Tolls", header=True), Cell(row=1, col=0, text="\x80 5")]
    table = content.write_table(element("table"), table_markup.build_table(2, 1, cells))
    (resolved,), _ = unknown_characters.resolve([table])

    assert resolved.text == "Tolls\n€ 5"
    assert resolved.markdown == "| Tolls |\n| --- |\n| € 5 |"
    assert resolved.table and "<td>€ 5</td>" in resolved.table.html


def test_the_text_in_a_picture_is_cleaned() -> None:
    """Also where the picture has no text of its own."""
    picture = element("picture").model_copy(update={"figure": Figure(visible_text="\ue001 Tolls \x80 5")})
    (resolved,), (finding,) = unknown_characters.resolve([picture])

    assert resolved.figure and resolved.figure.visible_text == "Tolls € 5"
    assert (finding.kind, finding.count) == (FindingKind.SIGNS_DROPPED, 1)


@given(st.lists(st.text(max_size=20), max_size=3))
def test_no_other_character_changes(texts: list[str]) -> None:
    """Text without such codes stays as it is, and a second time nothing is found that can be dropped."""
    sound = element("text", "sound text " * 200)  # a page full of controls keeps them
    elements, _ = unknown_characters.resolve([sound, *(element("text", text) for text in texts)])
    again, findings = unknown_characters.resolve(elements)

    assert [one.text for one in again] == [one.text for one in elements]
    assert all(finding.kind is FindingKind.CHARACTERS_UNKNOWN for finding in findings)
