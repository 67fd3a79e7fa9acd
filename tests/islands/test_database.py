"""Every file that is not safe to use is refused with one paragraph, and is left as it was."""

from __future__ import annotations

import contextlib
import os
import re
import sqlite3
import subprocess
from pathlib import Path
from typing import Any

import pytest
from sqlite_utils import Database

from islands import database
from islands.database import NETWORK_FILE_SYSTEMS, StoreError, file_system
from islands.migrations import APPLICATION_ID, MIGRATIONS, SCHEMA_VERSION
from islands.store import open_store

NOBODY = 65534


def filled(path: Path, make: Any, candidates: int = 40) -> bytes:
    """The bytes of a closed database with some candidates."""
    with open_store(path) as store:
        store.create_run(make.run())
        for number in range(candidates):
            make.record(store, make.run(), make.evaluated(number, 1.5, source=f"x = {number}\n" * 100))
    return path.read_bytes()


def refusal(path: Path, read_only: bool = False) -> str:
    with pytest.raises(StoreError) as caught:
        open_store(path, read_only)
    text = str(caught.value)
    assert str(path.name) in text and "\n" not in text, text
    return text


def test_a_new_file_is_marked_as_ours_at_the_current_version(path):
    open_store(path).close()
    with sqlite3.connect(path) as raw:
        assert raw.execute("PRAGMA application_id").fetchone() == (APPLICATION_ID,)
        assert raw.execute("PRAGMA user_version").fetchone() == (SCHEMA_VERSION,)
        assert raw.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_an_open_store_writes_ahead_and_waits_for_the_disk(store):
    values = {name: store._db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("synchronous", "foreign_keys")}
    assert values == {"synchronous": 2, "foreign_keys": 1}


def test_a_file_that_another_process_is_making_is_not_taken_for_another_programs(path, monkeypatch):
    monkeypatch.setattr(database, "BUSY_TIMEOUT_S", 0.05)

    def interfere(sql: str, _: object) -> None:
        if "sqlite_schema" in sql:
            with contextlib.suppress(StoreError):
                open_store(path).close()

    db = Database(sqlite3.connect(path, isolation_level=None))
    with db.tracer(interfere):
        assert database._version(db, path) in (0, SCHEMA_VERSION)


def test_an_empty_file_becomes_a_database(path):
    path.touch()
    with open_store(path) as store:
        assert store.runs() == []


def test_a_path_with_odd_characters_is_taken_literally(path, make):
    odd = path.parent / "a b?mode=memory#%41'\u00fc.db"
    filled(odd, make, candidates=1)
    assert odd.exists() and not (path.parent / "a b").exists()
    with open_store(odd, read_only=True) as store:
        assert len(store.history("run00000")) == 1


@pytest.mark.parametrize("read_only", [False, True])
def test_a_newer_version_is_refused_and_left_alone(path, make, read_only):
    filled(path, make)
    with sqlite3.connect(path) as raw:
        raw.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    raw.close()
    before = path.read_bytes()
    text = refusal(path, read_only)
    assert f"schema version {SCHEMA_VERSION + 1}" in text and "Update kb_evolve" in text
    assert path.read_bytes() == before


