"""`kb-evolve import`: another database's runs into this one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from kb_evolve.commands.shared import db_option, emit_json, json_option

if TYPE_CHECKING:
    from islands.merge import Merged


@click.command("import", epilog="Example: kb-evolve import other-machine.db --db kb_evolve.db")
@click.argument("other", metavar="OTHER.db")
@db_option
@json_option
def import_database(other: str, db: str, as_json: bool) -> None:
    """Merge the runs of another database into this one: their candidates, evaluations, prompts and events.

    All comes in, or nothing. Importing again changes nothing, and of a run that both hold the longer version stays.
    OTHER.db is only read. A run whose name is taken gets its id behind its name.
    """
    from pathlib import Path

    from islands.merge import merge_databases

    merged = merge_databases(Path(db), Path(other))
    if as_json:
        emit_json(merged_json(merged))
    else:
        click.echo(merged_text(merged, other, db))


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
