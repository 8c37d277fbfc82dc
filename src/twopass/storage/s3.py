"""S3: sources and outputs in a bucket, with conditional writes where the vendor supports them.

boto3 is imported when a client is first made, which is at the first call.
"""

from __future__ import annotations

import asyncio
import re
import secrets
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from functools import cache, partial
from io import BytesIO
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from twopass import job, locations
from twopass.errors import Code, SourceError, StoreError
from twopass.runtime import retry
from twopass.runtime.retry import RetryPolicy
from twopass.settings import Settings
from twopass.storage import error_mapping, sources, ssrf_guard
from twopass.storage.sources import CHUNK_BYTES, DownloadResult, TargetFile
from twopass.storage.store import THREADS, CreateResult, Stored, check_key, retry_call, run_on_threads
from twopass.version import VERSION

_PART_THREADS = 3  # concurrent parts of one large object
SMALL_BODY_BYTES = 64 << 10  # a store reads a body of this size to its end before it closes a connection
_PROBE_KEY = ".twopass-probe"
_CLOSE_S = 5.0  # to wait for running calls; calls to a store that does not answer end later, on their own threads

_AWS = re.compile(r"https?://(?:[^/@]+\.)?s3[.-]?([a-z0-9-]*)\.amazonaws\.com/?$", re.IGNORECASE)


@dataclass(frozen=True)
class S3Limits:
    """Timeouts and retries for an S3 store: seconds to connect and between two bytes, and when a call is retried.

    `request` is botocore's own retry within one call; `call` repeats that with longer pauses.
    """

    connect_s: float = 5.0
    read_s: float = 30.0
    request: RetryPolicy = retry.S3_REQUEST
    call: RetryPolicy = replace(retry.STORE_CALL, is_retryable=error_mapping.is_transient)

    @classmethod
    def from_settings(cls, settings: Settings) -> S3Limits:
        limits = cls()
        return replace(limits, call=replace(limits.call, budget_s=settings.store_patience_s))

    @property
    def prepare(self) -> RetryPolicy:
        """For the first call to a store, which has a shorter budget."""
        return replace(retry.STORE_PREPARE.shorten(self.call.budget_s), is_retryable=self.call.is_retryable)


class S3Reader:
    """Downloads objects of one job through one client, which takes longer to make than a small object to fetch."""

    def __init__(self, settings: Settings, s3: job.S3 | None, limits: S3Limits | None = None) -> None:
        self._limits = limits = limits or S3Limits.from_settings(settings)
        self._lazy_client = _LazyClient(partial(create_client, settings, s3, limits))

    async def download(self, uri: str, target: Path, limit_bytes: int) -> DownloadResult:
        """Write s3://bucket/key to the target file. Its size is checked before its bytes are read."""
        file = TargetFile(target, limit_bytes, locations.redact(uri))
        stop = threading.Event()  # a cancelled await leaves its thread running
        try:
            return await sources.run_in_thread(self._download, uri, file, stop)
        finally:
            stop.set()

    def close(self) -> None:
        self._lazy_client.close()

    def _download(self, uri: str, target: TargetFile, stop: threading.Event) -> DownloadResult:
        bucket, key = _parse_uri(uri, SourceError)
        label = locations.redact(uri)
        if not key:
            raise SourceError(Code.SOURCE_NOT_FOUND, f"{label}: names a bucket and no object; write s3://bucket/key")

        def check_stop() -> None:
            if stop.is_set():
                raise SourceError(Code.STORE_UNAVAILABLE, f"{label}: the download was cancelled")

        with error_mapping.map_errors(label, SourceError), target as file:
            client = self._lazy_client.client

            def get(**arguments: str) -> Any:
                check_stop()
                return self._limits.call.run(partial(client.get_object, Bucket=bucket, Key=key, **arguments), stop)

            response = get()
            with closing(response["Body"]):
                file.check_size(response["ContentLength"])
                for chunk in _iter_body(get, response, self._limits.request.attempts):
                    check_stop()
                    file.write(chunk)
            return file.finish(response["ETag"], response.get("ContentType"))


