"""What a candidate costs: KernelBench's own evaluator against this judge, same candidates, same machine.

    python -m experiments.bench.kernelbench_cost --kernelbench CHECKOUT --out cost.json --no-ours
    python -m experiments.bench.kernelbench_cost --kernelbench CHECKOUT --out cost.json --no-theirs

Rows are stored one by one: the same command goes on where a killed one stopped. The two sides must not run at the same
time on one GPU.
"""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from experiments.bench import records
from experiments.bench.records import KERNELBENCH_KERNELS, GpuBusy, KernelFile
from fitness.builder import Artifact
from fitness.evaluation import Evaluation, Job, JudgeError
from fitness.workbench import Workbench
from problems import catalogue
from problems.problem import ProblemError

CORRECT_TRIALS, PERF_TRIALS = 5, 100
"""What KernelBench's scripts ask of its evaluator."""

TABLE = {
    "level1_12_honest": 15,
    "level2_9_honest": 20,
    "level2_63_honest": 20,
    "level2_99_honest": 20,
    "level1_88_lean": 20,
    "level2_12_honest": 25,
    "level2_76_honest": 80,
    "level2_40_honest": 85,
    "level1_88_honest": 80,
    "level1_40_honest": 85,
    "level1_1_honest": 80,
    "level2_14_honest": 85,
    "level1_23_honest": 110,
    "level1_19_honest": 145,
}
"""The candidates of the table, and the seconds that KernelBench's evaluator is expected to need: cheapest first."""

DEFINITIONS = {
    "theirs.wall_s": "one candidate, one fresh process with empty extension and Triton caches: start to end of process",
    "theirs.call_s": "the part of it inside eval_kernel_against_ref (correctness, timing, excessive-speedup check)",
    "theirs.device_s": "from the start of that call, which first takes the device, to the end of the process",
    "ours.wall_s": "in a stream of candidates with builds running ahead: end of the previous measurement to the end of "
    "this one, waiting for builds included; these add up to the stream's wall time",
    "ours.device_s": "wall time of Workbench.measure, in which the judge holds the device; evaluate_s of it is the "
    "candidate's own part, the rest makes a problem ready the first time",
    "busy_s": "seconds in which a kernel ran, by NVML's utilisation (null: no NVML); for ours per measured variant",
    "variants": "each of our candidates is measured several times as a search would see it: as programs of different "
    "content, none of which any cache holds; the first on a problem also makes the problem ready",
    "ratio": "theirs.wall_s over the mean of ours.wall_s over all variants, first one included",
}


@dataclass(frozen=True, slots=True)
class Work:
    """One program in our stream."""

    key: str
    kernel: KernelFile
    job: Job


@click.command()
@click.option("--kernelbench", type=click.Path(exists=True, path_type=Path), help="A checkout of KernelBench.")
@click.option("--out", type=click.Path(path_type=Path), required=True, help="JSON file; continued when it exists.")
@click.option("--theirs/--no-theirs", default=True, show_default=True)
@click.option("--ours/--no-ours", default=True, show_default=True)
@click.option("--only", multiple=True, help="Name of a candidate; several times for several. Default: the table's.")
@click.option("--kernels", type=click.Path(exists=True, path_type=Path), default=KERNELBENCH_KERNELS)
@click.option("--device", default="cuda:0", show_default=True)
@click.option("--gpu-arch", default="Hopper", show_default=True, help="KernelBench's name of the architecture.")
@click.option("--variants", default=5, show_default=True, help="Programs per candidate in our stream.")
@click.option("--builders", default=0, help="Builds at once. Default: half of the CPUs, at most 8.")
@click.option("--limit-s", default=540.0, show_default=True, help="Nothing is started that would end later.")
def main(
    kernelbench: Path | None,
    out: Path,
    theirs: bool,
    ours: bool,
    only: tuple[str, ...],
    kernels: Path,
    device: str,
    gpu_arch: str,
    variants: int,
    builders: int,
    limit_s: float,
) -> None:
    """Writes both sides' seconds and verdicts; exits with 1 while rows are missing."""
    deadline = time.monotonic() + limit_s
    files = records.kernel_files(kernels)
    chosen = records.chosen(files, only or tuple(sorted(TABLE, key=lambda name: TABLE[name])))
    records.set_fields(out, about=records.about(device), definitions=DEFINITIONS)
    left: list[str] = []
    if theirs:
        if kernelbench is None:
            raise click.UsageError("--kernelbench is needed for KernelBench's own evaluator (or say --no-theirs)")
        left += _judge_theirs(chosen, out, kernelbench, device, gpu_arch, deadline)
    if ours:
        works = _works(chosen, kernelbench, device, variants)
        left += _judge_ours(works, out, device, builders or _default_builders(), deadline)
    summary = summarise(records.rows(out, "theirs"), records.rows(out, "ours"))
    records.set_fields(out, summary=summary)
    click.echo(json.dumps(summary, indent=1))
    if left:
        click.echo(f"missing yet: {', '.join(left)}; run the same command again", err=True)
        sys.exit(1)


