"""Errors of boto3, botocore and the file system become ours."""

from __future__ import annotations

import errno
import inspect
import os
from typing import Any

import pytest

from twopass.errors import SourceError, StoreError, TwopassError
from twopass.storage import error_mapping


def exceptions_of(module: Any) -> list[type[Exception]]:
    kinds = [kind for _, kind in inspect.getmembers(module, inspect.isclass) if issubclass(kind, Exception)]
    return [kind for kind in kinds if not issubclass(kind, Warning)]


@pytest.mark.parametrize("raises", [SourceError, StoreError])
def test_every_botocore_exception_is_mapped(raises: type[TwopassError]) -> None:
    """No exception of botocore or boto3 reaches a caller."""
    import boto3.exceptions
    import botocore.exceptions

    kinds = exceptions_of(botocore.exceptions) + exceptions_of(boto3.exceptions)

    assert len(kinds) > 80
    for kind in kinds:
        with pytest.raises(raises, match="s3://b/k"), error_mapping.map_errors("s3://b/k", raises):  # type: ignore[arg-type]
            raise kind.__new__(kind)


@pytest.mark.parametrize(
    ("number", "advice"),
    [
        (errno.EROFS, "the file system is read-only; choose another place"),
        (errno.EACCES, "check the permissions"),
        (errno.EPERM, "check the permissions"),
        (errno.EEXIST, "it is a file, or below a file; name a folder"),
        (errno.ENOTDIR, "it is a file, or below a file; name a folder"),
        (errno.ENOENT, "check the path"),
        (errno.ELOOP, "choose another path"),
    ],
)
def test_errors_of_the_file_system_are_not_described_as_those_of_a_bucket(number: int, advice: str) -> None:
    """A folder that cannot be written is OUTPUT_DENIED, with what is wrong and without advice about S3."""
    with pytest.raises(StoreError) as caught, error_mapping.map_errors("out", StoreError):
        raise OSError(number, os.strerror(number), "out")

    assert str(caught.value).startswith("OUTPUT_DENIED: out: ")
    assert advice in caught.value.message
    assert not any(word in caught.value.message for word in ("s3:", "bucket", "credentials"))