class S3Store:
    """A prefix in a bucket."""

    is_persistent = True

    def __init__(self, uri: str, settings: Settings, s3: job.S3 | None, limits: S3Limits | None = None) -> None:
        self._limits = limits = limits or S3Limits.from_settings(settings)
        self._retries = limits.call
        self._closing = threading.Event()
        self._bucket, prefix = _parse_uri(uri, StoreError)
        self._prefix = f"{prefix.rstrip('/')}/" if prefix.strip("/") else ""
        self.uri = f"s3://{self._bucket}/{self._prefix}"
        self.conditional: bool | None = None
        self._multipart_bytes = settings.multipart_bytes
        self._threads = ThreadPoolExecutor(THREADS, "twopass-s3")
        self._probe_lock = threading.Lock()
        self._lazy_client = _LazyClient(partial(create_client, settings, s3, limits))

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
        self._client.delete_object(**self._location(key))

    async def close(self) -> None:
        """Wait a few seconds for running calls. Waiting calls and further attempts are dropped."""
        self._closing.set()
        with suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_S):
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
        body = _iter_body(get, response, self._limits.request.attempts)
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
        config = _multipart_config(self._multipart_bytes)
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
            return self._put_unless_conflict(_PROBE_KEY, data, "application/octet-stream", {"IfNoneMatch": "*"})

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
            self._client.delete_object(**self._location(_PROBE_KEY))
        return is_supported


def _is_conflict(error: BaseException) -> bool:
    return error_mapping.http_status(error) == 409


# ---- clients ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Access:
    """Endpoint, region and credentials; None where botocore's own configuration chain decides."""

    endpoint_url: str | None = field(repr=False)
    region: str | None
    keys: dict[str, str | None] = field(repr=False)
    is_from_job: bool

    @classmethod
    def choose(cls, settings: Settings, s3: job.S3 | None) -> _Access:
        """Everything from the job or everything from the worker: the worker's keys never go to a job's endpoint."""
        if s3:
            token = s3.session_token.get_secret_value() if s3.session_token else None
            keys = _botocore_keys(s3.access_key_id.get_secret_value(), s3.secret_access_key.get_secret_value(), token)
            return cls(*endpoint_and_region(s3.endpoint_url, s3.region), keys, is_from_job=True)
        secret = settings.bucket_secret_access_key or None  # an empty setting leaves the choice to the chain
        key_id = settings.bucket_access_key_id or None
        keys = _botocore_keys(key_id, secret.get_secret_value() if secret else None, None)
        place = endpoint_and_region(settings.bucket_endpoint_url, settings.bucket_region)
        return cls(*place, keys, is_from_job=False)

    def check(self, allow_private: bool) -> None:
        """Raise SourceError for an endpoint that must not be contacted. A client checks again as it connects."""
        if not self.endpoint_url:
            return
        try:
            parts = urlsplit(self.endpoint_url)
            host, port = parts.hostname, parts.port or 443
        except ValueError:
            parts, host, port = urlsplit(""), None, 443
        if not host or "@" in parts.netloc or parts.scheme not in ("https", "http"):
            raise SourceError(
                Code.SOURCE_DENIED, "the S3 endpoint is not a valid address; write for example https://s3.host"
            )
        if not self.is_from_job:
            return
        if parts.scheme != "https" and not allow_private:
            raise SourceError(Code.SOURCE_DENIED, f"{host}: the S3 endpoint of a job must be https")
        ssrf_guard.resolve(host, port, allow_private)


def _botocore_keys(key_id: str | None, secret: str | None, token: str | None) -> dict[str, str | None]:
    """Client arguments. For botocore only None leaves the choice to the AWS chain; "" is a key like any other."""
    return {"aws_access_key_id": key_id, "aws_secret_access_key": secret, "aws_session_token": token}


def endpoint_and_region(endpoint: str | None, region: str | None) -> tuple[str | None, str | None]:
    """Client arguments. An address of AWS itself, with or without the bucket in it, is a region and no endpoint."""
    if endpoint and (aws := _AWS.match(endpoint)):
        return None, region or aws[1].lower() or None
    return endpoint or None, region or ("us-east-1" if endpoint else None)


@cache
def _data_loader() -> Any:
    """botocore's API descriptions, parsed once: a client then takes 10 ms and not 60."""
    from botocore.loaders import create_loader

    return create_loader()


def preload() -> None:
    """Import boto3, and read what botocore reads for the first client of a process. No connection is made."""
    import boto3
    import botocore.session

    session = botocore.session.Session()
    session.register_component("data_loader", _data_loader())
    keys = _botocore_keys("none", "none", None)
    boto3.Session(botocore_session=session, region_name="us-east-1").client("s3", **keys).close()
    _multipart_config(1)


