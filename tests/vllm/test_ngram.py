"""Our n-gram ban equals vLLM's own, logit by logit, through every kind of change to a batch."""

from __future__ import annotations

import random

import pytest
from vllm.sampling_params import SamplingParams

from tests.vllm.ngram_batch import Batch, Changes, Request
from twopass.engines.vllm.plugin.ngram_ban import NoRepeatNGram, replay_tokens


@pytest.mark.parametrize("ahead", [False, True], ids=["in step", "ahead"])
@pytest.mark.parametrize("seed", range(40))
def test_bans_what_vllms_own_processor_bans(seed: int, ahead: bool) -> None:
    """In random batches, with tokens known at once and with placeholders that are filled in later."""
    batch = Batch(random.Random(seed), ahead)

    banned = sum(batch.step() for _ in range(200))

    assert banned


def test_greedy_requests_never_make_vllm_wait() -> None:
    """Their newest token is known on the device; only a sampled one has to be copied from it."""
    greedy, sampled = Batch(random.Random(1), ahead=True), Batch(random.Random(1), ahead=True)
    for batch, temperature in ((greedy, 0.0), (sampled, 0.2)):
        request = Request(random.Random(2))
        request.params = SamplingParams(temperature=temperature, extra_args={"ngram_size": 3, "window_size": 20})
        batch.requests = [request]
        batch.next_changes = lambda: None  # type: ignore[method-assign]
        entered = Changes([], [(0, request)], [])
        batch.ours.update_state(batch.build_update(entered, visible=True))
        batch.theirs.update_state(batch.build_update(entered, visible=False))
        for _ in range(50):
            batch.step()

    assert greedy.waited == 0
    assert sampled.waited > 30


def test_a_row_rebuilt_from_the_last_tokens_equals_one_from_all() -> None:
    """Runs are equal up to the length that an n-gram needs."""
    tokens = [random.Random(1).randrange(3) for _ in range(500)]

    newest, runs = replay_tokens(tokens, 20)
    rebuilt_newest, rebuilt_runs = replay_tokens(tokens[-25:], 20)

    assert rebuilt_newest == newest
    assert [min(run, 4) for run in rebuilt_runs] == [min(run, 4) for run in runs]


@pytest.mark.parametrize("wrong", [{"ngram_size": 0}, {"ngram_size": "30"}, {"ngram_size": 3, "window_size": -1}])
def test_refuses_invalid_ngram_parameters(wrong: dict[str, object]) -> None:
    """vLLM then refuses the request."""
    with pytest.raises(ValueError, match="ngram_size"):
        NoRepeatNGram.validate_params(SamplingParams(extra_args=wrong))
