"""The page of `twopass serve` in headless Chromium: files are sent, pages arrive, reviews open, results are saved."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

import psutil
import pymupdf
import pytest
from playwright.async_api import Browser, BrowserContext, Page, Request, Route, expect

from tests.fakes import damaged_pages
from tests.fakes.ports import reserve_port
from tests.server.conftest import KEY, Server, build_pdf, run_server

TABS = 8  # a browser opens six connections to a server over HTTP/1.1
UNDO_MS, SILENCE_MS, RETRY_MS = 10_000, 40_000, 2_000  # of the page
PASSWORD = "open sesame"
PHONE = 390
PHONE_HEIGHT = 844


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with run_server(tmp_path_factory.mktemp("serve") / "jobs", MAX_SOURCE_BYTES="2000000") as server:
        yield server


@pytest.fixture
def report(tmp_path: Path) -> Path:
    path = tmp_path / "Report of the year.pdf"
    path.write_bytes(build_pdf(6))
    return path


@asynccontextmanager
async def open_tab(context: BrowserContext, server: Server, key: str = KEY) -> AsyncIterator[Page]:
    """Open the page in a tab and enter the key; fails at the end if the page had an error or asked another host."""
    page = await context.new_page()
    errors: list[str] = []
    hosts: set[str] = set()

    def record(request: Request) -> None:
        hosts.add(urlsplit(request.url).netloc)

    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("console", lambda message: errors.append(message.text) if "Content Security" in message.text else None)
    page.on("request", record)
    await page.goto(str(server.client.base_url))
    await page.get_by_label("API key").last.fill(key)
    await page.keyboard.press("Enter")
    try:
        yield page
    finally:
        await page.close()
    assert not errors
    assert {host for host in hosts if host} == {urlsplit(str(server.client.base_url)).netloc}


@asynccontextmanager
async def open_page(browser: Browser, server: Server, key: str = KEY, width: int = 1100) -> AsyncIterator[Page]:
    """Open the page in the only tab of a browser that has nothing stored."""
    context = await browser.new_context(viewport={"width": width, "height": 800})
    async with context, open_tab(context, server, key) as page:
        yield page


async def test_a_file_is_sent_watched_reviewed_and_saved(browser: Browser, server: Server, report: Path) -> None:
    """The card shows pages as they arrive; the review opens in a frame whose scripts run, and files are saved."""
    async with open_page(browser, server) as page:
        await page.set_input_files("#files", report)
        card = page.locator(".job").filter(has_text="Report of the year.pdf")
        await expect(card.locator(".draft")).to_contain_text("rebuilt in 1934", timeout=60_000)
        await expect(card).to_have_class("job done", timeout=60_000)
        await expect(card.locator(".tiles button")).to_have_text(["1", "2", "3", "4", "5", "6"])
        pictures = await card.locator(".tiles img").evaluate_all("images => images.map(image => image.naturalHeight)")
        assert pictures == [160] * 6

        await card.get_by_role("button", name="Review").click()
        frame = page.frame_locator("#viewer iframe")
        await expect(frame.locator("article:visible")).to_have_attribute("data-page", "1")
        await frame.locator("#pages a").nth(2).click()
        await expect(frame.locator("article:visible")).to_have_attribute("data-page", "3")
        await page.get_by_role("button", name="Close").click()
        async with page.expect_download() as saving:
            await card.get_by_role("link", name="Markdown").click()
        saved = await saving.value

        assert saved.suggested_filename == "Report of the year.md"
        assert "rebuilt in 1934" in (await saved.path()).read_text()


async def test_a_card_says_what_was_lost(browser: Browser, server: Server, tmp_path: Path) -> None:
    """The card of a damaged file says in words what of which page was lost; that of a sound file says nothing."""
    (tmp_path / "sound.pdf").write_bytes(build_pdf(1))
    (tmp_path / "torn.pdf").write_bytes(damaged_pages.damage(build_pdf(1), 0, "image missing"))
    async with open_page(browser, server) as page:
        await page.set_input_files("#files", [tmp_path / "sound.pdf", tmp_path / "torn.pdf"])
        sound, torn = (page.locator(".job").filter(has_text=f"{name}.pdf") for name in ("sound", "torn"))

        await expect(torn.locator(".lost")).to_have_text("lost: 1 part of the file not drawn: page 1", timeout=60_000)
        await expect(sound).to_have_class("job done", timeout=60_000)
        await expect(sound.locator(".lost")).to_be_hidden()


async def test_a_reviewed_document_cannot_reach_the_key(browser: Browser, server: Server, report: Path) -> None:
    """The review has an origin of its own, in the frame and in a tab: its scripts read neither key nor API."""
    address = server.send(build_pdf(1), job='{"formats": ["review"]}', wait_s=60).json()
    review = f"{address['links']['files']}{address['result']['documents'][0]['id']}/review.html"
    async with open_page(browser, server) as page:
        await expect(page.locator(".job").first).to_be_visible()
        await page.goto(str(server.client.base_url.join(review)))

        assert await page.evaluate("origin") == "null"
        with pytest.raises(Exception, match="sessionStorage"):
            await page.evaluate("sessionStorage.length")


async def test_a_wrong_key_is_asked_for_again(browser: Browser, server: Server) -> None:
    """A wrong key shows that it is wrong; the right one is kept for the tab."""
    async with open_page(browser, server, key="not the right key") as page:
        await expect(page.get_by_role("alert")).to_have_text("That key is wrong.")
        await page.get_by_label("API key").last.fill(KEY)
        await page.keyboard.press("Enter")
        await expect(page.locator("#forget")).to_be_visible()
        await page.reload()

        await expect(page.locator("#drop")).to_be_visible()
        await expect(page.locator("dialog")).not_to_be_visible()


async def test_a_request_without_the_key_is_sent_again_with_it(browser: Browser, server: Server, report: Path) -> None:
    """A file that was sent before the key was entered, and is refused afterwards, does not call the key wrong."""
    refused = asyncio.Event()

    async def delay(route: Route) -> None:
        if "x-api-key" not in route.request.headers and route.request.method == "POST":
            await refused.wait()
        await route.continue_()

    async with await browser.new_page() as page:
        await page.route("**/v1/jobs", delay)
        await page.goto(str(server.client.base_url))
        await expect(page.get_by_label("API key").last).to_be_visible()
        async with page.expect_request("**/v1/jobs"):
            await page.set_input_files("#files", report)
        await page.get_by_label("API key").last.fill(KEY)
        await page.keyboard.press("Enter")
        await expect(page.locator("#forget")).to_be_visible()
        refused.set()

        card = page.locator(".job").filter(has_text=report.name).first
        await expect(card).to_have_class("job done", timeout=60_000)
        await expect(page.locator("dialog")).not_to_be_visible()


@pytest.mark.parametrize(
    ("content", "code"), [(b"no document", "SOURCE_UNSUPPORTED"), (bytes(3_000_000), "SOURCE_TOO_LARGE")]
)
async def test_a_file_that_cannot_be_read_says_why(
    browser: Browser, server: Server, tmp_path: Path, content: bytes, code: str
) -> None:
    """The card shows the code and the advice, and can be deleted."""
    path = tmp_path / "wrong.pdf"
    path.write_bytes(content)
    async with open_page(browser, server) as page:
        await page.set_input_files("#files", path)
        card = page.locator(".job").filter(has_text="wrong.pdf")  # the list of earlier jobs may come later

        await expect(card.locator(".failure")).to_contain_text(code, timeout=60_000)
        await expect(page.get_by_role("status").filter(has_text="wrong.pdf")).to_have_count(1)
        await page.clock.install()
        await card.get_by_role("button", name="Delete").click()
        await page.clock.run_for(UNDO_MS)
        await expect(page.locator(".job").filter(has_text="wrong.pdf")).to_have_count(0)


async def test_a_file_that_failed_before_the_server_answered_is_announced(
    browser: Browser, server: Server, tmp_path: Path
) -> None:
    """A screen reader says that a job failed also if no event did: the answer to the upload was the first to know."""
    path = tmp_path / "at once.pdf"
    path.write_bytes(b"no document")
    answered = asyncio.Event()

    async def answer_when_ended(route: Route) -> None:
        await route.continue_(url=f"{route.request.url}?wait_s=60")

    async def hold(route: Route) -> None:
        await answered.wait()
        await route.continue_()

    async with await browser.new_context() as context:
        await context.add_init_script("delete window.SharedWorker")  # its requests cannot be held
        await context.route("**/v1/jobs", answer_when_ended)
        async with open_tab(context, server) as page:
            await page.route("**/v1/events", hold)
            await page.set_input_files("#files", path)

            await expect(page.get_by_role("status").filter(has_text="at once.pdf")).to_have_count(1, timeout=60_000)
            answered.set()


async def test_reading_can_be_cancelled_with_the_keyboard_on_a_phone(
    browser: Browser, server: Server, tmp_path: Path
) -> None:
    """Cancel is reached with the Tab key, the card says that it was cancelled, and nothing is wider than the screen."""
    path = tmp_path / f"{'long' * 49}.pdf"  # the longest name that the server keeps
    path.write_bytes(build_pdf(300))
    async with open_page(browser, server, width=PHONE) as page:
        await page.set_input_files("#files", path)
        card = page.locator(".job").filter(has_text=path.name)
        await expect(page.locator(".job").first).to_contain_text(path.name)  # also above the jobs that are listed later
        await expect(card.locator(".tiles button").first).to_be_visible(timeout=60_000)
        await page.locator("#choose").focus()
        for _ in range(3):
            await page.keyboard.press("Tab")
            if await page.evaluate("document.activeElement.className") == "cancel":
                break
        await page.keyboard.press("Enter")

        await expect(card).to_have_class("job cancelled", timeout=60_000)
        assert await page.evaluate("document.documentElement.scrollWidth") <= PHONE


async def test_a_page_that_is_opened_again_shows_what_was_read(browser: Browser, server: Server, report: Path) -> None:
    """Jobs are the server's: another tab shows those that were sent before, with their results."""
    server.send(report.read_bytes(), name="earlier.pdf", wait_s=60)
    async with open_page(browser, server) as page:
        card = page.locator(".job").filter(has_text="earlier.pdf")

        await expect(card).to_have_class("job done")
        await card.locator(".tiles button").nth(1).click()
        await expect(card.locator(".draft")).to_contain_text("Chapter 2")


