"""Download sources from S3."""

from __future__ import annotations

import asyncio
import threading
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

from twopass import job, locations
from twopass.errors import Code, SourceError
from twopass.settings import Settings
from twopass.storage import download, error_mapping, s3_client
from twopass.storage.download import DownloadResult, TargetFile
from twopass.storage.s3_client import LazyClient, S3Limits


class S3Downloader:
    """Downloads objects of one job through one client, which takes longer to make than a small object to fetch."""

    def __init__(self, settings: Settings, s3: job.S3 | None, limits: S3Limits | None = None) -> None:
        self._limits = limits = limits or S3Limits.from_settings(settings)
        self._settings = settings
        self._lazy_client = LazyClient(partial(s3_client.create_client, settings, s3, limits))

    async def download(self, uri: str, target: Path, limit_bytes: int) -> DownloadResult:
        """Write s3://bucket/key to the target file. Its size is checked before its bytes are read."""
        file = TargetFile(target, limit_bytes, locations.redact(uri))
        stop = threading.Event()  # a cancelled await leaves its thread running
        try:
            async with asyncio.timeout(self._settings.fetch_timeout_s):
                return await download.run_in_thread(self._download, uri, file, stop)
        except TimeoutError as error:
            raise download.timeout_error(uri, self._settings) from error
        finally:
            stop.set()

    def close(self) -> None:
        self._lazy_client.close()

    def _download(self, uri: str, target: TargetFile, stop: threading.Event) -> DownloadResult:
        bucket, key = s3_client.parse_s3_uri(uri, SourceError)
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
                for chunk in s3_client.iter_body(get, response, self._limits.request.attempts):
                    check_stop()
                    file.write(chunk)
            return file.finish(response["ETag"], response.get("ContentType"))
