"""Read data, type and category of a figure from DeepSeek-OCR's replies about it.

`Parse the figure.` gives an HTML table for a chart, a SMILES string for a molecule, a dict of lines and circles for a
geometric figure, and arbitrary text for other pictures. Nothing is evaluated: the forms are found by regexes.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from twopass.document import Axis, Category, Component, Connection, Figure, Kind, Table
from twopass.families import table_parser

MAX_SMILES_LENGTH = 500
_ATOMS = r"\[[^\[\]\s]{1,20}\]|Br|Cl|[BCNOPSFI]|[bcnops]"
_SMILES = re.compile(rf"(?:{_ATOMS}|[=#$:/\\.()+%-]|\d)+")
_BOND = re.compile(r"[=#()\[\]]|[cnos]\d")
_FENCE = re.compile(r"```\w*|</?smiles>|^\s*smiles\s*:", flags=re.IGNORECASE)
_PAIR = r"\(\s*(-?\d+(?:\.\d+)?)\s*,\s*(-?\d+(?:\.\d+)?)\s*\)"
_POINT = re.compile(rf"([A-Za-z]\w{{0,3}}'?)\s*:\s*{_PAIR}")
_LINE = re.compile(rf"{_PAIR}\s*--?\s*{_PAIR}")
_CENTRE = re.compile(rf"circle_center\W{{1,8}}{_PAIR}", flags=re.IGNORECASE)
_RADIUS = re.compile(r"radius\W{1,8}(\d+(?:\.\d+)?)", flags=re.IGNORECASE)
_UNIT = re.compile(r"\s*[(\[（]([^()\[\]（）]{1,20})[)\]）]\s*$")
# Words of a description that show what a picture is; those of the first sentence count FIRST_SENTENCE_WEIGHT times.
_GRAPH = re.compile(
    r"\b(?:charts?|graphs?|plots?|plotted|histograms?|(?:x|y|horizontal|vertical)[- ]ax[ei]s|bars|curves?|scatter)\b",
    flags=re.IGNORECASE,
)
_DIAGRAM = re.compile(
    r"\b(?:diagrams?|flow ?charts?|schematics?|workflows?|pipelines?|architectures?|circuits?|arrows|nodes"
    r"|mind map|organi[sz]ation chart|decision tree|state machine)\b",
    flags=re.IGNORECASE,
)
FIRST_SENTENCE_WEIGHT = 3
_DESCRIPTION_START = re.compile(
    r"(?:the|this)\s+(?:image|figure|picture|diagram|chart|graph|plot|photo)|here is|sure|[{<\[]", re.IGNORECASE
)
_CHART_TYPES = (
    ("pie_chart", re.compile(r"\bpie\b|\bdonut\b", re.IGNORECASE)),
    ("scatter_plot", re.compile(r"\bscatter", re.IGNORECASE)),
    ("bar_chart", re.compile(r"\bbars?\b|\bhistogram|\bcolumn chart", re.IGNORECASE)),
    ("line_chart", re.compile(r"\blines?\b|\bcurves?\b", re.IGNORECASE)),
)
_UNDERLYING_TYPES = (
    ("mixed", re.compile(r"\bscreen ?(?:shot|capture)|\buser interface\b|\bcollage\b", re.IGNORECASE)),
    ("photo", re.compile(r"\bphoto|\bportrait\b|\bpicture of\b", re.IGNORECASE)),
    (
        "drawing",
        re.compile(r"\bdraw|\billustrat|\bsketch|\bcartoon|\blogo\b|\bicon\b|\bpaint|\bmaps?\b", re.IGNORECASE),
    ),
)


class FigureReading(NamedTuple):
    """The type and content of a picture according to a reply."""

    kind: Kind
    category: Category
    figure: Figure


def parse_figure_data(answer: str) -> FigureReading | None:
    """Parse a table, a SMILES string or a geometric figure; None where the answer is none of them."""
    tables = (part.table for part in table_parser.split_tables(answer) if part.table)
    if table := next((table for table in tables if len(table.cells) > 1), None):
        return FigureReading(Kind.CHART, Category.GRAPH, _build_chart(table))
    if smiles := find_smiles(answer):
        figure = Figure(type="chemistry", smiles=smiles, underlying_type="drawing")
        return FigureReading(Kind.PICTURE, Category.COMPLEX_IMAGE, figure)
    if geometry := parse_geometry(answer):
        return FigureReading(Kind.PICTURE, Category.COMPLEX_IMAGE, geometry)
    return None


def _build_chart(table: Table) -> Figure:
    """Build a chart from its data: the first column is the x axis, the others are the series."""
    header = [cell.text for cell in table.cells if cell.row == 0 and cell.col_span == 1]
    series = header[1:]
    # With several series no column title names the y axis.
    axes = tuple(_parse_axis(title) for title in (header if len(header) == 2 else header[:1]))
    return Figure(type="chart", data=table, axes=axes, legend=tuple(series) if len(series) > 1 else ())


def _parse_axis(title: str) -> Axis:
    unit = _UNIT.search(title)
    label = title[: unit.start()] if unit else title
    return Axis(label=label.strip() or None, unit=unit[1].strip() if unit else None)


def find_smiles(answer: str) -> str | None:
    """Return the SMILES string if the answer is one and nothing else; words in capitals do not count."""
    text = _FENCE.sub("", answer).strip()
    if not 3 <= len(text) <= MAX_SMILES_LENGTH or not _SMILES.fullmatch(text):
        return None
    atoms = len(re.findall(_ATOMS, text))
    is_balanced = text.count("(") == text.count(")") and text.count("[") == text.count("]")
    is_chain = re.fullmatch(r"[CNO]*CC[CNO]*", text)
    return text if atoms >= 3 and is_balanced and (_BOND.search(text) or is_chain) else None


def parse_geometry(answer: str) -> Figure | None:
    """Return points, lines and circles if the answer is the dict that the model writes for a geometric figure."""
    if not re.search(r"line_(?:type|endpoint)|circle_center", answer):
        return None
    points = {(x, y): name for name, x, y in _POINT.findall(answer)}
    components = [Component(id=name, label=f"{name} ({x}, {y})") for (x, y), name in points.items()]
    for n, ((x, y), radius) in enumerate(zip(_CENTRE.findall(answer), _RADIUS.findall(answer), strict=False), start=1):
        components.append(Component(id=f"circle{n}", label=f"circle ({x}, {y}), radius {radius}"))
    lines = tuple(
        Connection(source=points.get((a, b), f"({a}, {b})"), target=points.get((c, d), f"({c}, {d})"), label="line")
        for a, b, c, d in _LINE.findall(answer)
    )
    if not components and not lines:
        return None
    return Figure(type="geometry", components=tuple(components), connections=lines, underlying_type="drawing")


def classify_description(description: str) -> FigureReading:
    """Classify a picture by the words of its description.

    | words of the description | category |
    |---|---|
    | more about axes, bars and curves than about nodes and arrows | graph |
    | any about nodes, arrows, flows or schematics | diagram |
    | neither | complex image: photo, drawing, mixed or unknown |
    """
    graph, diagram = _weigh_words(_GRAPH, description), _weigh_words(_DIAGRAM, description)
    if graph > diagram:
        kind = next((name for name, words in _CHART_TYPES if words.search(description)), "chart")
        return FigureReading(Kind.CHART, Category.GRAPH, Figure(type=kind, description=description))
    if diagram:
        return FigureReading(Kind.PICTURE, Category.DIAGRAM, Figure(type="diagram", description=description))
    underlying_type = next((name for name, words in _UNDERLYING_TYPES if words.search(description)), "unknown")
    figure = Figure(type="image", description=description, underlying_type=underlying_type)
    return FigureReading(Kind.PICTURE, Category.COMPLEX_IMAGE, figure)


def is_description(answer: str) -> bool:
    """Whether an answer is a sentence about the picture, or code, and not the words in it."""
    return bool(_DESCRIPTION_START.match(answer))


def _weigh_words(words: re.Pattern[str], description: str) -> int:
    first_sentence = re.split(r"(?<=[.!?。])\s*", description, maxsplit=1)[0]
    return len(words.findall(description)) + (FIRST_SENTENCE_WEIGHT - 1) * len(words.findall(first_sentence))
