"""The review page in headless Chromium: clicked, paged, filtered, and asking nobody for anything."""

from __future__ import annotations

import base64
from pathlib import Path

from playwright.async_api import expect

from tests.browser.conftest import Window, Windows
from tests.fakes.documents import MIDDLE, assembled, checkpoint, element
from twopass.document import Figure, Formula
from twopass.formats import review
from twopass.formats.draft import Draft

TABLE, DOUBTED = "p0001-e003", "p0001-e009"


async def opened(windows: Windows, folder: Path, at: str = "", dark: bool = False) -> Window:
    return await windows.open(folder / "review.html", at, dark)


async def test_a_page_asks_nobody_for_anything(windows: Windows, folder: Path) -> None:
    """One file, its pictures in itself, no complaint of its own content policy, whatever page is shown."""
    window = await opened(windows, folder)
    for _ in range(4):
        await window.page.keyboard.press("ArrowRight")
    drawn = await window.page.evaluate("[...document.images].map(i => i.src.slice(0, 16))")

    assert drawn == ["data:image/webp;"] * 4
    assert [url for url in window.asked if not url.startswith("data:")] == [(folder / "review.html").as_uri()]
    assert not window.complaints


async def test_a_click_on_a_box_finds_the_text(windows: Windows, folder: Path) -> None:
    """The card is marked and in sight, and the address names it."""
    page = (await opened(windows, folder)).page

    await page.locator(f"rect[data-element='{DOUBTED}']").click()

    await expect(page.locator(f"#{DOUBTED}")).to_have_class("element text_paragraph doubted now")
    await expect(page.locator(f"#{DOUBTED}")).to_be_in_viewport()
    assert page.url.endswith(f"#{DOUBTED}")


async def test_a_click_on_the_text_finds_the_box(windows: Windows, folder: Path) -> None:
    """And the box lies on the picture where the element was read."""
    page = (await opened(windows, folder)).page

    await page.locator(f"#{TABLE}").click()

    box = page.locator("rect.now")
    await expect(box).to_have_attribute("data-element", TABLE)
    inner, sheet = await box.bounding_box(), await page.locator("article.now .leaf img").bounding_box()
    assert inner and sheet
    assert abs((inner["y"] - sheet["y"]) / sheet["height"] - 200 / 842) < 0.01
    assert abs((inner["x"] - sheet["x"]) / sheet["width"] - 72 / 595) < 0.01


async def test_pages_turn_by_keyboard(windows: Windows, folder: Path) -> None:
    """One page is shown at a time; each is drawn, and the last stays the last."""
    page = (await opened(windows, folder)).page
    shown = []
    for key in ("Home", "ArrowRight", "PageDown", "End", "ArrowRight", "ArrowLeft"):
        await page.keyboard.press(key)
        await expect(page.locator("article:visible")).to_have_count(1)
        shown.append(await page.locator("article:visible").get_attribute("data-page"))
    wide = await page.evaluate("document.querySelector('article.now img').decode().then(() => 1)")

    assert shown == ["1", "2", "3", "4", "4", "3"]
    assert wide == 1


async def test_what_is_doubtful_comes_first(windows: Windows, folder: Path) -> None:
    """The list begins with lost pages and the least certain elements; n goes through it."""
    page = (await opened(windows, folder)).page
    first = page.locator("#doubts li").first

    await expect(first).to_contain_text("failed LOOP")
    await page.keyboard.press("n")
    await expect(page.locator("article:visible")).to_have_attribute("data-page", "4")
    await page.keyboard.press("n")
    chosen = await page.locator(".element.now").get_attribute("class")
    assert chosen and "doubted" in chosen


async def test_a_filter_leaves_what_fits(windows: Windows, folder: Path) -> None:
    """By words, by category and by doubt; what is found can be clicked, and Escape shows all again."""
    page = (await opened(windows, folder)).page
    every = await page.locator("article.now .element").count()

    await page.keyboard.press("/")
    await page.keyboard.type("north 12.5")
    await expect(page.locator("article.now .element:visible")).to_have_count(1)
    await expect(page.locator("#found")).to_contain_text("1 of")
    await page.locator("#hits a").first.click()
    await expect(page.locator(".element.now")).to_have_attribute("id", TABLE)
    await page.keyboard.press("Escape")
    await expect(page.locator("article.now .element:visible")).to_have_count(every)
    await page.locator("button[data-category='table']").click()
    await expect(page.locator(f"#{TABLE}")).to_be_hidden()
    await page.keyboard.press("Escape")
    await page.keyboard.press("d")
    await expect(page.locator(".element:visible").first).to_have_class("element text_paragraph doubted")


