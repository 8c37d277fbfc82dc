"""Tell an address of the caller that a job has ended: signed, and repeated as RunPod repeats its webhooks.

The signature is that of Standard Webhooks (standardwebhooks.com), for which there are libraries in most languages.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import structlog

from twopass import locations
from twopass.errors import Code, InvalidJob, InvalidSetting, SourceError
from twopass.runtime import retry
from twopass.runtime.retry import RetryPolicy
from twopass.server.jobs import Notified, Record
from twopass.settings import Settings
from twopass.storage import https

log = structlog.get_logger()

FIELD = "webhook"  # of the job's input, beside the fields that a worker knows
_PREFIX = "whsec_"
_MIN_KEY_BYTES = 24  # as Standard Webhooks asks for
_MAX_LENGTH = 2048


class Webhooks:
    """Sends what `describe` says of an ended job, without its result: that is for those who have the key."""

    def __init__(
        self,
        settings: Settings,
        describe: Callable[[Record], dict[str, Any]],
        policy: RetryPolicy = retry.WEBHOOK,
    ) -> None:
        self._policy = replace(policy, is_retryable=https.is_unavailable)
        self._key = read_key(settings)
        self._allow_private = settings.allow_private_sources
        self._describe = describe

    def check(self, address: Any) -> str | None:
        """The address of a new job's webhook; raises InvalidJob if it cannot be one."""
        if address is None:
            return None
        schemes = (locations.HTTPS, locations.HTTP) if self._allow_private else (locations.HTTPS,)
        is_known = isinstance(address, str) and any(scheme.begins(address) for scheme in schemes)
        if not isinstance(address, str) or not is_known or not https.is_address(address):
            raise InvalidJob(Code.INVALID_JOB, f"{FIELD}: must be a valid address that begins with https://")
        if len(address) > _MAX_LENGTH:
            raise InvalidJob(Code.INVALID_JOB, f"{FIELD}: longer than {_MAX_LENGTH} characters")
        if self._key is None:
            message = f"{FIELD}: this server signs none; set SERVE_WEBHOOK_SECRET on it"
            raise InvalidJob(Code.INVALID_JOB, message)
        return address

    async def send(self, record: Record) -> Notified:
        """Send the end of the job until the address answers with 2xx, or no further attempt is left."""
        assert record.webhook and record.finished
        # The same for every attempt, also after a restart, so that the receiver can drop repetitions. In microseconds,
        # because a job that is resumed may end again within a second.
        message_id = f"msg_{record.id}_{record.finished.timestamp() * 1e6:.0f}"
        event = {
            "type": f"job.{record.state}",
            "timestamp": record.finished.isoformat(),
            "data": self._describe(record),
        }
        body = json.dumps(event, ensure_ascii=False, separators=(",", ":")).encode(errors="replace")
        try:
            await self._policy.run_async(partial(self._send_once, record.webhook, message_id, body))
        except SourceError as error:
            log.warning("webhook not delivered", job=record.id, code=error.code, reason=error.message)
            return Notified.FAILED
        return Notified.DELIVERED

    async def _send_once(self, address: str, message_id: str, body: bytes) -> None:
        headers = {"Content-Type": "application/json", **self._sign(message_id, body)}
        await https.post(address, body, headers, self._allow_private)

    def _sign(self, message_id: str, body: bytes) -> dict[str, str]:
        """The headers that prove who sent the body and when: an old one that is sent again is refused."""
        if self._key is None:  # the setting was removed since the job was sent
            raise SourceError(Code.INVALID_SETTING, "SERVE_WEBHOOK_SECRET: needed to sign this webhook")
        timestamp = str(int(time.time()))
        digest = hmac.digest(self._key, b".".join((message_id.encode(), timestamp.encode(), body)), hashlib.sha256)
        signature = f"v1,{base64.b64encode(digest).decode()}"
        return {"webhook-id": message_id, "webhook-timestamp": timestamp, "webhook-signature": signature}


def read_key(settings: Settings) -> bytes | None:
    """The key of signatures; None without one. Raises InvalidSetting."""
    if settings.serve_webhook_secret is None:
        return None
    text = settings.serve_webhook_secret.get_secret_value().removeprefix(_PREFIX)
    try:
        key = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if len(key) < _MIN_KEY_BYTES:
        message = (
            f"SERVE_WEBHOOK_SECRET: must be {_PREFIX} and at least {_MIN_KEY_BYTES} random bytes in base64, such as "
            f'"{_PREFIX}$(openssl rand -base64 32)"'
        )
        raise InvalidSetting(Code.INVALID_SETTING, message)
    return key
