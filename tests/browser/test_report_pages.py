"""The report in headless Chromium, opened from the disk as a person opens it: eyes, keyboard, phone, hostile text."""

import io

import pytest
from chromium import PHONE, SCHEMES, TURNING, grave_findings, is_dark, opened, reached, skip_without

skip_without()
from report_makers import HOSTILE, a_record, a_run, evaluated, hostile_record  # noqa: E402
from toy_makers import toy  # noqa: E402

from fitness.replay import Landscape, Replay  # noqa: E402
from islands.store import open_store  # noqa: E402
from kb_evolve.report import figures, suite  # noqa: E402
from kb_evolve.report.build import page_context, render, write_report  # noqa: E402
from kb_evolve.report.overview import write_overview  # noqa: E402
from kb_evolve.report.record import read_record  # noqa: E402
from kb_evolve.report.style import save, styled  # noqa: E402
from kb_evolve.search import Search  # noqa: E402

PAPER = {"light": (0xFF, 0xFF, 0xFF), "dark": (0x14, 0x17, 0x1C)}
NAMES = ("run", "overview", "hostile", "hostile overview", "empty", "failed", "nothing solved")
HISTORY = [evaluated(0, 0.5), evaluated(3, 2.0, parents=(0,))]


@pytest.fixture(scope="module")
def record(tmp_path_factory):
    """Of a search that really ran, on a scripted landscape."""
    path = tmp_path_factory.mktemp("runs") / "toy.db"
    Search(toy(), db=str(path), run="toy", workbench=Replay(Landscape()), evaluations=30).run()
    with open_store(path, read_only=True) as store:
        return read_record(store, store.find_run("toy"))


@pytest.fixture(scope="module")
def reports(record, tmp_path_factory):
    """The folder of each report, by name; the hostile one has the pictures of the usual run."""
    folder = tmp_path_factory.mktemp("reports")
    files = write_report(record, folder / "run")
    write_report(a_record([], a_run(name="empty")), folder / "empty")
    write_report(a_record([evaluated(0), evaluated(1)], a_run(name="failed")), folder / "failed")
    hostile = hostile_record(HISTORY)
    (folder / "hostile").mkdir()
    page = render("page.html", page_context(hostile, files))
    (folder / "hostile" / "index.html").write_text(page, encoding="utf-8")
    entries = [suite.entry_of(one.run, one.history) for one in (record, a_record(HISTORY))]
    write_overview(entries, {"toy": ["Beware."]}, folder / "overview")
    entries.append(suite.entry_of(hostile.run, hostile.history))
    write_overview(entries, {HOSTILE: [HOSTILE]}, folder / "hostile overview")
    write_overview([suite.entry_of(a_run(), [])], {}, folder / "nothing solved")
    return {name: folder / name for name in NAMES}


@pytest.fixture(scope="module")
def pages(reports):
    """The address of each page, by the report's name."""
    return {name: (folder / "index.html").as_uri() for name, folder in reports.items()}


def test_every_page_opens_without_errors_and_loads_nothing_but_itself(page, pages):
    for name, address in pages.items():
        page.requests.clear()
        page.goto(address)
        assert page.locator("h1").count() == 1, name
        assert page.errors == [], name
        assert page.requests == [address], name


def test_every_picture_of_a_page_is_drawn(page, pages):
    for name, pictures in {
        "run": 8,
        "overview": 1,
        "hostile": 10,
        "empty": 0,
        "failed": 2,
        "nothing solved": 0,
    }.items():
        page.goto(pages[name])
        widths = page.evaluate("[...document.images].map(image => image.complete && image.naturalWidth)")
        assert len(widths) == pictures and all(width > 100 for width in widths), name


def test_ground_and_pictures_follow_the_reader_s_setting_at_once(page, pages):
    for name in ("run", "overview"):
        page.goto(pages[name])
        shown = {}
        for scheme in SCHEMES:
            page.emulate_media(color_scheme=scheme)
            assert is_dark(page) == (scheme == "dark")
            _until_drawn(page)
            shown[scheme] = page.evaluate("[...document.images].map(image => image.currentSrc)")
            for picture in (page.locator("figure img").first, page.locator("figure img").last):
                assert _corner(picture) == PAPER[scheme], (name, scheme)
        assert not set(shown["light"]) & set(shown["dark"])


def test_a_phone_scrolls_no_page_sideways_and_shows_pictures_and_captions_whole(browser, pages):
    with opened(browser, **PHONE) as phone:
        for name, address in pages.items():
            phone.goto(address)
            phone.evaluate("for (const fold of document.querySelectorAll('details')) fold.open = true")
            assert phone.evaluate("document.documentElement.scrollWidth") <= 390, name
            rights = phone.evaluate(
                "[...document.querySelectorAll('figure img, caption div, nav a, dd')]"
                ".map(one => one.getBoundingClientRect().right)"
            )
            assert max(rights) <= 390, name


