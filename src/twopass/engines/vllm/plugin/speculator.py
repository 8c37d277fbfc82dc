"""Speculative decoding from the text that an answer probably contains, for vLLM's Model Runner V2.

vLLM builds its own n-gram speculator, which searches prompt and answer; worker.py puts this one in its place. For a
whole batch, two Triton kernels do what `drafts.find_draft` does for one request. The first gives a score to every
position of a request's text and of its own answer, in blocks, and keeps the best of each block. The second takes the
best of all blocks, and writes the tokens that follow it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import triton
import triton.language as tl
from vllm.v1.worker.gpu.spec_decode.speculator import BaseSpeculator

from twopass.engines.vllm.plugin import drafts
from twopass.engines.vllm.plugin.draft_texts import DraftTexts

BLOCK = 256  # positions of one program
DISTANCES = 1 << 14  # a score is the length of a match, its kind, and how near it is: 4, 2 and 14 bits
KINDS = 4  # 0: in the answer; 2, 3: in the text, before the cursor or not


@triton.jit
def _advance(texts, text_length, cursor, output, output_length, fresh, FRESH: tl.constexpr):
    """How many of the answer's newest tokens continue the text at the cursor."""
    number = tl.arange(0, FRESH)
    is_fresh = number < fresh
    token = tl.load(output + output_length - fresh + number, mask=is_fresh, other=-1)
    expected = tl.load(texts + cursor + number, mask=is_fresh & (cursor + number < text_length), other=-2)
    return tl.min(tl.where(is_fresh & (token == expected), FRESH, number), axis=0)


@triton.jit
def _score_kernel(
    texts, texts_stride, text_lengths, cursors, numbers, all_tokens, all_tokens_stride, prompt_lengths, total_lengths,
    slots, num_sampled, scores, scores_stride, text_blocks,
    MIN_MATCH: tl.constexpr, MAX_MATCH: tl.constexpr, BLOCK: tl.constexpr, FRESH: tl.constexpr,
    KINDS: tl.constexpr, DISTANCES: tl.constexpr,
):  # fmt: skip
    """One program for each request and block: first the blocks of its text, then those of its answer."""
    row = tl.program_id(0).to(tl.int64)
    block = tl.program_id(1)
    slot = tl.load(slots + row).to(tl.int64)
    prompt_length = tl.load(prompt_lengths + slot)
    output_length = tl.load(total_lengths + slot) - prompt_length
    output = all_tokens + slot * all_tokens_stride + prompt_length
    is_text = block < text_blocks
    text = texts + slot * texts_stride
    text_length = tl.load(text_lengths + slot)
    source, length, first = output, output_length, (block - text_blocks) * BLOCK
    if is_text:
        source, length, first = text, text_length, block * BLOCK
    best = tl.zeros((), tl.int32)
    fresh = tl.load(num_sampled + row)
    if (first < length) & (fresh > 0):
        target = output_length
        if is_text:
            cursor = tl.load(cursors + slot)
            target = cursor + _advance(text, text_length, cursor, output, output_length, fresh, FRESH)
        position = first + tl.arange(0, BLOCK)  # of the token that would follow
        inside = position < length
        matched = tl.zeros([BLOCK], tl.int32)
        still = inside
        for age in tl.static_range(MAX_MATCH):
            newest = tl.load(output + output_length - 1 - age, mask=age < output_length, other=-1)
            at = position - 1 - age
            token = tl.load(source + at, mask=still & (at >= 0), other=-2)
            both_numbers = (tl.load(numbers + newest, mask=newest >= 0, other=0) != 0) & (
                tl.load(numbers + token, mask=still & (token >= 0), other=0) != 0
            )
            still = still & ((token == newest) | (both_numbers & (is_text == 0)))
            matched += still.to(tl.int32)
        ahead = position >= target
        distance = tl.where(ahead, position - target, target - position)
        kind = tl.where(is_text, 2 + ahead.to(tl.int32), 0)
        least = tl.where(is_text, MIN_MATCH, 1)
        score = (matched * KINDS + kind) * DISTANCES + DISTANCES - 1 - distance
        best = tl.max(tl.where(inside & (matched >= least), score, 0), axis=0)
    tl.store(scores + row * scores_stride + block, best)