async def test_jobs_that_run_leave_the_browser_connections(browser: Browser, server: Server) -> None:
    """More jobs run and wait than a browser opens connections to a server, and requests are still answered."""
    jobs = [server.send(build_pdf(300), name="many.pdf").json()["links"]["self"] for _ in range(8)]
    async with open_page(browser, server) as page:
        cards = page.locator(".job").filter(has_text="many.pdf")
        await expect(cards).to_have_count(8)
        await page.wait_for_timeout(1000)
        status = await page.evaluate(
            "fetch('/health', {signal: AbortSignal.timeout(20000)}).then(answer => answer.status)"
        )

        assert status == 200
        for path in jobs * 2:  # cancel all, then delete all
            server.client.delete(path)
        await expect(cards).to_have_count(0)


async def test_a_page_goes_on_after_the_server_died_and_was_started_again(browser: Browser, tmp_path: Path) -> None:
    """While the server is gone the page says so; then the card continues, and its links work without a reload."""
    port = reserve_port()
    with run_server(tmp_path / "jobs", port) as server:
        async with open_page(browser, server) as page:
            job_id = server.send(build_pdf(8)).json()["id"]
            card = page.locator(".job")
            await expect(card.locator(".tiles button").first).to_be_visible(timeout=60_000)
            server.process.kill()
            server.process.wait()
            await expect(page.locator("#server")).to_have_text("Connection lost; trying again …", timeout=60_000)
            with run_server(tmp_path / "jobs", port) as again:
                await expect(card).to_have_class("job done", timeout=90_000)
                await expect(page.locator("#server")).to_have_text("engine cpu")
                async with page.expect_download() as saving:
                    await card.get_by_role("link", name="Markdown").click()

                assert "Chapter 8" in (await (await saving.value).path()).read_text()
                assert again.read(job_id)["state"] == "done"


