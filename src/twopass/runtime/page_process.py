"""One page worker as its parent sees it: send calls, limit their memory and processor time, kill it."""

from __future__ import annotations

import asyncio
import os
import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import count
from typing import Any

from twopass.errors import Code
from twopass.runtime import page_answer
from twopass.runtime.cpu_budget import CallMeter, CpuBudget
from twopass.runtime.page_answer import Answer, Header

LENGTH_BYTES = 8  # the length before each call
CHECK_INTERVAL_S = 0.05  # a page worker's memory grows by less than 200 MB in between
CHECKS_PER_TIME_CHECK = 5  # processor time is measured less often: reading it takes longer


@dataclass(eq=False)
class PageProcess:
    """A page worker. `limit_exceeded` says why it was killed: RENDER_MEMORY or RENDER_TIMEOUT."""

    process: asyncio.subprocess.Process
    limit_exceeded: Code | None = None
    calls: int = 0

    async def call(self, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Answer:
        """Send the call and read its answer; raises MalformedAnswer. Only what goes to the page worker is pickled."""
        assert self.process.stdin
        data = pickle.dumps((function, args, kwargs), pickle.HIGHEST_PROTOCOL)
        self.process.stdin.write(len(data).to_bytes(LENGTH_BYTES, "big") + data)
        await self.process.stdin.drain()
        return await self.receive(function)

    async def receive(self, function: Callable[..., Any]) -> Answer:
        """Read the answer of a call of `function`."""
        assert self.process.stdout
        header = Header.parse(await self.process.stdout.readexactly(page_answer.HEADER.size), function)
        return page_answer.read(function, header, await self.process.stdout.readexactly(header.size))

    @property
    def is_dead(self) -> bool:
        return self.process.returncode is not None

    @contextmanager
    def limit_call(
        self, memory_bytes: int, budget: CpuBudget, slow_s: float, on_slow: Callable[[], None]
    ) -> Iterator[CallMeter]:
        """Kill the page worker if it exceeds a limit during the call; run `on_slow` if the call takes over `slow_s`.

        A kernel limit on memory would only fail one allocation, which image decoders turn into a page without its
        image.
        """
        loop = asyncio.get_running_loop()
        meter, numbers, is_slow = CallMeter(budget, self._read_cpu_time), count(1), False
        timer: asyncio.TimerHandle

        def check() -> None:
            nonlocal timer, is_slow
            if self.is_dead:
                return
            if self._read_private_memory() > memory_bytes:
                self.limit_exceeded = Code.RENDER_MEMORY
            elif next(numbers) % CHECKS_PER_TIME_CHECK == 0:
                meter.update()
                if budget.is_spent:
                    self.limit_exceeded = Code.RENDER_TIMEOUT
                elif not is_slow and meter.charged_s > slow_s:
                    is_slow = True
                    on_slow()
            if self.limit_exceeded:
                self.process.kill()
            else:
                timer = loop.call_later(CHECK_INTERVAL_S, check)

        timer = loop.call_later(CHECK_INTERVAL_S, check)
        try:
            yield meter
        finally:
            timer.cancel()

    def _read_private_memory(self) -> int:
        """Bytes of memory that it does not share; 0 if it is gone."""
        try:
            # Read twenty times a second: Path.read_text would take six times as long.
            with open(f"/proc/{self.process.pid}/statm", "rb", buffering=0) as statm:
                _, resident, shared, *_ = map(int, statm.read().split())
        except OSError:
            return 0
        return (resident - shared) * os.sysconf("SC_PAGE_SIZE")

    def _read_cpu_time(self) -> float:
        """Processor seconds that it has used since its start; 0 if it is gone."""
        try:
            with open(f"/proc/{self.process.pid}/stat", "rb", buffering=0) as stat:
                fields = stat.read().rpartition(b")")[2].split()
        except OSError:
            return 0.0
        user, system = int(fields[11]), int(fields[12])
        return (user + system) / os.sysconf("SC_CLK_TCK")

    async def kill(self) -> None:
        with suppress(ProcessLookupError):
            self.process.kill()
        await self.process.wait()