@triton.jit
def _draft_kernel(
    texts, texts_stride, text_lengths, cursors, numbers, all_tokens, all_tokens_stride, prompt_lengths, total_lengths,
    slots, num_sampled, scores, scores_stride, blocks, drafts,
    COUNT: tl.constexpr, COUNT_BLOCK: tl.constexpr, BLOCKS: tl.constexpr, FRESH: tl.constexpr, KINDS: tl.constexpr,
    DISTANCES: tl.constexpr,
):  # fmt: skip
    """One program for each request."""
    row = tl.program_id(0).to(tl.int64)
    fresh = tl.load(num_sampled + row)
    if fresh == 0:  # its prompt is not complete
        return
    slot = tl.load(slots + row).to(tl.int64)
    prompt_length = tl.load(prompt_lengths + slot)
    output_length = tl.load(total_lengths + slot) - prompt_length
    output = all_tokens + slot * all_tokens_stride + prompt_length
    text = texts + slot * texts_stride
    text_length = tl.load(text_lengths + slot)
    cursor = tl.load(cursors + slot)
    kept = _advance(text, text_length, cursor, output, output_length, fresh, FRESH)
    cursor += kept
    number = tl.arange(0, BLOCKS)
    score = tl.max(tl.load(scores + row * scores_stride + number, mask=number < blocks, other=0), axis=0)
    distance = DISTANCES - 1 - score % DISTANCES
    kind = (score // DISTANCES) % KINDS
    matched = score // (DISTANCES * KINDS)
    in_text = kind >= 2
    in_answer = (matched > 0) & (in_text == 0)
    start = tl.where(
        in_text, tl.where(kind == 3, cursor + distance, cursor - distance), cursor + (kept < fresh).to(tl.int32)
    )
    offset = tl.arange(0, COUNT_BLOCK)
    own_at = output_length - distance + offset
    own_token = tl.load(output + own_at, mask=in_answer & (own_at < output_length), other=-1)
    text_token = tl.load(text + start + offset, mask=(in_answer == 0) & (start + offset < text_length), other=-1)
    token = tl.where(in_answer, own_token, text_token)
    last = tl.load(output + output_length - 1)
    token = tl.where(token < 0, last, token)  # every draft needs a valid id, because vLLM looks up its embedding
    tl.store(drafts + row * COUNT + offset, token.to(tl.int64), mask=offset < COUNT)
    tl.store(cursors + slot, tl.where(in_text, start, cursor))


class TextSpeculator(BaseSpeculator):
    """Finds `count` drafts for each request of a step."""

    supports_mm_inputs = False  # it needs no embeddings
    draft_logits = None  # each draft has probability 1

    def __init__(self, states: Any, texts: DraftTexts, count: int, vocabulary: Mapping[str, int]) -> None:
        """`states` are the runner's request states."""
        device, requests = states.device, states.max_num_reqs
        self._states, self._texts, self._count = states, texts, count
        self._numbers = find_numbers(vocabulary, states.vocab_size).to(device)
        self._text_blocks = triton.cdiv(texts.tokens.shape[1], BLOCK)
        self._blocks = self._text_blocks + triton.cdiv(states.max_model_len, BLOCK)
        self._scores = torch.zeros((requests, self._blocks), dtype=torch.int32, device=device)
        self._drafts = torch.zeros((requests, count), dtype=torch.int64, device=device)
        self._has_searched = False

    def init_cudagraph_manager(self, cudagraph_mode: Any) -> None:
        pass

    def capture(self) -> None:
        pass

    def propose(
        self, input_batch: Any, attn_metadata: Any, slot_mappings: Any, last_hidden_states: Any,
        aux_hidden_states: Any, num_sampled: torch.Tensor, *_: Any, dummy_run: bool = False, **__: Any,
    ) -> torch.Tensor:  # fmt: skip
        """Requests × count token ids, valid until the next call; the last token is repeated where there are fewer.

        In a dummy run, with which vLLM measures its memory, any ids. `num_sampled` is how many tokens each request got
        in this step, at most `count` + 1. Nothing is searched for a batch without a text, whose drafts nobody verifies,
        except in the first call: vLLM makes it at the start, and the kernels are compiled then.
        """
        if dummy_run:
            return self._drafts[: input_batch.num_reqs]
        if not self._has_searched or self._texts.is_present[input_batch.idx_mapping_np].any():
            self._find(input_batch.idx_mapping, num_sampled)
            self._has_searched = True
        return self._drafts[: len(input_batch.idx_mapping)]

    def _find(self, slots: torch.Tensor, num_sampled: torch.Tensor) -> None:
        """`slots` has an entry for each request of the batch, as `num_sampled`; the states have a row for each slot."""
        states, texts, all_tokens = self._states, self._texts, self._states.all_token_ids.gpu
        inputs = (
            texts.tokens, texts.tokens.stride(0), texts.lengths, texts.cursors, self._numbers, all_tokens,
            all_tokens.stride(0), states.prompt_len.gpu, states.total_len.gpu, slots, num_sampled, self._scores,
            self._scores.stride(0),
        )  # fmt: skip
        shared = {"FRESH": triton.next_power_of_2(self._count + 1), "KINDS": KINDS, "DISTANCES": DISTANCES}
        _score_kernel[(len(slots), self._blocks)](
            *inputs,
            self._text_blocks,
            MIN_MATCH=drafts.MIN_MATCH,
            MAX_MATCH=drafts.MAX_MATCH,
            BLOCK=BLOCK,
            **shared,
        )
        _draft_kernel[(len(slots),)](
            *inputs, self._blocks, self._drafts, COUNT=self._count, COUNT_BLOCK=triton.next_power_of_2(self._count),
            BLOCKS=triton.next_power_of_2(self._blocks), **shared,
        )  # fmt: skip


def find_numbers(vocabulary: Mapping[str, int], size: int) -> torch.Tensor:
    """1 for each token that is digits only, of `size` tokens."""
    numbers = torch.zeros(size, dtype=torch.int32, device="cpu")
    numbers[[token for text, token in vocabulary.items() if text.isdecimal()]] = 1
    return numbers
