"""What LibreOffice may do, without LibreOffice."""

from __future__ import annotations

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
