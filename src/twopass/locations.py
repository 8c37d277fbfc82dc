"""Where documents are and where artefacts go: a URI with one of these schemes, or a path of this machine.

A scheme may be written in any case; what follows it is taken literally. `normalize` is applied where a place comes in.
A new scheme is a row here, and its module in `storage`.
"""

from __future__ import annotations

import errno
import mimetypes
import os
import posixpath
import re
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from urllib.parse import unquote, urlsplit


@dataclass(frozen=True)
class Scheme:
    """A scheme, as URIs begin with it. `reader` and `store` are the classes for sources and outputs there.

    They are imported when they are first needed: a laptop's documents need no boto3.
    """

    prefix: str
    reader: str = ""
    store: str = ""

    def begins(self, place: str) -> bool:
        return place[: len(self.prefix)].lower() == self.prefix


S3 = Scheme("s3://", reader="twopass.storage.s3:S3Reader", store="twopass.storage.s3:S3Store")
HTTPS = Scheme("https://", reader="twopass.storage.https:HttpsReader")
HTTP = replace(HTTPS, prefix="http://")  # jobs cannot name it; the reader may be allowed to use it
DATA = Scheme("data:")  # holds the bytes itself

SOURCES = (S3, HTTPS, DATA)  # that jobs may name
OUTPUTS = (S3,)
_SCHEMES = (*SOURCES, HTTP)
_HOST = re.compile(r"(?:^|@)(?:\[[^\]]*\]|localhost|[^:@]*\.[^:@]*)(?::\d{0,5})?$")  # rather than a user and a password


def find_scheme(place: str) -> Scheme | None:
    """The scheme of the URI; None for a path, and for a scheme that is not known."""
    return next((scheme for scheme in _SCHEMES if scheme.begins(place)), None)


def is_uri(place: str) -> bool:
    """Whether this is a URI and no path. A colon alone makes none: it may stand in a file's name or after a drive."""
    return "://" in place or DATA.begins(place)


def is_web_address(place: str) -> bool:
    return find_scheme(place) in (HTTPS, HTTP)


def normalize(place: str) -> str:
    """The place with its scheme in lower case, so that the same place is the same text. A path is left as it is."""
    scheme = find_scheme(place)
    return f"{scheme.prefix}{place[len(scheme.prefix) :]}" if scheme else place


def absolute(place: str) -> str:
    """The place as it can be named from every folder of this machine."""
    return normalize(place) if is_uri(place) else os.path.realpath(place)


def split_bucket(uri: str) -> tuple[str, str]:
    """Bucket and key of s3://bucket/key. Such a URI has no escapes and no query: the key is taken literally."""
    bucket, _, key = uri.partition("://")[2].partition("/")
    return bucket, key


def is_below(place: str, other: str) -> bool:
    """Whether the place is the other one or lies below it. Keys are compared as paths, as some stores keep them."""
    if is_uri(place) or is_uri(other):
        (bucket, key), (other_bucket, other_key) = (split_bucket(normalize(one)) for one in (place, other))
        path, other_path = (PurePosixPath(posixpath.normpath(f"/{one.lstrip('/')}")) for one in (key, other_key))
        return is_uri(place) and is_uri(other) and bucket == other_bucket and path.is_relative_to(other_path)
    return Path(os.path.realpath(place)).is_relative_to(os.path.realpath(other))


def resolve(place: str | Path) -> Path:
    """The path without links; raises OSError for links in a ring, and ValueError for a null character.

    For a ring, `Path.resolve` raises RuntimeError before Python 3.13, and nothing from then on.
    """
    path = Path(os.path.realpath(place))
    try:
        path.stat()
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise
    return path


def stem(place: str) -> str:
    """The file's name without its suffix, with which a document id begins."""
    return "inline" if DATA.begins(place) else _path_of(place).stem or "document"


def suffix(place: str) -> str:
    """The suffix of the file's name, such as .pdf; of data: URIs that of their media type; empty without one."""
    if DATA.begins(place):
        media = place[len(DATA.prefix) : len(DATA.prefix) + 100].partition(",")[0].partition(";")[0]
        return mimetypes.guess_extension(media.strip().lower()) or ""
    return _path_of(place).suffix.lower()


def _path_of(place: str) -> PurePosixPath:
    try:
        return PurePosixPath(unquote(urlsplit(place).path) if is_uri(place) else place)
    except ValueError:  # no host can have this name
        return PurePosixPath("")


def redact(place: str) -> str:
    """The place without query, user info or inline bytes, for results, artefacts, messages and logs."""
    scheme, colon, rest = place.partition(":")
    if DATA.begins(place):
        media, comma, _ = rest.partition(",")
        return f"data:{media[:60]},…" if comma else "data:…"
    if not colon or scheme.lower() not in ("http", "https"):
        return place  # an S3 key may hold ? and #
    rest = rest.removeprefix("//")
    host = re.split("[/?#]", rest, maxsplit=1)[0]
    if re.search("[:@]", host) and not _HOST.search(host) and "@" in rest[len(host) :]:  # ended in its password
        host = rest[: rest.rindex("@") + 1]
    rest = rest[host.rfind("@") + 1 :]
    return f"{scheme}://{re.split('[?#]', rest, maxsplit=1)[0]}"
