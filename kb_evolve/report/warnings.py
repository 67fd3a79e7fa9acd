"""What a reader must know before believing a run's numbers, as sentences."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from islands.candidate import Evaluated
from kb_evolve.annotate import ABOVE_ROOFLINE, ALARM
from kb_evolve.report import series
from kb_evolve.report.record import Record
from kb_evolve.report.text import one_line, speedup_text

SAFE_SANDBOXES = ("S2", "S3")

WIDE = 0.10
"""Width of a 95% interval, as a share of the speedup, from which a warning is given."""


def warnings(config: Mapping[str, Any], history: series.History) -> list[str]:
    """The warnings that hold, the gravest first; `config` is the run's resolved configuration.

    Findings of the problem's admission audit are read from `config["findings"]`.
    """
    winner = series.best(history)
    found = [*_sandbox(history), *_roofline(history), *_findings(config), *_mixtures(history)]
    return found + (_winner(winner) if winner else [])


def warnings_of(record: Record) -> list[str]:
    """The same of a run, and what its record lacks."""
    return warnings(record.run.config, record.history) + _unfinished(record)


def _unfinished(record: Record) -> list[str]:
    """What the record lacks."""
    found = []
    if record.trouble:
        found.append(
            f"Telling the history again may not give what happened: {one_line(record.trouble, 300)}. Elites, "
            "migrations and the map of elites are as far as it goes, and as this version selects."
        )
    waiting = sum(attempt.outcome is None for attempt in record.attempts)
    if waiting:
        found.append(
            f"Asks that have no outcome yet: {waiting}. The search is at work, or was ended in the middle of it."
        )
    return found


def _sandbox(history: series.History) -> list[str]:
    levels = {each.evaluation.sandbox for each in history}
    weak = sorted(level for level in levels if level and not level.startswith(SAFE_SANDBOXES))
    shown = ", ".join(one_line(level, 20) for level in weak)
    return (
        [f"Sandbox level {shown} (below S2): a hostile candidate could have falsified these results."] if weak else []
    )


def _roofline(history: series.History) -> list[str]:
    """Times that the device should not be able to reach: a hole in the judge, or data that stayed in a cache."""
    alarms = [each for each in history if ABOVE_ROOFLINE in each.evaluation.labels]
    if not alarms:
        return []
    shares = [each.evaluation.features.get("roofline_fraction") or 0.0 for each in alarms]
    first = max(zip(shares, alarms, strict=True), key=lambda pair: pair[0])[1].candidate.number
    return [
        f"{len(alarms)} of the results claim more than {ALARM:.0%} of what the device's data sheet allows (most: "
        f"candidate {first}, {max(shares):.0%}): look at the source before believing the time."
    ]


def _findings(config: Mapping[str, Any]) -> list[str]:
    """The audit's findings, each a sentence or a JSON object of problems.anatomy.Finding."""
    found = []
    for finding in list(config.get("findings") or ())[:10]:
        if not isinstance(finding, Mapping):
            found.append(f"The problem's audit says: {one_line(finding, 300)}")
        elif finding.get("passes"):
            trick, family = (one_line(finding.get(name, "?"), 40) for name in ("trick", "family"))
            found.append(f"The problem is degenerate: `{trick}`, which computes nothing, passes on {family} inputs.")
    return found


def _mixtures(history: series.History) -> list[str]:
    """Devices and protocols whose results should not be compared with each other."""
    found = []
    for what, values in (
        ("devices", {each.evaluation.device_name for each in history if each.evaluation.is_correct}),
        ("judge protocols", {each.evaluation.protocol for each in history if each.evaluation.is_correct}),
    ):
        if len(values) > 1:
            shown = ", ".join(sorted(one_line(value, 60) for value in values))
            found.append(f"The results come from several {what} ({shown}); compare only within one.")
    return found


def _winner(winner: Evaluated) -> list[str]:
    evaluation = winner.evaluation
    assert evaluation.speedup is not None and evaluation.speedup_ci is not None
    low, high = evaluation.speedup_ci
    found = []
    if low <= 1 < evaluation.speedup:
        found.append(
            f"The best speedup's interval {speedup_text(evaluation.speedup, (low, high))} reaches below 1: "
            "it is not shown to be faster than the baseline."
        )
    if high - low > WIDE * evaluation.speedup:
        share = (high - low) / evaluation.speedup
        found.append(f"The best speedup's 95% interval is {share:.0%} of it wide: measure again on a quieter machine.")
    if evaluation.kernelbench_correct is False:
        found.append("KernelBench's own fixed-tolerance rule would refuse the best kernel.")
    labels = [label for label in evaluation.labels if label != ABOVE_ROOFLINE]
    if labels:
        shown = ", ".join(one_line(label, 60) for label in labels[:8])
        found.append(f"The best kernel's source is labelled: {shown}.")
    return found
