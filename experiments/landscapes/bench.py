"""How many evaluations does a search need to come within 5% of the optimum of a recorded tuning space?

    python -m experiments.landscapes.bench --hub ../benchmark_hub --out experiments/results/landscapes.json

`--hub` is a copy of https://github.com/AutoTuningAssociation/benchmark_hub (MIT licence, measurements of
others on GPUs); without it only the landscapes of our own that are kept here are searched. A file that is not there
(the hub's largest may be missing from a partial copy) is left out and named. Rows are stored one by one: what is there
already is not run again, so a run that was stopped goes on.
"""

from __future__ import annotations

import math
import multiprocessing
import statistics
import time
from functools import partial
from pathlib import Path
from typing import Any

import click

from experiments.bench import records
from experiments.landscapes import kernel_tuner, landscape
from experiments.landscapes.contenders import CONTENDERS, Referee, is_there, start_of
from experiments.landscapes.landscape import Landscape, LandscapeError

OWN = Path(__file__).parent / "own"
OLD = "currently_unused/cachefiles/KernelTuner data"
LEARNT_ON = (
    f"{OLD}/convolution/RTX_3090.json.gz",
    f"{OLD}/pnpoly/RTX_3090.json.gz",
    f"{OLD}/gemm/RTX_3090.json.gz",
    "cachefiles/dedispersion_milo/W7800.json.gz",
)
"""The landscapes at which `tune` was improved: shown, but no proof."""
HELD_OUT = (
    "cachefiles/convolution_milo/A4000.json.gz",
    "cachefiles/convolution_milo/MI250X.json.gz",
    "cachefiles/dedispersion_milo/A4000.json.gz",
    "cachefiles/dedispersion_milo/MI250X.json.gz",
    f"{OLD}/pnpoly/RTX_2080_Ti.json.gz",
    f"{OLD}/gemm/RTX_Titan.json.gz",
)
"""Landscapes that were not looked at before `tune` was finished."""
FREE = ("random", "random, rules known", "best-of-N")
"""Contenders that take no time: their evaluations have no limit but FREE_BUDGET."""
FREE_BUDGET = 100_000
QUARTILES = {"lower": 0.25, "median": 0.5, "upper": 0.75}
DEFAULT = ("random", "random, rules known", "best-of-N", "TPE", "ours: tune")


@click.command()
@click.option("--hub", type=click.Path(exists=True, file_okay=False, path_type=Path), help="Copy of the benchmark hub.")
@click.option(
    "--contender", "names", multiple=True, type=click.Choice(list(CONTENDERS)), help="Default: the main ones."
)
@click.option("--learnt/--no-learnt", default=False, show_default=True, help="Also those that tune was improved at.")
@click.option("--seeds", default=50, show_default=True)
@click.option("--budget", default=300, show_default=True, help="Most evaluations of a search that takes time.")
@click.option("--processes", default=1, show_default=True)
@click.option("--out", type=click.Path(path_type=Path), default=Path("experiments/results/landscapes.json"))
def main(
    hub: Path | None, names: tuple[str, ...], learnt: bool, seeds: int, budget: int, processes: int, out: Path
) -> None:
    """Runs every contender on every landscape and writes rows, facts and a summary."""
    found, missing = landscapes(hub, learnt)
    absent = [name for name in names or DEFAULT if not is_there(name)]
    if absent:
        click.echo(f"left out, because optuna is not installed (pip install optuna): {', '.join(absent)}", err=True)
    for path in missing:
        click.echo(f"left out, not in this copy of the hub: {path}", err=True)
    known = {(row["landscape"], row["contender"], row["seeds"]) for row in records.rows(out, "rows")}
    records.set_fields(out, about=records.about("cpu"), definitions=definitions(budget))
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        for name in [one for one in names or DEFAULT if one not in absent]:
            for kind, one in found:
                if (one.name, name, seeds) in known:
                    continue
                limit = FREE_BUDGET if name in FREE else budget
                runs = pool.map(partial(search, one, name, limit), range(seeds), chunksize=1)
                row = {"kind": kind, **facts(one), "contender": name, "seeds": seeds, **summary(runs, limit)}
                records.add_row(out, "rows", f"{one.name} | {name}", row)
                click.echo(f"{one.name:32} {name:24} {row['median']} ({row['lower']} to {row['upper']})")
    records.set_fields(out, not_found=missing)
    click.echo(table(records.read(out)))


