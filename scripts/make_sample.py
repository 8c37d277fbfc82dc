"""Draw samples/sample.pdf from samples/sample_text.json, and write its ground truth samples/sample.truth.json.

The bytes are the same on every run. Everything that is drawn is recorded where it is drawn, so that the truth cannot
differ from the page. Independent of twopass, which is tested against it.
"""

import argparse
import hashlib
import io
import json
import random
import re
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import pymupdf
from PIL import Image, ImageDraw, ImageFilter, ImageOps

Block = dict[str, Any]

SAMPLES = Path(__file__).resolve().parent.parent / "samples"
A4 = (595, 842)
MARGIN, GUTTER = 62, 22
TOP, BOTTOM = 84, 784  # the body's first and last point on a portrait page
BLACK, GREY, NAVY, LINK = (0, 0, 0), (0.35, 0.35, 0.35), (0.09, 0.2, 0.38), (0.05, 0.25, 0.7)
TINT = (0.9, 0.93, 0.96)
SOFT_HYPHEN = "\u00ad"  # where a word may be hyphenated, and where one was
DATE = "D:20250314090000+01'00'"
SCAN_DPI, SKEW_DEGREES = 150, 1.2
EAST_ASIAN = "[\u3000-\u9fff\uac00-\ud7a3\uff00-\uffef]"


@dataclass(frozen=True)
class Style:
    """How a run of text looks; sizes in points. `lead` is the distance between baselines."""

    font: str
    size: float
    lead: float
    color: tuple[float, ...] = BLACK
    before: float = 0
    after: float = 0


TITLE = Style("hebo", 24, 30, NAVY, after=10)
HEADINGS = {
    1: Style("hebo", 16, 20, NAVY, 12, 6),
    2: Style("hebo", 13, 17, NAVY, 10, 5),
    3: Style("hebo", 11, 15, NAVY, 8, 4),
}
BODY = Style("tiro", 10.5, 14, after=7)
CJK = Style("korea", 10.5, 17, after=9)
BYLINE = Style("tiit", 11, 15, GREY)
CAPTION = Style("heit", 9, 12, after=6)
CELL = Style("helv", 9, 12)
LABEL = Style("helv", 8, 10)
NOTE = Style("tiro", 8, 10)
RUNNING = Style("helv", 8, 10, GREY)
FORMULA = Style("tiit", 12.5, 15)


@cache
def load_font(name: str) -> pymupdf.Font:
    return pymupdf.Font(name)


def measure_width(text: str, style: Style) -> float:
    return float(load_font(style.font).text_length(text, style.size))


def strip_marks(text: str) -> str:
    """The words as a reader should find them: without soft hyphens and footnote marks."""
    return re.sub(r"\[\^\d+\]", "", text.replace(SOFT_HYPHEN + " ", "").replace(SOFT_HYPHEN, ""))


def is_within(text: str, width: float, style: Style) -> bool:
    return measure_width(strip_marks(text), style) <= width


def take_line(words: list[str], width: float, style: Style, space: str) -> tuple[list[str], list[str]]:
    """The words that fill one line, and the rest; a word may be split at a soft hyphen."""
    line: list[str] = []
    while words and is_within(space.join([*line, words[0]]), width, style):
        line, words = [*line, words[0]], words[1:]
    if not words:
        return line, words
    parts = words[0].split(SOFT_HYPHEN)
    for cut in range(len(parts) - 1, 0, -1):
        if is_within(space.join([*line, "".join(parts[:cut]) + "-"]), width, style):
            return [*line, "".join(parts[:cut]) + SOFT_HYPHEN], [SOFT_HYPHEN.join(parts[cut:]), *words[1:]]
    if space == "" and re.match(r"[，。、；：]", words[0]):  # Chinese lines do not begin with a stop
        line, words = line[:-1], [line[-1], *words]
    return line, words


