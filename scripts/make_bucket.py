"""Create buckets on the S3 server of BUCKET_ENDPOINT_URL, once it answers; compose.yaml runs this.

python scripts/make_bucket.py documents
"""

from __future__ import annotations

import sys
import time
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from twopass.settings import Settings

TRIES, PAUSE_S = 60, 1.0
EXISTS = ("BucketAlreadyOwnedByYou", "BucketAlreadyExists")


def main(names: list[str]) -> int:
    if not names:
        print("name at least one bucket", file=sys.stderr)
        return 2
    client = connect(Settings())
    for name in names:
        try:
            create_bucket(client, name)
        except BotoCoreError as error:
            print(f"the S3 server does not answer: {type(error).__name__}", file=sys.stderr)
            return 1
        print(f"bucket {name} exists")
    return 0


def connect(settings: Settings) -> Any:
    secret = settings.bucket_secret_access_key
    session = boto3.Session(
        settings.bucket_access_key_id, secret and secret.get_secret_value(), region_name="us-east-1"
    )
    config = Config(s3={"addressing_style": "path"}, retries=None)
    return session.client("s3", endpoint_url=settings.bucket_endpoint_url, config=config)


def create_bucket(client: Any, name: str) -> None:
    """Create a bucket if it does not exist; try for a minute while the server is starting."""
    for remaining in reversed(range(TRIES)):
        try:
            client.create_bucket(Bucket=name)
            return
        except ClientError as error:
            if error.response["Error"]["Code"] in EXISTS:
                return
            raise
        except BotoCoreError:
            if not remaining:
                raise
            time.sleep(PAUSE_S)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
