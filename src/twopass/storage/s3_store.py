"""An S3 URI in, a store of its objects or a downloaded source out.

Knows credentials, endpoints, conditional writes and retries. Knows nothing of documents. boto3 is
imported when something is first fetched or put.
"""

from __future__ import annotations

import asyncio
import re
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass, field
from functools import cache, partial, update_wrapper
from io import BytesIO
from itertools import count
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar
from urllib.parse import urlsplit

import tenacity

from twopass import __version__, job
from twopass.errors import Code, SourceError, StoreError
from twopass.settings import Settings
from twopass.storage import download as landing
from twopass.storage import error_mapping, pinned_connections, ssrf_guard
from twopass.storage.download import CHUNK, Downloaded
from twopass.storage.store import THREADS, Put, Stored, checked, threaded

P = ParamSpec("P")
T = TypeVar("T")

PART_THREADS = 3  # parts of one large object at once
PROBE = ".twopass-probe"
SMALL = 64 << 10  # bytes of a body that a store reads to its end, whatever it answers
CLOSE_S = 5.0  # for calls that a silent store holds: their threads end by themselves
PREPARE_S = 10.0  # of patience with a store that has never answered: its address may be wrong
BACK_OFF = tenacity.wait_random_exponential(multiplier=0.3, max=10)  # full jitter: workers must not come back at once
CONFLICT_PAUSES_S = (0.05, 0.2, 0.8, 2.0)  # after 409: another conditional PUT of the key was under way

_AWS = re.compile(r"https?://(?:[^/@]+\.)?s3[.-]?([a-z0-9-]*)\.amazonaws\.com/?$")


@dataclass(frozen=True)
class Patience:
    """How long an S3 store is waited for: tries in a row, seconds to connect and between two bytes.

    Rows of tries follow one another with growing pauses until `budget_s` is spent; nobody asks a store that is
    about to be closed again.
    """

    attempts: int = 2
    connect_s: float = 5.0
    read_s: float = 30.0
    budget_s: float = 60.0

    def insist(self, work: Callable[[], T], stop: threading.Event, budget_s: float | None = None) -> T:
        """The work's value; raises as the work does at its last try."""
        trying = tenacity.Retrying(
            retry=tenacity.retry_if_exception(error_mapping.passes),
            stop=tenacity.stop_after_delay(self.budget_s if budget_s is None else min(budget_s, self.budget_s))
            | tenacity.stop_when_event_set(stop),
            wait=BACK_OFF,
            sleep=tenacity.sleep_using_event(stop),
            reraise=True,
        )
        return trying(work)


S = TypeVar("S", bound="S3Store")


