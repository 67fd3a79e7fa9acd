"""Looking after the file: what is wrong is found, copies are whole, compaction forgets nothing."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from pathlib import Path
from random import Random
from types import ModuleType
from typing import Any

import pytest

from islands.backup import back_up, restore
from islands.compaction import compact
from islands.database import StoreError
from islands.integrity import examine
from islands.merge import merge_databases
from islands.migrations import CHECKSUMMED
from islands.store import Store, open_store

WORDS = ["tile", "shared", "float4", "register", "warp", "unroll", "bank", "conflict", "coalesced", "occupancy"]


def prose(number: int, words: int = 600) -> str:
    rng = Random(number)
    return " ".join(rng.choice(WORDS) for _ in range(words))


def fill(path: Path, make: ModuleType, count: int = 12) -> None:
    """A run whose prompts, replies and logs are long."""
    with open_store(path) as store:
        store.create_run(make.run())
        for number in range(count):
            candidate = make.candidate(number, source=f"x = {number}\n", parent_ids=parents(number))
            told = make.evaluation(candidate, 1.0 + number / 10, log=prose(number))
            make.record(store, make.run(), make.Evaluated(candidate, told))
            talk(store, make, 100 + number)
        store.add_event("run00000", "noted", {"count": count})


def parents(number: int) -> tuple[str, ...]:
    return (f"run00000-{number - 4:06d}",) if number >= 4 else ()


def talk(store: Store, make: ModuleType, number: int) -> None:
    store.open_attempt("run00000", number, number % 4, "diff")
    messages = ({"role": "system", "content": prose(0)}, {"role": "user", "content": prose(number)})
    store.open_request("run00000", make.request(number, messages=messages))
    store.add_reply("run00000", number, 0, make.reply(prose(number % 5)) | {"reasoning": prose(number + 1)})


def content(path: Path) -> list[Any]:
    """All that a store says of its run."""
    with open_store(path, read_only=True) as store:
        of_run = (store.history, store.attempts, store.turns, store.events, store.counts, store.spent)
        return [store.runs(), store.top(limit=100), *(function("run00000") for function in of_run)]


@pytest.fixture
def full(path: Path, make: ModuleType) -> Path:
    fill(path, make)
    return path


def spoil(path: Path, *statements: str) -> None:
    """Changes rows behind the triggers' back, as a damaged disk might."""
    with closing(sqlite3.connect(path, isolation_level=None)) as raw:
        for (name,) in raw.execute("SELECT name FROM sqlite_schema WHERE type = 'trigger'").fetchall():
            sql = raw.execute("SELECT sql FROM sqlite_schema WHERE name = ?", [name]).fetchone()[0]
            raw.execute(f"DROP TRIGGER {name}")
            statements = (*statements, sql)
        for statement in statements:
            raw.execute(statement)


SPOILS = {
    "UPDATE sources SET source = source || ' ' WHERE rowid = 3": "a row of sources does not fit its sha256",
    "UPDATE problems SET source = source || ' '": "a row of problems does not fit its sha256",
    "UPDATE evaluations SET document = json_set(document, '$.speedup', 9) WHERE id = 3": "evaluations does not fit",
    "UPDATE evaluations SET device = 'cuda' WHERE id = 3": "evaluations .* does not fit its checksum",
    "DELETE FROM tellings WHERE position = 3": "12 tellings|11 tellings at positions 0 to 11, expected 0 to 10",
    "DELETE FROM tellings WHERE position = 11": "evaluation 12 of run run00000 belongs to no candidate",
    "DELETE FROM candidates WHERE number = 11": "refers to a missing row of candidates",
    "UPDATE tellings SET evaluation_id = 1 WHERE position = 3": "was told evaluation 1, of another program",
    "UPDATE candidates SET rationale = 'better' WHERE number = 3": r"candidates \(.*number 3\) does not fit its check",
    "UPDATE replies SET text = 'no' WHERE number = 103": r"replies .*number 103.* does not fit its checksum",
    "UPDATE parents SET position = 7 WHERE candidate_id = 'run00000-000009'": "parents at positions 7 to 7",
    "UPDATE parents SET parent_id = 'run00000-000011' WHERE candidate_id = 'run00000-000009'": "older than its parent",
    "DROP INDEX tellings_of_evaluations": "index tellings_of_evaluations is missing",
    "UPDATE candidates SET number = 700 WHERE number = 3": "attempt 3 .* gave a candidate that is not there",
}


