"""Our n-gram ban against vLLM's own, logit for logit, through everything a batch goes through."""

from __future__ import annotations

import random

import pytest
from vllm.sampling_params import SamplingParams

from tests.vllm.ngram_batch import Batch, Changes, Request
from twopass.engines.vllm.plugin.ngram_ban import NoRepeatNGram, followed


@pytest.mark.parametrize("ahead", [False, True], ids=["in step", "ahead"])
@pytest.mark.parametrize("seed", range(40))
def test_bans_what_vllms_own_processor_bans(seed: int, ahead: bool) -> None:
    batch = Batch(random.Random(seed), ahead)

    banned = sum(batch.step() for _ in range(200))

    assert banned


def test_greedy_requests_never_make_vllm_wait() -> None:
    """Their newest token is known on the device; only one that is drawn has to be asked for."""
    greedy, drawn = Batch(random.Random(1), ahead=True), Batch(random.Random(1), ahead=True)
    for batch, temperature in ((greedy, 0.0), (drawn, 0.2)):
        request = Request(random.Random(2))
        request.params = SamplingParams(temperature=temperature, extra_args={"ngram_size": 3, "window_size": 20})
        batch.requests = [request]
        batch._changed = lambda: None  # type: ignore[method-assign]
        entered = Changes([], [(0, request)], [])
        batch.ours.update_state(batch._update(entered, shown=True))
        batch.theirs.update_state(batch._update(entered, shown=False))
        for _ in range(50):
            batch.step()

    assert greedy.waited == 0
    assert drawn.waited > 30


def test_a_row_that_is_rebuilt_is_the_row_that_grew() -> None:
    """What a tail tells of the newest tokens is what the whole list tells, as far as an n-gram can see."""
    tokens = [random.Random(1).randrange(3) for _ in range(500)]

    newest, runs = followed(tokens, 20)
    again, shorter = followed(tokens[-25:], 20)

    assert newest == again
    assert [min(run, 4) for run in runs] == [min(run, 4) for run in shorter]


@pytest.mark.parametrize("wrong", [{"ngram_size": 0}, {"ngram_size": "30"}, {"ngram_size": 3, "window_size": -1}])
def test_refuses_what_is_no_ngram(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="ngram_size"):
        NoRepeatNGram.validate_params(SamplingParams(extra_args=wrong))
