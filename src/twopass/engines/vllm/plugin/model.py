"""vLLM's DeepSeek-OCR classes with the mode as a choice of each request, and pictures as 8-bit views.

The stock classes know one mode, wired into a module, count the prompt's places apart from the views they
make, and stretch what the official code pads.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from transformers import BatchFeature
from vllm.model_executor.models import deepseek_ocr, deepseek_ocr2
from vllm.multimodal import MULTIMODAL_REGISTRY
from vllm.multimodal.inputs import MultiModalFieldConfig
from vllm.multimodal.parse import ImageProcessorItems, ImageSize
from vllm.multimodal.processing import PromptReplacement
from vllm.platforms import current_platform

from twopass.engines.vllm import tiling
from twopass.engines.vllm.plugin import DEFAULT_CROPS, DEFAULT_MODE, MAX_CROPS, MODE
from twopass.engines.vllm.plugin.encoder import Encode, Encoder, Features, Seen
from twopass.engines.vllm.plugin.inputs import SLAB, Place
from twopass.engines.vllm.plugin.sam import Sam
from twopass.engines.vllm.plugin.shared_views import Shared
from twopass.engines.vllm.tiling import Tiles, Vision

IMAGE = "<image>"


class _Processor(deepseek_ocr.DeepseekOCRMultiModalProcessor):
    """Pictures of a request to views; the places are counted from the views themselves."""

    vision: Vision

    def _call_hf_processor(
        self, prompt: str, mm_data: Mapping[str, Any], mm_kwargs: Mapping[str, Any], tok_kwargs: Mapping[str, Any]
    ) -> BatchFeature:
        tokens = self.info.get_tokenizer()(prompt, add_special_tokens=True)["input_ids"]
        told: dict[str, Any] = {"input_ids": torch.tensor([tokens])}
        if images := mm_data.get("images"):
            told |= self._seen([np.asarray(image.convert("RGB")) for image in images], mm_kwargs)
        return BatchFeature(told)

    def _seen(self, pictures: Sequence[tiling.Array], mm_kwargs: Mapping[str, Any]) -> dict[str, torch.Tensor]:
        mode, crops = _chosen(self.vision, mm_kwargs)
        tiles = [self.vision.tiles(p.shape[1], p.shape[0], mode, crops) for p in pictures]
        seen = [tiling.views(self.vision, p, mode, t) for p, t in zip(pictures, tiles, strict=True)]
        return {
            "pixel_values": torch.from_numpy(np.stack([one.whole for one in seen])),
            "images_crop": torch.from_numpy(np.concatenate([one.tiles for one in seen])),
            "images_spatial_crop": torch.tensor(tiles),
        }

    def _hf_processor_applies_updates(self, *args: Any, **kwargs: Any) -> bool:
        return False  # `<image>` is still one token in `input_ids`

    def _get_mm_fields_config(
        self, hf_inputs: BatchFeature, hf_processor_mm_kwargs: Mapping[str, Any]
    ) -> Mapping[str, MultiModalFieldConfig]:
        tiles = [Tiles(*map(int, one)) for one in hf_inputs.get("images_spatial_crop", ())]
        counts = torch.tensor([one.number for one in tiles], dtype=torch.long)
        return {
            "pixel_values": MultiModalFieldConfig.batched("image"),
            "images_crop": MultiModalFieldConfig.flat_from_sizes("image", counts),
            "images_spatial_crop": MultiModalFieldConfig.batched("image", keep_on_cpu=True),
        }

    def _get_prompt_updates(self, mm_items: Any, hf_processor_mm_kwargs: Mapping[str, Any], out_mm_kwargs: Any) -> Any:
        mode, crops = _chosen(self.vision, hf_processor_mm_kwargs)
        image = self.info.get_tokenizer().vocab[IMAGE]

        def places(index: int) -> list[int]:
            size = mm_items.get_items("image", ImageProcessorItems).get_image_size(index)
            return [image] * self.vision.tokens(mode, self.vision.tiles(size.width, size.height, mode, crops))

        return [PromptReplacement(modality="image", target=[image], replacement=places)]


def _chosen(vision: Vision, mm_kwargs: Mapping[str, Any]) -> tuple[str, int]:
    """The request's mode and most tiles; raises ValueError, which vLLM tells the caller."""
    mode, crops = str(mm_kwargs.get(MODE, DEFAULT_MODE)), int(mm_kwargs.get(MAX_CROPS, DEFAULT_CROPS))
    if mode not in vision.modes:
        raise ValueError(f"mode: this model takes {', '.join(sorted(vision.modes))}")
    if not tiling.LEAST_CROPS <= crops <= tiling.MOST_CROPS:
        raise ValueError(f"max_crops: {tiling.LEAST_CROPS} to {tiling.MOST_CROPS}")
    return mode, crops


class _ProcessorV1(_Processor):
    vision = tiling.DEEPSEEK_OCR


class _ProcessorV2(_Processor):
    vision = tiling.DEEPSEEK_OCR_2


class _Info(deepseek_ocr.DeepseekOCRProcessingInfo):
    """Memory is measured with the picture that takes most places: a column of tiles, not vLLM's square."""

    def get_image_size_with_most_features(self) -> ImageSize:
        return ImageSize(width=tiling.DEEPSEEK_OCR.tile, height=tiling.DEEPSEEK_OCR.tile * DEFAULT_CROPS)


