"""Our n-gram ban against vLLM's own, logit for logit, through everything a batch goes through."""

from __future__ import annotations

import random
from types import SimpleNamespace

import pytest
import torch
from vllm.model_executor.models.deepseek_ocr import NGramPerReqLogitsProcessor
from vllm.sampling_params import SamplingParams
from vllm.v1.sample.logits_processor import BatchUpdate, MoveDirectionality

from twopass.vllm_plugin.ngram import NoRepeatNGram, followed

VOCABULARY, ROWS = 6, 12  # few tokens: they repeat
CPU = torch.device("cpu")


class Batch:
    """A batch as vLLM's runner keeps it: requests in rows without gaps, lists that grow by themselves."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.outputs: list[list[int]] = []
        config = SimpleNamespace(scheduler_config=SimpleNamespace(max_num_seqs=ROWS))
        self.ours = NoRepeatNGram(config, CPU, False)
        self.theirs = NGramPerReqLogitsProcessor(config, CPU, False)

    def step(self) -> int:
        """Some leave, some enter, some rows change places, most get a token. Returns how many logits are banned."""
        update = self._changed()
        for processor in (self.ours, self.theirs):
            processor.update_state(update)
        logits = torch.rand(len(self.outputs), VOCABULARY)
        ours, theirs = self.ours.apply(logits.clone()), self.theirs.apply(logits.clone())
        assert torch.equal(ours, theirs)
        for row, output in enumerate(self.outputs):
            if self.rng.random() < 0.9:  # a prompt that is still being read gets none
                free = [token for token in range(VOCABULARY) if ours[row, token] != float("-inf")]
                output.append(self.rng.choice(free or [0]))
        return int((ours == float("-inf")).sum())

    def _changed(self) -> BatchUpdate | None:
        rng = self.rng
        removed = sorted(row for row in range(len(self.outputs)) if rng.random() < 0.03)
        added, moved = [], []
        free = list(removed)
        while rng.random() < 0.3 and len(self.outputs) - len(free) < ROWS:
            row = free.pop(0) if free else len(self.outputs)
            output = [rng.randrange(VOCABULARY) for _ in range(rng.choice((0, 0, 0, 40)))]  # one that comes again
            self.outputs[row:] = [output] if row == len(self.outputs) else [output, *self.outputs[row + 1 :]]
            added.append((row, self._params(), [1, 2], output))
        removed = free
        for row in sorted(removed, reverse=True):  # condensed: the last one takes a row that is empty
            last = len(self.outputs) - 1
            if row != last:
                moved.append((last, row, MoveDirectionality.UNIDIRECTIONAL))
                self.outputs[row] = self.outputs[last]
            self.outputs.pop()
        if len(self.outputs) > 1 and rng.random() < 0.2:
            a, b = rng.sample(range(len(self.outputs)), 2)
            moved.append((a, b, MoveDirectionality.SWAP))
            self.outputs[a], self.outputs[b] = self.outputs[b], self.outputs[a]
        if not (removed or added or moved):
            return None
        return BatchUpdate(len(self.outputs), removed, added, moved)

    def _params(self) -> SamplingParams:
        ngram = self.rng.choice((None, 1, 2, 3, 4, 5))
        if ngram is None:
            return SamplingParams()
        allowed = self.rng.choice(([], [2], [2, 3]))
        window = self.rng.choice((1, 5, 20, 60))
        return SamplingParams(extra_args={"ngram_size": ngram, "window_size": window, "whitelist_token_ids": allowed})


@pytest.mark.parametrize("seed", range(40))
def test_bans_what_vllms_own_processor_bans(seed: int) -> None:
    batch = Batch(random.Random(seed))

    banned = sum(batch.step() for _ in range(200))

    assert banned


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
