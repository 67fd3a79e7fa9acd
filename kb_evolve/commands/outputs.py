"""`kb-evolve report` and `export`: what a run leaves for others."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kb_evolve.commands.shared import db_option, emit_json, json_option

if TYPE_CHECKING:
    from islands.run import Run
    from islands.store import Store


FORMATS = ("kernelbench", "replies")


@click.command(epilog="Example: kb-evolve report rmsnorm-cpp-cpu-fp32 --out report")
@click.argument("run", metavar="RUN")
@click.option("--out", required=True, metavar="DIR", help="Folder for plots and index.html; created.")
@db_option
@json_option
def report(run: str, out: str, db: str, as_json: bool) -> None:
    """Write plots (PNG, SVG) and one self-contained index.html of a run."""
    from islands.store import open_store
    from kb_evolve.report.build import write_report
    from kb_evolve.standing import standing

    with open_store(db, read_only=True) as store:
        found = find_run(store, run)
        paths = write_report(found, standing(store, found.id), store.attempts(found.id), store.events(found.id), out)
    if as_json:
        emit_json({"run": found.name, "paths": {name: str(path) for name, path in paths.items()}})
        return
    for path in paths.values():
        click.echo(path)


@click.command(epilog="Example: kb-evolve export rmsnorm-cpp-cpu-fp32 --format kernelbench --out export")
@click.argument("run", metavar="RUN")
@click.option("--format", "form", type=click.Choice(FORMATS), required=True, help="Layout of the files.")
@click.option("--out", required=True, metavar="DIR", help="Folder to write to; created.")
@click.option("--level", type=int, metavar="N", help="KernelBench level in file names; the problem's own by default.")
@click.option("--problem-id", type=int, metavar="N", help="KernelBench problem number; the problem's own by default.")
@db_option
@json_option
def export(run: str, form: str, out: str, level: int | None, problem_id: int | None, db: str, as_json: bool) -> None:
    """Write the run's best kernels as files that run with torch alone (kernelbench), or what its models answered, for
    `kb-evolve run --replay` (replies)."""
    from islands.store import open_store
    from kb_evolve.export.kernelbench import export_run
    from kb_evolve.export.replies import export_replies
    from kb_evolve.standing import standing

    with open_store(db, read_only=True) as store:
        found = find_run(store, run)
        if form == "replies":
            paths = [export_replies(store.turns(found.id), out)]
        else:
            paths = export_run(found, standing(store, found.id), out, level, problem_id)
    if as_json:
        emit_json({"run": found.name, "format": form, "paths": [str(path) for path in paths]})
        return
    for path in paths:
        click.echo(path)


def find_run(store: Store, name_or_id: str) -> Run:
    """The run; StoreError that lists what there is when it is not found."""
    from islands.store import StoreError

    run = store.find_run(name_or_id)
    if run is None:
        names = ", ".join(entry.name for entry in store.runs()) or "none yet"
        raise StoreError(f"{store.path} holds no run {name_or_id!r}; its runs: {names}")
    return run