def patient(method: Callable[Concatenate[S, P], T]) -> Callable[Concatenate[S, P], T]:
    """The method until it succeeds or its store's patience ends."""

    def insisting(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._patience.insist(lambda: method(self, *args, **kwargs), self._closing)

    return update_wrapper(insisting, method)


@dataclass(frozen=True)
class _Access:
    """Which S3, and as whom; None where the AWS chain decides."""

    endpoint_url: str | None
    region: str | None
    keys: dict[str, str | None] = field(repr=False)
    is_jobs: bool

    @classmethod
    def of(cls, settings: Settings, s3: job.S3 | None) -> _Access:
        """All from the job or all from the worker: the worker's keys never go to a job's endpoint."""
        if s3:
            token = s3.session_token.get_secret_value() if s3.session_token else None
            keys = _keys(s3.access_key_id.get_secret_value(), s3.secret_access_key.get_secret_value(), token)
            return cls(*_place(s3.endpoint_url, s3.region), keys, is_jobs=True)
        secret = settings.bucket_secret_access_key or None  # as None: an empty one leaves it to the chain
        keys = _keys(settings.bucket_access_key_id or None, secret.get_secret_value() if secret else None, None)
        return cls(*_place(settings.bucket_endpoint_url, settings.bucket_region), keys, is_jobs=False)

    def check(self, allow_private: bool) -> None:
        """Whether the endpoint may be talked to; raises SourceError. `_client` looks again as it connects."""
        if not self.endpoint_url:
            return
        try:
            parts = urlsplit(self.endpoint_url)
            host, port = parts.hostname, parts.port or 443
        except ValueError:
            parts, host, port = urlsplit(""), None, 443
        if not host or "@" in parts.netloc or parts.scheme not in ("https", "http"):
            raise SourceError(Code.SOURCE_DENIED, "the S3 endpoint is no address; write for example https://s3.host")
        if not self.is_jobs:
            return
        if parts.scheme != "https" and not allow_private:
            raise SourceError(Code.SOURCE_DENIED, f"{host}: the S3 endpoint of a job must be https")
        ssrf_guard.resolve(host, port, allow_private)


def _keys(key: str | None, secret: str | None, token: str | None) -> dict[str, str | None]:
    """As botocore wants them: only None leaves the choice to the AWS chain, "" is a key like any other."""
    return {"aws_access_key_id": key, "aws_secret_access_key": secret, "aws_session_token": token}


def _place(endpoint: str | None, region: str | None) -> tuple[str | None, str | None]:
    """AWS's own addresses, with or without the bucket in them, are a region and no endpoint."""
    if endpoint and (aws := _AWS.match(endpoint)):
        return None, region or aws[1] or None
    return endpoint or None, region or ("us-east-1" if endpoint else None)


@cache
def _loader() -> Any:
    """botocore's API descriptions, parsed once: a client then takes 10 ms and not 60."""
    from botocore.loaders import create_loader

    return create_loader()


def _client(settings: Settings, s3: job.S3 | None, patience: Patience) -> Any:
    """A boto3 client, which may be used by many threads; raises SourceError for a refused endpoint."""
    import boto3
    import botocore.session
    from botocore.config import Config

    error_mapping.quiet()
    access = _Access.of(settings, s3)
    access.check(settings.allow_private_sources)
    stranger = access.is_jobs and bool(access.endpoint_url) and not settings.allow_private_sources
    session = botocore.session.Session()
    session.register_component("data_loader", _loader())
    config = Config(
        signature_version="s3v4",
        retries={"mode": "standard", "total_max_attempts": patience.attempts},
        connect_timeout=patience.connect_s,
        read_timeout=patience.read_s,
        max_pool_connections=THREADS * PART_THREADS,
        tcp_keepalive=True,
        s3={"addressing_style": "path" if access.endpoint_url else "auto"},
        user_agent=f"twopass/{__version__}",  # botocore's own is put together anew for each call: an eighth of a PUT
        # Other vendors' S3 knows no checksum trailers.
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
        # A job's keys must not go to an endpoint that the worker's environment names, either.
        ignore_configured_endpoint_urls=access.is_jobs,
        # A proxy of the environment would choose the address for us.
        proxies={} if stranger else None,
    )
    # The keys go to the client: a boto3.Session takes empty ones for none and asks the chain.
    client = boto3.Session(botocore_session=session, region_name=access.region).client(
        "s3", endpoint_url=access.endpoint_url, config=config, **access.keys
    )
    if stranger:
        pinned_connections.to_public(client)
    client.meta.events.register_last("before-call.s3", _at_once)
    return client


def _at_once(params: dict[str, Any], **_: object) -> None:
    """A small PUT asks no leave: botocore would wait for "100 Continue" first, a way there and back for each page.

    A large one does: a store that refuses it and closes before it has read everything would not be heard.
    """
    from botocore.utils import determine_content_length

    if "Expect" in params["headers"] and (determine_content_length(params["body"]) or 0) <= SMALL:
        del params["headers"]["Expect"]


def _split(uri: str, raises: type[SourceError] | type[StoreError]) -> tuple[str, str]:
    """Bucket and key of s3://bucket/key, to the letter: an S3 URI knows no escapes and no query."""
    bucket, _, key = uri.removeprefix("s3://").partition("/")
    if not bucket:
        code = Code.OUTPUT_DENIED if raises is StoreError else Code.SOURCE_NOT_FOUND
        raise raises(code, "the URI names no bucket; write s3://bucket/key")
    return bucket, key


class _Connection:
    """A client that is made when it is first needed, on whatever thread that is, and closed once."""

    def __init__(self, connect: Callable[[], Any]) -> None:
        self._connect, self._keeping = connect, threading.Lock()
        self._kept: Any = None

    @property
    def client(self) -> Any:
        # Threads that come at once make one each, and one is kept: in turn, names that do not resolve would add up.
        made = self._kept or self._connect()
        with self._keeping:
            self._kept = self._kept or made
        return self._kept

    def close(self) -> None:
        if self._kept:
            self._kept.close()


class S3Store:
    """A prefix in a bucket."""

    keeps = True

    def __init__(self, uri: str, settings: Settings, s3: job.S3 | None, patience: Patience | None = None) -> None:
        self._patience = patience = patience or Patience(budget_s=settings.store_patience_s)
        self._closing = threading.Event()
        self._bucket, prefix = _split(uri, StoreError)
        self._prefix = f"{prefix.rstrip('/')}/" if prefix.strip("/") else ""
        self.uri = f"s3://{self._bucket}/{self._prefix}"
        self.conditional: bool | None = None
        self._multipart = settings.multipart_bytes
        self._attempts = patience.attempts
        self._threads = ThreadPoolExecutor(THREADS, "twopass-s3")
        self._probing = threading.Lock()
        self._connection = _Connection(partial(_client, settings, s3, patience))

    @threaded
    def prepare(self) -> None:
        self._patience.insist(self._knows_conditions, self._closing, PREPARE_S)

    @threaded
    @patient
    def get(self, key: str) -> Stored | None:
        return self._get(key)

    @threaded
    @patient
    def put(self, key: str, data: bytes, content_type: str) -> None:
        if len(data) <= self._multipart:
            self._put(key, data, content_type)
        else:
            self._put_in_parts(key, data, content_type)

    @threaded
    @patient
    def create(self, key: str, data: bytes, content_type: str) -> Put:
        if self._knows_conditions():
            written = self._put_if(key, data, content_type, IfNoneMatch="*")
        elif written := self._etag(key) is None:
            self._put(key, data, content_type)
        return Put.WRITTEN if written else Put.EXISTS

    @threaded
    @patient
    def replace(self, key: str, data: bytes, content_type: str, etag: str) -> bool:
        if self._knows_conditions():
            try:
                return self._put_if(key, data, content_type, IfMatch=etag)
            except self._client.exceptions.ClientError as error:
                if not error_mapping.is_unsupported(error):
                    raise
        if same := self._etag(key) == etag:
            self._put(key, data, content_type)
        return same

    @threaded
    @patient
    def keys(self, prefix: str) -> frozenset[str]:
        pages = self._client.get_paginator("list_objects_v2").paginate(
            Bucket=self._bucket, Prefix=self._prefix + prefix
        )
        found = (entry["Key"] for page in pages for entry in page.get("Contents", ()))
        return frozenset(key.removeprefix(self._prefix) for key in found)

    async def close(self) -> None:
        """Puts that are under way may end, for a while; those that wait, and further tries, are dropped."""
        self._closing.set()
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_S):
                await asyncio.to_thread(self._threads.shutdown, wait=True, cancel_futures=True)
        self._connection.close()

    @property
    def _client(self) -> Any:
        return self._connection.client

    def _at(self, key: str) -> dict[str, str]:
        return {"Bucket": self._bucket, "Key": self._prefix + checked(key)}

    def _get(self, key: str) -> Stored | None:
        get = partial(self._client.get_object, **self._at(key))
        try:
            answer = get()
        except self._client.exceptions.NoSuchKey:
            return None
        return Stored(b"".join(_body(get, answer, self._attempts)), answer["ETag"])

    def _etag(self, key: str) -> str | None:
        """The version that is there now; None: nothing is."""
        try:
            return str(self._client.head_object(**self._at(key))["ETag"])
        except self._client.exceptions.ClientError as error:
            if error_mapping.status_of(error) != 404:
                raise
            return None

    def _put(self, key: str, data: bytes, content_type: str, **condition: str) -> None:
        self._client.put_object(**self._at(key), Body=data, ContentType=content_type, **condition)

    def _put_in_parts(self, key: str, data: bytes, content_type: str) -> None:
        from boto3.s3.transfer import TransferConfig

        parts = TransferConfig(
            multipart_threshold=self._multipart,
            multipart_chunksize=self._multipart,
            max_concurrency=PART_THREADS,
            preferred_transfer_client="classic",
        )
        self._client.upload_fileobj(
            BytesIO(data), **self._at(key), ExtraArgs={"ContentType": content_type}, Config=parts
        )

    def _put_if(self, key: str, data: bytes, content_type: str, **condition: str) -> bool:
        """One conditional PUT, tried while the store is down; False when it was refused and not only its repetition."""
        tries = count()
        once = partial(self._put_once, key, data, content_type, condition)
        return self._patience.insist(lambda: once(retried=next(tries)), self._closing)

    def _put_once(self, key: str, data: bytes, content_type: str, condition: dict[str, str], retried: int = 0) -> bool:
        for pause in (*CONFLICT_PAUSES_S, None):
            try:
                self._put(key, data, content_type, **condition)
                return True
            except self._client.exceptions.ClientError as error:
                retried += error.response["ResponseMetadata"].get("RetryAttempts", 0)
                if error_mapping.status_of(error) == 412:
                    # The first try may have landed and only its answer been lost; a nonce in the data tells.
                    return retried > 0 and self._holds(key, data)
                if "IfMatch" in condition and error_mapping.code_of(error) == "NoSuchKey":
                    return False
                if error_mapping.status_of(error) != 409 or pause is None:
                    raise
            retried += 1
            time.sleep(pause)
        raise AssertionError("unreachable")

    def _holds(self, key: str, data: bytes) -> bool:
        stored = self._get(key)
        return stored is not None and stored.data == data

    def _knows_conditions(self) -> bool:
        with self._probing:
            if self.conditional is None:
                self.conditional = self._probe()
        return self.conditional

    def _probe(self) -> bool:
        """Create an object twice: the second time must be refused, or the store ignores the header."""

        def put() -> bool:
            return self._put_once(PROBE, secrets.token_bytes(8), "application/octet-stream", {"IfNoneMatch": "*"})

        try:
            if not put():
                return True  # another worker's probe lies there, and it is that worker's to delete
            known = not put()
        except self._client.exceptions.ClientError as error:
            if error_mapping.is_unsupported(error):
                return False
            raise
        # Keys that may not delete leave one tiny object, which later probes are glad of.
        with suppress(*error_mapping.foreign()):
            self._client.delete_object(**self._at(PROBE))
        return known


