"""A host name in, the network addresses that may be talked to out, or a refusal.

A job names hosts and the worker connects to them, so a job must not reach what only the worker can:
its own host, its private network, the cloud's metadata service. Knows nothing of HTTP or S3.
"""

from __future__ import annotations

import socket
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

from twopass.errors import Code, SourceError

UNICAST = IPv6Network("2000::/3")  # all that is assigned for the public network; ::1, fc00:: and fe80:: lie outside
ASSIGNMENTS = IPv4Network("192.0.0.0/24")  # Python calls most of it global; 192.0.0.192 is a metadata service
NAT64 = IPv6Network("64:ff9b::/96")  # the last 32 bits are the IPv4 address that is reached


def resolve(host: str, port: int, allow_private: bool) -> tuple[str, ...]:
    """The host's addresses, all of them public unless private ones are allowed; raises SourceError."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, ValueError, OverflowError) as error:
        raise SourceError(Code.STORE_UNAVAILABLE, f"{host[:100]}: this host name cannot be resolved") from error
    addresses = tuple(dict.fromkeys(str(entry[4][0]) for entry in found))
    # One private address among public ones refuses the host: who connects next may get that one.
    if not allow_private and not all(map(is_public, addresses)):
        raise SourceError(
            Code.SOURCE_DENIED,
            f"{host[:100]}: not on the public network; set ALLOW_PRIVATE_SOURCES=true on the endpoint to allow it",
        )
    return addresses


def is_public(text: str) -> bool:
    """Whether this is one host's address on the public network; False for what is no address."""
    try:
        address = ip_address(text)
    except ValueError:
        return False
    if isinstance(address, IPv6Address):
        inner = _embedded(address)
        return is_public(str(inner)) if inner else address in UNICAST and address.is_global
    return address.is_global and not address.is_multicast and address not in ASSIGNMENTS


def _embedded(address: IPv6Address) -> IPv4Address | None:
    """The IPv4 address that a packet to this one ends at."""
    if address in NAT64:
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour
