"""Draw .runpod/icon.png, the icon of the Hub and of the documentation: a page and its elements."""

from __future__ import annotations

from PIL import Image, ImageDraw

from scripts import ROOT

SIZE = 256  # pixels
SCALE = 4  # drawn larger and reduced, for smooth edges
INK, PAPER = "#2563eb", "#ffffff"
COLOURS = {"heading": "#7c3aed", "text": "#c3cad4", "table": "#047857", "figure": "#c26a00"}  # as in the review page


def draw_icon() -> Image.Image:
    icon = Image.new("RGBA", (SIZE * SCALE, SIZE * SCALE))
    draw = ImageDraw.Draw(icon)

    def box(x: int, y: int, width: int, height: int, colour: str, radius: int = 4) -> None:
        edges = [SCALE * edge for edge in (x, y, x + width, y + height)]
        draw.rounded_rectangle(edges, radius * SCALE, fill=colour)

    box(0, 0, SIZE, SIZE, INK, radius=48)
    box(60, 34, 136, 188, PAPER, radius=12)
    box(78, 54, 78, 14, COLOURS["heading"])
    for line, width in enumerate((100, 100, 72)):
        box(78, 84 + 15 * line, width, 7, COLOURS["text"], radius=3)
    box(78, 138, 46, 62, COLOURS["table"])
    box(132, 138, 46, 62, COLOURS["figure"])
    return icon.resize((SIZE, SIZE), Image.Resampling.LANCZOS)


if __name__ == "__main__":
    draw_icon().save(ROOT / ".runpod" / "icon.png", optimize=True)
