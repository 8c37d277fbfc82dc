"""pdf.js, with which browsers show PDFs, finds each word of a searchable PDF at its place."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from playwright.async_api import Browser, Route

from tests.pages.test_searchable_pdf import AT, MARKED, SCRIPTS, scan, set_key, write
from twopass.document import Box, Rect, Word

PACKAGE = Path(sys.prefix) / "marked" / "node_modules" / "pdfjs-dist" / "legacy" / "build"
ORIGIN = "https://pdf.test"
# Each text with two opposite corners of its box, in fractions of the displayed page.
SCRIPT = """async () => {
  const pdfjs = await import("/pdf.mjs");
  pdfjs.GlobalWorkerOptions.workerSrc = "/pdf.worker.mjs";
  const page = await (await pdfjs.getDocument("/target.pdf").promise).getPage(1);
  const view = page.getViewport({scale: 1});
  const at = (x, y) => {
    const [left, top] = view.convertToViewportPoint(x, y);
    return [left / view.width, top / view.height];
  };
  const {items} = await page.getTextContent();
  return items.filter((one) => one.str.trim()).map(({str, transform: [a, b, c, d, e, f], width}) => {
    const across = width / Math.hypot(a, b);
    return [str, at(e, f), at(e + a * across + c, f + b * across + d)];
  });
}"""


@pytest.fixture(autouse=True, scope="module")
def pdfjs() -> None:
    """A route that fulfils nothing would leave the page waiting for ever."""
    assert PACKAGE.is_dir(), f"pdfjs-dist is not installed in {PACKAGE}; run make test-browser"


async def read(browser: Browser, folder: Path) -> list[tuple[str, Rect]]:
    async def answer(route: Route) -> None:
        name = route.request.url.removeprefix(f"{ORIGIN}/")
        if not name:
            await route.fulfill(body="", content_type="text/html")
        else:
            await route.fulfill(path=(folder if name.endswith(".pdf") else PACKAGE) / name)

    page = await browser.new_page()
    await page.route(f"{ORIGIN}/**", answer)
    await page.goto(ORIGIN)
    found = await page.evaluate(SCRIPT)
    await page.close()
    return [(text, Rect.around(corners)) for text, *corners in found]


def is_inside(found: Rect, box: Box) -> bool:
    """Whether the middle is in the box, and it is about as wide: pdf.js gives marks on letters no width."""
    return box.contains(found.centre) and 0.5 * box.width <= found.width <= 1.1 * box.width


async def test_words_of_each_script(browser: Browser, tmp_path: Path) -> None:
    """In logical order, and one below the other as they were written."""
    words = [Word(Box(0.2, 0.1 + 0.05 * n, 0.4, 0.13 + 0.05 * n), text) for n, text in enumerate(SCRIPTS)]
    with scan() as pdf, write(tmp_path, pdf, *words):
        found = await read(browser, tmp_path)

    expected = [text.replace("ﬁ", "fi") for text in SCRIPTS]  # pdf.js takes ligatures apart, for its search
    assert [text for text, _ in found] == expected
    assert all(is_inside(rect, word.box) for (_, rect), word in zip(found, words, strict=True))


async def test_marked_words_are_found_by_their_letters(browser: Browser, tmp_path: Path) -> None:
    """Each is one text without its points, at its place."""
    words = [Word(Box(0.2, 0.1 + 0.05 * n, 0.4, 0.13 + 0.05 * n), text) for n, text in enumerate(MARKED)]
    with scan() as pdf, write(tmp_path, pdf, *words):
        found = await read(browser, tmp_path)

    assert [text for text, _ in found] == list(MARKED.values())
    assert all(is_inside(rect, word.box) for (_, rect), word in zip(found, words, strict=True))


@pytest.mark.parametrize(
    ("key", "value"),
    [("Rotate", "90"), ("Rotate", "180"), ("Rotate", "270"), ("CropBox", "[50 100 300 500]"), ("UserUnit", "2.5")],
)
async def test_words_of_unusual_pages(key: str, value: str, browser: Browser, tmp_path: Path) -> None:
    """Where the page shows them."""
    with scan(set_key(key, value)) as pdf, write(tmp_path, pdf, Word(AT, "Reservoir")):
        ((text, rect),) = await read(browser, tmp_path)

    assert text == "Reservoir" and is_inside(rect, AT)
