"""vLLM's model classes, with the mode as a parameter of each request and images as 8-bit views.

The stock classes support one mode, hard-coded in a module, compute the number of image tokens separately from the
views they make, and stretch what the official code pads.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from transformers import BatchFeature
from vllm.model_executor.models import deepseek_ocr, deepseek_ocr2, unlimited_ocr
from vllm.multimodal import MULTIMODAL_REGISTRY
from vllm.multimodal.inputs import MultiModalFieldConfig
from vllm.multimodal.parse import ImageProcessorItems, ImageSize
from vllm.multimodal.processing import PromptReplacement
from vllm.platforms import current_platform

from twopass.engines.vllm import tiling
from twopass.engines.vllm.plugin import drafts
from twopass.engines.vllm.plugin.clip import Clip
from twopass.engines.vllm.plugin.encoder import Encode, Encoder, Features, ViewTensors
from twopass.engines.vllm.plugin.sam import Sam
from twopass.engines.vllm.plugin.shared_images import BUFFER, SharedBuffers, ViewsRef
from twopass.models import MIN_TILES, MODELS, TileGrid, VisionSpec

IMAGE = "<image>"
MODE_KEY, MAX_CROPS_KEY = "mode", "max_crops"  # keys that a request may set in mm_processor_kwargs
DEFAULT_MODE = "gundam"


class _Processor(deepseek_ocr.DeepseekOCRMultiModalProcessor):
    """Make the views of a request's images; the image tokens are counted with the same specification."""

    vision_spec: VisionSpec

    def _call_hf_processor(self, hf_data: Mapping[str, Any], hf_kwargs: Mapping[str, Any]) -> BatchFeature:
        images = [np.asarray(image.convert("RGB")) for image in hf_data["images"]]
        return BatchFeature(self._make_views(images, hf_kwargs))

    def _make_views(self, images: Sequence[tiling.Array], mm_kwargs: Mapping[str, Any]) -> dict[str, torch.Tensor]:
        mode, max_crops = _parse_options(self.vision_spec, mm_kwargs)
        grids = [self.vision_spec.choose_grid(image.shape[1], image.shape[0], mode, max_crops) for image in images]
        pairs = zip(images, grids, strict=True)
        views = [tiling.make_views(self.vision_spec, image, mode, grid) for image, grid in pairs]
        return {
            "pixel_values": torch.from_numpy(np.stack([one.global_view for one in views])),
            "images_crop": torch.from_numpy(np.concatenate([one.tiles for one in views])),
            "images_spatial_crop": torch.tensor(grids),
        }

    def _get_mm_fields_config(
        self, hf_inputs: BatchFeature, hf_processor_mm_kwargs: Mapping[str, Any]
    ) -> Mapping[str, MultiModalFieldConfig]:
        grids = [TileGrid(*map(int, pair)) for pair in hf_inputs.get("images_spatial_crop", ())]
        counts = torch.tensor([grid.tile_count for grid in grids], dtype=torch.long)
        return {
            "pixel_values": MultiModalFieldConfig.batched("image"),
            "images_crop": MultiModalFieldConfig.flat_from_sizes("image", counts),
            "images_spatial_crop": MultiModalFieldConfig.batched("image", keep_on_cpu=True),
        }

    def _get_prompt_updates(self, mm_items: Any, hf_processor_mm_kwargs: Mapping[str, Any], out_mm_kwargs: Any) -> Any:
        mode, max_crops = _parse_options(self.vision_spec, hf_processor_mm_kwargs)
        image_token = self.info.get_tokenizer().vocab[IMAGE]

        def image_tokens(index: int) -> list[int]:
            size = mm_items.get_items("image", ImageProcessorItems).get_image_size(index)
            grid = self.vision_spec.choose_grid(size.width, size.height, mode, max_crops)
            return [image_token] * self.vision_spec.count_tokens(mode, grid)

        return [PromptReplacement(modality="image", target=[image_token], replacement=image_tokens)]


