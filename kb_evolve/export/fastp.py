"""KernelBench's analysis of a run, on its files and on our database: fast_p, rates, geometric mean speedup.

fast_p is the share of n problems for which a kernel is correct and more than p times as fast as the baseline; n are the
problems that have a baseline. A speedup is baseline_mean / runtime. The geometric mean is over correct kernels alone.
(Ouyang et al. 2025, "KernelBench: Can LLMs Write Efficient GPU Kernels?", section 3, and the analysis script in its
repository, which counts sample 0 of each problem.)
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeGuard

from kb_evolve.config import ConfigError
from kb_evolve.export.kernelbench import SAMPLE, kernelbench_numbers
from kb_evolve.report.suite import STEPS, Entry

RESULTS = "eval_results.json"
SIZE_LIMIT = 64 << 20
"""Largest file that is read [B]; a level of 100 problems with 100 samples each has a tenth of that."""


NUMBER = re.compile(r"0|[1-9][0-9]{0,8}")
"""A problem's number in KernelBench's results."""
LEAST_MS, MOST_MS = 1e-9, 1e12
"""Times outside are none: a light's way of a third of a millimetre, and 30 years [ms]."""


class FastpError(ConfigError):
    """Results or a baseline that cannot be read; says where and what was expected."""


@dataclass(frozen=True, slots=True)
class Baseline:
    """What there was to beat."""

    name: str
    """`baseline_time_torch`, say: a file's name without .json."""
    hardware: str
    """The folder that it lies in, as KernelBench names hardware."""
    ms: dict[tuple[int, int], float]
    """Mean time [ms] by level and problem."""


@dataclass(frozen=True, slots=True)
class Analysis:
    """What one set of results is worth against one baseline."""

    results: str
    """The run's name, or the setting of several runs."""
    baseline: str
    hardware: str
    level: int | None
    total_count: int
    """Problems that there are."""
    total_eval: int
    """Of them, those with a result."""
    compiled_count: int | None
    """Not counted in our database."""
    correct_count: int
    aligned: int
    """n: problems that have a baseline."""
    speedups: tuple[float, ...]
    """Of the correct kernels of problems that have a baseline."""
    notes: tuple[str, ...] = ()

    def fast_p(self, p: float) -> float:
        """The share of the aligned problems with a correct kernel of more than `p` times the baseline's speed."""
        return sum(speedup > p for speedup in self.speedups) / self.aligned if self.aligned else 0.0

    @property
    def geometric_mean(self) -> float:
        """Of the correct kernels' speedups; 0 where there is none, as in KernelBench's document."""
        return math.exp(math.fsum(map(math.log, self.speedups)) / len(self.speedups)) if self.speedups else 0.0

    def to_json(self) -> dict[str, Any]:
        """KernelBench's document (its `output_file`), with the baseline's name, n and notes beside it."""
        compiled = self.compiled_count
        counts: dict[str, Any] = {"total_count": self.total_count, "total_eval": self.total_eval}
        if compiled is not None:
            counts |= {"compiled_count": compiled, "compilation_rate": _share(compiled, self.total_count)}
        return {
            "run_name": self.results,
            "level": self.level,
            "hardware": self.hardware,
            **counts,
            "correct_count": self.correct_count,
            "correctness_rate": _share(self.correct_count, self.total_count),
            "geo_mean_speedup": self.geometric_mean,
            "fast_p": {str(p): self.fast_p(p) for p in STEPS},
            "baseline": self.baseline,
            "aligned_count": self.aligned,
            "notes": list(self.notes),
        }


def result_folders(path: Path) -> list[Path]:
    """The folders with KernelBench's results: this one, or its own folders; FastpError where there are none."""
    if path.is_file() and path.name == RESULTS:
        return [path.parent]
    if (path / RESULTS).is_file():
        return [path]
    found = [entry for entry in sorted(path.iterdir()) if (entry / RESULTS).is_file()] if path.is_dir() else []
    if not found:
        raise FastpError(f"{path} holds no {RESULTS}: name a run's folder (runs/my_run) or the folder of all runs")
    return found


