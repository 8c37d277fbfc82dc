"""Enriching a page: keywords, summaries, context and language."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from tests.fakes.documents import MIDDLE, checkpoint, checkpoints, element, plain_table
from tests.fakes.texts import CHINESE, ENGLISH, KOREAN
from twopass.document import Analysis, Box, Checkpoint, Element, Figure, Source
from twopass.steps import enrich
from twopass.text import prose, surrounding_text


def enrich_elements(*elements: Element, language: str | None = None) -> tuple[Element, ...]:
    return enrich.page(checkpoint(1, *elements), language).elements


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (ENGLISH, {"Large language models", "document understanding"}),
        (KOREAN, {"대규모 언어 모델", "문서 이해", "비전 인코더"}),
        (CHINESE, {"大型语言模型", "文档理解", "主要方法"}),
    ],
    ids=["en", "ko", "zh"],
)
def test_a_paragraph_has_five_to_ten_keywords(text: str, expected: set[str]) -> None:
    """In each supported language the keywords are phrases of the text, without particles and function words."""
    (paragraph,) = enrich_elements(element("text", text))

    assert 5 <= len(paragraph.keywords) <= 10
    assert expected <= set(paragraph.keywords)
    assert paragraph.analysis == Analysis(source=Source.DERIVED)


@pytest.mark.parametrize("title", ["1.3 Sources and methods of measurement in the valley", "Summary", "한국어 요약"])
def test_a_heading_has_at_most_five_keywords(title: str) -> None:
    """A heading with few words has fewer keywords, and its summary is the heading itself."""
    (heading,) = enrich_elements(element("section_header", title))

    assert 1 <= len(heading.keywords) <= 5
    assert heading.summary == title


@pytest.mark.parametrize("text", [ENGLISH, KOREAN, CHINESE])
def test_a_summary_consists_of_sentences_of_the_text(text: str) -> None:
    """The sentences are copied word for word and keep their order."""
    summary = enrich_elements(element("text", text))[0].summary

    assert summary
    places = [text.index(sentence) for sentence in prose.split_sentences(summary)]
    assert places == sorted(places)


def test_the_summary_of_a_table_is_its_caption_and_headers() -> None:
    """The caption comes first, then the texts of the header cells."""
    table = element("table", id="t", table=plain_table(["Order", "Cost"], ["24-44", "2,900"], header=True))
    caption = element("caption", "Table 3: Larger works.", parent_id="t")

    assert enrich_elements(table, caption)[0].summary == "Table 3: Larger works: Order, Cost"


def test_the_summary_of_a_figure_is_its_caption_and_visible_text() -> None:
    """The keywords come from both as well."""
    picture = element("picture", id="f", caption_ids=("c",), figure=Figure(visible_text="Springs\nSand filters"))
    enriched = enrich_elements(picture, element("caption", "Figure 2: Process diagram", id="c"))[0]

    assert enriched.summary == "Figure 2: Process diagram: Springs Sand filters"
    assert {"Process diagram", "Sand filters"} & set(enriched.keywords)


def test_the_text_of_a_figure_is_summarized_once() -> None:
    """The text of a picture equals its visible text and is not repeated."""
    (figure,) = enrich_elements(element("picture", "Jan Feb", figure=Figure(visible_text="Jan Feb")))

    assert figure.summary is not None and figure.summary.count("Jan Feb") == 1


def test_what_the_model_analysed_is_kept() -> None:
    """What the model left out is added and marked by a flag."""
    by_model = Analysis(source=Source.MODEL, prompt="Parse the figure.")
    picture = element("picture", ENGLISH, analysis=by_model, summary="A diagram.")

    enriched = enrich_elements(picture)[0]

    assert (enriched.summary, enriched.analysis) == ("A diagram.", by_model)
    assert enriched.keywords and enriched.flags == ("derived_keywords",)


def test_nothing_is_derived_from_an_element_without_text() -> None:
    """The analysis then has the source `none`."""
    assert enrich_elements(element("picture"))[0].analysis.source is Source.NONE


def make_line(y: float) -> Box:
    """A box without height at this height of the page."""
    return Box(0.1, y, 0.9, y)


def test_context_is_the_text_within_a_fifth_of_the_page() -> None:
    """There is one line per element, nearest first, without tables and figures."""
    far, near, nearer = (
        element("text", "Far.", make_line(0.9)),
        element("text", "Near.", make_line(0.6)),
        element("title", "It", make_line(0.45)),
    )
    table = element("table", "no", make_line(0.51))

    picture = enrich_elements(far, near, table, nearer, element("picture", box=make_line(0.5)))[-1]

    assert picture.context == "[text_header] It\n[text_paragraph] Near."


def test_the_context_of_a_tall_table_is_the_text_around_it() -> None:
    """Distances count from edge to edge, so long paragraphs are near as well."""
    above, below = element("text", "Above.", Box(0.1, 0.05, 0.9, 0.25)), element("text", "Below.", make_line(0.92))
    far = element("text", "Far.", Box(0.1, 0.0, 0.9, 0.05))

    table = enrich_elements(far, above, element("table", box=Box(0.1, 0.3, 0.9, 0.9)), below)[2]

    assert table.context == "[text_paragraph] Below.\n[text_paragraph] Above."


def test_text_above_a_table_precedes_text_in_the_next_column() -> None:
    """Text beside a table is farther away than text directly above it."""
    beside, above = element("text", "Beside.", Box(0.55, 0.2, 0.9, 0.9)), element("text", "Above.", make_line(0.29))
    left = Box(0.1, 0.3, 0.5, 0.9)

    assert enrich_elements(beside, above, element("table", box=left))[2].context == (
        "[text_paragraph] Above.\n[text_paragraph] Beside."
    )


def test_context_is_cut_at_its_length() -> None:
    """It has at most 500 characters, and an ellipsis marks the cut in the last line."""
    texts = [element("text", "word " * 100, make_line(0.5)) for _ in range(4)]

    context = enrich_elements(element("table", box=MIDDLE), *texts)[0].context

    assert context and len(context) <= surrounding_text.CONTEXT_LENGTH and context.endswith("...")


@pytest.mark.parametrize(
    ("text", "hint", "language"),
    [
        (ENGLISH, None, "en"),
        (ENGLISH, "de", "de"),
        (ENGLISH, "ko", "en"),
        (KOREAN, "en", "ko"),
        (CHINESE, None, "zh"),
        (CHINESE, "zh-TW", "zh-TW"),
        ("文書理解の主要な手法となっています。", None, "ja"),
        ("Der Verbrauch ist im Sommer gestiegen, und die Verluste im Netz sind gesunken.", None, "de"),
        ("Весной вода чистая.", None, "ru"),
        ("12 + 3", "en", None),
        ("", "ko", None),
    ],
)
def test_the_language_follows_from_script_and_hint(text: str, hint: str | None, language: str | None) -> None:
    """The script decides, a hint decides between languages of one script, and text without letters has no language."""
    assert enrich.page(checkpoint(1, element("text", text)), hint).page.language == language


@settings(max_examples=60)
@given(checkpoints(1))
def test_any_page_can_be_enriched(checkpoint: Checkpoint) -> None:
    """Only the derived fields change, and enriching the page again changes nothing."""
    once = enrich.page(checkpoint, None)

    kept = [e.model_dump(include={"id", "kind", "text", "boxes", "table"}) for e in once.elements]
    assert kept == [e.model_dump(include={"id", "kind", "text", "boxes", "table"}) for e in checkpoint.elements]
    assert enrich.page(once, None) == once
