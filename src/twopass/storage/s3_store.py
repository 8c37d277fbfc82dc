"""A store below a prefix of an S3 bucket, with conditional writes where the vendor supports them."""

from __future__ import annotations

import asyncio
import secrets
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import partial
from io import BytesIO
from itertools import count
from typing import Any

from twopass import job
from twopass.errors import StoreError
from twopass.runtime import retry
from twopass.settings import Settings
from twopass.storage import error_mapping, s3_client
from twopass.storage.s3_client import LazyClient, S3Limits
from twopass.storage.store import THREADS, CreateResult, Stored, check_key, retry_call, run_on_threads

PROBE_KEY = ".twopass-probe"
CLOSE_S = 5.0  # to wait for running calls; calls to a store that does not answer end later, on their own threads


class S3Store:
    """A prefix in a bucket."""

    is_persistent = True

    def __init__(self, uri: str, settings: Settings, s3: job.S3 | None, limits: S3Limits | None = None) -> None:
        self._limits = limits = limits or S3Limits.from_settings(settings)
        self._retries = limits.call
        self._closing = threading.Event()
        self._bucket, prefix = s3_client.parse_s3_uri(uri, StoreError)
        self._prefix = f"{prefix.rstrip('/')}/" if prefix.strip("/") else ""
        self.uri = f"s3://{self._bucket}/{self._prefix}"
        self.conditional: bool | None = None
        self._multipart_bytes = settings.multipart_bytes
        self._threads = ThreadPoolExecutor(THREADS, "twopass-s3")
        self._probe_lock = threading.Lock()
        self._lazy_client = LazyClient(partial(s3_client.create_client, settings, s3, limits))

    @run_on_threads
    def prepare(self) -> None:
        self._limits.prepare.run(self._supports_conditions, self._closing)

    @run_on_threads
    @retry_call
    def get(self, key: str) -> Stored | None:
        return self._get(key)

    @run_on_threads
    @retry_call
    def put(self, key: str, data: bytes, content_type: str) -> None:
        if len(data) <= self._multipart_bytes:
            self._put(key, data, content_type)
        else:
            self._put_in_parts(key, data, content_type)

    @run_on_threads
    @retry_call
    def create(self, key: str, data: bytes, content_type: str) -> CreateResult:
        if self._supports_conditions():
            written = self._put_if(key, data, content_type, IfNoneMatch="*")
        elif written := self._etag(key) is None:
            self._put(key, data, content_type)
        return CreateResult.WRITTEN if written else CreateResult.EXISTS

    @run_on_threads
    @retry_call
    def replace(self, key: str, data: bytes, content_type: str, etag: str) -> bool:
        if self._supports_conditions():
            try:
                return self._put_if(key, data, content_type, IfMatch=etag)
            except self._client.exceptions.ClientError as error:
                if not error_mapping.is_unsupported(error):
                    raise
        if is_same := self._etag(key) == etag:
            self._put(key, data, content_type)
        return is_same

    @run_on_threads
    @retry_call
    def keys(self, prefix: str) -> frozenset[str]:
        return frozenset(key for key, _ in self._list(prefix))

    @run_on_threads
    @retry_call
    def versions(self, prefix: str) -> dict[str, str]:
        """The etag of every key that begins with the prefix, in the order of the keys."""
        return dict(self._list(prefix))

    @run_on_threads
    @retry_call
    def delete(self, key: str) -> None:
        """Delete the object; one that does not exist is no error."""
        self._client.delete_object(**self._location(key))

    async def close(self) -> None:
        """Wait a few seconds for running calls. Waiting calls and further attempts are dropped."""
        self._closing.set()
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_S):
                await asyncio.to_thread(self._threads.shutdown, wait=True, cancel_futures=True)
        self._lazy_client.close()

    @property
    def _client(self) -> Any:
        return self._lazy_client.client

    def _list(self, prefix: str) -> Iterator[tuple[str, str]]:
        """Keys with their etags, a thousand in each request."""
        pages = self._client.get_paginator("list_objects_v2").paginate(
            Bucket=self._bucket, Prefix=self._prefix + prefix
        )
        for page in pages:
            for entry in page.get("Contents", ()):
                yield entry["Key"].removeprefix(self._prefix), entry.get("ETag", "")

    def _location(self, key: str) -> dict[str, str]:
        return {"Bucket": self._bucket, "Key": self._prefix + check_key(key)}

    def _get(self, key: str) -> Stored | None:
        get = partial(self._client.get_object, **self._location(key))
        try:
            response = get()
        except self._client.exceptions.NoSuchKey:
            return None
        body = s3_client.iter_body(get, response, self._limits.request.attempts)
        return Stored(b"".join(body), response["ETag"])

    def _etag(self, key: str) -> str | None:
        """The stored version's etag; None when nothing is stored."""
        try:
            return str(self._client.head_object(**self._location(key))["ETag"])
        except self._client.exceptions.ClientError as error:
            if error_mapping.http_status(error) != 404:
                raise
            return None

    def _put(self, key: str, data: bytes, content_type: str, **condition: str) -> None:
        self._client.put_object(**self._location(key), Body=data, ContentType=content_type, **condition)

    def _put_in_parts(self, key: str, data: bytes, content_type: str) -> None:
        config = s3_client.multipart_config(self._multipart_bytes)
        arguments = {"ContentType": content_type}
        self._client.upload_fileobj(BytesIO(data), **self._location(key), ExtraArgs=arguments, Config=config)

    def _put_if(self, key: str, data: bytes, content_type: str, **condition: str) -> bool:
        """Make a conditional PUT, repeated while the store is down; False when the condition did not hold.

        True as well if a repetition is refused because the first PUT was stored and only its answer was lost.
        """
        earlier_attempts = count()
        put = partial(self._put_unless_conflict, key, data, content_type, condition)
        return self._retries.run(lambda: put(next(earlier_attempts)), self._closing)

    def _put_unless_conflict(
        self, key: str, data: bytes, content_type: str, condition: dict[str, str], earlier_attempts: int = 0
    ) -> bool:
        """Make a conditional PUT, repeated while another one of the same key is under way."""
        repeats = earlier_attempts

        def put() -> bool:
            nonlocal repeats
            try:
                self._put(key, data, content_type, **condition)
                return True
            except self._client.exceptions.ClientError as error:
                repeats += error.response["ResponseMetadata"].get("RetryAttempts", 0)
                if error_mapping.http_status(error) == 412:
                    # An earlier attempt may have been stored; a nonce in the data shows whether it was ours.
                    return repeats > 0 and self._is_stored(key, data)
                if "IfMatch" in condition and error_mapping.error_code(error) == "NoSuchKey":
                    return False
                repeats += 1
                raise

        return replace(retry.S3_CONFLICT, is_retryable=_is_conflict).run(put)

    def _is_stored(self, key: str, data: bytes) -> bool:
        stored = self._get(key)
        return stored is not None and stored.data == data

    def _supports_conditions(self) -> bool:
        with self._probe_lock:
            if self.conditional is None:
                self.conditional = self._probe()
        return self.conditional

    def _probe(self) -> bool:
        """Create an object twice: unless the second PUT is refused, the store ignores the header."""

        def put() -> bool:
            data = secrets.token_bytes(8)
            return self._put_unless_conflict(PROBE_KEY, data, "application/octet-stream", {"IfNoneMatch": "*"})

        try:
            if not put():
                return True  # another worker's probe exists, and that worker deletes it
            is_supported = not put()
        except self._client.exceptions.ClientError as error:
            if error_mapping.is_unsupported(error):
                return False
            raise
        # Credentials that may not delete leave one tiny object. Later probes find it and need one PUT only.
        with suppress(*error_mapping.foreign_errors()):
            self._client.delete_object(**self._location(PROBE_KEY))
        return is_supported


def _is_conflict(error: BaseException) -> bool:
    return error_mapping.http_status(error) == 409
