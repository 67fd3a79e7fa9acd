"""docs/schema.md says what the tables are, and its queries give rows."""

from __future__ import annotations

import re
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from islands.compaction import compact
from islands.store import open_store

TEXT = (Path(__file__).parents[2] / "docs" / "schema.md").read_text()
QUERIES = re.findall(r"```sql\n(.*?)```", TEXT, re.DOTALL)
(WITH_INFLATE,) = re.findall(r"```sql\+inflate\n(.*?)```", TEXT, re.DOTALL)
(FUNCTION,) = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
(SHELL,) = re.findall(r'\$ sqlite3 kb_evolve.db "(.*?)"', TEXT)


@pytest.fixture
def filled(path, make):
    with open_store(path) as store:
        store.create_run(make.run())
        for number in range(6):
            candidate = make.candidate(number, parent_ids=(f"run00000-{number - 1:06d}",) if number else ())
            told = make.evaluation(candidate, 1.0 + number, log="tile\n" * 400)
            make.record(store, make.run(), make.Evaluated(candidate, told))
        make.converse(store, "run00000", 100)
        store.open_attempt("run00000", 101, 1, "diff")
        store.open_request("run00000", make.request(101))
        store.add_reply("run00000", 101, 0, make.reply("a long reply " * 200))
    compact(path)
    return path


def test_the_page_names_every_table_and_every_column_and_no_other(filled):
    with closing(sqlite3.connect(filled)) as raw:
        tables = [name for (name,) in raw.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
        schema = {
            table: {row[1] for row in raw.execute(f"PRAGMA table_xinfo({table})")}
            for table in tables
            if table != "_sqlite_migrations"
        }
    rows = re.findall(r"^\| `(\w+)` \| .*? \| (.*) \|$", TEXT.partition("## Tables")[2], re.MULTILINE)
    assert {table: set(re.findall(r"`(\w+)`", columns)) for table, columns in rows} == schema


@pytest.mark.parametrize("query", QUERIES)
def test_an_example_query_gives_rows(filled, query):
    with closing(sqlite3.connect(f"file:{filled}?mode=ro", uri=True)) as raw:
        assert raw.execute(query).fetchall()


def test_the_line_of_descent_goes_back_to_the_seed(filled):
    (query,) = (one for one in QUERIES if "RECURSIVE" in one)
    with closing(sqlite3.connect(filled)) as raw:
        assert [row[1] for row in raw.execute(query)] == [f"run00000-{number:06d}" for number in range(5, -1, -1)]


def test_sqlite_utils_reads_compressed_texts_with_the_function_of_the_page(filled):
    command = [
        sys.executable,
        "-m",
        "sqlite_utils",
        "query",
        str(filled),
        WITH_INFLATE,
        "--functions",
        FUNCTION,
        "--csv",
    ]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "a long reply a long reply" in said and "run00000,100,0,done" in said


def test_sqlites_own_shell_reads_compressed_texts(filled):
    shell = shutil.which("sqlite3")
    if shell is None:
        pytest.skip("needs sqlite3, the shell of SQLite")
    said = subprocess.run([shell, str(filled), SHELL], capture_output=True, text=True)
    if "no such function: sqlar_uncompress" in said.stderr:
        pytest.skip("this sqlite3 is built without zlib")
    assert "a long reply a long reply" in said.stdout, said.stderr
