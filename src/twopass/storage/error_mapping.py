"""Errors of boto3, botocore, urllib3 and the file system in, ours with their codes out.

Knows what S3 and a disk say when they refuse. Knows nothing of buckets, keys or sources.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from functools import cache
from typing import Any

from twopass.errors import Code, SourceError, StoreError

LOUD = ("httpx", "httpcore", "boto3", "botocore", "s3transfer", "urllib3")  # they log presigned queries and tokens


PASSING = frozenset({"SlowDown", "RequestTimeout", "RequestTimeTooSkewed", "InternalError", "ServiceUnavailable"})


class _Fault(Enum):
    MISSING = "nothing is there; check bucket and key"
    NO_BUCKET = "the bucket does not exist; check its name, the region and the endpoint"
    DENIED = "access denied; check the credentials and that they allow s3:GetObject, s3:PutObject and s3:ListBucket"
    SKEWED = "the store says that this machine's clock is wrong; wait until it is set, or replace the worker"
    FULL = "no space is left; free some or choose another place"
    DOWN = "the store cannot be reached or does not answer as it should; check the endpoint or try again later"


_CODES = {  # as a source, as an output
    _Fault.MISSING: (Code.SOURCE_NOT_FOUND, Code.OUTPUT_DENIED),
    _Fault.NO_BUCKET: (Code.SOURCE_NOT_FOUND, Code.OUTPUT_DENIED),
    _Fault.DENIED: (Code.SOURCE_DENIED, Code.OUTPUT_DENIED),
    _Fault.FULL: (Code.STORE_UNAVAILABLE, Code.STORE_UNAVAILABLE),
    _Fault.SKEWED: (Code.STORE_UNAVAILABLE, Code.STORE_UNAVAILABLE),
    _Fault.DOWN: (Code.STORE_UNAVAILABLE, Code.STORE_UNAVAILABLE),
}
_FAULTS = {  # an S3 code, an HTTP status or an exception's class; what is not here is DOWN
    **dict.fromkeys(("NoSuchBucket", "InvalidBucketName", "ParamValidationError"), _Fault.NO_BUCKET),
    "RequestTimeTooSkewed": _Fault.SKEWED,
    **dict.fromkeys(("ENOSPC", "EDQUOT"), _Fault.FULL),
    **dict.fromkeys(("NoSuchKey", "404", "FileNotFoundError"), _Fault.MISSING),
    **dict.fromkeys(
        (
            *("401", "403", "AccessDenied", "InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken"),
            *("InvalidToken", "NoCredentialsError", "PartialCredentialsError", "CredentialRetrievalError"),
            *("NoAuthTokenError", "TokenRetrievalError", "UnknownTokenProviderError", "ProfileNotFound"),
            *("MetadataRetrievalError", "RefreshWithMFAUnsupportedError", "SSOError", "LoginError"),
            *("PermissionError", "IsADirectoryError", "NotADirectoryError", "FileExistsError"),
        ),
        _Fault.DENIED,
    ),
}


def foreign() -> tuple[type[Exception], ...]:
    """Whatever boto3 and the file system raise; imported when something was raised."""
    from boto3.exceptions import Boto3Error
    from botocore.exceptions import BotoCoreError, ClientError, UndefinedModelAttributeError
    from urllib3.exceptions import HTTPError

    return BotoCoreError, ClientError, UndefinedModelAttributeError, Boto3Error, HTTPError, OSError


@contextmanager
def translated(label: str, raises: type[SourceError] | type[StoreError]) -> Iterator[None]:
    """Errors of boto3, botocore and the file system become ours; the label is a URI that may be shown."""
    output = raises is StoreError
    try:
        yield
    except SourceError as error:  # a job's endpoint was refused
        if not output:
            raise
        code = Code.OUTPUT_DENIED if error.code is Code.SOURCE_DENIED else error.code
        raise StoreError(code, error.message) from error
    except foreign() as error:
        if refused := refusal(error):
            raise raises(Code.OUTPUT_DENIED if output else refused.code, refused.message) from error
        names = [name for name in _names(error) if name]
        fault = next((_FAULTS[name] for name in names if name in _FAULTS), _Fault.DOWN)
        # Not the error's own text: botocore's holds addresses with their queries.
        raise raises(_CODES[fault][output], f"{label}: {fault.value} ({names[0]})") from error


def _names(error: Exception) -> Iterator[str]:
    """What an error is called, the most telling first."""
    yield code_of(error)
    yield str(status_of(error) or "")
    yield errno.errorcode.get(getattr(error, "errno", None) or 0, "")
    yield from (kind.__name__ for kind in type(error).__mro__)


def code_of(error: Any) -> str:
    return str((getattr(error, "response", None) or {}).get("Error", {}).get("Code", ""))


def status_of(error: Any) -> int | None:
    status = (getattr(error, "response", None) or {}).get("ResponseMetadata", {}).get("HTTPStatusCode")
    return int(status) if status else None


def passes(error: BaseException | None) -> bool:
    """Whether another try may end better: a store that is busy, broken or cannot be reached, a clock just restored."""
    from botocore.exceptions import ClientError, HTTPClientError
    from urllib3.exceptions import HTTPError

    if error is None or refusal(error):
        return False
    if isinstance(error, ClientError):
        status = status_of(error) or 0
        return (status >= 500 and status != 501) or status == 429 or code_of(error) in PASSING
    if isinstance(error, (HTTPClientError, HTTPError, ConnectionError, TimeoutError)):
        return True
    return passes(_cause(error))  # an upload in parts wraps what went wrong


def refusal(error: BaseException | None) -> SourceError | None:
    """Our own no to an address, which other libraries wrap as a connection that failed."""
    while error is not None:
        if isinstance(error, SourceError) and error.code is Code.SOURCE_DENIED:
            return error
        error = _cause(error)
    return None


def _cause(error: BaseException) -> BaseException | None:
    """What an error came from; botocore keeps it in its own way."""
    kept = getattr(error, "kwargs", None)
    inner = kept.get("error") if isinstance(kept, dict) else None
    return error.__cause__ or (inner if isinstance(inner, BaseException) else None) or error.__context__


def is_unsupported(error: Any) -> bool:
    """Whether the store says that it knows no conditional headers."""
    refusals = ("NotImplemented", "InvalidArgument", "InvalidRequest")
    return status_of(error) == 501 or (status_of(error) == 400 and code_of(error) in refusals)


@cache
def quiet() -> None:
    """Once these libraries are used: no presigned query and no session token may reach a log."""
    for name in LOUD:
        logging.getLogger(name).setLevel(logging.WARNING)
