"""An S3 client in, the same client out, which connects to no address but one that was checked.

A name may resolve to a public address when it is looked at and to a private one when it is connected to;
here the look and the connection are one. Knows botocore's connections. Knows nothing of buckets or keys.
"""

from __future__ import annotations

import socket
from functools import cache
from typing import Any

from twopass.errors import SourceError
from twopass.storage import ssrf_guard


def to_public(client: Any) -> None:
    """From now on, https to public addresses and nothing else."""
    # botocore has no door for this. Should it move its own, tests/test_sources.py sees a private address reached.
    client._endpoint.http_session._manager.pool_classes_by_scheme = {"https": _pool()}


@cache
def _pool() -> type:
    """Made when it is first needed: botocore is imported late."""
    from botocore.awsrequest import AWSHTTPSConnection, AWSHTTPSConnectionPool
    from urllib3.exceptions import NewConnectionError

    class Connection(AWSHTTPSConnection):  # type: ignore[misc]
        """Its certificate is checked, and its request signed, for the name; the socket goes to the address."""

        host: str

        def _new_conn(self) -> socket.socket:
            name = self.host
            try:
                found = ssrf_guard.resolve(name, self.port, allow_private=False)
            except SourceError as error:
                raise NewConnectionError(self, error.message) from error
            try:
                return self._first_of(found)
            finally:
                self.host = name

        def _first_of(self, found: tuple[str, ...]) -> socket.socket:
            *others, last = found
            for ip in others:
                try:
                    return self._to(ip)
                except NewConnectionError:
                    continue
            return self._to(last)

        def _to(self, ip: str) -> socket.socket:
            self.host = ip
            return super()._new_conn()  # type: ignore[no-any-return]

    class Pool(AWSHTTPSConnectionPool):  # type: ignore[misc]
        ConnectionCls = Connection

    return Pool
