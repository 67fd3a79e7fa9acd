"""`kb-evolve report` and `export`: what a run leaves for others."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kb_evolve.commands.shared import db_option, emit_json, json_option

if TYPE_CHECKING:
    from pathlib import Path

    from islands.candidate import Evaluated
    from islands.run import Run
    from islands.store import Store


FORMATS = ("kernelbench", "bundle", "markdown", "replies", "openevolve")


@click.command(epilog="Example: kb-evolve report rmsnorm-cpp-cpu-fp32 --out report")
@click.argument("runs", nargs=-1, metavar="RUN...")
@click.option("--all", "is_all", is_flag=True, help="All runs of the database.")
@click.option("--out", required=True, metavar="DIR", help="Folder for figures and index.html; created.")
@click.option(
    "--baselines",
    multiple=True,
    metavar="FILE",
    help="What `kb-evolve baseline REF... --json` printed: with several runs, compare with these too.",
)
@db_option
@json_option
def report(runs: tuple[str, ...], is_all: bool, out: str, baselines: tuple[str, ...], db: str, as_json: bool) -> None:
    """Write figures (PNG and SVG, light and dark) and one self-contained index.html.

    Of one run: its progress, islands, lineage, trade-offs, operators and environment. Of several, or with --all: the
    share of problems that are p times faster (fast_p), geometric means and a table.
    """
    from islands.store import open_store
    from kb_evolve.config import ConfigError

    if bool(runs) == is_all:
        raise ConfigError("name the runs to report on, or give --all for every run of the database, not both")
    with open_store(db, read_only=True) as store:
        found = [find_run(store, run) for run in runs] or store.runs()
        if not found:
            raise ConfigError(f"{store.path} holds no run yet: start one with `kb-evolve run`")
        if len(found) == 1 and not is_all:
            paths = _report_one(store, found[0], out)
        else:
            paths = _report_several(store, found, out, baselines)
    if as_json:
        named = {"run": found[0].name} if len(found) == 1 else {"runs": [run.name for run in found]}
        emit_json({**named, "paths": {name: str(path) for name, path in paths.items()}})
        return
    page = next(path for path in paths.values() if path.suffix == ".html")
    click.echo(f"{page}\nbeside it {len(paths) - 1} pictures: each figure as PNG and SVG, light and dark")


CONTROLS_SHOWN = 8
"""Most control arms that a run is set against."""


def _report_one(store: Store, run: Run, out: str) -> dict[str, Path]:
    """The page of a run, with the latest control arms that the database has for it."""
    from kb_evolve.report.build import write_report
    from kb_evolve.report.operators import is_comparable, is_control
    from kb_evolve.report.record import read_record

    controls = [other for other in store.runs() if is_control(other) and is_comparable(run, other)]
    records = [read_record(store, other) for other in controls[-CONTROLS_SHOWN:]]
    return write_report(read_record(store, run), out, records)


def _report_several(store: Store, runs: list[Run], out: str, baselines: tuple[str, ...]) -> dict[str, Path]:
    from kb_evolve.report.overview import write_overview
    from kb_evolve.report.suite import best_entries, entry_of, read_baselines
    from kb_evolve.report.warnings import warnings
    from kb_evolve.standing import standing

    known = read_baselines(baselines)
    entries, notes = [], {}
    for run in runs:
        history = standing(store, run.id)
        entries.append(entry_of(run, history, known))
        notes[run.name] = warnings(run.config, history)
    return write_overview(best_entries(entries), notes, out)


@click.command(epilog="Example: kb-evolve export rmsnorm-cpp-cpu-fp32 --format bundle --out rmsnorm-bundle")
@click.argument("runs", nargs=-1, required=True, metavar="RUN...")
@click.option("--format", "form", type=click.Choice(FORMATS), required=True, help="What to write.")
@click.option("--out", metavar="PATH", help="Folder to write to, created; for markdown a file, else standard output.")
@click.option("--level", type=int, metavar="N", help="KernelBench level in file names; the problem's own by default.")
@click.option("--problem-id", type=int, metavar="N", help="KernelBench problem number; the problem's own by default.")
@db_option
@json_option
def export(
    runs: tuple[str, ...],
    form: str,
    out: str | None,
    level: int | None,
    problem_id: int | None,
    db: str,
    as_json: bool,
) -> None:
    """Write a run's best kernels for others.

    kernelbench: files in KernelBench's layout that run with torch alone; several runs on problems of one level go into
    one folder, as its analysis reads them. bundle: the elite with its lineage, prompts, evaluations and checksums, for
    `kb-evolve verify` elsewhere. markdown: a summary for an issue or a pull request. replies: what its models answered,
    for `kb-evolve run --replay`. openevolve: the correct programs as a checkpoint, with our judge as the evaluator.
    """
    from islands.store import open_store

    _check_export(runs, form, out, (level, problem_id))
    with open_store(db, read_only=True) as store:
        found = [find_run(store, run) for run in runs]
        if form == "markdown":
            _echo_markdown(found[0], store, out, as_json)
            return
        paths = _write_files(found, store, form, str(out), (level, problem_id))
    if as_json:
        names = {"run": found[0].name} if len(found) == 1 else {"runs": [run.name for run in found]}
        emit_json({**names, "format": form, "paths": [str(path) for path in paths]})
        return
    for path in paths:
        click.echo(path)


def _check_export(runs: tuple[str, ...], form: str, out: str | None, numbers: tuple[int | None, int | None]) -> None:
    """ConfigError for options that do not go together."""
    from kb_evolve.config import ConfigError

    is_numbered = numbers != (None, None)
    if form != "kernelbench" and is_numbered:
        raise ConfigError(f"--level and --problem-id are for --format kernelbench, not for {form}: leave them out")
    if len(runs) > 1 and (form != "kernelbench" or is_numbered):
        what = "--level and --problem-id name one problem" if is_numbered else f"--format {form} takes one run"
        raise ConfigError(f"{what}, {len(runs)} runs were given: export them one by one")
    if out is None and form != "markdown":
        raise ConfigError(f"--format {form} needs --out DIR, the folder to write to")


def _write_files(
    runs: list[Run], store: Store, form: str, out: str, numbers: tuple[int | None, int | None]
) -> list[Path]:
    from islands.turns import EMBED
    from kb_evolve.export.bundle import export_bundle
    from kb_evolve.export.kernelbench import export_run, export_runs
    from kb_evolve.export.openevolve import export_openevolve
    from kb_evolve.export.replies import export_replies
    from kb_evolve.standing import best_of, stream

    if form == "bundle":
        return export_bundle(store, runs[0], out)
    if form == "openevolve":
        return export_openevolve(runs[0], best_of(store, runs[0].id), stream(store, runs[0].id), out)
    if form == "replies":
        return [export_replies([*store.turns(runs[0].id), *store.turns(runs[0].id, operator=EMBED)], out)]
    if len(runs) > 1:
        return export_runs([(run, _exported(store, run)) for run in runs], out)
    return export_run(runs[0], _exported(store, runs[0]), out, *numbers)


def _exported(store: Store, run: Run) -> list[Evaluated]:
    """What of a history an export can need: elite and Pareto front; all, but without sources, where none is correct."""
    from kb_evolve.standing import finalists

    return finalists(store, run.id) or store.summaries(run.id)


def _echo_markdown(run: Run, store: Store, out: str | None, as_json: bool) -> None:
    from kb_evolve.export.markdown import export_markdown
    from kb_evolve.standing import best_of

    elite = best_of(store, run.id)
    text = export_markdown(run, [elite] if elite else store.summaries(run.id), out)
    if as_json:
        emit_json({"run": run.name, "format": "markdown", "paths": [out] if out else [], "text": text})
    else:
        click.echo(out or text.rstrip("\n"))


def find_run(store: Store, name_or_id: str) -> Run:
    """The run; StoreError that lists what there is when it is not found."""
    from islands.store import StoreError

    run = store.find_run(name_or_id)
    if run is None:
        names = ", ".join(entry.name for entry in store.runs()) or "none yet"
        raise StoreError(f"{store.path} holds no run {name_or_id!r}; its runs: {names}")
    return run
