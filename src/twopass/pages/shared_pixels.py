"""Page pixels in memory that this process owns and its page workers share.

A slab is an anonymous memfd: the kernel frees it with its last user, whoever is killed. Workers
inherit the descriptors and are told only numbers. Knows nothing of PDF, images or engines.
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

_descriptors: dict[int, int] = {}  # this process's slab number -> descriptor


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
    """The picture that a crop is a part of: its size, and where in it the crop begins; pixels."""

    width: int
    height: int
    left: int = 0
    top: int = 0


@dataclass(frozen=True)
class Pixels:
    """RGB, 8 bits a channel, rows from the top: in a slab, or held as bytes. A crop names its frame."""

    width: int
    height: int
    buffer: PixelBuffer | None = None
    held: bytes | None = None
    frame: Frame | None = None

    def array(self) -> npt.NDArray[np.uint8]:
        """Height × width × 3, uint8; a view where the pixels lie in a slab."""
        frame = self.frame or Frame(self.width, self.height)
        size = frame.width * frame.height * 3
        data = self.buffer.map(size) if self.buffer else self.held
        assert data is not None
        whole = np.frombuffer(data, np.uint8, size).reshape(frame.height, frame.width, 3)
        return whole[frame.top : frame.top + self.height, frame.left : frame.left + self.width]

    def crop(self, x0: int, y0: int, x1: int, y1: int) -> Pixels:
        """A part of the same memory; lives as long as the whole."""
        frame = self.frame or Frame(self.width, self.height)
        part = frame._replace(left=frame.left + x0, top=frame.top + y0)
        return Pixels(x1 - x0, y1 - y0, self.buffer, self.held, part)


def inherit(pairs: Iterable[tuple[int, int]]) -> None:
    """In a page worker: take over (number, descriptor) pairs from the parent."""
    _descriptors.update(pairs)


class PixelBufferPool:
    """Lends slabs within a byte budget; a page larger than the budget is lent when it is alone.

    `fixed` slabs all have that many bytes and are never shrunk: memory that somebody may still be reading
    after its lender gave it back must not go away under them.
    """

    _numbers = count()  # one process may own several sets

    def __init__(self, number: int, budget: int, fixed: int | None = None) -> None:
        self._free = [PixelBuffer(next(PixelBufferPool._numbers)) for _ in range(number)]
        self._all = tuple(self._free)
        self._budget = budget
        self._fixed = fixed
        self._lent = 0
        self._waiting: deque[tuple[int, asyncio.Future[PixelBuffer]]] = deque()
        for buffer in self._all:
            _descriptors[buffer.number] = os.memfd_create(f"twopass-buffer-{buffer.number}")
            os.ftruncate(_descriptors[buffer.number], fixed or 0)

    @property
    def descriptors(self) -> dict[int, int]:
        return {buffer.number: _descriptors[buffer.number] for buffer in self._all}

    @asynccontextmanager
    async def lend(self, size: int) -> AsyncIterator[PixelBuffer]:
        """A slab of `size` bytes; waits its turn, first come first served."""
        turn: asyncio.Future[PixelBuffer] = asyncio.get_running_loop().create_future()
        self._waiting.append((size, turn))
        self._grant()
        try:
            buffer = await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._take_back(turn.result(), size)
            else:
                self._grant()  # a large one that gives up stood in the way of smaller ones
            raise
        try:
            if self._fixed is None:
                os.ftruncate(_descriptors[buffer.number], size)
            yield buffer
        finally:
            self._take_back(buffer, size)

    def _grant(self) -> None:
        while self._waiting and self._free:
            size, turn = self._waiting[0]
            if turn.cancelled():
                self._waiting.popleft()
                continue
            if self._lent and self._lent + size > self._budget:
                return
            self._waiting.popleft()
            self._lent += size
            turn.set_result(self._free.pop())

    def _take_back(self, buffer: PixelBuffer, size: int) -> None:
        if self._fixed is None:
            # To nothing: a slab that once held a poster must not keep its memory.
            os.ftruncate(_descriptors[buffer.number], 0)
        self._free.append(buffer)
        self._lent -= size
        self._grant()

    def close(self) -> None:
        for buffer in self._all:
            os.close(_descriptors.pop(buffer.number))