def _default_builders() -> int:
    return max(1, min(8, len(os.sched_getaffinity(0)) // 2))


def _judge_theirs(
    kernels: Sequence[KernelFile], out: Path, checkout: Path, device: str, gpu_arch: str, deadline: float
) -> list[str]:
    """Names of those for which the time did not suffice."""
    done = {row["name"] for row in records.rows(out, "theirs")}
    left = []
    for kernel in (kernel for kernel in kernels if kernel.name not in done):
        remaining = deadline - time.monotonic()
        row = None
        if remaining > TABLE.get(kernel.name, 0):
            row = their_evaluation(kernel, checkout, device, gpu_arch, remaining)
        if row is None:
            left.append(f"theirs {kernel.name}")
            continue
        records.add_row(out, "theirs", kernel.name, row)
        verdict = "correct" if row["correct"] else "not correct"
        click.echo(f"theirs {kernel.name}: {row['wall_s']:.1f} s, {verdict}, {row.get('runtime_ms')} ms", err=True)
    return left


def their_evaluation(
    kernel: KernelFile, checkout: Path, device: str, gpu_arch: str, timeout_s: float
) -> dict[str, Any] | None:
    """One row, from a fresh process with fresh caches; None when it takes longer than `timeout_s`."""
    problem = catalogue.load(kernel.problem, str(checkout))
    with tempfile.TemporaryDirectory(prefix="kernelbench-") as folder, GpuBusy(device) as busy:
        place = Path(folder)
        (place / "problem.py").write_text(problem.source, encoding="utf-8")
        (place / "candidate.py").write_text(kernel.source, encoding="utf-8")
        spec = {
            "kernelbench": str(checkout.absolute()),
            "problem_path": str(place / "problem.py"),
            "candidate_path": str(place / "candidate.py"),
            "build_dir": str(place / "build"),
            "backend": kernel.backend,
            "gpu_arch": gpu_arch,
            "correct_trials": CORRECT_TRIALS,
            "perf_trials": PERF_TRIALS,
        }
        (place / "build").mkdir()
        (place / "spec.json").write_text(json.dumps(spec), encoding="utf-8")
        load, started = os.getloadavg()[0], time.monotonic()
        status = _run_child(place, device, timeout_s)
        ended = time.monotonic()
        if status is None:
            return None
        answer = _their_answer(place, status)
    took_at = answer.pop("took_device_at", ended)
    common = {"name": kernel.name, "problem": kernel.problem, "backend": kernel.backend, "kind": kernel.kind}
    times = {"wall_s": ended - started, "device_s": ended - took_at, "busy_s": busy.seconds, "cpu_load": load}
    return {**common, **times, **answer}


def _run_child(place: Path, device: str, timeout_s: float) -> int | None:
    """Exit status of KernelBench's process; None when it had to be ended at the time limit."""
    environment = {
        **records.environment(device),
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",  # importing it must not ask the network, whose answer may take seconds
        "TORCH_EXTENSIONS_DIR": str(place / "extensions"),
        "TRITON_CACHE_DIR": str(place / "triton"),
    }
    command = [sys.executable, "-m", "experiments.bench.kernelbench_child"]
    command += [str(place / "spec.json"), str(place / "answer.json")]
    with open(place / "log.txt", "w") as log:
        child = subprocess.Popen(command, stdout=log, stderr=log, env=environment, cwd=place, start_new_session=True)
        try:
            return child.wait(timeout_s)
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()
            return None


def _their_answer(place: Path, status: int) -> dict[str, Any]:
    """What the child wrote, or how it ended with the last lines of its log."""
    if (place / "answer.json").exists():
        return json.loads((place / "answer.json").read_text(encoding="utf-8"))
    last = (place / "log.txt").read_text(encoding="utf-8", errors="replace")[-1_000:]
    return {"compiled": False, "correct": False, "metadata": {"ended": f"status {status}", "log": last}}


def _works(kernels: Sequence[KernelFile], checkout: Path | None, device: str, variants: int) -> list[Work]:
    works = []
    for kernel in kernels:
        problem = catalogue.load(kernel.problem, str(checkout) if checkout else None)
        for number in range(variants):
            source = kernel.variant(f"{number} {os.urandom(4).hex()}")
            job = Job(problem.id, problem.source, source, kernel.backend, device, build_timeout_s=300.0)
            works.append(Work(f"{kernel.name}#{number}", kernel, job))
    return works


def _judge_ours(works: Sequence[Work], out: Path, device: str, builders: int, deadline: float) -> list[str]:
    """Measures what is missing as one stream; keys of what the time did not suffice for."""
    done = {row["key"] for row in records.rows(out, "ours")}
    waiting = [work for work in works if work.key not in done]
    if not waiting:
        return []
    started = time.monotonic()
    with Workbench(device=device) as bench, ThreadPoolExecutor(builders) as pool:
        first = waiting[0]
        bench.build(dataclasses.replace(first.job, source=first.kernel.variant("start")))  # starts the judge
        records.add_row(out, "starts", f"{time.time():.0f}", {"start_s": time.monotonic() - started})
        last = time.monotonic()
        building = {pool.submit(bench.build, work.job): work for work in waiting}
        name, failed = "", []
        while building and time.monotonic() < deadline:
            work, artifact = _next_built(building, name)
            name = work.kernel.name
            try:
                row, last = _measured(bench, work, artifact, device, last)
            except (JudgeError, ProblemError) as error:
                failed.append(f"ours {work.key}")
                records.add_row(out, "failures", work.key, {"reason": str(error)})
                click.echo(f"ours {work.key} failed: {error}", err=True)
                continue
            records.add_row(out, "ours", work.key, row)
            click.echo(f"ours {work.key}: {row['wall_s']:.2f} s, {row['verdict']}: {row['reason']}", err=True)
        for future in building:
            future.cancel()
        return [*failed, *(f"ours {work.key}" for work in building.values())]


def _next_built(building: dict[Future[Artifact], Work], name: str) -> tuple[Work, Artifact]:
    """A built program, of the problem that is ready if there is one; taken out of `building`."""
    wait(building, return_when=FIRST_COMPLETED)
    ready = [future for future in building if future.done()]
    future = next((future for future in ready if building[future].kernel.name == name), ready[0])
    return building.pop(future), future.result()


def _measured(
    bench: Workbench, work: Work, artifact: Artifact, device: str, last: float
) -> tuple[dict[str, Any], float]:
    """The row of one measurement, and when it ended."""
    started = time.monotonic()
    with GpuBusy(device) as busy:
        found = bench.measure(work.job, artifact)
        ended = time.monotonic()
    row = {
        "key": work.key,
        "name": work.kernel.name,
        "problem": work.kernel.problem,
        "backend": work.kernel.backend,
        "kind": work.kernel.kind,
        "wall_s": ended - last,
        "waited_for_build_s": started - last,
        "device_s": ended - started,
        "busy_s": busy.seconds,
        **_verdict(found),
    }
    return row, ended


def _verdict(found: Evaluation) -> dict[str, Any]:
    names = (
        "verdict",
        "reason",
        "kernel_ms",
        "reference_ms",
        "speedup",
        "speedup_ci",
        "compile_s",
        "evaluate_s",
        "tier",
    )
    document = found.to_json()
    kept = {name: document[name] for name in (*names, "kernelbench_correct", "draws", "device_name")}
    return {**kept, "build_routes": found.features.get("build_routes")}


def summarise(theirs: Sequence[dict[str, Any]], ours: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Both sides of each candidate side by side, medians and the ratios that issue 3 asks for."""
    table = []
    for row in sorted(theirs, key=lambda row: row["wall_s"]):
        own = [each for each in ours if each["name"] == row["name"]]
        table += [_side_by_side(row, own)] if own else []
    summary: dict[str, Any] = {"candidates": len(table), "problems": len({row["problem"] for row in table})}
    if ours:
        summary["our_median_wall_s"] = statistics.median(row["wall_s"] for row in ours)
        summary["our_median_device_s"] = statistics.median(row["device_s"] for row in ours)
        summary["our_stream_s"] = sum(row["wall_s"] for row in ours)
        summary["our_stream_wall_s_per_candidate"] = summary["our_stream_s"] / len(ours)
    if table:
        summary["their_median_wall_s"] = statistics.median(row["their_wall_s"] for row in table)
        summary["their_median_device_s"] = statistics.median(row["their_device_s"] for row in table)
        summary["median_ratio"] = statistics.median(row["ratio"] for row in table)
        summary["slowest"] = {name: table[-1][name] for name in ("name", "their_wall_s", "our_wall_s", "ratio")}
        summary["targets_met"] = {
            "median ratio at least 30": summary["median_ratio"] >= 30,
            "ratio of the slowest at least 20": table[-1]["ratio"] >= 20,
            "device seconds under 3 (median)": summary["our_median_device_s"] < 3,
        }
    return {**summary, "table": table}


def _side_by_side(row: dict[str, Any], own: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """One line of the table: KernelBench's row and all of our variants of the same candidate."""
    verdicts = sorted({each["verdict"] for each in own})
    wall_s = statistics.mean(each["wall_s"] for each in own)
    times = [each["kernel_ms"] for each in own if each["kernel_ms"] is not None]
    return {
        "name": row["name"],
        "problem": row["problem"],
        "backend": row["backend"],
        "kind": row["kind"],
        "their_wall_s": row["wall_s"],
        "our_wall_s": wall_s,
        "our_later_wall_s": statistics.median([each["wall_s"] for each in own[1:]] or [own[0]["wall_s"]]),
        "ratio": row["wall_s"] / wall_s,
        "their_device_s": row["device_s"],
        "our_device_s": statistics.mean(each["device_s"] for each in own),
        "their_verdict": "correct" if row["correct"] else "not correct" if row["compiled"] else "not compiled",
        "our_verdicts": verdicts,
        "their_runtime_ms": row.get("runtime_ms"),
        "our_kernel_ms": statistics.median(times) if times else None,
        "our_speedup": statistics.median([each["speedup"] for each in own if each["speedup"]] or [0]) or None,
    }


if __name__ == "__main__":
    main()
