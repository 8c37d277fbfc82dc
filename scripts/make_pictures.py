"""Write the pictures of README and documentation: the sample's review page, photographed with Chromium.

    python -m scripts.make_pictures

It needs Playwright and a Chromium on the machine; `make pictures` installs the first and runs it.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image

from scripts import ROOT

PICTURES = ROOT / "docs" / "images"
SIZE = (1280, 800)  # pixels of the window
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
        review = read_sample(Path(folder))
        picture = Path(folder) / "review.png"
        photograph(browser, f"{review.as_uri()}#{find_first_table(review.parent)}", picture)
        with Image.open(picture) as image:
            image.convert("RGB").quantize(COLOURS).save(PICTURES / "review.png", optimize=True)


def read_sample(folder: Path) -> Path:
    """Read the sample with the laptop's engine and return the path of its review page."""
    command = [sys.executable, "-m", "twopass.cli", "read", "samples/sample.pdf", "--formats", "docjson,review"]
    subprocess.run([*command, "--output", str(folder)], cwd=ROOT, check=True)
    [review] = folder.glob("*/review.html")
    return review


def find_first_table(folder: Path) -> str:
    """Return the id of a table, at which the page is opened."""
    elements = json.loads((folder / "document.json").read_text())["elements"]
    return str(next(element["id"] for element in elements if element["kind"] == "table"))


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