class _InfoV2(deepseek_ocr2.DeepseekOCR2ProcessingInfo):
    def get_image_size_with_most_features(self) -> ImageSize:
        return ImageSize(width=tiling.DEEPSEEK_OCR_2.tile, height=tiling.DEEPSEEK_OCR_2.tile * DEFAULT_CROPS)


class _Dummies(deepseek_ocr.DeepseekOCRDummyInputsBuilder):
    """vLLM asks the stock processor what a picture's token is called: two seconds of the start, for a word."""

    def get_dummy_text(self, mm_counts: Mapping[str, int]) -> str:
        return IMAGE * mm_counts.get("image", 0)


class _DummiesV2(deepseek_ocr2.DeepseekOCR2DummyInputsBuilder):
    def get_dummy_text(self, mm_counts: Mapping[str, int]) -> str:
        return IMAGE * mm_counts.get("image", 0)


@MULTIMODAL_REGISTRY.register_processor(_ProcessorV1, info=_Info, dummy_inputs=_Dummies)
class DeepseekOcr(deepseek_ocr.DeepseekOCRForCausalLM):
    """DeepSeek-OCR over 8-bit views of any mode, several modes in one batch, encoded together."""

    def __init__(self, *, vllm_config: Any, prefix: str = "") -> None:
        super().__init__(vllm_config=vllm_config, prefix=prefix)
        self._sam, self._shared = Sam(self.sam_model), Shared()
        self._encoder = _encoder(self._features, vllm_config, graphs=True)

    def embed_multimodal(self, **kwargs: Any) -> list[torch.Tensor]:
        return [
            self._placed(made) for made in self._encoder(_pictures(kwargs, self._shared, self.view_seperator.device))
        ]

    def _features(self, pixels: torch.Tensor) -> torch.Tensor:
        sam = self._sam(pixels)
        clip = self.vision_model(pixels, sam)
        return self.projector(torch.cat((clip[:, 1:], sam.flatten(2).permute(0, 2, 1)), dim=-1))

    def _placed(self, made: Features) -> torch.Tensor:
        """Of one picture: its tiles' rows, the whole's rows, each ended by a newline, and a separator."""
        parts = [self._rows(made.whole[None], Tiles(1, 1)), self.view_seperator[None]]
        if made.grid.number:
            parts.insert(0, self._rows(made.tiles, made.grid))
        return torch.cat(parts)

    def _rows(self, features: torch.Tensor, grid: Tiles) -> torch.Tensor:
        """Tiles × cells × channels, row by row over the tiles that lie beside each other."""
        side, channels = math.isqrt(features.shape[1]), features.shape[2]
        lines = grid.down * side
        rows = features.view(grid.down, grid.across, side, side, channels).transpose(1, 2)
        rows = rows.reshape(lines, grid.across * side, channels)
        return torch.cat((rows, self.image_newline.expand(lines, 1, channels)), dim=1).flatten(0, 1)


@MULTIMODAL_REGISTRY.register_processor(_ProcessorV2, info=_InfoV2, dummy_inputs=_DummiesV2)
class DeepseekOcr2(deepseek_ocr2.DeepseekOCR2ForCausalLM):
    """DeepSeek-OCR-2 over 8-bit views, encoded together."""

    def __init__(self, *, vllm_config: Any, prefix: str = "") -> None:
        super().__init__(vllm_config=vllm_config, prefix=prefix)
        self._sam, self._shared = Sam(self.sam_model), Shared()
        self._encoder = _encoder(self._features, vllm_config, graphs=False)  # its mask is made on the CPU

    def embed_multimodal(self, **kwargs: Any) -> list[torch.Tensor]:
        made = self._encoder(_pictures(kwargs, self._shared, self.view_seperator.device))
        return [torch.cat((one.tiles.flatten(0, -2), one.whole, self.view_seperator[None])) for one in made]

    def _features(self, pixels: torch.Tensor) -> torch.Tensor:
        return self.projector(self.qwen2_model(self._sam(pixels)))


def _encoder(features: Encode, vllm_config: Any, graphs: bool) -> Encoder:
    eager = vllm_config.model_config.enforce_eager or not current_platform.is_cuda()
    tokens = vllm_config.scheduler_config.max_num_batched_tokens
    alone = vllm_config.parallel_config.tensor_parallel_size == 1  # CLIP's shares meet outside of what a graph may hold
    return Encoder(features, vllm_config.model_config.dtype, tokens, graphs and alone and not eager)


def _pictures(kwargs: Mapping[str, Any], shared: Shared, device: torch.device) -> list[Seen]:
    """From our engine as places of slabs, from vLLM's own processor as pixels; wholes are a list where sizes differ."""
    if SLAB in kwargs:
        return [shared.seen(Place(*one.tolist()), device) for one in kwargs[SLAB]]
    grids = [Tiles(*one.tolist()) for one in kwargs["images_spatial_crop"]]
    tiles = kwargs["images_crop"].split([grid.number for grid in grids])
    return [Seen(*one) for one in zip(kwargs["pixel_values"], tiles, grids, strict=True)]
