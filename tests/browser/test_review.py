"""The review page in headless Chromium: clicks, keyboard, filters, dark mode, and no requests to other hosts."""

from __future__ import annotations

import base64
from pathlib import Path

from playwright.async_api import expect

from tests.browser.conftest import Tab, Tabs
from tests.fakes.documents import MIDDLE, build_document, checkpoint, element
from twopass.document import Figure, Formula
from twopass.formats import review
from twopass.formats.draft import Draft

TABLE, DOUBTED = "p0001-e003", "p0001-e009"


async def open_review(tabs: Tabs, folder: Path, fragment: str = "", dark: bool = False) -> Tab:
    return await tabs.open(folder / "review.html", fragment, dark)


async def test_the_review_page_sends_no_requests(tabs: Tabs, folder: Path) -> None:
    """The review page is one file with embedded images, and violates its own content security policy on no page."""
    tab = await open_review(tabs, folder)
    for _ in range(4):
        await tab.page.keyboard.press("ArrowRight")
    sources = await tab.page.evaluate("[...document.images].map(i => i.src.slice(0, 16))")

    assert sources == ["data:image/webp;"] * 4
    assert [url for url in tab.requests if not url.startswith("data:")] == [(folder / "review.html").as_uri()]
    assert not tab.messages


async def test_a_click_on_a_box_selects_its_text(tabs: Tabs, folder: Path) -> None:
    """A click on an element's box marks its card, scrolls to it and puts its id into the address."""
    page = (await open_review(tabs, folder)).page

    await page.locator(f"rect[data-element='{DOUBTED}']").click()

    await expect(page.locator(f"#{DOUBTED}")).to_have_class("element text_paragraph doubted now")
    await expect(page.locator(f"#{DOUBTED}")).to_be_in_viewport()
    assert page.url.endswith(f"#{DOUBTED}")


async def test_a_click_on_the_text_selects_its_box(tabs: Tabs, folder: Path) -> None:
    """A click on an element's card marks its box, which is where the element is on the page image."""
    page = (await open_review(tabs, folder)).page

    await page.locator(f"#{TABLE}").click()

    box = page.locator("rect.now")
    await expect(box).to_have_attribute("data-element", TABLE)
    inner, outer = await box.bounding_box(), await page.locator("article.now .leaf img").bounding_box()
    assert inner and outer
    assert abs((inner["y"] - outer["y"]) / outer["height"] - 200 / 842) < 0.01
    assert abs((inner["x"] - outer["x"]) / outer["width"] - 72 / 595) < 0.01


async def test_the_keyboard_turns_pages(tabs: Tabs, folder: Path) -> None:
    """The keys show one page at a time, with its image, and do not go beyond the last page."""
    page = (await open_review(tabs, folder)).page
    shown = []
    for key in ("Home", "ArrowRight", "PageDown", "End", "ArrowRight", "ArrowLeft"):
        await page.keyboard.press(key)
        await expect(page.locator("article:visible")).to_have_count(1)
        shown.append(await page.locator("article:visible").get_attribute("data-page"))
    decoded = await page.evaluate("document.querySelector('article.now img').decode().then(() => 1)")

    assert shown == ["1", "2", "3", "4", "4", "3"]
    assert decoded == 1


async def test_the_list_of_doubts_starts_with_lost_pages(tabs: Tabs, folder: Path) -> None:
    """Lost pages come first, then the least certain elements; the key n goes through the list."""
    page = (await open_review(tabs, folder)).page
    first = page.locator("#doubts li").first

    await expect(first).to_contain_text("failed LOOP")
    await page.keyboard.press("n")
    await expect(page.locator("article:visible")).to_have_attribute("data-page", "4")
    await page.keyboard.press("n")
    classes = await page.locator(".element.now").get_attribute("class")
    assert classes and "doubted" in classes


async def test_filters_show_only_matching_elements(tabs: Tabs, folder: Path) -> None:
    """Filters work by words, category and doubt; hits can be clicked, and Escape shows all elements again."""
    page = (await open_review(tabs, folder)).page
    count = await page.locator("article.now .element").count()

    await page.keyboard.press("/")
    await page.keyboard.type("north 12.5")
    await expect(page.locator("article.now .element:visible")).to_have_count(1)
    await expect(page.locator("#found")).to_contain_text("1 of")
    await page.locator("#hits a").first.click()
    await expect(page.locator(".element.now")).to_have_attribute("id", TABLE)
    await page.keyboard.press("Escape")
    await expect(page.locator("article.now .element:visible")).to_have_count(count)
    await page.locator("button[data-category='table']").click()
    await expect(page.locator(f"#{TABLE}")).to_be_hidden()
    await page.keyboard.press("Escape")
    await page.keyboard.press("d")
    await expect(page.locator(".element:visible").first).to_have_class("element text_paragraph doubted")