def create_client(settings: Settings, s3: job.S3 | None, limits: S3Limits) -> Any:
    """A boto3 client, which many threads may use; raises SourceError for a refused endpoint."""
    import boto3
    import botocore.session
    from botocore.config import Config

    error_mapping.silence_loggers()
    access = _Access.choose(settings, s3)
    access.check(settings.allow_private_sources)
    must_be_public = access.is_from_job and bool(access.endpoint_url) and not settings.allow_private_sources
    session = botocore.session.Session()
    session.register_component("data_loader", _data_loader())
    # No caller needs times. Parsing them takes two thirds of the time of a listing.
    session.get_component("response_parser_factory").set_parser_defaults(timestamp_parser=str)
    config = Config(
        signature_version="s3v4",
        retries={"mode": "standard", "total_max_attempts": limits.request.attempts},
        connect_timeout=limits.connect_s,
        read_timeout=limits.read_s,
        max_pool_connections=THREADS * _PART_THREADS,
        tcp_keepalive=True,
        s3={"addressing_style": "path" if access.endpoint_url else "auto"},
        user_agent=f"twopass/{VERSION}",  # building botocore's own for each call takes an eighth of a PUT's time
        # The S3 stores of other vendors do not support checksum trailers.
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
        # The worker's environment may name an endpoint too, and a job's keys must not go there.
        ignore_configured_endpoint_urls=access.is_from_job,
        # A proxy from the environment would choose the address instead of our check.
        proxies={} if must_be_public else None,
    )
    # The keys go to the client: boto3.Session treats empty ones as missing and asks the AWS chain.
    client = boto3.Session(botocore_session=session, region_name=access.region).client(
        "s3", endpoint_url=access.endpoint_url, config=config, **access.keys
    )
    if must_be_public:
        ssrf_guard.restrict_to_public(client)
    client.meta.events.register_last("before-call.s3", _send_small_bodies_at_once)
    return client


def _send_small_bodies_at_once(params: dict[str, Any], **_: object) -> None:
    """Remove "Expect: 100-continue" from a small PUT: waiting for the answer costs a round trip for each page.

    A large PUT keeps it. Otherwise a store that refuses the request and closes the connection before it has read
    the body would look like a broken connection.
    """
    from botocore.utils import determine_content_length

    if "Expect" in params["headers"] and (determine_content_length(params["body"]) or 0) <= SMALL_BODY_BYTES:
        del params["headers"]["Expect"]


def _multipart_config(part_bytes: int) -> Any:
    """The transfer configuration for an upload in parts of this size."""
    from boto3.s3.transfer import TransferConfig

    return TransferConfig(
        multipart_threshold=part_bytes,
        multipart_chunksize=part_bytes,
        max_concurrency=_PART_THREADS,
        preferred_transfer_client="classic",
    )


def _parse_uri(uri: str, raises: type[SourceError] | type[StoreError]) -> tuple[str, str]:
    """Bucket and key of s3://bucket/key."""
    bucket, key = locations.split_bucket(uri)
    if not bucket:
        code = Code.OUTPUT_DENIED if raises is StoreError else Code.SOURCE_NOT_FOUND
        raise raises(code, "the URI names no bucket; write s3://bucket/key")
    return bucket, key


class _LazyClient:
    """A client that is made when it is first used, on whichever thread that is, and closed once."""

    def __init__(self, create: Callable[[], Any]) -> None:
        self._create, self._lock = create, threading.Lock()
        self._client: Any = None

    @property
    def client(self) -> Any:
        # Threads that arrive together each make a client and one is kept. Under a lock they would wait for one
        # another, and the time-outs of a name that does not resolve would add up.
        created = self._client or self._create()
        with self._lock:
            self._client = self._client or created
        return self._client

    def close(self) -> None:
        if self._client:
            self._client.close()


def _iter_body(get: Callable[..., Any], response: Any, attempts: int) -> Iterator[bytes]:
    """Yield the bytes of an object. When the connection breaks, continue from there with the same version.

    `get` repeats the GetObject call with further arguments.
    """
    done = 0
    for remaining in reversed(range(attempts)):
        try:
            with closing(response["Body"]) as body:
                while chunk := body.read(CHUNK_BYTES):
                    yield chunk
                    done += len(chunk)
            return
        except error_mapping.foreign_errors():
            if not remaining:
                raise
        response = get(Range=f"bytes={done}-", IfMatch=response["ETag"])
