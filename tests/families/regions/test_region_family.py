"""The family of region readers: detections to elements, questions, and answers to text."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.detection import drawn
from twopass.detection.labels import RULES, Label
from twopass.detection.region import DETECT, Detection, Region, make_region, to_json
from twopass.document import Box, Kind, Word
from twopass.errors import Code
from twopass.families.interface import ElementContext, PageFeatures, PageRequest, Reply
from twopass.families.regions.family import RegionFamily
from twopass.families.regions.reader import READERS
from twopass.models import MODELS
from twopass.pages.text_layer import TextLayer

FAMILIES = [RegionFamily(MODELS[name]) for name in READERS]
SIZE = (200, 100)


def page_of(*regions: Region) -> str:
    return to_json(Detection(regions=regions))


def stack(*labels: str) -> list[Region]:
    """Regions of these labels from top to bottom."""
    return [
        make_region(label, Box(0.1, round(0.03 * n + 0.02, 5), 0.9, round(0.03 * n + 0.04, 5)), order=n)
        for n, label in enumerate(labels)
    ]


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_every_label_becomes_an_element_of_its_kind(family: RegionFamily) -> None:
    """No region of any label is lost, and the model's order is kept."""
    parsed = family.parse(page_of(*stack(*Label)), 1)

    labels = [element.native_label for element in parsed.elements]
    assert sorted(map(str, labels)) == sorted(Label)
    for element in parsed.elements:
        assert element.content_layer is RULES[Label(element.native_label)].layer
        assert element.kind is RULES[Label(element.native_label)].kind or element.native_label == "number"


@given(st.text(max_size=80) | st.lists(drawn.regions, max_size=8).map(lambda regions: page_of(*regions)))
def test_any_answer_can_be_parsed(text: str) -> None:
    """Text that is no detection has a reason; elements have ids of their own."""
    parsed = FAMILIES[0].parse(text, 3)

    ids = [element.id for element in parsed.elements]
    assert len(set(ids)) == len(ids)
    assert parsed.reason in (None, Code.UNGROUNDED)


@given(
    st.sampled_from(FAMILIES), st.sampled_from(list(Label)), st.text(max_size=120), st.sampled_from(["stop", "loop"])
)
def test_any_reply_can_be_applied(family: RegionFamily, label: Label, answer: str, finish: str) -> None:
    """Whatever a reader answers gives an element that can be stored."""
    [element] = family.parse(page_of(*stack(label)), 1).elements
    question = family.next_question(ElementContext(element, False, SIZE, [element]))
    if question is None:
        return

    read = family.apply_replies(element, [Reply(question, answer, finish)])

    assert read.id == element.id and read.boxes == element.boxes
    read.model_dump_json()
    assert family.next_question(ElementContext(read, True, SIZE, [read], [Reply(question, answer, finish)])) is None


def test_each_label_has_the_prompt_of_its_reader() -> None:
    """Tables, formulas and charts are asked for as such; pictures are not read."""
    found = {}
    for family in FAMILIES:
        elements = family.parse(page_of(*stack("text", "table", "display_formula", "chart", "image")), 1).elements
        questions = [family.next_question(ElementContext(element, False, SIZE, elements)) for element in elements]
        found[family.name] = [question.prompt if question else None for question in questions]

    common = ["Table Recognition:", "Formula Recognition:"]
    assert found["glm_ocr"] == ["Text Recognition:", *common, None, None]
    assert found["paddleocr_vl"] == ["OCR:", *common, "Chart Recognition:", None]


def test_tables_are_read_in_the_grammar_of_the_reader() -> None:
    """GLM-OCR writes HTML, PaddleOCR-VL writes OTSL."""
    answers = [("glm_ocr", "<table><tr><td>a</td><td>b</td></tr></table>"), ("paddleocr_vl", "<fcel>a<fcel>b<nl>")]
    for name, answer in answers:
        family = RegionFamily(MODELS[name])
        [element] = family.parse(page_of(*stack("table")), 1).elements
        question = family.next_question(ElementContext(element, False, SIZE, [element]))
        assert question

        read = family.apply_replies(element, [Reply(question, answer)])

        assert read.table and [cell.text for cell in read.table.cells] == ["a", "b"]
        assert read.read_by == 2


