"""Merging two databases: no loss, nothing twice, all or nothing."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from islands.database import StoreError
from islands.merge import EVALUATION, KEYS, TEXTS, UNMERGED, merge_databases
from islands.migrations import MIGRATIONS, SCHEMA_VERSION
from islands.store import open_store


def fill(path: Path, make: ModuleType, run_id: str, name: str, count: int, start: int = 0) -> None:
    """A run with candidates, evaluations, conversations and events, or more of them for a run that is there."""
    with open_store(path) as store:
        run = make.run(run_id, name)
        if store.find_run(run_id) is None:
            store.create_run(run)
        for number in range(start, count):
            parents = (f"{run_id}-{number - 4:06d}",) if number >= 4 else ()
            made = make.candidate(number, run_id, parent_ids=parents, source=f"x = {run_id!r}, {number}\n")
            evaluation = make.evaluation(made, None if number % 5 == 4 else 1.0 + number / 10)
            make.record(store, run, make.Evaluated(made, evaluation))
            if number % 3 == 0:
                make.converse(store, run_id, number)
            store.add_event(run_id, "noted", {"number": number})


def content(path: Path) -> dict[str, list[tuple[Any, ...]]]:
    """All that a file says of its runs, whatever row numbers it gave them."""
    with closing(sqlite3.connect(path)) as db:
        found = {}
        for table, keys in {"runs": ("id",), "problems": ("sha256",), "sources": ("sha256",), **KEYS}.items():
            columns = [row[1] for row in db.execute(f"PRAGMA table_info({table})")]
            kept = [name for name in columns if name not in ("evaluation_id", "last_try", "name", "checksum")]
            kept = [name for name in kept if name != "id" or keys]
            found[table] = sorted(db.execute(f"SELECT {', '.join(kept)} FROM {table}").fetchall(), key=repr)
        told = f"""
            SELECT candidate_id, position, {", ".join(EVALUATION)}, document, evaluations.run_id FROM tellings
            JOIN evaluations ON evaluations.id = evaluation_id ORDER BY candidate_id
        """
        found["told"] = db.execute(told).fetchall()
        failures = """
            SELECT model_failures.run_id, model_failures.number, model_failures.turn, tries.at FROM model_failures
            JOIN tries ON tries.id = last_try ORDER BY 1, 2, 3
        """
        found["failed tries"] = db.execute(failures).fetchall()
    return found


def union(*contents: dict[str, list[tuple[Any, ...]]]) -> dict[str, list[tuple[Any, ...]]]:
    return {table: sorted({row for one in contents for row in one[table]}, key=repr) for table in contents[0]}


@pytest.fixture
def pair(tmp_path: Path, make: ModuleType) -> tuple[Path, Path]:
    """Two databases of two machines, each with one run; both runs have the same name."""
    paths = tmp_path / "ours.db", tmp_path / "theirs.db"
    for path, run_id in zip(paths, ("aaaaaaaa", "bbbbbbbb"), strict=True):
        fill(path, make, run_id, "demo", 12)
    return paths


def test_every_table_of_the_schema_is_merged_or_named_as_not_merged(pair: tuple[Path, Path]) -> None:
    with closing(sqlite3.connect(pair[0])) as db:
        tables = {row[0] for row in db.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
    tables -= {"sqlite_sequence", MIGRATIONS.migrations_table}
    assert tables == {"runs", "evaluations", *TEXTS, *KEYS, *UNMERGED}


def test_two_machines_databases_merge_without_loss(pair: tuple[Path, Path]) -> None:
    ours, theirs = pair
    expected = union(content(ours), content(theirs))
    merged = merge_databases(ours, theirs)
    found = content(ours)
    assert {table: sorted(rows, key=repr) for table, rows in found.items()} == expected
    assert merged.added == ("demo@bbbbbbbb",)
    assert merged.renamed == {"demo@bbbbbbbb": "demo"}
    with open_store(ours) as store:
        assert store.check() == []


def test_importing_twice_changes_nothing(pair: tuple[Path, Path]) -> None:
    ours, theirs = pair
    merge_databases(ours, theirs)
    before = content(ours)
    again = merge_databases(ours, theirs)
    assert content(ours) == before
    assert (again.added, again.extended, dict(again.rows)) == ((), (), {})
    assert again.unchanged == ("demo@bbbbbbbb",)


def test_the_other_file_is_only_read(pair: tuple[Path, Path]) -> None:
    ours, theirs = pair
    before = theirs.read_bytes()
    merge_databases(ours, theirs)
    assert theirs.read_bytes() == before


def test_merging_into_either_file_gives_the_same_content(pair: tuple[Path, Path]) -> None:
    ours, theirs = pair
    with closing(sqlite3.connect(ours)) as db, closing(sqlite3.connect(ours.with_name("copy.db"))) as copy:
        db.backup(copy)
    merge_databases(ours, theirs)
    merge_databases(theirs, ours.with_name("copy.db"))
    assert {table: set(rows) for table, rows in content(ours).items()} == {
        table: set(rows) for table, rows in content(theirs).items()
    }


def test_of_one_run_in_two_lengths_the_longer_one_wins(pair: tuple[Path, Path], make: ModuleType) -> None:
    ours, theirs = pair
    merge_databases(ours, theirs)
    short = content(ours)
    fill(theirs, make, "bbbbbbbb", "demo", 20, start=12)
    merged = merge_databases(ours, theirs)
    assert merged.extended == ("demo@bbbbbbbb",)
    assert len(content(ours)["tellings"]) == len(short["tellings"]) + 8
    with open_store(ours) as one, open_store(theirs) as other:
        assert one.history("bbbbbbbb") == other.history("bbbbbbbb")
        assert one.turns("bbbbbbbb") == other.turns("bbbbbbbb")
        assert one.events("bbbbbbbb") == other.events("bbbbbbbb")
        assert one.counts("bbbbbbbb") == other.counts("bbbbbbbb")
        assert one.unsettled("bbbbbbbb") == other.unsettled("bbbbbbbb")


def test_a_shorter_version_of_a_run_changes_nothing(pair: tuple[Path, Path], make: ModuleType) -> None:
    ours, theirs = pair
    merge_databases(ours, theirs)
    fill(ours, make, "bbbbbbbb", "demo", 16, start=12)
    before = content(ours)
    assert merge_databases(ours, theirs).unchanged == ("demo@bbbbbbbb",)
    assert content(ours) == before


def test_a_run_that_went_on_in_both_files_is_refused_and_nothing_else_comes_in(
    pair: tuple[Path, Path], make: ModuleType
) -> None:
    ours, theirs = pair
    merge_databases(ours, theirs)
    fill(ours, make, "bbbbbbbb", "demo", 14, start=12)
    with open_store(theirs) as store:
        store.add_event("bbbbbbbb", "stopped", {})
    fill(theirs, make, "cccccccc", "third", 4)
    before = content(ours)
    with pytest.raises(StoreError, match=r"run demo@bbbbbbbb \(bbbbbbbb\).*conflict.*nothing was changed"):
        merge_databases(ours, theirs)
    assert content(ours) == before


def test_other_content_under_one_run_id_is_refused(tmp_path: Path, make: ModuleType) -> None:
    ours, theirs = tmp_path / "ours.db", tmp_path / "theirs.db"
    fill(ours, make, "aaaaaaaa", "demo", 3)
    with open_store(theirs) as store:
        store.create_run(make.run("aaaaaaaa", "demo", seed=8))
    with pytest.raises(StoreError, match="they began differently"):
        merge_databases(ours, theirs)


def test_a_run_at_work_here_is_not_extended_under_its_process(pair: tuple[Path, Path], make: ModuleType) -> None:
    ours, theirs = pair
    merge_databases(ours, theirs)
    fill(theirs, make, "bbbbbbbb", "demo", 13, start=12)
    held = pytest.raises(StoreError, match=r"bbbbbbbb would grow.*held by process")
    with open_store(ours) as store, store.lease("bbbbbbbb"), held:
        merge_databases(ours, theirs)
    assert merge_databases(ours, theirs).extended == ("demo@bbbbbbbb",)


def test_an_evaluation_that_both_files_hold_is_kept_once(tmp_path: Path, make: ModuleType) -> None:
    ours, theirs = tmp_path / "ours.db", tmp_path / "theirs.db"
    for path, run_id in ((ours, "aaaaaaaa"), (theirs, "bbbbbbbb")):
        with open_store(path) as store:
            run = make.run(run_id, run_id)
            store.create_run(run)
            made = make.candidate(0, run_id)
            make.record(store, run, make.Evaluated(made, make.evaluation(made, 2.0)))
    merge_databases(ours, theirs)
    with open_store(ours) as store:
        assert [one.evaluation.speedup for one in store.history("bbbbbbbb")] == [2.0]
        assert len(store.top()) == 1


def test_a_database_of_a_newer_schema_is_refused(pair: tuple[Path, Path]) -> None:
    ours, theirs = pair
    with closing(sqlite3.connect(theirs)) as db:
        db.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    before = content(ours)
    with pytest.raises(StoreError, match=r"theirs\.db was written by a newer kb_evolve"):
        merge_databases(ours, theirs)
    assert content(ours) == before


def test_a_database_of_an_older_schema_is_migrated_in_a_copy(tmp_path: Path, make: ModuleType) -> None:
    from sqlite_utils import Database

    from islands.migrations import APPLICATION_ID

    ours, theirs = tmp_path / "ours.db", tmp_path / "old.db"
    with closing(Database(theirs)) as db:
        MIGRATIONS.apply(db, stop_before="0002_leases")
        db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        db.execute("PRAGMA user_version = 1")
    before = theirs.read_bytes()
    fill(ours, make, "aaaaaaaa", "demo", 2)
    assert merge_databases(ours, theirs).added == ()
    assert theirs.read_bytes() == before


def test_text_that_does_not_fit_its_checksum_is_refused(pair: tuple[Path, Path]) -> None:
    ours, theirs = pair
    with closing(sqlite3.connect(theirs, isolation_level=None)) as db:
        db.execute("DROP TRIGGER sources_no_update")
        db.execute("UPDATE sources SET source = 'x = 0' WHERE rowid = 3")
    before = content(ours)
    with pytest.raises(StoreError, match=r"theirs\.db is damaged: sources"):
        merge_databases(ours, theirs)
    assert content(ours) == before


def test_a_file_is_not_imported_into_itself(pair: tuple[Path, Path]) -> None:
    with pytest.raises(StoreError, match="is the database to import into"):
        merge_databases(pair[0], pair[0].parent / "." / pair[0].name)


def test_a_file_that_is_no_database_is_refused_before_ours_is_made(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("hello" * 100)
    with pytest.raises(StoreError, match="not a SQLite database"):
        merge_databases(tmp_path / "ours.db", tmp_path / "notes.txt")
    assert not (tmp_path / "ours.db").exists()


def test_a_merge_that_is_killed_is_there_whole_or_not_at_all(
    tmp_path: Path, make: ModuleType, fork: Callable[..., Any]
) -> None:
    ours, theirs = tmp_path / "ours.db", tmp_path / "theirs.db"
    whole = tmp_path / "whole.db"
    fill(ours, make, "aaaaaaaa", "demo", 3)
    fill(theirs, make, "bbbbbbbb", "other", 150)
    before = content(ours)
    began = time.monotonic()
    merge_databases(whole, theirs)
    merge_databases(whole, ours)
    duration_s = time.monotonic() - began
    after = {table: set(rows) for table, rows in content(whole).items()}
    ends = set()
    for part in range(10):
        child = fork(merge_databases, ours, theirs)
        time.sleep(duration_s * part / 10)
        child.kill()
        child.end()
        found = content(ours)
        is_whole = {table: set(rows) for table, rows in found.items()} == after
        assert is_whole or found == before
        ends.add(is_whole)
    assert False in ends
    merge_databases(ours, theirs)
    assert {table: set(rows) for table, rows in content(ours).items()} == after
