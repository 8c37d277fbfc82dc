"""DeepSeek-OCR and Unlimited-OCR behind a layout detector: their rungs, and the first reading of each region."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.detection import drawn
from tests.fakes.scripted import detect, detect_regions
from twopass.detection import polygons, suppression
from twopass.detection.labels import Label
from twopass.detection.region import DETECT
from twopass.detection.region import parse as parse_detection
from twopass.document import Box, ConfidenceMethod, Element, Flag, Kind, Word
from twopass.errors import InvalidSetting
from twopass.families import registry
from twopass.families.detected_page import DETECTION
from twopass.families.interface import (
    ElementContext,
    Family,
    FamilyOptions,
    PageFeatures,
    PageRequest,
    Reply,
    Rung,
    Structure,
)
from twopass.pages.text_layer import TextLayer

NAMES = ["deepseek_ocr", "deepseek_ocr2", "unlimited_ocr"]
ALL_NAMES = [*NAMES, "glm_ocr", "paddleocr_vl"]
SIZE = (900, 120)  # of a crop
A4 = PageFeatures(1190, 1684)
LABELS = [Label.TEXT, Label.TABLE, Label.DISPLAY_FORMULA, Label.DOC_TITLE, Label.CHART, Label.SEAL]


def get_ladder(name: str, structure: str, request: PageRequest = PageRequest()) -> tuple[Rung, ...]:  # noqa: B008
    return registry.get_family(name, FamilyOptions(structure=structure)).ladder(A4, request)


def read_one(family: Family, label: str, *answers: str, finish: str = "stop", words: str | None = None) -> Element:
    """Ask about a page with one region until nothing more is asked, and apply the replies."""
    [element] = family.parse(detect(label), 1, DETECTION).elements
    replies: list[Reply] = []
    for answer in answers:
        question = family.next_question(ElementContext(element, False, SIZE, [element], replies))
        assert question
        replies.append(Reply(question, answer, finish, words))
    assert family.next_question(ElementContext(element, False, SIZE, [element], replies)) is None
    return family.apply_replies(element, replies)


@pytest.mark.parametrize("name", NAMES)
def test_the_detector_comes_first_or_before_the_rung_without_boxes(name: str) -> None:
    """`detector` asks it first, and then the model; `fallback` asks it when the model's own rungs have failed."""
    own = [rung.name for rung in get_ladder(name, "model")]
    first = [(rung.name, rung.prompt == DETECT) for rung in get_ladder(name, "detector")]
    fallback = [rung.name for rung in get_ladder(name, "fallback")]

    assert first == [("normal", True), ("whole", False), *((rung, False) for rung in own[1:])]
    assert fallback == [*own[:3], "regions", *own[3:]]
    assert own[3:] == (["free"] if name.startswith("deepseek") else [])


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("structure", ["detector", "fallback"])
def test_only_documents_are_detected(name: str, structure: str) -> None:
    """A prompt of the job's own is about the whole page."""
    request = PageRequest(task="custom", prompt="<image>What is it?")

    assert get_ladder(name, structure, request) == get_ladder(name, "model", request)


@pytest.mark.parametrize("name", NAMES)
def test_without_a_structure_nothing_of_a_documents_identity_changes(name: str) -> None:
    """Revision, prompts and options are those of the model alone; with one, all of them name it."""
    plain, detected = (
        registry.get_family(name),
        registry.get_family(name, FamilyOptions(structure="detector", layer_text=True)),
    )

    assert (
        plain
        == registry.FAMILIES[name]
        == registry.get_family(name, FamilyOptions(structure="model", layer_text=False))
    )
    assert "+" not in plain.revision and DETECT not in plain.prompts.values() and not plain.options
    assert detected.revision == f"{plain.revision}+pp-doclayout-v3"
    assert detected.prompts["regions"] == DETECT
    assert detected.options == {"structure": "detector", "layer_text": True}


@pytest.mark.parametrize(
    ("name", "structure"),
    [("glm_ocr", "model"), ("paddleocr_vl", "fallback"), ("layout", "detector"), ("deepseek_ocr_json", "detector")],
)
def test_a_structure_that_a_family_cannot_follow_is_refused(name: str, structure: str) -> None:
    """The error names the setting, the family and the choices."""
    with pytest.raises(InvalidSetting, match=f"STRUCTURE={structure} does not fit {name}: .*set STRUCTURE=.*auto"):
        registry.get_family(name, FamilyOptions(structure=structure))


