"""vLLM's classes of models that read one region at a time, over patches in shared memory.

Our engine sends references to patches that page workers wrote; with vLLM's own inputs, as on a server, the classes are
those of vLLM. All images of a step are encoded together: vLLM does so for GLM-OCR, and encodes those of PaddleOCR-VL
one by one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Any

import torch
from transformers.image_processing_base import ImageProcessingMixin
from vllm.model_executor.models import glm4_1v, glm_ocr, paddleocr_vl
from vllm.multimodal import MULTIMODAL_REGISTRY

from twopass.engines.vllm.plugin.inputs import BUFFER, GRID, PatchesRef
from twopass.engines.vllm.plugin.shared_views import SharedBuffers

CHANNELS, LEVELS = 3, 255

Grid = tuple[int, ...]  # frames, rows and columns of patches


class Patches:
    """Patches of referenced buffers, normalised as the checkpoint's image processor does."""

    def __init__(self, vllm_config: Any) -> None:
        model = vllm_config.model_config
        processor, _ = ImageProcessingMixin.get_image_processor_dict(model.model, revision=model.revision)
        self._mean, self._std = (
            LEVELS * torch.tensor(processor[name], device="cpu", dtype=torch.float32).view(1, CHANNELS, 1, 1)
            for name in ("image_mean", "image_std")
        )
        self._side, self._dtype = int(model.hf_config.vision_config.patch_size), model.dtype
        self._buffers = SharedBuffers()

    def load(self, refs: Iterable[torch.Tensor], device: torch.device) -> torch.Tensor:
        """All patches of a step: patches × 3 × side × side."""
        found = [PatchesRef(*ref.tolist()) for ref in refs]
        loaded = self._buffers.load_patches(found, CHANNELS * self._side**2, device)
        self._mean, self._std = self._mean.to(device), self._std.to(device)
        pixels = loaded.view(-1, CHANNELS, self._side, self._side).float()
        return pixels.sub_(self._mean).div_(self._std).to(self._dtype)


@MULTIMODAL_REGISTRY.register_processor(
    glm4_1v.Glm4vMultiModalProcessor, info=glm4_1v.Glm4vProcessingInfo, dummy_inputs=glm4_1v.Glm4vDummyInputsBuilder
)
class GlmOcr(glm_ocr.GlmOcrForConditionalGeneration):
    def __init__(self, *, vllm_config: Any, prefix: str = "") -> None:
        super().__init__(vllm_config=vllm_config, prefix=prefix)
        self._patches = Patches(vllm_config)

    def embed_multimodal(self, **kwargs: Any) -> Any:
        if BUFFER not in kwargs:
            return super().embed_multimodal(**kwargs)
        pixels = self._patches.load(kwargs[BUFFER], self.visual.device)
        frames = pixels[:, :, None].expand(-1, -1, self.visual.patch_embed.temporal_patch_size, -1, -1)
        return super().embed_multimodal(pixel_values=frames.flatten(1), image_grid_thw=kwargs[GRID])


@MULTIMODAL_REGISTRY.register_processor(
    paddleocr_vl.PaddleOCRVLMultiModalProcessor,
    info=paddleocr_vl.PaddleOCRVLProcessingInfo,
    dummy_inputs=paddleocr_vl.PaddleOCRVLDummyInputsBuilder,
)
class PaddleOcrVl(paddleocr_vl.PaddleOCRVLForConditionalGeneration):
    def __init__(self, *, vllm_config: Any, prefix: str = "") -> None:
        super().__init__(vllm_config=vllm_config, prefix=prefix)
        self._patches = Patches(vllm_config)

    def embed_multimodal(self, **kwargs: Any) -> Any:
        if BUFFER not in kwargs:
            return super().embed_multimodal(**kwargs)
        grids = [tuple(grid) for grid in kwargs[GRID].tolist()]  # vLLM would flatten lists
        return self._encode(self._patches.load(kwargs[BUFFER], self.visual.device), grids)

    def _encode(self, pixels: torch.Tensor, grids: Sequence[Grid]) -> Any:
        """The embeddings of each image; attention stays within an image."""
        counts = [frames * rows * columns for frames, rows, columns in grids]
        ends = torch.tensor([0, *accumulate(counts)], dtype=torch.int32).to(pixels.device, non_blocking=True)
        features = self.visual(
            pixel_values=pixels[None], image_grid_thw=grids, position_ids=ends, cu_seqlens=ends
        )  # the class wants positions, but computes them from the grids
        return tuple(self.mlp_AR(features[0].split(counts), grids))
