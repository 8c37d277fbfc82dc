"""What LibreOffice may do, without LibreOffice."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fakes.office_files import FORMULAS
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
from pathlib import Path
from twopass.pages import file_types
from twopass.runtime import office
limits = office.ConversionLimits(0.01, 1 << 40, 1 << 20, least_wait_s=float(sys.argv[3]))
kind = file_types.detect(Path(sys.argv[1]), "")
office.convert(sys.argv[1], sys.argv[2], kind, None, limits)
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
    assert error in convert(tmp_path, program, b"{\\rtf1 text}", wait_s)


@pytest.mark.parametrize("kind", sorted(FORMULAS))
def test_formulas_without_their_package_are_an_error(tmp_path: Path, kind: str) -> None:
    """LibreOffice would leave them out and say nothing."""
    error = convert(tmp_path, "exit 0", FORMULAS[kind]())

    assert "SOURCE_UNSUPPORTED: it has formulas" in error and "install Debian's package libreoffice-math" in error


def convert(folder: Path, program: str, data: bytes, wait_s: float = 100) -> str:
    """What is printed when the file is converted with a LibreOffice of only this program, without its libraries."""
    (folder / "bin").mkdir()
    for name in ("soffice", "soffice.bin"):
        (folder / "bin" / name).write_text(f"#!/bin/sh\n{program}\n")
        (folder / "bin" / name).chmod(0o755)
    (folder / "file").write_bytes(data)
    environment = {**os.environ, "PATH": f"{folder / 'bin'}:{os.environ['PATH']}"}
    command = [sys.executable, "-c", CONVERT, folder / "file", folder / "file.pdf", str(wait_s)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False).stderr
