"""A report that is read with recorded answers, and a browser that opens its review page."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from playwright.async_api import Browser, Page, async_playwright, expect

from tests.fakes import recorded
from tests.fakes.reader import Reader
from twopass.engines.cpu.engine import CpuEngine
from twopass.pages.shared_pixels import PixelBufferPool
from twopass.runtime.page_pool import PagePool

# Without these Chromium sends requests to Google at every start.
BROWSER_ARGUMENTS = (
    "--no-sandbox",
    "--disable-quic",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
)


@pytest.fixture(scope="session")
async def folder(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Path]:
    """The report's output folder: one page is read, one repaired, one from its text layer, one failed."""
    folder = tmp_path_factory.mktemp("review")
    source = folder / "report.pdf"
    source.write_bytes(recorded.report())
    buffers = PixelBufferPool(16, 1 << 28)
    page_pool = PagePool(2, buffers)
    await page_pool.open()
    reader = Reader(page_pool, buffers, CpuEngine(2))
    engine = recorded.RecordingEngine(hashlib.sha256(source.read_bytes()).hexdigest()[:12])
    await reader.run(engine=engine, source=str(source), output=f"{folder}/out", formats=["docjson", "html", "review"])
    yield next((folder / "out").glob("report-*"))
    await page_pool.close()
    buffers.close()


@pytest.fixture(scope="session")
async def browser() -> AsyncIterator[Browser]:
    """The machine's own Chromium."""
    executable = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    assert executable, "no Chromium on this machine; apt-get install chromium"
    async with async_playwright() as playwright:
        expect.set_options(timeout=60_000)  # a busy machine takes more than Playwright's five seconds
        browser = await playwright.chromium.launch(executable_path=executable, args=list(BROWSER_ARGUMENTS))
        yield browser
        await browser.close()


@dataclass
class Tab:
    """An open page, the URLs that it requested, and its console messages and errors."""

    page: Page
    requests: list[str] = field(default_factory=list)
    messages: list[str] = field(default_factory=list)


@dataclass
class Tabs:
    """Opens files in the browser, and remembers the tabs so that they can be closed."""

    browser: Browser
    opened: list[Tab] = field(default_factory=list)

    async def open(
        self, path: Path, fragment: str = "", dark: bool = False, width: int = 1400, height: int = 900
    ) -> Tab:
        page = await self.browser.new_page(
            viewport={"width": width, "height": height}, color_scheme="dark" if dark else "light"
        )
        tab = Tab(page)
        page.on("request", lambda request: tab.requests.append(request.url))
        page.on("console", lambda message: tab.messages.append(message.text))
        page.on("pageerror", lambda error: tab.messages.append(str(error)))
        await page.goto(f"{path.as_uri()}{fragment}")
        self.opened.append(tab)
        return tab


@pytest.fixture
async def tabs(browser: Browser) -> AsyncIterator[Tabs]:
    tabs = Tabs(browser)
    yield tabs
    for tab in tabs.opened:
        await tab.page.close()
