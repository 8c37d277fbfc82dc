"""How jobs arrive, by the arguments and variables with which the SDK is started."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twopass.cli import handler_arguments
from twopass.cli.handler_arguments import Arguments
from twopass.errors import InvalidSetting
from twopass.job import EntryPoint

QUEUE = {"RUNPOD_WEBHOOK_GET_JOB": "https://api.example/job-take/$ID"}
API = Arguments(EntryPoint.API, 8000, "--rp_api_port", "localhost")
REALTIME = Arguments(EntryPoint.API, 80, "RUNPOD_REALTIME_PORT", "0.0.0.0")


@pytest.mark.parametrize(
    ("line", "environment", "expected"),
    [
        ("", {}, Arguments(EntryPoint.LOCAL)),
        ("--test_input {}", {}, Arguments(EntryPoint.LOCAL, test_input="{}")),
        ("--test_i={} --other", {}, Arguments(EntryPoint.LOCAL, test_input="{}")),
        ("", QUEUE, Arguments(EntryPoint.SERVERLESS)),
        ("--rp_serve_api", {}, API),
        ("--rp_s", QUEUE, API),
        ("--rp_serve --rp_api_p 0 --rp_api_h=::", {}, Arguments(EntryPoint.API, 0, "--rp_api_port", "::")),
        ("", {"RUNPOD_REALTIME_PORT": "80", **QUEUE}, REALTIME),
        ("", {"RUNPOD_REALTIME_PORT": "0", **QUEUE}, Arguments(EntryPoint.SERVERLESS)),
    ],
)
def test_jobs_arrive_as_the_sdk_takes_them(line: str, environment: dict[str, str], expected: Arguments) -> None:
    """Options may be abbreviated, and an option for the API comes before the queue's variable."""
    assert handler_arguments.parse(line.split(), environment) == expected


@given(st.lists(st.text()))
def test_any_arguments_are_parsed_or_refused_in_one_message(arguments: list[str]) -> None:
    """No argument ends the process or raises anything but InvalidSetting."""
    try:
        handler_arguments.parse([text for text in arguments if not text.startswith("-h")], {})
    except InvalidSetting as error:
        assert error.message
