"""Check the archive that an office file or a book is, before a program opens it that trusts its content.

LibreOffice shows what it can of a damaged file: what it leaves out would be lost unseen.
"""

from __future__ import annotations

import posixpath
import re
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from urllib.parse import unquote
from xml.etree import ElementTree
from xml.parsers import expat

from twopass.errors import Code, SourceError
from twopass.pages import hidden_parts, lost_words
from twopass.pages.source_files import SAVE_AGAIN

MAX_UNPACKED_BYTES = 1 << 30  # of an archive; a thesis has 2 MB of XML, a workbook of a million cells 60 MB
MAX_PARTS = 20_000
MAX_DEPTH = 500  # of elements in elements: a table in a table in a text box has 40; LibreOffice recurses
MAX_OPEN_TAGS = 10_000  # of a web page, in which many are never closed
_CHUNK_BYTES = 1 << 20
_XML = (".xml", ".rels", ".opf", ".ncx")
_VOID = frozenset(name.encode() for name in hidden_parts.VOID_ELEMENTS)
_COMMENT = rb"<!--(?:-?>|.*?(?:--!?>|\Z))"
_TAG = re.compile(  # or a comment; a tag in an attribute is none
    _COMMENT + rb"""|<(/?)([a-z][a-z0-9:-]*+)(?:[^<>"']++|"[^"]*+"|'[^']*+')*+""", re.IGNORECASE | re.DOTALL
)
_CLOSED_TAG = re.compile(rb"<[^<>]*/>")  # of XHTML
_RTF_BINARY = re.compile(rb"\\bin(\d+)")
RTF_FORMULA = rb"\moMath"
_FORMULAS = ("oMath", "math")  # elements of OOXML and of ODF
_ODF_MANIFEST = "META-INF/manifest.xml"
_ENCRYPTION = "META-INF/encryption.xml"
_DRM = ("META-INF/rights.xml", "META-INF/license.lcpl")  # of Adobe and of Readium
_ENCRYPTION_MARK = b"encryption-data"  # an element of ODF's manifest


@dataclass(frozen=True)
class Package:
    """What an archive says of itself; of an encrypted one, it is not known what is hidden."""

    is_encrypted: bool = False
    hidden: frozenset[str] = frozenset()
    words: Mapping[str, int] = field(default_factory=dict)  # that its pages should show, and how often
    has_formulas: bool = False  # of mathematics


def check(path: str) -> Package:
    """Read all of the archive. Raises SourceError if it is damaged or too large."""
    with _translate_errors(), zipfile.ZipFile(path) as package:
        parts = package.infolist()
        if len(parts) > MAX_PARTS or sum(part.file_size for part in parts) > MAX_UNPACKED_BYTES:
            message = f"unpacked, it has over {MAX_UNPACKED_BYTES >> 20} MiB or {MAX_PARTS:,} parts; split it"
            raise SourceError(Code.SOURCE_TOO_LARGE, message)
        names = {part.filename for part in parts}
        if not names.isdisjoint(_DRM) or any(part.flag_bits & 1 for part in parts):
            raise SourceError(Code.ENCRYPTED, "it is protected; save it without protection")
        if _ODF_MANIFEST in names and any(_ENCRYPTION_MARK in chunk for chunk in _read(package, _ODF_MANIFEST)):
            return Package(is_encrypted=True)
        checked = [_check_part(package, part.filename) for part in parts]
        hidden = frozenset().union(*(part.hidden for part in checked))
        words = Counter[str]()
        for part in checked:
            words.update(part.words)
        return Package(hidden=hidden, words=words, has_formulas=any(part.has_formulas for part in checked))


