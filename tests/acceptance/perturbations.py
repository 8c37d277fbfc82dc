"""Recorded answers changed as a sound but different engine changes them (noise), and as faults of an engine do.

The faults work on words that are laid out in the boxes of their blocks, because the recorded answers have no lines.
Each is a guess of what the fault does to an answer: no model with such a fault was run.
"""

from __future__ import annotations

import math
import random
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from twopass.acceptance import scores
from twopass.acceptance.recorded_answers import Reading
from twopass.acceptance.records import Record
from twopass.engines.interface import Completion
from twopass.families.grounded import grounding
from twopass.families.grounded.grounding import GRID, Block

LETTERS = "aeinorstu"
PAGE_RATIO = 1.3  # height to width of the recorded pages
CHARACTER_RATIO = 0.5  # width to height of a character with its line spacing
WHOLE_PAGE = (100.0, 80.0, 900.0, 920.0)  # where an answer without boxes is laid out
JUNK = "the harbour of of seven lanterns before and so on"

Perturb = Callable[[str, random.Random], Completion]


@dataclass(frozen=True)
class Word:
    """A word, its block and its line there, and its place: left, top and height on the grid of 0 to 999."""

    text: str
    block: int
    line: int
    x: float
    y: float
    width: float
    height: float


# ---- answers to blocks and back -----------------------------------------------------------------
def parse(answer: str) -> tuple[Block, ...]:
    return grounding.parse(answer).blocks


def write(blocks: Sequence[Block]) -> str:
    """Write blocks as the model does; one without a label is plain text."""
    return "\n\n".join(_write_block(block) for block in blocks)


def _write_block(block: Block) -> str:
    if not block.label:
        return block.content.strip()
    boxes = ", ".join(str([round(side) for side in corners]) for corners in block.corners)
    return f"<|ref|>{block.label}<|/ref|><|det|>[{boxes}]<|/det|>\n{block.content.strip()}"


def lay_out(blocks: Sequence[Block]) -> list[Word]:
    """Break each block's text into lines that fill its box; a plain answer fills the page."""
    return [word for number, block in enumerate(blocks) for word in _lay_out_block(block, number)]


def _lay_out_block(block: Block, number: int) -> Iterator[Word]:
    x0, y0, x1, y1 = block.corners[0] if block.corners else WHOLE_PAGE
    width, height = max(x1 - x0, 1.0), max(y1 - y0, 1.0)
    count = max(len(block.content.strip()), 1)
    line_height = math.sqrt(width * height / PAGE_RATIO / (count * CHARACTER_RATIO)) * math.sqrt(PAGE_RATIO)
    line_height = height / max(round(height / line_height), 1)
    per_line = max(math.ceil(count / round(height / line_height)), 1)
    at, line = 0, 0
    for text in block.content.split():
        if at and at + len(text) > per_line:
            at, line = 0, line + 1
        step = width / per_line
        top = min(y0 + line * line_height, y1 - line_height)
        yield Word(text, number, line, x0 + at * step, top, len(text) * step, line_height)
        at += len(text) + 1


def rebuild(words: Sequence[Word], blocks: Sequence[Block]) -> list[Block]:
    """Build a block of each run of words that are of one block, with the box around them."""
    rebuilt = []
    for number, run in groupby(words, key=lambda word: word.block):
        found = list(run)
        corners = (
            min(word.x for word in found),
            min(word.y for word in found),
            min(max(word.x + word.width for word in found), GRID),
            min(max(word.y + word.height for word in found), GRID),
        )
        source = blocks[number]
        text = " ".join(word.text for word in found)
        rebuilt.append(replace(source, content=text, corners=(corners,) if source.corners else ()))
    return rebuilt


# ---- noise --------------------------------------------------------------------------------------
def misread(word: str, rng: random.Random) -> str:
    """Replace one letter."""
    at = [n for n, letter in enumerate(word) if letter.isalpha()]
    if not at:
        return word
    n = rng.choice(at)
    return word[:n] + rng.choice(LETTERS.replace(word[n].lower(), "")) + word[n + 1 :]


def change_words(texts: Sequence[str], share: float, rng: random.Random) -> list[str]:
    """Misread this share of all words that have letters; spaces and line ends stay."""
    words = [(n, found) for n, text in enumerate(texts) for found in re.finditer(r"\S*[^\W\d_]\S*", text)]
    chosen = {(n, found.start()) for n, found in rng.sample(words, round(share * len(words)))}
    return [
        re.sub(r"\S+", lambda found, n=n: misread(found[0], rng) if (n, found.start()) in chosen else found[0], text)
        for n, text in enumerate(texts)
    ]


def change_content(blocks: Sequence[Block], share: float, rng: random.Random) -> list[Block]:
    texts = change_words([block.content for block in blocks], share, rng)
    return [replace(block, content=text) for block, text in zip(blocks, texts, strict=True)]


def move_boxes(block: Block, sides: int, rng: random.Random) -> Block:
    moved = tuple(tuple(side + rng.randint(-sides, sides) for side in corners) for corners in block.corners)
    return replace(block, corners=tuple((min(a, c - 1), min(b, d - 1), c, d) for a, b, c, d in moved))


