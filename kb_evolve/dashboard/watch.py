"""Runs as they grow: what was added is read once, and the figures follow from all of it.

Candidates are kept without their sources and evaluations without their logs, about 5 KB each, so that the folds of
kb_evolve/report/series.py give here what they give the report.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields
from pathlib import Path

from islands.bouts import ELITE, FALLEN, standings
from islands.browsing import State
from islands.candidate import Evaluated
from islands.run import Attempt, Event, Run
from islands.store import Store, StoreError, open_store
from kb_evolve.budget import earlier_seconds
from kb_evolve.dashboard.tallies import Tally, tallies
from kb_evolve.report import series
from kb_evolve.report.warnings import warnings

IDLE = 60
"""So many times the CPU seconds that reading the news took, none is read again: reading takes 1/60 of one core."""

LONGEST_PAUSE_S = 300.0

PATIENCE_S = 0.4
"""So long the first page waits for runs that are read for the first time: one of 100,000 candidates takes 8 s."""

AT_ONCE = 500
"""Candidates that are read in one go: between two of them other pages have their turn at the database."""


class Unreadable(Exception):
    """A run whose records make no sense, because the file was damaged or made elsewhere; says what to do."""


@dataclass(frozen=True, slots=True)
class Overview:
    """A run at one moment; `history` has the estimates that count now, the elite and the fallen are marked."""

    run: Run
    state: State
    history: Sequence[Evaluated]
    attempts: Sequence[Attempt]
    events: Sequence[Event]
    best: Evaluated | None
    points: Sequence[series.Point]
    corners: Sequence[series.Point]
    islands: Mapping[int, Sequence[series.Point]]
    stages: Sequence[series.Stage]
    operators: Sequence[Tally]
    reasons: Sequence[series.Reason]
    members: Mapping[int, int]
    """Candidates told, by island."""
    warnings: Sequence[str]
    wall_s: float
    measured: int
    """Evaluations that the run paid for."""
    cost_usd: float
    verdicts: Mapping[str, int]
    outcomes: Mapping[str, int]
    """Attempts by how they ended; `open`: in flight."""
    places: Mapping[str, int]
    """Position in the history by candidate id."""

    def find(self, candidate_id: str) -> Evaluated | None:
        """That candidate, if it was told."""
        place = self.places.get(candidate_id)
        return None if place is None else self.history[place]

    def lineage(self, candidate_id: str) -> list[Evaluated]:
        """From the seed to that candidate through each one's first parent; parents of other runs are not followed."""
        chain: list[Evaluated] = []
        current = self.find(candidate_id)
        while current is not None and len(chain) <= len(self.history):
            chain.append(current)
            parents = current.candidate.parent_ids
            current = self.find(parents[0]) if parents else None
        return chain[::-1]


@dataclass(slots=True)
class _Record:
    """What was read of a run so far."""

    told: list[Evaluated] = field(default_factory=list)
    attempts: dict[int, Attempt] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    opened: int = 0
    closed: int = 0
    event: int = 0

    def read(self, store: Store, run_id: str) -> None:
        """Adds what is new, candidates first: a fresh measurement's place in the history is then always known."""
        while more := store.summaries(run_id, len(self.told), AT_ONCE):
            self.told += more
        self.opened, opened = store.opened_since(run_id, self.opened)
        self.closed, closed = store.closed_since(run_id, self.closed)
        self.attempts.update((attempt.number, attempt) for attempt in (*opened, *closed))
        self.event, events = store.events_since(run_id, self.event)
        self.events += events


