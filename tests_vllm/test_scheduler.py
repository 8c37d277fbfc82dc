"""When a free seat waits for others, and when it is taken at once."""

from __future__ import annotations

from twopass.vllm_plugin.scheduler import GROUP, PATIENCE, is_worth_waiting


def test_a_full_engine_takes_prompts_in_groups() -> None:
    free = [seats for seats in range(1, 10) if not is_worth_waiting(100, 100 - seats, waiting=50, waited=0)]

    assert free[0] == GROUP


def test_nobody_waits_for_prompts_that_are_not_there() -> None:
    assert not is_worth_waiting(100, 99, waiting=GROUP - 1, waited=0)


def test_an_engine_of_few_seats_fills_each() -> None:
    assert not any(is_worth_waiting(GROUP, taken, waiting=50, waited=0) for taken in range(GROUP))


def test_a_seat_does_not_stay_free_for_long() -> None:
    """Where others take hundreds of steps."""
    assert is_worth_waiting(100, 99, waiting=50, waited=PATIENCE - 1)
    assert not is_worth_waiting(100, 99, waiting=50, waited=PATIENCE)
