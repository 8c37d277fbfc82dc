"""Views of one picture in, what vLLM carries to the model out; the prompt's places are counted from the views.

Views travel as they are, 8 bits a channel: half the bytes of bfloat16, and normalised where the model is.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from vllm.inputs.engine import MultiModalInput, mm_input
from vllm.multimodal.inputs import (
    MultiModalBatchedField,
    MultiModalFieldElem,
    MultiModalFlatField,
    MultiModalKwargsItem,
    MultiModalKwargsItems,
    PlaceholderRange,
)

from twopass.views import Tiles, Views

_BATCHED = MultiModalBatchedField()
_ON_CPU = MultiModalBatchedField(keep_on_cpu=True)  # read by Python: on a GPU each read would wait for it
_FLAT = MultiModalFlatField(slices=[])


def item(views: Views, tiles: Tiles) -> MultiModalKwargsItem:
    """One picture, under the names that vLLM's own classes use."""
    return MultiModalKwargsItem(
        {
            "pixel_values": MultiModalFieldElem(data=torch.from_numpy(views.whole), field=_BATCHED),
            "images_crop": MultiModalFieldElem(data=torch.from_numpy(views.tiles), field=_FLAT),
            "images_spatial_crop": MultiModalFieldElem(data=torch.tensor(tiles), field=_ON_CPU),
        }
    )


def prompt(
    before: Sequence[int], image: int, places: int, after: Sequence[int], picture: MultiModalKwargsItem, name: str
) -> MultiModalInput:
    """A whole input for the engine: token ids with `places` for the picture between them."""
    return mm_input(
        [*before, *[image] * places, *after],
        MultiModalKwargsItems({"image": [picture]}),
        {"image": [name]},
        {"image": [PlaceholderRange(offset=len(before), length=places)]},
    )
