"""Curves of a run in TensorBoard or MLflow, written by their own libraries: `--track tensorboard:DIR`, `mlflow:URI`.

A thread follows the database, so a series is a fold over the run's record: one point for each candidate told, at its
place in the history and with the time it was told. What a tracker holds already is not written again, so a resumed run
goes on where the series ends, and a tracker that was never there gets the whole of it. Metrics: docs/notifications.md.
"""

from __future__ import annotations

import importlib.util
import logging
import math
import os
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol

from fitness.evaluation import Evaluation
from islands.candidate import DUPLICATE_OF, Evaluated
from islands.duels import Throne
from islands.queries import Telling, bouts_since, paid_between, told_since
from islands.run import Run
from islands.store import Store, open_store
from kb_evolve.config import Config, ConfigError
from kb_evolve.live import Progress
from kb_evolve.report.text import one_line

log = logging.getLogger(__name__)

PACKAGES = {"tensorboard": "tensorboard", "mlflow": "mlflow"}
"""Module that each kind of tracker needs; also the name of the extra that installs it."""
LOOK_EVERY_S = 5.0
"""Shortest time between two looks at the database."""
PAGE = 500
"""Candidates that are read at once."""
LAST_WORDS_S = 30.0
"""How long the end of a run waits for what is not written yet."""
BATCH = 900
"""Metrics that MLflow takes in one call; its limit is 1,000."""

Warn = Callable[[str], None]
Metrics = dict[str, float]


@dataclass(frozen=True, slots=True)
class Step:
    """The metrics after one more candidate was told."""

    number: int
    """Candidates told, counted from 1."""
    at_s: float
    """When it was told, seconds since the epoch."""
    metrics: Metrics


class Tracker(Protocol):
    """Where series are kept; two implementations, TensorBoard and Mlflow."""

    def last_steps(self) -> Mapping[str, int]:
        """The last step of each metric that it holds of this run."""
        ...

    def write(self, steps: Sequence[Step]) -> None:
        """Adds the steps, in order."""
        ...

    def close(self) -> None:
        """Writes what is not written yet."""
        ...


def check_tracking(config: Config) -> None:
    """ConfigError for a tracker that is not known or whose package is not installed; opens nothing."""
    for target in config.tracking.track:
        kind, colon, where = target.partition(":")
        if kind not in PACKAGES or not colon or not where:
            known = " or ".join(("tensorboard:DIR", "mlflow:URI"))
            raise ConfigError(f"--track must be {known}, found {kind + colon!r}{' and a place' if where else ''}")
        if importlib.util.find_spec(PACKAGES[kind]) is None:
            raise ConfigError(f"--track {kind}: the package is not installed; pip install 'kb-evolve[{kind}]'")


@contextmanager
def open_tracking(config: Config, run: Run, db: Path, warn: Warn) -> Iterator[Callable[[Progress], None]]:
    """Follows the run while the block lasts; what is given hears of every Progress and returns at once."""
    followers = [Follower(db, run, target, warn) for target in config.tracking.track]

    def hear(_: Progress) -> None:
        for follower in followers:
            follower.look()

    try:
        yield hear
    finally:
        for follower in followers:
            follower.end()
        for follower in followers:
            follower.close()


class Follower:
    """Writes one run into one tracker on a thread of its own; fails once, with a warning."""

    def __init__(self, db: Path, run: Run, target: str, warn: Warn) -> None:
        self._db, self._run, self._target, self._warn = db, run, target, warn
        self._news, self._end = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._follow, name=f"track {self._kind}", daemon=True)
        self._thread.start()

    @property
    def _kind(self) -> str:
        return self._target.partition(":")[0]

    def look(self) -> None:
        """Says that there may be something new."""
        self._news.set()

    def end(self) -> None:
        """Says that nothing new will come."""
        self._end.set()
        self._news.set()

    def close(self) -> None:
        """Waits, for LAST_WORDS_S at most, until everything is written."""
        self._thread.join(LAST_WORDS_S)
        if self._thread.is_alive():
            self._fail(f"did not take everything within {LAST_WORDS_S:.0f} s")

    def _follow(self) -> None:
        try:
            tracker = open_tracker(self._target, self._run)
            written = dict(tracker.last_steps())
            with open_store(self._db, read_only=True) as store:
                series = Series(store, self._run.id)
                while not self._end.is_set():
                    self._news.wait()
                    self._news.clear()
                    _write(tracker, written, series.read())
                    self._end.wait(LOOK_EVERY_S)
                _write(tracker, written, series.read())
                _write(tracker, written, iter(series.rest()))
            tracker.close()
        except Exception as error:  # a tracker must never end the search
            self._fail(f"failed with {type(error).__name__}: {one_line(_without_secrets(str(error)))}")

    def _fail(self, reason: str) -> None:
        log.info("tracking failed: %s %s", self._kind, reason)
        self._warn(f"--track {self._kind} {reason}; the search goes on without it, a resumed one fills the gap")


