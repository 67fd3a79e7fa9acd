"""Headless Chromium for the tests of pages: how it starts, what it remembers, and what an axe check finds."""

import re
import shutil
from contextlib import contextmanager

import pytest

PATH = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
ARGUMENTS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip
SCHEMES = ("light", "dark")
PHONE = {"viewport": {"width": 390, "height": 844}, "has_touch": True}
TURNING = re.compile("[\u200b\u202a-\u202e\u2066-\u2069\x00\x07\x1b]")
"""Characters that no page may hold: marks of direction, what is not seen, and what a terminal would obey."""


def skip_without():
    """Skips the test module where there is no Playwright or no Chromium."""
    pytest.importorskip("playwright.sync_api", reason="playwright is not installed: pip install playwright")
    if PATH is None:
        pytest.skip("no chromium on this machine: apt install chromium", allow_module_level=True)


@contextmanager
def launched():
    """A browser, closed at the end."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=PATH, args=ARGUMENTS)
        yield browser
        browser.close()


@contextmanager
def opened(browser, **options):
    """A page that remembers what went wrong in it (`errors`), and whom it asked (`requests`)."""
    context = browser.new_context(**({"viewport": {"width": 1280, "height": 900}} | options))
    page = context.new_page()
    page.errors, page.requests = [], []
    page.on("console", lambda message: page.errors.append(message.text) if message.type != "info" else None)
    page.on("pageerror", lambda error: page.errors.append(str(error)))
    page.on("dialog", lambda dialog: (page.errors.append(f"dialog {dialog.message}"), dialog.dismiss()))
    page.on("request", lambda request: page.requests.append(request.url))
    yield page
    context.close()


def is_dark(page):
    """Whether the ground of the page is nearly black; a test fails where it is neither that nor nearly white."""
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    light = sum(map(int, re.findall(r"\d+", ground)[:3]))
    assert light < 150 or light > 700, ground
    return light < 150


def grave_findings(page):
    """What axe calls serious or critical, every fold of the page opened; the page's policy must be bypassed."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe is not installed").Axe()
    page.evaluate("for (const fold of document.querySelectorAll('details')) fold.open = true")
    found = axe.run(page).response["violations"]
    return [(one["id"], one["nodes"][0]["html"]) for one in found if one["impact"] in ("serious", "critical")]


def reached(page, most):
    """Tag and text of each element that Tab reaches, at most so many; each must show that it is there."""
    seen = []
    for _ in range(most):
        page.keyboard.press("Tab")
        seen.append(tuple(page.evaluate("[document.activeElement.tagName, document.activeElement.textContent.trim()]")))
        if seen[-1][0] == "BODY":
            return seen[:-1]
        assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") != "none", seen[-1]
    return seen
