"""The recall guard: what a detector missed is found in the text layer, and on scans by its ink."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pymupdf
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.detection import drawn
from twopass.acceptance import drawn_pages
from twopass.detection import ink, recall
from twopass.detection.region import Region, make_region
from twopass.document import Box, Word
from twopass.pages.rendered_page import PagePointer
from twopass.pages.text_layer import NO_LAYER, TextLayer
from twopass.steps import render

SENTENCE = "The river rose by two metres in the night, and the mill at the bridge stood still until Friday. "
PARAGRAPHS = [f"{number}. {SENTENCE * 3}" for number in range(1, 9)]
PAGE = drawn_pages.prose(PARAGRAPHS, "A report about the river", size=10, columns=2)
LIKE = 0.7  # intersection over union


@pytest.fixture(scope="module")
def pdf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("recall") / "page.pdf"
    drawn_pages.save([PAGE], path)
    return path


@pytest.fixture(scope="module")
def layer(pdf: Path) -> TextLayer:
    return render.read_text_only(PagePointer(str(pdf), 1))[3]


@pytest.fixture(scope="module")
def regions(pdf: Path) -> list[Region]:
    """What a detector that misses nothing would find: MuPDF's paragraphs."""
    with pymupdf.open(pdf) as document:
        blocks = document[0].get_text("blocks")
    boxes = [Box.of(*block[:4], *drawn_pages.A4) for block in blocks]
    return [make_region("text", box, order=index) for index, box in enumerate(boxes)]


@pytest.fixture(scope="module")
def scan() -> np.ndarray:
    return drawn_pages.scan(drawn_pages.render(PAGE.write)).array()


def tilt(box: Box) -> Box:
    """The box on the scan, which is turned about its centre."""
    width, height = drawn_pages.A4
    angle = -math.radians(drawn_pages.TILT)
    turned = []
    for x, y in ((x, y) for x in (box.x0, box.x1) for y in (box.y0, box.y1)):
        across, down = (x - 0.5) * width, (y - 0.5) * height
        turned.append(
            (
                (across * math.cos(angle) - down * math.sin(angle)) / width + 0.5,
                (across * math.sin(angle) + down * math.cos(angle)) / height + 0.5,
            )
        )
    xs, ys = zip(*turned, strict=True)
    return Box.of(min(xs), min(ys), max(xs), max(ys))


def likeness(one: Box, other: Box) -> float:
    shared = one.overlap(other)
    return shared / (one.area + other.area - shared)


@pytest.mark.parametrize("lost", range(9))
def test_a_paragraph_that_the_detector_lost_is_found_in_the_layer(
    regions: list[Region], layer: TextLayer, lost: int
) -> None:
    """Each paragraph and the title, when the detector drops it, comes back as one region with all of its words."""
    assert len(regions) == 9
    kept = [region for region in regions if region is not regions[lost]]

    guarded = recall.add_missed(kept, layer, ())

    assert list(guarded[:-1]) == kept
    assert likeness(guarded[-1].box, regions[lost].box) > LIKE
    assert layer.inside([guarded[-1].box]) == layer.inside([regions[lost].box])


@pytest.mark.parametrize("lost", range(9))
def test_a_paragraph_that_the_detector_lost_is_found_on_a_scan(
    regions: list[Region], scan: np.ndarray, lost: int
) -> None:
    """On a tilted, noisy scan with a shadow, the ink of the paragraph is one region."""
    tilted = [region.model_copy(update={"box": tilt(region.box)}) for region in regions]
    kept = [region for region in tilted if region is not tilted[lost]]

    found = ink.find_missed_ink(scan, [region.box for region in kept])
    guarded = recall.add_missed(kept, NO_LAYER, found)

    assert list(guarded[:-1]) == kept
    assert likeness(guarded[-1].box, tilted[lost].box) > LIKE


def test_nothing_is_added_where_the_detector_missed_nothing(
    regions: list[Region], layer: TextLayer, scan: np.ndarray
) -> None:
    """A complete detection stays as it is, in a PDF and on its scan."""
    tilted = [tilt(region.box) for region in regions]

    assert recall.add_missed(regions, layer, ()) == tuple(regions)
    assert ink.find_missed_ink(scan, tilted) == ()


