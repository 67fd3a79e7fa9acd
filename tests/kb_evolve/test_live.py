"""Progress is shown as lines without a terminal, and as a table on one."""

from __future__ import annotations

import dataclasses
import io

from fitness.evaluation import Job
from fitness.replay import Replay
from islands.candidate import Candidate, Evaluated
from kb_evolve.live import (
    LineDisplay,
    LiveDisplay,
    Progress,
    duration_text,
    open_display,
    progress_line,
)

EMPTY = Progress(run="night", problem="toy", evaluations=0, attempts=0, elapsed_s=1.0, evaluations_limit=60)


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
        "9 correct, 3 timeout",
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
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

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
