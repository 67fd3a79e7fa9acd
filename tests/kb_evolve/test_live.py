"""Progress is shown as lines without a terminal, and as a table on one."""

from __future__ import annotations

import dataclasses
import io
import re

import pytest

from fitness.evaluation import Evaluation, Job, Verdict
from fitness.replay import Replay
from islands.candidate import Candidate, Evaluated
from kb_evolve import live
from kb_evolve.live import (
    LineDisplay,
    LiveDisplay,
    Progress,
    duration_text,
    now_text,
    open_display,
    progress_line,
    progress_rows,
)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


EMPTY = Progress(run="night", problem="toy", evaluations=0, attempts=0, elapsed_s=1.0, evaluations_limit=60)


@pytest.fixture(autouse=True)
def capable(monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal that can move its cursor, wherever the tests run."""
    monkeypatch.setenv("TERM", "xterm")


def evaluated(number: int = 1, rationale: str = "TILE 4 -> 8") -> Evaluated:
    source = f"constexpr int TILE = {4 * number};"
    candidate = Candidate(f"r-{number:06d}", number, 0, 1, "cpp", source, mutator="tune", rationale=rationale)
    return Evaluated(candidate, Replay().evaluate(Job(problem="toy", problem_source="", source=source)))


def test_a_line_holds_evaluations_best_with_interval_verdicts_flight_and_time_left() -> None:
    best = evaluated()
    progress = dataclasses.replace(
        EMPTY,
        evaluations=12,
        best=best,
        verdicts={"correct": 9, "timeout": 3},
        building=2,
        measuring=1,
        eta_s=95,
    )
    line = progress_line(progress)
    assert best.evaluation.speedup is not None
    for part in (
        "12/60",
        f"{best.evaluation.speedup:.3g}x [",
        "12 candidates: 9 correct, 3 timeout",
        "building 2, measuring 1",
    ):
        assert part in line
    assert "about 1 min 35 s left" in line


def test_lines_are_rare_but_a_new_best_is_told_at_once_with_its_reason() -> None:
    stream = io.StringIO()
    display = LineDisplay(stream, every_s=3600)
    for count in range(20):
        display(dataclasses.replace(EMPTY, evaluations=count))
    display(dataclasses.replace(EMPTY, evaluations=20, best=evaluated()))
    lines = stream.getvalue().splitlines()
    assert len(lines) == 2
    assert lines[1].endswith("new best by tune: TILE 4 -> 8")


def test_nothing_is_printed_while_nothing_changes() -> None:
    stream = io.StringIO()
    display = LineDisplay(stream, every_s=0.0)
    for _ in range(5):
        display(EMPTY)
    assert len(stream.getvalue().splitlines()) == 1


def test_a_stream_that_is_no_terminal_gets_lines() -> None:
    assert isinstance(open_display(io.StringIO()), LineDisplay)


def test_the_table_shows_each_island_and_what_stops() -> None:
    stream = Terminal()
    display = open_display(stream)
    assert isinstance(display, LiveDisplay)
    with display:
        display(dataclasses.replace(EMPTY, islands={0: evaluated(1), 3: evaluated(2)}, stopping=True))
    shown = stream.getvalue()
    assert "0: " in shown and "3: " in shown and "Ctrl-C again" in shown


def test_markup_in_a_rationale_is_shown_as_text() -> None:
    stream = io.StringIO()
    with LiveDisplay(stream) as display:
        display(EMPTY)
        display(dataclasses.replace(EMPTY, best=evaluated(rationale="x[/bold][red]")))
    assert "x[/bold][red]" in stream.getvalue()


def test_durations_are_readable() -> None:
    assert [duration_text(seconds) for seconds in (4.4, 200, 7500)] == ["4 s", "3 min 20 s", "2 h 5 min"]


def test_a_terminal_that_cannot_move_its_cursor_gets_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    assert isinstance(open_display(Terminal()), LineDisplay)


def test_the_view_says_what_is_at_work_what_failed_and_when_the_best_was_found() -> None:
    wrong = Evaluation(Verdict.COMPILE_ERROR, "no such\x1b[31m thing", problem="toy", backend="cpp", source_sha256="0")
    failed = Evaluated(evaluated(7).candidate, wrong)
    progress = dataclasses.replace(
        EMPTY, evaluations=30, elapsed_s=60.0, best=evaluated(2), islands={1: evaluated(2)}, island_count=3, usd=0.5,
        at_work=(("measuring", "r-000009"), ("building", "r-000010"), ("building", "r-000011")), queued=2, thinking=4,
        failed=failed, device="cuda:0",
    )  # fmt: skip
    rows = progress_rows(progress, since=(40.0, 21))
    assert rows["judged"].startswith("30 of 60, 30 a minute")
    assert "r-000002 by tune, 20 s ago, at 21" in rows["best"]
    assert rows["now"] == "measuring 000009, building 000010 and 000011, 2 queued, thinking 4"
    assert rows["islands"] == f"0: none yet, 1: {evaluated(2).evaluation.speedup:.3g}x, 2: none yet"
    assert rows["failed"] == "000007 last, compile_error: no such\\x1b[31m thing"
    assert rows["models"] == "$0.5000" and rows["run"].endswith("on cuda:0")
    assert now_text(EMPTY) == "nothing"


def test_nothing_is_drawn_again_while_nothing_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "DRAW_EVERY_S", 0.0)
    stream = Terminal()
    with open_display(stream) as display:
        display(EMPTY)
        size = len(stream.getvalue())
        for _ in range(50):
            display(EMPTY)
        assert len(stream.getvalue()) == size
        display(dataclasses.replace(EMPTY, evaluations=1))
        assert len(stream.getvalue()) > size


def test_a_terminal_that_became_narrower_is_cleared_and_drawn_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "DRAW_EVERY_S", 0.0)
    monkeypatch.setenv("COLUMNS", "120")
    stream = Terminal()
    with open_display(stream) as display:
        display(EMPTY)
        assert "\x1b[2J" not in stream.getvalue()
        assert isinstance(display, LiveDisplay)
        display._console.width = 40
        display(dataclasses.replace(EMPTY, evaluations=1))
        shown = stream.getvalue().partition("\x1b[2J")[2]
        assert "1 of 60" in shown
        assert max(len(line) for line in re.sub(r"\x1b\[[\d;?]*[A-Za-z]", "", shown).splitlines()) <= 40


def test_lines_become_rarer_as_a_run_gets_longer_and_say_once_that_it_stops() -> None:
    stream = io.StringIO()
    display = LineDisplay(stream, every_s=0.0)
    for count in range(5):
        display(dataclasses.replace(EMPTY, evaluations=count, elapsed_s=100_000.0, stopping=count > 2))
    lines = stream.getvalue().splitlines()
    assert len(lines) == 2 and "Ctrl-C again" in lines[1]


def test_a_rationale_with_escapes_is_spelled_in_lines_and_on_a_terminal() -> None:
    for stream, display in [(io.StringIO(), LineDisplay), (Terminal(), LiveDisplay)]:
        with display(stream) as shown:
            shown(EMPTY)
            shown(dataclasses.replace(EMPTY, best=evaluated(rationale="\x1b]0;owned\x07\u202egnp")))
        assert "\x1b]0" not in stream.getvalue() and "\u202e" not in stream.getvalue()
        assert "\\x1b]0;owned" in stream.getvalue()
