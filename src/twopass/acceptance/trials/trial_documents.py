"""The documents that trials read: PDFs with drawn pages whose text is known, and files of the user.

No two drawn pages have the same text, so that every page is read and not found in the store. Letters and cells are as
small as in real documents: a setting that costs detail shows first in small print.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from twopass.acceptance import drawn_pages
from twopass.acceptance.drawn_pages import DrawnPage, Rows
from twopass.errors import SourceError
from twopass.pages import source_files
from twopass.pages.file_types import IN_FOLDERS
from twopass.text import prose

SETS = 10  # of drawn pages: 120 pages, some ten seconds on a fast GPU, so that their speed can be compared
SMALL_PRINT, _COLUMN_PRINT = 7, 9  # points
_SHIPS = ("Admiral", "Boreas", "Cormorant", "Dorothea", "Elisabeth", "Fortuna", "Good Hope", "Heron", "Isolde")
_PORTS = ("Aberdeen", "Bergen", "Cádiz", "Danzig", "Emden", "Falmouth", "Genoa", "Hull", "Lübeck", "Malmö")
_GOODS = ("barrels of herring", "bales of wool", "sacks of rye", "crates of oranges", "planks of oak", "coils of rope")
_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
SENTENCES = (
    "On {day} the {ship} brought {count} {goods} from {port}, for which the harbour master charged {price} shillings.",
    "In {year} the pier at {port} was rebuilt by {few} carpenters, who needed {count} nails and {few} weeks.",
    "The keeper counted {few} ships before dark; the {ship}, bound for {port}, passed last.",
    "A storm from the north kept the {ship} in {port} until {day}, and {few} of her {goods} were spoiled.",
    "The ledger of {year} lists {count} {goods} on page {few}, and beside them a drawing of a heron.",
    "Nobody in {port} remembers the {ship}, although she paid {price} shillings of duty every year from {year}.",
)
CHINESE = (
    "{year}年{few}月，一艘船从港口运来{count}箱橙子，关税为{price}先令。",
    "灯塔看守人在第{few}页写道：那天晚上经过了{few}艘船，风从北方吹来。",
    "{year}年的暴风雨冲走了码头，{few}个木匠用了{count}块木板把它重建起来。",
)


@dataclass(frozen=True)
class Truth:
    """What a page says: its words, and the rows of its tables."""

    text: str
    tables: tuple[Rows, ...] = ()


@dataclass(frozen=True)
class TrialDocument:
    """A file to read, and what is known of its pages by number.

    `is_drawn`: `truths` are what was drawn. Otherwise they are the text layers of a user's file, which may lack words
    or have wrong ones; pages without a text layer are missing.
    """

    path: Path
    truths: Mapping[int, Truth] = field(default_factory=lambda: MappingProxyType({}))
    is_drawn: bool = False


def prepare(folder: Path, files: Path | None = None, sets: int = SETS) -> list[TrialDocument]:
    """Draw so many sets of pages into the folder, and find the user's documents below `files`."""
    folder.mkdir(parents=True, exist_ok=True)
    drawn = [document for number in range(sets) for document in _draw_set(folder, number)]
    return [*drawn, *(find_files(files) if files else ())]


def find_files(folder: Path) -> list[TrialDocument]:
    paths = sorted(path for path in folder.rglob("*") if path.suffix.lower() in IN_FOLDERS and path.is_file())
    return [
        TrialDocument(path, {number: Truth(text) for number, text in read_text_layers(path).items()}) for path in paths
    ]


def read_text_layers(path: Path) -> dict[int, str]:
    """The text of each page that has a usable text layer; nothing for files that are no PDF or cannot be opened."""
    if path.suffix.lower() != ".pdf":
        return {}
    try:
        with source_files.open_pdf(str(path), None) as pdf:
            texts = {number: str(page.get_text()) for number, page in enumerate(pdf, 1)}
    except SourceError:
        return {}
    return {number: text for number, text in texts.items() if text.strip() and not prose.is_garbage(text)}


