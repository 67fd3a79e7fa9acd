"""Four KernelBench problems, each with an honest kernel and a cheat: is the judge right on all eight?

    python -m experiments.bench.gpu_eight --kernelbench CHECKOUT --out gpu_eight.json

KernelBench's own rule accepts the four cheats. Rows are stored one by one: the same command goes on where a killed one
stopped.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import click

from experiments.bench import records
from experiments.bench.records import KERNELBENCH_KERNELS, KernelFile
from fitness.evaluation import Evaluation, Job, JudgeError, Verdict
from fitness.workbench import Workbench
from problems import catalogue
from problems.problem import ProblemError

EIGHT = tuple(
    f"{problem}_{kind}"
    for problem in ("level2_40", "level1_40", "level1_23", "level1_19")
    for kind in ("honest", "cheat")
)
REFUSALS = (Verdict.WRONG_RESULT, Verdict.CONTRACT)
"""What a cheat must get: a verdict on its results, not an accident such as a crash."""
ATTEMPTS = 3


@click.command()
@click.option("--kernelbench", type=click.Path(exists=True, path_type=Path), help="A checkout of KernelBench.")
@click.option("--out", type=click.Path(path_type=Path), required=True, help="JSON file; continued when it exists.")
@click.option("--kernels", type=click.Path(exists=True, path_type=Path), help="Judge all of this folder instead.")
@click.option("--device", default="cuda:0", show_default=True)
def main(kernelbench: Path | None, out: Path, kernels: Path | None, device: str) -> None:
    """Writes the verdicts; exits with 1 if any is wrong."""
    files = (
        records.kernel_files(kernels) if kernels else records.chosen(records.kernel_files(KERNELBENCH_KERNELS), EIGHT)
    )
    records.set_fields(out, about=records.about(device))
    done = {row["name"] for row in records.rows(out, "verdicts") if row["right"]}
    with Workbench(device=device) as bench:
        for file in (file for file in files if file.name not in done):
            row = judged(bench, file, kernelbench, device)
            records.add_row(out, "verdicts", file.name, row)
            click.echo(
                f"{'right' if row['right'] else 'WRONG'} {file.name}: {row['verdict']}: {row['reason']}", err=True
            )
    rows = {row["name"]: row["right"] for row in records.rows(out, "verdicts")}
    wrong = [file.name for file in files if not rows[file.name]]
    summary = {"kernels": len(files), "right": len(files) - len(wrong), "wrong": wrong}
    records.set_fields(out, summary=summary)
    click.echo(json.dumps(summary))
    sys.exit(1 if wrong else 0)


def judged(bench: Workbench, file: KernelFile, checkout: Path | None, device: str) -> dict[str, Any]:
    """One row: the judge's verdict and whether it is right for this kind of kernel."""
    problem = catalogue.load(file.problem, str(checkout) if checkout else None)
    job = Job(problem.id, problem.source, file.source, file.backend, device, build_timeout_s=300.0)
    common = {"name": file.name, "problem": file.problem, "backend": file.backend, "kind": file.kind}
    try:
        found = _with_verdict(bench, job)
    except (JudgeError, ProblemError) as error:
        return {**common, "verdict": "judge_error", "reason": str(error), "right": False}
    document = found.to_json()
    names = ("verdict", "reason", "kernel_ms", "reference_ms", "speedup", "speedup_ci", "kernelbench_correct", "draws")
    kept = {name: document[name] for name in (*names, "compile_s", "evaluate_s", "labels", "device_name")}
    return {**common, **kept, "right": is_right(file.kind, found.verdict)}


def is_right(kind: str, verdict: Verdict) -> bool:
    """Whether an honest kernel was found correct, or a cheat refused for its results."""
    return verdict is Verdict.CORRECT if kind == "honest" else verdict in REFUSALS


def _with_verdict(bench: Workbench, job: Job) -> Evaluation:
    artifact = bench.build(job)
    found = bench.measure(job, artifact)
    for _ in range(ATTEMPTS - 1):
        if found.verdict is Verdict.NO_VERDICT:
            found = bench.measure(job, artifact)
    return found


if __name__ == "__main__":
    main()