@pytest.mark.parametrize("statement", SPOILS)
def test_a_changed_or_missing_row_is_found_and_named(full, statement):
    assert examine(full).findings == ()
    spoil(full, statement)
    found = examine(full).findings
    assert any(re.search(SPOILS[statement], text) for text in found), found


def test_a_missing_trigger_is_found(full):
    with closing(sqlite3.connect(full, isolation_level=None)) as raw:
        raw.execute("DROP TRIGGER candidates_no_update")
    assert examine(full).findings == ("trigger candidates_no_update is missing or was changed",)


def test_what_others_add_to_the_file_is_no_damage(full):
    with closing(sqlite3.connect(full, isolation_level=None)) as raw:
        raw.execute("CREATE VIEW mine AS SELECT * FROM runs")
        raw.execute("CREATE TABLE notes (text TEXT)")
    assert examine(full).findings == ()


def test_many_findings_of_one_kind_are_counted(full):
    spoil(full, "UPDATE candidates SET rationale = 'better'")
    found = examine(full).findings
    assert len(found) == 6 and found[-1] == "and 7 more of this kind"


@pytest.mark.parametrize("table", CHECKSUMMED)
def test_every_table_with_a_checksum_has_one_in_every_row(full, make, table):
    with open_store(full) as store:
        make.converse(store, "run00000", 200)
    with closing(sqlite3.connect(full)) as raw:
        assert raw.execute(f"SELECT count(*), count(checksum) FROM {table}").fetchone() >= (1, 1)
        assert raw.execute(f"SELECT count(*) FROM {table} WHERE checksum IS NULL").fetchone() == (0,)


def test_the_state_of_leases_is_told(full, fork, children):
    child = fork(children.hold, full)
    child.said.readline()
    assert f"held by process {child.pid}" in examine(full).notes[0] and "which lives" in examine(full).notes[0]
    child.kill()
    child.end()
    assert "which is dead: the run is free" in examine(full).notes[0]


def test_compaction_makes_the_file_smaller_and_forgets_nothing(full):
    before = content(full)
    done = compact(full)
    assert done.texts > 30 and done.is_shrunk and done.after_bytes < 0.7 * done.before_bytes
    assert content(full) == before
    assert examine(full).findings == ()


def test_equal_texts_are_kept_once(full):
    compact(full)
    with closing(sqlite3.connect(full)) as raw:
        assert raw.execute("SELECT count(*), count(DISTINCT text_pack) FROM replies").fetchone() == (12, 5)


def test_compacting_again_packs_only_what_is_new(full, make):
    compact(full)
    assert compact(full).texts == 0
    with open_store(full) as store:
        talk(store, make, 300)
    assert compact(full).texts >= 2


def test_a_compacted_file_is_still_append_only_and_its_figures_are_still_there_for_sql(full):
    compact(full)
    with closing(sqlite3.connect(full)) as raw:
        with pytest.raises(sqlite3.IntegrityError, match="append-only"):
            raw.execute("UPDATE requests SET model = 'x'")
        figures = raw.execute("SELECT speedup, json_extract(document, '$.kernel_ms') FROM evaluations ORDER BY id")
        assert figures.fetchone() == (1.0, 1.0)


def test_a_run_at_work_keeps_the_file_from_shrinking_but_not_from_packing(full):
    with open_store(full) as store, store.lease("run00000"):
        done = compact(full)
        assert done.texts > 30 and not done.is_shrunk
        store.add_event("run00000", "after", {})
    assert compact(full).is_shrunk


def test_a_damaged_pack_is_found_and_reading_it_is_an_error_that_says_so(full):
    compact(full)
    spoil(full, "UPDATE packs SET body = zeroblob(60)")
    assert "a compressed text is damaged" in examine(full).findings[0]
    with open_store(full, read_only=True) as store, pytest.raises(StoreError, match=r"kb\.db is corrupt"):
        store.history("run00000")


