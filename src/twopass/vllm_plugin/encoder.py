"""Views of many pictures in, features of each out: views of one size are encoded together, whosever they are.

Knows sizes and chunks. Knows nothing of what a model makes of pixels, nor where a picture's features go.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import torch

from twopass.views import Tiles

PIXELS = 1280  # encoded at once, for each token of a step: ten wholes, or 25 tiles, at 8,192 tokens


class Seen(NamedTuple):
    """One picture: the whole (base × base × 3, uint8), its tiles (count × tile × tile × 3), and how they lie."""

    whole: torch.Tensor
    tiles: torch.Tensor
    grid: Tiles


class Features(NamedTuple):
    """What a model makes of them: cells × channels of the whole, count × cells × channels of the tiles."""

    whole: torch.Tensor
    tiles: torch.Tensor
    grid: Tiles


def encoded(
    pictures: Sequence[Seen], encode: Callable[[torch.Tensor], torch.Tensor], kind: torch.dtype, most_pixels: int
) -> list[Features]:
    """`encode` takes views × 3 × side × side, normalised, and gives views × cells × channels."""
    views: dict[int, list[torch.Tensor]] = defaultdict(list)
    for seen in pictures:
        views[seen.whole.shape[0]].append(seen.whole[None])
        if seen.grid.number:
            views[seen.tiles.shape[1]].append(seen.tiles)
    made = {side: iter(_of_one_side(some, encode, kind, most_pixels)) for side, some in views.items()}
    found = []
    for seen in pictures:
        whole = next(made[seen.whole.shape[0]])
        tiles = next(made[seen.tiles.shape[1]]) if seen.grid.number else whole[:0]
        found.append(Features(whole[0], tiles, seen.grid))
    return found


def _of_one_side(
    views: Sequence[torch.Tensor], encode: Callable[[torch.Tensor], torch.Tensor], kind: torch.dtype, most_pixels: int
) -> Iterable[torch.Tensor]:
    together = torch.cat(tuple(views))
    chunks = together.split(max(most_pixels // together.shape[1] ** 2, 1))
    features = [encode(normalised(chunk, kind)) for chunk in chunks]
    return torch.cat(features).split([len(some) for some in views])


def normalised(views: torch.Tensor, kind: torch.dtype) -> torch.Tensor:
    """8 bits to -1..1, channels first, in float32 until the end as the official code has it."""
    return views.permute(0, 3, 1, 2).float().div_(255).sub_(0.5).div_(0.5).to(kind).contiguous()
