"""Generate docs/bench/mix.json: pages of many kinds, each with the tokens that reading it takes and pass 2's crops.

    python -m scripts.bench.mix docs/bench/mix.json

Shares and means of the kinds are published by peers or counted in documents' ground truth; the spread within a kind
is assumed. The generator is seeded: the file is the same each time.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

import numpy as np

from scripts.bench.options import create_parser

SEED, PAGES = 20261121, 640
SPREAD = 0.35  # standard deviation of the logarithm of tokens within a kind
BOX_TOKENS = 17  # of pass 1 for each element, in addition to its text
MAX_TOKENS = 6000


class Kind(NamedTuple):
    """A kind of page: its share of all pages, and means a page."""

    share: float
    tokens: int
    elements: int
    tables: float
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
CROPS = {  # range of widths, range of heights, tokens out
    "table": ((700, 1100), (200, 900), 450),
    "figure": ((300, 900), (250, 800), 160),
    "formula": ((200, 700), (40, 130), 60),
}


def main() -> None:
    parser = create_parser("scripts.bench.mix", __doc__)
    parser.add_argument("file", type=Path)
    parser.parse_args().file.write_text(generate())


def generate() -> str:
    """The file's text."""
    rng = np.random.default_rng(SEED)
    names = rng.choice(list(KINDS), PAGES, p=[kind.share for kind in KINDS.values()])
    lines = ",\n".join(json.dumps(_draw_page(str(name), KINDS[str(name)], rng)) for name in names)
    return f"[\n{lines}\n]\n"


def _draw_page(name: str, kind: Kind, rng: np.random.Generator) -> dict[str, object]:
    """Draw a page; each of its `crops` is kind, width, height in pixels at 144 dpi, tokens out."""
    elements = int(rng.poisson(kind.elements))
    tokens = _draw_tokens(kind.tokens, rng) + BOX_TOKENS * elements
    means = {"table": kind.tables, "figure": kind.figures, "formula": kind.formulas}
    crops = [_draw_crop(crop_kind, rng) for crop_kind, mean in means.items() for _ in range(rng.poisson(mean))]
    return {"kind": name, "tokens": min(tokens, MAX_TOKENS), "elements": elements, "crops": crops}


def _draw_crop(kind: str, rng: np.random.Generator) -> list[object]:
    widths, heights, tokens = CROPS[kind]
    return [kind, int(rng.integers(*widths)), int(rng.integers(*heights)), _draw_tokens(tokens, rng)]


def _draw_tokens(mean: int, rng: np.random.Generator) -> int:
    return max(int(mean * rng.lognormal(-(SPREAD**2) / 2, SPREAD)), 1)


if __name__ == "__main__":
    main()