async def test_tables_and_formulas_are_rendered(tabs: Tabs, folder: Path) -> None:
    """A table has rows of cells, and a formula is MathML that the browser renders higher than 10 pixels."""
    page = (await open_review(tabs, folder)).page

    rows = await page.locator(f"#{TABLE} tr").all_text_contents()
    formula = await page.locator(".formula math").first.bounding_box()

    assert rows == ["PumpFlowHours", "North12.52100", "South9.751840"]
    assert formula and formula["height"] > 10


async def test_the_state_of_every_page_is_shown(tabs: Tabs, folder: Path) -> None:
    """Page states are shown in the header and in the list of pages, and on the page itself with the reason."""
    page = (await open_review(tabs, folder, "#page-4")).page

    states = await page.locator("#pages a").evaluate_all("links => links.map(link => link.classList[0])")

    assert states == ["read", "repaired", "text_layer", "failed"]
    await expect(page.locator("header")).to_contain_text("1 failed")
    await expect(page.locator("article:visible .about")).to_contain_text("LOOP")


async def test_dark_mode_follows_the_system_and_the_button(tabs: Tabs, folder: Path) -> None:
    """The page is dark if the system prefers that, and its button switches to the other mode."""
    page = (await open_review(tabs, folder, dark=True)).page
    colour = "getComputedStyle(document.querySelector('header')).backgroundColor"

    dark = await page.evaluate(colour)
    await page.click("#theme")

    assert dark == "rgb(22, 24, 28)"
    assert await page.evaluate(colour) == "rgb(255, 255, 255)"


async def test_no_content_of_a_document_is_executed(tabs: Tabs, tmp_path: Path) -> None:
    """Tags, handlers and formulas of a malicious document are shown as text and cause no request."""
    evil = "<img src=https://evil.example/x onerror='document.title=1'><script>document.title=1</script>"
    hostile = [
        element("text", evil + "\\(\\text{" + evil + "}\\)"),
        element("picture", "", figure=Figure(description=evil, mermaid=evil, visible_text=evil), keywords=(evil,)),
        element("formula", evil, formula=Formula(latex=evil)),
    ]
    path = tmp_path / "review.html"
    path.write_bytes(review.write(Draft(build_document(checkpoint(1, *hostile), title=evil))))

    tab = await tabs.open(path)
    title = await tab.page.title()

    assert title.startswith("<img")
    assert tab.requests == [path.as_uri()]
    assert await tab.page.locator("#p0001-e000 img").count() == 0
    assert await tab.page.locator("#p0001-e000").inner_text() != ""


async def test_five_hundred_pages_stay_usable(tabs: Tabs, tmp_path: Path) -> None:
    """Page images that are separate files are loaded only when their page is shown."""
    words = "The reservoir holds nine hundred cubic metres. " * 4
    pages = [checkpoint(n, *(element("text", f"{n} {words}", MIDDLE) for _ in range(20))) for n in range(1, 501)]
    pixel = base64.b64decode("UklGRiQAAABXRUJQVlA4IBgAAAAwAQCdASoBAAEAAwA0JaQAA3AA/vuUAAA=")
    (tmp_path / "review").mkdir()
    for n in range(1, 501):
        (tmp_path / "review" / f"p{n:04d}.webp").write_bytes(pixel)
    addresses = {n: f"review/p{n:04d}.webp" for n in range(1, 501)}
    path = tmp_path / "review.html"
    path.write_bytes(review.write(Draft(build_document(*pages), pages=addresses)))

    tab = await tabs.open(path)
    await tab.page.keyboard.press("End")
    await expect(tab.page.locator("article:visible")).to_have_attribute("data-page", "500")
    await expect(tab.page.locator("article.now img")).to_have_js_property("complete", True)

    loaded = {url.rpartition("/")[2] for url in tab.requests if url.endswith(".webp")}
    assert loaded == {"p0001.webp", "p0500.webp"}
    assert not tab.messages
