"""Events in, lines out: JSON in RunPod's shape on the platform, readable text on a terminal.

Document text, keys, passwords and query strings are never handed to a logger. An exception is told by its
frames and types: its message may quote what it is about.
"""

from __future__ import annotations

import logging
import resource
import sys
import traceback
from typing import Any, TextIO

import structlog

from twopass.errors import TwopassError
from twopass.settings import Settings
from twopass.storage.error_mapping import LOUD


def set_up(settings: Settings) -> None:
    """Configure structlog once per process; stderr, so that stdout stays the SDK's."""
    if resource.getrlimit(resource.RLIMIT_CORE)[1]:  # what is 0 already only root may raise
        # No dump of this process or a child keeps documents and keys. One byte: 0 would not stop one into a pipe.
        resource.setrlimit(resource.RLIMIT_CORE, (1, 1))
    shared: list[Any] = [structlog.contextvars.merge_contextvars, structlog.processors.add_log_level]
    if settings.runpod_endpoint_id:
        without_messages = structlog.processors.ExceptionRenderer(lambda info: told(info[1]))
        ending: list[Any] = [without_messages, _runpod_shape, structlog.processors.JSONRenderer()]
    else:
        ending = [
            structlog.processors.TimeStamper("%H:%M:%S"),
            structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), exception_formatter=_onto),
        ]
    for name in LOUD:
        logging.getLogger(name).setLevel(logging.WARNING)
    logging.getLogger("asyncio").addFilter(_without_messages)
    level = logging.getLevelName(settings.log_level.upper())
    structlog.configure(
        processors=[*shared, *ending],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )


def _runpod_shape(_: Any, __: str, event: Any) -> Any:
    """The console filters by requestId and shows message and level."""
    return {"requestId": event.pop("job", None), "message": event.pop("event"), "level": event.pop("level"), **event}


def _onto(sink: TextIO, info: Any) -> None:
    sink.write("\n" + told(info[1]))


def _without_messages(record: logging.LogRecord) -> bool:
    """asyncio's lines about tasks that nobody awaited show what they raised."""
    record.msg, record.args = record.getMessage().partition("\n")[0], ()
    if record.exc_info and record.exc_info[1]:
        record.exc_text, record.exc_info = told(record.exc_info[1]), None
    return True


def told(error: BaseException) -> str:
    """Frames and types of an exception and of those behind it; messages only of our own, which quote nothing."""
    before = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    parts = [] if before is None else [told(before), "and then\n"]
    parts += [told(one) for one in error.exceptions] if isinstance(error, BaseExceptionGroup) else []
    parts += traceback.format_tb(error.__traceback__)
    name = f"{type(error).__module__}.{type(error).__qualname__}"
    return "".join((*parts, f"{name}: {error}\n" if isinstance(error, TwopassError) else f"{name}\n"))
