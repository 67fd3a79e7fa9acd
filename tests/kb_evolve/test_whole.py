"""Files that appear together: what an interrupt, a kill, a full disk and a bad place leave."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent))

from export_makers import bundle_of, kb, searched

from kb_evolve.export.opened import read_bundle
from kb_evolve.export.sealed import BundleError
from kb_evolve.export.tables import COLUMNS
from kb_evolve.export.whole import PREFIX, WriteError, staged, write_file, write_whole

SLOW = """
import os, signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell that runs tests in the background ignores it
real, calls = os.{function}, []
def slow(*arguments, **options):
    calls.append(1)
    if len(calls) == {at}:
        print("waiting", flush=True)
        time.sleep(60)
    return real(*arguments, **options)
os.{function} = slow
from kb_evolve.cli import main
sys.argv[1:] = {arguments!r}
main()
"""


@pytest.fixture(scope="module")
def database(memory_dir: Path) -> Path:
    home = memory_dir / "whole"
    home.mkdir()
    searched(home / "kb.db")
    return home / "kb.db"


def stopped(database: Path, form: str, out: Path, by: signal.Signals, function: str, at: int) -> int:
    """The exit code of an export that is stopped at the call number `at` of `os.function`."""
    arguments = ["export", "night", "--db", str(database), "--format", form, "--out", str(out)]
    program = SLOW.format(function=function, at=at, arguments=arguments)
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"waiting\n"
        child.send_signal(by)
        return child.wait(20)


def test_an_interrupted_bundle_leaves_nothing(database: Path, tmp_path: Path) -> None:
    assert stopped(database, "bundle", tmp_path / "new" / "bundle", signal.SIGINT, "fsync", 3) == 130
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("function", "at"), [("fsync", 3), ("replace", 3)])
def test_a_bundle_whose_writer_was_killed_is_none(database: Path, tmp_path: Path, function: str, at: int) -> None:
    out = tmp_path / "bundle"
    assert stopped(database, "bundle", out, signal.SIGKILL, function, at) == -signal.SIGKILL
    assert out.is_dir() and not (out / "SHA256SUMS").exists()
    with pytest.raises(BundleError, match=r"no bundle"):
        read_bundle(out)
    assert kb("verify", out).exit_code == 2


def test_a_killed_export_over_an_older_one_leaves_no_results_that_are_of_other_kernels(
    database: Path, tmp_path: Path
) -> None:
    assert kb("export", "night", "--db", database, "--format", "kernelbench", "--out", tmp_path).exit_code == 0
    folder = tmp_path / "runs" / "night"
    assert (folder / "eval_results.json").exists()
    stopped(database, "kernelbench", tmp_path, signal.SIGKILL, "replace", 3)
    assert not (folder / "eval_results.json").exists()


def test_a_full_disk_is_told_in_a_sentence_and_leaves_nothing(tmp_path: Path) -> None:
    program = f"""
import resource
from pathlib import Path
from kb_evolve.export.whole import WriteError, write_whole
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
try:
    write_whole(Path({str(tmp_path / "new" / "out")!r}), {{"a": "x" * 900, "b/c": "x" * 2000}}, last="b/c")
except WriteError as error:
    print(error)
