"""When a run worked, how many candidates it judged in a minute, and how busy judge and builders were.

Moments are seconds since the epoch; running time counts from the run's start and leaves pauses out.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, zip_longest
from typing import Any

from islands.bouts import BOUT, OPENED
from islands.candidate import DUPLICATE_OF, Evaluated
from kb_evolve.report.moments import is_moment, moment
from kb_evolve.report.record import Record

BINS = 60
"""Most bins of a timeline: at column width more cannot be told apart."""


@dataclass(frozen=True, slots=True)
class Part:
    """One process's part of the run."""

    start: float
    end: float
    before_s: float
    """Running seconds of the parts before it."""


@dataclass(frozen=True, slots=True)
class Timeline:
    """The run in bins of equal running time; `edges_s` holds one more value than the other lists."""

    edges_s: tuple[float, ...]
    correct: tuple[int, ...]
    """Candidates told in each bin whose verdict is correct or verified."""
    failed: tuple[int, ...]
    """All others told."""
    judging: tuple[float, ...]
    """Seconds of judging for each second: at most 1 on one device."""
    building: tuple[float, ...]
    """Seconds of building for each second; builds run side by side."""


@dataclass(frozen=True, slots=True)
class Work:
    """A build and a measurement that were paid for in this run."""

    candidate_id: str
    end: float
    """When its end was written down."""
    compile_s: float
    evaluate_s: float


def parts(record: Record) -> list[Part]:
    """From each `started` event to the last row that was written before the next one."""
    seen = [moment(at) for at in _moments(record) if is_moment(at)]
    began = [event.at for event in record.events if event.kind == "started"] or [record.run.started_at]
    starts = sorted(moment(at) for at in began if is_moment(at)) or [min(seen, default=0.0)]
    ends = list(starts)
    for at in seen:
        index = bisect_right(starts, at) - 1
        if index >= 0:
            ends[index] = max(ends[index], at)
    lengths = [end - start for start, end in zip(starts, ends, strict=True)]
    before = [0.0, *accumulate(lengths)]
    return [Part(start, end, sum_s) for start, end, sum_s in zip(starts, ends, before, strict=False)]


def running_seconds(moments: Iterable[str], found: Sequence[Part]) -> list[float]:
    """The running time at each of the moments."""
    starts = [part.start for part in found]
    return [_running(moment(at), found, starts) for at in moments]


def wall_seconds(record: Record) -> float:
    """Running time of the whole run."""
    last = parts(record)[-1]
    return last.before_s + last.end - last.start


def works(record: Record) -> list[Work]:
    """Everything that was built or measured, in the order in which its end was written down.

    Each evaluation once, by the first candidate that was told it: what several islands share, and what repeats a
    twin's figures (DUPLICATE_OF), cost nothing more. The first figures of duels and all fresh measurements are on
    record as events. Where moments lack, the run's start stands for them.
    """
    found: list[Work] = []
    for event in record.events:
        if event.kind in (OPENED, BOUT) and isinstance(event.fields.get("evaluation"), dict):
            found.append(_work(str(event.fields.get("candidate", "")), event.at, event.fields["evaluation"]))
    first_told = {each.candidate.id for each in paid_for(record.told)}
    for each, at in zip_longest(record.told, record.told_at, fillvalue=record.run.started_at):
        if isinstance(each, Evaluated) and each.candidate.id in first_told:
            evaluation = each.evaluation
            costs = {"compile_s": evaluation.compile_s, "evaluate_s": evaluation.evaluate_s}
            found.append(_work(each.candidate.id, at, costs))
    return sorted(found, key=lambda work: work.end)


def paid_for(history: Iterable[Evaluated]) -> list[Evaluated]:
    """The first candidate of each program that was measured."""
    seen: set[str] = set()
    found = []
    for each in history:
        source = each.evaluation.source_sha256
        if source not in seen and DUPLICATE_OF not in each.evaluation.features:
            seen.add(source)
            found.append(each)
    return found


def timeline(record: Record, bins: int = BINS) -> Timeline | None:
    """The run's throughput and load; None where moments lack or nothing was told.

    A measurement is placed just before it was written down, and its build just before that: both are known by their
    lengths alone.
    """
    total_s = wall_seconds(record)
    if not record.told_at or total_s <= 0:
        return None
    bins = max(1, min(bins, len(record.history)))
    width_s = total_s / bins
    found = parts(record)
    starts = [part.start for part in found]
    correct, failed = [0] * bins, [0] * bins
    for each, at_s in zip(record.history, running_seconds(record.told_at, found), strict=True):
        counts = correct if each.evaluation.verdict.value in ("correct", "verified") else failed
        counts[min(int(at_s / width_s), bins - 1)] += 1
    judging, building = [0.0] * bins, [0.0] * bins
    for work in works(record):
        end_s = _running(work.end, found, starts)
        _spread(judging, end_s - work.evaluate_s, end_s, width_s)
        _spread(building, end_s - work.evaluate_s - work.compile_s, end_s - work.evaluate_s, width_s)
    return Timeline(
        tuple(width_s * index for index in range(bins + 1)),
        tuple(correct),
        tuple(failed),
        tuple(busy_s / width_s for busy_s in judging),
        tuple(busy_s / width_s for busy_s in building),
    )


def _moments(record: Record) -> Iterable[str]:
    for event in record.events:
        yield event.at
    for attempt in record.attempts:
        yield attempt.opened_at
        if attempt.closed_at:
            yield attempt.closed_at
    yield from record.told_at


def _running(at: float, found: Sequence[Part], starts: Sequence[float]) -> float:
    part = found[max(0, bisect_right(starts, at) - 1)]
    return part.before_s + min(max(at - part.start, 0.0), part.end - part.start)


def _work(candidate_id: str, at: str, document: dict[str, Any]) -> Work:
    compile_s, evaluate_s = (float(document.get(name) or 0.0) for name in ("compile_s", "evaluate_s"))
    return Work(candidate_id, moment(at) if is_moment(at) else 0.0, compile_s, evaluate_s)


def _spread(busy_s: list[float], start_s: float, end_s: float, width_s: float) -> None:
    """Adds the span to the bins that it touches; what lies before the run's start is left out."""
    start_s = max(start_s, 0.0)
    first, last = int(start_s / width_s), min(int(end_s / width_s), len(busy_s) - 1)
    for index in range(first, last + 1):
        busy_s[index] += max(0.0, min(end_s, width_s * (index + 1)) - max(start_s, width_s * index))