class Watch:
    """One run, read on whenever somebody looks and enough time has passed; safe for several threads."""

    def __init__(self, store: Store, run: Run) -> None:
        self.run = run
        self.pause_s = 0.0
        """How long news are not read after they were."""
        self._store = store
        self._record = _Record()
        self._overview: Overview | None = None
        self.is_unreadable = False
        """When it was tried last."""
        self._read_at = 0.0
        self._lock = threading.Lock()

    @property
    def wait_s(self) -> float:
        """Seconds until news are read when somebody looks."""
        return max(0.0, self._read_at + self.pause_s - time.monotonic())

    @property
    def known(self) -> Overview | None:
        """The run as it was read last, for whoever need not wait until a long one is read for the first time."""
        return self._overview

    def overview(self) -> Overview:
        """The run as it is now, or as it was at most `pause_s` ago. Unreadable when its records make no sense."""
        with self._lock:
            if self._overview is not None and self.wait_s > 0:
                return self._overview
            is_first, began_s = self._overview is None, time.thread_time()
            state = self._store.state(self.run.id)
            if self._overview is not None and _is_behind(state, self._overview.state):
                self._record = _Record()  # the file's content was replaced by an earlier one
            if self._overview is None or state != self._overview.state:
                self._overview = self._read(state)
            took_s = 0.0 if is_first else time.thread_time() - began_s  # later ones have less to read
            self._read_at, self.pause_s = time.monotonic(), min(IDLE * took_s, LONGEST_PAUSE_S)
            return self._overview

    def _read(self, state: State) -> Overview:
        try:
            self._record.read(self._store, self.run.id)
            found = _overview(self.run, state, self._record, self._store.paid(self.run.id))
            self.is_unreadable = False
            return found
        except (ValueError, TypeError, LookupError, ArithmeticError) as error:
            self.is_unreadable = True
            raise Unreadable(
                f"The records of run {self.run.name} cannot be read ({type(error).__name__}: {error}). "
                f"`kb-evolve db check` looks for damage, `kb-evolve db restore` puts a backup back."
            ) from error


class Watches:
    """The runs of a store, those that start later included."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._place = _place(store.path)
        self._watches: dict[str, Watch] = {}
        self._lock = threading.Lock()
        self._reader: threading.Thread | None = None

    @property
    def store(self) -> Store:
        """The store of the file that is there now; StoreError when none is, or it is no database.

        A file that took the place of the first, as `kb-evolve db restore` puts one there, is opened and read anew.
        """
        with self._lock:
            place = _place(self._store.path)
            if place is None or place != self._place:
                self._store = open_store(self._store.path, read_only=True)  # pages under way still read the former
                self._place, self._watches = place, {}
            return self._store

    def all(self) -> list[Watch]:
        """One for each run, the newest first."""
        return [self._of(run) for run in reversed(self.store.runs())]

    def find(self, name_or_id: str) -> Watch | None:
        """That of the run; None when there is no such run."""
        run = self.store.find_run(name_or_id)
        return self._of(run) if run else None

    def warm(self, patience_s: float | None = None) -> None:
        """Reads every run that can be read; goes on without whoever waited `patience_s`. StoreError as from `store`."""
        _ = self.store
        with self._lock:
            reader = self._reader
            if reader is None or not reader.is_alive():
                reader = self._reader = threading.Thread(target=self._read_all, daemon=True, name="reader")
                reader.start()
        reader.join(patience_s)

    def _read_all(self) -> None:
        with suppress(StoreError):  # who asks for a page is told
            for watch in self.all():
                with suppress(Unreadable):
                    watch.overview()

    def _of(self, run: Run) -> Watch:
        store = self.store
        with self._lock:
            return self._watches.setdefault(run.id, Watch(store, run))


def _is_behind(state: State, known: State) -> bool:
    """Whether something that was known is gone: a record only grows."""
    return any(getattr(state, one.name) < getattr(known, one.name) for one in fields(State))


def _place(path: Path) -> tuple[int, int] | None:
    """Which file the path leads to; None when it leads nowhere."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _overview(run: Run, state: State, record: _Record, paid: tuple[int, float]) -> Overview:
    attempts = [record.attempts[number] for number in sorted(record.attempts)]
    history = standings(record.told, record.events)
    points = series.correct_points(history)
    return Overview(
        run=run,
        state=state,
        history=history,
        attempts=attempts,
        events=tuple(record.events),
        best=next((each for each in history if ELITE in each.evaluation.features), None),
        points=points,
        corners=series.best_so_far(points),
        islands=series.island_curves(history),
        stages=series.funnel(history, attempts),
        operators=tallies(history, attempts),
        reasons=series.failure_reasons(history, attempts),
        measured=paid[0],
        cost_usd=paid[1],
        verdicts=Counter(str(each.evaluation.verdict) for each in history),
        outcomes=Counter(attempt.outcome or "open" for attempt in attempts),
        members=Counter(each.candidate.island for each in history),
        warnings=warnings(run.config, history),
        wall_s=earlier_seconds(record.events, attempts),
        places={each.candidate.id: place for place, each in enumerate(history)},
    )


def standing_of(evaluated: Evaluated) -> str:
    """`elite`, `dethroned: why`, or nothing."""
    features = evaluated.evaluation.features
    return "elite" if ELITE in features else f"dethroned: {features[FALLEN]}" if FALLEN in features else ""