def analyse_folder(
    folder: Path, baseline: Baseline, level: int | None, numbers: Callable[[int], set[int] | None]
) -> Analysis:
    """KernelBench's analysis of one run. `numbers` gives a level's problems, None where those of the baseline count.

    Raises FastpError for files of another form, and where the level is not said by them or by `level`.
    """
    level = _level_of(folder) if level is None else level
    entries, keys = _sample_0(folder / RESULTS)
    known = {number for found, number in baseline.ms if found == level}
    if not known:
        levels = ", ".join(map(str, sorted({found for found, _ in baseline.ms})))
        raise FastpError(f"baseline {baseline.name} has no problem of level {level}; its levels: {levels}")
    problems = numbers(level) or known
    aligned = sorted(known & problems)
    correct = {number: entry["runtime"] for number, entry in entries.items() if entry["correctness"] is True}
    untimed = [number for number in aligned if number in correct and not correct[number] > 0]
    speedups = [
        baseline.ms[level, number] / correct[number] for number in aligned if number in correct and correct[number] > 0
    ]
    outside = sorted(entries.keys() - set(aligned))
    notes = [f"correct without a time: problem {', '.join(map(str, untimed))}; not in the mean"] if untimed else []
    notes += [f"{len(outside)} results are of problems without a baseline or of another level"] if outside else []
    return Analysis(
        results=folder.resolve().name,
        baseline=baseline.name,
        hardware=baseline.hardware,
        level=level,
        total_count=len(problems),
        total_eval=keys,
        compiled_count=sum(entry["compiled"] is True for entry in entries.values()),
        correct_count=len(correct),
        aligned=len(aligned),
        speedups=tuple(speedups),
        notes=tuple(notes),
    )


def analyse_entries(
    entries: Sequence[Entry], baselines: Sequence[Baseline], known: Mapping[str, Any], ids: Mapping[str, str]
) -> list[Analysis]:
    """The analysis of our runs (`kb_evolve.report.suite.best_entries`), one for each setting and baseline.

    `known` says which problems the baselines of `kb-evolve baseline --json` speak of: problem ids by kind.
    `ids` are the problems' ids by sha256: an entry has a title only.
    """
    found = []
    for setting in dict.fromkeys(entry.setting for entry in entries):
        several = [entry for entry in entries if entry.setting == setting]
        kinds = dict.fromkeys(["eager", *(kind for entry in several for kind in entry.speedups), *known])
        for kind in kinds:
            members = [
                one
                for one in several
                if kind in ("eager", *one.speedups) or ids[one.problem_sha256] in known.get(kind, ())
            ]
            speedups = [one.speedups[kind][0] for one in members if kind in one.speedups]
            found.append(_of_runs(several, kind, len(members), speedups))
        for baseline in baselines:
            pairs = [
                (one, baseline.ms.get(kernelbench_numbers(ids[one.problem_sha256].removesuffix(".py"))))
                for one in several
            ]
            times = [(one.kernel_ms, ms) for one, ms in pairs if ms is not None]
            speedups = [ms / kernel_ms for kernel_ms, ms in times if kernel_ms is not None]
            found.append(_of_runs(several, f"{baseline.hardware}/{baseline.name}", len(times), speedups))
    return found


def numbers_in(root: str | None, level: int) -> set[int] | None:
    """The numbers of a level's problems in a KernelBench checkout; None without one. ProblemError for a bad one."""
    from problems.kernelbench import numbers

    return numbers(root, level) if root else None


def read_kernelbench_baseline(path: str | Path) -> Baseline:
    """KernelBench's baseline file; FastpError for one that is none."""
    document = _read_json(Path(path), "a baseline")
    ms: dict[tuple[int, int], float] = {}
    for level, problems in document.items():
        found = re.fullmatch(r"level(\d{1,9})", level)
        if found is None or not isinstance(problems, dict):
            raise FastpError(f'{path}: expected {{"level1": {{"19_ReLU.py": {{"mean": ...}}}}}}, found {level!r:.60}')
        for name, figures in problems.items():
            number = re.match(r"(\d{1,9})_", name)
            mean = figures.get("mean") if isinstance(figures, dict) else None
            if number is None or mean is None or not _is_time(mean):
                raise FastpError(f"{path}: {level}, {name!r:.80}: expected a mean in ms above 0, found {mean!r:.60}")
            place = int(found[1]), int(number[1])
            if place in ms:
                raise FastpError(f"{path}: {level} has several means of problem {place[1]}, the last of {name!r:.80}")
            ms[place] = float(mean)
    if not ms:
        raise FastpError(f"{path} holds no baseline: expected KernelBench's levels and problems")
    return Baseline(Path(path).stem, Path(path).resolve().parent.name, ms)


