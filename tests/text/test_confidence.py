"""From evidence to confidence."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from twopass.document import ConfidenceMethod
from twopass.text.confidence import UNCERTAIN_BELOW, Evidence, judge, judge_unknown_layer

SHARES = st.floats(0, 1)
EVIDENCE = st.builds(
    Evidence, st.integers(0, 30_000), st.none() | SHARES, st.none() | SHARES, st.booleans(), st.booleans()
)


@given(EVIDENCE)
def test_no_evidence_gives_certainty(evidence: Evidence) -> None:
    """The score is above 0 and below 1, and the flag `uncertain` follows from the documented threshold alone."""
    confidence, flags = judge(evidence)

    assert 0 < confidence.score < 1
    assert ("uncertain" in flags) == (confidence.score < UNCERTAIN_BELOW)


@given(SHARES, SHARES)
def test_better_evidence_never_lowers_the_score(one: float, other: float) -> None:
    """A higher agreement with the pixels, or a higher score of the recogniser, gives a score that is not lower."""
    low, high = sorted((one, other))

    assert judge(Evidence(9, agreement=low))[0].score <= judge(Evidence(9, agreement=high))[0].score
    assert judge(Evidence(9, recogniser=low))[0].score <= judge(Evidence(9, recogniser=high))[0].score


def test_text_that_hardly_agrees_with_the_pixels_is_unreadable() -> None:
    """A layer that shows other letters than the page gets both flags."""
    confidence, flags = judge(Evidence(100, agreement=0.2))

    assert confidence.method is ConfidenceMethod.CHECKED_LAYER
    assert flags == ("unreadable", "uncertain")


def test_a_layer_of_unknown_origin_is_judged_by_its_words() -> None:
    """Plausible words give a score below that of a visible layer; noise is unreadable."""
    sound, noise = (
        judge_unknown_layer("the meter was read on Monday " * 5),
        judge_unknown_layer("mmtZk rrnbhZ qdvj " * 9),
    )

    assert (sound[0].score, sound[1]) == (0.85, ())
    assert noise[0].score < 0.4 and noise[1] == ("unreadable", "uncertain")
    assert noise[0].method is ConfidenceMethod.UNKNOWN_LAYER
