"""Read data, type and category of a figure from DeepSeek-OCR's replies about it.

`Parse the figure.` gives an HTML table for a chart, a SMILES string for a molecule, a dict of lines and circles for a
geometric figure, and arbitrary text for other pictures. Nothing is evaluated: the forms are found by regexes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from twopass.document import Axis, Category, Component, Connection, Figure, Kind, Table
from twopass.families import table_parser

_MAX_SMILES_LENGTH = 500
_ATOMS = r"\[[^\[\]\s]{1,20}\]|Br|Cl|[BCNOPSFI]|[bcnops]"
_SMILES = re.compile(rf"(?:{_ATOMS}|[=#$:/\\.()+%-]|\d)+")
_BOND = re.compile(r"[=#()\[\]]|[cnos]\d")
_FENCE = re.compile(r"```\w*|</?smiles>|^\s*smiles\s*:", flags=re.IGNORECASE)
_PAIR = r"\(\s*(-?\d+(?:\.\d+)?)\s*,\s*(-?\d+(?:\.\d+)?)\s*\)"
_POINT = re.compile(rf"([A-Za-z]\w{{0,3}}'?)\s*:\s*{_PAIR}")
_LINE = re.compile(rf"{_PAIR}\s*--?\s*{_PAIR}")
_CENTRE = re.compile(rf"circle_center\W{{1,8}}{_PAIR}", flags=re.IGNORECASE)
_RADIUS = re.compile(r"radius\W{1,8}(\d+(?:\.\d+)?)", flags=re.IGNORECASE)
_UNIT = re.compile(r"[(\[（]([^()\[\]（）]{1,20})[)\]）]\s*$")
# Words of a description that show what a picture is; those of the first sentence count _FIRST_SENTENCE_WEIGHT times.
# DeepSeek-OCR describes in English, other models also in Korean and Chinese. With re.ASCII, \b separates Latin letters
# from those of other scripts, too.
_GRAPH = re.compile(
    r"\b(?:charts?|graphs?|plots?|plotted|histograms?|(?:x|y|horizontal|vertical)[- ]ax[ei]s|bars|curves?|scatter)\b"
    r"|그래프|차트|히스토그램|산점도|막대(?!기)|곡선|(?:[xy]|가로|세로) ?축"
    r"|[图圖]表|(?:柱[状狀]|[条條]形|折[线線]|[饼餅]|散[点點]|直方|曲[线線])[图圖]|曲[线線]"
    r"|[xy横橫纵縱](?:坐[标標])?[轴軸]|[横橫纵縱]坐[标標]",
    flags=re.IGNORECASE | re.ASCII,
)
_DIAGRAM = re.compile(
    r"\b(?:diagrams?|flow ?charts?|schematics?|workflows?|pipelines?|architectures?|circuits?|arrows|nodes"
    r"|mind map|organi[sz]ation chart|decision tree|state machine)\b"
    r"|다이어그램|(?:순서|흐름|구성|구조|조직|회로|계통|배치|블록)도|플로 ?차트|마인드맵|화살표|노드|아키텍처"
    r"|(?:流程|示意|架[构構]|[結结][构構]|[組组][织織]|[电電]路|原理|[关關]系|系[统統]|[时時]序|拓[扑撲]|框)[图圖]"
    r"|思[维維][导導][图圖]|箭[头頭]|[節节][点點]",
    flags=re.IGNORECASE | re.ASCII,
)
_FIRST_SENTENCE_WEIGHT = 3
_DESCRIPTION_START = re.compile(
    r"(?:the|this)\s+(?:image|figure|picture|diagram|chart|graph|plot|photo)|here is|sure|[{<\[]"
    r"|(?:이|해당|제시된)\s*(?:이미지|그림|사진|도표|그래프|차트|다이어그램)"
    r"|(?:这|這|该|該|此|本)[张張幅个個]?(?:[图圖]|照片|流程)|[图圖](?:中|片中|像中)",
    re.IGNORECASE,
)
_CHART_TYPES = (
    ("pie_chart", re.compile(r"\bpie\b|\bdonut\b|원 ?그래프|원형 ?차트|파이 ?차트|[饼餅][图圖]", re.IGNORECASE)),
    ("scatter_plot", re.compile(r"\bscatter|산점도|분산형|散[点點][图圖]", re.IGNORECASE)),
    (
        "bar_chart",
        re.compile(
            r"\bbars?\b|\bhistogram|\bcolumn chart|막대|히스토그램|(?:柱[状狀]|[条條]形|直方)[图圖]", re.IGNORECASE
        ),
    ),
    ("line_chart", re.compile(r"\blines?\b|\bcurves?\b|꺾은선|선 ?그래프|곡선|折[线線]|曲[线線]", re.IGNORECASE)),
)
_UNDERLYING_TYPES = (
    (
        "mixed",
        re.compile(
            r"\bscreen ?(?:shot|capture)|\buser interface\b|\bcollage\b|스크린 ?샷|화면|截[图圖屏]|界面|介面",
            re.IGNORECASE,
        ),
    ),
    ("photo", re.compile(r"\bphoto|\bportrait\b|\bpicture of\b|사진|照片|相片", re.IGNORECASE)),
    (
        "drawing",
        re.compile(
            r"\bdraw|\billustrat|\bsketch|\bcartoon|\blogo\b|\bicon\b|\bpaint|\bmaps?\b"
            r"|삽화|일러스트|스케치|만화|로고|아이콘|지도|[插绘繪漫地][图圖画畫]|[标標][志誌]|徽[标標]|素描",
            re.IGNORECASE,
        ),
    ),
)
_INTEGER = re.compile(r"\d{1,9}")
_NUMBER = re.compile(r"([^\w()\[\]+−.,-]{0,3})([+−-]?\d+(?:[.,]\d+)*)([^\d()\[\]]{0,12})")
_THOUSANDS = re.compile(r"[+-]?\d{1,3}(?:,\d{3})+(?:\.\d+)?")
_THOUSANDS_OR_DECIMALS = re.compile(r"[+-]?[1-9]\d{0,2}\.\d{3}")  # 1.234 is one or the other, by language
_MIN_TREND_POINTS = 3


class FigureReading(NamedTuple):
    """The type and content of a picture according to a reply."""

    kind: Kind
    category: Category
    figure: Figure

    @classmethod
    def of(cls, figure: Figure) -> FigureReading:
        category = _choose_category(figure)
        return cls(Kind.CHART if category is Category.GRAPH else Kind.PICTURE, category, figure)


def parse_figure_data(answer: str) -> FigureReading | None:
    """Parse a table, a SMILES string or a geometric figure; None where the answer is none of them."""
    tables = (part.table for part in table_parser.split_tables(answer) if part.table)
    if table := next((table for table in tables if len(table.cells) > 1), None):
        return FigureReading.of(_build_chart(table))
    if smiles := find_smiles(answer):
        return FigureReading.of(Figure(type="chemistry", smiles=smiles, underlying_type="drawing"))
    if geometry := parse_geometry(answer):
        return FigureReading.of(geometry)
    return None


def _build_chart(table: Table) -> Figure:
    """Build a chart from its data: the first column is the x axis, the others are the series."""
    header = [cell.text for cell in table.cells if cell.row == 0 and cell.col_span == 1]
    series = header[1:]
    # With several series no column title names the y axis.
    axes = tuple(_parse_axis(title) for title in (header if len(header) == 2 else header[:1]))
    legend = tuple(series) if len(series) > 1 else ()
    return Figure(type="chart", data=table, axes=axes, legend=legend, trends=derive_trends(table))


def derive_trends(table: Table) -> tuple[str, ...]:
    """The course of each series, such as `Rain: 610 (2021) ↗ 700 (2022) ↘ 480 (2024)`.

    Its points are the first and the last one, the lowest and the highest. Only for rows whose labels have growing
    numbers, such as years: bars of other names have no order.
    """
    texts = {(cell.row, cell.col): " ".join(cell.text.split()) for cell in table.cells}
    labels = [texts.get((row, 0), "") for row in range(1, table.rows)]
    if len(labels) < _MIN_TREND_POINTS or not _is_growing([tuple(map(int, _INTEGER.findall(x))) for x in labels]):
        return ()
    trends = []
    for column in range(1, table.cols):
        cells = [texts.get((row, column), "") for row in range(1, table.rows)]
        if values := _parse_numbers(cells):
            trends.append(f"{texts.get((0, column), '')}: {_describe_course(labels, cells, values)}".removeprefix(": "))
    return tuple(trends)


def _is_growing(labels: Sequence[tuple[int, ...]]) -> bool:
    return all(labels) and all(one < other for one, other in pairwise(labels))


def _describe_course(labels: Sequence[str], cells: Sequence[str], values: Sequence[float]) -> str:
    points = sorted({0, values.index(min(values)), values.index(max(values)), len(values) - 1})
    parts = [f"{cells[0]} ({labels[0]})"]
    for one, other in pairwise(points):
        arrow = "↗" if values[other] > values[one] else "↘" if values[other] < values[one] else "→"
        parts.append(f"{arrow} {cells[other]} ({labels[other]})")
    return " ".join(parts)


def _parse_numbers(cells: Sequence[str]) -> list[float] | None:
    """Parse the numbers of one series; None unless all cells are numbers of the same unit that can be compared."""
    found = [_NUMBER.fullmatch(cell.strip()) for cell in cells]
    matches = [match for match in found if match]
    if len(matches) < len(cells) or len({(match[1].strip(), match[3].strip()) for match in matches}) > 1:
        return None
    texts = [match[2].replace("−", "-") for match in matches]
    if len({bool(_THOUSANDS_OR_DECIMALS.fullmatch(text)) for text in texts}) > 1:
        return None
    texts = [text.replace(",", "" if _THOUSANDS.fullmatch(text) else ".") for text in texts]
    return [float(text) for text in texts] if all(text.count(".") <= 1 for text in texts) else None


def _parse_axis(title: str) -> Axis:
    unit = _UNIT.search(title)
    label = title[: unit.start()] if unit else title
    return Axis(label=label.strip() or None, unit=unit[1].strip() if unit else None)


def find_smiles(answer: str) -> str | None:
    """The SMILES string if the answer is one and nothing else; words in capitals do not count."""
    text = _FENCE.sub("", answer).strip()
    if not 3 <= len(text) <= _MAX_SMILES_LENGTH or not _SMILES.fullmatch(text):
        return None
    atoms = len(re.findall(_ATOMS, text))
    is_balanced = text.count("(") == text.count(")") and text.count("[") == text.count("]")
    is_chain = re.fullmatch(r"[CNO]*CC[CNO]*", text)
    return text if atoms >= 3 and is_balanced and (_BOND.search(text) or is_chain) else None


def parse_geometry(answer: str) -> Figure | None:
    """Points, lines and circles if the answer is the dict that the model writes for a geometric figure."""
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


def _choose_category(figure: Figure) -> Category:
    """Decide the category by what was extracted from a figure, and otherwise by the words of its description.

    | extracted | words of the description | category |
    |---|---|---|
    | a molecule | any | complex image |
    | nodes or connections | any | diagram |
    | data with numbers | any | graph |
    | nothing, or data without numbers | more about axes, bars and curves than about nodes and arrows | graph |
    | nothing, or data without numbers | any about nodes, arrows, flows or schematics | diagram |
    | data without numbers | neither | graph |
    | nothing | neither | complex image |
    """
    if figure.smiles:
        return Category.COMPLEX_IMAGE
    if figure.components or figure.connections:
        return Category.DIAGRAM
    if figure.data and _has_numbers(figure.data):
        return Category.GRAPH
    by_words = classify_words(figure.description or "")
    return by_words or (Category.GRAPH if figure.data else Category.COMPLEX_IMAGE)


def classify_words(description: str) -> Category | None:
    """Classify a picture by English, Korean and Chinese words about it; None if they are not about its structure."""
    graph, diagram = _weigh_words(_GRAPH, description), _weigh_words(_DIAGRAM, description)
    if graph > diagram:
        return Category.GRAPH
    return Category.DIAGRAM if diagram else None


def _has_numbers(table: Table) -> bool:
    return any(_NUMBER.fullmatch(cell.text.strip()) for cell in table.cells if cell.row and cell.col)


def add_description(figure: Figure, description: str) -> FigureReading:
    """Add a description to what was extracted from a figure; it also decides the type where that is not known."""
    reading = FigureReading.of(figure.model_copy(update={"description": description}))
    if reading.category is Category.GRAPH:
        kind = next((name for name, words in _CHART_TYPES if words.search(description)), "chart")
        return reading._replace(figure=reading.figure.model_copy(update={"type": kind}))
    update: dict[str, object] = {"axes": (), "legend": (), "trends": ()}  # those of its words in rows and columns
    if reading.category is Category.DIAGRAM:
        update["type"] = figure.type if figure.type == "geometry" else "diagram"
    elif not figure.smiles:
        found = (name for name, words in _UNDERLYING_TYPES if words.search(description))
        update |= {"type": "image", "underlying_type": next(found, "unknown")}
    return reading._replace(figure=reading.figure.model_copy(update=update))


def is_description(answer: str) -> bool:
    """Whether an answer is a sentence about the picture, or code, and not the words in it."""
    return bool(_DESCRIPTION_START.match(answer))


def _weigh_words(words: re.Pattern[str], description: str) -> int:
    first_sentence = re.split(r"(?<=[.!?。])\s*", description, maxsplit=1)[0]
    return len(words.findall(description)) + (_FIRST_SENTENCE_WEIGHT - 1) * len(words.findall(first_sentence))