def _write(tracker: Tracker, written: dict[str, int], steps: Iterator[Step]) -> None:
    """Adds what the tracker does not hold, PAGE steps at a time."""
    page: list[Step] = []
    for step in steps:
        fresh = {name: value for name, value in step.metrics.items() if step.number > written.get(name, 0)}
        if fresh:
            page.append(Step(step.number, step.at_s, fresh))
        if len(page) == PAGE:
            tracker.write(page)
            page = []
    if page:
        tracker.write(page)


def _without_secrets(text: str) -> str:
    """Passwords in addresses are left out."""
    return re.sub(r"://[^/\s@]*@", "://…@", text)


@dataclass(slots=True)
class Series:
    """The metrics of a run as a fold over its record, read as it grows.

    A step is given when the next candidate is told, so that fresh measurements of earlier ones are in it; `rest` gives
    the last one.
    """

    store: Store
    run_id: str
    throne: Throne = field(default_factory=lambda: Throne(0))
    told: int = 0
    told_at: str = ""
    evaluations: int = 0
    """Measured for this run; copies of one program count once."""
    verdicts: Counter[str] = field(default_factory=Counter)
    gains: dict[str, float] = field(default_factory=dict)
    usd: float = 0.0
    figures: dict[str, tuple[float, float, float]] = field(default_factory=dict)
    """Speedup and interval of the correct candidates, by id: their children's gains are measured against them."""
    event: int = 0
    bouts: list[dict[str, Any]] = field(default_factory=list)
    """Fresh measurements that belong behind what was read."""

    def read(self) -> Iterator[Step]:
        """The steps that are complete since the last call."""
        while page := told_since(self.store, self.run_id, self.told, PAGE):
            self._read_bouts()
            paid = paid_between(self.store, self.run_id, self.told_at, page[-1].told_at)
            for telling in page:
                self._amend()
                if self.told:
                    yield self._step()
                while paid and paid[0][0] <= telling.told_at:
                    self.usd += paid.pop(0)[1]
                self._tell(telling)

    def rest(self) -> list[Step]:
        """The last step; none for an empty run."""
        self._read_bouts()
        self._amend()
        return [self._step()] if self.told else []

    def _read_bouts(self) -> None:
        """After the history: a measurement that belongs between two members was written before the second."""
        for event, fields in bouts_since(self.store, self.run_id, self.event):
            self.event = event
            self.bouts.append(fields)

    def _amend(self) -> None:
        """Fresh measurements that were made after as many candidates as are told now."""
        while self.bouts and self.bouts[0]["after"] <= self.told:
            fields = self.bouts.pop(0)
            (known,) = self.store.told_of([fields["candidate"]])
            found = Evaluation.from_json(fields["evaluation"])
            self.throne.retell(Evaluated(known.candidate, found), self.told)

    def _tell(self, telling: Telling) -> None:
        evaluation, candidate = telling.evaluated.evaluation, telling.evaluated.candidate
        self.throne.tell(telling.evaluated, self.told)
        self.told, self.told_at = self.told + 1, telling.told_at
        self.evaluations += telling.is_paid and DUPLICATE_OF not in evaluation.features
        self.verdicts[str(evaluation.verdict)] += 1
        self.gains.setdefault(candidate.mutator, 0.0)
        if evaluation.speedup is None or evaluation.speedup_ci is None:
            return
        parents = [self.figures[one] for one in candidate.parent_ids if one in self.figures]
        if parents and evaluation.speedup_ci[0] > max(parents)[2]:
            self.gains[candidate.mutator] += math.log(evaluation.speedup / max(parents)[0])
        self.figures[candidate.id] = (evaluation.speedup, *evaluation.speedup_ci)

    def _step(self) -> Step:
        metrics: Metrics = {"evaluations": float(self.evaluations), "usd": self.usd}
        best = self.throne.holder.evaluation if self.throne.holder else None
        if best is not None and best.speedup is not None and best.speedup_ci is not None:
            metrics |= {"best/speedup": best.speedup, "best/low": best.speedup_ci[0], "best/high": best.speedup_ci[1]}
        metrics |= {f"verdicts/{name}": float(count) for name, count in self.verdicts.items()}
        metrics |= {f"gains/{_name(name)}": gain for name, gain in self.gains.items()}
        return Step(self.told, datetime.fromisoformat(self.told_at).timestamp(), metrics)


