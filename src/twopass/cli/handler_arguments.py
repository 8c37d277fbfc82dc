"""Check the arguments of handler.py before the worker opens. The SDK parses them again when it starts."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from twopass.engines import preflight
from twopass.errors import Code, InvalidJob, InvalidSetting
from twopass.formats import registry
from twopass.job import EntryPoint, Job
from twopass.settings import Settings

_TEST_INPUT = Path("test_input.json")  # the SDK reads it without --test_input
_REALTIME_HOST = "0.0.0.0"  # where the SDK opens RUNPOD_REALTIME_PORT


@dataclass(frozen=True)
class Arguments:
    """How jobs arrive. `port` is that of the SDK's API, `test_input` the job of a local run as JSON."""

    entry_point: EntryPoint
    port: int = 0
    port_setting: str = ""
    host: str = ""
    test_input: str | None = None

    def check(self, settings: Settings) -> None:
        """Raise InvalidSetting for a port in use, and InvalidJob for a local job that cannot run."""
        if settings.metrics_port:
            preflight.check_port("METRICS_PORT", settings.metrics_port)
        if self.entry_point is EntryPoint.API:
            preflight.check_port(self.port_setting, self.port, self.host)
            preflight.check_allowed_dir(settings)
        if self.entry_point is EntryPoint.LOCAL:
            job = Job.parse(_load_local_job(self.test_input), settings, EntryPoint.LOCAL)
            registry.check_installed(job.formats_needed)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise InvalidSetting(Code.INVALID_SETTING, message)


def parse(arguments: Sequence[str], environment: Mapping[str, str]) -> Arguments:
    """Find out how jobs arrive, as the SDK does; raises InvalidSetting. Like the SDK, it accepts abbreviated options.

    Unknown arguments are ignored.
    """
    parsed, _ = _create_parser().parse_known_args(arguments)
    realtime_port = environment.get("RUNPOD_REALTIME_PORT", "0")
    if not realtime_port.isdecimal():
        raise InvalidSetting(Code.INVALID_SETTING, "RUNPOD_REALTIME_PORT: not a port; correct or unset it")
    if parsed.rp_serve_api:
        return Arguments(EntryPoint.API, parsed.rp_api_port, "--rp_api_port", parsed.rp_api_host)
    if int(realtime_port):
        return Arguments(EntryPoint.API, int(realtime_port), "RUNPOD_REALTIME_PORT", _REALTIME_HOST)
    if environment.get("RUNPOD_WEBHOOK_GET_JOB"):
        return Arguments(EntryPoint.SERVERLESS)
    return Arguments(EntryPoint.LOCAL, test_input=parsed.test_input)


def _create_parser() -> argparse.ArgumentParser:
    """The SDK's options, all of them, because an option may be abbreviated as long as no other one begins like it."""
    parser = _Parser("handler.py", description="A worker. Without options, it runs the job in test_input.json.")
    parser.add_argument("--test_input", metavar="JSON", help="run this job and end")
    parser.add_argument("--rp_serve_api", action="store_true", help="serve an HTTP API")
    parser.add_argument("--rp_api_host", default="localhost", help="address of the API")
    parser.add_argument("--rp_api_port", type=_parse_port, default=8000, help="port of the API")
    parser.add_argument("--rp_api_concurrency", type=int, default=1, help="processes of the API; leave it at 1")
    parser.add_argument("--rp_log_level", help="ERROR, WARN, INFO or DEBUG")
    parser.add_argument("--rp_debugger", action="store_true", help="log how long the SDK's parts take")
    return parser


def _parse_port(text: str) -> int:
    if not text.isdecimal() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port, which is a number up to 65535")
    return int(text)


def _load_local_job(test_input: str | None) -> Mapping[str, Any]:
    """Read the job that the SDK will run; raises InvalidJob."""
    name, text = "--test_input", test_input
    if not text:
        name, text = str(_TEST_INPUT), _read_test_input()
    try:
        job = json.loads(text)
    except ValueError as error:
        raise InvalidJob(Code.INVALID_JOB, f"{name}: not JSON ({error})") from None
    if not isinstance(job, dict):
        raise InvalidJob(Code.INVALID_JOB, f'{name}: must be a JSON object such as {{"input": {{"source": "a.pdf"}}}}')
    return job


def _read_test_input() -> str:
    try:
        return _TEST_INPUT.read_text("utf-8")
    except (OSError, UnicodeDecodeError):
        message = f"{_TEST_INPUT}: cannot be read in this folder; write one, or set --test_input or --rp_serve_api"
        raise InvalidJob(Code.INVALID_JOB, message) from None
