"""The review page in headless Chromium: what it opens at, clicks, keyboard, filters, and no requests to other hosts."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest
from playwright.async_api import expect

from tests.browser.conftest import Tab, Tabs
from tests.fakes.documents import MIDDLE, build_document, checkpoint, element
from twopass.document import Figure, Formula, PageAudit
from twopass.formats import review
from twopass.formats.writer_input import WriterInput

TABLE, DOUBTED = "p0001-e003", "p0001-e009"
DESKTOP, PHONE = 1400, 390


async def open_review(tabs: Tabs, folder: Path, fragment: str = "#page-1", dark: bool = False) -> Tab:
    return await tabs.open(folder / "review.html", fragment, dark)


def write_review(folder: Path, *flagged: int) -> Path:
    """Write a review page of two pages with 30 paragraphs each; those at these positions of page 2 are uncertain."""
    texts = [
        [element("text", f"The {name} spring. " * 20, MIDDLE, flags=flags[n]) for n in range(30)]
        for name, flags in (
            ("upper", [()] * 30),
            ("lower", [("uncertain",) if n in flagged else () for n in range(30)]),
        )
    ]
    path = folder / "review.html"
    pages = (checkpoint(n, *page, audit=PageAudit()) for n, page in enumerate(texts, start=1))
    path.write_bytes(review.write(WriterInput(build_document(*pages))))
    return path


@pytest.mark.parametrize("width", [DESKTOP, PHONE])
async def test_the_page_opens_at_what_is_uncertain(tabs: Tabs, tmp_path: Path, width: int) -> None:
    """The first entry of the list is selected and in view, with its reason, also on a narrow screen."""
    page = (await tabs.open(write_review(tmp_path, 25, 28), width=width)).page

    await expect(page.locator(".element.now")).to_have_attribute("id", "p0002-e025")
    await expect(page.locator(".element.now .alert")).to_be_in_viewport()
    await expect(page.locator("#doubts a.now")).to_have_attribute("data-element", "p0002-e025")
    await expect(page.locator("#found")).to_have_text("1 of 2 to check")


@pytest.mark.parametrize("width", [DESKTOP, PHONE])
async def test_the_page_opens_at_a_lost_page(tabs: Tabs, folder: Path, width: int) -> None:
    """A page that could not be read comes before uncertain elements, and its explanation is in view."""
    page = (await tabs.open(folder / "review.html", width=width)).page

    await expect(page.locator("article:visible")).to_have_attribute("data-page", "4")
    await expect(page.locator("article:visible > .text > .note")).to_be_in_viewport()
    await expect(page.locator("#doubts a.now")).to_have_attribute("data-page", "4")
    await expect(page.locator(".element.now")).to_have_count(0)


async def test_a_link_to_a_place_wins_over_what_is_uncertain(tabs: Tabs, tmp_path: Path) -> None:
    """An address that names an element or page opens there; one that names neither opens at what is uncertain."""
    path = write_review(tmp_path, 25)
    opened = [(await tabs.open(path, fragment)).page for fragment in ("#p0001-e020", "#page-1", "#gone")]

    await expect(opened[0].locator(".element.now")).to_have_attribute("id", "p0001-e020")
    await expect(opened[0].locator(".element.now")).to_be_in_viewport()
    await expect(opened[0].locator("#found")).to_have_text("1 to check")
    await expect(opened[1].locator("article:visible")).to_have_attribute("data-page", "1")
    await expect(opened[2].locator(".element.now")).to_have_attribute("id", "p0002-e025")


@pytest.mark.parametrize("flagged", [(), (25, 28)])
async def test_the_header_is_small_on_a_phone(tabs: Tabs, tmp_path: Path, flagged: tuple[int, ...]) -> None:
    """On a phone the page's header takes at most 12 % of the screen, and its controls can be seen and used."""
    page = (await tabs.open(write_review(tmp_path, *flagged), width=PHONE, height=844)).page

    workspace = await page.locator("#workspace").bounding_box()
    assert workspace and workspace["y"] <= 0.12 * 844
    assert await page.evaluate("document.documentElement.scrollWidth") == PHONE
    await expect(page.locator("#query")).to_be_in_viewport(ratio=1)
    await page.locator("button[data-category='text_paragraph']").click()
    await expect(page.locator("#found")).to_have_text("hit 1 of 60, on 2 of 2 pages")
    await expect(page.get_by_role("button", name="Next")).to_be_in_viewport(ratio=1)
    button = await page.locator("button[data-category='text_paragraph']").bounding_box()
    stops = await page.locator(".stops").bounding_box()
    assert button and stops and button["x"] >= 0 and button["x"] + button["width"] <= stops["x"]


async def test_a_certain_document_opens_at_its_top(tabs: Tabs, tmp_path: Path) -> None:
    """Without doubts nothing is selected, there is nothing to go to, and the page says that it is so."""
    page = (await tabs.open(write_review(tmp_path), width=PHONE)).page

    await expect(page.locator("article:visible")).to_have_attribute("data-page", "1")
    await expect(page.get_by_text("Nothing is marked as uncertain")).to_be_in_viewport()
    await expect(page.locator(".now.element, #next:visible, #previous:visible")).to_have_count(0)
    await expect(page.locator("#found")).to_be_empty()
    assert page.url.endswith("review.html")


