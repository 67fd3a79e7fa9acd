"""A path on the command line that the file system refuses is bad input: one line that names it, exit code 2."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from fitness.replay import Replay
from kb_evolve.cli import add_commands, cli, explain, named_place
from kb_evolve.search import Search

add_commands()


@pytest.fixture(scope="module")
def database(memory_dir: Path) -> Path:
    path = memory_dir / "named-places.db"
    Search("softmax", workbench=Replay(), db=str(path), evaluations=4, run="night", islands=1).run()
    return path


@pytest.fixture
def never(monkeypatch: pytest.MonkeyPatch) -> None:
    """No baseline may be measured."""

    def refuse(config: object) -> None:
        raise AssertionError("minutes of measuring began before the path was looked at")

    monkeypatch.setattr("kb_evolve.judging.open_timer", refuse)


def kb(*arguments: str | Path) -> Result:
    return CliRunner().invoke(cli, [str(argument) for argument in arguments])


def assert_bad_input(result: Result, place: Path) -> None:
    assert result.exit_code == 2, result.output
    assert str(place) in result.stderr and "unexpected" not in result.stderr and result.stdout == ""


def test_a_baseline_file_that_cannot_be_written_is_refused_before_anything_is_measured(
    tmp_path: Path, database: Path, never: None
) -> None:
    for place in (tmp_path / "none" / "x.json", tmp_path, database):
        assert_bad_input(kb("baseline", "softmax", "--format", "kernelbench", "--fresh", "--out", place), place)
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("inside", ["", "below", "far/below"])
def test_a_report_cannot_go_where_a_file_is(tmp_path: Path, database: Path, inside: str) -> None:
    (tmp_path / "file").write_text("kept")
    place = tmp_path / "file" / inside
    for out in (["--out", str(place)], [f"--out={place}"]):
        assert_bad_input(kb("report", "night", "--db", database, *out), place)
    assert (tmp_path / "file").read_text() == "kept"


def test_an_error_with_a_file_that_nobody_named_stays_unexpected(tmp_path: Path) -> None:
    error = FileNotFoundError(2, "No such file or directory", "/var/lib/other")
    words = ("report", "night", "--out", str(tmp_path))
    assert named_place(error, words) == ""
    assert explain(error, words)[0] == 3 and "unexpected FileNotFoundError" in explain(error, words)[1]
    assert explain(OSError(28, "No space left on device"), words)[0] == 3


def test_a_plain_word_does_not_name_the_folders_above_it() -> None:
    assert named_place(PermissionError(13, "Permission denied", str(Path.cwd())), ("run", "softmax")) == ""
    assert named_place(PermissionError(13, "Permission denied", "out/index.html"), ("report", "--out", "out")) == "out"


def test_a_mailbox_that_cannot_be_a_folder_is_refused_before_the_search(tmp_path: Path) -> None:
    box = tmp_path / "file"
    box.write_text("kept")
    options = ["--db", tmp_path / "kb.db", "--attempts", "2", "--minutes", "0.1", "--model", "mailbox"]
    result = kb("run", "softmax", *options, "--mailbox", box)
    assert result.exit_code == 2 and f"the mailbox {box} cannot be used: File exists" in result.stderr
