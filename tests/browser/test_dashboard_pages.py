"""The dashboard in headless Chromium, as a person uses it: eyes, keyboard, phone, and a search that goes on."""

import re
import time

import pytest
from chromium import PHONE, SCHEMES, TURNING, grave_findings, is_dark, opened, skip_without

skip_without()
pytest.importorskip("uvicorn", reason="the dashboard's packages are not installed: pip install 'kb-evolve[serve]'")
import dashboard_makers as makers  # noqa: E402

from islands.store import open_store  # noqa: E402

RUN, OTHER = "abcdefgh", "bcdefghi"
HOSTILE_ID = f"{RUN}-000004"
PAGES = {
    "home": "/",
    "run": f"/runs/{RUN}",
    "candidates": f"/runs/{RUN}/candidates",
    "candidate": f"/candidates/{HOSTILE_ID}",
    "comparison": f"/compare?id={HOSTILE_ID}&id={RUN}-000002",
    "runs compared": f"/compare/runs?run={RUN}&run={OTHER}",
    "choice of candidates": "/compare",
    "choice of runs": "/compare/runs",
    "missing": "/nowhere",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("browser")


@pytest.fixture(scope="module")
def address(folder):
    makers.fill(folder / "pages.db")
    with makers.served(folder / "pages.db") as address:
        yield address


@pytest.fixture(scope="module")
def small(folder):
    """The same with few candidates: axe looks at every element."""
    makers.fill(folder / "small.db", 6)
    with makers.served(folder / "small.db") as address:
        yield address


def test_every_page_opens_without_errors_and_asks_nobody_else(page, address):
    for name, path in PAGES.items():
        page.goto(address + path)
        assert page.locator("h1").count() == 1, name
        if name == "missing":
            page.errors.clear()  # the browser itself logs the status of the page
        assert page.errors == [], name
    assert {url for url in page.requests if not url.startswith(address)} == set()
    assert len(page.requests) > len(PAGES)


def test_the_first_paint_comes_within_a_second(page, address):
    page.goto(f"{address}/runs/{RUN}")  # the browser's own start is not the page's
    page.goto(f"{address}/runs/{RUN}/candidates")
    page.goto(f"{address}/runs/{RUN}")
    paint_ms = page.evaluate(
        "new Promise(done => new PerformanceObserver(list => done(list.getEntriesByName('first-contentful-paint')[0]"
        ".startTime)).observe({type: 'paint', buffered: true}))"
    )
    assert 0 < paint_ms < 1000


def test_without_javascript_every_page_says_the_same(browser, address):
    with opened(browser, java_script_enabled=False) as plain:
        for name, path in PAGES.items():
            plain.goto(address + path)
            assert plain.locator("h1").inner_text(), name
        plain.goto(f"{address}/runs/{RUN}")
        assert plain.locator("svg.plot circle").count() == 48


def test_a_hostile_candidate_changes_nothing(page, address):
    for path in (PAGES["candidate"], PAGES["comparison"], PAGES["run"], f"{PAGES['candidates']}?verdict=wrong_result"):
        page.goto(address + path)
        assert page.errors == []
        assert "owned" not in page.title() and page.title().endswith("kb_evolve")
        injected = "main img, main script, [onload], [onerror], [onclick], body > svg, main svg[onload], iframe"
        assert page.locator(injected).count() == 0
        assert page.locator("script").count() == 1
    page.goto(address + PAGES["candidate"])
    text = page.locator("main").inner_text()
    assert "<script>document.title='owned';alert(1)</script>" in text and r"\x1b[31mred" in text
    assert not TURNING.search(text)


def test_a_link_with_the_token_on_another_site_s_page_opens_the_dashboard(page, folder, address):
    with makers.served(folder / "pages.db", token="secret-token") as locked:
        page.route("http://other.example/", lambda route: route.fulfill(body=f"<a href='{locked}/?token=secret-token'>"
                   f"Open</a><img src='{locked}/'>", content_type="text/html"))  # fmt: skip
        page.goto("http://other.example/")
        page.get_by_role("link").click()
        page.wait_for_url(f"{locked}/")
        assert page.locator("h1").inner_text() == "Runs"


def test_a_filter_narrows_the_list_and_can_be_cleared(page, address):
    page.goto(address + PAGES["candidates"])
    page.get_by_label("Verdict").select_option("wrong_result")
    page.get_by_label("Text").fill("step 2")
    page.get_by_role("button", name="Show").click()
    assert page.locator("tbody tr").count() == 2
    assert page.get_by_label("Text").input_value() == "step 2"
    page.get_by_role("link", name="Clear").click()
    assert page.locator("tbody tr").count() == 50
    page.get_by_role("link", name="Next").click()
    assert page.locator("tbody tr").count() == 10


def test_two_candidates_and_two_runs_are_chosen_and_compared(page, address):
    page.goto(address + PAGES["candidates"])
    page.get_by_label(f"Choose {RUN}-000058").check()
    page.get_by_label(f"Choose {RUN}-000056").check()
    page.get_by_role("button", name="Compare the two").click()
    assert page.locator("h1").inner_text() == "Two candidates"
    assert page.locator(".diff .added").count() >= 1
    page.goto(address)
    for box in page.get_by_role("checkbox").all():
        box.check()
    page.get_by_role("button", name="Compare the two").click()
    assert page.locator("h1").inner_text() == "Two runs"
    assert page.locator("svg.plot path.curve").count() == 2
    assert page.errors == []


def test_a_dot_of_the_plot_leads_to_its_candidate(page, address):
    page.goto(address + PAGES["run"])
    dot = page.locator("circle[data-id]").last
    wanted = dot.get_attribute("data-id")
    dot.dispatch_event("click")
    page.wait_for_url(f"**/candidates/{wanted}")


def test_the_keyboard_reaches_everything_and_shows_where_it_is(page, address):
    page.goto(address + PAGES["run"])
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    assert page.evaluate("document.getElementById('content').contains(document.activeElement)")
    page.goto(address + PAGES["run"])
    seen = []
    for _ in range(60):
        page.keyboard.press("Tab")
        seen.append(page.evaluate("[document.activeElement.tagName, document.activeElement.textContent.trim()]"))
        assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") != "none"
        if seen[-1][0] == "SUMMARY":
            break
    texts = [text for _, text in seen]
    wanted = ["Runs", "Compare", "Metrics", "Pause", "All 60 candidates"]
    assert [texts.index(text) for text in wanted] == sorted(texts.index(text) for text in wanted)
    page.keyboard.press("Enter")
    assert page.locator("details[open]").count() == 1


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_phone_scrolls_no_page_sideways(browser, address, scheme):
    with opened(browser, **PHONE, color_scheme=scheme) as phone:
        for name, path in PAGES.items():
            phone.goto(address + path)
            assert phone.evaluate("document.documentElement.scrollWidth") <= 390, name
        assert is_dark(phone) == (scheme == "dark")


@pytest.mark.parametrize("scheme", SCHEMES)
def test_axe_finds_nothing_serious(browser, small, scheme):
    with opened(browser, color_scheme=scheme, bypass_csp=True) as checked:
        for name in PAGES if scheme == "light" else ("home", "run", "candidate"):
            checked.goto(small + PAGES[name])
            assert grave_findings(checked) == [], name


def test_the_page_follows_a_search_while_it_runs(page, folder):
    path = folder / "live.db"
    search = makers.start_search(path, 25)
    try:
        _until(lambda: path.exists() and _told(path) > 0, search)
        with makers.served(path) as address:
            page.goto(f"{address}/runs/live")
            page.evaluate("window.untouched = true")
            first = _shown(page)
            page.get_by_role("link", name=re.compile("All .* candidates")).focus()
            _until(lambda: _shown(page) > first, search)
            assert search.wait(60) == 0, search.stderr.read()
            _until(lambda: _shown(page) == _told(path), search)
            assert page.evaluate("window.untouched"), "the page was not loaded again"
            assert page.locator("svg.plot circle").count() > 0
            assert re.match("All .* candidates", page.evaluate("document.activeElement.textContent"))
            assert page.errors == []
    finally:
        search.kill()
        search.communicate()


def test_a_pause_keeps_the_page_as_it_is(page, folder):
    path = folder / "paused.db"
    run = makers.fill(path, 6)
    with makers.served(path) as address, open_store(path) as store:
        page.goto(f"{address}/runs/{run.id}")
        page.get_by_text("up to date: 6").wait_for()
        page.get_by_role("button", name="Pause").click()
        makers.tell(store, run, 30, 1.2)
        page.wait_for_timeout(2500)
        assert _shown(page) == 6
        page.get_by_role("button", name="Pause").click()
        _until(lambda: _shown(page) == 7)


def _shown(page):
    """Evaluations that the page shows."""
    return int(page.locator(".tiles dd").first.inner_text().replace(",", ""))


def _told(path):
    try:
        with open_store(path, read_only=True) as store:
            return sum(store.state(run.id).told for run in store.runs())
    except Exception:
        return 0


def _until(holds, child=None, seconds=30.0):
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "it did not come true in time"
        if child is not None and child.poll() not in (None, 0):
            raise AssertionError(child.stderr.read())
        time.sleep(0.1)
