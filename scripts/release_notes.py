"""Print the section of CHANGELOG.md for a tag such as v0.2.0; used by .github/workflows/publish.yml."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from runpy import run_path

ROOT = Path(__file__).resolve().parent.parent
VERSION = run_path(str(ROOT / "src" / "twopass" / "version.py"))["VERSION"]  # without installing the package


def main(tag: str) -> None:
    if tag != f"v{VERSION}":
        raise SystemExit(f"the tag is {tag}, but src/twopass/version.py has {VERSION}")
    print(find_section((ROOT / "CHANGELOG.md").read_text(), VERSION))


def find_section(changelog: str, version: str) -> str:
    """The text below the heading of a version, without the heading; exits where it is missing or empty."""
    sections = re.split(r"^## ", changelog, flags=re.MULTILINE)
    for section in sections:
        heading, _, body = section.partition("\n")
        if heading.startswith(f"[{version}]") and body.strip():
            return body.strip()
    raise SystemExit(f"CHANGELOG.md has no entries for {version}; move those under [Unreleased] there")


if __name__ == "__main__":
    main(sys.argv[1])
