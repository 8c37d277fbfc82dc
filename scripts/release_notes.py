"""Print the section of CHANGELOG.md for a tag such as v0.2.0; used by .github/workflows/publish.yml."""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def main(tag: str) -> None:
    version = re.search(r'__version__ = "(.+)"', (ROOT / "src" / "twopass" / "__init__.py").read_text())
    if not version or tag != f"v{version[1]}":
        raise SystemExit(f"the tag is {tag}, but twopass.__version__ is {version and version[1]}")
    print(find_section((ROOT / "CHANGELOG.md").read_text(), version[1]))


def find_section(changelog: str, version: str) -> str:
    """Return the text below the heading of a version, without the heading; exits where it is missing or empty."""
    sections = re.split(r"^## ", changelog, flags=re.MULTILINE)
    for section in sections:
        heading, _, body = section.partition("\n")
        if heading.startswith(f"[{version}]") and body.strip():
            return body.strip()
    raise SystemExit(f"CHANGELOG.md has no entries for {version}; move those under [Unreleased] there")


if __name__ == "__main__":
    main(sys.argv[1])
