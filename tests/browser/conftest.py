"""A report read with recorded answers, and the review page of it in a real browser."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from playwright.async_api import Browser, Page, async_playwright

from tests.fakes import recorded
from tests.fakes.reader import Reader
from twopass.engines.cpu.engine import CpuEngine
from twopass.pages.shared_pixels import PixelBufferPool
from twopass.runtime.page_pool import PagePool

# Without these it asks its maker's hosts for news at every start.
QUIET = (
    "--no-sandbox",
    "--disable-quic",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
)


@pytest.fixture(scope="session")
async def folder(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Path]:
    """The document's folder: one page read, one repaired, one from its text layer, one failed."""
    made = tmp_path_factory.mktemp("review")
    source = made / "report.pdf"
    source.write_bytes(recorded.report())
    buffers = PixelBufferPool(16, 1 << 28)
    page_pool = PagePool(2, buffers)
    await page_pool.open()
    reader = Reader(page_pool, buffers, CpuEngine(2))
    engine = recorded.Listening(hashlib.sha256(source.read_bytes()).hexdigest()[:12])
    await reader.run(engine=engine, source=str(source), output=f"{made}/out", formats=["docjson", "review"])
    yield next((made / "out").glob("report-*"))
    await page_pool.close()
    buffers.close()


@pytest.fixture(scope="session")
async def browser() -> AsyncIterator[Browser]:
    """The machine's own Chromium: `make test-browser` installs it."""
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    assert found, "no Chromium on this machine; apt-get install chromium"
    async with async_playwright() as playwright:
        opened = await playwright.chromium.launch(executable_path=found, args=list(QUIET))
        yield opened
        await opened.close()


@dataclass
class Window:
    """An open page, what it asked the network for, and what it complained about."""

    page: Page
    asked: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)


@dataclass
class Windows:
    """Opens files; at the end every window is closed."""

    browser: Browser
    opened: list[Window] = field(default_factory=list)

    async def open(self, path: Path, at: str = "", dark: bool = False) -> Window:
        page = await self.browser.new_page(
            viewport={"width": 1400, "height": 900}, color_scheme="dark" if dark else "light"
        )
        window = Window(page)
        page.on("request", lambda request: window.asked.append(request.url))
        page.on("console", lambda message: window.complaints.append(message.text))
        page.on("pageerror", lambda error: window.complaints.append(str(error)))
        await page.goto(f"{path.as_uri()}{at}")
        self.opened.append(window)
        return window


@pytest.fixture
async def windows(browser: Browser) -> AsyncIterator[Windows]:
    windows = Windows(browser)
    yield windows
    for window in windows.opened:
        await window.page.close()
