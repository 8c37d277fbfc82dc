"""A page's text layer: packed for the way between processes, and still the words it was made of."""

from __future__ import annotations

import pickle

from hypothesis import given
from hypothesis import strategies as st

from twopass.document import Box, Word
from twopass.pages.text_layer import NO_LAYER, TextLayer

SHARES = st.floats(0, 1)
BOXES = st.builds(Box.of, SHARES, SHARES, SHARES, SHARES)
WORDS = st.lists(st.builds(Word, BOXES, st.text(min_size=1)), max_size=12)


@given(WORDS)
def test_it_is_the_words_it_was_made_of(words: list[Word]) -> None:
    """Before and after the way to another process, one by one and as a whole; boxes to the last bit."""
    layer = TextLayer.of(words)

    for told in (layer, pickle.loads(pickle.dumps(layer))):
        assert list(told) == words == [told[n] for n in range(len(told))]
        assert list(told[1:3]) == words[1:3]
        assert bool(told) == bool(words)
        assert told == layer and hash(told) == hash(layer)
        assert (told == TextLayer.of(words[1:])) == (not words)


@given(WORDS, st.lists(BOXES, max_size=3), st.sampled_from((0.0, 0.01, 0.5)))
def test_words_lie_where_their_middle_lies(words: list[Word], boxes: list[Box], margin: float) -> None:
    """Each once, in the layer's order, though it stand in two boxes."""

    def holds(box: Box, x: float, y: float) -> bool:
        return box.x0 - margin <= x <= box.x1 + margin and box.y0 - margin <= y <= box.y1 + margin

    held = [word.text for word in words if any(holds(box, *word.box.centre) for box in boxes)]

    assert TextLayer.of(words).inside(boxes, margin) == " ".join(held)


def test_no_layer_has_no_words() -> None:
    assert not NO_LAYER and NO_LAYER.inside([Box(0, 0, 1, 1)]) == ""
