"""The page and the figures: complete, self-contained, safe with hostile text."""

import itertools
import re
from html.parser import HTMLParser

import pytest
from report_makers import HOSTILE, a_record, a_run, attempt, evaluated, event, hostile_record

from kb_evolve.report import charts, figures, series
from kb_evolve.report.build import page_context, render, write_report
from kb_evolve.report.style import DARK, dark_svg, save, styled
from kb_evolve.report.text import (
    bytes_text,
    ms_text,
    number_text,
    one_line,
    rate_text,
    seconds_text,
    speedup_text,
    visible,
)

FIGURES = (*("progress", "wall", "dollars", "islands", "cells", "pareto", "funnel", "timings", "roofline", "timeline"),)
COSTS = {"bytes_moved": 1 << 20, "matmul_flop": 0, "pointwise_ops": 1 << 20}
CPU = {"name": "cpu", "bytes_per_s": 1e10, "flop_per_s": {"fp32": 1e11}}
VOID = {"meta", "img", "source", "br", "link", "input", "hr"}


HISTORY = [
    evaluated(0, 0.5),
    evaluated(1, parents=(0,)),
    evaluated(2, 1.5, parents=(0,)),
    evaluated(3, 2.0, parents=(2,)),
]
ATTEMPTS = [attempt(4, "refused", reason="nothing to tune")]
EVENTS = [event("started", 0), event("stopped", 200)]
RUN = a_run(config={"costs": COSTS, "cpu": CPU})


class Page(HTMLParser):
    """Tags, attributes and text of an HTML page; knows whether every element was closed in order."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.attributes, self.text, self.open = [], [], [], []
        self.feed(text.replace("<wbr>", ""))
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open and self.open[-1] == tag, f"</{tag}> closes {self.open[-1:]}"
        self.open.pop()

    def handle_data(self, data):
        self.text.append(data)


def record_of(run=None, history=HISTORY, attempts=ATTEMPTS, events=EVENTS):
    return a_record(history, run or RUN, attempts=attempts, events=events)


def page_of(report, **parts):
    """The page of another record with the pictures of the usual one."""
    return render("page.html", page_context(record_of(**parts), report))


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """The files of the usual report, by name."""
    return write_report(record_of(), tmp_path_factory.mktemp("report") / "new" / "folder")


@pytest.fixture(scope="module")
def page(report):
    return report["index.html"].read_text(encoding="utf-8")


def test_a_report_is_ten_figures_in_light_and_dark_and_a_page(report):
    assert set(report) == {"index.html"} | {
        f"{name}{shade}.{kind}" for name in FIGURES for shade in ("", "-dark") for kind in ("png", "svg")
    }
    assert all(path.stat().st_size > 1_000 for path in report.values())


def test_every_colour_of_ours_has_a_dark_form_and_nothing_else_changes(report):
    for name in FIGURES:
        light, dark = (report[f"{name}{shade}.svg"].read_text(encoding="utf-8") for shade in ("", "-dark"))
        assert dark == dark_svg(light) != light
        assert not [colour for colour in DARK if colour in dark and colour not in DARK.values()]
        assert report[f"{name}.png"].read_bytes() != report[f"{name}-dark.png"].read_bytes()


def test_no_axis_is_labelled_with_the_markup_of_mathematics(report):
    """matplotlib's own labels of logarithmic axes are TeX, which we do not have interpreted: texts may be hostile."""
    for name in FIGURES:
        drawn = report[f"{name}.svg"].read_text(encoding="utf-8")
        assert "<!-- " in drawn and "mathdefault" not in drawn, name


@pytest.mark.parametrize("name", ["progress", "cells", "timeline"])
def test_a_dark_png_stands_on_dark_paper(report, name):
    from PIL import Image

    for shade, paper in (("", (255, 255, 255)), ("-dark", (0x14, 0x17, 0x1C))):
        with Image.open(report[f"{name}{shade}.png"]) as picture:
            assert picture.convert("RGB").getpixel((2, 2)) == paper


def test_the_page_says_what_was_found(page):
    text = " ".join(" ".join(Page(page).text).split())
    for expected in (
        "softmax",
        "2.00x over eager PyTorch, 95% interval [1.96, 2.04]",
        "1.50 ms against 3.00 ms",
        "3 min 20 s",
        "×3.00",
        "×1.33",
        "rationale fine",
        "+int version = 2;",
        "nothing to tune",
        "compile_error",
        "Some CPU",
        "5495106",
    ):
        assert expected in text