def _name(text: str) -> str:
    """A name that both trackers and every file system take; MLflow's rule is the strictest."""
    return re.sub(r"[^\w\-. /]", "_", text, flags=re.ASCII)[:200] or "_"


def open_tracker(target: str, run: Run) -> Tracker:
    """The tracker that `target` names, at the run's own place in it."""
    kind, _, where = target.partition(":")
    return TensorBoard(Path(where), run) if kind == "tensorboard" else Mlflow(where, run)


class TensorBoard:
    """Event files in DIR/<run's name>-<run's id>, written by torch's SummaryWriter."""

    def __init__(self, folder: Path, run: Run) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self.folder = folder / f"{_name(run.name).replace('/', '_')}-{run.id}"
        self._held = self._read()
        self._let_a_second_begin()
        self._writer = SummaryWriter(str(self.folder))
        if not self._held:
            described = (run.problem_id, run.backend, run.device, run.precision)
            self._writer.add_text("run", ", ".join(_name(text) for text in described), 0)

    def _read(self) -> dict[str, int]:
        from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

        held: dict[str, int] = {}
        for path in sorted(self.folder.glob("events.out.tfevents.*")):
            for event in EventFileLoader(str(path)).Load():
                for value in event.summary.value:
                    held[value.tag] = max(held.get(value.tag, 0), event.step)
        return held

    def _let_a_second_begin(self) -> None:
        """Files are read in the order of their names, which begin with the second; a run may go on within one."""
        names = [path.name.split(".") for path in self.folder.glob("events.out.tfevents.*")]
        newest = max((int(name[3]) for name in names if name[3].isdigit()), default=0)
        until = time.monotonic() + 2.0  # a clock that was put back is not waited for
        while int(time.time()) <= newest and time.monotonic() < until:
            time.sleep(0.02)

    def last_steps(self) -> Mapping[str, int]:
        """Of the event files that were there before."""
        return self._held

    def write(self, steps: Sequence[Step]) -> None:
        """One scalar for each metric, at the time it came to be."""
        for step in steps:
            for name, value in step.metrics.items():
                self._writer.add_scalar(name, value, step.number, walltime=step.at_s)
        self._writer.flush()

    def close(self) -> None:
        """Closes the event file."""
        self._writer.close()


class Mlflow:
    """A run of the experiment that is called as the problem, found again by a tag that holds our run's id."""

    def __init__(self, uri: str, run: Run) -> None:
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # mlflow 3 reports its use unless told not to
        from mlflow.tracking import MlflowClient

        self._client = MlflowClient(tracking_uri=uri)
        experiment = f"kb_evolve {_name(run.problem_id)}"
        known = self._client.get_experiment_by_name(experiment)
        place = known.experiment_id if known else self._client.create_experiment(experiment)
        found = self._client.search_runs([place], f"tags.kb_evolve_run = '{run.id}'", max_results=1)
        tags = {"kb_evolve_run": run.id, "problem_sha256": run.problem_sha256, "git_commit": run.git_commit}
        self._run = found[0] if found else self._client.create_run(place, run_name=run.name, tags=tags)
        self._id = self._run.info.run_id
        if not found:
            for name in ("problem_id", "backend", "device", "precision", "seed"):
                self._client.log_param(self._id, name, getattr(run, name))
        self._client.update_run(self._id, "RUNNING")

    def last_steps(self) -> Mapping[str, int]:
        """Of every metric that the run has."""
        names = self._run.data.metrics
        return {name: max(one.step for one in self._client.get_metric_history(self._id, name)) for name in names}

    def write(self, steps: Sequence[Step]) -> None:
        """All metrics of the steps, in as few calls as MLflow allows."""
        from mlflow.entities import Metric

        metrics = [
            Metric(name, value, round(1e3 * step.at_s), step.number)
            for step in steps
            for name, value in step.metrics.items()
        ]
        for first in range(0, len(metrics), BATCH):
            self._client.log_batch(self._id, metrics=metrics[first : first + BATCH])

    def close(self) -> None:
        """Marks the run as finished; resuming opens it again."""
        self._client.set_terminated(self._id)
