"""PP-DocLayoutV3 in Transformers: pages to raw outputs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from torch.nn import functional

from twopass.detection import suppression
from twopass.engines.detector.decode import Indices, Masks, RawPage
from twopass.errors import Code, EngineError, WorkerDied, advise_install
from twopass.pages.shared_pixels import Pixels

ADVICE = "lower GPU_MEMORY_UTILIZATION, or set DETECTOR_DEVICE=cpu"
SIDE = 800  # pixels of the square that the model sees


class DetectorModel:
    """The model on one device. Its weights and inputs have one precision; its outputs are raised to float32."""

    def __init__(self, model: Any, device: str, dtype: torch.dtype, threshold: float = suppression.THRESHOLD) -> None:
        self._model = model.to(device=device, dtype=dtype).eval()
        self._device = device
        self._dtype = dtype
        self._threshold = threshold

    def run(self, pages: Sequence[Pixels]) -> list[RawPage]:
        """Detect on all pages in one batch; raises WorkerDied if the GPU's memory is too small for it."""
        with torch.inference_mode():
            outputs = self._ask(pages)
            # Before anything is computed from them: bfloat16 has 8 bits, too few to tell 300 places of an order apart.
            logits, boxes, order = (
                getattr(outputs, name).float().cpu().numpy() for name in ("logits", "pred_boxes", "order_logits")
            )
        return [
            RawPage(logits[page], boxes[page], order[page], partial(self._read_masks, outputs.out_masks[page]))
            for page in range(len(pages))
        ]

    def _ask(self, pages: Sequence[Pixels]) -> Any:
        try:
            return self._model(pixel_values=prepare(pages, self._device, self._dtype))
        except torch.OutOfMemoryError as error:
            torch.cuda.empty_cache()  # so that the pages can be detected one by one
            message = f"the layout detector has too little GPU memory for {len(pages)} pages: {ADVICE}"
            raise WorkerDied(Code.RENDER_MEMORY, message) from error

    def _read_masks(self, masks: torch.Tensor, queries: Indices) -> Masks:
        """Only these masks are raised to float32 and copied: all of 64 pages would be 3 GB."""
        with torch.inference_mode():
            chosen = masks[torch.from_numpy(queries).to(masks.device)].float().sigmoid() > self._threshold
            return np.asarray(chosen.to(torch.uint8).cpu().numpy())


def load(folder: Path, device: str, precision: str, compiled: bool = False) -> DetectorModel:
    """Load the weights; raises EngineError. Compiling takes about a minute, and pays off after thousands of pages."""
    if not hasattr(transformers, "PPDocLayoutV3ForObjectDetection"):
        message = f"Transformers {transformers.__version__} has no PP-DocLayoutV3: {advise_install('hf')}"
        raise EngineError(Code.PLATFORM, message)
    if device == "cuda" and not torch.cuda.is_available():
        message = "the layout detector finds no GPU that PyTorch can use"
        raise EngineError(Code.ENGINE_DEAD, f"{message}: correct the driver, or set DETECTOR_DEVICE=cpu")
    try:
        model = transformers.PPDocLayoutV3ForObjectDetection.from_pretrained(folder, local_files_only=True)
        return DetectorModel(torch.compile(model) if compiled else model, device, getattr(torch, precision))
    except torch.OutOfMemoryError as error:
        message = f"the layout detector does not fit into what is free of the GPU's memory: {ADVICE}"
        raise EngineError(Code.ENGINE_MEMORY, message) from error
    except (OSError, ValueError, ImportError, RuntimeError) as error:
        message = f"Transformers {transformers.__version__} cannot load the layout detector from {folder}: {error}"
        raise EngineError(Code.ENGINE_DEAD, f"{message}; correct DETECTOR_DIR or download it again") from error


def prepare(pages: Sequence[Pixels], device: str, dtype: torch.dtype) -> torch.Tensor:
    """The pages as the model's input: 800 × 800, from 0 to 1, equal to Transformers' image processor.

    The pixels are copied once, from shared memory to the device.
    """
    batch = torch.empty((len(pages), 3, SIDE, SIDE), dtype=dtype, device=device)
    for index, page in enumerate(pages):
        array = page.array()
        image = torch.from_numpy(array if array.flags.writeable else array.copy()).to(device).permute(2, 0, 1)[None]
        if image.device.type != "cpu":  # only the CPU resizes whole numbers
            image = image.float()
        resized = functional.interpolate(image, (SIDE, SIDE), mode="bicubic", antialias=False)[0]
        if resized.is_floating_point():
            resized = resized.round_().clamp_(0, 255)
        batch[index] = resized.float().div_(255)
    return batch
