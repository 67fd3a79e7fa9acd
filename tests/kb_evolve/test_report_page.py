"""The page and the figures: complete, self-contained, safe with hostile text."""

import hashlib
import itertools
import re
from html.parser import HTMLParser

import pytest

from fitness.evaluation import Evaluation, Verdict
from islands.candidate import Candidate, Evaluated
from islands.run import Attempt, Event, Run
from kb_evolve.report import figures, series
from kb_evolve.report.build import page_context, render, write_report
from kb_evolve.report.text import bytes_text, ms_text, one_line, seconds_text, speedup_text, visible

HOSTILE = (
    "</pre></style><script>alert(1)</script><img src=https://evil.example/x onerror=alert(2)>"
    "\"'{{ 7 * 7 }} \x1b[2J\x1b]0;owned\x07 \u202egnp.exe\u2066 \u200b $\\frac{ $ \x00 & <!-- "
)
VOID = {"meta", "img", "br", "link", "input", "hr"}


def a_run(**fields):
    values = {
        "id": "abcdefgh",
        "name": "softmax-demo",
        "problem_id": "softmax",
        "problem_sha256": "f" * 64,
        "problem_source": "class Model: ...",
        "backend": "cpp",
        "device": "cpu",
        "precision": "fp32",
        "config": {"run": {"seed": 1}},
        "seed": 1,
        "budget": {"evaluations": 3},
        "git_commit": "5495106",
        "started_at": "2026-03-01T09:00:00+00:00",
    }
    return Run(**(values | fields))


def evaluated(number, speedup=None, parents=(), text="fine", source=None, island=0, **fields):
    source = source or f"int version = {number};\n"
    times = {}
    if speedup is not None:
        times = {
            "kernel_ms": 3.0 / speedup,
            "kernel_ms_ci": (2.9 / speedup, 3.1 / speedup),
            "reference_ms": 3.0,
        }
        times |= {"speedup": speedup, "speedup_ci": (0.98 * speedup, 1.02 * speedup)}
        times |= {"peak_mem_bytes": 1 << 20, "error_ratio": 1.5, "max_abs_err": 1e-7}
    ids = tuple(f"run-{parent:06d}" for parent in parents)
    candidate = Candidate(
        f"run-{number:06d}", number, island, len(parents), "cpp", source, ids, "tune", f"rationale {text}"
    )
    values = {
        "verdict": Verdict.CORRECT if speedup else Verdict.COMPILE_ERROR,
        "reason": f"reason {text}",
        "problem": "softmax",
        "backend": "cpp",
        "source_sha256": hashlib.sha256(source.encode()).hexdigest(),
        "device_name": "Some CPU",
        "sandbox": "S2",
    }
    return Evaluated(candidate, Evaluation(**(values | times | fields)))


HISTORY = [evaluated(0, 0.5), evaluated(1, None, (0,)), evaluated(2, 1.5, (0,)), evaluated(3, 2.0, (2,))]
AT = "2026-03-01T09:00:00+00:00"
ATTEMPTS = [Attempt("abcdefgh", 4, 0, "tune", (), AT, outcome="refused", reason="nothing to tune", closed_at=AT)]
EVENTS = [
    Event("abcdefgh", "started", {}, AT),
    Event("abcdefgh", "stopped", {}, "2026-03-01T09:03:20+00:00"),
]


