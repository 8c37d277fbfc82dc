"""Views of many pictures in, features of each out: views of one size are encoded together, whosever they are.

Knows sizes and chunks. Knows nothing of what a model makes of pixels, nor where a picture's features go.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import torch

from twopass.engines.vllm.tiling import Tiles

PIXELS = 1280  # encoded at once, for each token of a step: ten wholes, or 25 tiles, at 8,192 tokens
SIZES = (24, 16, 12, 8, 6, 4, 3, 2, 1)  # views in a CUDA graph; an A4 page has six tiles

Encode = Callable[[torch.Tensor], torch.Tensor]


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


class Encoder:
    """`encode` takes views × 3 × side × side, normalised, and gives views × cells × channels.

    `tokens` of a step bound how much is encoded at once. With `graphs`, launches are recorded once for each
    number and size of views: nine hundred of them take Python 30 ms, three times what a GPU needs for a page.
    """

    def __init__(self, encode: Encode, kind: torch.dtype, tokens: int, graphs: bool) -> None:
        self._encode, self._kind, self._pixels = encode, kind, PIXELS * tokens
        self._graphs: dict[tuple[int, int], Encode] | None = {} if graphs else None
        self._pool = torch.cuda.graph_pool_handle() if graphs else None

    def __call__(self, pictures: Sequence[Seen]) -> list[Features]:
        views: dict[int, list[torch.Tensor]] = defaultdict(list)
        for seen in pictures:
            views[seen.whole.shape[0]].append(seen.whole[None])
            if seen.grid.number:
                views[seen.tiles.shape[1]].append(seen.tiles)
        made = {side: iter(self._of_one_side(some)) for side, some in views.items()}
        found = []
        for seen in pictures:
            whole = next(made[seen.whole.shape[0]])
            tiles = next(made[seen.tiles.shape[1]]) if seen.grid.number else whole[:0]
            found.append(Features(whole[0], tiles, seen.grid))
        return found

    def _of_one_side(self, views: Sequence[torch.Tensor]) -> Iterable[torch.Tensor]:
        together = torch.cat(tuple(views))
        chunks = together.split(self._chunks(len(together), together.shape[1]))
        made = torch.cat([self._encoded(chunk) for chunk in chunks])
        parts: Iterable[torch.Tensor] = made.split([len(some) for some in views])
        return parts

    def _chunks(self, count: int, side: int) -> list[int]:
        """So many views at a time; the sizes of graphs where there are any."""
        most = max(self._pixels // side**2, 1)
        sizes = [size for size in SIZES if size <= most] if self._graphs is not None else [most]
        chunks = []
        while count:
            chunks.append(next((size for size in sizes if size <= count), count))
            count -= chunks[-1]
        return chunks

    def _encoded(self, views: torch.Tensor) -> torch.Tensor:
        if self._graphs is None:
            return self._plainly(views)
        size = (len(views), views.shape[1])
        if size not in self._graphs:
            self._graphs[size] = self._recorded(torch.empty_like(views))
        return self._graphs[size](views)

    def _plainly(self, views: torch.Tensor) -> torch.Tensor:
        return self._encode(normalised(views, self._kind))

    def _recorded(self, place: torch.Tensor) -> Encode:
        self._plainly(place)  # compiles kernels and fills tables, which a graph must not
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"):
            made = self._plainly(place)

        def replayed(views: torch.Tensor) -> torch.Tensor:
            place.copy_(views)
            graph.replay()
            return made.clone()  # the next replay writes there

        return replayed


def normalised(views: torch.Tensor, kind: torch.dtype) -> torch.Tensor:
    """8 bits to -1..1, channels first, in float32 until the end as the official code has it."""
    return views.permute(0, 3, 1, 2).float().div_(255).sub_(0.5).div_(0.5).to(kind).contiguous()