def test_lines_of_a_region_stay_apart_in_markdown() -> None:
    """A reader ends paragraphs with one line end; items of a list stay one list, with the same bullets."""
    family = FAMILIES[0]
    [element] = family.parse(page_of(*stack("text")), 1).elements
    question = family.next_question(ElementContext(element, False, SIZE, [element]))
    assert question

    read = family.apply_replies(element, [Reply(question, "First.\nSecond:\n• salt\n· amber\nLast.")])

    assert read.text == "First.\nSecond:\n- salt\n- amber\nLast."
    assert read.markdown == "First.\n\nSecond:\n- salt\n- amber\n\nLast."


def test_a_region_that_is_not_read_takes_the_words_of_the_layer() -> None:
    """An empty answer or boilerplate does not lose text that the PDF has; without a layer the element says so."""
    family = FAMILIES[0]
    [element] = family.parse(page_of(*stack("text")), 1).elements
    question = family.next_question(ElementContext(element, False, SIZE, [element]))
    assert question

    with_layer = family.apply_replies(element, [Reply(question, "", layer_text="The words of the page")])
    without = family.apply_replies(element, [Reply(question, "[Non-Text]")])

    assert with_layer.text == "The words of the page" and "from_text_layer" in with_layer.flags
    assert without.text == "" and "unread_region" in without.flags


def test_text_regions_take_a_complete_layer_only_if_asked_to() -> None:
    """With `layer_text`, nothing is asked about text that the PDF has, but tables are still read."""
    layer = TextLayer.of([Word(Box(0.2, 0.025, 0.4, 0.035), "Words"), Word(Box(0.2, 0.055, 0.4, 0.065), "12")])
    text = page_of(*stack("text", "table"))
    taking = RegionFamily(MODELS["glm_ocr"], layer_text=True)

    paragraph, table = taking.parse(text, 1, layer=layer).elements
    asked = FAMILIES[0].parse(text, 1, layer=layer).elements[0]

    assert paragraph.text == "Words" and taking.next_question(ElementContext(paragraph, True, SIZE, [])) is None
    assert taking.next_question(ElementContext(table, False, SIZE, [])) is not None
    assert asked.text == "" and FAMILIES[0].next_question(ElementContext(asked, False, SIZE, [])) is not None
    assert taking.options != FAMILIES[0].options


def test_words_that_the_detector_missed_are_asked_about() -> None:
    """They are an element with a flag, in its place."""
    layer = TextLayer.of([Word(Box(0.2, 0.3, 0.4, 0.32), "Lost")])
    family = FAMILIES[0]

    elements = family.parse(page_of(*stack("text")), 1, layer=layer).elements

    assert [element.flags for element in elements] == [("unread_region",), ("missed_by_detector", "unread_region")]
    assert family.next_question(ElementContext(elements[1], False, SIZE, elements)) is not None


def test_captions_belong_to_tables_and_figures() -> None:
    """The label of captions says figure, but it stands at tables too."""
    elements = FAMILIES[0].parse(page_of(*stack("figure_title", "table")), 1).elements

    assert elements[1].caption_ids == (elements[0].id,)
    assert elements[0].native_label == "figure_title" and elements[0].kind is Kind.CAPTION


def test_a_family_can_be_sent_to_a_page_worker() -> None:
    """It is a plain value; its only rung asks the detector."""
    for family in FAMILIES:
        assert pickle.loads(pickle.dumps(family)) == family
        assert [rung.prompt for rung in family.ladder(PageFeatures(1, 1), PageRequest())] == [DETECT]
