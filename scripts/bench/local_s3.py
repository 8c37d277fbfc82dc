"""Start the loopback S3 server in a process of its own, and connect to it. boto3 is imported when it is needed."""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import Any

from scripts.bench import loopback

BUCKET = "bench"
ACCESS_KEY, SECRET_KEY = "key", "secret"  # any will do
PUTS, PUT_BYTES, PUT_THREADS = 400, 30_000, 16


def start_server() -> AbstractContextManager[str]:
    """Yield the endpoint URL of a new server."""
    return loopback.start_process("scripts.bench.s3_server")


def connect(endpoint: str) -> Any:
    import boto3
    from botocore.config import Config

    config = Config(s3={"addressing_style": "path"}, max_pool_connections=32)
    session = boto3.Session(ACCESS_KEY, SECRET_KEY, region_name="us-east-1")
    return session.client("s3", endpoint_url=endpoint, config=config)


def measure_puts_per_s(endpoint: str) -> float:
    """How many puts of 30 kB a second the server takes from this process, sixteen at a time."""
    client, data = connect(endpoint), os.urandom(PUT_BYTES)
    started = time.monotonic()
    with ThreadPoolExecutor(PUT_THREADS) as pool:
        list(pool.map(lambda n: client.put_object(Bucket=BUCKET, Key=f"c/{n}", Body=data), range(PUTS)))
    return PUTS / (time.monotonic() - started)