async def test_a_filter_jumps_to_its_first_hit(tabs: Tabs, tmp_path: Path) -> None:
    """Each way to filter selects the first hit, brings it into view and says how many there are."""
    page = (await tabs.open(write_review(tmp_path, 25, 28), "#p0001-e007")).page

    await page.locator("#query").fill("lower")
    await expect(page.locator(".element.now")).to_have_attribute("id", "p0002-e000")
    await expect(page.locator(".element.now")).to_be_in_viewport()
    await expect(page.locator("#found")).to_have_text("hit 1 of 30, on 1 of 2 pages")
    await expect(page.locator("#query")).to_be_focused()
    await page.locator("#query").fill("")
    await page.locator("#doubtful").check()
    await expect(page.locator(".element.now")).to_have_attribute("id", "p0002-e025")
    await expect(page.locator("#found")).to_have_text("hit 1 of 2, on 1 of 2 pages")
    await page.locator("#doubtful").uncheck()
    await page.locator("button[data-category='text_paragraph']").click()
    await expect(page.locator(".element.now")).to_have_attribute("id", "p0001-e000")
    await expect(page.locator("#found")).to_have_text("hit 1 of 60, on 2 of 2 pages")


async def test_the_words_of_our_remarks_are_no_hits(tabs: Tabs, tmp_path: Path) -> None:
    """The filter searches what was read, not how flags are explained, and says when there is no hit."""
    page = (await tabs.open(write_review(tmp_path, 25))).page

    await page.locator("#query").fill("recognize")

    await expect(page.locator("#found")).to_have_text("no hits")
    await expect(page.locator(".element:visible, .element.now, #next:visible")).to_have_count(0)


@pytest.mark.parametrize("width", [DESKTOP, PHONE])
async def test_next_and_previous_go_through_the_hits(tabs: Tabs, tmp_path: Path, width: int) -> None:
    """Buttons, the keys n and N, and Enter in the filter go to the next and previous hit, in a circle."""
    page = (await tabs.open(write_review(tmp_path, 3, 25, 28), width=width)).page
    selected, found = page.locator(".element.now"), page.locator("#found")
    await page.keyboard.press("d")

    await page.get_by_role("button", name="Next").click()
    await expect(selected).to_have_attribute("id", "p0002-e025")
    await expect(selected).to_be_in_viewport()
    await expect(found).to_have_text("hit 2 of 3, on 1 of 2 pages")
    await page.get_by_role("button", name="Previous").click()
    await page.get_by_role("button", name="Previous").click()
    await expect(selected).to_have_attribute("id", "p0002-e028")
    await page.keyboard.press("n")
    await expect(selected).to_have_attribute("id", "p0002-e003")
    await page.keyboard.press("N")
    await expect(selected).to_have_attribute("id", "p0002-e028")
    await page.locator("#query").press("Enter")
    await expect(selected).to_have_attribute("id", "p0002-e003")
    await page.locator("#query").press("Shift+Enter")
    await expect(selected).to_have_attribute("id", "p0002-e028")
    await expect(selected).to_be_in_viewport()


async def test_next_continues_from_where_the_user_is(tabs: Tabs, tmp_path: Path) -> None:
    """After a click on an entry or its card, "next" goes to the entry that follows it."""
    page = (await tabs.open(write_review(tmp_path, 3, 25, 28))).page

    await page.locator("#doubts a").nth(1).click()
    await page.locator("#next").click()

    await expect(page.locator(".element.now")).to_have_attribute("id", "p0002-e028")
    await expect(page.locator("#found")).to_have_text("3 of 3 to check")


async def test_an_entry_about_a_page_shows_its_explanation(tabs: Tabs, folder: Path) -> None:
    """On a narrow screen, where the picture is above the text, an entry about a page goes to the explanation."""
    page = (await tabs.open(folder / "review.html", width=PHONE)).page

    await page.locator("#doubts a[data-page='3']").click()

    await expect(page.locator("#page-3 > .text > .note")).to_be_in_viewport()


async def test_the_focus_follows_keys_and_links(tabs: Tabs, folder: Path) -> None:
    """The focus moves to the card or page that a key or link goes to, where a screen reader then is; changes are
    announced."""
    page = (await open_review(tabs, folder)).page

    await page.keyboard.press("n")
    await expect(page.locator("#page-4 .about")).to_be_focused()
    await page.keyboard.press("n")
    await expect(page.locator(f"#{DOUBTED}")).to_be_focused()
    await page.locator("#doubts a").nth(2).focus()
    await page.keyboard.press("Enter")
    await expect(page.locator(".element.now")).to_be_focused()
    await expect(page.get_by_role("status")).to_have_text("3 of 6 to check")


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

    await expect(first).to_contain_text("failed, because the answer repeated itself")
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
    await expect(page.locator(".element:visible")).to_have_attribute("id", TABLE)
    await page.keyboard.press("Escape")
    await page.keyboard.press("d")
    await expect(page.locator(".element:visible").first).to_have_class("element text_paragraph doubted now")


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
    await expect(page.locator("article:visible .about")).to_contain_text("because the answer repeated itself")
    await expect(page.locator("article:visible .problem")).to_contain_text("LOOP")


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
    path.write_bytes(review.write(WriterInput(build_document(checkpoint(1, *hostile), title=evil))))

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
    path.write_bytes(review.write(WriterInput(build_document(*pages), pages=addresses)))

    tab = await tabs.open(path)
    await tab.page.keyboard.press("End")
    await expect(tab.page.locator("article:visible")).to_have_attribute("data-page", "500")
    await expect(tab.page.locator("article.now img")).to_have_js_property("complete", True)

    loaded = {url.rpartition("/")[2] for url in tab.requests if url.endswith(".webp")}
    assert loaded == {"p0001.webp", "p0500.webp"}
    assert not tab.messages
