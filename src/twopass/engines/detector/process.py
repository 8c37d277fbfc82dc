"""The detector in a child process: PyTorch would hold Python's lock in the process that runs all jobs."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from twopass.engines import weights
from twopass.engines.detector import decode
from twopass.errors import Code, EngineError, advise_install
from twopass.pages.shared_pixels import Pixels
from twopass.runtime.page_pool import PagePool

if TYPE_CHECKING:
    from twopass.engines.detector.model import DetectorModel

BATCH_CPU_S = 300.0  # processor seconds of a batch, its start with the weights included
COMPILED_BATCH_CPU_S = 1800.0  # the same where a batch of a new size may be compiled first: one of 8 took 99 s
MEMORY_BYTES = 16 << 30  # of the child, without what is on the GPU
# Which GPUs it sees, where compiled code is kept, and that no hub is asked. Other children need none of them.
INHERITED = (
    *("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "NVIDIA_VISIBLE_DEVICES"),
    *("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", *weights.OFFLINE_ENV),
)
FAILED = ""  # the answer about a page whose outputs are no numbers
BLANK = Pixels(32, 32, data=b"\xff" * (32 * 32 * 3))


@dataclass(frozen=True)
class DetectorOptions:
    """Which weights to load, and how. `device` is cpu or cuda."""

    folder: Path
    device: str = "cpu"
    precision: str = "float32"
    compiled: bool = False


class ChildDetector:
    """Runs batches in a child process, which is replaced if it crashes. It loads the model when it first needs it."""

    def __init__(self, options: DetectorOptions) -> None:
        self._options = options
        self._pool: PagePool | None = None

    async def prepare(self, page_pool: PagePool) -> None:
        """Start the child, which imports its libraries; raises EngineError and WorkerDied.

        It has the buffers of `page_pool`.
        """
        limit_s = COMPILED_BATCH_CPU_S if self._options.compiled else BATCH_CPU_S
        self._pool = page_pool.create_sibling(1, limit_s, MEMORY_BYTES, INHERITED)
        await self._pool.open()
        await self._pool.call(prepare, self._options)

    async def open(self, page_pool: PagePool) -> None:
        """Load the model and detect on a blank page, after `prepare` if that is not done; raises the same errors.

        The first batch loads the GPU's kernels: 5 seconds on an H100, which no job's page should take.
        """
        if self._pool is None:
            await self.prepare(page_pool)
        assert self._pool
        if await self._pool.call(detect, self._options, (BLANK,)) == [FAILED]:
            message = f"the layout detector in {self._options.folder} gives no numbers; download it again"
            raise EngineError(Code.ENGINE_DEAD, message)

    async def detect(self, pages: Sequence[Pixels]) -> Sequence[str]:
        """The detection of each page as JSON; raises WorkerDied."""
        assert self._pool, "`open` comes first"
        return await self._pool.call(detect, self._options, tuple(pages))

    async def close(self) -> None:
        if self._pool:
            await self._pool.close()


def prepare(options: DetectorOptions) -> None:
    """Runs in the child: import libraries, and load the model where that takes no memory of a GPU."""
    if options.device == "cpu":
        _load(options)
    else:
        _import_model()


def detect(options: DetectorOptions, pages: Sequence[Pixels]) -> list[str]:
    """Runs in the child: the detection of each page as JSON, FAILED for a page whose outputs are no numbers."""
    model = _load(options)
    return [_answer(raw, page) for raw, page in zip(model.run(pages), pages, strict=True)]


def _answer(raw: decode.RawPage, page: Pixels) -> str:
    try:
        return decode.write_answer(raw, page)
    except decode.NotFinite:
        return FAILED


def _import_model() -> None:
    try:
        import twopass.engines.detector.model  # noqa: F401
    except ImportError as error:
        message = f"the layout detector needs {error.name}: {advise_install('hf')}"
        raise EngineError(Code.PLATFORM, message) from error


@cache
def _load(options: DetectorOptions) -> DetectorModel:
    _import_model()
    import torch

    from twopass.engines.detector import model

    if options.device == "cpu":  # page workers run with one thread each, but there is one detector
        torch.set_num_threads(len(os.sched_getaffinity(0)))
    return model.load(options.folder, options.device, options.precision, options.compiled)
