"""What LibreOffice may do, without LibreOffice."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from twopass.errors import SourceError
from twopass.runtime import office

CONFINED = """
import socket, sys
from twopass.runtime import confinement
assert confinement.deny_network()
confinement.limit_files(sys.argv[1])
for family in (socket.AF_INET, socket.AF_INET6, socket.AF_NETLINK, socket.AF_PACKET):
    try:
        socket.socket(family, socket.SOCK_DGRAM)
        sys.exit(f"{family} is open")
    except PermissionError:
        pass
socket.socket(socket.AF_UNIX)
open(sys.argv[1] + "/own", "w").close()
for path in (sys.argv[2], "/etc/passwd", "/proc/self/environ"):
    try:
        open(path)
        sys.exit(f"{path} is readable")
    except PermissionError:
        pass
"""


def test_a_converter_has_no_network_and_no_files_of_others(tmp_path: Path) -> None:
    """It opens no socket but those of this machine, and reads only its folder and the system's files."""
    (tmp_path / "own").mkdir()
    (tmp_path / "secret").write_text("secret")

    subprocess.run([sys.executable, "-c", CONFINED, str(tmp_path / "own"), str(tmp_path / "secret")], check=True)


def test_without_libreoffice_the_error_names_its_packages(tmp_path: Path) -> None:
    """Whoever reads it knows what to install."""
    assert office.find_version(str(tmp_path)) is None
    with pytest.raises(SourceError, match="SOURCE_UNSUPPORTED.*libreoffice-writer, libreoffice-calc.*OFFICE=1"):
        office.require_version(str(tmp_path))


def test_the_version_is_read_from_the_programs_folder(tmp_path: Path) -> None:
    """It is part of documents' ids, so that nothing is started for it."""
    program = tmp_path / "program"
    program.mkdir()
    for name, text in (("soffice", ""), ("soffice.bin", ""), ("bootstraprc", "ProductKey=LibreOffice 7.4\n")):
        (program / name).write_text(text)
    (program / "versionrc").write_text("[Version]\nbuildid=40(Build:2)\n")
    (program / "soffice").chmod(0o755)
    (tmp_path / "soffice").symlink_to(program / "soffice")

    assert office.find_version(str(tmp_path)) == "LibreOffice 7.4 40(Build:2)"


CONVERT = """
import sys
from twopass.pages.file_types import RTF
from twopass.runtime import office
limits = office.ConversionLimits(0.01, 1 << 40, 1 << 20, least_wait_s=float(sys.argv[3]))
office.convert(sys.argv[1], sys.argv[2], RTF, None, limits)
"""


@pytest.mark.parametrize(
    ("program", "wait_s", "error"),
    [
        ("exit 77", 100, "RENDER_CRASH: LibreOffice ended with status 77; check its installation"),
        ("exit 0", 100, "DAMAGED: LibreOffice cannot open the file"),
        ("exec sleep 1000", 0.2, "RENDER_TIMEOUT: LibreOffice does not go on with the file"),
    ],
)
def test_what_libreoffice_fails_at_is_not_the_files_damage(
    tmp_path: Path, program: str, wait_s: float, error: str
) -> None:
    """A LibreOffice that cannot start says what to check, and one that waits for ever is ended."""
    (tmp_path / "bin").mkdir()
    for name in ("soffice", "soffice.bin"):
        (tmp_path / "bin" / name).write_text(f"#!/bin/sh\n{program}\n")
        (tmp_path / "bin" / name).chmod(0o755)
    (tmp_path / "file").write_bytes(b"{\\rtf1 text}")
    environment = {**os.environ, "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"}
    command = [sys.executable, "-c", CONVERT, tmp_path / "file", tmp_path / "file.pdf", str(wait_s)]

    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

    assert error in ended.stderr
