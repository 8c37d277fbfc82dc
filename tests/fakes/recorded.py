"""A four-page report, and answers that DeepSeek-OCR could give about its pages and crops.

Page 1 has an element of every kind. The answers about page 2 loop twice, then it is read in another mode. Those about
pages 3 and 4 loop on every rung; page 3 has a text layer, page 4 is a picture.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pymupdf

from tests.fakes.answers import block
from twopass.engines.interface import Completion, Prompt
from twopass.engines.replay import ReplayEngine


def html(rows: Iterable[Iterable[str]]) -> str:
    lines = ("".join(f"<td>{cell}</td>" for cell in row) for row in rows)
    return f"<table>{''.join(f'<tr>{line}</tr>' for line in lines)}</table>"


WIDTH, HEIGHT = 595, 842
RED, BLUE = (0.9, 0.1, 0.1), (0.1, 0.2, 0.9)
PARAGRAPH = "The reservoir holds nine hundred cubic metres and is filled from two springs in the hills above the town."
DOUBTED = "The upper spring rises below the old quarry and was first measured in the dry summer of 1921."
MISREAD = "The vpper sprlng rlses bel0w tne o1d quarrv ano wes flrst rneasured ln tne drv surnmer of 1921."
LOOPED = "The lower spring is measured by hand, twice a week, and the book of readings is kept in the pump house."
ROWS = (("Pump", "Flow", "Hours"), ("North", "12.5", "2100"), ("South", "9.75", "1840"))
HTML = html(ROWS)
CHART_HTML = html((("Year", "Rain (mm)"), ("2021", "610"), ("2022", "480")))
CHART = "This is a bar chart of the rain in two years. The bar of 2021 is the higher one."
DIAGRAM = "The image is a flow diagram. Arrows lead from a box labelled Spring to a box labelled Reservoir."
PHOTO = "This photo shows a grey wall of stones. Nothing is written on it."

TABLE_AT, CHART_AT, DIAGRAM_AT = (72, 200, 400, 290), (72, 320, 280, 470), (320, 320, 540, 470)
FORMULA_AT, DOUBTED_AT, PHOTO_AT = (200, 500, 380, 530), (72, 550, 523, 590), (72, 620, 300, 720)


def grid(at: tuple[float, float, float, float]) -> tuple[int, ...]:
    """Convert points of the page to whole numbers from 0 to 999."""
    return tuple(round(v / size * 999) for v, size in zip(at, (WIDTH, HEIGHT, WIDTH, HEIGHT), strict=True))


def report() -> bytes:
    with pymupdf.open() as pdf:
        _everything(pdf.new_page(width=WIDTH, height=HEIGHT))
        _prose(pdf.new_page(width=WIDTH, height=HEIGHT))
        _prose(pdf.new_page(width=WIDTH, height=HEIGHT))
        picture = pdf[1].get_pixmap(dpi=100)
        pdf.new_page(width=WIDTH, height=HEIGHT).insert_image((0, 0, WIDTH, HEIGHT), pixmap=picture)
        return bytes(pdf.tobytes())


def _prose(page: pymupdf.Page) -> None:
    page.insert_text((72, 90), "2 Readings", fontsize=16, fontname="hebo")
    page.insert_textbox((72, 110, 523, 200), LOOPED, fontsize=11)


def _everything(page: pymupdf.Page) -> None:
    page.insert_text((72, 90), "Water in the Hills", fontsize=22, fontname="hebo")
    page.insert_text((72, 125), "1 Springs", fontsize=14, fontname="hebo")
    page.insert_textbox((72, 135, 523, 180), PARAGRAPH, fontsize=11)
    for r, row in enumerate(ROWS):
        for c, text in enumerate(row):
            page.draw_rect((72 + 109 * c, 200 + 30 * r, 181 + 109 * c, 230 + 30 * r))
            page.insert_text((80 + 109 * c, 220 + 30 * r), text, fontsize=11)
    for n, height in enumerate((120, 90, 60)):
        page.draw_rect((90 + 60 * n, 460 - height, 130 + 60 * n, 460), fill=RED, color=RED)
    for x in (330, 450):
        page.draw_rect((x, 370, x + 80, 420), fill=BLUE, color=BLUE)
    page.draw_line((410, 395), (450, 395), width=2)
    page.insert_text((80, 302), "Table 1: The pumps", fontsize=9)
    page.insert_text((80, 482), "Figure 1: Rain", fontsize=9)
    page.insert_text((260, 520), "Q = v A", fontsize=14)
    page.insert_textbox(DOUBTED_AT, DOUBTED, fontsize=11)
    page.draw_rect(PHOTO_AT, fill=(0.6, 0.6, 0.6), color=(0.6, 0.6, 0.6))


FIRST_PAGE = (
    block("title", "# Water in the Hills", grid((72, 70, 300, 95)))
    + block("sub_title", "## 1 Springs", grid((72, 110, 200, 130)))
    + block("text", PARAGRAPH, grid((72, 135, 523, 180)))
    + block("table", "", grid(TABLE_AT))
    + block("table_caption", f"<center>Table 1: The pumps </center>\n\n{HTML}", grid((72, 292, 400, 305)))
    + block("image", "", grid(CHART_AT))
    + block("image_caption", "<center>Figure 1: Rain </center>", grid((72, 472, 280, 485)))
    + block("image", "", grid(DIAGRAM_AT))
    + block("equation", "\\[ Q = v A \\]", grid(FORMULA_AT))
    + block("text", MISREAD, grid(DOUBTED_AT))
    + block("image", "", grid(PHOTO_AT))
)
PROSE_PAGE = block("sub_title", "## 2 Readings", grid((72, 75, 200, 95))) + block(
    "text", LOOPED, grid((72, 110, 523, 200))
)
LOOP = block("sub_title", "## 2 Readings", grid((72, 75, 200, 95))) + "".join(
    block("text", "The lower", (120, 130 + 7 * n, 700, 138 + 7 * n)) for n in range(60)
)
RUNGS = ("", "-again", "-mode", "-free")
ANSWERS: Mapping[str, str] = {
    "p0001": FIRST_PAGE,
    "p0001-e003": block("table", HTML, (5, 5, 990, 990)),  # the table
    "p0001-e005": CHART_HTML,  # the chart, parsed
    "p0001-e005-2": CHART,
    "p0001-e007": "Spring\nReservoir",  # the diagram, parsed: its words
    "p0001-e007-2": DIAGRAM,
    "p0001-e008": "\\[ Q = v A \\tag{1} \\]",
    "p0001-e009": DOUBTED,
    "p0001-e010": "The figure shows nothing.",
    "p0001-e010-2": PHOTO + " And so on." * 200,  # a description that loops
    "p0002": LOOP,
    "p0002-again": LOOP,
    "p0002-mode": PROSE_PAGE,
    **{f"p0003{rung}": LOOP for rung in RUNGS[:3]},
    "p0003-free": "o" * 500,
    **{f"p0004{rung}": LOOP for rung in RUNGS[:3]},
    "p0004-free": "o" * 500,
}


def _completion(text: str) -> Completion:
    """A loop ends at the token limit, as real ones do."""
    return Completion(text, "length" if text == LOOP else "stop")


class RecordingEngine(ReplayEngine):
    """Replay the recorded answers; remember each prompt and the mean colour of its picture, by the end of its id."""

    def __init__(self, source_key: str, answers: Mapping[str, str] = ANSWERS, family: str = "deepseek_ocr") -> None:
        super().__init__({f"{source_key}/{name}": _completion(text) for name, text in answers.items()}, family)
        self.prompts: dict[str, Prompt] = {}
        self.colours: dict[str, tuple[float, ...]] = {}

    async def generate(self, prompt: Prompt) -> Completion:
        name = prompt.id.rpartition("/")[2]
        self.prompts[name] = prompt
        self.colours[name] = tuple(prompt.image.array()[::3, ::3].reshape(-1, 3).mean(axis=0))
        return await super().generate(prompt)
