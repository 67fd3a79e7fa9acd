"""The adversarial suite: every kernel file judged many times; a false score is an error.

    python -m experiments.adversarial.run --device cpu --backend cpp --times 20 --out FILE.json [--only NAME ...]

All artifacts are built first, in parallel. Half of the repetitions come from a second judge process, and on timed
inputs that were made for them alone. Exit code 1: a false score, or an honest kernel refused too often.
"""

from __future__ import annotations

import concurrent.futures
import datetime
import json
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from experiments.adversarial import catalogue, counting
from experiments.adversarial.catalogue import Kernel
from experiments.adversarial.counting import Outcome
from experiments.adversarial.earlier import EarlierPart
from experiments.adversarial.journal import Journal, OutOfTime
from fitness.evaluation import Evaluation, Job, JudgeError, Verdict
from fitness.machine import device_name
from fitness.workbench import Workbench

REQUEUES = 5
TIMEOUT_S = {"cpp": 3.0, "cuda": 5.0, "triton": 10.0}
MEMORY_BYTES = {"cpp": 1 << 30, "cuda": 8 << 30, "triton": 8 << 30}
JUDGES = 2
"""Judge processes, one after the other, that share the repetitions."""


class Tally:
    """Evaluations by kernel, in the order in which they came."""

    def __init__(self, kernels: Sequence[Kernel]) -> None:
        self.kernels = list(kernels)
        self.found: dict[str, list[Evaluation]] = {kernel.key: [] for kernel in kernels}
        self.requeued = dict.fromkeys(self.found, 0)

    def outcomes(self, faster: float = counting.FASTER) -> list[Outcome]:
        """One outcome per kernel, each beside its twin's evaluations."""
        return [
            counting.outcome(k, self.found[k.key], self._twin(k), self.requeued[k.key], faster) for k in self.kernels
        ]

    def _twin(self, kernel: Kernel) -> list[Evaluation]:
        return self.found.get(f"{kernel.backend}/{kernel.twin}", [])


def share(times: int, turn: int) -> int:
    """How many of the repetitions the judge of this turn makes."""
    return times * (turn + 1) // JUDGES - times * turn // JUDGES


def selected(backends: Sequence[str], names: Sequence[str] = ()) -> list[Kernel]:
    """The kernels named (all, without names) and their twins. Raises ValueError for a name that no file has."""
    everything = [kernel for backend in backends for kernel in catalogue.kernels(backend)]
    unknown = set(names) - {name for kernel in everything for name in (kernel.name, kernel.key)}
    if unknown:
        raise ValueError(f"no kernel of {', '.join(backends)} is called {', '.join(sorted(unknown))}")
    chosen = [kernel for kernel in everything if not names or kernel.name in names or kernel.key in names]
    twins = {(kernel.backend, kernel.twin) for kernel in chosen}
    return [kernel for kernel in everything if kernel in chosen or (kernel.backend, kernel.name) in twins]


def job_for(kernel: Kernel, device: str, *, fresh: bool = False) -> Job:
    """The judge's job for one kernel. Without a GPU, Triton's problems are taken in their small sizes."""
    return Job(
        problem=kernel.problem,
        problem_source=catalogue.problem_source(kernel.problem, small=device == "cpu" and kernel.backend == "triton"),
        source=kernel.source,
        backend=kernel.backend,
        device=device,
        precision=kernel.precision,
        timeout_s=TIMEOUT_S[kernel.backend],
        fresh=fresh,
        profile=fresh and device != "cpu",
        memory_bytes=MEMORY_BYTES[kernel.backend],
    )


def build_all(workbench: Workbench, kernels: Sequence[Kernel], device: str) -> None:
    """Builds every kernel, as many at once as there are CPUs; what fails to build is judged so later."""
    with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        list(pool.map(lambda kernel: workbench.build(job_for(kernel, device)), kernels))


def judge_all(
    workbench: Workbench,
    tally: Tally,
    device: str,
    times: int,
    *,
    turn: int = 0,
    journal: Journal | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> None:
    """Judges every kernel `times` times into the tally: problem by problem, each repetition in a new random order.

    Odd turns are judged on timed inputs made for them alone. Raises OutOfTime when the journal's time is over.
    """
    journal = journal or Journal()
    order = random.SystemRandom()
    tasks = {(kernel.problem, kernel.backend, kernel.precision) for kernel in tally.kernels}
    for task in sorted(tasks):
        group = [k for k in tally.kernels if (k.problem, k.backend, k.precision) == task]
        started = time.monotonic()
        for repetition in range(times):
            owed = [k for k in group if journal.left(turn, k.key, times) >= times - repetition]
            for kernel in order.sample(owed, len(owed)):
                evaluation, requeued = judge(workbench, job_for(kernel, device, fresh=turn % 2 == 1))
                tally.found[kernel.key].append(evaluation)
                tally.requeued[kernel.key] += requeued
                journal.add(turn, kernel.key, evaluation, requeued)
        say(f"{task[0]}: {len(group)} kernels, {times} times, {time.monotonic() - started:.0f} s")


def judge(workbench: Workbench, job: Job) -> tuple[Evaluation, int]:
    """The evaluation, asked for again while there is no verdict, and how often that was."""
    most = 0 if job.backend == "cuda" and job.device == "cpu" else REQUEUES
    evaluation, requeued = workbench.evaluate(job), 0
    while evaluation.verdict is Verdict.NO_VERDICT and requeued < most:
        evaluation, requeued = workbench.evaluate(job), requeued + 1
    return evaluation, requeued


def report(outcomes: Sequence[Outcome], figures: dict[str, Any]) -> str:
    """The table and the figures, as text."""
    lines = [f"{'kernel':44} {'expect':18} {'verdicts':40} {'ms':>8} {'of twin':>22}"]
    for found in outcomes:
        verdicts = ", ".join(f"{count} {name}" for name, count in sorted(found.verdicts.items()))
        ms = "" if found.kernel_ms is None else f"{found.kernel_ms:.4g}"
        ratio = ""
        if found.time_ratio is not None and found.time_ratio_ci is not None:
            ratio = "{:.3f} [{:.3f}, {:.3f}]".format(found.time_ratio, *found.time_ratio_ci)
        lines.append(f"{found.kernel.key:44} {found.kernel.expect:18} {verdicts:40} {ms:>8} {ratio:>22}")
        lines += [f"    FALSE SCORE: {line}" for line in found.false_scores[:3]]
        if found.unexpected:
            lines.append(f"    {found.unexpected} with another verdict than {', '.join(found.kernel.verdicts)}")
    lines += [f"{name.replace('_', ' ')}: {value}" for name, value in figures.items()]
    return "\n".join(lines)


def document(outcomes: Sequence[Outcome], figures: dict[str, Any], about: dict[str, Any]) -> dict[str, Any]:
    """All of it as JSON values."""
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "machine": device_name(),
        **about,
        **figures,
        "rows": [found.to_json() for found in outcomes],
    }