def definitions(budget: int) -> dict[str, Any]:
    """What the numbers of the document mean."""
    return {
        "evaluations": "distinct configurations judged until one is within 5% of the optimum, failed ones and the "
        "common start included; a configuration judged before costs nothing, for nobody",
        "median, lower, upper": "quartiles over seeds, of two middle ones the larger; null: more than the limit",
        "limit": f"most evaluations of a search: {budget}, for those that take no time {FREE_BUDGET}",
        "held out": "not looked at before tune was finished",
    }


def landscapes(hub: Path | None, learnt: bool) -> tuple[list[tuple[str, Landscape]], list[str]]:
    """((kind, landscape) pairs, paths that are not in the hub)."""
    found = [("own", landscape.read(path)) for path in sorted(OWN.glob("*.json"))]
    missing = []
    wanted = [("held out", path) for path in HELD_OUT] + [("learnt on", path) for path in LEARNT_ON if learnt]
    for kind, path in wanted if hub else []:
        assert hub is not None
        try:
            found.append((kind, kernel_tuner.read(hub / path)))
        except LandscapeError:
            if (hub / path).exists():
                raise
            missing.append(path)
    return found, missing


def facts(one: Landscape) -> dict[str, Any]:
    """What makes a landscape hard."""
    return {
        "landscape": one.name,
        "device": one.device,
        "tunables": len(one.choices),
        "size": one.size,
        "working": len(one.times),
        "near": one.near,
    }


def search(one: Landscape, contender: str, budget: int, seed: int) -> dict[str, Any]:
    """One run: evaluations until near the optimum, None for never; how near it came; CPU seconds."""
    referee, started = Referee(one, budget), time.process_time()
    CONTENDERS[contender](referee, start_of(one, seed), seed)
    best = min(found for found in referee.seen.values() if found is not None)
    return {
        "reached_at": referee.reached_at,
        "ratio": best / one.optimum,
        "judged": len(referee.seen),
        "cpu_s": time.process_time() - started,
    }


def summary(runs: list[dict[str, Any]], limit: int) -> dict[str, Any]:
    """Quartiles of the evaluations needed; None where they lie beyond the limit."""
    needed = sorted(math.inf if run["reached_at"] is None else run["reached_at"] for run in runs)
    quartiles = {name: needed[math.ceil(share * (len(needed) - 1))] for name, share in QUARTILES.items()}
    return {
        "limit": limit,
        **{name: None if math.isinf(at) else at for name, at in quartiles.items()},
        "reached": sum(run["reached_at"] is not None for run in runs),
        "median_ratio_at_end": round(statistics.median(run["ratio"] for run in runs), 3),
        "cpu_ms_per_evaluation": round(1e3 * sum(run["cpu_s"] for run in runs) / sum(run["judged"] for run in runs), 2),
    }


def table(document: dict[str, Any]) -> str:
    """The rows as a table in Markdown: median (lower to upper quartile), `>` beyond the limit, blank where not run."""
    rows = document["rows"].values()
    names = [name for name in CONTENDERS if any(row["contender"] == name for row in rows)]
    lines = [f"| landscape | space | working | near | {' | '.join(names)} |", "|---|" + "---:|" * (3 + len(names))]
    for one in sorted(
        {row["landscape"]: row for row in rows}.values(), key=lambda row: (row["kind"], row["landscape"])
    ):
        cells = {row["contender"]: _cell(row) for row in rows if row["landscape"] == one["landscape"]}
        head = f"{one['landscape']} | {one['size']:,} | {one['working'] / one['size']:.0%} | {one['near']:,}"
        lines.append(f"| {head} | {' | '.join(cells.get(name, '') for name in names)} |")
    return "\n".join(lines) + "\n"


def _cell(row: dict[str, Any]) -> str:
    lower, median, upper = (f">{row['limit']}" if row[name] is None else f"{row[name]:,}" for name in QUARTILES)
    return f"{median} ({lower} to {upper})"


if __name__ == "__main__":
    main()