def test_the_page_loads_nothing_and_runs_nothing(page):
    text, page = page, Page(page)
    assert page.open == []
    for tag, name, value in page.attributes:
        if name in ("src", "href", "srcset", "data", "action", "poster"):
            assert value.startswith(("data:image/svg+xml;base64,", "#")), (tag, name, value[:80])
            assert not re.search(r",|\s", value.partition("base64,")[2]), "one picture, not a list of them"
        assert not name.startswith("on")
    assert not {"script", "iframe", "object", "embed", "link", "base", "form"} & set(page.tags)
    assert "url(" not in text and "@import" not in text
    policy = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
    assert ("meta", "content", policy) in page.attributes


def test_headings_do_not_skip_a_level_and_tables_have_captions(page):
    page = Page(page)
    levels = [int(tag[1]) for tag in page.tags if re.fullmatch(r"h[1-6]", tag)]
    assert levels[0] == 1 and levels.count(1) == 1
    assert all(later - earlier <= 1 for earlier, later in itertools.pairwise(levels))
    assert page.tags.count("table") == page.tags.count("caption") == 4
    targets = {value for _, name, value in page.attributes if name == "id"}
    links = {value[1:] for _, name, value in page.attributes if name == "href"}
    assert links and links <= targets


def test_hostile_text_is_shown_harmlessly_wherever_it_stands(report):
    text = render("page.html", page_context(hostile_record(HISTORY), report))
    page = Page(text)
    assert page.open == []
    assert "script" not in page.tags
    assert page.tags.count("img") == len(FIGURES)
    assert not [name for _, name, _ in page.attributes if name.startswith("on")]
    assert not re.search("[\x00\x07\x1b\u202a-\u202e\u2066-\u2069\u200b]", text)
    shown = "".join(page.text)
    assert "3.00x over </pre>" in " ".join(shown.split()), "the hostile one is the elite: all of it is shown"
    assert r"\x1b[2J" in shown and r"\u202egnp.exe" in shown and "{{ 7 * 7 }}" in shown


def test_a_huge_source_on_one_line_is_capped(report):
    huge = evaluated(9, 3.0, parents=(3,), text="y" * 5_000_000, source="x" * 5_000_000)
    usual = page_of(report)
    text = page_of(report, history=[*HISTORY, huge])
    assert len(text) < len(usual) + 500_000
    assert "more characters" in text


def test_an_empty_run_gets_a_page_that_says_so(report):
    text = page_of(report, run=a_run(), history=[], attempts=[], events=[])
    assert "No correct candidate" in text and "Nothing has been evaluated yet." in text
    assert Page(text).open == []


def test_a_run_without_a_correct_candidate_gets_a_page_that_says_so(report):
    text = page_of(report, run=a_run(), history=[evaluated(0)], attempts=[], events=[])
    assert "No correct candidate" in text and "1 evaluated: 1 compile_error." in text


def test_a_record_that_ends_in_the_middle_is_reported_with_a_warning(report):
    text = page_of(report, attempts=[*ATTEMPTS, attempt(7, None)], history=[*HISTORY, HISTORY[0]])
    assert "no outcome yet: 1." in text
    assert "Telling the history again may not give what happened" in text and "2.00x" in text


def test_control_arms_are_shown_where_there_are_any(report):
    control = record_of(a_run(id="other", name="plain", config={"mutators": {"policy": "uniform"}}))
    text = " ".join(Page(render("page.html", page_context(record_of(), report, [control]))).text)
    assert "plain" in text and "uniform (control)" in text and "No control arm" not in text
    assert "No control arm" in page_of(report)


def test_the_rate_of_slow_builds_is_shown_where_builds_are_known(report):
    assert "First reason for it" not in page_of(report)
    routes = {"build_routes": ["slim"]}
    slow = {"build_routes": ["full"], "build_fallbacks": [f"full: uses {HOSTILE}"]}
    history = [evaluated(number, 1.0, features=slow if number == 3 else routes) for number in range(4)]
    page = page_of(report, history=history)
    text = " ".join(" ".join(Page(page).text).split())
    assert "slim 3 75%" in text and "full 1 25% uses" in text
    assert "<script>" not in page


def test_of_a_long_line_of_descent_the_first_the_last_and_the_largest_steps_are_shown(report):
    history = [evaluated(0, 1.0)]
    history += [
        evaluated(number, 1.0 + number / 1000 + (number > 50), parents=(number - 1,)) for number in range(1, 100)
    ]
    text = " ".join(" ".join(Page(page_of(report, history=history)).text).split())
    assert "Shown are the first, the last and the largest: 40 of 52." in text
    assert "candidate 0," in text and "candidate 51," in text and "candidate 50," not in text


