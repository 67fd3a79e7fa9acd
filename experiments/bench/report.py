"""What a report of a long run costs: seconds from the database to the page, highest memory, size of the page.

    python -m experiments.bench.report --out experiments/bench/results/report.json [--sizes 10000]

The database holds scripted candidates of 4 KB (experiments.bench.population), seven of ten correct, on four islands
with migrations. Each report is written by the command line in a process of its own.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import click

from experiments.bench.population import RUN, measure
from experiments.bench.records import about

SIZES = (100, 1_000, 10_000)
LIMIT_S, LIMIT_MB = 10.0, 5.0
"""What a report of 10,000 candidates may take."""


def report(db: Path, folder: Path) -> dict[str, Any]:
    """Writes the report of the database's run; its wall and CPU seconds, memory [MB] and sizes [MB]."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began_s = time.perf_counter()
    command = [sys.executable, "-m", "kb_evolve", "report", RUN, "--db", str(db), "--out", str(folder), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    wall_s = time.perf_counter() - began_s
    if done.returncode:
        raise click.ClickException(f"the report failed with {done.returncode}: {done.stderr[-2_000:]}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    files = [path.stat().st_size for path in folder.iterdir()]
    return {
        "wall_s": round(wall_s, 2),
        "cpu_s": round(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, 2),
        "peak_mb": round(after.ru_maxrss / 1e3, 1),
        "page_mb": round((folder / "index.html").stat().st_size / 1e6, 3),
        "files": len(files),
        "files_mb": round(sum(files) / 1e6, 2),
    }


def compare(size: int, repeats: int) -> dict[str, Any]:
    """One row: the fastest of `repeats` reports, and all their wall times."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        measure(folder / "run.db", size)
        found = [report(folder / "run.db", folder / f"report-{number}") for number in range(repeats)]
    best = min(found, key=lambda one: one["wall_s"])
    return {"candidates": size, **best, "wall_s_of_each": [one["wall_s"] for one in found]}


@click.command()
@click.option("--sizes", "sizes", multiple=True, type=int, default=SIZES, show_default=True)
@click.option("--repeats", default=3, show_default=True)
@click.option("--note", default="", help="What else the machine did.")
@click.option("--out", type=click.Path(path_type=Path), required=True)
def main(sizes: tuple[int, ...], repeats: int, note: str, out: Path) -> None:
    """Writes time, memory and size of reports by the number of candidates; exits with 1 above the limits."""
    rows = []
    for size in sizes:
        rows.append(compare(size, repeats))
        click.echo(json.dumps(rows[-1]), err=True)
    facts = {**about("cpu"), "load_average": os.getloadavg()[1], "note": note}
    limits = {"wall_s": LIMIT_S, "page_mb": LIMIT_MB}
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps({"about": facts, "limits": limits, "rows": rows}, indent=1) + "\n", "utf-8")
    if any(row["wall_s"] > LIMIT_S or row["page_mb"] > LIMIT_MB for row in rows):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
