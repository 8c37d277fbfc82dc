"""Configure the log: JSON lines in RunPod's format, readable text, or only errors.

Document text, keys, passwords and query strings are never logged. Exceptions are logged with their frames and types
but without their messages, which may quote a document.
"""

from __future__ import annotations

import logging
import resource
import sys
import traceback
from typing import Any, TextIO

import structlog

from twopass.errors import TwopassError
from twopass.settings import LogFormat, Settings
from twopass.storage.error_mapping import NOISY_LOGGERS


def set_up(settings: Settings) -> None:
    """Configure structlog, once per process. It writes to stderr, because the SDK uses stdout."""
    if resource.getrlimit(resource.RLIMIT_CORE)[1]:  # only root may raise a limit of 0
        # Core dumps of this process and its children would contain documents and keys. The limit is one byte,
        # because 0 does not prevent a dump into a pipe.
        resource.setrlimit(resource.RLIMIT_CORE, (1, 1))
    shared: list[Any] = [structlog.contextvars.merge_contextvars, structlog.processors.add_log_level]
    if settings.writes_json_logs:
        add_exception = structlog.processors.ExceptionRenderer(lambda info: _format_exception(info[1]))
        output: list[Any] = [add_exception, _to_runpod_format, structlog.processors.JSONRenderer()]
    else:
        output = [
            structlog.processors.TimeStamper("%H:%M:%S"),
            structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), exception_formatter=_write_exception),
        ]
    for name in NOISY_LOGGERS:
        logging.getLogger(name).setLevel(logging.WARNING)
    for name in ("asyncio", "uvicorn.error"):
        logging.getLogger(name).addFilter(_strip_exception_text)
    level = logging.ERROR if settings.log_format is LogFormat.QUIET else logging.getLevelName(settings.log_level)
    structlog.configure(
        processors=[*shared, *output],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        # Look up sys.stderr for every line: rich replaces it while bars are drawn, to print lines above them.
        logger_factory=lambda *_: structlog.PrintLogger(sys.stderr),
    )


def use_standard_logging() -> None:
    """Pass events to the standard logger `twopass`, which prints nothing by itself, unless the program chose a log."""
    if structlog.is_configured():
        return
    logging.getLogger("twopass").addHandler(logging.NullHandler())
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            structlog.contextvars.merge_contextvars,
            structlog.processors.ExceptionRenderer(lambda info: _format_exception(info[1])),
            structlog.processors.KeyValueRenderer(key_order=["event"]),
        ],
        wrapper_class=structlog.stdlib.BoundLogger,
        logger_factory=structlog.stdlib.LoggerFactory(),
    )


def _to_runpod_format(_: Any, __: str, event: Any) -> Any:
    """RunPod's console filters by requestId and shows message and level."""
    return {"requestId": event.pop("job", None), "message": event.pop("event"), "level": event.pop("level"), **event}


def _write_exception(sink: TextIO, info: Any) -> None:
    sink.write("\n" + _format_exception(info[1]))


def _strip_exception_text(record: logging.LogRecord) -> bool:
    """Remove exception messages from records: asyncio's of tasks that were never awaited, uvicorn's of requests."""
    record.msg, record.args = record.getMessage().partition("\n")[0], ()
    if record.exc_info and record.exc_info[1]:
        record.exc_text, record.exc_info = _format_exception(record.exc_info[1]), None
    return True


def _format_exception(error: BaseException) -> str:
    """Frames and types of an exception and its causes, oldest first. Messages of our own errors only."""
    cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    parts = [] if cause is None else [_format_exception(cause), "and then\n"]
    parts += [_format_exception(member) for member in error.exceptions] if isinstance(error, BaseExceptionGroup) else []
    parts += traceback.format_tb(error.__traceback__)
    name = f"{type(error).__module__}.{type(error).__qualname__}"
    return "".join((*parts, f"{name}: {error}\n" if isinstance(error, TwopassError) else f"{name}\n"))
