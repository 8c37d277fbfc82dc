"""The JSON in which detections are stored."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.detection import drawn
from twopass.detection import region
from twopass.detection.region import Detection, Region


@given(st.lists(drawn.regions, max_size=6), st.lists(drawn.boxes, max_size=3))
def test_a_detection_equals_its_json(regions: list[Region], ink: list[drawn.Box]) -> None:
    """Writing what was read gives the same bytes, so that two workers store equal checkpoints."""
    text = region.to_json(Detection(regions=tuple(regions), ink=tuple(ink)))

    read = region.parse(text)

    assert region.to_json(read) == text
    assert [item.box for item in read.regions] == [item.box for item in regions]
    assert [item.native_label for item in read.regions] == [item.native_label for item in regions]


@given(st.text(max_size=60) | st.lists(st.sampled_from('{}[],:"v1regions.NaN')).map("".join))
def test_other_text_is_rejected(text: str) -> None:
    """Text that is no detection raises ValueError, and nothing else."""
    with contextlib.suppress(ValueError):
        assert isinstance(region.parse(text), Detection)


@pytest.mark.parametrize("text", ["[" * 100_000, '{"v":2,"regions":[]}', '{"v":1,"regions":[{"label":"text"}]}'])
def test_damaged_detections_are_rejected(text: str) -> None:
    """Deep nesting, a newer grammar and a region without a box are no detection."""
    with pytest.raises(ValueError):
        region.parse(text)
