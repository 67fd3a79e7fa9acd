"""`kb-evolve db`: the file is checked, backed up, restored, compacted and exported from the command line."""

from __future__ import annotations

import hashlib
import json
import sqlite3
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from fitness.evaluation import Evaluation, Verdict
from islands.candidate import Candidate
from islands.database import StoreError
from islands.run import Run
from islands.store import open_store
from kb_evolve.commands.database import database
from kb_evolve.config import ConfigError
from kb_evolve.doctor import check_database

PROBLEM = "class Model: ...\n"
SHA256 = hashlib.sha256(PROBLEM.encode()).hexdigest()
RUN = Run(
    "run00000", "demo", "rmsnorm", SHA256, PROBLEM, "cpp", "cpu", "fp32", {"islands": 2}, 7, {}, "0" * 40, "2026-01-01"
)


@pytest.fixture
def db(tmp_path: Path) -> Path:
    path = tmp_path / "kb.db"
    with open_store(path) as store:
        store.create_run(RUN)
        for number in range(4):
            source = f"x = {number}\n"
            candidate = Candidate(f"run00000-{number:06d}", number, 0, 0, "cpp", source, mutator="tune")
            store.open_attempt(RUN.id, number, 0, "tune")
            store.add_candidate(RUN.id, candidate)
            store.close_attempt(RUN.id, number, "candidate")
            evaluation = Evaluation(
                Verdict.WRONG_RESULT,
                "wrong in 3 places",
                "rmsnorm",
                "cpp",
                candidate.source_sha256,
                max_abs_err=float("inf"),
                log="error: tile\n" * 400,
            )
            store.add_evaluation(
                RUN.id, candidate.id, evaluation, (candidate.source_sha256, SHA256, "cpu", "fp32", "1")
            )
        store.add_event(RUN.id, "noted", {"loss": float("nan")})
    return path


def call(*arguments: Any) -> Result:
    return CliRunner().invoke(database, [str(one) for one in arguments], catch_exceptions=False)


def damage(db: Path) -> None:
    with closing(sqlite3.connect(db, isolation_level=None)) as raw:
        raw.execute("DROP TRIGGER sources_no_update")
        raw.execute("UPDATE sources SET source = 'x = 7'")


def test_check_says_that_all_is_whole(db):
    answer = call("check", "--db", db)
    assert answer.exit_code == 0 and "is whole: 1 run, 4 candidates, 4 evaluations" in answer.output
    assert json.loads(call("check", "--db", db, "--json").output)["rows"]["tellings"] == 4


def test_check_answers_no_to_a_damaged_file_and_names_what_to_do(db):
    damage(db)
    answer = call("check", "--db", db)
    assert answer.exit_code == 1
    assert "NO  trigger sources_no_update is missing" in answer.output and "kb-evolve db restore" in answer.output
    row = check_database(str(db))
    assert not row.is_fine and "damaged" in row.found and "kb-evolve db restore" in row.advice


def test_a_backup_restores_what_was_damaged_later(db, tmp_path):
    assert call("backup", tmp_path / "copy.db", "--db", db).exit_code == 0
    damage(db)
    answer = call("restore", tmp_path / "copy.db", "--db", db)
    assert answer.exit_code == 0 and "kb.db.replaced-1" in answer.output
    assert call("check", "--db", db).exit_code == 0
    assert call("check", "--db", tmp_path / "kb.db.replaced-1").exit_code == 1


def test_compact_says_what_it_saved(db):
    found = json.loads(call("compact", "--db", db, "--json").output)
    assert found["texts"] == 4 and found["packed_bytes"] < found["text_bytes"] and found["is_shrunk"]
    assert call("check", "--db", db).exit_code == 0
    assert "0 texts" in call("compact", "--db", db).output


@pytest.mark.parametrize("is_compacted", [False, True])
def test_json_lines_hold_every_row_and_no_number_that_json_cannot_write(db, tmp_path, is_compacted):
    if is_compacted:
        call("compact", "--db", db)
    call("export", "--format", "jsonl", "--out", tmp_path / "out", "--db", db)
    tables = {
        file.stem: [json.loads(line, parse_constant=pytest.fail) for line in file.read_text().splitlines()]
        for file in (tmp_path / "out").iterdir()
    }
    assert {name: len(rows) for name, rows in tables.items()} == {
        "runs": 1,
        "candidates": 4,
        "attempts": 4,
        "turns": 0,
        "events": 1,
    }
    first = tables["candidates"][0]
    assert (first["run"], first["source"], first["verdict"], first["max_abs_err"]) == (
        "run00000",
        "x = 0\n",
        "wrong_result",
        None,
    )
    assert first["log"].startswith("error: tile") and tables["events"][0]["fields"] == {"loss": None}


def test_parquet_holds_the_same_rows_with_their_types(db, tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    call("export", "demo", "--format", "parquet", "--out", tmp_path / "out", "--db", db)
    table = parquet.read_table(tmp_path / "out" / "candidates.parquet")
    assert table.num_rows == 4 and table.column("max_abs_err").to_pylist() == [float("inf")] * 4
    assert str(table.schema.field("kernel_ms").type) == "double"
    assert parquet.read_table(tmp_path / "out" / "turns.parquet").num_rows == 0
    assert json.loads(parquet.read_table(tmp_path / "out" / "runs.parquet").column("config")[0].as_py()) == {
        "islands": 2
    }


def test_parquet_without_pyarrow_says_what_to_install(db, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ConfigError, match=r"pip install pyarrow.*jsonl"):
        call("export", "--format", "parquet", "--out", tmp_path / "out", "--db", db)
    assert not (tmp_path / "out").exists()


def test_exporting_a_run_that_is_not_there_names_those_that_are(db, tmp_path):
    with pytest.raises(StoreError, match="its runs: demo"):
        call("export", "other", "--format", "jsonl", "--out", tmp_path / "out", "--db", db)
