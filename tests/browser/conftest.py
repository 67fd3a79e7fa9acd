"""A browser for each test file, a page for each test."""

import sys
from pathlib import Path

import pytest

# tests are no package: their helpers are found by their own, longer names
sys.path += [str(Path(__file__).parent), str(Path(__file__).parents[1] / "kb_evolve")]


@pytest.fixture(scope="module")
def browser():
    """Of one file only: while it is open, this thread can run no event loop of its own."""
    import chromium

    with chromium.launched() as browser:
        yield browser


@pytest.fixture
def page(browser):
    import chromium

    with chromium.opened(browser) as page:
        yield page
