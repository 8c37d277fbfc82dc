"""Translate errors of boto3, botocore, urllib3 and the file system into ours, with their codes."""

from __future__ import annotations

import errno
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from functools import cache
from typing import Any

from twopass.errors import Code, SourceError, StoreError

# They log presigned queries and tokens.
NOISY_LOGGERS = ("httpx", "httpcore", "boto3", "botocore", "s3transfer", "urllib3")

_TRANSIENT_CODES = frozenset(
    {"SlowDown", "RequestTimeout", "RequestTimeTooSkewed", "InternalError", "ServiceUnavailable"}
)

# Of a disk that is full for the moment, of a mounted volume whose server is away, and of a busy system.
_TRANSIENT_ERRNOS = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.ESTALE, errno.EREMOTEIO, errno.EAGAIN, errno.EBUSY, errno.EINTR}
    | {errno.ETIMEDOUT, errno.ENETDOWN, errno.ENETUNREACH, errno.ENETRESET, errno.EHOSTDOWN, errno.EHOSTUNREACH}
    | {errno.ECONNREFUSED, errno.ECONNRESET, errno.ECONNABORTED, errno.ENOTCONN, errno.EPIPE, errno.ESHUTDOWN}
    | {errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS, errno.ENOLCK}
)


class _Fault(Enum):
    """What went wrong, with the text for the user."""

    MISSING = "nothing is there; check bucket and key"
    NO_PATH = "there is no such file or folder; check the path"
    NOT_A_FOLDER = "it is a file, or below a file; name a folder"
    NOT_A_FILE = "it is a folder; name a file"
    RING = "its symbolic links lead back to themselves; choose another path"
    NO_PERMISSION = "access denied; check the permissions of this path, or choose another one"
    READ_ONLY = "the file system is read-only; choose another place"
    NO_BUCKET = "the bucket does not exist; check its name, the region and the endpoint"
    DENIED = "access denied; check the credentials and that they allow s3:GetObject, s3:PutObject and s3:ListBucket"
    SKEWED = "the store says that this machine's clock is wrong; wait until it is set, or replace the worker"
    FULL = "no space is left; free some or choose another place"
    DOWN = "the store cannot be reached or answers incorrectly; check the endpoint or try again later"


_CODES = {  # for a source, for an output
    _Fault.MISSING: (Code.SOURCE_NOT_FOUND, Code.OUTPUT_DENIED),
    _Fault.NO_PATH: (Code.SOURCE_NOT_FOUND, Code.OUTPUT_DENIED),
    _Fault.NOT_A_FOLDER: (Code.SOURCE_DENIED, Code.OUTPUT_DENIED),
    _Fault.NOT_A_FILE: (Code.SOURCE_DENIED, Code.OUTPUT_DENIED),
    _Fault.RING: (Code.SOURCE_DENIED, Code.OUTPUT_DENIED),
    _Fault.NO_PERMISSION: (Code.SOURCE_DENIED, Code.OUTPUT_DENIED),
    _Fault.READ_ONLY: (Code.SOURCE_DENIED, Code.OUTPUT_DENIED),
    _Fault.NO_BUCKET: (Code.SOURCE_NOT_FOUND, Code.OUTPUT_DENIED),
    _Fault.DENIED: (Code.SOURCE_DENIED, Code.OUTPUT_DENIED),
    _Fault.FULL: (Code.STORE_UNAVAILABLE, Code.STORE_UNAVAILABLE),
    _Fault.SKEWED: (Code.STORE_UNAVAILABLE, Code.STORE_UNAVAILABLE),
    _Fault.DOWN: (Code.STORE_UNAVAILABLE, Code.STORE_UNAVAILABLE),
}
_FAULTS = {  # by S3 error code, HTTP status, errno name or exception class; anything else is DOWN
    **dict.fromkeys(("NoSuchBucket", "InvalidBucketName", "ParamValidationError"), _Fault.NO_BUCKET),
    "RequestTimeTooSkewed": _Fault.SKEWED,
    **dict.fromkeys(("ENOSPC", "EDQUOT"), _Fault.FULL),
    **dict.fromkeys(("NoSuchKey", "404"), _Fault.MISSING),
    "FileNotFoundError": _Fault.NO_PATH,
    **dict.fromkeys(("NotADirectoryError", "FileExistsError"), _Fault.NOT_A_FOLDER),
    "IsADirectoryError": _Fault.NOT_A_FILE,
    "ELOOP": _Fault.RING,
    "PermissionError": _Fault.NO_PERMISSION,
    "EROFS": _Fault.READ_ONLY,
    **dict.fromkeys(
        (
            *("401", "403", "AccessDenied", "InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken"),
            *("InvalidToken", "NoCredentialsError", "PartialCredentialsError", "CredentialRetrievalError"),
            *("NoAuthTokenError", "TokenRetrievalError", "UnknownTokenProviderError", "ProfileNotFound"),
            *("MetadataRetrievalError", "RefreshWithMFAUnsupportedError", "SSOError", "LoginError"),
        ),
        _Fault.DENIED,
    ),
}


