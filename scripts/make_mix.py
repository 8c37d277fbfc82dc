#!/usr/bin/env python3
"""Writes docs/bench/mix.json: pages of many kinds, each with the tokens that reading it takes and the crops of pass 2.

    python scripts/make_mix.py docs/bench/mix.json

Shares and means of the kinds are those that peers publish or that ground truth of documents has; how much pages of
one kind differ is assumed. Seeded: the same file each time.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import NamedTuple

import numpy as np

SEED, PAGES = 20261121, 640
SPREAD = 0.35  # of the logarithm of tokens within a kind
BOX_TOKENS = 17  # what pass 1 says of an element beside its text
LONGEST = 6000


class Kind(NamedTuple):
    share: float
    tokens: int
    elements: int
    tables: float  # a page, on average
    figures: float
    formulas: float


KINDS = {
    "slide": Kind(0.15, 250, 8, 0.1, 0.9, 0.0),
    "letter": Kind(0.40, 700, 12, 0.15, 0.15, 0.05),
    "paper": Kind(0.25, 1300, 22, 0.5, 0.8, 1.5),
    "financial": Kind(0.12, 1700, 18, 2.0, 0.2, 0.0),
    "newspaper": Kind(0.06, 4500, 70, 0.2, 3.0, 0.0),
    "blank": Kind(0.02, 10, 0, 0.0, 0.0, 0.0),
}
CROPS = {  # width and height from and to, tokens out
    "table": ((700, 1100), (200, 900), 450),
    "figure": ((300, 900), (250, 800), 160),
    "formula": ((200, 700), (40, 130), 60),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    rng = np.random.default_rng(SEED)
    names = rng.choice(list(KINDS), PAGES, p=[kind.share for kind in KINDS.values()])
    lines = ",\n".join(json.dumps(_page(str(name), KINDS[str(name)], rng)) for name in names)
    parser.parse_args().file.write_text(f"[\n{lines}\n]\n")


def _page(name: str, kind: Kind, rng: np.random.Generator) -> dict[str, object]:
    """`crops`: kind, width, height in pixels at 144 dpi, tokens out."""
    elements = int(rng.poisson(kind.elements))
    tokens = _about(kind.tokens, rng) + BOX_TOKENS * elements
    wanted = {"table": kind.tables, "figure": kind.figures, "formula": kind.formulas}
    crops = [_crop(what, rng) for what, mean in wanted.items() for _ in range(rng.poisson(mean))]
    return {"kind": name, "tokens": min(tokens, LONGEST), "elements": elements, "crops": crops}


def _crop(what: str, rng: np.random.Generator) -> list[object]:
    width, height, tokens = CROPS[what]
    return [what, int(rng.integers(*width)), int(rng.integers(*height)), _about(tokens, rng)]


def _about(mean: int, rng: np.random.Generator) -> int:
    return max(int(mean * rng.lognormal(-(SPREAD**2) / 2, SPREAD)), 1)


if __name__ == "__main__":
    main()
