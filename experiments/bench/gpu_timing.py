"""How good the judge's times are: spread of repeated judgements, false elites, agreement with other clocks.

    python -m experiments.bench.gpu_timing --out gpu_timing.json

same       one kernel judged again and again: p5 to p95 of the reported speedup
proposals  identical proposals judged as a search does it: how many become an elite by luck
clocks     eleven kernels of 20 us to 20 ms: the judge's time over Triton's do_bench, over CUDA-graph replay of one
           call, over a call among many in a graph (row), and over CUPTI's time of the kernels

Rows are stored one by one: the same command goes on where a killed one stopped.
"""

from __future__ import annotations

import json
import math
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from experiments.bench import records
from fitness.builder import Artifact
from fitness.evaluation import Evaluation, Job, JudgeError, Verdict
from fitness.workbench import Workbench
from problems import catalogue
from problems.problem import ProblemError

SOURCES = Path(__file__).parent.parent / "kernels" / "timing"
SEEDS = Path(catalogue.__file__).parent / "bundled" / "seeds"
PARTS = ("same", "proposals", "clocks")
ONE_SIDED_99, TWO_SIDED_95 = 2.326, 1.960
"""Quantiles of the normal distribution."""
LEAST_GAIN = 0.005
ATTEMPTS = 3
"""Judgements without a verdict (noise) are repeated, as in a search."""
CLOCK_JUDGEMENTS = 3
"""One alone is up to 1% off the next."""


@dataclass(frozen=True, slots=True)
class TimedKernel:
    """A kernel of ours in one size."""

    name: str
    problem_source: str
    source: str
    backend: str


SIZES: dict[str, tuple[str, str, dict[str, int]]] = {
    "elementwise_12m": ("elementwise", "elementwise_cuda", {"SIZE": 3 << 22}),
    "elementwise_16m": ("elementwise", "elementwise_cuda", {"SIZE": 1 << 24}),
    "elementwise_64m": ("elementwise", "elementwise", {"SIZE": 1 << 26}),
    "elementwise_512m": ("elementwise", "elementwise", {"SIZE": 1 << 29}),
    "gelu_64m": ("gelu", "gelu", {"SIZE": 1 << 26}),
    "softmax": ("softmax", "softmax", {"ROWS": 4096, "COLUMNS": 8192}),
    "layernorm": ("layernorm", "layernorm", {"ROWS": 16384, "COLUMNS": 4096}),
    "row_sum": ("row_sum", "row_sum", {"ROWS": 16384, "COLUMNS": 16384}),
    "matmul_1k": ("matmul", "matmul", {"SIZE": 1024}),
    "matmul_4k": ("matmul", "matmul", {"SIZE": 4096}),
    "matmul_7k": ("matmul", "matmul", {"SIZE": 7168}),
    "launch_bound": ("elementwise", "elementwise", {"SIZE": 1 << 23}),
}
"""Problem, kernel and sizes. `gelu_64m`: eager is some eight times slower, so its windows must grow. `launch_bound`:
Triton's launcher, written in Python, takes longer than its kernel's 20 us. The judge's time is then what a call costs;
the other clocks hide the launch. Shown, but not compared."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A speedup with its 95% interval."""

    speedup: float
    low: float
    high: float

    @property
    def error(self) -> float:
        """Standard error of log(speedup), from the interval."""
        return math.log(self.high / self.low) / (2 * TWO_SIDED_95)


def beats(duel: Estimate, incumbent: Estimate) -> bool:
    """Whether a would-be elite is one: the one-sided 99% lower bound of its gain lies above 0.5%.

    Both estimates err; their errors are independent, and add as squares.
    """
    gain = math.log(duel.speedup / incumbent.speedup)
    return gain - ONE_SIDED_99 * math.hypot(duel.error, incumbent.error) > math.log1p(LEAST_GAIN)


@click.command()
@click.option("--out", type=click.Path(path_type=Path), required=True, help="JSON file; continued when it exists.")
@click.option("--device", default="cuda:0", show_default=True)
@click.option("--part", multiple=True, type=click.Choice(PARTS), help="Default: all.")
@click.option("--kernel", default="layernorm", show_default=True, help="For same and proposals.")
@click.option("--times", default=30, show_default=True, help="Judgements of `same`.")
@click.option("--proposals", default=200, show_default=True)
@click.option("--limit-s", default=540.0, show_default=True, help="No further judgement is started after this long.")
def main(
    out: Path, device: str, part: tuple[str, ...], kernel: str, times: int, proposals: int, limit_s: float
) -> None:
    """Writes rows and a summary; exits with 1 while judgements are missing."""
    deadline, is_complete = time.monotonic() + limit_s, True
    records.set_fields(out, about=records.about(device), kernel=kernel)
    try:
        with Workbench(device=device) as bench:
            judge = Judge(bench, load(kernel, device), device, out, deadline)
            if "same" in (part or PARTS):
                judge.same(times)
            if "proposals" in (part or PARTS):
                judge.proposals(proposals)
            if "clocks" in (part or PARTS) and device.startswith("cuda"):
                for name in SIZES:
                    Judge(bench, load(name, device), device, out, deadline).clocks()
    except TimeIsOver:
        click.echo("the time limit is reached; run the same command again for the rest", err=True)
        is_complete = False
    summary = summarise(records.read(out))
    records.set_fields(out, summary=summary)
    click.echo(json.dumps(summary, indent=1))
    sys.exit(0 if is_complete else 1)


