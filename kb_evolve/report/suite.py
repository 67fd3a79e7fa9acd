"""Several problems at once: fast_p, a row for each problem, geometric means, against each baseline by its name.

fast_p is the share of the problems for which there is a correct kernel at least p times as fast as the baseline
(KernelBench's metric, which asks for more than p; for measured times that is the same).
"""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from fitness.evaluation import Evaluation
from islands.elite import TWO_SIDED_95, error_of
from islands.run import Run
from kb_evolve.report import series
from kb_evolve.report.text import plain_title

Figure = tuple[float, float, float]
"""A speedup with its 95% interval: (centre, low, high)."""

RESAMPLES = 2_000
"""Draws of the bootstrap over problems."""

STEPS = (0.0, 0.5, 0.8, 1.0, 1.5, 2.0)
"""The values of p that KernelBench's analysis prints."""


@dataclass(frozen=True, slots=True)
class Setting:
    """What results must share to be put into one curve."""

    device_name: str
    """Empty in an entry of a run in which nothing was measured."""
    backend: str
    precision: str

    def is_like(self, other: Setting) -> bool:
        """Whether they differ in the device at most."""
        return (self.backend, self.precision) == (other.backend, other.precision)

    def __str__(self) -> str:
        return f"{self.backend}, {self.device_name}, {self.precision}"


@dataclass(frozen=True, slots=True)
class Entry:
    """The best run of one problem in one setting."""

    problem: str
    problem_sha256: str
    run_name: str
    setting: Setting
    evaluations: int
    correct: int
    kernel_ms: float | None
    """Of the elite; None where no candidate is correct."""
    speedups: Mapping[str, Figure]
    """By baseline: `eager` from the run itself, others from the baselines that were given."""


@dataclass(frozen=True, slots=True)
class FastP:
    """fast_p of one setting against one baseline: a staircase that falls at each problem's speedup."""

    setting: Setting
    baseline: str
    problems: int
    missing: int
    """Problems with a correct kernel for which this baseline is not known; they count as slower."""
    speedups: tuple[float, ...]
    """Of the problems with a correct kernel, ascending."""
    lows: tuple[float, ...]
    """Lower ends of their intervals, ascending; the curve through them is the cautious one."""
    highs: tuple[float, ...]

    def at(self, p: float) -> float:
        """The share of problems at least `p` times as fast; at 0, of those with a correct kernel."""
        return share_above(self.speedups, p, self.problems)


@dataclass(frozen=True, slots=True)
class Mean:
    """The geometric mean speedup over the problems with a correct kernel."""

    setting: Setting
    baseline: str
    mean: float
    measured: tuple[float, float]
    """95% interval from the errors of measurement alone: for these very problems."""
    resampled: tuple[float, float] | None
    """95% percentile bootstrap over the problems: for others of their kind; None for fewer than five."""
    problems: int
    """That entered the mean."""


def best_entries(found: Iterable[Entry]) -> list[Entry]:
    """One for each problem and setting: of several runs, the one whose elite has the highest lower bound.

    A run in which nothing was measured does not know its device's name; it is counted where most others of its backend
    and precision are, so that its problem counts as unsolved there.
    """
    chosen: dict[tuple[str, Setting], Entry] = {}
    for entry in _settled(list(found)):
        key = (entry.problem_sha256, entry.setting)
        if key not in chosen or _least(entry) > _least(chosen[key]):
            chosen[key] = entry
    return sorted(chosen.values(), key=lambda entry: (str(entry.setting), -_least(entry), entry.problem))


def entry_of(run: Run, history: series.History, baselines: Iterable[Mapping[str, Any]] = ()) -> Entry:
    """What a run contributes; `history` as `kb_evolve.standing.standing` gives it.

    `baselines` are documents of `kb-evolve baseline --json`; one speaks of the problem and the device that it names.
    """
    winner = series.best(history)
    evaluation = winner.evaluation if winner else None
    names = [each.evaluation.device_name for each in history if each.evaluation.device_name]
    device_name = evaluation.device_name if evaluation else names[-1] if names else ""
    return Entry(
        problem=plain_title(run.problem_id),
        problem_sha256=run.problem_sha256,
        run_name=run.name,
        setting=Setting(device_name, run.backend, run.precision),
        evaluations=len(history),
        correct=sum(each.evaluation.verdict in series.RIGHT for each in history),
        kernel_ms=evaluation.kernel_ms if evaluation else None,
        speedups=_speedups(run, evaluation, baselines) if evaluation else {},
    )


def fast_p(found: Sequence[Entry]) -> list[FastP]:
    """One curve for each setting and baseline, `eager` first."""
    curves = []
    for setting, baseline in _pairs(found):
        several = [entry for entry in found if entry.setting == setting]
        solved = [entry for entry in several if entry.kernel_ms is not None]
        figures = [entry.speedups[baseline] for entry in solved if baseline in entry.speedups]
        columns = zip(*figures, strict=True) if figures else ((), (), ())
        centres, lows, highs = (tuple(sorted(column)) for column in columns)
        missing = len(solved) - len(figures)
        curves.append(FastP(setting, baseline, len(several), missing, centres, lows, highs))
    return curves


