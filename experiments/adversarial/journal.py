"""Every evaluation of a run of the suite, as it came: a run that was stopped goes on where it was."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from fitness.evaluation import Evaluation


class OutOfTime(Exception):
    """The run's time is over; what was judged is kept."""


class Journal:
    """A file of JSON lines, one per evaluation; without a path it only watches the time."""

    def __init__(self, path: Path | None = None, limit_s: float | None = None) -> None:
        self._path, self._deadline = path, None if limit_s is None else time.monotonic() + limit_s
        self._done: Counter[tuple[int, str]] = Counter()

    def earlier(self) -> Iterator[tuple[str, Evaluation, int]]:
        """What an earlier run wrote: kernel, evaluation, how often it was asked for again. To be read once, first."""
        if self._path is None or not self._path.exists():
            return
        for line in self._path.read_text().splitlines():
            entry = json.loads(line)
            self._done[entry["judge"], entry["kernel"]] += 1
            yield entry["kernel"], Evaluation.from_json(entry["evaluation"]), entry["requeued"]

    def skip(self, kernel: str, count: int, shares: Sequence[int]) -> None:
        """Takes so many repetitions as made elsewhere, those of the first judge first."""
        for judge, share in enumerate(shares):
            self._done[judge, kernel] += min(count, share)
            count -= min(count, share)

    def left(self, judge: int, kernel: str, times: int) -> int:
        """Repetitions of a kernel that this judge still owes."""
        return max(0, times - self._done[judge, kernel])

    def add(self, judge: int, kernel: str, evaluation: Evaluation, requeued: int) -> None:
        """Keeps one evaluation; raises OutOfTime when the time is over."""
        self._done[judge, kernel] += 1
        if self._path is not None:
            entry = {"judge": judge, "kernel": kernel, "requeued": requeued, "evaluation": evaluation.to_json()}
            with self._path.open("a") as file:
                file.write(json.dumps(entry) + "\n")
        if self._deadline is not None and time.monotonic() > self._deadline:
            raise OutOfTime
