"""Keep page pixels in memory that this process shares with its page workers.

A buffer is an anonymous memfd, so the kernel frees it when its last user ends, even if that is killed. Page workers
inherit the descriptors; only buffer numbers are sent to them.
"""

from __future__ import annotations

import asyncio
import mmap
import os
from collections import deque
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import count
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

_descriptors: dict[int, int] = {}  # buffer number -> descriptor in this process


@dataclass(frozen=True)
class PixelBuffer:
    """One block of shared memory, known by its number in every process that inherited it."""

    number: int

    @property
    def descriptor(self) -> int:
        return _descriptors[self.number]

    def map(self, size: int) -> mmap.mmap:
        return mmap.mmap(self.descriptor, size)


class Frame(NamedTuple):
    """The image that a crop belongs to: its size, and the position of the crop in it, in pixels."""

    width: int
    height: int
    left: int = 0
    top: int = 0


@dataclass(frozen=True)
class Pixels:
    """RGB, 8 bits per channel, rows from the top; in a shared `buffer` or as `data`. A crop has a `frame`."""

    width: int
    height: int
    buffer: PixelBuffer | None = None
    data: bytes | None = None
    frame: Frame | None = None

    def array(self) -> npt.NDArray[np.uint8]:
        """Height × width × 3, uint8: a view of the memory, not a copy."""
        frame = self.frame or Frame(self.width, self.height)
        size = frame.width * frame.height * 3
        memory = self.buffer.map(size) if self.buffer else self.data
        assert memory is not None
        image = np.frombuffer(memory, np.uint8, size).reshape(frame.height, frame.width, 3)
        return image[frame.top : frame.top + self.height, frame.left : frame.left + self.width]

    def crop(self, x0: int, y0: int, x1: int, y1: int) -> Pixels:
        """A part of the image. It shares the memory, and is valid as long as the whole image."""
        frame = self.frame or Frame(self.width, self.height)
        shifted = frame._replace(left=frame.left + x0, top=frame.top + y0)
        return Pixels(x1 - x0, y1 - y0, self.buffer, self.data, shifted)


def inherit(pairs: Iterable[tuple[int, int]]) -> None:
    """In a page worker: register the (number, descriptor) pairs of the buffers inherited from the parent."""
    _descriptors.update(pairs)


class PixelBufferPool:
    """Lend buffers within a budget of bytes. A page larger than the budget gets its buffer when no other is lent.

    With `fixed_size`, every buffer has that many bytes and never shrinks: after a buffer is returned, an engine may
    still read the memory, so it must not be released.
    """

    _numbers = count()  # one process may own several pools, whose numbers must differ

    def __init__(self, buffer_count: int, budget: int, fixed_size: int | None = None) -> None:
        self._free = [PixelBuffer(next(PixelBufferPool._numbers)) for _ in range(buffer_count)]
        self._all = tuple(self._free)
        self._budget = budget
        self._fixed_size = fixed_size
        self._lent_bytes = 0
        self._waiting: deque[tuple[int, asyncio.Future[PixelBuffer]]] = deque()
        for buffer in self._all:
            _descriptors[buffer.number] = os.memfd_create(f"twopass-buffer-{buffer.number}")
            os.ftruncate(_descriptors[buffer.number], fixed_size or 0)

    @property
    def descriptors(self) -> dict[int, int]:
        return {buffer.number: _descriptors[buffer.number] for buffer in self._all}

    @asynccontextmanager
    async def lend(self, size: int) -> AsyncIterator[PixelBuffer]:
        """Lend a buffer of `size` bytes. Waiting callers are served in the order of their calls."""
        future: asyncio.Future[PixelBuffer] = asyncio.get_running_loop().create_future()
        self._waiting.append((size, future))
        self._serve_waiting()
        try:
            buffer = await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled():
                self._return_buffer(future.result(), size)
            else:
                self._serve_waiting()  # smaller requests may have been waiting behind this one
            raise
        try:
            if self._fixed_size is None:
                os.ftruncate(_descriptors[buffer.number], size)
            yield buffer
        finally:
            self._return_buffer(buffer, size)

    def _serve_waiting(self) -> None:
        while self._waiting and self._free:
            size, future = self._waiting[0]
            if future.cancelled():
                self._waiting.popleft()
                continue
            if self._lent_bytes and self._lent_bytes + size > self._budget:
                return
            self._waiting.popleft()
            self._lent_bytes += size
            future.set_result(self._free.pop())

    def _return_buffer(self, buffer: PixelBuffer, size: int) -> None:
        if self._fixed_size is None:
            # Release the memory: otherwise a buffer that once held a poster would keep that size.
            os.ftruncate(_descriptors[buffer.number], 0)
        self._free.append(buffer)
        self._lent_bytes -= size
        self._serve_waiting()

    def close(self) -> None:
        for buffer in self._all:
            os.close(_descriptors.pop(buffer.number))
