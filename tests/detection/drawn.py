"""Strategies that draw regions for tests."""

from __future__ import annotations

from hypothesis import strategies as st

from twopass.detection.labels import Label
from twopass.detection.region import Region, make_region
from twopass.document import Box

fractions = st.integers(0, 40).map(lambda number: number / 40)  # a coarse grid: boxes touch, nest and repeat
boxes = st.tuples(fractions, fractions, fractions, fractions).map(lambda corners: Box.of(*corners))
labels = st.sampled_from([*map(str, Label), "unknown_label"])
scores = st.integers(0, 100).map(lambda number: number / 100)
points = st.tuples(st.floats(-0.5, 1.5), st.floats(-0.5, 1.5))


def build(label: str, box: Box, score: float, order: int | None, polygon: list[tuple[float, float]]) -> Region:
    return make_region(label, box, score, order, polygon)


regions = st.builds(build, labels, boxes, scores, st.none() | st.integers(0, 300), st.lists(points, max_size=6))