def _parse_options(spec: VisionSpec, mm_kwargs: Mapping[str, Any]) -> tuple[str, int]:
    """The request's mode and largest number of tiles; raises ValueError, which vLLM returns to the caller."""
    mode, max_crops = str(mm_kwargs.get(MODE_KEY, DEFAULT_MODE)), int(mm_kwargs.get(MAX_CROPS_KEY, spec.default_crops))
    if mode not in spec.modes:
        raise ValueError(f"mode: this model takes {', '.join(sorted(spec.modes))}")
    if not MIN_TILES <= max_crops <= spec.most_crops:
        raise ValueError(f"max_crops: {MIN_TILES} to {spec.most_crops}")
    return mode, max_crops


_DEEPSEEK_OCR, _DEEPSEEK_OCR_2, _UNLIMITED_OCR = (
    MODELS[name].vision for name in ("deepseek_ocr", "deepseek_ocr2", "unlimited_ocr")
)


class _Ocr1Processor(_Processor):
    vision_spec = _DEEPSEEK_OCR


class _Ocr2Processor(_Processor):
    vision_spec = _DEEPSEEK_OCR_2


class _UnlimitedProcessor(_Processor):
    vision_spec = replace(_UNLIMITED_OCR, most_crops=_UNLIMITED_OCR.official_crops)


class _Ocr1Info(deepseek_ocr.DeepseekOCRProcessingInfo):
    """Measure memory with the image that takes the most tokens: a column of tiles, not vLLM's square."""

    def get_image_size_with_most_features(self) -> ImageSize:
        return _column_of_tiles(_DEEPSEEK_OCR)


class _Ocr2Info(deepseek_ocr2.DeepseekOCR2ProcessingInfo):
    def get_image_size_with_most_features(self) -> ImageSize:
        return _column_of_tiles(_DEEPSEEK_OCR_2)


class _UnlimitedInfo(unlimited_ocr.UnlimitedOCRProcessingInfo):
    def get_image_size_with_most_features(self) -> ImageSize:
        return _column_of_tiles(_UNLIMITED_OCR)


def _column_of_tiles(spec: VisionSpec) -> ImageSize:
    return ImageSize(width=spec.tile_size, height=spec.tile_size * spec.default_crops)


class _DummyInputs(deepseek_ocr.DeepseekOCRDummyInputsBuilder):
    """Name the image token; the stock class loads a processor to find it, which takes two seconds of the start."""

    def get_dummy_text(self, mm_counts: Mapping[str, int]) -> str:
        return IMAGE * mm_counts.get("image", 0)


class _Ocr2DummyInputs(deepseek_ocr2.DeepseekOCR2DummyInputsBuilder):
    def get_dummy_text(self, mm_counts: Mapping[str, int]) -> str:
        return IMAGE * mm_counts.get("image", 0)


@MULTIMODAL_REGISTRY.register_processor(_Ocr1Processor, info=_Ocr1Info, dummy_inputs=_DummyInputs)
class DeepseekOcr(deepseek_ocr.DeepseekOCRForCausalLM):
    """DeepSeek-OCR over 8-bit views of any mode; a batch may mix modes, and its views are encoded together."""

    def __init__(self, *, vllm_config: Any, prefix: str = "") -> None:
        super().__init__(vllm_config=vllm_config, prefix=prefix)
        self._sam, self._clip, self._shared_buffers = Sam(self.sam_model), Clip(self.vision_model), SharedBuffers()
        self._encoder = _build_encoder(self._extract_features, vllm_config, graphs=True)

    def embed_multimodal(self, **kwargs: Any) -> list[torch.Tensor]:
        views = _collect_views(kwargs, self._shared_buffers, self.view_seperator.device)
        return [self._arrange(features) for features in self._encoder(views)]

    def try_encoder(self) -> None:
        """Take the memory of the largest batches of tiles and of pages, to be measured."""
        self._encoder.try_largest(_list_sides(_DEEPSEEK_OCR), self.view_seperator.device)

    def _extract_features(self, pixels: torch.Tensor) -> torch.Tensor:
        sam = self._sam(pixels)
        clip = self._clip(pixels, sam)
        return self.projector(torch.cat((clip[:, 1:], sam.flatten(2).permute(0, 2, 1)), dim=-1))

    def _arrange(self, features: Features) -> torch.Tensor:
        """One image's embeddings: rows of the tiles, rows of the global view, each with a newline, and a separator."""
        parts = [self._arrange_rows(features.global_view[None], TileGrid(1, 1)), self.view_seperator[None]]
        if features.grid.tile_count:
            parts.insert(0, self._arrange_rows(features.tiles, features.grid))
        return torch.cat(parts)

    def _arrange_rows(self, features: torch.Tensor, grid: TileGrid) -> torch.Tensor:
        """Tiles × cells × channels to rows that run across neighbouring tiles, each ended by a newline."""
        side, channels = math.isqrt(features.shape[1]), features.shape[2]
        row_count = grid.rows * side
        rows = features.view(grid.rows, grid.columns, side, side, channels).transpose(1, 2)
        rows = rows.reshape(row_count, grid.columns * side, channels)
        return torch.cat((rows, self.image_newline.expand(row_count, 1, channels)), dim=1).flatten(0, 1)


