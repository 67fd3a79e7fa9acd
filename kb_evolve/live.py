"""What a running search shows: a live table on a terminal, otherwise a plain line now and then."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Protocol, TextIO

from islands.candidate import Evaluated
from kb_evolve.report.text import one_line

LINE_EVERY_S = 5.0
"""Shortest time between two plain lines that announce nothing new, at first."""
LONGEST_LINE_EVERY_S = 60.0
"""The same after an hour: a run of days must not fill a log."""
DRAW_EVERY_S = 0.25
"""Shortest time between two drawings of the live view."""
STOPPING = "waiting 5 s for the measurement in flight; Ctrl-C again stops at once"


@dataclass(frozen=True, slots=True)
class Progress:
    """A running search at one moment."""

    run: str
    problem: str
    evaluations: int
    attempts: int
    elapsed_s: float
    evaluations_limit: int | None = None
    eta_s: float | None = None
    best: Evaluated | None = None
    islands: Mapping[int, Evaluated] = field(default_factory=dict)
    """Best of each island that has a correct program."""
    verdicts: Mapping[str, int] = field(default_factory=dict)
    thinking: int = 0
    building: int = 0
    measuring: int = 0
    queued: int = 0
    """Builds and measurements that wait for a thread or for the device."""
    stopping: bool = False
    device: str = ""
    at_work: tuple[tuple[str, str], ...] = ()
    """(`building` or `measuring`, candidate's id) of what is at work now."""
    island_count: int = 0
    failed: Evaluated | None = None
    """The newest candidate that is not correct; of those told since this process began."""
    usd: float | None = None
    """What models cost so far; None where none is asked."""
    stop: str = ""
    """Why the run ended, as one word; empty while it goes on."""
    reason: str = ""
    """The same in a sentence."""


class Display(Protocol):
    """Shows progress; two implementations, LiveDisplay and LineDisplay."""

    def __enter__(self) -> Display: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def __call__(self, progress: Progress) -> None:
        """Shows `progress`, or not: called many times a second."""
        ...

    def say(self, text: str) -> None:
        """Prints a line beside what is shown; from any thread."""
        ...


def open_display(stream: TextIO) -> Display:
    """The display that suits `stream`: live on a terminal that can move its cursor, lines elsewhere."""
    if stream.isatty() and os.environ.get("TERM", "") not in ("dumb", "unknown"):
        return LiveDisplay(stream)
    return LineDisplay(stream)


class LineDisplay:
    """Plain lines: one at each new best, else at most one every few seconds, and none without news."""

    def __init__(self, stream: TextIO, every_s: float = LINE_EVERY_S) -> None:
        self._stream = stream
        self._every_s = every_s
        self._printed_s = float("-inf")
        self._best_id: str | None = None
        self._evaluations = -1
        self._is_stopping = False

    def __enter__(self) -> LineDisplay:
        return self

    def __exit__(self, *_: object) -> None:
        self._stream.flush()

    def say(self, text: str) -> None:
        print(f"kb-evolve: {text}", file=self._stream, flush=True)

    def __call__(self, progress: Progress) -> None:
        best_id = progress.best.candidate.id if progress.best else ""
        every_s = max(self._every_s, min(progress.elapsed_s / 60, LONGEST_LINE_EVERY_S))
        due = time.monotonic() - self._printed_s >= every_s
        changed = progress.evaluations != self._evaluations
        is_new_best = self._best_id is not None and best_id != self._best_id
        if progress.stopping and not self._is_stopping and not progress.stop:
            self._is_stopping = True
            self.say(STOPPING)
        if not is_new_best and not (due and changed):
            return
        print(progress_line(progress) + (_news(progress) if is_new_best else ""), file=self._stream, flush=True)
        self._printed_s, self._best_id, self._evaluations = time.monotonic(), best_id, progress.evaluations


def progress_line(progress: Progress) -> str:
    """One line: evaluations, best, verdicts, what is in flight, time left."""
    limit = f"/{progress.evaluations_limit}" if progress.evaluations_limit else ""
    parts = [
        f"{progress.evaluations}{limit} evaluations",
        f"best {speedup_text(progress.best)}",
        candidates_text(progress.verdicts),
        flight_text(progress),
    ]
    if progress.eta_s is not None:
        parts.append(_left(progress.eta_s))
    return f"{progress.run}: " + " | ".join(parts)


def _left(eta_s: float) -> str:
    return f"about {duration_text(eta_s)} left" if eta_s > 0 else "the budget is used: what is in flight ends"


def _news(progress: Progress) -> str:
    if progress.best is None or not progress.best.candidate.rationale:
        return ""
    candidate = progress.best.candidate
    return f" | new best by {one_line(candidate.mutator)}: {one_line(candidate.rationale)}"


class LiveDisplay:
    """A view that is redrawn in place with rich, only where something changed."""

    def __init__(self, stream: TextIO) -> None:
        from rich.console import Console

        self._console = Console(file=stream)
        self._live = self._new_live()
        self._width = self._console.width
        self._drawn_s = float("-inf")
        self._drawn: dict[str, str] = {}
        self._best_id: str | None = None
        self._since: tuple[float, int] | None = None
        """Seconds and evaluations of the run when the best was found; None while that was before this process."""

    def __enter__(self) -> LiveDisplay:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def say(self, text: str) -> None:
        self._console.print(f"kb-evolve: {text}", markup=False, highlight=False)

    def __call__(self, progress: Progress) -> None:
        best_id = progress.best.candidate.id if progress.best else ""
        is_new_best = self._best_id is not None and best_id != self._best_id
        self._best_id = best_id
        if is_new_best:
            self._since = (progress.elapsed_s, progress.evaluations)
            self._console.print(f"{speedup_text(progress.best)}{_news(progress)}", markup=False, highlight=False)
        if time.monotonic() - self._drawn_s < DRAW_EVERY_S:
            return
        self._fit()
        rows = progress_rows(progress, self._since)
        if rows != self._drawn:
            self._live.update(progress_table(rows), refresh=True)
            self._drawn, self._drawn_s = rows, time.monotonic()

    def _new_live(self) -> Any:
        from rich.live import Live

        return Live(console=self._console, auto_refresh=False, transient=True)

    def _fit(self) -> None:
        """Clears a screen that became narrower: its old lines were wrapped, and nobody knows into how many."""
        width = self._console.width
        if width < self._width:
            self._live.stop()
            self._console.clear()
            self._live, self._drawn = self._new_live(), {}
            self._live.start()
        self._width = width


def progress_rows(progress: Progress, since: tuple[float, int] | None = None) -> dict[str, str]:
    """What is worth watching, by name; `since`: the run's seconds and evaluations when its best was found."""
    limit = f" of {progress.evaluations_limit}" if progress.evaluations_limit else ""
    eta = "" if progress.eta_s is None else f", {_left(progress.eta_s)}"
    pace = 60 * progress.evaluations / progress.elapsed_s if progress.elapsed_s > 0 else 0.0
    rows = {
        "run": f"{progress.run}: {progress.problem}{f' on {progress.device}' if progress.device else ''}",
        "judged": f"{progress.evaluations}{limit}, {pace:.3g} a minute ({progress.attempts} attempts)",
        "time": f"{duration_text(progress.elapsed_s)}{eta}",
        "best": speedup_text(progress.best) + _found(progress, since),
        "islands": _islands(progress),
        "now": now_text(progress),
        "candidates": verdict_text(progress.verdicts),
        "failed": _failed(progress),
        "models": f"${progress.usd:.4f}" if progress.usd is not None else "",
        "stopping": STOPPING if progress.stopping else "",
    }
    return {name: one_line(text, 400) for name, text in rows.items() if text}


def progress_table(rows: Mapping[str, str]) -> Any:
    """A rich table with one row for each thing worth watching; it wraps on a narrow terminal."""
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2), expand=False)
    for name, value in rows.items():
        table.add_row(Text(name, style="bold"), Text(value, overflow="fold"))
    return table


