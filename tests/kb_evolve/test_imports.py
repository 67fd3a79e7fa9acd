"""`kb-evolve import` from the outside: what it says, its JSON, its exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from fitness.replay import Landscape, Replay
from islands.store import open_store
from kb_evolve.cli import add_commands, cli
from kb_evolve.search import Search
from problems.problem import Problem

add_commands()


def kb(*arguments: str | Path) -> Result:
    return CliRunner().invoke(cli, [str(argument) for argument in arguments])


@pytest.fixture
def files(tmp_path: Path, toy_problem: Problem) -> tuple[Path, Path]:
    """Two databases that each searched the same problem under the same name."""
    paths = tmp_path / "ours.db", tmp_path / "theirs.db"
    for seed, path in enumerate(paths):
        Search(toy_problem, db=str(path), run="toy", workbench=Replay(Landscape()), evaluations=12, seed=seed).run()
    return paths


def test_an_imported_run_is_listed_and_shown_under_its_new_name(files: tuple[Path, Path]) -> None:
    ours, theirs = files
    result = kb("import", theirs, "--db", ours)
    assert result.exit_code == 0, result.output
    with open_store(theirs, read_only=True) as store:
        run = store.runs()[0]
        best = store.top(limit=1)[0].candidate.id
    assert f"new runs: toy@{run.id}" in result.stdout
    assert f"toy@{run.id} is toy there" in result.stdout
    assert f"toy@{run.id}" in kb("runs", "--db", ours).stdout
    assert best in kb("show", best, "--db", ours).stdout


def test_the_second_import_says_that_all_is_there(files: tuple[Path, Path]) -> None:
    ours, theirs = files
    kb("import", theirs, "--db", ours)
    assert "holds all of" in kb("import", theirs, "--db", ours).stdout
    again = json.loads(kb("import", theirs, "--db", ours, "--json").stdout)
    assert (again["added"], again["extended"], again["rows"]) == ([], [], {})
    assert len(again["unchanged"]) == 1


def test_an_imported_run_can_go_on_here(files: tuple[Path, Path], toy_problem: Problem) -> None:
    ours, theirs = files
    kb("import", theirs, "--db", ours)
    with open_store(theirs, read_only=True) as store:
        name = f"toy@{store.runs()[0].id}"
    bench = Replay(Landscape())
    outcome = Search(toy_problem, db=str(ours), run=name, workbench=bench, evaluations=16, seed=1).run()
    assert outcome.evaluations == 16


def test_a_run_that_went_on_in_both_files_ends_with_exit_code_2(files: tuple[Path, Path], toy_problem: Problem) -> None:
    ours, theirs = files
    kb("import", theirs, "--db", ours)
    with open_store(theirs, read_only=True) as store:
        name = f"toy@{store.runs()[0].id}"
    for path, run in ((ours, name), (theirs, "toy")):
        Search(toy_problem, db=str(path), run=run, workbench=Replay(Landscape()), evaluations=14, seed=1).run()
    before = kb("runs", "--db", ours, "--json").stdout
    result = kb("import", theirs, "--db", ours)
    assert result.exit_code == 2
    assert "conflict" in result.stderr and "nothing was changed" in result.stderr
    assert kb("runs", "--db", ours, "--json").stdout == before


def test_a_file_that_is_not_there_ends_with_exit_code_2(tmp_path: Path) -> None:
    result = kb("import", tmp_path / "none.db", "--db", tmp_path / "ours.db")
    assert result.exit_code == 2
    assert "there is no database at" in result.stderr
