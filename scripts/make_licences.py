"""The pins of requirements/run.txt in, docs/LICENCES.md out: every package with the licence that it states itself.

Reads the metadata of what is installed; a test fails when the page is stale.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PINS, PAGE = ROOT / "requirements" / "run.txt", ROOT / "docs" / "LICENCES.md"
LONGEST = 90  # some put the whole text where its name belongs

# Empty packages of version 2: their code lies in pymupdf itself.
ELSEWHERE = dict.fromkeys(("pymupdf4llm", "pymupdf_layout"), "as pymupdf")


def main() -> None:
    PAGE.write_text(page())


def pinned() -> Iterator[tuple[str, str]]:
    for line in PINS.read_text().splitlines():
        if "==" in line and not line.startswith("#"):
            name, _, version = line.partition("==")
            yield name, version


def licence(name: str) -> str:
    """As an SPDX expression, a name, or a classifier; `unknown` where the metadata has none of them."""
    told: Any = distribution(name).metadata
    if expression := told.get("License-Expression"):
        return str(expression)
    classes = [line.rpartition(" :: ")[2] for line in told.get_all("Classifier", []) if line.startswith("License ::")]
    named = " ".join((told.get("License") or "").split())
    if named and len(named) <= LONGEST and named.upper() != "UNKNOWN":
        return named
    classes = [one for one in classes if one != "OSI Approved"]
    return ", ".join(classes) or _of_text(named) or ELSEWHERE.get(name, "unknown")


def _of_text(text: str) -> str:
    """What a licence's own text calls itself."""
    found = re.match(r"(?:The )?(MIT License|Apache License,? Version 2\.0|BSD \d-Clause License)", text, re.I)
    return found[1] if found else ""


def page() -> str:
    rows = "\n".join(f"| {name} | {version} | {licence(name).replace('|', '/')} |" for name, version in pinned())
    return f"""# Licences

The code of twopass is Apache-2.0. **PyMuPDF, with its layout model, is AGPL-3.0 or commercial from Artifex**: an
image or installation with it falls under one of the two.

What `requirements/run.txt` installs, with the licence that each package states; `make docs` writes this page.

| package | version | licence |
|---|---|---|
{rows}

The GPU image has, beside these, what `requirements/image.txt` names: vLLM and Transformers (Apache-2.0), PyTorch (BSD),
docling-core (MIT), and NVIDIA's CUDA libraries under NVIDIA's own terms. The weights of DeepSeek-OCR have their own
licence, which lies beside them as `LICENSE` where the hub's repository has one.
"""


if __name__ == "__main__":
    main()
