"""Why a Ray cluster cannot be used, in words, and how Ray's errors become ours."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path

import pytest
from ray import exceptions
from structlog.testing import capture_logs

from tests.cluster.conftest import RayNodes
from twopass.errors import EndpointError
from twopass.fleet.endpoints.actor_pool import ActorFailed, ActorLost
from twopass.fleet.endpoints.ray_cluster import RayActor, describe_loss, map_call_errors, map_connection_errors

SUBMIT = "from twopass.cli.app import main; main()"


def submit(
    folder: Path, address: str, code: str = SUBMIT, *options: str, **environment: str
) -> subprocess.CompletedProcess[str]:
    (folder / "a.pdf").touch()
    arguments = ["submit", "a.pdf", "--ray", address, "--output", "out", "--slice-pages", "0", *options]
    env = {"PATH": os.environ["PATH"], "HOME": str(folder), **environment}
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], cwd=folder, env=env, capture_output=True, text=True, timeout=120
    )


def test_without_ray_the_message_names_the_extra(tmp_path: Path) -> None:
    """Where Ray is not installed, the exit code is 2 and the message says what to install."""
    ran = submit(tmp_path, "local", f"import sys; sys.modules['ray'] = None; {SUBMIT}")

    assert ran.returncode == 2
    assert "INVALID_SETTING: --ray needs ray: run `python -m pip install '.[ray]'` in the checkout\n" in ran.stderr


@pytest.mark.parametrize("address", ["127.0.0.1:9", "cluster.invalid:6379"])
def test_an_address_where_nothing_listens_is_reported_at_once(address: str, tmp_path: Path) -> None:
    """The exit code is 3; Ray itself would try for two minutes."""
    ran = submit(tmp_path, address)

    assert ran.returncode == 3
    assert f"ENDPOINT_UNAVAILABLE: --ray {address}: cannot be reached" in ran.stderr


def test_without_a_cluster_on_this_machine_auto_is_refused(tmp_path: Path) -> None:
    """`auto` names the cluster that this machine belongs to."""
    ran = submit(tmp_path, "auto", RAY_TMPDIR=str(tmp_path))

    assert ran.returncode == 3
    assert "ENDPOINT_DENIED: --ray auto" in ran.stderr


@pytest.mark.parametrize("token", ["", "a-wrong-token-of-the-right-kind"])
def test_a_missing_or_wrong_token_is_reported(token: str, cluster: RayNodes, tmp_path: Path) -> None:
    """The exit code is 3, and the message says where the token is taken from."""
    ran = submit(tmp_path, cluster.address, RAY_AUTH_TOKEN=token, RAY_NUM_REDIS_GET_RETRIES="2")

    assert ran.returncode == 3, ran.stderr
    assert "ENDPOINT_DENIED" in ran.stderr and "RAY_AUTH_TOKEN_PATH" in ran.stderr
    assert cluster.token not in ran.stderr


def walk(error: type[BaseException]) -> Iterator[type[BaseException]]:
    for child in error.__subclasses__():
        yield child
        yield from walk(child)


@pytest.mark.parametrize("kind", sorted(walk(exceptions.RayError), key=lambda kind: kind.__name__))
def test_every_error_of_ray_means_a_lost_actor_or_an_error_of_its_code(kind: type[BaseException]) -> None:
    """No exception of Ray ends the campaign."""
    silent = type(kind.__name__, (kind,), {"__init__": lambda self: None, "__str__": lambda self: "", "cause": None})
    error = silent()

    with pytest.raises((ActorLost, ActorFailed)), map_call_errors(exceptions):
        raise error


@pytest.mark.parametrize(
    "error", [ConnectionError("x"), RuntimeError("Version mismatch"), ValueError("x"), SystemExit(15)], ids=repr
)
def test_every_error_of_a_connection_says_what_to_do(error: BaseException) -> None:
    """Ray raises these for a wrong token, another version, a wrong address, and a head that does not answer."""
    message = "--ray head:6379: .*(check|run)"
    with pytest.raises(EndpointError, match=message), map_connection_errors("head:6379", exceptions):
        raise error


def test_an_option_that_ray_refuses_is_reported(tmp_path: Path) -> None:
    """Ray's own message is shown after the option's name."""
    ran = submit(tmp_path, "local", SUBMIT, '--actor={"num_cpus": "two"}')

    assert ran.returncode == 2
    assert "INVALID_SETTING: --actor: The type of keyword 'num_cpus'" in ran.stderr


class FullCluster:
    """Stands for Ray and for the handle of an actor: a node is found after so many looks at the free resources."""

    def __init__(self, looks: int) -> None:
        self.looks = looks
        self.placed: Future[None] = Future()
        self.__ray_ready__ = self.open = self

    def remote(self, *arguments: object) -> FullCluster:
        return self

    def future(self) -> Future[None]:
        return self.placed

    def available_resources(self) -> dict[str, float]:
        self.looks -= 1
        if not self.looks:
            self.placed.set_result(None)
        return {"CPU": 2.0, "node:10.0.0.5": 1.0}


async def test_while_no_node_has_room_the_log_says_what_is_missing() -> None:
    """The actor waits, because an autoscaler may add a node; the warning names what it needs and what is free."""
    full = FullCluster(2)
    actor = RayActor(full, exceptions, full, {"num_gpus": 1, "num_cpus": 4}, place_s=0.0)

    with capture_logs() as lines:
        await actor.open()

    assert lines == 2 * [
        {
            "event": "no node has room for an actor",
            "log_level": "warning",
            "needs": {"num_gpus": 1, "num_cpus": 4},
            "free": {"CPU": 2.0},
        }
    ]


def test_an_actor_that_is_not_created_is_reported_with_the_last_line() -> None:
    """Ray's message is a traceback, which ends with the reason."""
    text = "The actor died because of an error in its creation task, x\n  File y\nModuleNotFoundError: No module z"

    assert describe_loss(ActorLost(text)) == "actor not created: ModuleNotFoundError: No module z"


def test_a_lost_actor_is_named_with_process_node_and_reason() -> None:
    """Ray's message has twenty lines, of which these three matter."""
    text = "The actor died.\n\tclass_name: A\n\tpid: 12\n\tip: 10.0.0.5\nThe actor is dead because its node has died."

    assert describe_loss(ActorLost(text)) == ("actor 12 on 10.0.0.5 lost: The actor is dead because its node has died.")
