"""The README's first commands, as a newcomer types them in a fresh checkout."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

from tests import ROOT

IGNORED = shutil.ignore_patterns(".*", "__pycache__", "*.egg-info", "build", "output", "site")
TIMEOUT_S = 900  # pip may have to download everything


def test_the_first_commands_install_and_read_the_sample(tmp_path: Path) -> None:
    """They leave the files that the README names below them, and those of the page that it links."""
    readme = (ROOT / "README.md").read_text()
    commands = re.findall(r"^```sh\n(.*?)^```$", readme, re.M | re.S)[1]
    named = re.findall(r"`(?:output/sample-…/)?([a-z]+\.(?:html|md|json))`", readme.partition(commands)[2])
    listed = re.findall(
        r"^  ([\w./]+)  ", (ROOT / "docs" / "contract.md").read_text().partition("## The output")[2], re.M
    )
    checkout = tmp_path / "twopass"
    shutil.copytree(ROOT, checkout, ignore=IGNORED)

    subprocess.run(
        ["bash", "-ec", commands],
        cwd=checkout,
        env={name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")},
        check=True,
        timeout=TIMEOUT_S,
    )

    [folder] = (checkout / "output").glob("sample-*")
    assert commands.count("\n") == 3
    assert (len(named), len(listed)) == (3, 5)
    assert not [name for name in [*named, *listed] if not (folder / name).exists()]