async def test_back_and_escape_close_the_review_and_a_reload_keeps_it(
    browser: Browser, server: Server, report: Path
) -> None:
    """The review has an address of its own. On a phone, its headers take at most 12 % of the screen."""
    server.send(report.read_bytes(), name="back.pdf", job='{"formats": ["review"]}', wait_s=60)
    async with open_page(browser, server, width=PHONE) as page:
        await page.set_viewport_size({"width": PHONE, "height": PHONE_HEIGHT})
        card = page.locator(".job").filter(has_text="back.pdf")
        await card.get_by_role("button", name="Review").click()
        await page.reload()
        header = page.frame_locator("#viewer iframe").locator("header").first
        await expect(header).to_be_visible()
        box, frame = await header.bounding_box(), await page.locator("#viewer iframe").bounding_box()

        assert box and frame and box["y"] == frame["y"] == 0 and box["height"] <= 0.12 * PHONE_HEIGHT
        await page.go_back()
        await expect(page.locator("#viewer")).to_be_hidden()
        await card.get_by_role("button", name="Review").click()
        await expect(page.locator("#viewer")).to_be_visible()
        await page.keyboard.press("Escape")
        await expect(page.locator("#viewer")).to_be_hidden()
        await expect(card.get_by_role("button", name="Review")).to_be_focused()


