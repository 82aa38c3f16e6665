"""A headless Chromium, and the tabs of those who use it.

Playwright's synchronous calls leave an event loop running in the thread that makes them, where
neither Django's database nor a test with `asyncio.run` works any more. So they have a thread of
their own.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, TypeVar

from playwright.sync_api import Browser, ConsoleMessage, Dialog, Page, expect, sync_playwright

if TYPE_CHECKING:
    from typing_extensions import Self

T = TypeVar("T")

#: How long a page may take to show something, and all that a test asks of it at once, in seconds.
PATIENCE = 20.0
CALL_SECONDS = 90.0

ARGUMENTS = [
    "--no-sandbox",  # which root cannot have
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


class ChromiumNotInstalled(RuntimeError):
    """No Chromium on this machine."""


class Chromium:
    """A browser with a new profile. It ends with the block, and with this process."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="chromium")
        self._undo = ExitStack()

    def __enter__(self) -> Self:
        program = shutil.which("chromium") or shutil.which("google-chrome")
        if program is None:
            raise ChromiumNotInstalled(
                "Chromium was not found. Install it with `apt-get install chromium` (Debian) or "
                "`brew install chromium` (macOS)."
            )
        self._browser = self.do(self._launch, program)
        return self

    def __exit__(self, *_: object) -> None:
        self.do(self._undo.close)
        self._thread.shutdown()

    def _launch(self, program: str) -> Browser:
        playwright = self._undo.enter_context(sync_playwright())
        expect.set_options(timeout=PATIENCE * 1000)
        browser = playwright.chromium.launch(executable_path=program, args=ARGUMENTS)
        self._undo.callback(browser.close)
        return browser

    def do(self, action: Callable[..., T], *arguments: Any) -> T:
        """Call something of Playwright's in its thread."""
        return self._thread.submit(action, *arguments).result(CALL_SECONDS)

    def open(self, address: str, **options: Any) -> Tab:
        """Open a window with cookies of its own.

        :param address: that of the site
        :param options: Playwright's for a context, such as ``color_scheme``
        """
        return self.do(self._open, address, options)

    def _open(self, address: str, options: dict[str, Any]) -> Tab:
        context = self._browser.new_context(base_url=address, **options)
        context.set_default_timeout(PATIENCE * 1000)
        return Tab(self, context.new_page())


class Tab:
    """One page of the browser, to be used from any thread: `tab(lambda page: …)`.

    :ivar complaints: errors in the console, which violations of the CSP are, too, and in scripts
    :ivar dialogs: what scripts have put before the reader, as those of an attack do
    """

    def __init__(self, chromium: Chromium, page: Page) -> None:
        self._chromium = chromium
        self._page = page
        self.complaints: list[str] = []
        self.dialogs: list[str] = []
        page.on("console", self._note)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("dialog", self._dismiss)

    def __call__(self, action: Callable[[Page], T]) -> T:
        return self._chromium.do(action, self._page)

    def _note(self, message: ConsoleMessage) -> None:
        # Chromium asks for it by itself, and the shop's site has none.
        wanted = not message.location["url"].endswith("/favicon.ico")
        if message.type in {"error", "warning"} and wanted:
            self.complaints.append(message.text)

    def _dismiss(self, dialog: Dialog) -> None:
        self.dialogs.append(dialog.message)
        dialog.dismiss()

    def go(self, path: str) -> None:
        """Load a page, which has to answer 200."""
        response = self(lambda page: page.goto(path))
        assert response is not None
        assert response.status == 200, (path, response.status)

    def resize(self, width: int, height: int) -> None:
        self(lambda page: page.set_viewport_size({"width": width, "height": height}))

    def sees(self, selector: str, *, text: str | None = None, count: int | None = None) -> None:
        """Wait until there is an element (`count`: so many), which can be seen (with this text)."""

        def wait(page: Page) -> None:
            found = page.locator(selector)
            if count is not None:
                expect(found).to_have_count(count)
            else:
                expect(found.first).to_be_visible()
            if text is not None:
                expect(found.first).to_contain_text(text)

        self(wait)

    def sees_no(self, selector: str) -> None:
        """Wait until no such element can be seen."""
        self(lambda page: expect(page.locator(selector).first).to_be_hidden())

    def click(self, selector: str) -> None:
        self(lambda page: page.click(selector))

    def text(self, selector: str) -> str:
        return self(lambda page: page.locator(selector).first.inner_text())

    def another(self) -> Tab:
        """Open a second tab of the same window."""
        return self._chromium.do(lambda: Tab(self._chromium, self._page.context.new_page()))

    def close(self) -> None:
        """Close the window. What the page had to complain of is known then."""
        self(lambda page: page.context.close())
