"""`/metrics`: the runs' figures in Prometheus' text exposition format, version 0.0.4.

https://prometheus.io/docs/instrumenting/exposition_formats/
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from islands.store import Store
from kb_evolve.dashboard.watch import Overview, Watches
from kb_evolve.report.text import visible

MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Sample:
    """One value of a metric, with its labels."""

    name: str
    labels: Sequence[tuple[str, str]]
    value: float


FAMILIES = {
    "kb_evolve_evaluations_total": ("counter", "Evaluations that the run paid for."),
    "kb_evolve_verdicts_total": ("counter", "Candidates that were told each verdict."),
    "kb_evolve_attempts_total": ("counter", "Asks by how they ended; open: in flight."),
    "kb_evolve_best_speedup": ("gauge", "Speedup of the run's elite over its baseline."),
    "kb_evolve_cost_usd_total": ("counter", "What models cost, in US dollars."),
    "kb_evolve_last_evaluation_age_seconds": ("gauge", "Seconds since the newest evaluation was told."),
    "kb_evolve_run_active": ("gauge", "1 while a living process owns the run."),
}


def exposition(watches: Watches, now: datetime.datetime) -> str:
    """All metrics of all runs that can be read."""
    watches.warm()
    overviews = [watch.known for watch in watches.all()]
    samples = [sample for one in overviews if one for sample in _samples(watches.store, one, now)]
    return "".join(_family(name, kind, text, samples) for name, (kind, text) in FAMILIES.items())


def _samples(store: Store, overview: Overview, now: datetime.datetime) -> Iterator[Sample]:
    run = overview.run
    labels = (("run", run.name), ("problem", run.problem_id), ("backend", run.backend), ("device", run.device))
    yield Sample("kb_evolve_evaluations_total", labels, overview.measured)
    for verdict, count in overview.verdicts.items():
        yield Sample("kb_evolve_verdicts_total", (*labels, ("verdict", verdict)), count)
    for outcome, count in overview.outcomes.items():
        yield Sample("kb_evolve_attempts_total", (*labels, ("outcome", outcome)), count)
    yield Sample("kb_evolve_cost_usd_total", labels, overview.cost_usd)
    yield Sample("kb_evolve_run_active", labels, int(store.is_running(run.id)))
    best = overview.best
    if best is not None and best.evaluation.speedup is not None:
        yield Sample("kb_evolve_best_speedup", labels, best.evaluation.speedup)
    told_at = store.last_told_at(run.id)
    if told_at is not None:
        age_s = (now - datetime.datetime.fromisoformat(told_at)).total_seconds()
        yield Sample("kb_evolve_last_evaluation_age_seconds", labels, max(age_s, 0.0))


def _family(name: str, kind: str, text: str, samples: Iterable[Sample]) -> str:
    lines = [f"# HELP {name} {text}", f"# TYPE {name} {kind}"]
    for sample in samples:
        if sample.name == name:
            labels = ",".join(f'{label}="{_escaped(value)}"' for label, value in sample.labels)
            lines.append(f"{name}{{{labels}}} {sample.value!r}")
    return "\n".join(lines) + "\n"


def _escaped(value: str) -> str:
    """A label's value in one line; characters that a terminal would act on are spelled out."""
    return visible(value, len(value)).replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
