"""S3 clients: whose credentials go to which endpoint."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import SecretStr

from tests.fakes import s3
from twopass import job
from twopass.errors import StoreError
from twopass.storage.s3 import S3Store, create_client, endpoint_and_region

TEXT = "text/plain"


def job_s3(endpoint: str | None, **more: Any) -> job.S3:
    return job.S3(access_key_id="job-key", secret_access_key="job-secret", endpoint_url=endpoint, **more)


async def test_a_jobs_endpoint_sees_only_the_jobs_keys(endpoint: str, bucket: Any) -> None:
    """The worker's own keys are never sent to an address that a job named."""
    proxy = s3.Proxy(endpoint)
    with proxy.serve() as url:
        worker = s3.settings("https://worker.example", allow_private_sources=True)
        output = S3Store("s3://bucket/out", worker, job_s3(url), s3.QUICK)
        await output.create("key", b"", TEXT)
        await output.close()

    credentials = {
        request.headers["Authorization"].partition("Credential=")[2].partition("/")[0] for request in proxy.requests
    }
    assert credentials == {"job-key"}


async def test_a_jobs_keys_go_to_aws_and_not_to_the_workers_endpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    """A job without an endpoint means AWS, whatever the worker's settings and environment name."""
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "https://worker.example")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "the-workers")

    client = create_client(s3.settings("https://worker.example"), job_s3(None, region="eu-west-1"), s3.QUICK)

    assert client.meta.endpoint_url == "https://s3.eu-west-1.amazonaws.com"
    assert "X-Amz-Security-Token" not in client.generate_presigned_url("get_object", {"Bucket": "b", "Key": "k"})
    client.close()


@pytest.mark.parametrize(("key", "secret"), [("", ""), ("job-key", ""), ("", "job-secret")])
async def test_a_job_with_empty_keys_does_not_use_the_workers(
    endpoint: str, bucket: Any, monkeypatch: pytest.MonkeyPatch, key: str, secret: str
) -> None:
    """Empty credentials of a job are sent as they are; the worker's AWS chain does not replace them."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "the-workers-key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "the-workers-secret")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "the-workers-token")
    proxy = s3.Proxy(endpoint)
    with proxy.serve() as url:
        empty = job.S3.model_construct(
            access_key_id=SecretStr(key), secret_access_key=SecretStr(secret), endpoint_url=url
        )
        output = S3Store("s3://bucket/out", s3.settings(None, allow_private_sources=True), empty, s3.QUICK)
        await output.put("key", b"", TEXT)
        await output.close()

    assert proxy.requests and not any("the-workers" in str(request.headers) for request in proxy.requests)


@pytest.mark.parametrize(
    "url",
    [
        "http://8.8.8.8",
        "https://127.0.0.1:9000",
        "https://169.254.169.254",
        "https://[::1]",
        "https://[::1",
        "https://user:pass@8.8.8.8",
        "ftp://8.8.8.8",
        "nonsense",
        "https://8.8.8.8:99999999",
    ],
)
async def test_a_jobs_endpoint_is_checked_like_a_source(url: str) -> None:
    """A job's endpoint must be https on the public network."""
    output = S3Store("s3://bucket/out", s3.settings(None), job_s3(url), s3.QUICK)

    with pytest.raises(StoreError, match="OUTPUT_DENIED"):
        await output.put("key", b"", TEXT)
    await output.close()


@pytest.mark.parametrize(
    ("given_url", "region", "expected"),
    [
        ("https://docs.s3.eu-central-1.amazonaws.com", None, (None, "eu-central-1")),
        ("https://s3.amazonaws.com", None, (None, None)),
        ("HTTPS://Docs.S3.EU-Central-1.amazonaws.com", None, (None, "eu-central-1")),
        ("https://s3-us-west-2.amazonaws.com/", None, (None, "us-west-2")),
        ("https://s3.host", None, ("https://s3.host", "us-east-1")),
        ("https://s3.host", "nyc3", ("https://s3.host", "nyc3")),
        (
            "https://s3.eu-west-1.amazonaws.com.evil.example",
            None,
            ("https://s3.eu-west-1.amazonaws.com.evil.example", "us-east-1"),
        ),
    ],
)
def test_an_aws_endpoint_is_converted_to_a_region(
    given_url: str, region: str | None, expected: tuple[str | None, ...]
) -> None:
    """BUCKET_ENDPOINT_URL as other RunPod workers expect it, with the bucket in it, works here too."""
    assert endpoint_and_region(given_url, region) == expected
