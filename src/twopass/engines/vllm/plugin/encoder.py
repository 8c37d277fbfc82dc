"""Encode the views of many images together: views of one size form a batch, whichever image they belong to.

Knows sizes and batches; knows nothing of what a model makes of pixels, nor of where an image's features go.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import torch

from twopass.models import TileGrid

PIXELS_PER_TOKEN = 1280  # encoded at once for each token of a step: 10 global views or 25 tiles at 8,192 tokens
GRAPH_BATCH_SIZES = (24, 16, 12, 8, 6, 4, 3, 2, 1)  # views in a CUDA graph; an A4 page has six tiles

Encode = Callable[[torch.Tensor], torch.Tensor]


class ViewTensors(NamedTuple):
    """One image's global view (base × base × 3, uint8), its tiles (count × tile × tile × 3), and their grid."""

    global_view: torch.Tensor
    tiles: torch.Tensor
    grid: TileGrid


class Features(NamedTuple):
    """One image's features: cells × channels of the global view, count × cells × channels of the tiles."""

    global_view: torch.Tensor
    tiles: torch.Tensor
    grid: TileGrid


class Encoder:
    """`encode` turns views × 3 × side × side, normalised, into views × cells × channels.

    `tokens` of a step limit how much is encoded at once. With `graphs`, a CUDA graph is captured once for each number
    and size of views: launching nine hundred kernels from Python takes 30 ms, three times what a GPU needs for a page.
    """

    def __init__(self, encode: Encode, dtype: torch.dtype, tokens: int, graphs: bool) -> None:
        self._encode, self._dtype, self._max_pixels = encode, dtype, PIXELS_PER_TOKEN * tokens
        self._graphs: dict[tuple[int, int], Encode] | None = {} if graphs else None
        self._pool = torch.cuda.graph_pool_handle() if graphs else None

    def __call__(self, images: Sequence[ViewTensors]) -> list[Features]:
        views: dict[int, list[torch.Tensor]] = defaultdict(list)
        for image in images:
            views[image.global_view.shape[0]].append(image.global_view[None])
            if image.grid.tile_count:
                views[image.tiles.shape[1]].append(image.tiles)
        features = {side: iter(self._encode_same_size(same_size)) for side, same_size in views.items()}
        results = []
        for image in images:
            global_view = next(features[image.global_view.shape[0]])
            tiles = next(features[image.tiles.shape[1]]) if image.grid.tile_count else global_view[:0]
            results.append(Features(global_view[0], tiles, image.grid))
        return results

    def try_largest(self, sides: Iterable[int], device: torch.device) -> None:
        """Encode as many views of each side at once as ever happens, so that the memory for it can be measured.

        With graphs, the largest ones are captured, and later ones have room in their memory.
        """
        for side in sides:
            most, *_ = self._chunk_sizes(max(self._max_pixels // side**2, 1), side)
            self._encode_chunk(torch.zeros((most, side, side, 3), dtype=torch.uint8, device=device))

    def _encode_same_size(self, views: Sequence[torch.Tensor]) -> Iterable[torch.Tensor]:
        together = torch.cat(tuple(views))
        chunks = together.split(self._chunk_sizes(len(together), together.shape[1]))
        features = torch.cat([self._encode_chunk(chunk) for chunk in chunks])
        parts: Iterable[torch.Tensor] = features.split([len(part) for part in views])
        return parts

    def _chunk_sizes(self, count: int, side: int) -> list[int]:
        """Numbers of views to encode at a time; with graphs, only the sizes that graphs have."""
        most = max(self._max_pixels // side**2, 1)
        sizes = [size for size in GRAPH_BATCH_SIZES if size <= most] if self._graphs is not None else [most]
        chunks = []
        while count:
            chunks.append(next((size for size in sizes if size <= count), count))
            count -= chunks[-1]
        return chunks

    def _encode_chunk(self, views: torch.Tensor) -> torch.Tensor:
        if self._graphs is None:
            return self._encode_eagerly(views)
        size = (len(views), views.shape[1])
        if size not in self._graphs:
            self._graphs[size] = self._capture_graph(torch.empty_like(views))
        return self._graphs[size](views)

    def _encode_eagerly(self, views: torch.Tensor) -> torch.Tensor:
        return self._encode(normalise(views, self._dtype))

    def _capture_graph(self, static_input: torch.Tensor) -> Encode:
        self._encode_eagerly(static_input)  # compiles kernels and fills tables, which is not allowed during capture
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"):
            static_output = self._encode_eagerly(static_input)

        def replay(views: torch.Tensor) -> torch.Tensor:
            static_input.copy_(views)
            graph.replay()
            return static_output.clone()  # the next replay overwrites it

        return replay


def normalise(views: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Map 8 bits to -1..1, channels first; float32 until the last operation, as in the official code."""
    return views.permute(0, 3, 1, 2).float().div_(255).sub_(0.5).div_(0.5).to(dtype).contiguous()