def test_warnings_name_what_weakens_the_numbers(report, page):
    weak = evaluated(0, 1.01, sandbox="S0", speedup_ci=(0.8, 1.2), kernelbench_correct=False, labels=("calls_torch",))
    degenerate = {"trick": "zeros", "family": "own", "passes": True, "worst_abs_err": 0.0}
    harmless = {"trick": "identity", "family": "own", "passes": False, "worst_abs_err": 1.0}
    run = a_run(config={"findings": [degenerate, harmless, "something else"]})
    text = " ".join(Page(page_of(report, run=run, history=[weak], attempts=[], events=[])).text)
    for expected in (
        "Sandbox level S0",
        "`zeros`, which computes nothing, passes on own inputs",
        "something else",
        "reaches below 1",
        "40% of it wide",
        "fixed-tolerance rule",
        "calls_torch",
    ):
        assert expected in text
    assert "`identity`" not in text
    assert "Read this first" not in page


def test_a_time_that_the_device_should_not_reach_is_warned_of_first(report):
    alarm = evaluated(7, 2.0, labels=("above-roofline",), features={"roofline_fraction": 1.13})
    text = " ".join(Page(page_of(report, history=[*HISTORY, alarm])).text)
    assert "1 of the results claim more than 90%" in text and "candidate 7, 113%" in text
    assert "source is labelled" not in text, "it is no label of the source"


def test_the_same_history_draws_the_same_bytes(report, tmp_path):
    title = f"softmax · cpp on {HISTORY[0].evaluation.device_name} · fp32"
    with styled():
        again = [*save(figures.progress(title, record_of()), tmp_path / "progress")]
        again += save(charts.cells(title, record_of()), tmp_path / "cells")
    assert [path.name for path in again if path.read_bytes() != report[path.name].read_bytes()] == []


def test_the_funnel_figure_draws_the_fold_s_numbers():
    axes = charts.funnel("t", record_of()).axes[0]
    assert [bar.get_width() for bar in axes.patches] == [5, 4, 4, 3, 3, 3, 2]


def test_the_pareto_figure_draws_every_correct_candidate_and_rings_the_front():
    dots, rings = charts.pareto("t", HISTORY).axes[0].collections
    places = [(each.evaluation.kernel_ms, 1.0) for each in HISTORY if each.evaluation.is_correct]
    assert [tuple(place) for place in dots.get_offsets().tolist()] == places
    assert list(dots.get_array()) == [1.5] * 3
    front = [(each.evaluation.kernel_ms, 1.0) for each in series.pareto_front(HISTORY)]
    assert [tuple(place) for place in rings.get_offsets().tolist()] == front


def test_a_figure_without_numbers_says_why():
    with styled():
        nothing = a_record([], a_run())
        drawn = [figures.progress("t", nothing), figures.dollars("t", record_of()), charts.roofline("t", nothing)]
        drawn += [charts.roofline("t", record_of(a_run())), charts.cells("t", nothing), charts.timeline("t", nothing)]
    said = [figure.axes[0].texts[-1].get_text() for figure in drawn]
    assert said == [
        "nothing evaluated yet",
        "no money was spent on models",
        "no correct candidate yet",
        "what the problem computes was not traced",
        "no cell is occupied",
        "nothing evaluated yet",
    ]


def test_visible_text_spells_out_what_would_not_be_seen():
    assert visible("a\tb\r\nc\x1b\u202e\u200b\ud800\U000e0041") == ("a\tb\nc\\x1b\\u202e\\u200b\\ud800\\U000e0041")
    assert visible("grün ✓ 漢字") == "grün ✓ 漢字"
    assert one_line(" a \n b ") == "a b"


def test_numbers_are_written_with_their_units():
    assert [speedup_text(value) for value in (0.0123, 0.5, 1.5, 12.34, 123.4, None)] == [
        "0.0123x",
        "0.5x",
        "1.50x",
        "12.3x",
        "123x",
        "–",
    ]
    assert [ms_text(value) for value in (0.0123, 1.5, 2500.0)] == ["12.3 us", "1.50 ms", "2.50 s"]
    assert [bytes_text(value) for value in (0, 1536, 3 << 30)] == ["0 B", "1.50 KiB", "3.00 GiB"]
    assert [rate_text(value, "B/s") for value in (5, 1.5e9, 4.8e12)] == ["5.00 B/s", "1.50 GB/s", "4.80 TB/s"]
    assert [number_text(value) for value in (1.29, 1657.4, 2e6, 5.04e-7, None)] == [
        "1.29",
        "1,660",
        "2e+06",
        "5.04e-07",
        "–",
    ]
    assert [seconds_text(value) for value in (42, 200, 7500)] == ["42 s", "3 min 20 s", "2 h 5 min"]