async def test_tables_and_maths_are_drawn(windows: Windows, folder: Path) -> None:
    """Cells stand in rows, a formula is MathML of the browser's own and larger than a line of text."""
    page = (await opened(windows, folder)).page

    rows = await page.locator(f"#{TABLE} tr").all_text_contents()
    formula = await page.locator(".formula math").first.bounding_box()

    assert rows == ["PumpFlowHours", "North12.52100", "South9.751840"]
    assert formula and formula["height"] > 10


async def test_every_pages_state_is_told(windows: Windows, folder: Path) -> None:
    """In the head, in the list of pages, and on the page with its reason."""
    page = (await opened(windows, folder, "#page-4")).page

    states = await page.locator("#pages a").evaluate_all("links => links.map(link => link.classList[0])")

    assert states == ["read", "repaired", "text_layer", "failed"]
    await expect(page.locator("header")).to_contain_text("1 failed")
    await expect(page.locator("article:visible .about")).to_contain_text("LOOP")


async def test_dark_mode_is_dark(windows: Windows, folder: Path) -> None:
    """By the machine's setting, and by the button against it."""
    page = (await opened(windows, folder, dark=True)).page
    colour = "getComputedStyle(document.querySelector('header')).backgroundColor"

    dark = await page.evaluate(colour)
    await page.click("#theme")

    assert dark == "rgb(22, 24, 28)"
    assert await page.evaluate(colour) == "rgb(255, 255, 255)"


async def test_nothing_that_a_document_says_is_run(windows: Windows, tmp_path: Path) -> None:
    """Tags, handlers and formulas of a hostile document are text, and no request comes of them."""
    evil = "<img src=https://evil.example/x onerror='document.title=1'><script>document.title=1</script>"
    hostile = [
        element("text", evil + "\\(\\text{" + evil + "}\\)"),
        element("picture", "", figure=Figure(description=evil, mermaid=evil, visible_text=evil), keywords=(evil,)),
        element("formula", evil, formula=Formula(latex=evil)),
    ]
    path = tmp_path / "review.html"
    path.write_bytes(review.write(Draft(assembled(checkpoint(1, *hostile), title=evil))))

    window = await windows.open(path)
    title = await window.page.title()

    assert title.startswith("<img")
    assert window.asked == [path.as_uri()]
    assert await window.page.locator("#p0001-e000 img").count() == 0
    assert await window.page.locator("#p0001-e000").inner_text() != ""


async def test_five_hundred_pages_stay_usable(windows: Windows, tmp_path: Path) -> None:
    """Pictures that lie beside the page are loaded when their page is shown, and no others."""
    words = "The reservoir holds nine hundred cubic metres. " * 4
    pages = [checkpoint(n, *(element("text", f"{n} {words}", MIDDLE) for _ in range(20))) for n in range(1, 501)]
    pixel = base64.b64decode("UklGRiQAAABXRUJQVlA4IBgAAAAwAQCdASoBAAEAAwA0JaQAA3AA/vuUAAA=")
    (tmp_path / "review").mkdir()
    for n in range(1, 501):
        (tmp_path / "review" / f"p{n:04d}.webp").write_bytes(pixel)
    addresses = {n: f"review/p{n:04d}.webp" for n in range(1, 501)}
    path = tmp_path / "review.html"
    path.write_bytes(review.write(Draft(assembled(*pages), pages=addresses)))

    window = await windows.open(path)
    await window.page.keyboard.press("End")
    await expect(window.page.locator("article:visible")).to_have_attribute("data-page", "500")
    await expect(window.page.locator("article.now img")).to_have_js_property("complete", True)

    loaded = {url.rpartition("/")[2] for url in window.asked if url.endswith(".webp")}
    assert loaded == {"p0001.webp", "p0500.webp"}
    assert not window.complaints
