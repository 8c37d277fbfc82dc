"""Push metrics to a Prometheus Pushgateway, from workers that Prometheus cannot reach."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import structlog

if TYPE_CHECKING:
    from prometheus_client.registry import CollectorRegistry

INTERVAL_S = 15.0  # Prometheus' usual interval between two scrapes
TIMEOUT_S = 5.0  # also the longest delay of a shutdown

log = structlog.get_logger()


@contextmanager
def push(registry: CollectorRegistry, gateway: str, worker: str, interval_s: float = INTERVAL_S) -> Iterator[None]:
    """Push all metrics at this interval while the context lasts, and once more at its end.

    They are grouped by `job="twopass"` and `instance=worker`. If the gateway does not take them, that is logged once,
    and the worker goes on.
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
        push_to_gateway(gateway, "twopass", registry, grouping_key={"instance": worker}, timeout=TIMEOUT_S)
    except OSError as error:  # no connection, no answer in time, or a status that is an error
        if is_logged:
            log.warning("the gateway does not take metrics", setting="METRICS_PUSH_URL", reason=str(error)[:200])
        return False
    return True