@click.command()
@click.option("--device", default="cpu", show_default=True, help="cpu, cuda:0, ...")
@click.option("--backend", "backends", multiple=True, default=("cpp",), type=click.Choice(catalogue.BACKENDS))
@click.option("--times", default=20, show_default=True, help="Repetitions of every kernel.")
@click.option("--out", type=click.Path(path_type=Path), help="Where to write the result as JSON.")
@click.option("--only", "names", multiple=True, metavar="NAME", help="Only this kernel and its twin; may be repeated.")
@click.option("--journal", "path", type=click.Path(path_type=Path), help="Every evaluation; a stopped run goes on.")
@click.option(
    "--earlier", "earlier_path", type=click.Path(path_type=Path, exists=True), help="An earlier --out: it counts."
)
@click.option("--limit-s", type=float, help="Stop judging after so many seconds.")
@click.option("--sandbox", default="auto", show_default=True, type=click.Choice(["auto", "none"]))
def main(
    device: str,
    backends: tuple[str, ...],
    times: int,
    out: Path | None,
    names: tuple[str, ...],
    path: Path | None,
    earlier_path: Path | None,
    limit_s: float | None,
    sandbox: str,
) -> None:
    """Judges the adversarial suite and says whether a single score was false."""
    say = lambda text: click.echo(text, err=True)  # noqa: E731
    started = time.monotonic()
    try:
        tally, journal, earlier = Tally(selected(backends, names)), Journal(path, limit_s), EarlierPart(earlier_path)
        for key, made in earlier.counts(tally.kernels).items():
            journal.skip(key, made, [share(times, turn) for turn in range(JUDGES)])
        for key, evaluation, requeued in journal.earlier():
            tally.found[key].append(evaluation)
            tally.requeued[key] += requeued
        level, is_over = _judge_in_turn(tally, device, times, sandbox, journal, say)
    except (ValueError, JudgeError) as error:
        click.echo(f"run: {error}", err=True)
        sys.exit(2 if isinstance(error, ValueError) else 3)
    outcomes = [earlier.joined(found) for found in tally.outcomes()]
    figures = counting.totals(outcomes)
    click.echo(report(outcomes, figures))
    evaluations = [evaluation for found in tally.found.values() for evaluation in found]
    devices = sorted({e.device_name for e in evaluations if e.device_name} | earlier.devices)
    about = {"device": device, "device_names": devices, "sandbox": level, "times": times, "is_complete": is_over}
    about["judges"] = dict((earlier.judges + Counter(e.judge_sha256 for e in evaluations)).most_common())
    about["wall_s"] = round(time.monotonic() - started, 1)
    if out is not None:
        out.write_text(json.dumps(document(outcomes, figures, about), indent=1) + "\n")
    sys.exit(0 if counting.is_passed(figures) else 1)


def _judge_in_turn(
    tally: Tally, device: str, times: int, sandbox: str, journal: Journal, say: Callable[[str], None]
) -> tuple[str, bool]:
    """Shares the repetitions among JUDGES new judges; returns the sandbox level and whether all were judged."""
    level = ""
    for turn in range(JUDGES):
        owed = share(times, turn)
        if not any(journal.left(turn, kernel.key, owed) for kernel in tally.kernels):
            continue
        with Workbench(device=device, sandbox=sandbox) as workbench:
            started = time.monotonic()
            build_all(workbench, tally.kernels, device)
            say(f"judge {turn + 1}: {len(tally.kernels)} kernels built in {time.monotonic() - started:.0f} s")
            level = workbench.sandbox_level
            try:
                judge_all(workbench, tally, device, owed, turn=turn, journal=journal, say=say)
            except OutOfTime:
                say("out of time; the same command goes on")
                return level, False
    levels = {e.sandbox for found in tally.found.values() for e in found if e.sandbox}
    return level or ", ".join(sorted(levels)), True


if __name__ == "__main__":
    main()
