"""document.html in headless Chromium: it opens offline, obeys its own policy, fits a phone and runs nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.async_api import expect

from tests.browser.conftest import Tabs
from tests.fakes.documents import BOTTOM, build_document, checkpoint, element, plain_table
from twopass.document import Element, Figure, Formula
from twopass.formats.html import document as html_document
from twopass.formats.writer_input import WriterInput

DESKTOP, PHONE = 1400, 390


def write_page(folder: Path, *elements: Element) -> Path:
    path = folder / "document.html"
    path.write_bytes(html_document.write(WriterInput(build_document(checkpoint(1, *elements)))))
    return path


async def test_the_document_sends_no_requests_but_for_its_images(tabs: Tabs, folder: Path) -> None:
    """The report's page requests only itself and crops beside it, and violates its content security policy nowhere."""
    tab = await tabs.open(folder / "document.html")

    assert not [url for url in tab.requests if not url.startswith(folder.as_uri())]
    assert not tab.messages
    await expect(tab.page.locator("table").first).to_contain_text("North")
    formula = await tab.page.locator(".formula math").first.bounding_box()
    assert formula and formula["height"] > 10


async def test_no_content_of_a_document_is_executed(tabs: Tabs, tmp_path: Path) -> None:
    """Tags, handlers and formulas of a malicious document are shown as text and cause no request."""
    evil = "<img src=https://evil.example/x onerror='document.title=1'><script>document.title=1</script>"
    path = write_page(
        tmp_path,
        element("text", evil, markdown=f"**a** {evil} ![x](https://evil.example/y)"),
        element("table", table=plain_table([evil, "\\(\\text{" + evil + "}\\)"])),
        element("picture", evil, figure=Figure(description=evil, mermaid=evil)),
        element("formula", evil, formula=Formula(latex=evil)),
    )

    tab = await tabs.open(path)

    assert await tab.page.title() == "paper-0123456789ab"
    assert tab.requests == [path.as_uri()] and not tab.messages
    assert await tab.page.locator("img, script").count() == 0
    assert evil in await tab.page.locator("td").first.inner_text()


@pytest.mark.parametrize("width", [DESKTOP, PHONE])
async def test_the_document_is_as_wide_as_the_screen(tabs: Tabs, tmp_path: Path, width: int) -> None:
    """Wide tables, formulas and code scroll inside the page and long words break; the page never scrolls sideways."""
    path = write_page(
        tmp_path,
        element("table", table=plain_table([f"measurement{n}" for n in range(40)])),
        element("formula", formula=Formula(latex=" + ".join(f"x_{{{n}}}" for n in range(80)))),
        element("code", "word " * 80),
        element("text", "w" * 300),
    )

    page = (await tabs.open(path, width=width)).page

    assert await page.evaluate("document.documentElement.scrollWidth") == width


async def test_footnotes_can_be_followed_and_left(tabs: Tabs, tmp_path: Path) -> None:
    """A click on a reference shows its footnote, and a click on the footnote's mark leads back."""
    texts = [element("text", "Water rises. " * 60) for _ in range(9)]
    page = (
        await tabs.open(
            write_page(tmp_path, element("text", "people1 here"), *texts, element("footnote", "1 Residents.", BOTTOM))
        )
    ).page

    await page.locator("[role=doc-noteref]").click()
    await expect(page.get_by_text("Residents.")).to_be_in_viewport()
    await page.locator("[role=doc-backlink]").click()
    await expect(page.get_by_text("people")).to_be_in_viewport()


async def test_the_document_follows_the_systems_colours(tabs: Tabs, tmp_path: Path) -> None:
    """The page is dark if the system prefers that, and light on paper."""
    page = (await tabs.open(write_page(tmp_path, element("text", "Water")), dark=True)).page
    colour = "getComputedStyle(document.documentElement).backgroundColor"

    dark = await page.evaluate(colour)
    await page.emulate_media(media="print")

    assert (dark, await page.evaluate(colour)) == ("rgb(21, 23, 26)", "rgb(255, 255, 255)")
