"""The n-gram ban for a whole batch as one Triton kernel: what `ngram_ban.ban_repeats` does, row for row.

A row is a token that is about to be sampled. With speculative decoding a request has a row for each draft and one
more; the tokens before a row are those that the request has, and the drafts of its earlier rows.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl


@triton.jit
def _load(output, output_length, drafts, at, inside):
    """Tokens at these positions of the output followed by the drafts; -1 where not `inside`."""
    is_draft = at >= output_length
    sampled = tl.load(output + at, mask=inside & (at >= 0) & (at < output_length), other=-1)
    draft = tl.load(drafts + at - output_length, mask=inside & is_draft, other=-1)
    return tl.where(is_draft, draft.to(tl.int32), sampled.to(tl.int32))


@triton.jit
def _ban_kernel(
    logits, logits_stride, slots, local_positions, input_ids,
    all_tokens, all_tokens_stride, prompt_lengths, total_lengths, bans, BLOCK: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """One program for each row."""
    row = tl.program_id(0).to(tl.int64)
    slot = tl.load(slots + row).to(tl.int64)
    request_ban = bans + slot * COLUMNS
    context, reach = tl.load(request_ban), tl.load(request_ban + 1)
    if reach == 0:
        return
    drafts_before = tl.load(local_positions + row)
    prompt_length = tl.load(prompt_lengths + slot)
    output_length = tl.load(total_lengths + slot) - prompt_length  # tokens that were sampled before this step
    length = output_length + drafts_before
    output = all_tokens + slot * all_tokens_stride + prompt_length
    # The first of the request's rows has its last sampled token as input, the second the first draft, and so on.
    drafts = input_ids + row - drafts_before + 1
    distance = 1 + tl.arange(0, BLOCK)
    banned_at = length - distance
    repeats = (distance <= reach) & (distance <= length - context)
    banned = _load(output, output_length, drafts, banned_at, repeats)
    age = context * 0
    candidates = tl.max(repeats.to(tl.int32), axis=0)
    while (age < context) & (candidates > 0):  # mostly none is left after a token or two
        at = length - 1 - age
        newest = _load(output, output_length, drafts, at, at >= 0)
        earlier = _load(output, output_length, drafts, at - distance, repeats)
        repeats = repeats & (earlier == newest) & (newest >= 0)
        candidates = tl.max(repeats.to(tl.int32), axis=0)
        age += 1
    repeats = repeats & (banned >= 0)
    for column in tl.static_range(2, COLUMNS):
        repeats = repeats & (banned != tl.load(request_ban + column))
    tl.store(logits + row * logits_stride + banned, float("-inf"), mask=repeats)


def ban(
    logits: torch.Tensor, slots: torch.Tensor, local_positions: torch.Tensor, input_ids: torch.Tensor,
    all_tokens: torch.Tensor, prompt_lengths: torch.Tensor, total_lengths: torch.Tensor, bans: torch.Tensor,
    max_reach: int,
) -> None:  # fmt: skip
    """Change `logits` (rows × vocabulary) in place.

    `slots`, `local_positions` and `input_ids` have an entry for each row: the request's slot, the number of drafts
    before the row, and the token that is its input. The other tensors have a row for each slot. Those of `bans` are
    context, reach (at most `max_reach`) and allowed tokens, as in `ban_repeats`.
    """
    _ban_kernel[(len(logits),)](
        logits, logits.stride(0), slots, local_positions, input_ids, all_tokens, all_tokens.stride(0), prompt_lengths,
        total_lengths, bans, BLOCK=max(triton.next_power_of_2(max_reach), 16), COLUMNS=bans.shape[1],
    )  # fmt: skip
