"""What a running search shows: a live table on a terminal, otherwise a plain line now and then."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Protocol, TextIO

from islands.candidate import Evaluated

LINE_EVERY_S = 5.0
"""Shortest time between two plain lines that announce nothing new."""


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
    """The display that suits `stream`: live on a terminal, lines elsewhere."""
    if stream.isatty():
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

    def __enter__(self) -> LineDisplay:
        return self

    def __exit__(self, *_: object) -> None:
        self._stream.flush()

    def say(self, text: str) -> None:
        print(f"kb-evolve: {text}", file=self._stream, flush=True)

    def __call__(self, progress: Progress) -> None:
        best_id = progress.best.candidate.id if progress.best else ""
        due = time.monotonic() - self._printed_s >= self._every_s
        changed = progress.evaluations != self._evaluations
        is_new_best = self._best_id is not None and best_id != self._best_id
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
        verdict_text(progress.verdicts) or "nothing judged yet",
        flight_text(progress),
    ]
    if progress.eta_s is not None:
        parts.append(f"about {duration_text(progress.eta_s)} left")
    return f"{progress.run}: " + " | ".join(parts)


def _news(progress: Progress) -> str:
    if progress.best is None or not progress.best.candidate.rationale:
        return ""
    return f" | new best by {progress.best.candidate.mutator}: {progress.best.candidate.rationale}"


class LiveDisplay:
    """A table that is redrawn in place with rich."""

    def __init__(self, stream: TextIO) -> None:
        from rich.console import Console
        from rich.live import Live

        self._console = Console(file=stream)
        self._live = Live(console=self._console, auto_refresh=False, transient=True)
        self._drawn_s = float("-inf")
        self._best_id: str | None = None

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
            self._console.print(f"{speedup_text(progress.best)}{_news(progress)}", markup=False, highlight=False)
        if time.monotonic() - self._drawn_s >= 0.25:
            self._live.update(progress_table(progress), refresh=True)
            self._drawn_s = time.monotonic()


def progress_table(progress: Progress) -> Any:
    """A rich table with one row for each thing worth watching."""
    from rich.table import Table
    from rich.text import Text

    limit = f" of {progress.evaluations_limit}" if progress.evaluations_limit else ""
    eta = f", about {duration_text(progress.eta_s)} left" if progress.eta_s is not None else ""
    per_island = "   ".join(f"{island}: {speedup_text(best)}" for island, best in sorted(progress.islands.items()))
    rows = {
        "evaluations": f"{progress.evaluations}{limit} ({progress.attempts} attempts)",
        "time": f"{duration_text(progress.elapsed_s)}{eta}",
        "best": speedup_text(progress.best),
        "islands": per_island,
        "verdicts": verdict_text(progress.verdicts),
        "in flight": f"thinking {progress.thinking}, {flight_text(progress)}",
    }
    if progress.stopping:
        rows["stopping"] = "waiting for the measurement in flight; Ctrl-C again stops at once"
    table = Table(title=Text(f"{progress.run}: {progress.problem}"), show_header=False, title_justify="left")
    for name, value in rows.items():
        table.add_row(name, Text(value))
    return table


def speedup_text(evaluated: Evaluated | None) -> str:
    """`1.52x [1.49, 1.55]`: speedup over the baseline and its 95% interval."""
    if evaluated is None or evaluated.evaluation.speedup is None or evaluated.evaluation.speedup_ci is None:
        return "none yet"
    low, high = evaluated.evaluation.speedup_ci
    return f"{evaluated.evaluation.speedup:.3g}x [{low:.3g}, {high:.3g}]"


def flight_text(progress: Progress) -> str:
    """`building 2, measuring 1, 3 queued`."""
    queued = f", {progress.queued} queued" if progress.queued else ""
    return f"building {progress.building}, measuring {progress.measuring}{queued}"


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