def is_kernelbench_baseline(path: str | Path) -> bool:
    """Whether a file is KernelBench's rather than what `kb-evolve baseline --json` prints."""
    return "baselines" not in _read_json(Path(path), "a baseline")


def _of_runs(entries: Sequence[Entry], baseline: str, aligned: int, speedups: Sequence[float]) -> Analysis:
    return Analysis(
        results=str(entries[0].setting),
        baseline=baseline,
        hardware=entries[0].setting.device_name,
        level=None,
        total_count=len(entries),
        total_eval=sum(entry.evaluations > 0 for entry in entries),
        compiled_count=None,
        correct_count=sum(entry.kernel_ms is not None for entry in entries),
        aligned=aligned,
        speedups=tuple(speedups),
    )


def _level_of(folder: Path) -> int:
    """The level that the kernels' names say; FastpError where they say none, or several."""
    levels = {int(found[1]) for entry in folder.iterdir() if (found := SAMPLE.fullmatch(entry.name))}
    if len(levels) != 1:
        said = f"levels {sorted(levels)}" if levels else "no level"
        raise FastpError(f"the kernels in {folder} say {said} by their names: give --level N")
    return levels.pop()


def _sample_0(path: Path) -> tuple[dict[int, dict[str, Any]], int]:
    """Sample 0 of each problem that has one, by number, and how many problems have a result."""
    document = _read_json(path, "results")
    found = {}
    for key, entries in document.items():
        if (
            not NUMBER.fullmatch(key)
            or not isinstance(entries, list)
            or not all(isinstance(one, dict) for one in entries)
        ):
            raise FastpError(f'{path}: expected {{"19": [{{"sample_id": 0, ...}}]}}, found {key!r:.60}')
        first = [one for one in entries if one.get("sample_id") == 0]
        if len(first) > 1:
            raise FastpError(f"{path}: problem {key} has {len(first)} results of sample 0, expected one")
        for entry in first:
            _check_entry(path, key, entry)
            found[int(key)] = entry
    return found, len(document)


def _check_entry(path: Path, key: str, entry: dict[str, Any]) -> None:
    for name in ("compiled", "correctness"):
        if not isinstance(entry.get(name), bool):
            raise FastpError(f"{path}: problem {key}: {name} must be true or false, found {entry.get(name)!r:.60}")
    runtime = entry.get("runtime")
    if not _is_number(runtime) or 0 < runtime < LEAST_MS:
        raise FastpError(f"{path}: problem {key}: runtime must be a number (ms, or -1), found {runtime!r:.60}")


def _is_time(value: Any) -> bool:
    return _is_number(value) and value >= LEAST_MS


def _is_number(value: Any) -> TypeGuard[float]:
    """Whether a JSON value is a number in milliseconds: JSON's integers have no end, floats and times do."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= MOST_MS


def _read_json(path: Path, what: str) -> dict[str, Any]:
    """A JSON object in a file; FastpError for anything else."""
    try:
        with path.open("rb") as file:
            content = file.read(SIZE_LIMIT + 1)
        if len(content) > SIZE_LIMIT:
            raise FastpError(f"{path} is no file of {what}: it has more than {SIZE_LIMIT} bytes")
        document = json.loads(content)
    except OSError as error:
        raise FastpError(f"{path} cannot be read as {what}: {error.strerror}; check the path") from error
    except (ValueError, RecursionError) as error:
        raise FastpError(f"{path} is not JSON: {error}") from error
    if not isinstance(document, dict):
        raise FastpError(f"{path} is no file of {what}: expected a JSON object, found a {type(document).__name__}")
    return document


def _share(count: int, total: int) -> float:
    return count / total if total else 0.0
