"""`kb-evolve import`: another database's runs into this one, or other people's kernels as a run of their own."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kb_evolve.commands.shared import db_option, emit_json, evaluated_json, json_option, judge_options

if TYPE_CHECKING:
    from islands.candidate import Evaluated
    from islands.merge import Merged
    from kb_evolve.export.opened import Bundle
    from kb_evolve.search import Outcome


NOT_THERE = "there is no {path}: name a database, a bundle, a kernel or a folder of kernels"


@click.command("import", epilog="Example: kb-evolve import other-machine.db --db kb_evolve.db")
@click.argument("path", metavar="PATH")
@click.option("--problem", metavar="REF", help="What the kernels compute; a bundle names its own.")
@click.option("--run", metavar="NAME", help="Name of the run that the kernels become; import-... by default.")
@judge_options
@db_option
@json_option
def import_path(path: str, problem: str | None, run: str | None, db: str, as_json: bool, **flags: Any) -> None:
    """Take in another database, a bundle, a kernel or a folder of kernels, or KernelBench's runs.

    A database's runs come in whole: all or nothing, and importing again changes nothing. Of PATH is only read. A run
    whose name is taken gets its id behind its name.

    Kernels become a run of their own: every one is judged here, whatever is claimed of it, and none is changed.
    `kb-evolve run REF --run NAME` searches on from there, and `--seeds NAME` gives them to another run. Exits with 1
    when none of them is correct.
    """
    from kb_evolve.config import ConfigError

    named = Path(path).expanduser()
    if named.is_dir() or named.suffix == ".py":
        outcome, told = import_kernels(named, problem, {**flags, "db": db, "run": run})
        _show_kernels(outcome, told, as_json)
        sys.exit(0 if outcome.best is not None else 1)
    _check_database(named)
    given = {"problem": problem, "run": run, **flags}
    if unused := [f"--{name}" for name, value in given.items() if _is_given(name, value)]:
        raise ConfigError(f"{path} is taken for a database, and {', '.join(unused)} goes with kernels: leave it out")
    _merge(named, db, as_json)


def _check_database(path: Path) -> None:
    """ConfigError for a path where nothing is, or nothing that can be taken in."""
    from kb_evolve.config import ConfigError
    from kb_evolve.export.whole import is_database

    if not path.exists():
        raise ConfigError(NOT_THERE.format(path=path))
    if path.is_file() and path.stat().st_size and not is_database(path):
        raise ConfigError(
            f"{path} is no database and no kernel (.py). Unpack an archive first; of a bundle or of KernelBench's runs "
            "name the folder"
        )


def _is_given(name: str, value: Any) -> bool:
    """Whether an option was set for this command: the environment may name KernelBench always."""
    return value is not None and name != "kernelbench"


def import_kernels(
    path: Path, ref: str | None, options: dict[str, Any], **search: Any
) -> tuple[Outcome, list[Evaluated]]:
    """A new run that holds the kernels of a file or folder, judged; also as told, with the estimates that count.

    ConfigError when it is not clear which problem they are for, or they are for none; see Search for `search`.
    """
    import dataclasses

    from islands.store import open_store
    from kb_evolve.config import ConfigError
    from kb_evolve.export.kernelbench import folder_name
    from kb_evolve.export.opened import is_bundle, read_bundle
    from kb_evolve.report.text import one_line
    from kb_evolve.search import Search
    from kb_evolve.standing import standing
    from problems.catalogue import load

    if not path.exists():
        raise ConfigError(NOT_THERE.format(path=path))
    name, bundle = f"import-{one_line(path.resolve().stem)}", read_bundle(path) if is_bundle(path) else None
    if bundle is not None:
        name = f"import-{folder_name(bundle.candidate_id)}"
        ref = ref or _name_of_problem(bundle, options.get("kernelbench"))
        for key in ("backend", "precision"):
            options[key] = options.get(key) or getattr(bundle, key)
    if ref is None:
        raise ConfigError(f"which problem are the kernels of {path} for? Name it with --problem REF")
    problem = dataclasses.replace(load(ref, options.get("kernelbench")), seed=None)
    options["run"] = options.get("run") or name
    seeds = _taken_before(options["db"], options["run"], path, bundle) or (str(path),)
    found = Search(problem, seeds=seeds, only_seeds=True, **search, **options).run()
    with open_store(options["db"], read_only=True) as store:
        return found, standing(store, found.run.id)


def _taken_before(db: str, name: str, path: Path, bundle: Bundle | None) -> tuple[str, ...]:
    """What the run of that name was seeded with, where it was this: by the same path, or by a bundle's checksums.

    Such a run goes on as it is, and nothing is judged again; any other content under its name is refused by the search.
    """
    from islands.store import open_store
    from kb_evolve.seeding.seed import ORIGIN

    if not Path(db).is_file():
        return ()
    with open_store(db, read_only=True) as store:
        run = store.find_run(name)
        if run is None:
            return ()
        stored = tuple(run.config.get("run", {}).get("seeds", ()))
        if [Path(one).expanduser().resolve() for one in stored] == [path.resolve()]:
            return stored
        origins = (one.candidate.details.get(ORIGIN, {}) for one in store.stream(run.id))
        is_known = bundle is not None and any(origin.get("bundle_sha256") == bundle.sha256 for origin in origins)
        return stored if is_known else ()


def _name_of_problem(bundle: Bundle, kernelbench: str | None) -> str:
    """The name of a bundle's problem, where that is the problem known here by that name.

    Any other must be named by the user: beside the judge, a search runs a problem's own code to learn its shapes.
    """
    from kb_evolve.config import ConfigError
    from kb_evolve.export.opened import known_problem

    known = known_problem(bundle.problem.id, kernelbench)
    if known is None or known.sha256 != bundle.problem.sha256:
        own = bundle.path / "problem.py"
        raise ConfigError(
            f"the problem of {bundle.path}, {bundle.problem.id!r}, is not one that is known here by that name: "
            f"read {own}, and if you trust it, give --problem {own}"
        )
    return known.id


def _show_kernels(outcome: Outcome, told: list[Evaluated], as_json: bool) -> None:
    from kb_evolve.live import speedup_text
    from kb_evolve.report.text import one_line
    from kb_evolve.seeding.seed import ORIGIN

    sown = [one for one in told if ORIGIN in one.candidate.details]
    left_out = list(outcome.seeded.left_out) if outcome.seeded else []
    if as_json:
        kernels = [evaluated_json(one, outcome.run.name) | {"origin": one.candidate.details[ORIGIN]} for one in sown]
        emit_json({"run": outcome.run.name, "kernels": kernels, "left_out": left_out})
        return
    click.echo(f"run {outcome.run.name}: {len(sown)} kernel{'s' if len(sown) != 1 else ''} judged here")
    for one in sown:
        click.echo(f"  {one.candidate.id}  {speedup_text(one):24}  {one_line(one.candidate.rationale)}")
    for reason in left_out:
        click.echo(f"  left out: {one_line(reason, 400)}")


def _merge(other: Path, db: str, as_json: bool) -> None:
    from islands.merge import merge_databases

    merged = merge_databases(Path(db), other)
    if as_json:
        emit_json(merged_json(merged))
    else:
        click.echo(merged_text(merged, str(other), db))


def merged_json(merged: Merged) -> dict[str, Any]:
    """The machine's version of `merged_text`."""
    return {
        "added": list(merged.added),
        "extended": list(merged.extended),
        "unchanged": list(merged.unchanged),
        "renamed": dict(merged.renamed),
        "rows": dict(merged.rows),
    }


def merged_text(merged: Merged, other: str, db: str) -> str:
    """What came in, in a few lines."""
    counts = ", ".join(f"{merged.rows[name]} {name}" for name in ("candidates", "evaluations") if name in merged.rows)
    lines = [f"{other} into {db}: {counts}." if merged.rows else f"{db} holds all of {other} already."]
    for title, names in (("new runs", merged.added), ("runs that grew", merged.extended)):
        lines += [f"{title}: {', '.join(names)}"] if names else []
    lines += [f"{name} is {before} there: that name was taken here" for name, before in merged.renamed.items()]
    return "\n".join(lines)