class Page(HTMLParser):
    """Tags, attributes and text of an HTML page; knows whether every element was closed in order."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.attributes, self.text, self.open = [], [], [], []
        self.feed(text)
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


def page_of(tmp_path, run=None, history=HISTORY, attempts=ATTEMPTS, events=EVENTS):
    paths = write_report(run or a_run(), history, attempts, events, tmp_path / "report")
    return paths["index.html"].read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """The files of the usual report, by name."""
    return write_report(a_run(), HISTORY, ATTEMPTS, EVENTS, tmp_path_factory.mktemp("report") / "new" / "folder")


@pytest.fixture(scope="module")
def page(report):
    return report["index.html"].read_text(encoding="utf-8")


def test_a_report_is_six_figures_and_a_page(report):
    assert set(report) == {"index.html"} | {
        f"{name}.{kind}" for name in ("progress", "pareto", "funnel") for kind in ("png", "svg")
    }
    assert all(path.stat().st_size > 1_000 for path in report.values())


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


def test_hostile_text_is_shown_harmlessly_wherever_it_stands(tmp_path):
    hostile = evaluated(
        9,
        3.0,
        (3,),
        HOSTILE,
        source=f"# {HOSTILE}\n",
        device_name=HOSTILE,
        baseline=HOSTILE,
        labels=(HOSTILE,),
        sandbox=HOSTILE,
        judge_sha256=HOSTILE,
    )
    failed = evaluated(10, None, (3,), HOSTILE, log=HOSTILE)
    attempts = [Attempt("abcdefgh", 11, 0, HOSTILE, (), AT, outcome="error", reason=HOSTILE)]
    run = a_run(
        name=HOSTILE,
        problem_id=HOSTILE,
        problem_source=HOSTILE,
        git_commit=HOSTILE,
        config={HOSTILE: HOSTILE},
    )
    text = page_of(tmp_path, run, [*HISTORY, hostile, failed], attempts)
    page = Page(text)
    assert page.open == []
    assert "script" not in page.tags
    assert page.tags.count("img") == 3
    assert not [name for _, name, _ in page.attributes if name.startswith("on")]
    assert not re.search("[\x00\x07\x1b\u202a-\u202e\u2066-\u2069\u200b]", text)
    shown = "".join(page.text)
    assert r"\x1b[2J" in shown and r"\u202egnp.exe" in shown and "{{ 7 * 7 }}" in shown


def test_a_huge_source_on_one_line_is_capped(report):
    huge = evaluated(9, 3.0, (3,), "y" * 5_000_000, source="x" * 5_000_000)
    text = render(page_context(a_run(), [*HISTORY, huge], ATTEMPTS, EVENTS, report))
    assert len(text) < 1_000_000
    assert "more characters" in text


@pytest.mark.parametrize(
    ("history", "expected"),
    [([], "Nothing has been evaluated yet."), ([evaluated(0)], "1 evaluated: 1 compile_error.")],
)
def test_a_run_without_a_correct_candidate_gets_a_page_that_says_so(tmp_path, history, expected):
    text = page_of(tmp_path, history=history, attempts=[], events=[])
    assert "No correct candidate" in text and expected in text
    assert Page(text).open == []


def test_warnings_name_what_weakens_the_numbers(report, page):
    weak = evaluated(0, 1.01, sandbox="S0", speedup_ci=(0.8, 1.2), kernelbench_correct=False, labels=("calls_torch",))
    degenerate = {"trick": "zeros", "family": "own", "passes": True, "worst_abs_err": 0.0}
    harmless = {"trick": "identity", "family": "own", "passes": False, "worst_abs_err": 1.0}
    run = a_run(config={"findings": [degenerate, harmless, "something else"]})
    text = " ".join(Page(render(page_context(run, [weak], [], [], report))).text)
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
    text = " ".join(Page(render(page_context(a_run(), [*HISTORY, alarm], [], [], report))).text)
    assert "1 of the results claim more than 90%" in text and "candidate 7, 113%" in text
    assert "source is labelled" not in text, "it is no label of the source"


def test_the_same_history_draws_the_same_bytes(report, tmp_path):
    again = write_report(a_run(), HISTORY, ATTEMPTS, EVENTS, tmp_path / "again")
    assert {name for name in report if report[name].read_bytes() != again[name].read_bytes()} == set()


def test_the_progress_figure_draws_the_fold_s_numbers():
    axes = figures.progress("t", HISTORY).axes[0]
    line = next(line for line in axes.lines if line.get_label() == "best so far")
    corners = series.best_so_far(series.correct_points(HISTORY))
    assert list(line.get_xdata()) == [*[corner.number for corner in corners], len(HISTORY)]
    assert list(line.get_ydata()) == [0.5, 1.5, 2.0, 2.0]


@pytest.mark.parametrize(("islands", "labels"), [(1, 0), (5, 5), (9, 1)])
def test_island_curves_have_own_colours_while_there_are_enough(islands, labels):
    history = [evaluated(number, 1.0 + number, island=number) for number in range(islands)]
    axes = figures.progress("t", history).axes[0]
    found = [line for line in axes.lines if "island" in str(line.get_label())]
    assert len(found) == labels
    assert len({line.get_color() for line in found}) == labels


def test_the_funnel_figure_draws_the_fold_s_numbers():
    axes = figures.funnel("t", HISTORY, ATTEMPTS).axes[0]
    assert [bar.get_width() for bar in axes.patches] == [5, 4, 4, 3, 3, 3, 2]


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
    assert [seconds_text(value) for value in (42, 200, 7500)] == ["42 s", "3 min 20 s", "2 h 5 min"]
