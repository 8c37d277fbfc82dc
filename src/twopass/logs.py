"""Events in, lines out: JSON in RunPod's shape on the platform, readable text on a terminal.

Document text, keys, passwords and query strings are never handed to a logger.
"""

from __future__ import annotations

import logging
import resource
import sys
from typing import Any

import structlog

from twopass.faults import LOUD
from twopass.settings import Settings


def set_up(settings: Settings) -> None:
    """Configure structlog once per process; stderr, so that stdout stays the SDK's."""
    # No dump of this process or a child keeps documents and keys. One byte: 0 would not stop a dump into a pipe.
    resource.setrlimit(resource.RLIMIT_CORE, (1, 1))
    shared: list[Any] = [structlog.contextvars.merge_contextvars, structlog.processors.add_log_level]
    if settings.runpod_endpoint_id:
        ending: list[Any] = [structlog.processors.format_exc_info, _runpod_shape, structlog.processors.JSONRenderer()]
    else:
        ending = [
            structlog.processors.TimeStamper("%H:%M:%S"),
            # plain: the default prints locals, and a job's keys are among them
            structlog.dev.ConsoleRenderer(
                colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback
            ),
        ]
    for name in LOUD:
        logging.getLogger(name).setLevel(logging.WARNING)
    level = logging.getLevelName(settings.log_level.upper())
    structlog.configure(
        processors=[*shared, *ending],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )


def _runpod_shape(_: Any, __: str, event: Any) -> Any:
    """The console filters by requestId and shows message and level."""
    return {"requestId": event.pop("job", None), "message": event.pop("event"), "level": event.pop("level"), **event}
