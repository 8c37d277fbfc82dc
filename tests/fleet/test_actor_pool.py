"""How jobs are divided among actors, and how many actors there are."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

import pytest

from tests.fakes.actors import Cluster
from twopass.errors import Code, EngineError, InvalidSetting, TwopassError
from twopass.fleet.endpoints.actor_pool import ActorFailed, ActorLost, ActorPool, PoolSize
from twopass.fleet.endpoints.interface import JobState, JobStatus
from twopass.runtime.retry import RetryPolicy

QUICK = RetryPolicy(attempts=3)


@asynccontextmanager
async def open_pool(cluster: Cluster, size: PoolSize) -> AsyncIterator[ActorPool]:
    pool = ActorPool(cluster.start, size, QUICK)
    try:
        yield pool
    finally:
        await pool.close()


class Jobs:
    """Jobs that were sent to a pool."""

    def __init__(self, pool: ActorPool, *names: str) -> None:
        self.tasks = {name: asyncio.create_task(pool.run(name, {"source": name})) for name in names}

    async def end(self, name: str) -> JobStatus:
        async with asyncio.timeout(60):
            return await self.tasks[name]


async def wait_until(is_true: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not is_true():
            await asyncio.sleep(0)


def count_jobs(cluster: Cluster) -> list[int]:
    return [len(actor.jobs) for actor in cluster.actors]


async def test_there_are_as_many_actors_as_jobs_within_the_limit() -> None:
    """Jobs are divided evenly, an actor reads several at once, and the others wait for a place."""
    cluster = Cluster()
    async with open_pool(cluster, PoolSize(max_actors=3, jobs_per_actor=2)) as pool:
        jobs = Jobs(pool, "a", "b")
        await wait_until(lambda: count_jobs(cluster) == [1, 1])
        more = Jobs(pool, "c", "d", "e", "f", "g")
        await wait_until(lambda: sum(count_jobs(cluster)) == 6)
        waiting = await pool.progress("g")
        cluster.actor_of("a").finish("a")
        await wait_until(lambda: any("g" in actor.jobs for actor in cluster.actors))

        assert count_jobs(cluster) == [2, 2, 2]
        assert waiting.state is JobState.WAITING
        assert (await pool.progress("g")) == JobStatus(JobState.RUNNING, {"pages_done": 3})
        assert (await jobs.end("a")).output == {"status": "success"}
        assert set(more.tasks) == {"c", "d", "e", "f", "g"}


async def test_the_jobs_of_a_lost_actor_are_gone_and_another_takes_the_next() -> None:
    """The campaign sends them again, and they get a new actor, not the lost one."""
    cluster = Cluster()
    async with open_pool(cluster, PoolSize(max_actors=1)) as pool:
        jobs = Jobs(pool, "a", "b")
        await wait_until(lambda: count_jobs(cluster) == [2])
        cluster.actors[0].lose()
        statuses = [await jobs.end("a"), await jobs.end("b")]
        again = Jobs(pool, "c")
        await wait_until(lambda: count_jobs(cluster) == [0, 1])
        cluster.actors[1].finish("c")

        assert {(status.state, status.error) for status in statuses} == {(JobState.GONE, "node lost")}
        assert (await again.end("c")).state is JobState.ENDED
        assert cluster.actors[0].is_killed


async def test_an_actor_whose_engine_is_gone_gets_no_job_and_ends_with_its_last_one() -> None:
    """The answers of its other jobs are not lost, and no job meets the dead engine again."""
    cluster = Cluster()
    async with open_pool(cluster, PoolSize(max_actors=1, jobs_per_actor=2)) as pool:
        jobs = Jobs(pool, "a", "b", "c")
        await wait_until(lambda: count_jobs(cluster) == [2])
        cluster.actors[0].finish("a", is_gone=True)
        await wait_until(lambda: count_jobs(cluster) == [1, 1])
        was_killed = cluster.actors[0].is_killed
        cluster.actors[0].finish("b", is_gone=True)
        await jobs.end("b")

        assert (was_killed, cluster.actors[0].is_killed) == (False, True)
        assert "c" in cluster.actors[1].jobs


async def test_an_unexpected_error_of_an_actor_is_the_jobs_result() -> None:
    """The job fails with INTERNAL; the actor reads the next one."""
    cluster = Cluster()
    async with open_pool(cluster, PoolSize(max_actors=1)) as pool:
        jobs = Jobs(pool, "a")
        await wait_until(lambda: count_jobs(cluster) == [1])
        cluster.actors[0].lose(ActorFailed("LookupError: x"))
        status = await jobs.end("a")
        Jobs(pool, "b")
        await wait_until(lambda: count_jobs(cluster) == [1])

        assert (status.state, status.error) == (JobState.ENDED, "INTERNAL: LookupError: x")


async def test_idle_actors_above_the_minimum_end() -> None:
    """An actor without jobs closes its engine and ends, so that its node can be released; the minimum stays."""
    cluster = Cluster()
    async with open_pool(cluster, PoolSize(min_actors=1, max_actors=3, idle_s=0.0)) as pool:
        jobs = Jobs(pool, "a", "b", "c")
        await wait_until(lambda: count_jobs(cluster) == [1, 1, 1])
        for name in ("a", "b", "c"):
            cluster.actor_of(name).finish(name)
            await jobs.end(name)
        await wait_until(lambda: [actor.is_closed for actor in cluster.actors].count(True) == 2)

        assert [actor.is_closed for actor in cluster.actors].count(False) == 1


async def test_the_minimum_starts_with_the_first_job() -> None:
    """With a minimum of two, one job starts two actors."""
    cluster = Cluster()
    async with open_pool(cluster, PoolSize(min_actors=2, max_actors=3)) as pool:
        Jobs(pool, "a")
        await wait_until(lambda: sum(count_jobs(cluster)) == 1)

        assert [actor.is_closed for actor in cluster.actors] == [False, False]


async def test_an_actor_that_does_not_open_is_started_again() -> None:
    """A node without a working GPU, or one that is lost, costs only an attempt."""
    cluster = Cluster([EngineError(Code.CANARY, "misread"), ActorLost("node lost")])
    async with open_pool(cluster, PoolSize(max_actors=1)) as pool:
        Jobs(pool, "a")
        await wait_until(lambda: count_jobs(cluster) == [0, 0, 1])

        assert [actor.is_killed for actor in cluster.actors] == [True, True, False]


@pytest.mark.parametrize(
    ("error", "attempts"),
    [(EngineError(Code.WEIGHTS_MISSING, "no weights"), 3), (InvalidSetting(Code.INVALID_SETTING, "MODEL: unknown"), 1)],
)
async def test_without_any_actor_jobs_fail_with_the_last_reason(error: TwopassError, attempts: int) -> None:
    """After three attempts, or at once for a wrong setting, jobs that wait and later ones raise an EndpointError."""
    cluster = Cluster([error] * 9)
    async with open_pool(cluster, PoolSize(max_actors=1)) as pool:
        jobs = Jobs(pool, "a")
        with pytest.raises(TwopassError, match=f"ENDPOINT_UNAVAILABLE: no actor.*{error.code}"):
            await jobs.end("a")
        with pytest.raises(TwopassError, match="ENDPOINT_UNAVAILABLE"):
            await pool.run("b", {})

        assert len(cluster.actors) == attempts


async def test_an_unexpected_error_while_an_actor_starts_ends_the_jobs() -> None:
    """It is raised where the job waits; otherwise the campaign would hang."""
    cluster = Cluster([LookupError("unexpected")])
    async with open_pool(cluster, PoolSize(max_actors=1)) as pool:
        jobs = Jobs(pool, "a")

        with pytest.raises(LookupError, match="unexpected"):
            await jobs.end("a")


async def test_a_cancelled_job_leaves_its_place_to_another() -> None:
    """Neither a waiting nor a running job keeps a place after it was cancelled."""
    cluster = Cluster()
    async with open_pool(cluster, PoolSize(max_actors=1, jobs_per_actor=1)) as pool:
        jobs = Jobs(pool, "a", "b", "c")
        await wait_until(lambda: count_jobs(cluster) == [1])
        for name in ("b", "a"):
            jobs.tasks[name].cancel()
            with suppress(asyncio.CancelledError):
                await jobs.end(name)
        await wait_until(lambda: "c" in cluster.actors[0].jobs)

        assert len(cluster.actors) == 1


async def test_closing_ends_every_actor() -> None:
    """Also those that are being started."""
    cluster = Cluster(is_full=True)
    pool = ActorPool(cluster.start, PoolSize(max_actors=2), QUICK)
    jobs = Jobs(pool, "a", "b")
    await wait_until(lambda: len(cluster.actors) == 2)
    cluster.actors[0].can_open.set()
    await wait_until(lambda: count_jobs(cluster) == [1, 0])

    for task in jobs.tasks.values():
        task.cancel()
    await asyncio.gather(*jobs.tasks.values(), return_exceptions=True)
    await pool.close()

    assert all(actor.is_killed for actor in cluster.actors)