def check_chapters(path: str) -> Counter[str]:
    """The words of a book. Raises SourceError for one that lacks a chapter or has an encrypted one.

    MuPDF would write an error or nothing. Fonts are encrypted in many books that anybody may read.
    """
    with _translate_errors(), zipfile.ZipFile(path) as package:
        names, opf = set(package.namelist()), _find(package, "META-INF/container.xml", "rootfile", "full-path")[0]
        files = dict(zip(_find(package, opf, "item", "id"), _find(package, opf, "item", "href"), strict=True))
        wanted = [files[key] for key in _find(package, opf, "itemref", "idref") if key in files]
        chapters = {posixpath.normpath(posixpath.join(posixpath.dirname(opf), unquote(href))) for href in wanted}
        if missing := sorted(chapters - names):
            raise SourceError(Code.DAMAGED, f"it lacks the chapter {missing[0]}; {SAVE_AGAIN}")
        encrypted = _find(package, _ENCRYPTION, "CipherReference", "URI") if _ENCRYPTION in names else []
        if not chapters.isdisjoint(map(unquote, encrypted)):
            raise SourceError(Code.ENCRYPTED, "its chapters are encrypted; save it without protection")
        words = Counter[str]()
        for chapter in sorted(chapters):
            data = package.read(chapter)
            check_depth(_CLOSED_TAG.sub(b"", data))
            words.update(lost_words.count_in_html(data))
        return words


def _find(package: zipfile.ZipFile, part: str, tag: str, attribute: str) -> list[str]:
    """The values of an attribute of all elements with this name in a part."""
    root = ElementTree.fromstring(package.read(part))
    return [found.get(attribute, "") for found in root.iterfind(f".//{{*}}{tag}")]


def check_depth(data: bytes) -> None:
    """Raise SourceError for a web page whose elements lie too deep in each other, as far as its tags tell."""
    opened, depth = Counter[bytes](), 0
    for tag in _TAG.finditer(data):
        name = tag[2] and tag[2].lower()
        if not name or name in _VOID:
            continue
        if not tag[1]:
            opened[name] += 1
            depth += 1
        elif opened[name]:  # else it closes nothing
            opened[name] -= 1
            depth -= 1
        if depth > MAX_OPEN_TAGS:
            raise _too_deep(MAX_OPEN_TAGS)


def check_rtf(data: bytes) -> None:
    """Raise SourceError for binary data longer than the file, which LibreOffice would wait for."""
    if any(int(run[1][:20]) > len(data) - run.end() for run in _RTF_BINARY.finditer(data)):
        raise SourceError(Code.DAMAGED, f"it ends in its binary data; {SAVE_AGAIN}")


def _check_part(package: zipfile.ZipFile, name: str) -> Package:
    """Unpack the part, which checks its sum, and parse it if it is XML; returns what the part says."""
    parser, opened = (expat.ParserCreate() if name.lower().endswith(_XML) else None), list[str]()
    hidden, has_formulas = set[str](), False
    name_hidden, words = hidden_parts.watch(name), lost_words.watch(name)

    def begin(tag: str, attributes: dict[str, str]) -> None:
        nonlocal has_formulas
        element = tag.rpartition(":")[2]
        has_formulas |= element in _FORMULAS
        if name_hidden and (found := name_hidden(element, opened, attributes)):
            hidden.add(found)
        opened.append(element)
        if words:
            words.begin(element, attributes)
        if len(opened) > MAX_DEPTH:
            raise _too_deep(MAX_DEPTH)

    def end(tag: str) -> None:
        opened.pop()
        if words:
            words.end()

    if parser:
        parser.StartElementHandler, parser.EndElementHandler = begin, end
    if parser and words:
        parser.CharacterDataHandler, parser.buffer_text = words.add, True
    is_empty = True
    for chunk in _read(package, name):
        is_empty = False
        if parser:
            parser.Parse(chunk)
    if parser and not is_empty:
        parser.Parse(b"", True)
    return Package(hidden=frozenset(hidden), words=words.words if words else {}, has_formulas=has_formulas)


def _read(package: zipfile.ZipFile, name: str) -> Iterator[bytes]:
    with package.open(name) as part:
        while chunk := part.read(_CHUNK_BYTES):
            yield chunk


def _too_deep(limit: int) -> SourceError:
    message = f"its elements lie over {limit:,} deep in each other; {SAVE_AGAIN}"
    return SourceError(Code.SOURCE_TOO_LARGE, message)


@contextmanager
def _translate_errors() -> Iterator[None]:
    """Raise SourceError DAMAGED for what zipfile, zlib and expat raise for a damaged archive."""
    try:
        yield
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, NotImplementedError, LookupError, ValueError) as error:
        raise SourceError(Code.DAMAGED, f"its archive is damaged: {type(error).__name__}; {SAVE_AGAIN}") from error
    except (expat.ExpatError, ElementTree.ParseError) as error:
        raise SourceError(Code.DAMAGED, f"its XML is damaged: {error}; {SAVE_AGAIN}") from error
