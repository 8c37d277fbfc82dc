"""A bucket's name in, the bucket on the S3 server of BUCKET_ENDPOINT_URL out; waits for a server that is starting.

python scripts/make_bucket.py documents
"""

from __future__ import annotations

import sys
import time

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from twopass.settings import Settings

TRIES, PAUSE_S = 60, 1.0
THERE = ("BucketAlreadyOwnedByYou", "BucketAlreadyExists")


def main(names: list[str]) -> int:
    if not names:
        print("name at least one bucket", file=sys.stderr)
        return 2
    settings = Settings()
    secret = settings.bucket_secret_access_key
    client = boto3.Session(
        settings.bucket_access_key_id, secret and secret.get_secret_value(), region_name="us-east-1"
    ).client(
        "s3", endpoint_url=settings.bucket_endpoint_url, config=Config(s3={"addressing_style": "path"}, retries=None)
    )
    for name in names:
        for left in reversed(range(TRIES)):
            try:
                client.create_bucket(Bucket=name)
                break
            except ClientError as error:
                if error.response["Error"]["Code"] in THERE:
                    break
                raise
            except BotoCoreError as error:
                if not left:
                    print(f"no S3 server answers: {type(error).__name__}", file=sys.stderr)
                    return 1
                time.sleep(PAUSE_S)
        print(f"s3://{name}/ is there")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
