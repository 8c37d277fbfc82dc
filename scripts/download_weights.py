"""A model's name in, a folder of its weights at the pinned revision out, each file compared with the hub's sums.

    python scripts/download_weights.py deepseek_ocr /models/deepseek_ocr
    python scripts/download_weights.py deepseek_ocr /models/deepseek_ocr --verify

--verify needs no network: it compares with checksums.json, which the download wrote.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from twopass.engines import hub, weights
from twopass.errors import TwopassError


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("model", choices=sorted(weights.MODELS))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--verify", action="store_true", help="compare with checksums.json instead of downloading")
    asked = parser.parse_args(argv)
    try:
        return verify(asked.model, asked.folder) if asked.verify else download(asked.model, asked.folder)
    except TwopassError as error:
        print(error, file=sys.stderr)
        return 1


def download(model: str, folder: Path) -> int:
    wanted = weights.named(model)
    hub.download(wanted.repo, wanted.revision, folder)
    lacking = weights.lacks(folder)
    print(f"{wanted.repo}@{wanted.revision} -> {folder}{f', which {lacking}' if lacking else ''}")
    return 1 if lacking else 0


def verify(model: str, folder: Path) -> int:
    found = hub.wrong(folder)
    wanted, there = weights.named(model), hub.revision(folder)
    if there != (wanted.repo, wanted.revision):  # a document's id names the pinned revision: it would lie
        found = [f"{'@'.join(there)} in place of {wanted.repo}@{wanted.revision}", *found]
    print("\n".join(f"wrong: {name}" for name in found) or f"{folder}: every file is as it was downloaded")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
