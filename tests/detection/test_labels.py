"""The labels of PP-DocLayoutV3."""

from __future__ import annotations

from twopass.detection.labels import LABELS, RULES, Label
from twopass.document import Category, Kind, Layer

DOCUMENTED = (
    "abstract algorithm aside_text chart content display_formula doc_title figure_title footer footer_image footnote "
    "formula_number header header_image image inline_formula number paragraph_title reference reference_content seal "
    "table text vertical_text vision_footnote"
)


def test_the_labels_are_those_of_the_model_in_its_order() -> None:
    """Class ids are positions in this list, so that a label in another place would rename all that follow."""
    assert " ".join(LABELS) == DOCUMENTED
    assert len(LABELS) == 25


def test_no_label_is_forgotten() -> None:
    """Every label becomes a kind with a category; a forgotten one would lose its regions."""
    assert set(RULES) == set(Label)
    assert all(isinstance(rule.kind.category, Category) for rule in RULES.values())


def test_kinds_follow_from_what_labels_mean() -> None:
    """Headings, tables, formulas, figures and furniture keep their meaning."""
    kinds = {label: RULES[label].kind for label in Label}

    assert kinds[Label.DOC_TITLE] is Kind.TITLE
    assert kinds[Label.PARAGRAPH_TITLE] is Kind.SECTION_HEADER
    assert kinds[Label.DISPLAY_FORMULA] is kinds[Label.INLINE_FORMULA] is Kind.FORMULA
    assert kinds[Label.CHART].category is Category.GRAPH
    assert {label for label in Label if RULES[label].layer is Layer.FURNITURE} == {
        Label.HEADER, Label.HEADER_IMAGE, Label.FOOTER, Label.FOOTER_IMAGE, Label.NUMBER,
    }  # fmt: skip
