"""The pins of requirements in, docs/LICENCES.md out: every package with the licence that it states itself.

    python scripts/make_licences.py [--image PYTHON]

Reads the metadata of what is installed. What only the GPU image has is installed nowhere else: with --image the pip
of that Python (26 or later) asks the index for its metadata, which is kept in requirements/image-licences.txt.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
REQUIREMENTS, PAGE = ROOT / "requirements", ROOT / "docs" / "LICENCES.md"
PINS, IMAGE, STATED = (REQUIREMENTS / name for name in ("run.txt", "image.txt", "image-licences.txt"))
LONGEST = 90  # some put the whole text where its name belongs
GLIBC = range(5, 40)  # wheels name the oldest that they run on

# Empty packages: their code lies in others.
ELSEWHERE = {**dict.fromkeys(("pymupdf4llm", "pymupdf-layout"), "as pymupdf"), "cuda-toolkit": "as nvidia-cublas"}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--image", metavar="PYTHON", help="ask for the image's packages too")
    if python := parser.parse_args(arguments).image:
        STATED.write_text("".join(f"{name}\t{version}\t{told}\n" for name, version, told in asked(python)))
    PAGE.write_text(page())


def pinned(pins: Path = PINS) -> Iterator[tuple[str, str]]:
    for line in pins.read_text().splitlines():
        if "==" in line and not line.startswith("#"):
            name, _, version = line.partition("==")
            yield name, version


def asked(python: str) -> Iterator[tuple[str, str, str]]:
    """Name, version and licence of the image's packages, as the index tells; nothing is installed."""
    platforms = [flag for glibc in GLIBC for flag in ("--platform", f"manylinux_2_{glibc}_x86_64")]
    command = [
        python, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed", "--no-deps", "--report", "-",
        "--only-binary=:all:", "--python-version", "3.12", *platforms, "--platform", "manylinux2014_x86_64",
        "--target", "nowhere", "-r", str(IMAGE),
    ]  # fmt: skip
    report = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    told = {_plain(one["metadata"]["name"]): one["metadata"] for one in report["install"]}
    for name, version in pinned(IMAGE):
        about = told[_plain(name)]
        said = {"expression": about.get("license_expression"), "named": about.get("license")}
        lies_beside = "its LICENSE file" if about.get("license_file") else "unknown"
        yield name, version, stated(name, said, about.get("classifier", ()), lies_beside)


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def licence(name: str) -> str:
    """Of an installed package."""
    told: Any = distribution(name).metadata
    said = {"expression": told.get("License-Expression"), "named": told.get("License")}
    return stated(name, said, told.get_all("Classifier", []))


def stated(name: str, said: Mapping[str, str | None], classifiers: Sequence[str], otherwise: str = "unknown") -> str:
    """As an SPDX expression, a name, or a classifier."""
    if expression := said["expression"]:
        return expression
    classes = [line.rpartition(" :: ")[2] for line in classifiers if line.startswith("License ::")]
    named = " ".join((said["named"] or "").split())
    if named and len(named) <= LONGEST and named.upper() != "UNKNOWN":
        return named
    classes = [one for one in classes if one != "OSI Approved"]
    return ", ".join(classes) or _of_text(named) or ELSEWHERE.get(_plain(name), otherwise)


def _of_text(text: str) -> str:
    """What a licence's own text calls itself."""
    found = re.match(r"(?:The )?(MIT License|Apache License,? Version 2\.0|BSD \d-Clause License)", text, re.I)
    return found[1] if found else ""


def only_in_image() -> Iterator[tuple[str, str, str]]:
    """What the image has beside or instead of what every installation has."""
    everywhere = set(pinned())
    for line in STATED.read_text().splitlines():
        name, version, told = line.split("\t")
        if (name, version) not in everywhere:
            yield name, version, told


def _rows(rows: Iterator[tuple[str, str, str]]) -> str:
    return "\n".join(f"| {name} | {version} | {told.replace('|', '/')} |" for name, version, told in rows)


def page() -> str:
    return f"""# Licences

The code of twopass is Apache-2.0. **PyMuPDF, with its layout model, is AGPL-3.0 or commercial from Artifex**: an
image or installation with it falls under one of the two.

What `requirements/run.txt` installs, with the licence that each package states; `make docs` writes this page.

| package | version | licence |
|---|---|---|
{_rows((name, version, licence(name)) for name, version in pinned())}

## The GPU image

Beside or instead of these, it has what `requirements/image.txt` names, NVIDIA's CUDA libraries among them, and what
vLLM's image, with which it begins, brings from its distribution. The weights of DeepSeek-OCR have their own licence,
which lies beside them as `LICENSE` where the hub's repository has one.

| package | version | licence |
|---|---|---|
{_rows(only_in_image())}
"""


if __name__ == "__main__":
    main()