def load(name: str, device: str) -> TimedKernel:
    """A kernel of SIZES; on the CPU a bundled problem with its seed."""
    if not device.startswith("cuda"):
        problem = catalogue.load(name)
        return TimedKernel(name, problem.source, (SEEDS / f"{name}.py").read_text(encoding="utf-8"), "cpp")
    if name not in SIZES:
        raise click.ClickException(f"unknown kernel {name!r}; known are {', '.join(SIZES)}")
    stem, kernel, sizes = SIZES[name]
    source = (SOURCES / f"{stem}_problem.py").read_text(encoding="utf-8")
    for constant, value in sizes.items():
        source, count = re.subn(rf"^{constant} = .*$", f"{constant} = {value}", source, flags=re.MULTILINE)
        assert count == 1, f"{stem}_problem.py must set {constant} once, does so {count} times"
    backend = "cuda" if kernel.endswith("_cuda") else "triton"
    return TimedKernel(name, source, (SOURCES / f"{kernel}_kernel.py").read_text(encoding="utf-8"), backend)


class TimeIsOver(Exception):
    """The time limit is reached; everything so far is stored."""


class Judge:
    """Judges one kernel again and again and stores each judgement."""

    def __init__(self, bench: Workbench, kernel: TimedKernel, device: str, out: Path, deadline: float) -> None:
        self._bench, self._kernel, self._device, self._out, self._deadline = bench, kernel, device, out, deadline
        self._artifact: Artifact | None = None

    def same(self, times: int) -> None:
        """Rows of section `same`, up to `times`."""
        for number in self._missing("same", times):
            self._store("same", str(number), _row(self._measure()))

    def proposals(self, count: int) -> None:
        """Rows of section `proposals`: 0 is the first incumbent, each later one proposes the same program."""
        for number in self._missing("proposals", count + 1):
            if number == 0:
                self._first_incumbent()
                continue
            incumbent = _incumbent(records.rows(self._out, "proposals"))
            row: dict[str, Any] = _row(self._measure(incumbent_ms=incumbent["kernel_ms"]))
            row["would_be_elite"] = row["verdict"] == Verdict.CORRECT and row["speedup"] > incumbent["speedup"]
            row["accepted"] = False
            if row["would_be_elite"]:
                row["duel"] = _row(self._measure(fresh=True))
                is_right = row["duel"]["verdict"] == Verdict.CORRECT
                row["accepted"] = is_right and beats(_estimate(row["duel"]), _estimate(incumbent))
            self._store("proposals", str(number), row)

    def _first_incumbent(self) -> None:
        """Row 0. Raises JudgeError, and stores nothing, when there is no time to compare with."""
        row = _row(self._measure(fresh=True))
        if row["verdict"] != Verdict.CORRECT:
            raise JudgeError(f"the first judgement must be correct to compare with, found: {row['reason']}")
        self._store("proposals", "0", {**row, "accepted": True})

    def clocks(self) -> None:
        """One row of section `clocks`: the judge, the median of CLOCK_JUDGEMENTS, then the other clocks in a process of
        their own, each of which takes the median of many calls."""
        if self._kernel.name in records.read(self._out).get("clocks", {}):
            return
        try:
            judged = [_row(self._measure()) for _ in range(CLOCK_JUDGEMENTS)]
        except (JudgeError, ProblemError) as error:
            return self._store("failures", self._kernel.name, {"reason": str(error)})
        failed = [one for one in judged if one["kernel_ms"] is None]
        row = failed[0] if failed else sorted(judged, key=lambda one: one["kernel_ms"])[len(judged) // 2]
        row["judged_ms"] = [one["kernel_ms"] for one in judged]
        others = _other_clocks(self._kernel, self._device)
        if row["kernel_ms"] is not None and "do_bench_ms" in others:
            others["judge_over_do_bench"] = row["kernel_ms"] / others["do_bench_ms"]
            others["judge_over_graph"] = row["kernel_ms"] / others["graph_ms"]
            others["judge_over_row"] = row["kernel_ms"] / others["row_ms"]
            others["judge_over_kernels"] = row["kernel_ms"] / others["kernels_ms"]
        self._store("clocks", self._kernel.name, {"name": self._kernel.name, **row, **others})

    def _missing(self, section: str, count: int) -> Sequence[int]:
        done = records.read(self._out).get(section, {})
        return [number for number in range(count) if str(number) not in done]

    def _measure(self, *, fresh: bool = False, incumbent_ms: float | None = None) -> Evaluation:
        """The judge's answer; judgements without a verdict are repeated a few times.

        Raises TimeIsOver before one that would start after the time limit.
        """
        kernel = self._kernel
        job = Job(
            kernel.name,
            kernel.problem_source,
            kernel.source,
            kernel.backend,
            self._device,
            incumbent_ms=incumbent_ms,
            fresh=fresh,
        )
        found = self._once(job)
        for _ in range(ATTEMPTS - 1):
            if found.verdict is Verdict.NO_VERDICT:
                found = self._once(job)
        return found

    def _once(self, job: Job) -> Evaluation:
        if time.monotonic() > self._deadline:
            raise TimeIsOver
        self._artifact = self._artifact or self._bench.build(job)
        return self._bench.measure(job, self._artifact)

    def _store(self, section: str, key: str, row: dict[str, Any]) -> None:
        records.add_row(self._out, section, key, row)
        click.echo(f"{section} {key}: {row['reason']}", err=True)


def _row(found: Evaluation) -> dict[str, Any]:
    names = ("verdict", "reason", "kernel_ms", "kernel_ms_ci", "reference_ms", "speedup", "speedup_ci")
    document = found.to_json()
    return {name: document[name] for name in (*names, "tier", "rounds", "overhead_ms", "evaluate_s", "device_name")}


def _incumbent(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The estimate that counts: of the last accepted row, its duel's."""
    last = [row for row in rows if row["accepted"]][-1]
    return last.get("duel", last)


def _estimate(row: dict[str, Any]) -> Estimate:
    return Estimate(row["speedup"], *row["speedup_ci"])


def _other_clocks(kernel: TimedKernel, device: str) -> dict[str, Any]:
    """What other_clocks prints; `clock_error` where it fails."""
    with tempfile.TemporaryDirectory(prefix="clocks-") as folder:
        paths = [Path(folder) / "problem.py", Path(folder) / "kernel.py"]
        for path, source in zip(paths, (kernel.problem_source, kernel.source), strict=True):
            path.write_text(source, encoding="utf-8")
        command = [sys.executable, "-m", "experiments.bench.other_clocks", *map(str, paths)]
        environment = records.environment(device)
        done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300)
    if done.returncode != 0:
        return {"clock_error": done.stderr[-500:]}
    return json.loads(done.stdout.splitlines()[-1])


def summarise(document: dict[str, Any]) -> dict[str, Any]:
    """Spread, false elites and agreement, with the targets of issue 3."""
    summary: dict[str, Any] = {}
    same = [row["speedup"] for row in document.get("same", {}).values() if row["speedup"] is not None]
    if len(same) > 1:
        low, high = percentile(same, 5), percentile(same, 95)
        spread = (high - low) / statistics.median(same)
        summary["same"] = {"judgements": len(same), "p5": low, "p95": high, "spread": spread, "met": spread < 0.02}
    proposals = [row for key, row in document.get("proposals", {}).items() if key != "0"]
    if proposals:
        false = sum(row["accepted"] for row in proposals)
        summary["proposals"] = {
            "judged": len(proposals),
            "without_verdict": sum(row["verdict"] != Verdict.CORRECT for row in proposals),
            "would_be_elites": sum(row["would_be_elite"] for row in proposals),
            "elites_without_duels": _records(document["proposals"]),
            "false_elites": false,
            "met": false <= 1,
        }
    rows = document.get("clocks", {}).values()
    clocks = [row for row in rows if "judge_over_do_bench" in row and row["name"] != "launch_bound"]
    if clocks:
        ratios = {name: [row[name] for row in clocks] for name in ("judge_over_do_bench", "judge_over_graph")}
        worst = max(abs(ratio - 1) for both in ratios.values() for ratio in both)
        medians = {name: statistics.median(values) for name, values in ratios.items()}
        for clock in ("row", "kernels"):  # neither has events or the start of a graph in it
            own = [row[f"judge_over_{clock}"] for row in clocks]
            medians |= {f"judge_over_{clock}": statistics.median(own)}
            medians |= {f"worst_deviation_from_{clock}": max(abs(ratio - 1) for ratio in own)}
        summary["clocks"] = {"kernels": len(clocks), **medians, "worst_deviation": worst, "met": worst < 0.03}
    return summary


def _records(rows: dict[str, dict[str, Any]]) -> int:
    """How many proposals a search that believes every first judgement would have taken for a new best."""
    ordered = [rows[key]["speedup"] for key in sorted(rows, key=int) if rows[key]["speedup"] is not None]
    return len({max(ordered[: count + 1]) for count in range(len(ordered))}) - 1


def percentile(values: Sequence[float], percent: float) -> float:
    """Linear between the two nearest values."""
    ordered = sorted(values)
    place = percent / 100 * (len(ordered) - 1)
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])


if __name__ == "__main__":
    main()