async def test_all_pages_are_one_stop_of_the_tab_key(browser: Browser, server: Server, report: Path) -> None:
    """Tab leads to one of the pages and on to the next control; the arrow keys lead to the other pages."""
    server.send(report.read_bytes(), name="keys.pdf", wait_s=60)
    async with open_page(browser, server) as page:
        tiles = page.locator(".job").filter(has_text="keys.pdf").locator(".tiles button")
        await expect(tiles).to_have_count(6)
        await tiles.first.focus()
        await page.keyboard.press("ArrowRight")
        await expect(tiles.nth(1)).to_be_focused()
        await page.keyboard.press("Tab")

        assert not await tiles.evaluate_all("tiles => tiles.includes(document.activeElement)")


async def test_a_cancelled_document_is_sent_again_and_goes_on(browser: Browser, server: Server, tmp_path: Path) -> None:
    """*Send again* continues a job of the server without the file; a complete one does not offer it."""
    path = tmp_path / "again.pdf"
    path.write_bytes(build_pdf(40))
    async with open_page(browser, server) as page:
        await page.set_input_files("#files", path)
        card = page.locator(".job").filter(has_text="again.pdf")
        await expect(card.locator(".tiles button").first).to_be_visible(timeout=60_000)
        await card.get_by_role("button", name="Cancel").click()
        await expect(card).to_have_class("job cancelled", timeout=60_000)
        await card.get_by_role("button", name="Send again").click()

        await expect(card).to_have_class("job done", timeout=90_000)
        await expect(card.locator(".tiles button")).to_have_count(40)
        await expect(card.get_by_role("button", name="Send again")).to_be_hidden()


def count_connections(server: Server) -> int:
    """How many connections clients have open to the server."""
    return sum(one.status == psutil.CONN_ESTABLISHED for one in psutil.Process(server.process.pid).net_connections())


@pytest.mark.parametrize("has_shared_worker", [True, False])
async def test_eight_tabs_follow_all_jobs(
    browser: Browser, server: Server, report: Path, has_shared_worker: bool
) -> None:
    """Every tab shows a job that another one sent, and goes on when the tab that was opened first is closed."""
    async with await browser.new_context() as context, AsyncExitStack() as tabs:
        if not has_shared_worker:
            await context.add_init_script("delete window.SharedWorker")
        first = open_tab(context, server)
        page = await first.__aenter__()
        others = [await tabs.enter_async_context(open_tab(context, server)) for _ in range(TABS - 1)]
        await page.set_input_files("#files", report)
        job = {"has_text": report.name}
        for tab in (page, *others):
            await expect(tab.locator("#server")).to_have_text("engine cpu")
            await expect(tab.locator(".job").filter(**job).first).to_have_class("job done", timeout=60_000)
            await expect(tab.locator(".job").filter(**job).first.locator(".tiles button")).to_have_count(6)
        await first.__aexit__(None, None, None)
        server.send(build_pdf(1), name=f"after {has_shared_worker}.pdf")

        for tab in others:
            card = tab.locator(".job").filter(has_text=f"after {has_shared_worker}.pdf")
            await expect(card).to_have_class("job done", timeout=60_000)


async def test_a_tab_whose_request_is_never_answered_asks_again(browser: Browser, server: Server) -> None:
    """Nobody else would tell it of new jobs."""
    held = asyncio.Event()

    async def hold_first(route: Route) -> None:
        if held.is_set():
            await route.continue_()
        held.set()

    async with await browser.new_context() as context:
        await context.add_init_script("delete window.SharedWorker")
        async with open_tab(context, server) as page:
            await expect(page.locator("#server")).to_have_text("engine cpu")
            await page.clock.install()
            await page.route("**/v1/events", hold_first)
            await held.wait()
            server.send(build_pdf(1), name="later.pdf")
            await page.clock.run_for(SILENCE_MS)
            await expect(page.locator("#server")).to_contain_text("Connection lost")
            await page.clock.run_for(RETRY_MS)

            await expect(page.locator(".job").filter(has_text="later.pdf")).to_be_visible()


async def test_all_tabs_share_one_connection_for_events(browser: Browser, server: Server) -> None:
    """When nothing is fetched any more, one connection is left of all tabs: a SharedWorker reads the events."""
    async with await browser.new_context() as context, AsyncExitStack() as tabs:
        for _ in range(3):
            page = await tabs.enter_async_context(open_tab(context, server))
            await expect(page.locator("#server")).to_have_text("engine cpu")
        async with asyncio.timeout(60):
            while count_connections(server) > 1:  # the server closes idle ones after 5 s
                await asyncio.sleep(0.1)

        server.send(build_pdf(1), name="shared.pdf")
        for tab in context.pages:
            await expect(tab.locator(".job").filter(has_text="shared.pdf")).to_be_visible()


