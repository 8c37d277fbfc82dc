"""Several engines, each with GPUs of its own, as one engine: each prompt goes to the one with the most room."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, contextmanager
from functools import partial

import structlog

from twopass.engines.interface import Completion, Engine, EngineDied, GroupMember, Incident, Prompt
from twopass.errors import Code, EngineError
from twopass.runtime import retry, task_group
from twopass.runtime.engine_status import EngineStatus
from twopass.runtime.page_pool import PagePool

log = structlog.get_logger()


class EngineGroup(Engine):
    """Engines of one model with equal settings. The group is gone when all of them are.

    A prompt whose engine dies moves to another one, while the dead one starts again. After two deaths it runs alone in
    its engine, and after the third it gets finish_reason crash: an image that kills engines kills at most three. All
    prompts that have to run alone go to the same engine, so that the others go on.
    """

    def __init__(self, members: Sequence[GroupMember]) -> None:
        first = members[0]
        self.kind, self.precision, self.family = first.kind, first.precision, first.family
        self.needs_canary, self.has_ngram_ban = first.needs_canary, first.has_ngram_ban
        self.uses_drafts = first.uses_drafts
        self.buffer_pools = tuple(pool for member in members for pool in member.buffer_pools)
        self._members = tuple(members)
        self._prompts: Counter[GroupMember] = Counter()
        self._alone: Counter[GroupMember] = Counter()  # of these, the prompts that run alone or wait to do so
        self._restarts: dict[GroupMember, asyncio.Task[None]] = {}
        self._incidents: list[Incident] = []
        self._collected: Counter[GroupMember] = Counter()  # incidents of each member that are in `_incidents`

    @property
    def members(self) -> Sequence[Engine]:  # type: ignore[override]
        return self._members

    @property
    def sequences(self) -> int:  # type: ignore[override]
        return sum(member.sequences for member in self._members if not member.is_gone)

    @property
    def statuses(self) -> Sequence[EngineStatus]:  # type: ignore[override]
        return [status for member in self._members for status in member.statuses]

    @property
    def is_gone(self) -> bool:  # type: ignore[override]
        return all(member.is_gone for member in self._members)

    @property
    def stage_ends(self) -> Mapping[str, float]:  # type: ignore[override]
        """When the last engine ended each stage: they start at the same time."""
        last: dict[str, float] = {}
        for member in self._members:
            for stage, end in member.stage_ends.items():
                last[stage] = max(end, last.get(stage, 0.0))
        return last

    @property
    def fallbacks(self) -> Sequence[str]:  # type: ignore[override]
        """Those of any member: they share an installation, but not the memory of a GPU."""
        return tuple(dict.fromkeys(name for member in self._members for name in member.fallbacks))

    @property
    def incidents(self) -> Sequence[Incident]:  # type: ignore[override]
        """Those of all engines, appended as they are found, so that readers may remember a position."""
        for member in self._members:
            self._incidents += member.incidents[self._collected[member] :]
            self._collected[member] = len(member.incidents)
        return self._incidents

    async def open(self, page_pool: PagePool) -> None:
        async with task_group.open_group() as group:
            for member in self._members:
                group.create_task(member.open(page_pool))

    async def after_ready(self, is_warmed_up: bool = False) -> None:
        await self._members[0].after_ready(is_warmed_up)  # what there is to do concerns the whole machine

    async def generate(self, prompt: Prompt) -> Completion:
        deaths = 0
        while deaths < retry.VLLM_PROMPT.attempts:
            is_alone = deaths + 1 == retry.VLLM_PROMPT.attempts
            member = await self._choose(is_alone)
            try:
                with self._count(member, is_alone):
                    return await member.attempt(prompt, is_alone)
            except EngineDied as death:
                deaths += death.had_prompt
                self._begin_restart(member)
        log.error("prompt given up", prompt=prompt.id, deaths=deaths)
        return Completion("", "crash")

    async def close(self) -> None:
        for restart in self._restarts.values():
            restart.cancel()
        async with AsyncExitStack() as stack:  # closes all, even if one cannot be closed
            for member in self._members:
                stack.push_async_callback(member.close)

    async def _choose(self, is_alone: bool) -> GroupMember:
        """The running engine with the most room. If none runs, wait for one; raises EngineError if all are gone.

        Engines in which a prompt has to run alone are the last choice for others.
        """
        while True:
            running = [one for one in self._members if one not in self._restarts and not one.is_gone]
            if running:
                return max(running, key=lambda one: (bool(self._alone[one]) is is_alone, self._measure_room(one)))
            if not self._restarts:
                raise EngineError(Code.ENGINE_DEAD, "all engines died too often; the worker has to be replaced")
            await asyncio.wait(self._restarts.values(), return_when=asyncio.FIRST_COMPLETED)

    def _measure_room(self, member: GroupMember) -> int:
        return member.sequences - self._prompts[member]

    @contextmanager
    def _count(self, member: GroupMember, is_alone: bool) -> Iterator[None]:
        self._prompts[member] += 1
        self._alone[member] += is_alone
        try:
            yield
        finally:
            self._prompts[member] -= 1
            self._alone[member] -= is_alone

    def _begin_restart(self, member: GroupMember) -> None:
        if member in self._restarts or member.is_gone:
            return
        log.warning("an engine died, its prompts move to the others", gpus=member.gpus)
        self._restarts[member] = restart = asyncio.create_task(_restart(member))
        restart.add_done_callback(partial(self._end_restart, member))

    def _end_restart(self, member: GroupMember, _: asyncio.Task[None]) -> None:
        del self._restarts[member]


async def _restart(member: GroupMember) -> None:
    """Return when the engine runs again, or is gone after too many restarts."""
    while not member.is_gone:
        try:
            return await member.wait_for_restart()
        except EngineError as error:
            log.error("engine not started again", gpus=member.gpus, reason=error.message)
