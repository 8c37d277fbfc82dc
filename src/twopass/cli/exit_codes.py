"""The exit codes of all commands, in one table: `--help` shows it."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum


class Exit(IntEnum):
    """A command's exit code. They are stable: scripts and schedulers depend on them."""

    SUCCESS = 0
    FAILED = 1
    USAGE = 2
    ENDPOINT = 3
    STOPPED = 130  # as shells report a command that Ctrl-C has ended: 128 + SIGINT


MEANINGS: Mapping[Exit, str] = {
    Exit.SUCCESS: "done; after `read`, pages may have failed, unless `--strict` was given",
    Exit.FAILED: "not everything was done, or the engine did not start",
    Exit.USAGE: "a wrong argument, setting or job, or nothing to do; nothing was begun",
    Exit.ENDPOINT: "the endpoint refuses or cannot be reached",
    Exit.STOPPED: "stopped with Ctrl-C; the same command continues",
}

_WRONG_USE = "a wrong argument or setting"
OUTCOMES: Mapping[str, Mapping[Exit, str]] = {  # command -> its exit codes
    "read": {
        Exit.SUCCESS: "every document was read, though pages of it may have failed",
        Exit.FAILED: "a document failed or has unread pages, or the engine did not start",
        Exit.USAGE: f"nothing to read, or {_WRONG_USE}",
        Exit.STOPPED: "stopped",
    },
    "serve": {
        Exit.SUCCESS: "stopped by a signal",
        Exit.FAILED: "the engine did not start, a package is missing, or the folder cannot be used",
        Exit.USAGE: _WRONG_USE,
    },
    "mcp": {
        Exit.SUCCESS: "standard input ended",
        Exit.FAILED: "a package is missing, or the machine cannot run the engine",
        Exit.USAGE: _WRONG_USE,
    },
    "submit": {
        Exit.SUCCESS: "every document was read",
        Exit.FAILED: "not every one",
        Exit.USAGE: f"nothing to do, or {_WRONG_USE}",
        Exit.ENDPOINT: "the endpoint refuses or cannot be reached",
        Exit.STOPPED: "stopped",
    },
    "reparse": {Exit.SUCCESS: "written", Exit.FAILED: "not written", Exit.USAGE: _WRONG_USE},
    "parse-answer": {Exit.SUCCESS: "parsed", Exit.USAGE: _WRONG_USE},
    "schema": {Exit.SUCCESS: "printed", Exit.USAGE: _WRONG_USE},
    "warm-up": {
        Exit.SUCCESS: "filled",
        Exit.FAILED: "the engine did not start, or no kernel was compiled",
        Exit.USAGE: _WRONG_USE,
    },
    "download-weights": {
        Exit.SUCCESS: "the folders are complete and correct",
        Exit.FAILED: "one is not",
        Exit.USAGE: _WRONG_USE,
    },
    "accept": {
        Exit.SUCCESS: "no check failed and some passed",
        Exit.FAILED: "a check failed, none was run, or an engine did not start",
        Exit.USAGE: _WRONG_USE,
    },
    "doctor": {Exit.SUCCESS: "nothing failed", Exit.FAILED: "a check failed", Exit.USAGE: _WRONG_USE},
    "health": {
        Exit.SUCCESS: "the worker can take jobs",
        Exit.FAILED: "it cannot, or does not answer",
        Exit.USAGE: "a wrong argument",
    },
    "handler.py": {
        Exit.SUCCESS: "the local job was read, or the worker was stopped",
        Exit.FAILED: "the local job failed, or the worker cannot serve, whatever the reason",
    },
}


def describe(command: str) -> str:
    """The exit codes of a command in one sentence."""
    return f"Exit code: {', '.join(f'{code} {meaning}' for code, meaning in OUTCOMES[command].items())}."
