"""A model's name in, a folder of its weights at the pinned revision out, each file compared with the hub's sums.

    python scripts/download_weights.py deepseek_ocr /models/deepseek_ocr
    python scripts/download_weights.py deepseek_ocr /models/deepseek_ocr --verify

--verify needs no network: it compares with checksums.json, which the download wrote.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from twopass import hub, weights
from twopass.errors import TwopassError


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("model", choices=sorted(weights.MODELS))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--verify", action="store_true", help="compare with checksums.json instead of downloading")
    asked = parser.parse_args(argv)
    try:
        return verify(asked.folder) if asked.verify else download(asked.model, asked.folder)
    except TwopassError as error:
        print(error, file=sys.stderr)
        return 1


def download(model: str, folder: Path) -> int:
    wanted = weights.named(model)
    hub.download(wanted.repo, wanted.revision, folder)
    lacking = weights.lacks(folder)
    print(f"{wanted.repo}@{wanted.revision} -> {folder}{f', which {lacking}' if lacking else ''}")
    return 1 if lacking else 0


def verify(folder: Path) -> int:
    found = hub.wrong(folder)
    print("\n".join(f"wrong: {name}" for name in found) or f"{folder}: every file is as it was downloaded")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
