"""The table of the acceptance run, and which outcomes count as failures."""

from __future__ import annotations

from twopass.acceptance.checks import (
    Check,
    CheckOutcome,
    count_outcomes,
    format_table,
    has_failed,
    has_passed,
    judge,
    skip,
)

PASSED = judge("b", "grid", True, "2 x 3", "2 x 3", "wrong versions")
FAILED = judge("a", "round trip", False, "'ab'", "'a b'", "use the versions of the image")
SKIPPED = skip("a", "checksums", "random weights")


def test_a_table_lists_stages_in_order_with_what_a_failure_means() -> None:
    """The meaning of a passed check is not printed."""
    assert format_table([PASSED, SKIPPED, FAILED]).splitlines() == [
        "(a) model files, tokenizer and prompts",
        "    not run  checksums",
        "             random weights",
        "    failed   round trip  'ab' (required: 'a b')",
        "             use the versions of the image",
        "(b) images: views, tokens and embeddings",
        "    passed   grid        2 x 3 (required: 2 x 3)",
    ]


def test_a_check_that_was_not_run_is_no_failure() -> None:
    """Random weights leave checks out, and the run goes on."""
    assert not has_failed([PASSED, SKIPPED])
    assert has_failed([PASSED, FAILED])
    assert has_passed([PASSED, SKIPPED])
    assert not has_passed([PASSED, FAILED])
    assert not has_passed([SKIPPED])
    assert count_outcomes([PASSED, PASSED, SKIPPED]) == "2 passed, 1 not run"
    assert Check("a", "checksums", CheckOutcome.NOT_RUN, meaning="random weights") == SKIPPED
