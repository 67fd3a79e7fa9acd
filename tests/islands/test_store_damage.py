"""Files that a disk has damaged: flipped bytes and torn logs are seen and named, and a backup restores."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any

import pytest

from islands.backup import back_up, restore
from islands.compaction import compact
from islands.database import StoreError
from islands.integrity import examine
from islands.population import Population, PopulationConfig
from islands.store import open_store
from islands.wal import unfinished_bytes, wal_note

FLIPS = 50
CUTS = 15


def content(path: Path) -> list[Any]:
    with open_store(path, read_only=True) as store:
        of_run = (store.history, store.attempts, store.turns, store.events, store.counts, store.spent)
        return [store.runs(), *(function("run00000") for function in of_run)]


@pytest.fixture
def filled(path, make):
    """A closed file with packed and plain texts, without free pages."""
    with open_store(path) as store:
        store.create_run(make.run())
        for number in range(16):
            candidate = make.candidate(number, source=f"x = {number}\n" * 60, rationale=f"because {number}" * 20)
            log = "no such tile\n" * 80 + str(number)
            told = make.Evaluated(candidate, make.evaluation(candidate, 1 + number, log=log))
            make.record(store, make.run(), told)
            make.converse(store, "run00000", 100 + number)
            store.add_event("run00000", "noted", {"number": number})
    compact(path)
    return path


def test_a_flipped_byte_is_found_or_changes_nothing_that_is_read(filled):
    """Unused bytes of a page, counters of the header and migration dates are all that may differ unseen."""
    whole, expected = filled.read_bytes(), content(filled)
    rng = Random(5)
    seen = 0
    for place in (rng.randrange(100, len(whole)) for _ in range(FLIPS)):
        spoiled = bytearray(whole)
        spoiled[place] ^= 1 << rng.randrange(8)
        filled.write_bytes(spoiled)
        try:
            found = examine(filled).findings
        except StoreError as error:
            assert "kb.db" in str(error)
            found = (str(error),)
        seen += bool(found)
        assert found or content(filled) == expected, f"byte {place} of {len(whole)} was changed unseen"
    assert seen > FLIPS / 5


def test_a_flipped_page_is_named_and_a_backup_puts_all_back(filled):
    expected = content(filled)
    back_up(filled, filled.with_name("copy.db"))
    spoiled = bytearray(filled.read_bytes())
    for place in range(5 * 4096, 6 * 4096):
        spoiled[place] ^= 0xFF
    filled.write_bytes(spoiled)
    try:
        assert examine(filled).findings
    except StoreError as error:
        assert "kb-evolve db restore" in str(error)
    restore(filled.with_name("copy.db"), filled)
    assert content(filled) == expected and examine(filled).findings == ()


@pytest.fixture
def killed(path, make, fork, children):
    """A file whose writer was killed, with the log that it left; the candidates that were acknowledged, in order."""
    with open_store(path) as store:
        store.create_run(make.run())
    child = fork(children.search, path)
    lines = [child.said.readline() for _ in range(60)]
    child.kill()
    lines += [line for line in child.end().splitlines(keepends=True) if line.endswith("\n")]
    return path, [int(line.split()[1]) for line in lines if line.startswith("told")]


def test_a_log_torn_at_any_byte_leaves_a_whole_beginning_of_the_history(killed, tmp_path):
    """What the log lost is gone, as no other copy of it exists; what is left is whole, and a replay builds on it."""
    path, acknowledged = killed
    log = Path(f"{path}-wal")
    size = log.stat().st_size
    rng = Random(9)
    lengths, noted = set(), 0
    for cut in (rng.randrange(size) for _ in range(CUTS)):
        torn = path.with_name("torn.db")
        shutil.copy(path, torn)
        Path(f"{torn}-wal").write_bytes(log.read_bytes()[:cut])
        noted += bool(wal_note(torn))
        with open_store(torn) as store:
            assert store.check() == []
            told = [one.candidate.number for one in store.history("run00000")]
            assert told == acknowledged[: len(told)] or told[: len(acknowledged)] == acknowledged
            population = Population(PopulationConfig(), "run00000", 7)
            for one in store.history("run00000"):
                population.tell(one)
            lengths.add(len(told))
        for suffix in ("", "-wal", "-shm"):
            Path(f"{torn}{suffix}").unlink(missing_ok=True)
    assert len(lengths) > 3 and noted > CUTS / 2


def test_a_whole_log_gives_no_note_and_a_damaged_one_does(killed):
    path, _ = killed
    log = Path(f"{path}-wal")
    content = log.read_bytes()[: log.stat().st_size - unfinished_bytes(log)]
    log.write_bytes(content)
    assert wal_note(path) == "" and len(content) > 32
    for cut in (1, 4096, 5000):
        log.write_bytes(content[:-cut])
        assert "ends inside a transaction" in wal_note(path)
    for place in (3, 33, len(content) // 2, len(content) - 9):
        spoiled = bytearray(content)
        spoiled[place] ^= 1
        log.write_bytes(spoiled)
        assert unfinished_bytes(log) > 0, place


def test_frames_that_an_earlier_use_of_the_log_left_are_no_finding(store, path, make):
    make.record(store, make.run(), make.evaluated(0, 1.5, source="x = 0\n" * 2000))
    store._db.execute("PRAGMA wal_checkpoint(RESTART)")
    store.add_event("run00000", "after", {})
    assert Path(f"{path}-wal").stat().st_size > 10 * 4096 and wal_note(path) == ""


def test_reading_a_damaged_file_asks_to_look_at_it_first(filled):
    filled.write_bytes(filled.read_bytes()[:8192])
    with pytest.raises(StoreError, match="kb-evolve db check"), open_store(filled):
        pass


def test_eight_processes_that_write_at_once_lose_nothing(path, make, fork, children):
    names = [("run00000", "demo"), ("run00001", "other")]
    with open_store(path) as store:
        for run_id, name in names:
            store.create_run(make.run(run_id, name))
    started = [fork(children.append, path, 25 * part, 25 * part + 25, name) for part in range(4) for _, name in names]
    for child in started:
        child.end()
        assert child.status == 0
    with open_store(path) as store:
        for run_id, _ in names:
            assert sorted(one.candidate.number for one in store.history(run_id)) == list(range(100))
            assert store.counts(run_id).told == 100
        assert store.check() == []
    with closing(sqlite3.connect(path)) as raw:
        assert raw.execute("SELECT count(*) FROM evaluations").fetchone() == (50,)


def test_compaction_and_backups_beside_writers_lose_nothing(path, make, fork, children):
    with open_store(path) as store:
        store.create_run(make.run())
    writers = [fork(children.append, path, 40 * part, 40 * part + 40, "demo") for part in range(2)]
    for number in range(3):
        compact(path)
        back_up(path, path.with_name(f"copy{number}.db"))
    for writer in writers:
        writer.end()
        assert writer.status == 0
    with open_store(path) as store:
        assert sorted(one.candidate.number for one in store.history("run00000")) == list(range(80))
        assert store.check() == []
