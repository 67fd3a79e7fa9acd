"""`kb-evolve db`: look after the database file itself."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from kb_evolve.commands.shared import db_option, emit_json, json_option

FORMATS = ("jsonl", "parquet")
COUNTED = ("run", "candidate", "evaluation")


@click.group("db", epilog="Example: kb-evolve db backup kb_evolve-monday.db")
def database() -> None:
    """Check, back up, restore, compact and export the database.

    All but restore work while runs are writing. docs/schema.md describes the tables.
    """


@database.command(epilog="Example: kb-evolve db check --db kb_evolve.db")
@db_option
@json_option
def check(db: str, as_json: bool) -> None:
    """Read everything and say what is wrong: pages, references, checksums, gaps in a history.

    Also says who holds a run, and whether the write-ahead log ends inside a transaction. Exits with 1 when anything
    is wrong.
    """
    from islands.integrity import examine

    health = examine(Path(db))
    if as_json:
        document = {"ok": not health.findings, "findings": list(health.findings), "notes": list(health.notes)}
        emit_json(document | {"rows": health.rows})
    else:
        for finding in health.findings:
            click.echo(f"NO  {finding}")
        if not health.findings:
            click.echo(f"ok  {db} is whole: {_counts(health.rows)}")
        for note in health.notes:
            click.echo(f"    {note}")
    if health.findings:
        click.echo(f"put a backup back with `kb-evolve db restore BACKUP --db {db}`", err=True)
        sys.exit(1)


@database.command(epilog="Example: kb-evolve db backup kb_evolve-monday.db --db kb_evolve.db")
@click.argument("to", metavar="FILE")
@db_option
@json_option
def backup(to: str, db: str, as_json: bool) -> None:
    """Copy the database into the new FILE, and check the copy in full. Runs may go on writing."""
    from islands.backup import back_up

    made = back_up(Path(db), Path(to))
    if as_json:
        emit_json({"path": str(made.path), "size_bytes": made.size_bytes, "rows": made.rows})
    else:
        click.echo(f"{made.path}: {made.size_bytes / 2**20:.1f} MiB, whole: {_counts(made.rows)}")


@database.command(epilog="Example: kb-evolve db restore kb_evolve-monday.db --db kb_evolve.db")
@click.argument("backup", metavar="BACKUP")
@db_option
@json_option
def restore(backup: str, db: str, as_json: bool) -> None:
    """Put a copy of BACKUP in the database's place. What was there stays beside it under another name."""
    from islands.backup import restore as put_back
    from islands.store import StoreError

    if not Path(backup).exists():
        raise StoreError(f"there is no {backup}: name a file that `kb-evolve db backup` wrote")
    health, aside = put_back(Path(backup), Path(db))
    if as_json:
        emit_json({"path": db, "rows": health.rows, "replaced": [str(path) for path in aside]})
    else:
        click.echo(f"{db} is whole: {_counts(health.rows)}")
        for path in aside:
            click.echo(f"    what was there before: {path}")


@database.command(epilog="Example: kb-evolve db compact --db kb_evolve.db")
@db_option
@json_option
def compact(db: str, as_json: bool) -> None:
    """Compress prompts, replies and logs in place; every command reads them as before.

    Runs may go on writing; the file itself shrinks only when none is at work.
    """
    from islands.compaction import compact as pack

    done = pack(Path(db))
    if as_json:
        emit_json({name: getattr(done, name) for name in done.__slots__})
        return
    mib = [f"{count / 2**20:.1f} MiB" for count in (done.before_bytes, done.after_bytes)]
    texts = f"{done.texts} texts, {done.text_bytes / 2**20:.1f} MiB, now take {done.packed_bytes / 2**20:.1f} MiB"
    click.echo(f"{db}: {mib[0]} -> {mib[1]}; {texts}")
    if not done.is_shrunk:
        click.echo("    a run is at work: the file keeps its freed pages for it; compact again when it has ended")


@database.command("export", epilog="Example: kb-evolve db export --format jsonl --out tables")
@click.argument("runs", metavar="[RUN]...", nargs=-1)
@click.option("--format", "form", type=click.Choice(FORMATS), required=True, help="What is written for each table.")
@click.option("--out", required=True, metavar="DIR", help="Folder to write to; created.")
@db_option
@json_option
def export(runs: tuple[str, ...], form: str, out: str, db: str, as_json: bool) -> None:
    """Write runs, candidates with their evaluations, attempts, turns with models, and events, one file each.

    Of all runs, or of those named. Parquet needs pyarrow.
    """
    from islands.store import open_store
    from kb_evolve.export.tables import export_tables

    with open_store(db, read_only=True) as store:
        written = export_tables(store, runs, form, Path(out))
    if as_json:
        emit_json({"format": form, "files": {str(path): count for path, count in written.items()}})
        return
    for path, count in written.items():
        click.echo(f"{path}  {count:,} row{'' if count == 1 else 's'}")


def _counts(rows: dict[str, int]) -> str:
    return ", ".join(f"{rows[one + 's']:,} {one}{'' if rows[one + 's'] == 1 else 's'}" for one in COUNTED)