async def test_a_tab_asks_for_its_own_key_although_another_has_it(browser: Browser, server: Server) -> None:
    """What one tab follows is shown in no other before the key was entered there."""
    server.send(build_pdf(1), name="secret.pdf", wait_s=60)
    async with await browser.new_context() as context, open_tab(context, server) as page:
        await expect(page.locator(".job").filter(has_text="secret.pdf")).to_be_visible()
        async with open_tab(context, server, key="not the right key") as other:
            await expect(other.get_by_role("alert")).to_have_text("That key is wrong.")

            assert await other.locator(".job").count() == 0
            await other.get_by_label("API key").last.fill(KEY)
            await other.keyboard.press("Enter")
            await expect(other.locator(".job").filter(has_text="secret.pdf")).to_be_visible()


async def test_a_deletion_can_be_undone(browser: Browser, server: Server) -> None:
    """The server deletes the job only when the time for *Undo* has passed; a card that stays works as before."""
    job_id = server.send(build_pdf(1), name="undo.pdf", wait_s=60).json()["id"]
    async with open_page(browser, server) as page:
        card = page.locator(".job").filter(has_text="undo.pdf")
        await expect(card).to_have_class("job done")
        await page.clock.install()
        await card.get_by_role("button", name="Delete").click()
        await expect(card.get_by_role("button", name="Undo")).to_be_focused()
        await page.keyboard.press("Enter")
        await expect(card.get_by_role("button", name="Delete")).to_be_focused()
        await page.clock.run_for(2 * UNDO_MS)

        assert server.read(job_id)["state"] == "done"
        await card.get_by_role("button", name="Delete").click()
        await page.clock.run_for(UNDO_MS)
        await expect(card).to_have_count(0)
        assert server.client.get(f"/v1/jobs/{job_id}").status_code == 404


async def test_a_tab_that_is_closed_deletes_at_once(browser: Browser, server: Server) -> None:
    """Nobody can undo it any more, and the card has said that the document is deleted."""
    job_id = server.send(build_pdf(1), name="closed.pdf", wait_s=60).json()["id"]
    async with await browser.new_context() as context, open_tab(context, server) as watching:
        async with open_tab(context, server) as page:
            await page.locator(".job").filter(has_text="closed.pdf").get_by_role("button", name="Delete").click()
        await expect(watching.locator(".job").filter(has_text="closed.pdf")).to_have_count(0)

    assert server.client.get(f"/v1/jobs/{job_id}").status_code == 404


async def test_an_encrypted_file_asks_for_its_password(browser: Browser, server: Server, tmp_path: Path) -> None:
    """Its card asks until the password is right, also after a reload; the password is not on the page afterwards."""
    path = tmp_path / "locked.pdf"
    with pymupdf.open(stream=build_pdf(2)) as pdf:
        pdf.save(path, encryption=pymupdf.PDF_ENCRYPT_AES_256, user_pw=PASSWORD, owner_pw="owner")
    async with open_page(browser, server) as page:
        await page.set_input_files("#files", path)
        card = page.locator(".job").filter(has_text="locked.pdf")
        field = card.get_by_placeholder("Password")
        await expect(card).to_contain_text("The PDF is encrypted.", timeout=60_000)
        await page.reload()
        await field.fill("wrong")
        await field.press("Enter")
        await expect(card).to_contain_text("The password is wrong.", timeout=60_000)
        await expect(field).to_have_value("")
        await field.fill(PASSWORD)
        await card.get_by_role("button", name="Read").click()

        await expect(card).to_have_class("job done", timeout=60_000)
        await expect(card.locator(".tiles button")).to_have_count(2)
        await expect(field).to_be_hidden()
        await expect(field).to_have_value("")


async def test_formats_and_mode_are_among_the_options(browser: Browser, server: Server, tmp_path: Path) -> None:
    """The page offers what this server can write, and the card has a link for each format that was chosen."""
    path = tmp_path / "options.pdf"
    path.write_bytes(build_pdf(1))
    async with open_page(browser, server) as page:
        await page.locator("summary").click()
        await page.get_by_label("ZIP").uncheck()
        await page.get_by_label("Chunks").check()
        await page.get_by_label("Mode").select_option("base")
        await page.set_input_files("#files", path)
        card = page.locator(".job").filter(has_text="options.pdf")

        await expect(card.locator(".results a:visible")).to_have_text(["Markdown", "JSON", "Chunks"], timeout=60_000)
        job = server.client.get("/v1/jobs").json()["jobs"][0]
        document = server.client.get(f"{job['links']['self']}/document.json").json()
        assert document["run"]["options"]["mode"] == "base"