@pytest.mark.parametrize("read_only", [False, True])
def test_another_programs_database_is_refused_and_left_alone(path, read_only):
    with sqlite3.connect(path) as raw:
        raw.execute("CREATE TABLE bookmarks (url TEXT)")
    raw.close()
    before = path.read_bytes()
    assert "another program" in refusal(path, read_only)
    assert path.read_bytes() == before
    assert [file.name for file in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize("content", [b"# a text file that somebody named .db\n", b"x", b"SQLite format 2\0" * 8])
@pytest.mark.parametrize("read_only", [False, True])
def test_a_file_that_is_no_database_is_refused_and_left_alone(path, content, read_only):
    path.write_bytes(content)
    assert "not a SQLite database" in refusal(path, read_only)
    assert path.read_bytes() == content


def test_a_file_with_garbage_in_its_pages_is_refused(path, make):
    content = bytearray(filled(path, make))
    assert len(content) > 16 * 4096
    content[4 * 4096 :] = b"\xa5" * (len(content) - 4 * 4096)
    path.write_bytes(content)
    text = refusal(path)
    assert "corrupt" in text and ".recover" in text


def test_a_truncated_file_is_refused(path, make):
    content = filled(path, make)
    path.write_bytes(content[: len(content) // 2])
    assert "corrupt" in refusal(path)


def test_garbage_behind_a_good_header_is_refused(path):
    path.write_bytes(database.MAGIC + b"\xa5" * 8192)
    assert "corrupt" in refusal(path)


def test_reading_a_damaged_page_is_an_error_that_names_the_file(path, make):
    content = bytearray(filled(path, make))
    content[4 * 4096 :] = b"\xa5" * (len(content) - 4 * 4096)
    path.write_bytes(content)
    with pytest.raises(StoreError, match=r"kb\.db is corrupt"), open_store(path, read_only=True) as store:
        store.history("run00000")


def test_a_folder_is_refused(path):
    path.mkdir()
    assert "is a folder" in refusal(path)


def test_a_folder_that_does_not_exist_is_refused_and_not_made(path):
    assert "does not exist" in refusal(path / "kb.db")
    assert not path.exists()


def test_reading_what_does_not_exist_is_refused_and_makes_nothing(path):
    assert "there is no database" in refusal(path, read_only=True)
    assert not path.exists()


def test_a_pipe_is_refused_without_waiting_for_its_writer(path):
    os.mkfifo(path)
    assert "not a regular file" in refusal(path)


@pytest.fixture
def as_nobody(fork, children):
    """What opening says to a user without rights to anything."""
    user_id = NOBODY if os.getuid() == 0 else 0
    return lambda path, read_only: fork(children.refused, path, read_only, user_id).end().strip()


def test_a_read_only_file_is_refused_for_writing(path, make, as_nobody):
    filled(path, make, candidates=1)
    path.parent.chmod(0o777)
    path.chmod(0o444)
    assert re.match(r"StoreError .*kb\.db is read-only for this user", as_nobody(path, read_only=False))


def test_a_read_only_folder_is_refused_for_writing(path, make, as_nobody):
    filled(path, make, candidates=1)
    path.chmod(0o666)
    path.parent.chmod(0o555)
    assert re.match(r"StoreError the folder .* is read-only", as_nobody(path, read_only=False))


def test_a_file_without_rights_is_refused_for_reading(path, make, as_nobody):
    filled(path, make, candidates=1)
    path.parent.chmod(0o755)
    path.chmod(0o000)
    assert re.match(r"StoreError .*cannot be read: Permission denied", as_nobody(path, read_only=True))


def test_a_folder_that_may_not_be_entered_is_refused(path, make, as_nobody):
    filled(path, make, candidates=1)
    path.parent.chmod(0o700)
    if os.getuid() != 0:
        path.parent.chmod(0o000)
    assert re.match(r"StoreError .*kb\.db cannot be reached: .*Permission denied", as_nobody(path, read_only=True))
    path.parent.chmod(0o700)


def test_a_name_that_no_file_system_takes_is_refused(path):
    assert "cannot be reached" in refusal(path.parent / ("x" * 300))


def test_a_writer_that_never_ends_is_an_error_after_the_wait(store, path):
    store._db.execute("PRAGMA busy_timeout = 10")
    with sqlite3.connect(path, isolation_level=None) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreError, match=r"kb\.db.*SQLITE_BUSY.*another process has held the write lock"):
            store.add_event("run00000", "note", {})
        other.execute("ROLLBACK")
    store.add_event("run00000", "note", {})
    assert len(store.events("run00000")) == 1


def test_a_closed_database_in_a_read_only_folder_can_be_read(path, make, as_nobody):
    filled(path, make, candidates=1)
    path.chmod(0o444)
    path.parent.chmod(0o555)
    assert as_nobody(path, read_only=True) == "opened"


MOUNTS = """\
22 1 254:0 / / rw,relatime - ext4 /dev/vda rw
30 22 0:21 / /home rw,relatime shared:2 - nfs4 server:/home rw,vers=4.2
31 30 0:22 / /home/local rw - xfs /dev/vdb rw
32 22 0:23 / /mnt/with\\040space rw shared:9 master:3 - nfs server:/x rw
33 22 0:24 / /data rw - nfs server:/data rw
34 22 0:25 / /data rw - ext4 /dev/vdc rw
broken line
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/var/kb.db", "ext4"),
        ("/home/me/kb.db", "nfs4"),
        ("/homestead/kb.db", "ext4"),
        ("/home/local/kb.db", "xfs"),
        ("/mnt/with space/kb.db", "nfs"),
        ("/data/kb.db", "ext4"),
    ],
)
def test_the_file_system_is_that_of_the_innermost_visible_mount(path, kind):
    assert file_system(Path(path), MOUNTS) == kind


def test_an_unknown_mount_table_says_nothing():
    assert file_system(Path("/var/kb.db"), "") == ""


def test_this_machines_root_has_a_file_system():
    assert file_system(Path("/"), Path("/proc/self/mountinfo").read_text()) != ""


@pytest.mark.parametrize("kind", sorted(NETWORK_FILE_SYSTEMS))
def test_a_network_file_system_is_refused(path, monkeypatch, kind):
    line = f"30 22 0:21 / {path.parent} rw - {kind} server:/x rw"
    monkeypatch.setattr(database, "_mounts", lambda: f"22 1 254:0 / / rw - ext4 /dev/vda rw\n{line}\n")
    assert f"network file system ({kind})" in refusal(path)
    assert not path.exists()


def older(path: Path, make: Any) -> None:
    """A database of version 1 that holds the run `demo`."""
    db = Database(sqlite3.connect(path, isolation_level=None))
    MIGRATIONS.apply(db, stop_before="0002_leases")
    db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    db.execute("PRAGMA user_version = 1")
    run = make.run()
    db.execute("INSERT INTO problems VALUES (?, ?)", [run.problem_sha256, run.problem_source])
    db.execute(
        "INSERT INTO runs VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        [
            *(run.id, run.name, run.problem_id, run.problem_sha256, run.backend, run.device, run.precision),
            *('{"population":{"islands":4,"axes":["size"]}}', run.seed, '{"evaluations":60}'),
            *(run.git_commit, run.started_at),
        ],
    )
    db.close()


def test_an_older_version_is_migrated_in_place_and_keeps_its_runs(path, make):
    older(path, make)
    with open_store(path) as store:
        assert store.runs() == [make.run()]
        with store.lease("run00000"):
            make.record(store, make.run(), make.evaluated(0, 1.5))
        assert store.check() == []
    with sqlite3.connect(path) as raw:
        assert raw.execute("PRAGMA user_version").fetchone() == (SCHEMA_VERSION,)


def test_an_older_version_is_not_migrated_by_a_reader(path, make):
    older(path, make)
    assert "Open it once for writing" in refusal(path, read_only=True)
    with sqlite3.connect(path) as raw:
        assert raw.execute("PRAGMA user_version").fetchone() == (1,)


def test_a_full_disk_is_an_error_that_keeps_what_was_acknowledged(path, make):
    with open_store(path) as store:
        store.create_run(make.run())
        store._db.execute(f"PRAGMA max_page_count = {store._db.execute('PRAGMA page_count').fetchone()[0] + 20}")
        kept = 0
        with pytest.raises(StoreError, match=r"kb\.db.*SQLITE_FULL.*the disk is full"):
            for kept in range(1000):
                store.add_candidate("run00000", make.candidate(kept, source=f"x = {kept}\n" * 200))
        assert len(store.pending("run00000")) == kept > 0
        store._db.execute("PRAGMA max_page_count = 100000")
        store.add_candidate("run00000", make.candidate(kept, source=f"x = {kept}\n" * 200))
        assert store.check() == []


def test_a_real_full_disk_is_an_error_that_keeps_what_was_acknowledged(tmp_path, make):
    small = tmp_path / "small"
    small.mkdir()
    mount = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=512k", "tmpfs", small], capture_output=True)
    if mount.returncode != 0:
        pytest.skip(f"needs the right to mount a tmpfs: {mount.stderr.decode().strip()}")
    try:
        with open_store(small / "kb.db") as store:
            store.create_run(make.run())
            kept = 0
            with pytest.raises(StoreError, match=r"kb\.db"):
                for kept in range(1000):
                    store.add_candidate("run00000", make.candidate(kept, source=f"x = {kept}\n" * 200))
            assert [one.number for one in store.pending("run00000")] == list(range(kept))
            assert kept > 0
        with open_store(small / "kb.db", read_only=True) as store:
            assert len(store.pending("run00000")) == kept
    finally:
        subprocess.run(["umount", "-l", small], check=True)


def test_a_failing_write_is_an_error_that_keeps_what_was_acknowledged(closed, fork, children):
    said = fork(children.limited, closed, 300_000).end()
    kept, text = said.split(" ", 1)
    assert re.search(r"kb\.db: .*\(SQLITE_(IOERR|FULL)\)", text), text
    with open_store(closed) as store:
        assert [one.number for one in store.pending("run00000")] == list(range(int(kept)))
        assert int(kept) > 0 and store.check() == []
