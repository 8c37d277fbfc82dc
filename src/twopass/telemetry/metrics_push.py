"""Push metrics to a Prometheus Pushgateway, from workers that Prometheus cannot reach."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from http.client import HTTPException
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit, urlunsplit

import structlog

if TYPE_CHECKING:
    from prometheus_client.registry import CollectorRegistry

INTERVAL_S = 15.0  # Prometheus' usual interval between two scrapes
TIMEOUT_S = 5.0  # also the longest delay of a shutdown

log = structlog.get_logger()


@contextmanager
def push(registry: CollectorRegistry, gateway: str, worker: str, interval_s: float = INTERVAL_S) -> Iterator[None]:
    """Push all metrics at this interval while the context lasts, and once more at its end.

    `gateway` is an address, which may have a user and a password: http://user:password@host:9091. Metrics are grouped
    by `job="twopass"` and `instance=worker`. If the gateway does not take them, that is logged once, and the worker
    goes on.
    """
    ended = threading.Event()

    def push_until_the_end() -> None:
        succeeded = True
        while not ended.wait(interval_s):
            succeeded = _push_once(registry, gateway, worker, is_logged=succeeded)
        _push_once(registry, gateway, worker, is_logged=succeeded)

    thread = threading.Thread(target=push_until_the_end, name="twopass-metrics-push", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _push_once(registry: CollectorRegistry, gateway: str, worker: str, *, is_logged: bool) -> bool:
    """Return whether the gateway took the metrics; a failure is logged if `is_logged`."""
    from prometheus_client import push_to_gateway

    try:
        address, handler = _split_credentials(gateway)
        key = {"instance": worker}
        push_to_gateway(address, "twopass", registry, grouping_key=key, timeout=TIMEOUT_S, handler=handler)
    except (OSError, HTTPException, ValueError) as error:  # no connection, no answer in time, an error, a wrong address
        if is_logged:  # a wrong address is quoted by its error, perhaps with a part of the password
            reason = str(error)[:200] if isinstance(error, OSError) else type(error).__name__
            log.warning("the gateway does not take metrics", setting="METRICS_PUSH_URL", reason=reason)
        return False
    return True


def _split_credentials(gateway: str) -> tuple[str, Callable[..., Any]]:
    """Return the address without user and password, and the client's handler that sends them in a header.

    Python's HTTP client would take them for a part of the host's name.
    """
    from prometheus_client.exposition import basic_auth_handler, default_handler

    parts = urlsplit(gateway)
    credentials, _, host = parts.netloc.rpartition("@")
    if not credentials:
        return gateway, default_handler
    user, _, password = credentials.partition(":")
    handler = partial(basic_auth_handler, username=unquote(user), password=unquote(password))
    return urlunsplit(parts._replace(netloc=host)), handler