@pytest.mark.parametrize("name", ALL_NAMES)
@pytest.mark.parametrize("layer_text", [False, True])
def test_configured_families_can_be_sent_to_page_workers(name: str, layer_text: bool) -> None:
    """So can their rungs and questions, also those with a sampling of their own."""
    family = registry.get_family(name, FamilyOptions(structure="detector", layer_text=layer_text))
    [element] = family.parse(detect("text"), 1, DETECTION).elements
    question = family.next_question(ElementContext(element, False, SIZE, [element]))
    assert question
    again = family.next_question(ElementContext(element, False, SIZE, [element], [Reply(question, "")]))

    assert pickle.loads(pickle.dumps((family, question, again))) == (family, question, again)


@pytest.mark.parametrize("name", NAMES)
def test_every_region_with_text_is_unread_until_it_is_asked_about(name: str) -> None:
    """Texts, tables and formulas have the flag; figures do not, because they are described and not read."""
    family = registry.get_family(name, FamilyOptions(structure="fallback"))

    elements = family.parse(detect(*LABELS), 1, DETECTION).elements

    assert [Flag.UNREAD_REGION in element.flags for element in elements] == [True, True, True, True, False, False]
    questions = [family.next_question(ElementContext(element, False, SIZE, elements)) for element in elements]
    assert [question is not None for question in questions[:4]] == [True] * 4


def test_a_regions_only_reading_is_not_called_an_agreement() -> None:
    """Its text is that of the reply, its flag is gone, and no confidence is invented."""
    family = registry.get_family("deepseek_ocr", FamilyOptions(structure="detector"))

    text = read_one(family, "text", "Salt came by ship.")
    table = read_one(family, "table", "<table><tr><td>a</td><td>b</td></tr></table>")
    formula = read_one(family, "display_formula", r"\[ a = b \]")
    heading = read_one(family, "paragraph_title", "## 2.1 Salt")

    assert (text.text, text.read_by, text.flags, text.confidence) == ("Salt came by ship.", 2, (), None)
    assert table.table and [cell.text for cell in table.table.cells] == ["a", "b"]
    assert formula.formula and formula.formula.latex == "a = b"
    assert (heading.kind, heading.text, heading.numbering) == (Kind.SECTION_HEADER, "2.1 Salt", "2.1")


def test_a_first_reading_is_compared_with_the_text_layer() -> None:
    """Words that the layer does not have inside the region are a doubt: the model may have invented them."""
    family = registry.get_family("unlimited_ocr", FamilyOptions(structure="detector"))

    same = read_one(family, "text", "<|det|>text [1, 1, 9, 9]<|/det|>Salt came by ship.", words="Salt came by ship")
    other = read_one(family, "text", "The quick brown fox jumps", words="Salt came by ship again")

    assert same.confidence and same.confidence.method is ConfidenceMethod.FOUND_IN_LAYER
    assert (same.confidence.score, same.flags) == (1.0, ())
    assert "not_in_text_layer" in other.flags


@pytest.mark.parametrize("name", NAMES)
def test_an_unusable_answer_about_a_region_is_asked_again_once(name: str) -> None:
    """With other sampling, because greedy sampling would give the same answer again."""
    family = registry.get_family(name, FamilyOptions(structure="detector"))
    [element] = family.parse(detect("text"), 1, DETECTION).elements
    first = family.next_question(ElementContext(element, False, SIZE, [element]))
    assert first

    second = family.next_question(ElementContext(element, False, SIZE, [element], [Reply(first, "")]))

    assert second and (second.prompt, first.sampling) == (first.prompt, {})
    assert second.sampling["temperature"] > 0
    assert read_one(family, "text", "", "Salt.").text == "Salt."
    failed = [Reply(first, "", "crash")]
    assert family.next_question(ElementContext(element, False, SIZE, [element], failed)) is None


def test_boilerplate_is_no_answer() -> None:
    """Unlimited-OCR is asked again after a sentence that stands for nothing, and the sentence is never the text."""
    family = registry.get_family("unlimited_ocr", FamilyOptions(structure="detector"))

    read = read_one(family, "text", "<|det|>text [1, 1, 9, 9]<|/det|>[Non-Text]", "[Non-Text]")

    assert read.text == "" and Flag.UNREAD_REGION in read.flags


@pytest.mark.parametrize("name", NAMES)
def test_what_can_be_kept_of_two_unusable_answers_is_kept(name: str) -> None:
    """Half a paragraph is better than none; a region without any text takes the layer's words, or stays unread."""
    family = registry.get_family(name, FamilyOptions(structure="detector"))

    cut = read_one(family, "text", "Salt came", "Salt came by", finish="length")
    looping = read_one(family, "text", *["Salt came. " + "la " * 300] * 2, finish="loop")
    layer = read_one(family, "text", "", "", words="Salt came by ship")
    nothing = read_one(family, "text", "", "")

    assert cut.text.startswith("Salt came") and cut.flags == ("cut_off",)
    assert looping.text.startswith("Salt came") and len(looping.text) < 40 and looping.flags == ("loop",)
    assert (
        layer.text == "Salt came by ship" and "from_text_layer" in layer.flags and Flag.UNREAD_REGION not in layer.flags
    )
    assert nothing.text == "" and Flag.UNREAD_REGION in nothing.flags and "pass2_empty" in nothing.flags


