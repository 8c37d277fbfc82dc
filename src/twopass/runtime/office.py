"""Convert office files to PDF with LibreOffice, in a process with limits and no network. Runs in page workers."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from twopass.errors import Code, SourceError, WorkerDied
from twopass.pages import hidden_parts, lost_words, office_package
from twopass.pages.file_types import HTML, RTF, FileType
from twopass.pages.office_package import Package
from twopass.pages.source_files import PASSWORD_HINT, SAVE_AGAIN, describe_full_disk
from twopass.runtime.office_process import NOT_CONFINED

_PROFILE = Path(__file__).with_name("office_profile")
_COMMANDS = ("soffice", "libreoffice")
_BINARY = "soffice.bin"  # without the script around it, which would be the process that is killed
_VERSION_FILES = (("bootstraprc", r"ProductKey=(.+)"), ("versionrc", r"buildid=(.+)"))
_MATH = "libreoffice-math"
PACKAGES = ("libreoffice-writer", "libreoffice-calc", "libreoffice-impress", _MATH)  # of Debian
_MATH_LIBRARIES = ("libsmlo.so", "libmergedlo.so")  # the second in builds that join their libraries
_GROWING = (".docx", ".odt")  # printed again with larger rows and boxes if words are lost
_OPTIONS = ("--headless", "--norestore", "--nologo", "--nodefault", "--nolockcheck", "macro:///Standard.Convert.Run")
_RESTART = 81  # the exit status after it has set up a new profile
_MAX_STARTS = 3
_CHECK_INTERVAL_S = 0.05
_WAIT_FACTOR = 10  # of wall time for the allowed processor time, on a busy machine
_TOO_LONG_SIGNAL = 9  # of processor time
_TOO_LARGE_SIGNAL = 25  # SIGXFSZ
_BOM = b"\xef\xbb\xbf"  # LibreOffice takes web pages without one for Windows-1252


@dataclass(frozen=True)
class ConversionLimits:
    cpu_s: float
    memory_bytes: int
    output_bytes: int
    least_wait_s: float = 120.0
    free_bytes: int = 32 << 20  # of the disk: LibreOffice leaves out pictures that it has no place for, and ends well


def find_version(path: str | None = None) -> str | None:
    """The version and build of the LibreOffice in `path` or PATH, which decide how documents look; None without one."""
    if (program := _find_program(path)) is None:
        return None
    texts = ((re.search(pattern, (program.parent / name).read_text())) for name, pattern in _VERSION_FILES)
    return " ".join(found[1].strip() for found in texts if found)


def require_version(path: str | None = None) -> str:
    """The same; raises SourceError without LibreOffice."""
    if (version := find_version(path)) is None:
        install = f"install Debian's packages {', '.join(PACKAGES)}, or build the image with --build-arg OFFICE=1"
        message = f"reading office files needs LibreOffice: {install}, or save the file as PDF"
        raise SourceError(Code.SOURCE_UNSUPPORTED, message)
    return version


def convert(
    source: str, target: str, kind: FileType, password: str | None, limits: ConversionLimits
) -> tuple[str, ...]:
    """Convert the source to the PDF `target`, whose folder is used for all else.

    Returns what the source says that is on no page. Raises SourceError and WorkerDied.
    """
    folder = Path(target).parent / "office"
    shutil.rmtree(folder, ignore_errors=True)  # of a page worker that died
    _check_disk(folder.parent, limits)
    shutil.copytree(_PROFILE, folder / "profile" / "user")
    named = folder / f"source{kind.suffixes[0]}"
    package = _take_in(Path(source), named, kind)
    is_encrypted = package.is_encrypted
    if is_encrypted and not password:
        raise _explain(is_encrypted, password)
    if package.has_formulas and not _has_math():
        message = f"it has formulas, which LibreOffice would leave out: install Debian's package {_MATH}"
        raise SourceError(Code.SOURCE_UNSUPPORTED, message)
    (folder / "tmp").mkdir()
    environment = {
        **os.environ,
        "HOME": str(folder),
        "TMPDIR": str(folder / "tmp"),
        "LC_ALL": "C.UTF-8",
        "TZ": "UTC",
        "SAL_USE_VCLPLUGIN": "svp",
        "SOURCE": named.as_uri(),
        "TARGET": (folder / "converted.pdf").as_uri(),
        "LOAD_FILTER": "" if is_encrypted else kind.load_filter,
        "PASSWORD": password or "",
        "GROW": "1" if kind == RTF else "",  # of which it is not known whether words are lost
    }
    _print(folder, environment, limits, target)
    lost = lost_words.name(package.words, target)
    if lost and kind.suffixes[0] in _GROWING:
        _print(folder, {**environment, "GROW": "1"}, limits, target)
        lost = lost_words.name(package.words, target)
    shutil.rmtree(folder, ignore_errors=True)
    return (*sorted(package.hidden), *lost)


def _take_in(source: Path, named: Path, kind: FileType) -> Package:
    """Check the source and place it where LibreOffice may read it."""
    if kind == HTML:
        data = source.read_bytes()
        office_package.check_depth(data)
        shown, hidden = hidden_parts.cut_from_html(data)
        named.write_bytes(_mark_encoding(shown))
        return Package(hidden=hidden, words=lost_words.count_in_html(shown))
    os.link(source, named)
    if kind == RTF:
        data = source.read_bytes()
        office_package.check_rtf(data)
        return Package(hidden=hidden_parts.find_in_rtf(data), has_formulas=office_package.RTF_FORMULA in data)
    with source.open("rb") as file:
        is_package = file.read(2) == b"PK"
    return office_package.check(str(source)) if is_package else Package(is_encrypted=True)


def _mark_encoding(page: bytes) -> bytes:
    try:
        page.decode()
    except UnicodeDecodeError:
        return page
    return page if page.startswith(_BOM) else _BOM + page


def _print(folder: Path, environment: dict[str, str], limits: ConversionLimits, target: str) -> None:
    """Convert the file to the PDF `target`. Raises SourceError and WorkerDied."""
    status = _run(folder, environment, limits)
    if (folder / "converted.pdf").exists():
        (folder / "converted.pdf").rename(target)
    elif status > 0:
        message = f"LibreOffice ended with status {status}; check its installation and the worker's disk"
        raise WorkerDied(Code.RENDER_CRASH, message)
    else:
        raise _explain(not environment["LOAD_FILTER"], environment["PASSWORD"])


def _run(folder: Path, environment: dict[str, str], limits: ConversionLimits) -> int:
    program = _find_program()
    assert program  # its version was asked for
    arguments = [str(program), f"-env:UserInstallation={(folder / 'profile').as_uri()}", *_OPTIONS]
    launcher = [sys.executable, "-m", "twopass.runtime.office_process", str(os.getpid())]
    command = [*launcher, str(int(limits.cpu_s) or 1), str(limits.output_bytes), *arguments]
    for _ in range(_MAX_STARTS):
        process = subprocess.Popen(
            command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            _watch(process, folder, limits)
        finally:
            process.kill()
            process.wait()
        if process.returncode != _RESTART:
            break
    _check_end(process.returncode, limits)
    return process.returncode


def _watch(process: subprocess.Popen[bytes], folder: Path, limits: ConversionLimits) -> None:
    """Wait for the end of the process. Raises WorkerDied if it takes too much memory or disk, or does not go on."""
    end = time.monotonic() + max(_WAIT_FACTOR * limits.cpu_s, limits.least_wait_s)
    while process.poll() is None:
        if time.monotonic() > end:
            raise WorkerDied(Code.RENDER_TIMEOUT, f"LibreOffice does not go on with the file; {SAVE_AGAIN}")
        if _read_memory(process.pid) > limits.memory_bytes:
            limit = f"{limits.memory_bytes >> 20} MiB"
            message = f"LibreOffice used more than {limit} of memory; raise WORKER_MEMORY_BYTES or split the file"
            raise WorkerDied(Code.RENDER_MEMORY, message)
        if sum(_list_sizes(folder)) > 2 * limits.output_bytes:  # its temporary files, and the PDF
            raise _too_large(limits)
        _check_disk(folder, limits)
        time.sleep(_CHECK_INTERVAL_S)


def _check_disk(folder: Path, limits: ConversionLimits) -> None:
    if shutil.disk_usage(folder).free < limits.free_bytes:
        raise describe_full_disk()


def _check_end(status: int, limits: ConversionLimits) -> None:
    if status == NOT_CONFINED:
        message = "this machine's kernel cannot keep LibreOffice off the network (seccomp); convert the file to PDF"
        raise SourceError(Code.SOURCE_UNSUPPORTED, message)
    if -status == _TOO_LONG_SIGNAL:
        message = f"LibreOffice needs more than {limits.cpu_s:g} s of processor time; raise WORKER_TIMEOUT_S"
        raise WorkerDied(Code.RENDER_TIMEOUT, f"{message} or split the file")
    if -status == _TOO_LARGE_SIGNAL:
        raise _too_large(limits)
    if status < 0:
        raise WorkerDied(Code.RENDER_CRASH, f"LibreOffice crashed on the file (signal {-status}); {SAVE_AGAIN}")


def _too_large(limits: ConversionLimits) -> SourceError:
    message = f"converted, it has over {limits.output_bytes:,} bytes; raise MAX_SOURCE_BYTES or split it"
    return SourceError(Code.SOURCE_TOO_LARGE, message)


def _explain(is_encrypted: bool, password: str | None) -> SourceError:
    if not is_encrypted:
        return SourceError(Code.DAMAGED, f"LibreOffice cannot open the file; {SAVE_AGAIN}")
    reason = "the password is wrong; send the right one" if password else "the file is encrypted; send its password"
    return SourceError(Code.ENCRYPTED, f"{reason} {PASSWORD_HINT}")


def _find_program(path: str | None = None) -> Path | None:
    for command in _COMMANDS:
        if (found := shutil.which(command, path=path)) and (
            program := Path(found).resolve().with_name(_BINARY)
        ).exists():
            return program
    return None


def _has_math() -> bool:
    program = _find_program()
    return program is not None and any(program.with_name(library).exists() for library in _MATH_LIBRARIES)


def _read_memory(process: int) -> int:
    """Bytes of memory that it does not share; 0 if it is gone."""
    try:
        _, resident, shared, *_ = map(int, Path(f"/proc/{process}/statm").read_text().split())
    except (OSError, ValueError):
        return 0
    return (resident - shared) * os.sysconf("SC_PAGE_SIZE")


def _list_sizes(folder: Path) -> Iterator[int]:
    for parent, _, names in os.walk(folder):
        for name in names:
            try:
                yield os.lstat(os.path.join(parent, name)).st_size
            except OSError:  # a temporary file that is gone
                continue
