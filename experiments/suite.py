"""The bundled suite with a small budget: what a search finds, problem by problem, as a table.

    python -m experiments.suite --out experiments/results [--evaluations 60] [--minutes 4] [NAME ...]

Every problem is one run in one database; the same command again goes on where it stopped.
"""

from __future__ import annotations

import datetime
import json
import math
import platform
from pathlib import Path
from typing import Any

import click

from fitness.evaluation import Job, JudgeError
from fitness.machine import device_name
from fitness.workbench import Workbench
from islands.candidate import Evaluated
from kb_evolve.search import Outcome, Search
from problems import catalogue
from problems.problem import Problem

CONFIG = Path(__file__).parent / "configs" / "suite.toml"


@click.command()
@click.argument("names", nargs=-1)
@click.option("--out", type=click.Path(path_type=Path), default=Path("experiments/results"), show_default=True)
@click.option("--db", default="suite.db", show_default=True, help="Database of all runs; resumed when it exists.")
@click.option("--evaluations", default=60, show_default=True)
@click.option("--minutes", default=6.0, show_default=True, help="Per problem.")
def main(names: tuple[str, ...], out: Path, db: str, evaluations: int, minutes: float) -> None:
    """Searches every bundled problem, or those named, and writes suite.json and suite.md."""
    problems = [catalogue.load(name) for name in names] or catalogue.bundled()
    out.mkdir(parents=True, exist_ok=True)
    rows: list[dict[str, Any]] = []
    with Workbench() as workbench:
        for problem in problems:
            outcome = Search(
                problem,
                config=CONFIG,
                workbench=workbench,
                db=db,
                run=f"suite-{problem.id}",
                evaluations=evaluations,
                minutes=minutes,
            ).run()
            if outcome.stop == "interrupted":
                break
            rows.append(_row(problem, outcome, _compiled(workbench, problem)))
            click.echo(_line(rows[-1]))
            _write(out, rows)


def _compiled(workbench: Workbench, problem: Problem) -> dict[str, Any]:
    """torch.compile against eager; says why where it cannot be had."""
    job = Job(problem.id, problem.source, problem.source)
    try:
        return workbench.baseline(job, "compile")
    except JudgeError as error:
        return {"error": str(error)}


def _row(problem: Problem, outcome: Outcome, compiled: dict[str, Any]) -> dict[str, Any]:
    seed, best = outcome.first, outcome.best
    return {
        "problem": problem.id,
        "level": problem.level,
        "eager_ms": _time(best, "reference_ms"),
        "seed_ms": _time(seed, "kernel_ms"),
        "best_ms": _time(best, "kernel_ms"),
        "compile_ms": compiled.get("ms"),
        "seed_speedup": _time(seed, "speedup"),
        "speedup": _time(best, "speedup"),
        "speedup_ci": best.evaluation.speedup_ci if best else None,
        "compile_speedup": compiled.get("speedup_vs_eager"),
        "compile_error": compiled.get("error"),
        "gain_over_seed_ci": _gain(seed, best),
        "evaluations": outcome.evaluations,
        "verdicts": outcome.verdicts,
        "stop": str(outcome.stop),
        "moves": [evaluated.candidate.rationale for evaluated in outcome.lineage[1:]],
    }


def _time(evaluated: Evaluated | None, name: str) -> float | None:
    return getattr(evaluated.evaluation, name) if evaluated else None


def _gain(seed: Evaluated | None, best: Evaluated | None) -> list[float] | None:
    """How much faster the best is than the seed: from both speedups over the reference, 95% intervals combined."""
    if seed is None or best is None or seed.evaluation.speedup_ci is None or best.evaluation.speedup_ci is None:
        return None
    low = best.evaluation.speedup_ci[0] / seed.evaluation.speedup_ci[1]
    high = best.evaluation.speedup_ci[1] / seed.evaluation.speedup_ci[0]
    return [low, high]


def _line(row: dict[str, Any]) -> str:
    numbers = {
        name: "-" if row[name] is None else f"{row[name]:.3g}"
        for name in ("seed_ms", "best_ms", "eager_ms", "compile_ms", "speedup", "compile_speedup")
    }
    interval = "-" if row["speedup_ci"] is None else "[{:.3g}, {:.3g}]".format(*row["speedup_ci"])
    gain = "-" if row["gain_over_seed_ci"] is None else "[{:.3g}, {:.3g}]".format(*row["gain_over_seed_ci"])
    verdicts = ", ".join(f"{count} {name}" for name, count in sorted(row["verdicts"].items()))
    return (
        f"| {row['problem']} | {row['level']} | {numbers['seed_ms']} | {numbers['best_ms']} | {numbers['eager_ms']} | "
        f"{numbers['compile_ms']} | {numbers['speedup']} {interval} | {numbers['compile_speedup']} | {gain} | "
        f"{row['evaluations']} | {verdicts} |"
    )


HEAD = (
    "| problem | level | seed ms | best ms | eager ms | compile ms | best over eager, 95% | compile over eager | "
    "best over seed, 95% | evaluations | verdicts |\n|---|---|---|---|---|---|---|---|---|---|---|"
)


def _write(out: Path, rows: list[dict[str, Any]]) -> None:
    wins = sum(bool(row["gain_over_seed_ci"]) and row["gain_over_seed_ci"][0] > 1 for row in rows)
    faster = [row for row in rows if row["speedup_ci"] and row["speedup_ci"][0] > 1]
    slower = [row["problem"] for row in rows if row["speedup_ci"] and row["speedup_ci"][1] < 1]
    logs = [math.log(row["speedup"]) for row in rows if row["speedup"]]
    about = {
        "machine": device_name(),
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "python": platform.python_version(),
        "problems": len(rows),
        "faster_than_seed": wins,
        "faster_than_eager": len(faster),
        "slower_than_eager": slower,
        "geometric_mean_speedup": math.exp(sum(logs) / len(logs)) if logs else None,
    }
    (out / "suite.json").write_text(json.dumps({"about": about, "rows": rows}, indent=1) + "\n")
    text = [
        "# The bundled suite\n",
        f"{about['machine']}, {about['date']}. {wins} of {len(rows)} problems end faster than their seed and "
        f"{len(faster)} faster than eager PyTorch, each with the 95% interval above 1. Slower than eager: "
        f"{', '.join(slower) or 'none'}.\n",
        HEAD,
        *[_line(row) for row in rows],
    ]
    (out / "suite.md").write_text("\n".join(text) + "\n")


if __name__ == "__main__":
    main()