def _found(progress: Progress, since: tuple[float, int] | None) -> str:
    if progress.best is None:
        return ""
    candidate = progress.best.candidate
    ago = f", {duration_text(progress.elapsed_s - since[0])} ago, at {since[1]}" if since else ""
    return f" {candidate.id} by {candidate.mutator}{ago}"


def _islands(progress: Progress) -> str:
    """The best of each island, without its interval: they must fit one line."""
    numbers = sorted({*progress.islands, *range(progress.island_count)})
    figures = {number: best.evaluation.speedup for number, best in progress.islands.items()}
    return ", ".join(f"{one}: {figures[one]:.3g}x" if figures.get(one) else f"{one}: none yet" for one in numbers)


def now_text(progress: Progress) -> str:
    """`measuring 000051, building 000052 and 000053, 2 queued, thinking 3`."""
    parts = []
    for stage in ("measuring", "building"):
        numbers = [id.rpartition("-")[2] for what, id in progress.at_work if what == stage]
        parts += [f"{stage} {' and '.join(numbers)}"] if numbers else []
    parts += [f"{progress.queued} queued"] if progress.queued else []
    parts += [f"thinking {progress.thinking}"] if progress.thinking else []
    return ", ".join(parts) or "nothing"


def _failed(progress: Progress) -> str:
    """The newest failure, with its reason."""
    if progress.failed is None:
        return ""
    number, evaluation = progress.failed.candidate.id.rpartition("-")[2], progress.failed.evaluation
    return f"{number} last, {evaluation.verdict}: {one_line(evaluation.reason, 120)}"


def speedup_text(evaluated: Evaluated | None) -> str:
    """`1.52x [1.49, 1.55]`: speedup over the baseline and its 95% interval."""
    if evaluated is None or evaluated.evaluation.speedup is None or evaluated.evaluation.speedup_ci is None:
        return "none yet"
    low, high = evaluated.evaluation.speedup_ci
    return f"{evaluated.evaluation.speedup:.3g}x [{low:.3g}, {high:.3g}]"


def flight_text(progress: Progress) -> str:
    """`building 2, measuring 1, 3 queued, thinking 8`."""
    queued = f", {progress.queued} queued" if progress.queued else ""
    thinking = f", thinking {progress.thinking}" if progress.thinking else ""
    return f"building {progress.building}, measuring {progress.measuring}{queued}{thinking}"


def candidates_text(verdicts: Mapping[str, int]) -> str:
    """How many candidates have a verdict, and which: more than evaluations where some were known without judging."""
    count = sum(verdicts.values())
    return f"{count} candidate{'s' * (count != 1)}: {verdict_text(verdicts)}" if count else "nothing judged yet"


def verdict_text(verdicts: Mapping[str, int]) -> str:
    """`41 correct, 3 compile_error`: most frequent first."""
    return ", ".join(f"{count} {name}" for name, count in sorted(verdicts.items(), key=lambda item: -item[1]))


def duration_text(seconds: float) -> str:
    """`42 s`, `3 min 20 s` or `2 h 5 min`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"
