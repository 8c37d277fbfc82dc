"""Generate THIRD_PARTY.md: every pinned package with the licence that its own metadata states.

The metadata of most packages is read from this environment. Packages that only the GPU image has are not installed
here: `update_image_licences` asks the package index for their metadata and stores it in
requirements/image-licences.txt.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

from scripts import ROOT
from twopass.models import WEIGHTS

REQUIREMENTS, PAGE = ROOT / "requirements", ROOT / "THIRD_PARTY.md"
PINS, IMAGE_PINS, IMAGE_LICENCES = (REQUIREMENTS / name for name in ("run.txt", "image.txt", "image-licences.txt"))
MAX_NAME_LENGTH = 90  # some packages put the licence's whole text where its name belongs
GLIBC = range(5, 40)  # minor versions of glibc 2; a wheel names the oldest one that it runs on

# Empty packages, whose code is in other packages.
SAME_AS = {**dict.fromkeys(("pymupdf4llm", "pymupdf-layout"), "as pymupdf"), "cuda-toolkit": "as nvidia-cublas"}

# Libraries under other licences that wheels have beside the package, by their licence files.
BUNDLED = {
    "opencv-python-headless": "FFmpeg: LGPL-2.1",
    "pi-heif": "libheif and libde265: LGPL-3.0",
    "shapely": "GEOS: LGPL-2.1",
}


def render_files() -> dict[Path, str]:
    return {PAGE: render_page()}


def update_image_licences(python: str) -> None:
    """Rewrite requirements/image-licences.txt, using the pip of that Python, which must be pip 26 or later."""
    rows = query_image_licences(python)
    IMAGE_LICENCES.write_text("".join(f"{name}\t{version}\t{licence}\n" for name, version, licence in rows), "utf-8")


def read_pins(path: Path = PINS) -> Iterator[tuple[str, str]]:
    for line in path.read_text("utf-8").splitlines():
        if "==" in line and not line.startswith("#"):
            name, _, version = line.partition("==")
            yield name, version


def query_image_licences(python: str) -> Iterator[tuple[str, str, str]]:
    """Yield name, version and licence of the image's packages as the package index states them; install nothing."""
    platforms = [flag for glibc in GLIBC for flag in ("--platform", f"manylinux_2_{glibc}_x86_64")]
    command = [
        python, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed", "--no-deps", "--report", "-",
        "--only-binary=:all:", "--python-version", "3.12", *platforms, "--platform", "manylinux2014_x86_64",
        "--target", "nowhere", "-r", str(IMAGE_PINS),
    ]  # fmt: skip
    report = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    metadata = {_normalise(package["metadata"]["name"]): package["metadata"] for package in report["install"]}
    for name, version in read_pins(IMAGE_PINS):
        fields = metadata[_normalise(name)]
        stated = {"expression": fields.get("license_expression"), "name": fields.get("license")}
        fallback = "its LICENSE file" if fields.get("license_file") else "unknown"
        yield name, version, choose_licence(name, stated, fields.get("classifier", ()), fallback)


def _normalise(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def find_licence(name: str) -> str:
    """The licence that an installed package states."""
    metadata: Any = distribution(name).metadata
    stated = {"expression": metadata.get("License-Expression"), "name": metadata.get("License")}
    return choose_licence(name, stated, metadata.get_all("Classifier", []))


def choose_licence(
    package: str, stated: Mapping[str, str | None], classifiers: Sequence[str], fallback: str = "unknown"
) -> str:
    """The SPDX expression, else the licence's name, else its classifiers."""
    if expression := stated["expression"]:
        return expression
    name = " ".join((stated["name"] or "").split())
    if name and len(name) <= MAX_NAME_LENGTH and name.upper() != "UNKNOWN":
        return name
    classes = [line.rpartition(" :: ")[2] for line in classifiers if line.startswith("License ::")]
    named_classes = [licence for licence in classes if licence != "OSI Approved"]
    return ", ".join(named_classes) or _find_title(name) or SAME_AS.get(_normalise(package), fallback)


def _find_title(text: str) -> str:
    """The title that a licence's full text begins with, or an empty string."""
    found = re.match(r"(?:The )?(MIT License|Apache License,? Version 2\.0|BSD \d-Clause License)", text, re.I)
    return found[1] if found else ""


def read_image_only() -> Iterator[tuple[str, str, str]]:
    """Yield the packages that the image has in addition to, or in other versions than, run.txt."""
    everywhere = set(read_pins())
    for line in IMAGE_LICENCES.read_text("utf-8").splitlines():
        name, version, licence = line.split("\t")
        if (name, version) not in everywhere:
            yield name, version, licence


def _render_rows(rows: Iterator[tuple[str, str, str]]) -> str:
    return "\n".join(f"| {name} | {version} | {_add_bundled(name, licence)} |" for name, version, licence in rows)


def _add_bundled(name: str, licence: str) -> str:
    stated = licence.replace("|", "/")
    return f"{stated}; its wheel has {BUNDLED[name]}" if name in BUNDLED else stated


def render_page() -> str:
    return f"""# Licences of what twopass brings

The code of twopass is Apache-2.0. **PyMuPDF, with its layout model, is AGPL-3.0 or commercial from Artifex**: an
image or installation with it falls under one of the two.

What `requirements/run.txt` installs, with the licence that each package states, and libraries under the LGPL
that its wheel brings; `make docs` writes this page.

| package | version | licence |
|---|---|---|
{_render_rows((name, version, find_licence(name)) for name, version in read_pins())}

## The GPU image

Beside or instead of these, it has what `requirements/image.txt` names, NVIDIA's CUDA libraries among them, and what
vLLM's image, with which it begins, brings from its distribution.

| package | version | licence |
|---|---|---|
{_render_rows(read_image_only())}

## Weights

As their model cards state it; [models](docs/models.md) has the revisions. The licence's text is stored with the
weights if the hub's repository has it. An image has the weights that its build arguments ask for.

| weights | used as | licence |
|---|---|---|
{_render_rows((weights.repo, f"`{name}`", weights.licence) for name, weights in WEIGHTS.items())}
"""