@MULTIMODAL_REGISTRY.register_processor(_UnlimitedProcessor, info=_UnlimitedInfo, dummy_inputs=_DummyInputs)
class UnlimitedOcr(DeepseekOcr, unlimited_ocr.UnlimitedOCRForCausalLM):
    """Unlimited-OCR: DeepSeek-OCR's encoder, up to 32 tiles, and another language model."""


@MULTIMODAL_REGISTRY.register_processor(_Ocr2Processor, info=_Ocr2Info, dummy_inputs=_Ocr2DummyInputs)
class DeepseekOcr2(deepseek_ocr2.DeepseekOCR2ForCausalLM):
    """DeepSeek-OCR-2 over 8-bit views, encoded together."""

    def __init__(self, *, vllm_config: Any, prefix: str = "") -> None:
        super().__init__(vllm_config=vllm_config, prefix=prefix)
        self._sam, self._shared_buffers = Sam(self.sam_model), SharedBuffers()
        # CUDA graphs have not been tried: up to 0.26, vLLM made this model's attention mask on the CPU.
        self._encoder = _build_encoder(self._extract_features, vllm_config, graphs=False)

    def embed_multimodal(self, **kwargs: Any) -> list[torch.Tensor]:
        views = _collect_views(kwargs, self._shared_buffers, self.view_seperator.device)
        return [self._arrange(features) for features in self._encoder(views)]

    def try_encoder(self) -> None:
        """Take the memory of the largest batches of tiles and of pages, to be measured."""
        self._encoder.try_largest(_list_sides(_DEEPSEEK_OCR_2), self.view_seperator.device)

    def _arrange(self, features: Features) -> torch.Tensor:
        """One image's embeddings: those of the tiles, of the global view, and a separator."""
        return torch.cat((features.tiles.flatten(0, -2), features.global_view, self.view_seperator[None]))

    def _extract_features(self, pixels: torch.Tensor) -> torch.Tensor:
        return self.projector(self.qwen2_model(self._sam(pixels)))


def _build_encoder(encode: Encode, vllm_config: Any, graphs: bool) -> Encoder:
    eager = vllm_config.model_config.enforce_eager or not current_platform.is_cuda()
    scheduler = vllm_config.scheduler_config
    drafted = drafts.count_in_step(vllm_config.num_speculative_tokens, scheduler.max_num_seqs)
    tokens = scheduler.max_num_batched_tokens - drafted
    # With tensor parallelism, CLIP communicates between GPUs, which a CUDA graph must not contain.
    is_single_gpu = vllm_config.parallel_config.tensor_parallel_size == 1
    return Encoder(encode, vllm_config.model_config.dtype, tokens, graphs and is_single_gpu and not eager)


def _list_sides(spec: VisionSpec) -> set[int]:
    """The sides of a tiled page's views; other modes have as many pixels in a batch."""
    return {spec.tile_size, spec.modes[DEFAULT_MODE].base_size}


def _collect_views(kwargs: Mapping[str, Any], shared_buffers: SharedBuffers, device: torch.device) -> list[ViewTensors]:
    """Our engine sends references to buffers, vLLM's own processor pixels; global views of mixed sizes are a list."""
    if BUFFER in kwargs:
        return [shared_buffers.load_views(ViewsRef(*ref.tolist()), device) for ref in kwargs[BUFFER]]
    grids = [TileGrid(*grid.tolist()) for grid in kwargs["images_spatial_crop"]]
    tiles = kwargs["images_crop"].split([grid.tile_count for grid in grids])
    return [ViewTensors(*image) for image in zip(kwargs["pixel_values"], tiles, grids, strict=True)]