@pytest.mark.parametrize("name", ALL_NAMES)
def test_a_stray_word_does_not_replace_a_region(name: str) -> None:
    """The region is asked about, although the layer has a word in it."""
    family = registry.get_family(name, FamilyOptions(structure="detector", layer_text=True))
    layer = TextLayer.of([Word(Box(0.2, 0.025, 0.21, 0.03), "x")])

    (element,) = family.parse(detect("text"), 1, DETECTION, layer).elements

    assert element.text == "" and Flag.UNREAD_REGION in element.flags


@pytest.mark.parametrize("name", ["glm_ocr", "paddleocr_vl", "unlimited_ocr"])
def test_words_in_a_picture_that_is_not_read_are_kept(name: str) -> None:
    """The text layer's words are the visible text of the picture, without being asked for."""
    family = registry.get_family(name, FamilyOptions(structure="detector"))
    layer = TextLayer.of([Word(Box(0.2, 0.025, 0.4, 0.035), "Inlet")])

    (element,) = family.parse(detect("image"), 1, DETECTION, layer).elements

    assert element.figure and element.figure.visible_text == "Inlet"


@pytest.mark.parametrize("name", ALL_NAMES)
def test_regions_take_the_words_of_a_complete_layer_only_if_asked_to(name: str) -> None:
    """Then nothing is asked about them; tables are read in any case."""
    layer = TextLayer.of([Word(Box(0.2, 0.025, 0.4, 0.035), "Words"), Word(Box(0.2, 0.055, 0.4, 0.065), "12")])
    found = {}
    for layer_text in (False, True):
        family = registry.get_family(name, FamilyOptions(structure="detector", layer_text=layer_text))
        elements = family.parse(detect("text", "table"), 1, DETECTION, layer).elements
        found[layer_text] = [
            (element.text, family.next_question(ElementContext(element, False, SIZE, elements)) is not None)
            for element in elements
        ]

    assert found == {False: [("", True), ("", True)], True: [("Words", False), ("", True)]}
    assert Flag.LAYER_TEXT in elements[0].flags and Flag.LAYER_TEXT.informs


@pytest.mark.parametrize("name", ALL_NAMES)
@given(st.text(max_size=80) | st.lists(drawn.regions, max_size=8).map(detect_regions), st.booleans())
def test_every_detected_region_is_an_element_or_is_counted(name: str, text: str, layer_text: bool) -> None:
    """Any answer can be parsed; only suppressed and degenerate regions have no element, and the latter have a flag."""
    family = registry.get_family(name, FamilyOptions(structure="detector", layer_text=layer_text))

    parsed = family.parse(text, 3, DETECTION)

    assert len({element.id for element in parsed.elements}) == len(parsed.elements)
    for element in parsed.elements:
        element.model_dump_json()
    if parsed.reason is None:
        detection = parse_detection(text)
        repaired = polygons.repair(detection.regions)
        assert len(parsed.elements) == len(suppression.select(repaired.regions, detection.is_landscape))
        assert bool(repaired.dropped) is ("degenerate_regions" in parsed.flags)


@pytest.mark.parametrize("name", ALL_NAMES)
@given(
    st.sampled_from(list(Label)),
    st.lists(
        st.tuples(st.text(max_size=60), st.sampled_from(["stop", "loop", "length", "error", "crash"])), min_size=3
    ),
    st.none() | st.text(max_size=40),
)
@example(Label.TEXT, [("", "stop")] * 3, "\r")
def test_any_replies_about_a_region_can_be_applied(
    name: str, label: Label, answers: list[tuple[str, str]], words: str | None
) -> None:
    """The element can be stored, keeps its id and box, and has text or says that it has none."""
    family = registry.get_family(name, FamilyOptions(structure="detector"))
    [element] = family.parse(detect(label), 1, DETECTION).elements
    replies: list[Reply] = []
    for answer, finish in answers[:3]:
        if question := family.next_question(ElementContext(element, False, SIZE, [element], replies)):
            replies.append(Reply(question, answer, finish, words))

    read = family.apply_replies(element, replies)

    read.model_dump_json()
    assert (read.id, read.boxes) == (element.id, element.boxes)
    if Flag.UNREAD_REGION in element.flags:
        has_content = bool(read.text.strip() or read.table or (read.figure and read.figure.data))
        assert has_content is (Flag.UNREAD_REGION not in read.flags)


def test_structures_have_the_names_of_the_setting() -> None:
    """They are part of documents' ids."""
    assert list(Structure) == ["auto", "model", "detector", "fallback"]
