"""`kb-evolve fastp`: KernelBench's metric, for runs of the database and for KernelBench's own results."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from kb_evolve.commands.shared import db_option, emit_json, json_option
from kb_evolve.commands.tables import fitted, screen_width

if TYPE_CHECKING:
    from islands.run import Run
    from islands.store import Store
    from kb_evolve.export.fastp import Analysis, Baseline


@click.command(
    epilog="Example: kb-evolve fastp runs/my_run --baseline results/timing/H100_PCIe/baseline_time_torch.json"
)
@click.argument("what", nargs=-1, metavar="[RUN|FOLDER]...")
@click.option(
    "--baseline",
    "files",
    multiple=True,
    metavar="FILE",
    help="KernelBench's baseline file, or what `kb-evolve baseline --json` printed; repeatable.",
)
@click.option(
    "--level", type=int, metavar="N", help="KernelBench's level; a folder's kernels say theirs by their names."
)
@click.option(
    "--kernelbench",
    metavar="PATH",
    envvar="KERNELBENCH_ROOT",
    help="A KernelBench checkout: its problems are then what rates refer to, not those of the baseline.",
)
@db_option
@json_option
def fastp(
    what: tuple[str, ...], files: tuple[str, ...], level: int | None, kernelbench: str | None, db: str, as_json: bool
) -> None:
    """Print fast_p: the share of problems with a correct kernel of more than p times the baseline's speed.

    A FOLDER is KernelBench's runs/NAME with its eval_results.json, or runs/; it needs a --baseline. A RUN is one of the
    database (run:NAME where a folder has its name); without any, all of them are taken, of several runs on one problem
    the best one. Their own baseline is eager PyTorch, measured beside the kernel.
    """
    from kb_evolve.export.fastp import is_kernelbench_baseline, read_kernelbench_baseline

    folders = [Path(one).expanduser() for one in what if _is_folder(one)]
    runs = [one.removeprefix("run:") for one in what if not _is_folder(one)]
    theirs = [file for file in files if is_kernelbench_baseline(file)]
    ours = [file for file in files if file not in theirs]
    baselines = [read_kernelbench_baseline(file) for file in theirs]
    found = _of_folders(folders, baselines, level, kernelbench)
    if runs or not folders:
        found += _of_database(runs, baselines, ours, level, db)
    if as_json:
        emit_json({"analyses": [one.to_json() for one in found]})
    else:
        click.echo(analysis_text(found))


def _is_folder(word: str) -> bool:
    return not word.startswith("run:") and Path(word).expanduser().exists()


def _of_folders(folders: list[Path], baselines: list[Baseline], level: int | None, root: str | None) -> list[Analysis]:
    from kb_evolve.export.fastp import FastpError, analyse_folder, numbers_in, result_folders

    if folders and not baselines:
        raise FastpError(
            f"{folders[0]}: KernelBench's results hold no baseline; give one with --baseline FILE (from "
            "results/timing/ of its checkout, or of `kb-evolve baseline REF... --format kernelbench --out FILE`)"
        )
    return [
        analyse_folder(run, baseline, level, lambda of_level: numbers_in(root, of_level))
        for folder in folders
        for run in result_folders(folder)
        for baseline in baselines
    ]


def _of_database(
    names: list[str], baselines: list[Baseline], files: list[str], level: int | None, db: str
) -> list[Analysis]:
    from islands.store import StoreError, open_store
    from kb_evolve.export.fastp import analyse_entries
    from kb_evolve.export.kernelbench import kernelbench_numbers
    from kb_evolve.report.suite import best_entries, entry_of, read_baselines
    from kb_evolve.standing import standing

    if names and not Path(db).exists():
        raise StoreError(f"there is no folder {names[0]}, and no database {db} that could hold a run of that name")
    documents = read_baselines(files)
    known: dict[str, set[str]] = {}
    for one in documents:
        known.setdefault(str(one["kind"]), set()).add(str(one["problem"]))
    with open_store(db, read_only=True) as store:
        runs = [_named(store, name) for name in names] if names else store.runs()
        runs = [run for run in runs if level in (None, kernelbench_numbers(run.problem_id)[0])]
        if not runs:
            of_level = "" if level is None else f" on a problem of level {level}"
            raise StoreError(f"{db} holds no run{of_level} yet: start one with `kb-evolve run REF`")
        entries = [entry_of(run, standing(store, run.id), documents) for run in runs]
    ids = {run.problem_sha256: run.problem_id for run in runs}
    return analyse_entries(best_entries(entries), baselines, known, ids)


def _named(store: Store, name: str) -> Run:
    from islands.store import StoreError
    from kb_evolve.commands.outputs import find_run

    try:
        return find_run(store, name)
    except StoreError as error:
        raise StoreError(f"there is no folder {name}, and {error}") from None


def analysis_text(found: list[Analysis]) -> str:
    """One line for each set of results and baseline, then what is to be noted."""
    from kb_evolve.report.suite import STEPS
    from kb_evolve.report.text import one_line

    header = ("results", "baseline", "problems", "correct", *(f"fast_{p:g}" for p in STEPS), "mean speedup")
    rows = [
        (
            one_line(one.results, 60),
            one_line(one.baseline, 40),
            one.aligned,
            f"{one.correct_count} of {one.total_count}",
            *(f"{one.fast_p(p):.3g}" for p in STEPS),
            f"{one.geometric_mean:.3g}x" if one.speedups else "none",
        )
        for one in found
    ]
    notes = [f"{one_line(one.results, 60)}: {note}" for one in found for note in one.notes]
    drop = ("problems", "fast_0.5", "fast_1.5", "fast_0")
    table = fitted(header, rows, screen_width(), shrink={"results": 16, "baseline": 10}, drop=drop)
    return "\n".join([table, *dict.fromkeys(notes)])