def _draw_set(folder: Path, number: int) -> list[TrialDocument]:
    """One set: eight pages with a text layer, and four scans of other pages."""
    writer = _Writer(random.Random(number))
    pages = [
        drawn_pages.prose(writer.paragraphs(4), writer.title()),
        drawn_pages.prose(writer.paragraphs(12), size=SMALL_PRINT),
        drawn_pages.prose(writer.paragraphs(10), size=_COLUMN_PRINT, columns=2),
        writer.table(rows=11, columns=4),
        writer.table(rows=34, columns=7, width=65, height=17),
        writer.table_of_equal_cells(),
        drawn_pages.small_parts([writer.rows(4, 3), writer.rows(5, 3)], writer.sums(3)),
        drawn_pages.prose(writer.paragraphs(6, CHINESE)),
    ]
    scanned = [
        drawn_pages.prose(writer.paragraphs(4), writer.title()),
        drawn_pages.prose(writer.paragraphs(12), size=SMALL_PRINT),
        writer.table(rows=11, columns=4),
        drawn_pages.small_parts([writer.rows(4, 3), writer.rows(5, 3)], writer.sums(3)),
    ]
    path, scan_path = folder / f"drawn-{number:02}.pdf", folder / f"scans-{number:02}.pdf"
    drawn_pages.save(pages, path)
    drawn_pages.save_scans(scanned, scan_path)
    return [_describe(path, pages), _describe(scan_path, scanned)]


def _describe(path: Path, pages: Sequence[DrawnPage]) -> TrialDocument:
    truths = {number: Truth(page.text, page.tables) for number, page in enumerate(pages, 1)}
    return TrialDocument(path, truths, is_drawn=True)


@dataclass(frozen=True)
class _Writer:
    """Writes text with names and numbers that cannot be guessed from the rest of it."""

    random: random.Random

    def sentence(self, sentences: Sequence[str] = SENTENCES) -> str:
        pick, number = self.random.choice, self.random.randint
        return pick(sentences).format(
            day=pick(_DAYS), ship=pick(_SHIPS), port=pick(_PORTS), goods=pick(_GOODS), year=number(1780, 1899),
            few=number(3, 60), count=number(100, 9800), price=number(11, 990),
        )  # fmt: skip

    def paragraphs(self, count: int, sentences: Sequence[str] = SENTENCES) -> list[str]:
        space = "" if sentences is CHINESE else " "
        return [space.join(self.sentence(sentences) for _ in range(4)) for _ in range(count)]

    def title(self) -> str:
        return f"The ledger of {self.random.choice(_PORTS)}, {self.random.randint(1780, 1899)}"

    def rows(self, count: int, columns: int) -> list[list[str]]:
        header = ["Harbour", "Ships", "Cargo", "Duty", "Wool", "Rye", "Oak"][:columns]
        body = [
            [self.random.choice(_PORTS), *(str(self.random.randint(2, 99_999)) for _ in range(columns - 1))]
            for _ in range(count - 1)
        ]
        return [header, *body]

    def table(self, rows: int, columns: int, width: float = 110, height: float = drawn_pages.ROW_HEIGHT) -> DrawnPage:
        caption = f"Table {self.random.randint(2, 90)}. Ships and duties"
        note = self.sentence() if rows < 20 else ""
        return drawn_pages.table(self.rows(rows, columns), caption, note, width, height)

    def table_of_equal_cells(self) -> DrawnPage:
        """A table most of whose cells are equal: the n-gram ban may change them."""
        rows = [
            [self.random.choice(_PORTS), *(self.random.choice(("0.00", "0.00", "0.00", "1.50")) for _ in range(4))]
            for _ in range(14)
        ]
        header = ["Harbour", "Herring", "Wool", "Rye", "Oak"]
        return drawn_pages.table([header, *rows], f"Table {self.random.randint(2, 90)}. Losses", "", 88, 26)

    def sums(self, count: int) -> list[str]:
        """Formulas that are written with the same numbers in LaTeX."""
        numbers = [(self.random.randint(100, 9999), self.random.randint(100, 9999)) for _ in range(count)]
        return [f"{a} + {b} = {a + b}" for a, b in numbers]