def foreign_errors() -> tuple[type[Exception], ...]:
    """Every exception type that boto3 and the file system raise. Imports botocore, so call it only after an error."""
    from boto3.exceptions import Boto3Error
    from botocore.exceptions import BotoCoreError, ClientError, UndefinedModelAttributeError
    from urllib3.exceptions import HTTPError

    return BotoCoreError, ClientError, UndefinedModelAttributeError, Boto3Error, HTTPError, OSError


@contextmanager
def map_errors(label: str, raises: type[SourceError] | type[StoreError]) -> Iterator[None]:
    """Raise errors of boto3, botocore and the file system as ours. `label` is a URI without secrets."""
    output = raises is StoreError
    try:
        yield
    except SourceError as error:  # the endpoint that a job named was refused
        if not output:
            raise
        code = Code.OUTPUT_DENIED if error.code is Code.SOURCE_DENIED else error.code
        raise StoreError(code, error.message) from error
    except foreign_errors() as error:
        if refusal := _find_refusal(error):
            raise raises(Code.OUTPUT_DENIED if output else refusal.code, refusal.message) from error
        names = [name for name in _error_names(error) if name]
        fault = next((_FAULTS[name] for name in names if name in _FAULTS), _Fault.DOWN)
        # Without the error's own text: botocore's contains addresses with their queries.
        raise raises(_CODES[fault][output], f"{label}: {fault.value} ({names[0]})") from error


def _error_names(error: Exception) -> Iterator[str]:
    """Names that classify an error, the most specific first."""
    yield error_code(error)
    yield str(http_status(error) or "")
    yield errno.errorcode.get(getattr(error, "errno", None) or 0, "")
    yield from (kind.__name__ for kind in type(error).__mro__)


def error_code(error: Any) -> str:
    """The S3 error code of a ClientError, "" for other errors."""
    return str((getattr(error, "response", None) or {}).get("Error", {}).get("Code", ""))


def http_status(error: Any) -> int | None:
    status = (getattr(error, "response", None) or {}).get("ResponseMetadata", {}).get("HTTPStatusCode")
    return int(status) if status else None


def is_transient(error: BaseException | None) -> bool:
    """Whether a retry may succeed: the store is overloaded, failing or unreachable, or a clock was just corrected."""
    from botocore.exceptions import ClientError, HTTPClientError
    from urllib3.exceptions import HTTPError

    if error is None or _find_refusal(error):
        return False
    if isinstance(error, ClientError):
        status = http_status(error) or 0
        return (status >= 500 and status != 501) or status == 429 or error_code(error) in _TRANSIENT_CODES
    if isinstance(error, (HTTPClientError, HTTPError, ConnectionError, TimeoutError)):
        return True
    return is_transient(_find_cause(error))  # a multipart upload wraps the error of its part


def is_transient_file_error(error: BaseException) -> bool:
    """Whether a call to the file system may succeed later."""
    return isinstance(error, OSError) and error.errno in _TRANSIENT_ERRNOS


def _find_refusal(error: BaseException | None) -> SourceError | None:
    """Find our own SOURCE_DENIED, which other libraries wrap as a failed connection; None if there is none."""
    while error is not None:
        if isinstance(error, SourceError) and error.code is Code.SOURCE_DENIED:
            return error
        error = _find_cause(error)
    return None


def _find_cause(error: BaseException) -> BaseException | None:
    """The error behind an error; botocore keeps it in `kwargs` and not in `__cause__`."""
    kwargs = getattr(error, "kwargs", None)
    inner = kwargs.get("error") if isinstance(kwargs, dict) else None
    return error.__cause__ or (inner if isinstance(inner, BaseException) else None) or error.__context__


def is_unsupported(error: Any) -> bool:
    """Whether the store answers that it does not support conditional headers."""
    codes = ("NotImplemented", "InvalidArgument", "InvalidRequest")
    return http_status(error) == 501 or (http_status(error) == 400 and error_code(error) in codes)


@cache
def silence_loggers() -> None:
    """Keep presigned queries and session tokens out of the log. Call it before one of these libraries is used."""
    for name in NOISY_LOGGERS:
        logging.getLogger(name).setLevel(logging.WARNING)
