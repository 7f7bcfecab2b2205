"""A real Chromium for tests of the page, and what it did: requests that leave the page's origin, errors."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic
from typing import Any

import pytest

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
# As root there is no sandbox; the others keep a browser from calling its maker.
_FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
PATIENCE_MS = 120_000  # a machine may stand still for a while


@contextmanager
def chromium() -> Iterator[Any]:
    """A browser without a window; the test is skipped where there is none."""
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: pip install playwright")
    path = next((found for name in _NAMES if (found := shutil.which(name))), None)
    if path is None:
        pytest.skip(f"no Chromium: none of {', '.join(_NAMES)} is on the path (Debian: apt-get install chromium)")
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=list(_FLAGS))
        yield browser
        browser.close()


class Tab:
    """A page in a session of its own, which remembers what went wrong."""

    def __init__(self, browser: Any, url: str, **options: Any) -> None:
        self.url = url
        self.context = browser.new_context(viewport={"width": 1280, "height": 900}, **options)
        self.context.set_default_timeout(PATIENCE_MS)
        self.page = self.context.new_page()
        self.elsewhere: list[str] = []
        self.errors: list[str] = []
        self.page.on("request", self._requested)
        self.page.on("console", self._said)
        self.page.on("pageerror", lambda error: self.errors.append(f"uncaught: {error}"))

    def _requested(self, request: Any) -> None:
        if not request.url.startswith(f"{self.url}/"):
            self.elsewhere.append(request.url)

    def _said(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.errors.append(message.text)

    def go(self, view: str) -> None:
        """Show what stands behind the #."""
        self.page.goto(f"{self.url}/#{view}")

    def awaits(self, script: str, argument: Any = None) -> None:
        """Wait until an expression of JavaScript holds.

        Playwright's own way to do so makes scripts from text in the page, which the page forbids.
        """
        until = monotonic() + PATIENCE_MS / 1000
        while not self.page.evaluate(script, argument):
            assert monotonic() < until, f"not so: {script}; errors: {self.errors}"
            self.page.wait_for_timeout(50)

    def close(self) -> None:
        """Close it; nothing may have gone wrong."""
        self.context.close()
        assert self.elsewhere == [], "a request left the page's origin"
        assert self.errors == [], self.errors
