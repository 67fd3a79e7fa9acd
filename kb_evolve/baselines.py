"""The baselines of a problem, kept as JSON: measured once per problem, device, driver, precision, judge and torch."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import statistics
import tempfile
from collections.abc import Callable, Iterable, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, Protocol

from fitness.evaluation import PROTOCOL, Job, JudgeError
from fitness.session import tf32_complaint
from kb_evolve import devices
from kb_evolve.config import Config, ConfigError
from kb_evolve.judging import make_job
from problems.problem import Problem

CPU_KINDS = {"eager": "eager", "compile": "compile"}
GPU_KINDS = {
    "eager": "eager",
    "eager-tf32": "eager_tf32",
    "compile": "compile",
    "compile-max-autotune": "compile_max_autotune",
}
"""Name on the command line -> name in the workbench."""
STATISTICS = ("mean", "std", "min", "max", "num_trials", "hardware", "device")
"""What KernelBench's baseline files hold for a problem; times in ms."""


class Timer(Protocol):
    """What measures: `fitness.workbench.Workbench` and `fitness.replay.Replay`."""

    def baseline(self, job: Job, kind: str) -> dict[str, Any]:
        """The time of the problem itself; see the workbench."""
        ...


def kinds_on(device: str, precision: str, asked: Sequence[str] = ()) -> tuple[str, ...]:
    """The baselines to measure on a device in a precision, by their names on the command line.

    ConfigError for one that the device lacks or the precision has no use for.
    """
    known = CPU_KINDS if device == "cpu" else GPU_KINDS
    for kind in asked:
        if kind not in GPU_KINDS:
            raise ConfigError(f"unknown baseline {kind!r}; possible: {', '.join(GPU_KINDS)}")
        if kind not in known:
            raise ConfigError(f"baseline {kind} needs a GPU, and device {device} is none; possible: {', '.join(known)}")
        if complaint := tf32_complaint(known[kind], precision):
            raise ConfigError(f"baseline {kind} {complaint}: leave it out, or give --precision fp32")
    return tuple(asked) or tuple(kind for kind in known if not tf32_complaint(known[kind], precision))


class Shelf:
    """Measured baselines in a folder: one small JSON file for each."""

    def __init__(self, folder: Path | None = None) -> None:
        from fitness.sandbox import state_dir

        self._folder = folder or state_dir() / "baselines"

    def find(self, key: Sequence[str]) -> dict[str, Any] | None:
        """What was kept under a key; None where nothing readable was."""
        try:
            kept = json.loads(self._path(key).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        return kept["baseline"] if isinstance(kept, dict) and kept.get("key") == list(key) else None

    def keep(self, key: Sequence[str], baseline: dict[str, Any]) -> None:
        """Keeps a baseline; a reader never sees half of one."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        text = json.dumps({"key": list(key), "baseline": baseline})
        with tempfile.NamedTemporaryFile("w", dir=self._folder, delete=False, encoding="utf-8") as file:
            file.write(text)
        os.replace(file.name, self._path(key))

    def _path(self, key: Sequence[str]) -> Path:
        return self._folder / f"{hashlib.sha256(json.dumps(list(key)).encode()).hexdigest()}.json"


def baseline_key(problem: Problem, config: Config, kind: str) -> tuple[str, ...]:
    """Under which a baseline is kept: whatever may change its time, or what the figures mean, is part of it."""
    from fitness.machine import judge_sha256

    parts = (problem.sha256, device_name(config.run.device), config.run.precision, kind, judge_sha256(), PROTOCOL)
    return (*parts, metadata.version("torch"), config.judge.sandbox, *_gpu_versions(config.run.device))


def _gpu_versions(device: str) -> tuple[str, ...]:
    """Triton's version, whose code torch.compile makes, and the driver's; none on the CPU."""
    if device == "cpu":
        return ()
    triton = ""
    with contextlib.suppress(metadata.PackageNotFoundError):
        triton = metadata.version("triton")
    return triton, devices.driver_version()


def device_name(device: str) -> str:
    """The device as its driver names it; the CPU's model and count."""
    if device == "cpu":
        from fitness import machine

        return machine.device_name()
    return devices.gpus()[int(device.removeprefix("cuda:"))].name


def measure(
    problems: Iterable[Problem],
    config: Config,
    kinds: Sequence[str],
    timer: Callable[[], Timer],
    shelf: Shelf,
    *,
    fresh: bool = False,
) -> list[dict[str, Any]]:
    """One document for each problem and kind. `timer` is asked for only when something must be measured."""
    found = []
    for problem in problems:
        for kind in kinds:
            key = baseline_key(problem, config, kind)
            baseline = None if fresh else shelf.find(key)
            if baseline is None:
                baseline = timer().baseline(make_job(problem, problem.source, config), GPU_KINDS[kind])
                shelf.keep(key, baseline)
            found.append({**baseline, "problem": problem.id, "kind": kind, "device": config.run.device})
    return found


def kernelbench_json(problems: Sequence[Problem], baselines: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """KernelBench's baseline document: level -> problem's file name -> statistics of its times in ms.

    `baselines` hold one kind, one for each problem, in order.
    """
    levels: dict[str, dict[str, Any]] = {}
    for problem, baseline in zip(problems, baselines, strict=True):
        levels.setdefault(f"level{problem.level}", {})[f"{problem.name}.py"] = kernelbench_entry(baseline)
    ordered = sorted(levels)
    return {level: dict(sorted(levels[level].items(), key=lambda item: _numerically(item[0]))) for level in ordered}


def kernelbench_entry(baseline: dict[str, Any]) -> dict[str, Any]:
    """The statistics of one baseline under KernelBench's names, with its three significant digits.

    Raises JudgeError for a baseline without the times of its rounds.
    """
    samples = baseline.get("samples_ms")
    if not samples:
        raise JudgeError(
            f"baseline {baseline['kind']} of {baseline['problem']} came without the times of its rounds (samples_ms), "
            "so KernelBench's mean and deviation cannot be given: measure it again with --fresh"
        )
    figures = (statistics.fmean(samples), statistics.pstdev(samples), min(samples), max(samples))
    rounded = (float(f"{figure:.3g}") for figure in figures)
    values = (*rounded, len(samples), baseline["device_name"], baseline["device"])
    return dict(zip(STATISTICS, values, strict=True))


def _numerically(name: str) -> tuple[int, str]:
    number = re.match(r"\d+", name)
    return (int(number[0]) if number else -1, name)
