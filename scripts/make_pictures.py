"""Write the picture of README and documentation: a review page with an uncertain element, photographed with Chromium.

A page of the sample is scanned, with a smudge on a paragraph, and read by the laptop's engine.

    python -m scripts.make_pictures

It needs Playwright and a Chromium on the machine; `make pictures` installs the first and runs it.
"""

from __future__ import annotations

import io
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pymupdf
from PIL import Image, ImageFilter

from scripts import ROOT

PICTURES = ROOT / "docs" / "images"
SIZE = (1280, 800)  # pixels of the window
SAMPLE = ROOT / "samples" / "sample.pdf"
PAGES, SCANNED = range(2, 5), 3  # of the sample, from 0
SCAN_DPI = 150
SMUDGE = (0.08, 0.545, 0.92, 0.62)  # a paragraph, as shares of the page
SMUDGE_RADIUS = 2.6  # pixels: the words are still seen, and hardly one can be read
COLOURS = 128  # enough for text and boxes, at a third of the bytes
IS_LOADED = (
    "() => [...document.images].some((image) => image.complete && image.naturalWidth && image.checkVisibility())"
)
BROWSERS = ("chromium", "chromium-browser", "google-chrome")


def main() -> None:
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if not browser:
        raise SystemExit(f"none of {', '.join(BROWSERS)} is installed; on Debian: apt-get install chromium")
    PICTURES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        review = read(make_document(Path(folder)))
        picture = Path(folder) / "review.png"
        photograph(browser, f"{review.as_uri()}#{find_uncertain(review.parent)}", picture)
        with Image.open(picture) as image:
            image.convert("RGB").quantize(COLOURS).save(PICTURES / "review.png", optimize=True)


def make_document(folder: Path) -> Path:
    """Write some pages of the sample, one of them as a smudged scan."""
    path = folder / "report.pdf"
    with pymupdf.open(SAMPLE) as sample, pymupdf.open() as document:
        for index in PAGES:
            if index == SCANNED:
                page = document.new_page(width=sample[index].rect.width, height=sample[index].rect.height)
                page.insert_image(page.rect, stream=scan(sample[index]))
            else:
                document.insert_pdf(sample, from_page=index, to_page=index)
        document.save(path)
    return path


def scan(page: pymupdf.Page) -> bytes:
    """The page as a JPEG with a smudge."""
    pixels = page.get_pixmap(dpi=SCAN_DPI)
    image = Image.frombytes("RGB", (pixels.width, pixels.height), pixels.samples)
    x0, y0, x1, y1 = SMUDGE
    area = (int(x0 * image.width), int(y0 * image.height), int(x1 * image.width), int(y1 * image.height))
    image.paste(image.crop(area).filter(ImageFilter.GaussianBlur(SMUDGE_RADIUS)), area)
    out = io.BytesIO()
    image.save(out, "JPEG", quality=80)
    return out.getvalue()


def read(path: Path) -> Path:
    """Read the document with the laptop's engine and return the path of its review page."""
    command = [sys.executable, "-m", "twopass.cli", "read", str(path), "--formats", "docjson,review"]
    subprocess.run([*command, "--output", str(path.parent)], cwd=ROOT, check=True)
    [review] = path.parent.glob("*/review.html")
    return review


def find_uncertain(folder: Path) -> str:
    """The id of the most uncertain element, at which the page is opened."""
    elements = json.loads((folder / "document.json").read_text())["elements"]
    uncertain = [element for element in elements if "uncertain" in element["flags"]]
    return str(min(uncertain, key=lambda element: element["confidence"]["score"])["id"])


def photograph(executable: str, url: str, picture: Path) -> None:
    """Photograph the page once its visible image is there."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": SIZE[0], "height": SIZE[1]})
        page.goto(url)
        page.wait_for_function(IS_LOADED)
        page.screenshot(path=picture)
        browser.close()


if __name__ == "__main__":
    main()
