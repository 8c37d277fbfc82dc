"""The decoding of raw outputs. That it equals Transformers' is tested in tests/vllm_families/test_detector.py."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as drawn_arrays

from twopass.detection import region
from twopass.engines.detector import decode
from twopass.engines.detector.decode import Masks, NotFinite, RawPage
from twopass.pages.shared_pixels import Pixels

QUERIES = 6
floats = st.floats(-30, 30, width=32)


def read_no_masks(queries: np.ndarray) -> Masks:
    return np.zeros((len(queries), 20, 20), np.uint8)


def build(logits: np.ndarray, boxes: np.ndarray, order: np.ndarray) -> RawPage:
    return RawPage(logits, boxes, order, read_no_masks)


def arrays(shape: tuple[int, ...], elements: st.SearchStrategy[float] = floats) -> st.SearchStrategy[np.ndarray]:
    return drawn_arrays.arrays(np.float32, shape, elements=elements)


@given(arrays((QUERIES, 25)), st.sampled_from([0.1, 0.3, 0.5]))
def test_candidates_equal_those_of_a_plain_loop(logits: np.ndarray, threshold: float) -> None:
    """The best pairs of query and label remain, at most as many as there are queries."""
    raw = build(logits, np.zeros((QUERIES, 4), np.float32), np.zeros((QUERIES, QUERIES), np.float32))
    pairs = [(logits[query, label], query, label) for query in range(QUERIES) for label in range(25)]
    best = sorted(pairs, key=lambda pair: -pair[0])[:QUERIES]

    found = decode.pick(raw, threshold)

    scores = [1 / (1 + math.exp(-score)) for score, _, _ in best]
    certain = sum(score >= threshold + 1e-6 for score in scores)
    possible = sum(score >= threshold - 1e-6 for score in scores)
    assert certain <= len(found.queries) <= possible
    assert sorted(found.scores.tolist(), reverse=True) == pytest.approx(scores[: len(found.scores)], abs=1e-6)


@given(st.permutations(range(QUERIES)), st.floats(1, 20))
def test_the_order_is_that_of_the_pairs(permutation: list[int], strength: float) -> None:
    """Where all pairs agree on an order, the places are those of that order."""
    places = np.array(permutation)
    order = np.where(places[:, None] < places[None, :], strength, -strength).astype(np.float32)

    assert decode.rank(order).tolist() == permutation


@given(
    arrays((QUERIES, 25)),
    arrays((QUERIES, 4), st.floats(-1, 2, width=32)),
    arrays((QUERIES, QUERIES)),
    st.integers(0, 10),
)
def test_any_outputs_give_a_detection_that_can_be_stored(
    logits: np.ndarray, boxes: np.ndarray, order: np.ndarray, seed: int
) -> None:
    """Boxes outside the page and of negative size, and masks of noise, give valid JSON."""
    noise = np.random.default_rng(seed)
    raw = RawPage(logits, boxes, order, lambda queries: noise.integers(0, 2, (len(queries), 20, 20), dtype=np.uint8))
    page = Pixels(90, 60, data=bytes(90 * 60 * 3))

    text = decode.write_answer(raw, page)

    assert region.to_json(region.parse(text)) == text
    assert all(0 <= side <= 1 for item in json.loads(text)["regions"] for side in item["box"])


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_outputs_that_are_no_numbers_are_an_error(value: float) -> None:
    """An overflow must not look like an empty page."""
    logits = np.full((QUERIES, 25), value, np.float32)

    with pytest.raises(NotFinite):
        decode.find_regions(build(logits, np.zeros((QUERIES, 4), np.float32), np.eye(QUERIES)), 10, 10, 0.3)


def test_labels_that_are_not_known_are_kept() -> None:
    """A model with more classes loses nothing: their regions have a label by number."""
    logits = np.full((QUERIES, 27), -20, np.float32)
    logits[0, 26] = 5
    boxes = np.full((QUERIES, 4), 0.5, np.float32)

    found = decode.find_regions(build(logits, boxes, np.zeros((QUERIES, QUERIES), np.float32)), 100, 100, 0.3)

    assert [item.native_label for item in found] == ["class_26"]
    assert found[0].label is None
