"""Which network addresses may be contacted."""

from __future__ import annotations

import socket
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twopass.errors import Code, SourceError
from twopass.storage import ssrf_guard


@pytest.mark.parametrize(
    "address",
    [
        *("10.1.2.3", "127.0.0.1", "169.254.169.254", "172.16.0.1", "192.168.0.1", "100.64.0.1", "0.0.0.0"),
        *("224.0.0.1", "255.255.255.255", "240.0.0.1", "::1", "::", "fe80::1", "fe80::1%eth0", "fc00::1"),
        *("::ffff:127.0.0.1", "64:ff9b::a00:1", "2002:a00:1::", "::127.0.0.1", "ff0e::1", "fec0::1", "2001:db8::1"),
        *("2002:7f00:1::", "2002:a9fe:a9fe::", "64:ff9b:1::a9fe:a9fe", "2001:0:7f00:1::", "::ffff:0:127.0.0.1"),
        *("169.254.170.2", "100.100.100.200", "192.0.0.192", "198.18.0.1", "fd00:ec2::254", "0.1.2.3"),
        *("2130706433", "0177.0.0.1", "", "host.example", "127.0.0.1\n"),
    ],
)
def test_non_public_addresses_are_detected(address: str) -> None:
    """Private, loopback, link-local, shared, multicast and embedded addresses are not public, nor is nonsense."""
    assert not ssrf_guard.is_public(address)


@pytest.mark.parametrize("address", ["8.8.8.8", "2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808"])
def test_public_addresses_are_public(address: str) -> None:
    """The guard lets the internet through, also where IPv4 is reached through IPv6."""
    assert ssrf_guard.is_public(address)


@given(st.ip_addresses(v=4))
def test_an_embedded_address_is_judged_like_the_plain_one(address: Any) -> None:
    """An IPv4 address gets the same verdict however it is wrapped in IPv6."""
    number = int(address)
    wrapped = (f"::ffff:{address}", f"64:ff9b::{number >> 16:x}:{number & 0xFFFF:x}")

    assert {ssrf_guard.is_public(each) for each in wrapped} == {ssrf_guard.is_public(str(address))}


@given(st.one_of(st.ip_addresses().map(str), st.integers(0, 2**32 - 1).map(str)))
def test_no_spelling_of_a_private_address_resolves(host: str) -> None:
    """Whatever resolve returns is public, decimal spellings included."""
    try:
        addresses = ssrf_guard.resolve(host, 443, allow_private=False)
    except SourceError as error:
        assert error.code in (Code.SOURCE_DENIED, Code.STORE_UNAVAILABLE)
    else:
        assert all(ssrf_guard.is_public(address) for address in addresses)


def test_one_private_address_refuses_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that resolves to a public and a private address is not contacted at all."""
    entries = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (ip, 443)) for ip in ("8.8.8.8", "10.0.0.1")]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: entries)

    with pytest.raises(SourceError, match="SOURCE_DENIED"):
        ssrf_guard.resolve("rebind.example", 443, allow_private=False)
    assert ssrf_guard.resolve("rebind.example", 443, allow_private=True) == ("8.8.8.8", "10.0.0.1")


@pytest.mark.parametrize("host", ["a\0b", "a" * 70 + ".example", "ä" * 300, "no-such-host.invalid", ".."])
def test_a_name_that_cannot_be_resolved_is_a_coded_error(host: str) -> None:
    """Invalid host names end in an error of ours."""
    with pytest.raises(SourceError, match="STORE_UNAVAILABLE.*cannot be resolved"):
        ssrf_guard.resolve(host, 443, allow_private=False)
