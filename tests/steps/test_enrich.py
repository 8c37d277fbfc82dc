"""What is derived from one page: keywords, summaries, context, language."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from hypothesis import given, settings

from tests.fakes.documents import MIDDLE, checkpoint, checkpoints, element, grid
from twopass.document import Analysis, Box, Checkpoint, Element, Figure, Source
from twopass.steps import enrich
from twopass.text import keywords, prose, surrounding_text

ENGLISH = (
    "Large language models have become the dominant approach for document understanding. The vision encoder compresses "
    "a page image into a few hundred tokens, and the decoder reads these tokens to produce markdown. We measure "
    "throughput in pages per second on one GPU. Image preparation takes most of the time. Page workers prepare images."
)
KOREAN = (
    "대규모 언어 모델은 문서 이해를 위한 주요 접근 방식이 되었다. "
    "비전 인코더는 페이지 이미지를 수백 개의 토큰으로 압축하고, 디코더는 이 토큰을 읽는다."
)
CHINESE = "大型语言模型已成为文档理解的主要方法。视觉编码器将页面图像压缩为数百个标记，解码器读取这些标记。"


def enriched(*elements: Element, language: str | None = None) -> tuple[Element, ...]:
    return enrich.page(checkpoint(1, *elements), language).elements


@pytest.mark.parametrize(
    ("text", "known"),
    [
        (ENGLISH, {"Large language models", "document understanding"}),
        (KOREAN, {"대규모 언어 모델", "문서 이해", "비전 인코더"}),
        (CHINESE, {"大型语言模型", "文档理解", "主要方法"}),
    ],
    ids=["en", "ko", "zh"],
)
def test_a_paragraph_has_five_to_ten_keywords(text: str, known: set[str]) -> None:
    """Phrases of its own, without particles and function words, in each language we read."""
    (paragraph,) = enriched(element("text", text))

    assert 5 <= len(paragraph.keywords) <= 10
    assert known <= set(paragraph.keywords)
    assert paragraph.analysis == Analysis(source=Source.DERIVED)


@pytest.mark.parametrize("title", ["1.3 Sources and methods of measurement in the valley", "Summary", "한국어 요약"])
def test_a_heading_has_at_most_five_keywords(title: str) -> None:
    """Fewer when it has fewer words."""
    (heading,) = enriched(element("section_header", title))

    assert 1 <= len(heading.keywords) <= 5
    assert heading.summary == title


@pytest.mark.parametrize("text", [ENGLISH, KOREAN, CHINESE])
def test_a_summary_is_made_of_the_texts_own_sentences(text: str) -> None:
    """Nothing is invented, and the order stays."""
    summary = enriched(element("text", text))[0].summary

    assert summary
    places = [text.index(sentence) for sentence in prose.sentences(summary)]
    assert places == sorted(places)


def test_a_table_is_told_by_caption_and_headers() -> None:
    """A sentence from what it is called and what its columns are."""
    table = element("table", id="t", table=grid(["Order", "Cost"], ["24-44", "2,900"], header=True))
    caption = element("caption", "Table 3: Larger works.", parent_id="t")

    assert enriched(table, caption)[0].summary == "Table 3: Larger works: Order, Cost"


def test_a_figure_is_told_by_caption_and_visible_text() -> None:
    """Both are searched for keywords as well."""
    picture = element("picture", id="f", caption_ids=("c",), figure=Figure(visible_text="Springs\nSand filters"))
    shown = enriched(picture, element("caption", "Figure 2: Process diagram", id="c"))[0]

    assert shown.summary == "Figure 2: Process diagram: Springs Sand filters"
    assert {"Process diagram", "Sand filters"} & set(shown.keywords)


def test_a_figures_text_is_told_once() -> None:
    """A picture whose text is its visible text does not say it twice."""
    (told,) = enriched(element("picture", "Jan Feb", figure=Figure(visible_text="Jan Feb")))

    assert told.summary is not None and told.summary.count("Jan Feb") == 1


def test_what_the_model_analysed_stays() -> None:
    """What it left out is added, and told by a flag."""
    by_model = Analysis(source=Source.MODEL, prompt="Parse the figure.")
    picture = element("picture", ENGLISH, analysis=by_model, summary="A diagram.")

    shown = enriched(picture)[0]

    assert (shown.summary, shown.analysis) == ("A diagram.", by_model)
    assert shown.keywords and shown.flags == ("derived_keywords",)


def test_nothing_is_derived_from_nothing() -> None:
    """An element without words says so."""
    assert enriched(element("picture"))[0].analysis.source is Source.NONE


def at(y: float) -> Box:
    return Box(0.1, y, 0.9, y)


def test_context_is_the_nearest_text_first_within_a_fifth_of_the_page() -> None:
    """One line each, tables and figures left out."""
    far, near, nearer = (
        element("text", "Far.", at(0.9)),
        element("text", "Near.", at(0.6)),
        element("title", "It", at(0.45)),
    )
    table = element("table", "no", at(0.51))

    picture = enriched(far, near, table, nearer, element("picture", box=at(0.5)))[-1]

    assert picture.context == "[text_header] It\n[text_paragraph] Near."


def test_context_of_a_tall_table_is_what_stands_around_it() -> None:
    """Measured from its edges to theirs: long paragraphs are near as well."""
    above, below = element("text", "Above.", Box(0.1, 0.05, 0.9, 0.25)), element("text", "Below.", at(0.92))
    far = element("text", "Far.", Box(0.1, 0.0, 0.9, 0.05))

    table = enriched(far, above, element("table", box=Box(0.1, 0.3, 0.9, 0.9)), below)[2]

    assert table.context == "[text_paragraph] Below.\n[text_paragraph] Above."


def test_context_of_a_column_comes_before_its_neighbours() -> None:
    """What stands beside a table is farther than what stands above it."""
    beside, above = element("text", "Beside.", Box(0.55, 0.2, 0.9, 0.9)), element("text", "Above.", at(0.29))
    left = Box(0.1, 0.3, 0.5, 0.9)

    assert enriched(beside, above, element("table", box=left))[2].context == (
        "[text_paragraph] Above.\n[text_paragraph] Beside."
    )


def test_context_is_cut_at_its_length() -> None:
    """At most 500 characters, the last line cut with dots."""
    texts = [element("text", "word " * 100, at(0.5)) for _ in range(4)]

    context = enriched(element("table", box=MIDDLE), *texts)[0].context

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
def test_the_language_is_told_by_script_and_hint(text: str, hint: str | None, language: str | None) -> None:
    """The script decides; a hint decides between languages of one script; nothing has no language."""
    assert enrich.page(checkpoint(1, element("text", text)), hint).page.language == language


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "See Fig. 3 for Dr. Keller. It is 3.5 m long. Why?",
            ["See Fig. 3 for Dr. Keller.", "It is 3.5 m long.", "Why?"],
        ),
        ("水很清。“真的？”他问。", ["水很清。", "“真的？”", "他问。"]),
        ("물이 맑다. 정말이다.", ["물이 맑다.", "정말이다."]),
    ],
)
def test_sentences_end_where_readers_end_them(text: str, told: list[str]) -> None:
    """Not after abbreviations, and without blanks in Chinese."""
    assert prose.sentences(text) == told


@settings(max_examples=60)
@given(checkpoints(1))
def test_any_page_can_be_enriched(read: Checkpoint) -> None:
    """Nothing but the derived fields changes, and a second time changes nothing."""
    once = enrich.page(read, None)

    kept = [e.model_dump(include={"id", "kind", "text", "boxes", "table"}) for e in once.elements]
    assert kept == [e.model_dump(include={"id", "kind", "text", "boxes", "table"}) for e in read.elements]
    assert enrich.page(once, None) == once


def test_keywords_do_not_depend_on_the_process() -> None:
    """Two workers write equal bytes: no set order, no hash seed."""
    texts = [ENGLISH, KOREAN, CHINESE]
    code = f"from twopass.text import keywords as k; print([k.extract(t, None, 10) for t in {texts!r}])"

    told = {
        subprocess.run(
            [sys.executable, "-c", code], env=os.environ | {"PYTHONHASHSEED": seed}, capture_output=True, check=True
        ).stdout
        for seed in ("1", "2")
    }

    assert len(told) == 1 and told.pop().strip()


def test_a_long_element_costs_no_more_than_its_beginning() -> None:
    """A dense table does not take its page worker's time."""
    assert keywords.extract("spring water " * 100_000, "en", 5) == keywords.extract("spring water " * 1000, "en", 5)
