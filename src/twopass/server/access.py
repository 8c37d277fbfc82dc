"""Who may use the server: the holder of the API key, or, without a key, pages and programs of this machine."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from ipaddress import ip_address
from urllib.parse import urlsplit

from fastapi import Request

from twopass.errors import Code, InvalidSetting, RequestError
from twopass.settings import Settings

_PROXY_HEADERS = ("forwarded", "x-forwarded-for", "x-forwarded-host", "x-real-ip")


def is_local(host: str) -> bool:
    """Whether this name or address is this machine's own, which no other machine reaches."""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def require_key(settings: Settings) -> None:
    """Require a key where other machines can connect; raises InvalidSetting."""
    if settings.serve_api_key is None and not is_local(settings.serve_host):
        message = (
            f"SERVE_API_KEY: required, because {settings.serve_host} can be reached from other machines; "
            "set it to at least 16 random characters, or listen on 127.0.0.1"
        )
        raise InvalidSetting(Code.INVALID_SETTING, message)


class Access:
    """Checks requests, and signs the addresses of files, which browsers open without a header."""

    def __init__(self, settings: Settings) -> None:
        key = settings.serve_api_key
        self._key = key.get_secret_value().encode() if key else None
        self._secret = secrets.token_bytes(32)

    def check(self, request: Request) -> None:
        """Raise RequestError unless the request has the key or, without a key, comes from this machine."""
        if self._key is None:
            _check_is_local(request)
        elif not hmac.compare_digest(_read_key(request), self._key):
            message = "the API key is missing or wrong; send it as Authorization: Bearer, or as X-API-Key"
            raise RequestError(Code.ACCESS_DENIED, message)

    def sign(self, job_id: str) -> str:
        """A token that allows to read the files of one job, until the server restarts."""
        return hmac.digest(self._secret, job_id.encode(), hashlib.sha256).hex()[:32]

    def check_token(self, job_id: str, token: str) -> None:
        """Raise RequestError unless the token was signed for this job."""
        if not hmac.compare_digest(token.encode(), self.sign(job_id).encode()):
            raise RequestError(Code.ACCESS_DENIED, "this link has expired; open the job's page again")


def _read_key(request: Request) -> bytes:
    scheme, _, credentials = request.headers.get("authorization", "").partition(" ")
    key = credentials.strip() if scheme.lower() == "bearer" else ""
    # RunPod's load balancer has its own key in Authorization, so the server's can be in X-API-Key.
    return request.headers.get("x-api-key", key).encode("latin-1")


def _check_is_local(request: Request) -> None:
    """Refuse other websites: they can make a browser send requests to this machine, also under a name of their own.

    Refuse what a proxy passes on, too: it comes from this machine, but was sent by another one.
    """
    host, origin = request.headers.get("host", ""), request.headers.get("origin")
    try:
        is_own = is_local(urlsplit(f"//{host}").hostname or "") and origin in (None, f"{request.url.scheme}://{host}")
    except ValueError:  # a host that cannot be parsed
        is_own = False
    if not is_own or any(name in request.headers for name in _PROXY_HEADERS):
        message = "without SERVE_API_KEY only this machine may use the server, as localhost; set a key for others"
        raise RequestError(Code.ACCESS_DENIED, message)
