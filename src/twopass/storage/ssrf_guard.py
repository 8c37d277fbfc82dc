"""Allow only connections to public addresses: a job names hosts, and must not reach those that only the worker can.

Those are the worker's own host, its private network and the cloud's metadata service. A name may resolve to a public
address when it is checked and to a private one when it is connected to, so S3 clients check as they connect.
"""

from __future__ import annotations

import socket
from functools import cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import Any

from twopass.errors import Code, SourceError

_UNICAST = IPv6Network("2000::/3")  # all that is assigned for the public network; ::1, fc00:: and fe80:: lie outside
_ASSIGNMENTS = IPv4Network("192.0.0.0/24")  # Python calls most of it global; 192.0.0.192 is a metadata service
_NAT64 = IPv6Network("64:ff9b::/96")  # the last 32 bits are the IPv4 address that is reached


def resolve(host: str, port: int, allow_private: bool) -> tuple[str, ...]:
    """The host's addresses, all of them public unless private ones are allowed; raises SourceError."""
    try:
        entries = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, ValueError, OverflowError) as error:
        raise SourceError(
            Code.STORE_UNAVAILABLE, f"{host[:100]}: this host name cannot be resolved; check it"
        ) from error
    addresses = tuple(dict.fromkeys(str(entry[4][0]) for entry in entries))
    # A host with one private address among public ones is refused: the next connection might use that address.
    if not allow_private and not all(map(is_public, addresses)):
        raise SourceError(
            Code.SOURCE_DENIED,
            f"{host[:100]}: not on the public network; set ALLOW_PRIVATE_SOURCES=true on the endpoint to allow it",
        )
    return addresses


def is_public(text: str) -> bool:
    """Whether this is the address of one host on the public network; False for anything that is not an address."""
    try:
        address = ip_address(text)
    except ValueError:
        return False
    if isinstance(address, IPv6Address):
        inner = _embedded_ipv4(address)
        return is_public(str(inner)) if inner else address in _UNICAST and address.is_global
    return address.is_global and not address.is_multicast and address not in _ASSIGNMENTS


def _embedded_ipv4(address: IPv6Address) -> IPv4Address | None:
    """The IPv4 address at which a packet to this IPv6 address ends; None without one."""
    if address in _NAT64:
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour


def restrict_to_public(client: Any) -> None:
    """Make a boto3 client connect by https to public addresses only."""
    # botocore has no public way to do this. If its internals move, tests/storage/test_sources.py reaches a private
    # address and fails.
    client._endpoint.http_session._manager.pool_classes_by_scheme = {"https": _public_pool_class()}


@cache
def _public_pool_class() -> type:
    """A connection pool for urllib3 that checks addresses. Defined in here because botocore is imported late."""
    from botocore.awsrequest import AWSHTTPSConnection, AWSHTTPSConnectionPool
    from urllib3.exceptions import NewConnectionError

    class Connection(AWSHTTPSConnection):  # type: ignore[misc]
        """The certificate and the signature are for the name; the socket connects to the checked address."""

        host: str

        def _new_conn(self) -> socket.socket:
            name = self.host
            try:
                addresses = resolve(name, self.port, allow_private=False)
            except SourceError as error:
                raise NewConnectionError(self, error.message) from error
            try:
                return self._connect_to_first(addresses)
            finally:
                self.host = name

        def _connect_to_first(self, addresses: tuple[str, ...]) -> socket.socket:
            *others, last = addresses
            for ip in others:
                try:
                    return self._connect_to(ip)
                except NewConnectionError:
                    continue
            return self._connect_to(last)

        def _connect_to(self, ip: str) -> socket.socket:
            self.host = ip
            return super()._new_conn()  # type: ignore[no-any-return]

    class Pool(AWSHTTPSConnectionPool):  # type: ignore[misc]
        ConnectionCls = Connection

    return Pool