class Sheet:
    """One page while it is being drawn: the PDF page, a cursor in its frames (the columns), and its truth."""

    def __init__(self, page: pymupdf.Page, number: int, data: Block, report: "Report") -> None:
        self.page, self.number, self.report = page, number, report
        self.texts: list[str] = []
        self.writers: dict[tuple[tuple[float, ...], bool], pymupdf.TextWriter] = {}
        self.notes = data.get("footnotes", [])
        bottom = page.rect.height - (A4[1] - BOTTOM) - sum(NOTE.lead + 2 for _ in self.notes) - (8 if self.notes else 0)
        count = data.get("columns", 1)
        width = (page.rect.width - 2 * MARGIN - GUTTER * (count - 1)) / count
        lefts = [MARGIN + column * (width + GUTTER) for column in range(count)]
        self.frames = [pymupdf.Rect(left, TOP, left + width, bottom) for left in lefts]
        self.frame = self.frames.pop(0)
        self.y = self.frame.y0

    def write(self, x: float, y: float, text: str, style: Style) -> float:
        """Set text with its baseline at y; return the x where it ends."""
        for run in re.findall(rf"{EAST_ASIAN}+(?: +{EAST_ASIAN}+)*|(?:(?!{EAST_ASIAN}).)+", text):
            is_cjk = bool(re.match(EAST_ASIAN, run))
            is_stroked = is_cjk and style.font == "hebo"  # the CJK font has no bold: its outlines are stroked, too
            writer = self.writers.setdefault((style.color, is_stroked), pymupdf.TextWriter(self.page.rect))
            x = writer.append((x, y), run, load_font("korea" if is_cjk else style.font), style.size)[1].x
        return x

    def write_word(self, x: float, y: float, word: str, style: Style) -> float:
        """Set one word: a footnote mark becomes a superscript, an address becomes a link."""
        base, mark, rest = re.fullmatch(r"(.*?)(?:\[\^(\d+)\](.*))?", word.replace(SOFT_HYPHEN, "")).groups()  # type: ignore[union-attr]
        if base.startswith("https://"):
            style = replace(style, color=LINK)
            area = pymupdf.Rect(x, y - style.size, x + measure_width(base, style), y + 3)
            self.page.insert_link({"kind": pymupdf.LINK_URI, "from": area, "uri": base})
            self.report.records["links"].append({"page": self.number, "uri": base})
        x = self.write(x, y, base + ("-" if word.endswith(SOFT_HYPHEN) else ""), style)
        if mark:
            x = self.write(x, y - 3.5, mark, replace(style, size=style.size * 0.65))
        return self.write(x, y, rest, style) if rest else x

    def write_line(self, words: list[str], x: float, width: float, style: Style, justify: bool) -> None:
        gap = measure_width(" ", style)
        if justify and len(words) > 1:
            marks = sum(measure_width(m, style) * 0.65 for m in re.findall(r"\[\^(\d+)\]", "".join(words)))
            ink = (
                sum(measure_width(strip_marks(w) + ("-" if w.endswith(SOFT_HYPHEN) else ""), style) for w in words)
                + marks
            )
            gap = (width - ink) / (len(words) - 1)
        for index, word in enumerate(words):
            x = self.write_word(x, self.y, word, style)
            if index < len(words) - 1:  # a real space character: readers cannot infer spaces between Korean words
                self.write(x, self.y, " ", style)
            x += gap

    def write_words(self, words: list[str], style: Style, indent: float = 0, space: str = " ") -> None:
        """Set words line by line, from frame to frame; words without room are carried to the next page."""
        written: list[str] = []
        while words:
            if self.y + style.lead > self.frame.y1 and not self.next_frame(written, words):
                break
            width = self.frame.width - indent
            line, words = take_line(words, width, style, space)
            self.y += style.lead
            if space and style in (BODY, CJK):
                self.write_line(line, self.frame.x0 + indent, width, style, justify=bool(words))
            else:
                self.write(self.frame.x0 + indent, self.y, strip_marks(space.join(line)), style)
            written += line
        self.texts.append(strip_marks(space.join(written)))
        self.y += style.after

    def next_frame(self, written: list[str], words: list[str]) -> bool:
        """Move to the next column; without one, carry the words to the next page and return False."""
        tail, head = written[-1], words[0]
        joined = strip_marks(tail + head) if tail.endswith(SOFT_HYPHEN) else strip_marks(f"{tail} {head}")
        tail = strip_marks(tail) + ("-" if tail.endswith(SOFT_HYPHEN) else "")
        to_page = self.number if self.frames else self.number + 1
        self.report.record_continuation("paragraph", self.number, to_page, tail, strip_marks(head), joined)
        if not self.frames:
            self.report.carry = {"type": "paragraph", "words": words}
            return False
        self.frame = self.frames.pop(0)
        self.y = self.frame.y0
        return True

    # One method for each type of block in the sample text.

    def draw_title(self, block: Block) -> None:
        self.y += 20
        self.write_centred(block["text"], TITLE)

    def draw_byline(self, block: Block) -> None:
        for text in block["lines"]:
            self.write_centred(text, BYLINE)
        self.y += 14

    def write_centred(self, text: str, style: Style) -> None:
        self.y += style.lead
        self.write((self.frame.x0 + self.frame.x1 - measure_width(text, style)) / 2, self.y, text, style)
        self.texts.append(text)
        self.y += style.after

    def draw_heading(self, block: Block) -> None:
        number: Any = block.get("number")
        level = block.get("level") or number.count(".") + 1
        style = HEADINGS[level]
        self.y += style.before if self.y > self.frame.y0 else 0
        self.report.records["headings"].append(
            {"number": number, "title": block["title"], "level": level, "page": self.number}
        )
        self.report.heading_tops.append(self.y)
        self.write_words([*([number] if number else []), *block["title"].split()], style)

    def draw_paragraph(self, block: Block) -> None:
        if block.get("lang") == "zh":
            self.write_words(re.findall(r"[\d.]+|.", block["text"]), CJK, space="")
            return
        words = block.get("words") or self.report.hyphenate(block["text"])
        self.write_words(words, CJK if re.search(EAST_ASIAN, "".join(words)) else BODY)

    def draw_list(self, block: Block) -> None:
        for index, item in enumerate(block["items"], 1):
            mark = f"{index}." if block.get("numbered") else "•"
            self.write(self.frame.x0 + 10, self.y + BODY.lead, mark, BODY)
            self.write_words(self.report.hyphenate(item), replace(BODY, after=3), indent=26)
            self.texts[-1] = f"{mark} {self.texts[-1]}"
        self.y += 5

    def draw_caption(self, text: str) -> None:
        self.write_words(text.split(), CAPTION)

    def draw_formula(self, block: Block) -> None:
        middle, base = self.frame.x0 + self.frame.width / 2, self.y + 24
        bar = max(measure_width(block["over"], FORMULA), measure_width(block["under"], FORMULA)) + 8
        start = middle - (measure_width(block["left"] + " ", FORMULA) + bar) / 2
        x = self.write(start, base, block["left"] + " ", FORMULA)
        for text, y in ((block["over"], base - 9), (block["under"], base + 10)):
            self.write(x + (bar - measure_width(text, FORMULA)) / 2, y, text, FORMULA)
        self.page.draw_line((x, base - 4), (x + bar, base - 4), width=0.7)
        self.write(self.frame.x1 - measure_width(block["number"], BODY), base, block["number"], BODY)
        text = f"{block['left']} ({block['over']}) / ({block['under']})"
        number = block["number"]
        self.report.records["formulas"].append(
            {"page": self.number, "number": number, "latex": block["latex"], "text": text}
        )
        self.texts.append(f"{block['left']} {block['over']} {block['under']} {number}")
        self.y = base + 18

    def draw_table(self, block: Block) -> None:
        """Draw a caption, then the rows that fit; the rest goes to the next page under the same header."""
        self.y += 4
        self.draw_caption(block["caption"])
        pitch = CELL.lead + (7 if block.get("ruled", True) else 4)
        room, rows = int((self.frame.y1 - self.y) // pitch), block["rows"]
        if room < len(rows):
            self.carry_rows(block, room)
            rows = rows[:room]
        cells = place_cells(rows, block["header"])
        for cell in cells:
            self.draw_cell(cell, block, pitch)
        truth = {"page": self.number, "caption": block["caption"], "rows": len(rows), "cols": len(block["widths"])}
        self.report.records["tables"].append({**truth, "cells": cells})
        self.texts += [" ".join(c["text"] for c in cells if c["row"] == row) for row in range(len(rows))]
        self.y += pitch * len(rows) + 14

    def carry_rows(self, block: Block, room: int) -> None:
        header, rest = block["rows"][: block["header"]], block["rows"][room:]
        tail, head = " ".join(block["rows"][room - 1]), " ".join(rest[0])
        caption = block["caption"].replace(":", " (continued):", 1)
        self.report.carry = {**block, "caption": caption, "rows": header + rest}
        self.report.record_continuation("table", self.number, self.number + 1, tail, head, f"{tail}\n{head}")

    def draw_cell(self, cell: Block, block: Block, pitch: float) -> None:
        lefts = [self.frame.x0 + sum(block["widths"][:n]) for n in range(len(block["widths"]) + 1)]
        x0, x1 = lefts[cell["col"]], lefts[cell["col"] + cell["col_span"]]
        y0 = self.y + cell["row"] * pitch
        area = pymupdf.Rect(x0, y0, x1, y0 + cell["row_span"] * pitch)
        if block.get("ruled", True):
            self.page.draw_rect(area, color=GREY, fill=TINT if cell["header"] else None, width=0.6)
        style = replace(CELL, font="hebo" if cell["header"] else "helv")
        length = measure_width(cell["text"], style)
        assert length <= area.width - 6, f"cell too wide: {cell['text']}"
        align = "c" if cell["header"] and cell["col_span"] > 1 else block["align"][cell["col"]]
        x = {"l": x0 + 6, "c": (x0 + x1 - length) / 2, "r": x1 - 6 - length}[align]
        self.write(x, (area.y0 + area.y1) / 2 + 3.2, cell["text"], style)

    def draw_chart(self, block: Block) -> None:
        x0, y0 = self.frame.x0 + 60, self.y + 168
        step, unit = (self.frame.x1 - 20 - x0) / len(block["values"]), 150 / block["top"]
        for tick in range(0, block["top"] + 1, 3):
            y = y0 - tick * unit
            self.page.draw_line((x0, y), (self.frame.x1 - 20, y), color=(0.82, 0.82, 0.82), width=0.5)
            self.write(x0 - 6 - measure_width(str(tick), LABEL), y + 3, str(tick), LABEL)
        for index, (name, value) in enumerate(zip(block["labels"], block["values"], strict=True)):
            left = x0 + index * step
            bar = pymupdf.Rect(left + step * 0.18, y0 - value * unit, left + step * 0.82, y0)
            self.page.draw_rect(bar, color=None, fill=(0.24, 0.45, 0.68))
            self.write(left + (step - measure_width(name, LABEL)) / 2, y0 + 12, name, LABEL)
        self.page.draw_line((x0, y0), (self.frame.x1 - 20, y0), width=0.9)
        self.page.draw_line((x0, y0), (x0, y0 - 156), width=0.9)
        self.write(
            (x0 + self.frame.x1 - 20 - measure_width(block["x_label"], LABEL)) / 2, y0 + 26, block["x_label"], LABEL
        )
        point = (x0 - 26, y0 - 75 + measure_width(block["y_label"], LABEL) / 2)
        self.page.insert_text(point, block["y_label"], fontsize=LABEL.size, fontname="helv", rotate=90)
        self.end_figure(block, "chart", y0 + 38, [*block["labels"], block["x_label"], block["y_label"]])

    def draw_diagram(self, block: Block) -> None:
        wide, high, left, top = 74, 32, self.frame.x0 + 6, self.y + 14
        boxes = [
            pymupdf.Rect(left + column * 96, top + row * 46, left + column * 96 + wide, top + row * 46 + high)
            for _, column, row in block["boxes"]
        ]
        for a, b in block["arrows"]:
            self.draw_arrow(boxes[a], boxes[b])
        for (name, _, _), box in zip(block["boxes"], boxes, strict=True):
            self.page.draw_rect(box, color=NAVY, fill=TINT, width=1, radius=0.15)
            self.write((box.x0 + box.x1 - measure_width(name, LABEL)) / 2, (box.y0 + box.y1) / 2 + 3, name, LABEL)
        self.end_figure(block, "diagram", top + 2 * 46 + high + 16, [name for name, _, _ in block["boxes"]])

    def draw_arrow(self, a: pymupdf.Rect, b: pymupdf.Rect) -> None:
        """Draw a right-angled arrow from the right edge of one box to the left edge of another."""
        start, end = pymupdf.Point(a.x1, (a.y0 + a.y1) / 2), pymupdf.Point(b.x0, (b.y0 + b.y1) / 2)
        bend = (start.x + end.x) / 2
        self.page.draw_polyline([start, (bend, start.y), (bend, end.y), (end.x - 5, end.y)], color=GREY, width=1)
        head = [end, (end.x - 6, end.y - 3), (end.x - 6, end.y + 3)]
        self.page.draw_polyline(head, color=GREY, fill=GREY, closePath=True, width=0.5)

    def draw_photo(self, block: Block) -> None:
        left = self.frame.x0 + (self.frame.width - 360) / 2
        area = pymupdf.Rect(left, self.y + 6, left + 360, self.y + 246)
        self.page.insert_image(area, stream=encode_jpeg(paint_landscape(), 78))
        self.end_figure(block, "picture", area.y1 + 6, [])

    def end_figure(self, block: Block, kind: str, y: float, labels: list[str]) -> None:
        self.y = y
        self.draw_caption(block["caption"])
        self.report.records["figures"].append(
            {"page": self.number, "caption": block["caption"], "type": kind, "labels": labels}
        )
        self.y += 8

    def finish(self, header: list[str], footer: str) -> Block:
        """Draw footnotes, running header and footer, write all text to the page, and return the page's truth."""
        assert self.y <= self.frame.y1 + 20, f"page {self.number} overflows"
        left, right, height = MARGIN, self.page.rect.width - MARGIN, self.page.rect.height
        y = height - (A4[1] - BOTTOM) - len(self.notes) * (NOTE.lead + 2) + 6
        if self.notes:
            self.page.draw_line((left, y - 6), (left + 120, y - 6), width=0.5)
        for note in self.notes:
            y += NOTE.lead + 2
            self.write(left, y - 2.5, note["mark"], replace(NOTE, size=5.5))
            self.write(left + 6, y, note["text"], NOTE)
            self.report.records["footnotes"].append({"page": self.number, **note})
            self.texts.append(f"{note['mark']} {note['text']}")
        self.write(left, 46, header[0], RUNNING)
        self.write(right - measure_width(header[1], RUNNING), 46, header[1], RUNNING)
        self.page.draw_line((left, 52), (right, 52), color=GREY, width=0.4)
        self.write((left + right - measure_width(footer, RUNNING)) / 2, height - 34, footer, RUNNING)
        for (color, is_stroked), writer in self.writers.items():
            writer.write_text(self.page, color=color, render_mode=2 if is_stroked else 0)
        return {"text": "\n".join(self.texts), "furniture": [*header, footer]}


class Report:
    """The document while it is being drawn, and its truth."""

    def __init__(self, content: Block) -> None:
        self.content, self.doc = content, pymupdf.open()
        self.carry: Block | None = None
        self.heading_tops: list[float] = []
        kinds = ("pages", "headings", "tables", "figures", "footnotes", "formulas", "links", "continues")
        self.records: dict[str, list[Block]] = {kind: [] for kind in kinds}

    def hyphenate(self, text: str) -> list[str]:
        """Words with soft hyphens where the sample text's word list allows a break."""
        for entry in self.content["hyphens"]:
            text = re.sub(rf"\b{entry.replace('-', '')}\b", entry.replace("-", SOFT_HYPHEN), text)
        return text.split()

    def record_continuation(self, kind: str, from_page: int, to_page: int, tail: str, head: str, joined: str) -> None:
        entry = {"kind": kind, "from_page": from_page, "to_page": to_page, "tail": tail, "head": head}
        self.records["continues"].append({**entry, "joined": joined})

    def add_page(self, data: Block) -> None:
        number, kind = len(self.records["pages"]) + 1, data["kind"]
        wide = kind in ("rotated", "sideways")
        page = self.doc.new_page(width=A4[wide], height=A4[not wide])
        truth: Block = {"text": "", "furniture": []}
        if kind != "blank":
            sheet = Sheet(page, number, data, self)
            carried, self.carry = self.carry, None
            for block in [carried, *data["blocks"]] if carried else data["blocks"]:
                getattr(sheet, "draw_" + block["type"])(block)
            footer = self.content["footer"].format(number=number, count=len(self.content["pages"]))
            truth = sheet.finish(self.content["header"], footer)
        if wide:
            turn_page(page, displayed_upright=kind == "rotated")
        if kind == "scanned":
            scan_page(page)
        rotation = 90 if kind == "sideways" else 0
        self.records["pages"].append({"number": number, "kind": kind, **truth, "rotation_applied": rotation})

    def add_outline(self) -> None:
        toc = []
        for heading, top in zip(self.records["headings"], self.heading_tops, strict=True):
            name = f"{heading['number']} {heading['title']}" if heading["number"] else heading["title"]
            upright = self.records["pages"][heading["page"] - 1]["kind"] in ("born_digital", "scanned")
            toc.append([heading["level"], name, heading["page"], top if upright else 0])
        self.doc.set_toc(toc)

    def render_pdf(self) -> bytes:
        """The finished PDF; fixed dates and an /ID that is a hash of the text keep its bytes the same."""
        self.add_outline()
        self.doc.set_metadata({**self.content["meta"], "creator": "make_sample.py", "producer": "PyMuPDF",
                               "creationDate": DATE, "modDate": DATE})  # fmt: skip
        self.doc.subset_fonts()
        digest = hashlib.md5(json.dumps(self.content).encode(), usedforsecurity=False).hexdigest()
        self.doc.xref_set_key(-1, "ID", f"[<{digest}><{digest}>]")
        return bytes(self.doc.tobytes(garbage=4, deflate=True, deflate_fonts=True, use_objstms=1, no_new_id=True))

    def build_truth(self) -> Block:
        meta = {key: self.content["meta"][key] for key in ("title", "author", "subject")}
        sections = build_sections(self.records["headings"])
        return {**meta, **self.records, "sections": sections, "keywords_hint": self.content["keywords_hint"]}


def place_cells(rows: list[list[Any]], header: int) -> list[Block]:
    """Turn rows of cells, in HTML's order, into cells with row and column."""
    cells: list[Block] = []
    taken: set[tuple[int, int]] = set()
    for row, entries in enumerate(rows):
        col = 0
        for entry in entries:
            entry = {"text": entry} if isinstance(entry, str) else entry
            while (row, col) in taken:
                col += 1
            high, wide = entry.get("rows", 1), entry.get("cols", 1)
            taken |= {(row + r, col + c) for r in range(high) for c in range(wide)}
            place = {"row": row, "col": col, "row_span": high, "col_span": wide}
            cells.append({**place, "text": entry["text"], "header": row < header})
    return cells


def build_sections(headings: list[Block]) -> list[Block]:
    root: Block = {"level": 0, "children": []}
    path = [root]
    for heading in headings:
        node = {**{key: heading[key] for key in ("number", "title", "level")}, "children": []}
        while path[-1]["level"] >= node["level"]:
            path.pop()
        path[-1]["children"].append(node)
        path.append(node)
    children: list[Block] = root["children"]
    return children


def turn_page(page: pymupdf.Page, displayed_upright: bool) -> None:
    """Turn a landscape page's content onto its left side on a portrait page; /Rotate may display it upright."""
    page.clean_contents()
    content = page.get_contents()[0]
    stream = page.parent.xref_stream(content)
    page.set_mediabox(pymupdf.Rect(0, 0, *A4))
    page.parent.update_stream(content, b"q 0 1 -1 0 %d 0 cm\n" % A4[0] + stream + b"\nQ")
    if displayed_upright:
        page.set_rotation(90)


def scan_page(page: pymupdf.Page) -> None:
    """Replace a page by a skewed, blurred and noisy image of itself, as an office scanner would make it."""
    pixmap = page.get_pixmap(dpi=SCAN_DPI, colorspace=pymupdf.csGRAY, alpha=False)
    image = Image.frombytes("L", (pixmap.width, pixmap.height), pixmap.samples)
    image = image.rotate(SKEW_DEGREES, Image.Resampling.BICUBIC, fillcolor=255).filter(ImageFilter.GaussianBlur(0.6))
    image = Image.blend(image, make_noise(image.size, seed=7), 0.09)
    doc, index = page.parent, page.number
    doc.delete_page(index)
    fresh = doc.new_page(index, *A4)
    fresh.insert_image(fresh.rect, stream=encode_jpeg(image, 50))


def make_noise(size: tuple[int, int], seed: int) -> Image.Image:
    return Image.frombytes("L", size, random.Random(seed).randbytes(size[0] * size[1]))


def paint_landscape() -> Image.Image:
    """Draw a lake under hills in the evening: gradients, blurred shapes and grain, so that it looks like a photo."""
    size, dice = (720, 480), random.Random(3)
    ramp = Image.linear_gradient("L").resize(size)
    image = ImageOps.colorize(ramp, (92, 138, 190), (246, 214, 176))
    for depth, color in enumerate([(128, 146, 158), (84, 112, 104), (48, 78, 58)]):
        pen, base = ImageDraw.Draw(image), 190 + depth * 34
        ridge = [(x, base - dice.randint(0, 60 - depth * 12)) for x in range(-40, 800, 80)]
        pen.polygon([(-40, 310), *ridge, (800, 310)], fill=color)
        image = image.filter(ImageFilter.GaussianBlur(2.2 - depth * 0.6))
    lake = ImageOps.colorize(ramp.resize((720, 180)), (186, 178, 164), (36, 66, 96))
    lake = Image.blend(lake, ImageOps.flip(image.crop((0, 120, 720, 300))), 0.35)
    image.paste(lake, (0, 300))
    pen = ImageDraw.Draw(image)
    for _ in range(420):
        x, y = dice.randrange(720), dice.randrange(304, 480)
        pen.line((x, y, x + (y - 290) // 6, y), fill=(160, 168, 172) if dice.random() < 0.5 else (62, 88, 108))
    pen.rectangle((508, 246, 560, 292), fill=(206, 198, 184))
    pen.polygon([(500, 248), (534, 224), (568, 248)], fill=(120, 62, 48))
    image = image.filter(ImageFilter.GaussianBlur(1.1))
    return Image.blend(image, make_noise(size, seed=5).convert("RGB"), 0.07)


def encode_jpeg(image: Image.Image, quality: int) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=quality, optimize=True)
    return buffer.getvalue()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=SAMPLES, help="folder for the two files")
    out: Path = parser.parse_args().out
    report = Report(json.loads((SAMPLES / "sample_text.json").read_text("utf-8")))
    for data in report.content["pages"]:
        report.add_page(data)
    assert report.carry is None, "text left over after the last page"
    tails = [entry["tail"] for entry in report.records["continues"]]
    assert any(tail.endswith("-") for tail in tails), (
        "no word is hyphenated across a column end; shift the text of page 2"
    )
    out.mkdir(parents=True, exist_ok=True)
    (out / "sample.pdf").write_bytes(report.render_pdf())
    truth = json.dumps(report.build_truth(), ensure_ascii=False, indent=1)
    (out / "sample.truth.json").write_text(truth + "\n", "utf-8")


if __name__ == "__main__":
    main()