def add_noise(share: float) -> Perturb:
    """Misread words, other quotes, boxes that are up to 3 of 999 off at each side; a loop at the end stays."""

    def perturb(answer: str, rng: random.Random) -> Completion:
        quotes = str.maketrans("“”’", '""\'') if rng.random() < 0.5 else {}
        blocks, kept = parse(answer), len(Reading.of(answer).blocks)
        noisy = change_content([move_boxes(block, 3, rng) for block in blocks[:kept]], share, rng)
        return Completion(write([*noisy, *blocks[kept:]]).translate(quotes))

    return perturb


def estimate_noise(record: Record, records: Sequence[Record]) -> float:
    """A third of the share of words that differ between the answers to two prompts about the same image.

    Both answers are of the same weights. Another kernel changes less than another prompt, which changes all tokens.
    """
    same_page = [Reading.of(other.text).text for other in records if other.image == record.image]
    one, other = same_page
    return scores.word_error_rate(one, other) / 3


# ---- faults -------------------------------------------------------------------------------------
def swap_tiles(order: Sequence[int], columns: int = 2, rows: int = 3) -> Perturb:
    """Show the tiles in another order: at position n is tile `order[n]`. The page is read as it then looks.

    Words move with their tile. Blocks are read column by column, where the page has two columns of blocks, and each
    position shows the part of a block that is in its tile.
    """

    def perturb(answer: str, rng: random.Random) -> Completion:
        blocks = parse(answer)
        positions = {tile: position for position, tile in enumerate(order)}
        side, top = (GRID + 1) / columns, (GRID + 1) / rows
        moved = []
        for word in lay_out(blocks):
            column, row = int(word.x // side), int((word.y + word.height / 2) // top)
            position = positions[min(row, rows - 1) * columns + min(column, columns - 1)]
            x = word.x + (position % columns - column) * side
            y = word.y + (position // columns - row) * top
            moved.append(replace(word, x=x, y=y))
        two_columns = sum(b.corners[0][0] >= side for b in blocks if b.corners) > 2
        column_of = (lambda word: word.x >= side) if two_columns else (lambda word: False)
        moved.sort(key=lambda word: (column_of(word), round(word.y), word.x))
        return Completion(write(rebuild(moved, blocks)))

    return perturb


def lose_newlines(answer: str, rng: random.Random) -> Completion:
    """Without a token at the end of each row of patches, rows shift: ends of lines are cut or joined, boxes move."""
    blocks = parse(answer)
    words = []
    for _, line in groupby(lay_out(blocks), key=lambda word: (word.block, word.line)):
        found = list(line)
        last = found[-1]
        cut = replace(last, text=last.text[: max(len(last.text) // 2, 1)])
        if rng.random() < 0.2 and len(found) > 1:
            continue  # a line is lost
        words += [replace(word, x=word.x + rng.uniform(10, 40), y=word.y + rng.uniform(5, 20)) for word in found[:-1]]
        words.append(cut)
    return Completion(write(rebuild(words, blocks)))


def normalise_wrongly(answer: str, rng: random.Random) -> Completion:
    """With a wrong contrast, a third of the words are misread and boxes are up to 15 of 999 off."""
    blocks = [move_boxes(block, 15, rng) for block in parse(answer)]
    return Completion(write(change_content(blocks, 1 / 3, rng)))


def lose_spaces(answer: str, rng: random.Random) -> Completion:
    return Completion(write([replace(b, content=b.content.replace(" ", "")) for b in parse(answer)]))


def show_byte_marks(answer: str, rng: random.Random) -> Completion:
    """As where tokens are not decoded: a mark for each space and newline."""
    return Completion(answer.replace(" ", "Ġ").replace("\n", "Ċ"))


def truncate(answer: str, rng: random.Random) -> Completion:
    return Completion(answer[: round(len(answer) * 0.75)], "length")


def end_early(answer: str, rng: random.Random) -> Completion:
    """As truncated, but the model ends by itself."""
    return replace(truncate(answer, rng), finish_reason="stop")


def add_junk(answer: str, rng: random.Random) -> Completion:
    words = JUNK.split()
    count = max(len(answer.split()) // 3, 20)
    return Completion(f"{answer} {' '.join(f'{rng.choice(words)}{n}' for n in range(count))}", "stop")


TRANSPOSED = (0, 2, 4, 1, 3, 5)  # column by column instead of row by row
NEIGHBOURS = (1, 0, 3, 2, 5, 4)  # left and right swapped
ONE_PAIR = (0, 1, 4, 3, 2, 5)  # only two tiles swapped

FAULTS: dict[str, Perturb] = {
    "tiles by column": swap_tiles(TRANSPOSED),
    "tiles left and right swapped": swap_tiles(NEIGHBOURS),
    "two tiles swapped": swap_tiles(ONE_PAIR),
    "no newline token": lose_newlines,
    "wrong normalisation": normalise_wrongly,
    "lost spaces": lose_spaces,
    "byte-level marks": show_byte_marks,
    "truncated": truncate,
    "ended early": end_early,
    "junk at the end": add_junk,
}
TILE_FAULTS = frozenset(name for name in FAULTS if "tiles" in name)
AT_THE_END = frozenset({"truncated", "ended early", "junk at the end"})
