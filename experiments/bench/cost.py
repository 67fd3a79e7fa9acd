"""What a candidate costs, from the runs of a database: seconds from source to verdict, build and judge.

python -m experiments.bench.cost suite.db --out experiments/bench/results
"""

from __future__ import annotations

import datetime
import json
import statistics
from collections.abc import Sequence
from pathlib import Path

import click

from fitness.machine import device_name
from islands.store import open_store


@click.command()
@click.argument("db", type=click.Path(exists=True))
@click.option("--out", type=click.Path(path_type=Path), default=Path("experiments/bench/results"), show_default=True)
def main(db: str, out: Path) -> None:
    """Writes cost.json: medians and 90th percentiles over all evaluations that were measured."""
    totals, builds, judged = [], [], []
    with open_store(db, read_only=True) as store:
        for run in store.runs():
            told = {entry.evaluation.source_sha256: entry.evaluation for entry in store.history(run.id)}
            for evaluation in told.values():
                if evaluation.evaluate_s is not None:
                    builds.append(evaluation.compile_s or 0.0)
                    judged.append(evaluation.evaluate_s)
                    totals.append(builds[-1] + judged[-1])
    document = {
        "about": {"machine": device_name(), "date": datetime.datetime.now(datetime.UTC).date().isoformat()},
        "candidates": len(totals),
        "source_to_verdict_s": _spread(totals),
        "build_s": _spread(builds),
        "judge_s": _spread(judged),
    }
    out.mkdir(parents=True, exist_ok=True)
    (out / "cost.json").write_text(json.dumps(document, indent=1) + "\n")
    click.echo(json.dumps(document))


def _spread(values: Sequence[float]) -> dict[str, float]:
    ordered = sorted(values)
    return {"median": round(statistics.median(ordered), 3), "p90": round(ordered[int(0.9 * len(ordered))], 3)}


if __name__ == "__main__":
    main()
