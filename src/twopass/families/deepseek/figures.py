"""What DeepSeek-OCR says of a picture in, what the picture is and shows out.

`Parse the figure.` answers with an HTML table of a chart's data, a SMILES string of a molecule, a dict of lines
and circles of a plane figure, and with anything at all on other pictures. Nothing is evaluated: shapes are found
by their spelling. Knows these answers. Knows nothing of prompts, crops or pages.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from twopass.document import Axis, Category, Component, Connection, Figure, Kind, Table
from twopass.families import table_parser

LONGEST_SMILES = 500
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
# The words of a description that tell what a picture is; the first sentence counts FIRST times.
_GRAPH = re.compile(
    r"\b(?:charts?|graphs?|plots?|plotted|histograms?|(?:x|y|horizontal|vertical)[- ]ax[ei]s|bars|curves?|scatter)\b",
    flags=re.IGNORECASE,
)
_DIAGRAM = re.compile(
    r"\b(?:diagrams?|flow ?charts?|schematics?|workflows?|pipelines?|architectures?|circuits?|arrows|nodes"
    r"|mind map|organi[sz]ation chart|decision tree|state machine)\b",
    flags=re.IGNORECASE,
)
FIRST = 3
_ABOUT = re.compile(
    r"(?:the|this)\s+(?:image|figure|picture|diagram|chart|graph|plot|photo)|here is|sure|[{<\[]", re.IGNORECASE
)
_CHARTS = (
    ("pie_chart", re.compile(r"\bpie\b|\bdonut\b", re.IGNORECASE)),
    ("scatter_plot", re.compile(r"\bscatter", re.IGNORECASE)),
    ("bar_chart", re.compile(r"\bbars?\b|\bhistogram|\bcolumn chart", re.IGNORECASE)),
    ("line_chart", re.compile(r"\blines?\b|\bcurves?\b", re.IGNORECASE)),
)
_UNDERLYING = (
    ("mixed", re.compile(r"\bscreen ?(?:shot|capture)|\buser interface\b|\bcollage\b", re.IGNORECASE)),
    ("photo", re.compile(r"\bphoto|\bportrait\b|\bpicture of\b", re.IGNORECASE)),
    (
        "drawing",
        re.compile(r"\bdraw|\billustrat|\bsketch|\bcartoon|\blogo\b|\bicon\b|\bpaint|\bmaps?\b", re.IGNORECASE),
    ),
)


class Seen(NamedTuple):
    """What a picture turned out to be."""

    kind: Kind
    category: Category
    figure: Figure


def parsed(answer: str) -> Seen | None:
    """What `Parse the figure.` made of it; None where the answer has none of the three shapes."""
    table = next((part.table for part in table_parser.parts(answer) if part.table and len(part.table.cells) > 1), None)
    if table:
        return Seen(Kind.CHART, Category.GRAPH, _charted(table))
    if found := smiles(answer):
        figure = Figure(type="chemistry", smiles=found, underlying_type="drawing")
        return Seen(Kind.PICTURE, Category.COMPLEX_IMAGE, figure)
    if drawn := geometry(answer):
        return Seen(Kind.PICTURE, Category.COMPLEX_IMAGE, drawn)
    return None


def _charted(table: Table) -> Figure:
    """A chart from its data: the first column is what it runs over, the others are what it shows."""
    head = [cell.text for cell in table.cells if cell.row == 0 and cell.col_span == 1]
    series = head[1:]
    axes = (_axis(head[0]), _axis(series[0])) if len(head) == 2 else (_axis(head[0]),) if head else ()
    return Figure(type="chart", data=table, axes=axes, legend=tuple(series) if len(series) > 1 else ())


def _axis(title: str) -> Axis:
    unit = _UNIT.search(title)
    label = title[: unit.start()] if unit else title
    return Axis(label=label.strip() or None, unit=unit[1].strip() if unit else None)


def smiles(answer: str) -> str | None:
    """A molecule's SMILES string, where the answer is one and nothing else: words of capitals are none."""
    text = _FENCE.sub("", answer).strip()
    if not 3 <= len(text) <= LONGEST_SMILES or not _SMILES.fullmatch(text):
        return None
    atoms = len(re.findall(_ATOMS, text))
    balanced = text.count("(") == text.count(")") and text.count("[") == text.count("]")
    chain = re.fullmatch(r"[CNO]*CC[CNO]*", text)
    return text if atoms >= 3 and balanced and (_BOND.search(text) or chain) else None


def geometry(answer: str) -> Figure | None:
    """A plane figure's points, lines and circles, where the answer is the dict the model writes of one."""
    if not re.search(r"line_(?:type|endpoint)|circle_center", answer):
        return None
    points = {(x, y): name for name, x, y in _POINT.findall(answer)}
    components = [Component(id=name, label=f"{name} ({x}, {y})") for (x, y), name in points.items()]
    for n, ((x, y), radius) in enumerate(zip(_CENTRE.findall(answer), _radii(answer), strict=False), start=1):
        components.append(Component(id=f"circle{n}", label=f"circle ({x}, {y}), radius {radius}"))
    lines = tuple(
        Connection(source=points.get((a, b), f"({a}, {b})"), target=points.get((c, d), f"({c}, {d})"), label="line")
        for a, b, c, d in _LINE.findall(answer)
    )
    if not components and not lines:
        return None
    return Figure(type="geometry", components=tuple(components), connections=lines, underlying_type="drawing")


def _radii(answer: str) -> Sequence[str]:
    return [str(radius) for radius in _RADIUS.findall(answer)]


def described(description: str) -> Seen:
    """What a picture is by its description.

    | the description says | it is |
    |---|---|
    | more of axes, bars and curves than of nodes and arrows | a graph |
    | anything of nodes, arrows, flows or schemes | a diagram |
    | neither | a complex image: a photo, a drawing, mixed, or nobody knows |
    """
    graph, diagram = _weight(_GRAPH, description), _weight(_DIAGRAM, description)
    if graph > diagram:
        kind = next((name for name, words in _CHARTS if words.search(description)), "chart")
        return Seen(Kind.CHART, Category.GRAPH, Figure(type=kind, description=description))
    if diagram:
        return Seen(Kind.PICTURE, Category.DIAGRAM, Figure(type="diagram", description=description))
    under = next((name for name, words in _UNDERLYING if words.search(description)), "unknown")
    figure = Figure(type="image", description=description, underlying_type=under)
    return Seen(Kind.PICTURE, Category.COMPLEX_IMAGE, figure)


def is_about(answer: str) -> bool:
    """Whether an answer tells of the picture, or is code, where the words in it were wanted."""
    return bool(_ABOUT.match(answer))


def _weight(words: re.Pattern[str], description: str) -> int:
    first = re.split(r"(?<=[.!?。])\s*", description, maxsplit=1)[0]
    return len(words.findall(description)) + (FIRST - 1) * len(words.findall(first))
