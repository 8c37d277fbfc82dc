"""vLLM's classes of models that read one region at a time, over patches in shared memory.

Our engine sends references to patches that page workers wrote; with vLLM's own inputs, as on a server, the classes are
those of vLLM. The images of a step are encoded together, up to a number of patches. vLLM itself encodes all of a step
at once for GLM-OCR, and one by one for PaddleOCR-VL.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Any

import torch
from transformers.image_processing_base import ImageProcessingMixin
from vllm.model_executor.models import glm4_1v, glm_ocr, paddleocr_vl
from vllm.multimodal import MULTIMODAL_REGISTRY

from twopass.engines.vllm.plugin.shared_images import BUFFER, GRID, PatchesRef, SharedBuffers

CHANNELS, LEVELS = 3, 255
# A patch takes about 60 KB while it is encoded. vLLM's memory profile has no images in it, and a step of 32,768 image
# tokens took 8 GB of an H100 that belonged to the layout detector.
PATCHES_AT_ONCE = 16_384

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

    def load_parts(
        self, refs: Sequence[torch.Tensor], grids: torch.Tensor, device: torch.device
    ) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """The patches of a step's images and their grids, in parts of at most PATCHES_AT_ONCE."""
        for part in split_images(grids.prod(dim=1).tolist(), PATCHES_AT_ONCE):
            yield self.load(refs[part], device), grids[part]

    def load(self, refs: Iterable[torch.Tensor], device: torch.device) -> torch.Tensor:
        """The patches of these images: patches × 3 × side × side."""
        found = [PatchesRef(*ref.tolist()) for ref in refs]
        loaded = self._buffers.load_patches(found, CHANNELS * self._side**2, device)
        self._mean, self._std = self._mean.to(device), self._std.to(device)
        pixels = loaded.view(-1, CHANNELS, self._side, self._side).float()
        return pixels.sub_(self._mean).div_(self._std).to(self._dtype)


def split_images(patches: Sequence[int], limit: int) -> Iterator[slice]:
    """Consecutive images with at most `limit` patches together; a larger image is a part of its own."""
    first = total = 0
    for number, count in enumerate(patches):
        if number > first and total + count > limit:
            yield slice(first, number)
            first, total = number, 0
        total += count
    yield slice(first, len(patches))


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
        embeddings: list[torch.Tensor] = []
        for pixels, grids in self._patches.load_parts(kwargs[BUFFER], kwargs[GRID], self.visual.device):
            frames = pixels[:, :, None].expand(-1, -1, self.visual.patch_embed.temporal_patch_size, -1, -1)
            embeddings += super().embed_multimodal(pixel_values=frames.flatten(1), image_grid_thw=grids)
        return tuple(embeddings)


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
        embeddings: list[torch.Tensor] = []
        for pixels, grids in self._patches.load_parts(kwargs[BUFFER], kwargs[GRID], self.visual.device):
            embeddings += self._encode(pixels, [tuple(grid) for grid in grids.tolist()])  # vLLM would flatten lists
        return tuple(embeddings)

    def _encode(self, pixels: torch.Tensor, grids: Sequence[Grid]) -> Sequence[torch.Tensor]:
        """The embeddings of each image; attention stays within an image."""
        counts = [frames * rows * columns for frames, rows, columns in grids]
        ends = torch.tensor([0, *accumulate(counts)], dtype=torch.int32).to(pixels.device, non_blocking=True)
        # The class wants positions, but computes them from the grids.
        features = self.visual(pixel_values=pixels[None], image_grid_thw=grids, position_ids=ends, cu_seqlens=ends)
        return tuple(self.mlp_AR(features[0].split(counts), grids))