"""
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert "cannot be written to: File too large" in said and "Nothing whole was written" in said
    assert list(tmp_path.iterdir()) == []


def test_what_fails_leaves_the_older_files(tmp_path: Path) -> None:
    write_whole(tmp_path, {"a": "1", "z": "1"}, last="z")
    with pytest.raises(ZeroDivisionError), staged(tmp_path, last="z", stale=("a",)) as stage:
        (stage / "a").write_text("2")
        raise ZeroDivisionError
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"a": "1", "z": "1"}


def test_the_last_file_is_away_while_others_are_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_whole(tmp_path, {"a": "1", "old": "1", "z": "1"}, last="z")
    seen = []
    real = os.replace

    def watched(source: Path, target: Path) -> None:
        seen.append((target.name, (tmp_path / "z").exists(), (tmp_path / "old").exists()))
        real(source, target)

    monkeypatch.setattr(os, "replace", watched)
    assert write_whole(tmp_path, {"z": "2", "a": "2"}, last="z", stale=("old",)) == [tmp_path / "z", tmp_path / "a"]
    assert seen == [("a", False, False), ("z", False, False)]
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(PREFIX)]


@pytest.mark.parametrize("form", ["bundle", "kernelbench", "markdown"])
def test_a_place_that_cannot_be_written_ends_with_exit_code_2(database: Path, form: str) -> None:
    result = kb("export", "night", "--db", database, "--format", form, "--out", "/proc/nowhere/out")
    assert result.exit_code == 2 and "cannot be written to" in result.stderr and "bug report" not in result.stderr


@pytest.mark.parametrize("form", ["bundle", "kernelbench"])
def test_a_file_in_a_folders_place_ends_with_exit_code_2(database: Path, tmp_path: Path, form: str) -> None:
    (tmp_path / "file").write_text("mine")
    result = kb("export", "night", "--db", database, "--format", form, "--out", tmp_path / "file")
    assert result.exit_code == 2 and (tmp_path / "file").read_text() == "mine"


def test_a_summary_is_not_written_over_a_database_or_a_folder(tmp_path: Path) -> None:
    searched(tmp_path / "kb.db", evaluations=4)
    (tmp_path / "link.md").symlink_to(tmp_path / "kb.db")
    before = (tmp_path / "kb.db").read_bytes()
    for name, said in (("kb.db", "is a database"), ("link.md", "is a database"), ("", "is a folder")):
        arguments = ("--db", tmp_path / "kb.db", "--format", "markdown", "--out", tmp_path / name)
        result = kb("export", "night", *arguments)
        assert result.exit_code == 2 and said in result.stderr
    assert (tmp_path / "kb.db").read_bytes() == before


def test_a_pipe_is_written_straight_and_a_linked_file_stays_linked(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with subprocess.Popen(["cat", tmp_path / "pipe"], stdout=subprocess.PIPE) as reader:
        write_file(tmp_path / "pipe", "through")
        assert reader.communicate(timeout=10)[0] == b"through"
    (tmp_path / "real.md").write_text("old")
    (tmp_path / "link.md").symlink_to("real.md")
    write_file(tmp_path / "link.md", "new")
    assert (tmp_path / "link.md").is_symlink() and (tmp_path / "real.md").read_text() == "new"
    with pytest.raises(WriteError, match="is a folder"):
        write_file(tmp_path, "x")


def test_a_run_without_models_has_no_replies_to_export(database: Path, tmp_path: Path) -> None:
    result = kb("export", "night", "--db", database, "--format", "replies", "--out", tmp_path / "out")
    assert result.exit_code == 2 and "nothing to replay" in result.stderr
    assert not (tmp_path / "out").exists()


def test_tables_appear_together_and_an_export_that_fails_leaves_the_older_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    db, out = tmp_path / "kb.db", tmp_path / "tables"
    arguments = ("db", "export", "--format", "jsonl", "--db", db, "--out", out)
    searched(db, evaluations=4)
    assert kb(*arguments).exit_code == 0
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    searched(db, evaluations=6)
    with monkeypatch.context() as broken:
        broken.setitem(COLUMNS, "events", {"nothing_of_that_name": "text"})
        assert kb(*arguments).exit_code == 3
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before
    assert kb(*arguments).exit_code == 0
    assert (out / "candidates.jsonl").read_bytes() != before["candidates.jsonl"]


def test_two_databases_give_bundles_beside_each_other(database: Path, tmp_path: Path) -> None:
    searched(tmp_path / "other.db", run="day")
    for name, db, run in (("a", database, "night"), ("b", tmp_path / "other.db", "day")):
        assert read_bundle(bundle_of(db, tmp_path / name, run)).run_name == run
