"""The endpoint that `scripts.try_endpoint` tries: /runsync and /health."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scripts.endpoint_trial.endpoint import EndpointHealth, TrialEndpoint, parse_health
from tests.fakes.platform import Json, Platform, ScriptedBackend
from twopass.errors import EndpointError
from twopass.fleet.endpoints.interface import JobState

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
)


async def test_runsync_returns_the_id_and_how_the_job_stands() -> None:
    """A job that ends in time has its result at once; another has an id to poll. Both expire at the endpoint."""
    backend = ScriptedBackend(lambda job: {"status": "COMPLETED" if job["fast"] else "IN_PROGRESS", "output": {}})
    platform = Platform(backend)

    with platform.serve() as url:
        async with TrialEndpoint(url, "secret-key", execution_s=60, ttl_s=300) as endpoint:
            fast = await endpoint.submit_and_wait({"fast": True}, 5)
            slow = await endpoint.submit_and_wait({"fast": False}, 0.05)

    assert (fast[0], fast[1].state) == ("job-1", JobState.ENDED)
    assert (slow[0], slow[1].state) == ("job-2", JobState.RUNNING)
    assert platform.bodies[0]["policy"] == {"executionTimeout": 60_000, "ttl": 300_000}


async def test_health_counts_the_workers_of_an_endpoint() -> None:
    """An unknown id is an error that says what to check."""
    with Platform(ScriptedBackend(lambda job: None)).serve() as url:
        async with TrialEndpoint(url, "secret-key", 60, 300) as endpoint:
            health = await endpoint.check_health()
        async with TrialEndpoint(f"{url}/other", "secret-key", 60, 300) as unknown:
            with pytest.raises(EndpointError, match="ENDPOINT_DENIED.*check its id"):
                await unknown.check_health()

    assert (health.workers["idle"], health.jobs["inQueue"]) == (1, 0)


@pytest.mark.parametrize(
    ("workers", "is_blocked"),
    [
        ({}, False),
        ({"idle": 0}, False),
        ({"throttled": 1}, True),
        ({"unhealthy": 1}, True),
        ({"throttled": 2, "initializing": 1}, False),
    ],
)
def test_an_endpoint_is_blocked_if_it_has_only_workers_that_take_no_jobs(workers: Json, is_blocked: bool) -> None:
    """No worker at all is the normal state of an endpoint without jobs."""
    assert EndpointHealth(workers, {}).is_blocked is is_blocked


@given(JSON)
def test_any_answer_to_health_is_counts_or_an_endpoint_error(answer: object) -> None:
    """What is not a count is left out; an answer without workers is no queue's."""
    try:
        health = parse_health(answer, "https://api.example")
    except EndpointError as error:
        assert "load balancing" in error.message
    else:
        assert all(type(count) is int for counts in (health.workers, health.jobs) for count in counts.values())