def test_a_stamp_does_not_stand_in_for_the_text_of_a_scan(regions: list[Region]) -> None:
    """The layer of a stamp says nothing about the page, so that missed ink is still added."""
    stamp = TextLayer.of([Word(Box(0.4, 0.97, 0.6, 0.98), "Received")])
    missed = Box(0.1, 0.85, 0.4, 0.9)

    guarded = recall.add_missed(regions, stamp, [missed])

    assert [region.box for region in guarded[len(regions) :]] == [Box(0.4, 0.97, 0.6, 0.98), missed]


def test_rules_frames_and_shadows_are_no_text() -> None:
    """Lines, empty frames and the dark edge of a scan give no regions."""
    page = np.full((1684, 1190, 3), 255, np.uint8)
    page[300:304, 100:1000] = 0
    page[400:403, 100:1000] = page[900:903, 100:1000] = 0
    page[400:900, 100:103] = page[400:900, 997:1000] = 0
    page[:, :14] = 30

    assert ink.find_missed_ink(page, []) == ()


def test_noise_is_no_text() -> None:
    """A page of specks gives no regions."""
    page = np.full((842, 595, 3), 255, np.uint8)
    rows, columns = np.random.default_rng(1).integers(0, (842, 595), (4000, 2)).T
    page[rows, columns] = 0

    assert ink.find_missed_ink(page, []) == ()


@given(
    st.lists(st.builds(Word, drawn.boxes, st.text(max_size=4)), max_size=12).map(TextLayer.of),
    st.lists(drawn.boxes, max_size=6),
)
def test_every_word_is_in_a_region_or_in_a_missed_paragraph(layer: TextLayer, boxes: list[Box]) -> None:
    """No word with a letter is outside all regions after the guard."""
    missed = recall.find_missed_paragraphs(layer, boxes)

    words = [word for word in layer if any(letter.isalnum() for letter in word.text)]
    assert all(recall.find_covered([word.box for word in words], [*boxes, *missed]))


@given(st.lists(drawn.boxes, max_size=8), st.lists(drawn.boxes, max_size=5))
def test_covered_words_equal_those_of_a_plain_loop(words: list[Box], boxes: list[Box]) -> None:
    """A word is covered if its centre, or more than half of it, is in a box."""

    def is_covered(word: Box) -> bool:
        x, y = word.centre
        for box in boxes:
            if box.x0 - 0.004 <= x <= box.x1 + 0.004 and box.y0 - 0.004 <= y <= box.y1 + 0.004:
                return True
            if word.overlap(box) > 0.5 * word.area:
                return True
        return False

    assert recall.find_covered(words, boxes) == [is_covered(word) for word in words]


STAMP = TextLayer.of([Word(Box(0.8, 0.02, 0.9, 0.03), "ABC-0001")])


@pytest.mark.parametrize("labels", [(), ("table",), ("image",)])
def test_a_stamp_is_no_complete_layer_where_no_text_was_detected(labels: tuple[str, ...]) -> None:
    """Ink counts, so that the paragraphs of a scan are not lost."""
    regions = [make_region(label, Box(0.1, 0.7, 0.9, 0.9), order=0) for label in labels]
    ink_box = Box(0.1, 0.2, 0.9, 0.5)

    found = recall.add_missed(regions, STAMP, [ink_box])

    assert [region.box for region in found if region.label == "text"] == [STAMP[0].box, ink_box]


def test_a_watermark_does_not_fill_a_region() -> None:
    """One word in a large region of text is no text layer of that region."""
    region = make_region("text", Box(0.1, 0.1, 0.9, 0.5), order=0)
    watermark = TextLayer.of([Word(Box(0.4, 0.3, 0.5, 0.32), "DRAFT")])

    assert not recall.is_layer_complete([region], watermark)
    assert recall.find_filled([region.box, Box(0.39, 0.29, 0.51, 0.33)], watermark) == [False, True]