def test_a_table_that_is_too_wide_for_a_phone_scrolls_and_its_caption_stays(browser, pages):
    with opened(browser, **PHONE) as phone:
        phone.goto(pages["run"])
        box = phone.get_by_role("region", name="Operators", exact=True)
        assert box.evaluate("box => box.scrollWidth > box.clientWidth + 50")
        before = box.locator("caption div").bounding_box()["x"]
        box.focus()
        box.evaluate("box => { box.scrollLeft = 50 }")
        assert box.evaluate("box => box.scrollLeft") == 50
        assert box.locator("caption div").bounding_box()["x"] == before


def test_the_keyboard_reaches_everything_in_the_order_of_the_page(page, pages):
    for name in ("run", "overview"):
        page.goto(pages[name])
        wanted = page.evaluate(
            "[...document.querySelectorAll('a, summary, [tabindex=\"0\"]')].filter(one => one.checkVisibility())"
            ".map(one => [one.tagName, one.textContent.trim()])"
        )
        assert reached(page, len(wanted)) == [tuple(one) for one in wanted], name
        assert wanted[0] == ["A", "Skip to the content"]


def test_the_first_link_skips_the_contents(page, pages):
    page.goto(pages["run"])
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    assert page.evaluate("document.getElementById('content').contains(document.activeElement)")


def test_a_long_program_is_scrolled_by_keys_and_left_with_one(page, pages):
    page.goto(pages["run"])
    source = page.locator("#source ~ details").first
    source.locator("summary").focus()
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    code = source.locator("pre")
    assert code.evaluate("code => code === document.activeElement && code.scrollHeight > code.clientHeight")
    page.keyboard.press("PageDown")
    page.evaluate(
        "new Promise(done => { const look = () => document.activeElement.scrollTop > 0 ? done()"
        " : requestAnimationFrame(look); look() })"
    )
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "The problem it solves"


@pytest.mark.parametrize("scheme", SCHEMES)
def test_axe_finds_nothing_serious(browser, pages, scheme):
    with opened(browser, color_scheme=scheme, bypass_csp=True) as checked:
        for name in ("run", "overview", "failed") if scheme == "light" else ("run", "overview"):
            checked.goto(pages[name])
            assert grave_findings(checked) == [], name


def test_hostile_text_changes_nothing(page, pages):
    for name in ("hostile", "hostile overview"):
        page.goto(pages[name])
        assert page.errors == []
        assert page.title().endswith(" · kb_evolve report")
        assert page.locator("script, iframe, object, embed, form, base, [srcdoc], a:not([href^='#'])").count() == 0
        assert page.locator("img:not(figure img)").count() == 0
        handlers = "[...document.querySelectorAll('*')].flatMap(one => [...one.attributes]).map(one => one.name)"
        assert not [name for name in page.evaluate(handlers) if name.startswith("on")]
        text = page.locator("body").text_content()
        assert "<script>alert(1)</script>" in text and r"\x1b[2J" in text and "{{ 7 * 7 }}" in text
        assert not TURNING.search(page.content())
        assert ("rationale </pre></style>" in text) == (name == "hostile"), "the elite's own words"
        assert page.requests[-1] == pages[name] and page.locator("main footer").count() == 1


def test_a_picture_with_hostile_text_opens_by_itself(page, tmp_path):
    with styled():
        paths = save(figures.progress(HOSTILE, hostile_record(HISTORY)), tmp_path / "progress")
    for path in (path for path in paths if path.suffix == ".svg"):
        page.goto(path.as_uri())
        assert page.evaluate("document.documentElement.tagName") == "svg", path.name
        assert page.evaluate("document.querySelectorAll('parsererror, script, foreignObject').length") == 0, path.name
    assert page.errors == [] and all(url.startswith("file:") for url in page.requests)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("empty", "Nothing has been evaluated yet."),
        ("empty", "Best so far, by evaluation: nothing evaluated yet."),
        ("failed", "2 evaluated: 2 compile_error."),
        ("failed", "Best so far, by evaluation: no correct candidate yet."),
        ("nothing solved", "Problems with a correct kernel: 0 of 1."),
    ],
)
def test_where_there_is_nothing_to_show_the_page_says_why(page, pages, name, said):
    page.goto(pages[name])
    assert page.get_by_text(said, exact=True).is_visible()


def _until_drawn(page):
    """A change of the setting loads other pictures; waits for them and for the paint that follows."""
    page.evaluate("Promise.all([...document.images].map(image => image.decode()))")
    page.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")


def _corner(picture):
    """The colour just within the picture's frame."""
    from PIL import Image

    with Image.open(io.BytesIO(picture.screenshot())) as seen:
        return seen.convert("RGB").getpixel((16, 16))