def share_above(speedups: Sequence[float], p: float, problems: int) -> float:
    """The share of `problems` whose speedup is at least `p`."""
    return sum(speedup >= p for speedup in speedups) / problems if problems else 0.0


def means(found: Sequence[Entry]) -> list[Mean]:
    """The geometric mean of each setting against each baseline that has a figure."""
    rows = []
    for setting, baseline in _pairs(found):
        figures = [
            entry.speedups[baseline] for entry in found if (entry.setting == setting and baseline in entry.speedups)
        ]
        if figures:
            rows.append(_mean(setting, baseline, figures))
    return rows


def read_baselines(paths: Iterable[str | Path]) -> list[dict[str, Any]]:
    """The baselines of files that `kb-evolve baseline --json` printed; ConfigError for another file."""
    import json

    from kb_evolve.config import ConfigError

    found: list[dict[str, Any]] = []
    for path in paths:
        try:
            document = json.loads(Path(path).read_text(encoding="utf-8"))
            found += [dict(entry) for entry in document["baselines"]]
            for entry in found:
                float(entry["speedup_vs_eager"]), str(entry["problem"]), str(entry["kind"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ConfigError(
                f"{path} holds no baselines ({type(error).__name__}: {error}): expected what "
                f"`kb-evolve baseline REF... --json` prints"
            ) from error
    return found


def _settled(found: Sequence[Entry]) -> list[Entry]:
    """The entries with a device's name each."""
    settings = Counter(entry.setting for entry in found if entry.setting.device_name)
    entries = []
    for entry in found:
        alike = [setting for setting, _ in settings.most_common() if setting.is_like(entry.setting)]
        usual = alike[0] if alike else dataclasses.replace(entry.setting, device_name="no device used yet")
        entries.append(entry if entry.setting.device_name else dataclasses.replace(entry, setting=usual))
    return entries


def _speedups(run: Run, evaluation: Evaluation, baselines: Iterable[Mapping[str, Any]]) -> dict[str, Figure]:
    """Against the run's own baseline, and against each that was itself measured against eager on the same device.

    The kernel over eager, divided by the baseline over eager: both were measured beside eager in the same rounds, so
    a machine that is slower today than it was then does not enter. Their errors are independent and add in squares.
    """
    assert evaluation.speedup is not None and evaluation.speedup_ci is not None
    found: dict[str, Figure] = {evaluation.baseline: (evaluation.speedup, *evaluation.speedup_ci)}
    for entry in baselines:
        kind, factor = str(entry["kind"]), float(entry["speedup_vs_eager"])
        if kind == evaluation.baseline or entry["problem"] != run.problem_id or factor <= 0:
            continue
        if entry.get("device_name") not in (None, "", evaluation.device_name):
            continue
        low, high = entry.get("speedup_vs_eager_ci") or (factor, factor)
        error = math.log(high / low) / (2 * TWO_SIDED_95)
        speedup = evaluation.speedup / factor
        width = math.exp(TWO_SIDED_95 * math.hypot(error, error_of(evaluation)))
        found[kind] = (speedup, speedup / width, speedup * width)
    return found


def _pairs(found: Sequence[Entry]) -> list[tuple[Setting, str]]:
    """Settings and baselines that occur together; `eager` even where no problem of the setting is solved."""
    pairs: dict[tuple[Setting, str], None] = {}
    for entry in found:
        pairs[entry.setting, "eager"] = None
        for baseline in entry.speedups:
            pairs[entry.setting, baseline] = None
    return sorted(pairs, key=lambda pair: (str(pair[0]), pair[1] != "eager", pair[1]))


def _least(entry: Entry) -> float:
    """The lower bound of the speedup over the run's own baseline; -1 without a correct kernel."""
    return next(iter(entry.speedups.values()))[1] if entry.speedups else -1.0


def _mean(setting: Setting, baseline: str, figures: Sequence[Figure]) -> Mean:
    logs = [math.log(centre) for centre, _, _ in figures]
    errors = [math.log(high / low) / (2 * TWO_SIDED_95) for _, low, high in figures]
    mean = statistics.fmean(logs)
    error = math.sqrt(sum(one**2 for one in errors)) / len(errors)
    measured = (math.exp(mean - TWO_SIDED_95 * error), math.exp(mean + TWO_SIDED_95 * error))
    return Mean(setting, baseline, math.exp(mean), measured, _resampled(logs), len(logs))


def _resampled(logs: Sequence[float]) -> tuple[float, float] | None:
    """Percentile bootstrap of the geometric mean (Efron 1979) with a fixed seed: the same every time."""
    if len(logs) < 5:
        return None
    random = Random(0)
    draws = sorted(statistics.fmean(random.choices(logs, k=len(logs))) for _ in range(RESAMPLES))
    return math.exp(draws[int(0.025 * RESAMPLES)]), math.exp(draws[int(0.975 * RESAMPLES) - 1])
