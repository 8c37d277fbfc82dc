"""Our n-gram ban equals vLLM's own, logit by logit, through every kind of change to a batch of Model Runner V1."""

from __future__ import annotations

import random

import pytest
from vllm.sampling_params import SamplingParams

from tests.vllm.ngram_batch import Batch
from twopass.engines.vllm.plugin.ngram_v1 import NoRepeatNGram


@pytest.mark.parametrize("seed", range(40))
def test_bans_what_vllms_own_processor_bans(seed: int) -> None:
    """In random batches."""
    batch = Batch(random.Random(seed))

    banned = sum(batch.step() for _ in range(200))

    assert banned


@pytest.mark.parametrize("wrong", [{"ngram_size": 0}, {"ngram_size": "30"}, {"ngram_size": 3, "window_size": -1}])
def test_refuses_invalid_ngram_parameters(wrong: dict[str, object]) -> None:
    """vLLM then refuses the request."""
    with pytest.raises(ValueError, match="ngram_size"):
        NoRepeatNGram.validate_params(SamplingParams(extra_args=wrong))