def test_compacted_and_plain_copies_of_one_run_are_the_same_run_to_a_merge(full, make):
    plain = full.with_name("plain.db")
    back_up(full, plain)
    compact(full)
    assert merge_databases(full, plain).unchanged == ("demo",)
    assert merge_databases(plain, full).unchanged == ("demo",)
    fresh = full.with_name("fresh.db")
    merge_databases(fresh, full)
    assert content(fresh) == content(full) and examine(fresh).findings == ()


def test_the_same_evaluation_is_known_after_compaction(full, make):
    compact(full)
    with open_store(full) as store:
        candidate = make.candidate(3)
        assert store.find_evaluation(make.key(candidate)).log == prose(3)


def test_a_backup_made_while_another_process_writes_is_whole_and_goes_on(path, make, fork, children):
    with open_store(path) as store:
        store.create_run(make.run())
    child = fork(children.search, path)
    for _ in range(30):
        child.said.readline()
    made = back_up(path, path.with_name("copy.db"))
    child.kill()
    child.end()
    assert made.rows["tellings"] >= 9 and examine(made.path).findings == ()
    assert sorted(file.name for file in path.parent.iterdir() if "copy" in file.name) == ["copy.db"]
    with open_store(path) as store, open_store(made.path) as copy:
        history = copy.history("run00000")
        assert store.history("run00000")[: len(history)] == history
        with copy.lease("run00000"):
            make.record(copy, make.run(), make.evaluated(copy.next_number("run00000"), 2.0))


def test_a_backup_never_replaces_a_file(full):
    full.with_name("copy.db").write_text("mine")
    with pytest.raises(StoreError, match=r"copy\.db exists"):
        back_up(full, full.with_name("copy.db"))
    assert full.with_name("copy.db").read_text() == "mine"


def test_a_backup_of_a_damaged_file_is_refused_and_leaves_nothing(full):
    spoil(full, "UPDATE sources SET source = '' WHERE rowid = 3")
    with pytest.raises(StoreError, match="does not fit its sha256"):
        back_up(full, full.with_name("copy.db"))
    assert [file.name for file in full.parent.iterdir() if "copy" in file.name] == []


def test_a_restored_backup_takes_the_place_of_a_damaged_file_and_of_its_log(full, make):
    back_up(full, full.with_name("copy.db"))
    expected = content(full)
    full.write_bytes(b"\xa5" * 40960)
    Path(f"{full}-wal").write_bytes(b"\xa5" * 4096)
    _, aside = restore(full.with_name("copy.db"), full)
    assert [file.name for file in aside] == [f"kb.db.replaced-1{suffix}" for suffix in ("", "-wal", "-shm")]
    assert content(full) == expected
    with open_store(full) as store:
        make.record(store, make.run(), make.evaluated(500, 1.0))


def test_a_damaged_backup_is_not_restored(full):
    copy = full.with_name("copy.db")
    back_up(full, copy)
    spoil(copy, "UPDATE sources SET source = '' WHERE rowid = 3")
    before = full.read_bytes()
    with pytest.raises(StoreError, match="Restore from another backup"):
        restore(copy, full)
    assert full.read_bytes() == before


def test_a_file_that_a_living_process_holds_is_not_replaced(full, fork, children):
    back_up(full, full.with_name("copy.db"))
    child = fork(children.hold, full)
    child.said.readline()
    with pytest.raises(StoreError, match=f"held by process {child.pid}"):
        restore(full.with_name("copy.db"), full)


def test_a_restore_that_was_killed_after_it_moved_the_old_file_is_completed_by_the_same_call(full):
    back_up(full, full.with_name("copy.db"))
    expected = content(full)
    full.rename(full.with_name("kb.db.replaced-1"))
    Path(f"{full}-wal").write_bytes(b"\xa5" * 4096)
    restore(full.with_name("copy.db"), full)
    assert content(full) == expected and not Path(f"{full}-wal").exists()