class S3Sources:
    """Objects to be read, of one job: one client, which takes longer to make than a small object to fetch."""

    def __init__(self, settings: Settings, s3: job.S3 | None, patience: Patience | None = None) -> None:
        self._patience = patience = patience or Patience(budget_s=settings.store_patience_s)
        self._settings = settings
        self._connection = _Connection(partial(_client, settings, s3, patience))

    async def download(self, uri: str, target: Path, limit_bytes: int) -> Downloaded:
        """s3://bucket/key into the target file; its size is checked before its bytes are read."""
        file = landing.Target(target, limit_bytes, landing.label(uri))
        stop = threading.Event()  # a cancelled await leaves its thread running
        try:
            async with asyncio.timeout(self._settings.fetch_timeout_s):
                return await landing.on_thread(self._download, uri, file, stop)
        except TimeoutError as error:
            raise landing.late(uri, self._settings) from error
        finally:
            stop.set()

    def close(self) -> None:
        self._connection.close()

    def _download(self, uri: str, target: landing.Target, stop: threading.Event) -> Downloaded:
        bucket, key = _split(uri, SourceError)

        def wanted() -> None:
            if stop.is_set():
                message = f"{landing.label(uri)}: nobody waits for it any more"
                raise SourceError(Code.STORE_UNAVAILABLE, message)

        with error_mapping.translated(landing.label(uri), SourceError), target as file:
            client = self._connection.client

            def get(**part: str) -> Any:
                wanted()
                return self._patience.insist(partial(client.get_object, Bucket=bucket, Key=key, **part), stop)

            answer = get()
            with closing(answer["Body"]):
                file.expect(answer["ContentLength"])
                for chunk in _body(get, answer, self._patience.attempts):
                    wanted()
                    file.write(chunk)
            return file.finished(answer["ETag"], answer.get("ContentType"))


def _body(get: Callable[..., Any], answer: Any, attempts: int) -> Iterator[bytes]:
    """The object's bytes; where the connection breaks, the same version is read on from there."""
    done = 0
    for left in reversed(range(attempts)):
        try:
            with closing(answer["Body"]) as body:
                while chunk := body.read(CHUNK):
                    yield chunk
                    done += len(chunk)
            return
        except error_mapping.foreign():
            if not left:
                raise
        answer = get(Range=f"bytes={done}-", IfMatch=answer["ETag"])
