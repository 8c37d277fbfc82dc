"""Errors of boto3, botocore and the file system become ours."""

from __future__ import annotations

import inspect
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
