"""Bundles: what they hold, how a bad one is refused, and what judging one again answers."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.append(str(Path(__file__).parent))

from export_makers import bundle_of, edit, kb, reseal, searched

from fitness.evaluation import Verdict
from fitness.replay import Failure, Landscape
from islands.store import Store, open_store
from kb_evolve.export import sealed
from kb_evolve.export.opened import LIMITS, read_bundle
from kb_evolve.export.sealed import BundleError
from kb_evolve.standing import best_of


@pytest.fixture(scope="module")
def original(memory_dir: Path) -> Path:
    """A database and a bundle of its run, made once."""
    home = memory_dir / "bundles"
    home.mkdir()
    searched(home / "kb.db")
    bundle_of(home / "kb.db", home / "bundle")
    return home


@pytest.fixture
def bundle(original: Path, tmp_path: Path) -> Path:
    """A copy that a test may spoil."""
    return Path(shutil.copytree(original / "bundle", tmp_path / "bundle"))


def test_a_bundle_holds_the_elite_and_its_lineage_to_the_last_byte(original: Path) -> None:
    with open_store(original / "kb.db", read_only=True) as store:
        run = store.runs()[0]
        elite = best_of(store, run.id)
        assert elite is not None
        index = json.loads((original / "bundle" / "bundle.json").read_text())
        assert index["elite"] == elite.candidate.id
        assert (original / "bundle" / "elite.py").read_text() == elite.candidate.source
        assert len(index["lineage"]) > 1
        for member in index["lineage"]:
            candidate = store.find_candidate(member["id"])
            assert candidate is not None
            assert (original / "bundle" / member["file"]).read_text() == candidate.source
    opened = read_bundle(original / "bundle")
    assert opened.claim.speedup == elite.evaluation.speedup
    assert (opened.problem.sha256, opened.run_id) == (run.problem_sha256, run.id)


def test_each_step_has_a_diff_that_leads_to_the_next_source(original: Path, tmp_path: Path) -> None:
    folder = original / "bundle"
    for index, member in enumerate(json.loads((folder / "bundle.json").read_text())["lineage"][1:], 1):
        before = folder / f"lineage/{index - 1:03}.py"
        target = tmp_path / f"{index}.py"
        shutil.copy(before, target)
        subprocess.run(["patch", "-s", target, folder / f"lineage/{index:03}.diff"], check=True)
        assert target.read_text() == (folder / member["file"]).read_text()


def test_sha256sum_finds_every_file_of_a_bundle_as_it_was_written(original: Path) -> None:
    answer = subprocess.run(["sha256sum", "-c", "SHA256SUMS"], cwd=original / "bundle", capture_output=True, text=True)
    assert answer.returncode == 0
    files = [path for path in (original / "bundle").rglob("*") if path.is_file()]
    assert answer.stdout.count(": OK") == len(files) - 1


def test_what_was_kept_from_models_and_what_names_this_machine_stays_at_home(original: Path) -> None:
    texts = "".join(path.read_text() for path in (original / "bundle").rglob("*") if path.is_file())
    with open_store(original / "kb.db", read_only=True) as store:
        secret = store.runs()[0].config["prompt_secret"]
    assert secret not in texts and str(original) not in texts
    assert json.loads((original / "bundle" / "environment.json").read_text())["config"]["judge"]["timeout_s"] == 30.0


def ask(store: Store, run_id: str, number: int, text: str) -> None:
    """A prompt on record."""
    request = {"number": number, "turn": 0, "operator": "diff", "model": "m", "island": 0, "parent_ids": ()}
    request |= {"messages": [{"role": "user", "content": text}], "prompt_version": "1", "parameters": {}}
    store.open_request(run_id, request | {"worst_usd": None})


def test_prompts_and_replies_of_the_lineage_come_along_and_what_is_too_long_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    searched(tmp_path / "kb.db")
    with open_store(tmp_path / "kb.db") as store:
        run = store.runs()[0]
        elite = best_of(store, run.id)
        assert elite is not None
        number = elite.candidate.number
        others = [attempt.number for attempt in store.attempts(run.id) if attempt.number != number]
        for each, text in ((number, "make it fast"), (max(others), "of another branch")):
            ask(store, run.id, each, text)
        reply = {"text": "<<<<<<< SEARCH", "reasoning": "", "finish_reason": "stop", "usage": {}}
        store.add_reply(run.id, number, 0, reply)
    (turn,) = json.loads((bundle_of(tmp_path / "kb.db", tmp_path / "a") / "conversations.json").read_text())
    assert turn["messages"] == [{"role": "user", "content": "make it fast"}]
    assert (turn["number"], turn["text"]) == (number, "<<<<<<< SEARCH")
    monkeypatch.setattr("kb_evolve.export.bundle.CONVERSATIONS_LIMIT", 10)
    folder = bundle_of(tmp_path / "kb.db", tmp_path / "b")
    assert json.loads((folder / "conversations.json").read_text()) == []
    assert json.loads((folder / "bundle.json").read_text())["conversations_left_out"] == 1
    assert "1 prompts and replies" in (folder / "README.md").read_text()


def test_prompts_that_are_longer_as_written_than_as_read_still_make_a_bundle_that_can_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    searched(tmp_path / "kb.db", evaluations=4)
    with open_store(tmp_path / "kb.db") as store:
        run = store.runs()[0]
        elite = best_of(store, run.id)
        assert elite is not None
        ask(store, run.id, elite.candidate.number, "\u901f" * 20_000)
    monkeypatch.setattr("kb_evolve.export.bundle.CONVERSATIONS_LIMIT", 40_000)
    monkeypatch.setattr(sealed, "FILE_LIMIT", 80_000)
    folder = bundle_of(tmp_path / "kb.db", tmp_path / "bundle")
    assert json.loads((folder / "bundle.json").read_text())["conversations_left_out"] == 1
    assert read_bundle(folder).run_id == run.id


def test_a_bundle_is_not_written_over_other_files(original: Path) -> None:
    result = kb("export", "night", "--db", original / "kb.db", "--format", "bundle", "--out", original)
    assert result.exit_code == 2 and "not an empty folder" in result.stderr


def test_a_run_without_a_correct_kernel_gives_no_bundle(tmp_path: Path) -> None:
    searched(tmp_path / "kb.db", Landscape(failures=(Failure("ModelNew", Verdict.WRONG_RESULT),)), evaluations=3)
    result = kb("export", "night", "--db", tmp_path / "kb.db", "--format", "bundle", "--out", tmp_path / "out")
    assert result.exit_code == 2 and "no correct candidate" in result.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("limit", "value"), [("FILES_LIMIT", 5), ("FILE_LIMIT", 500), ("TOTAL_LIMIT", 500)])
def test_a_bundle_that_nobody_could_read_is_not_written(
    original: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, value: int
) -> None:
    monkeypatch.setattr(sealed, limit, value)
    with pytest.raises(BundleError, match="this one would have"):
        bundle_of(original / "kb.db", tmp_path / "out")
    assert not (tmp_path / "out").exists()


# Bad bundles


def refused(bundle: Path) -> str:
    """What reading it says; and the command ends with 2."""
    with pytest.raises(BundleError) as caught:
        read_bundle(bundle)
    result = kb("verify", bundle)
    assert result.exit_code == 2
    assert result.stderr.startswith("kb-evolve: ")
    return str(caught.value)


@pytest.mark.parametrize("name", ["elite.py", "problem.py", "evaluations.json", "lineage/000.py", "README.md"])
def test_a_changed_file_is_named_with_both_checksums(bundle: Path, name: str) -> None:
    with (bundle / name).open("a") as file:
        file.write("#")
    said = refused(bundle)
    assert f"bundle/{name} does not fit its checksum" in said and "the file has" in said


def test_a_missing_file_is_named(bundle: Path) -> None:
    (bundle / "elite.py").unlink()
    assert "elite.py is missing" in refused(bundle)


def test_a_folder_that_is_no_bundle_is_told_from_a_damaged_one(tmp_path: Path) -> None:
    assert "SHA256SUMS is missing (no bundle)" in refused(tmp_path)
    assert "is not there" in refused(tmp_path / "none")
    (tmp_path / "bundle.tar").write_text("")
    assert "unpack it first" in refused(tmp_path / "bundle.tar")


@pytest.mark.parametrize(
    "path", ["../kb.db", "/etc/passwd", "lineage/../../kb.db", "a//b", "./elite.py", "a/b/c/d", ".hidden", "x\x1b[2J"]
)
def test_no_path_leads_out_of_the_folder(bundle: Path, path: str) -> None:
    with (bundle / "SHA256SUMS").open("a") as file:
        file.write(f"{'0' * 64}  {path}\n")
    said = refused(bundle)
    assert "no plain path" in said and "\x1b" not in said


@pytest.mark.parametrize("line", ["nonsense", "g" * 64 + "  elite.py", "\x00", "0" * 64 + " elite.py"])
def test_a_checksum_list_that_is_none_is_refused_with_its_line(bundle: Path, line: str) -> None:
    (bundle / "SHA256SUMS").write_text(line + "\n")
    assert "line 1 must be a sha256" in refused(bundle)


def test_a_file_is_named_once(bundle: Path) -> None:
    sums = (bundle / "SHA256SUMS").read_text()
    (bundle / "SHA256SUMS").write_text(sums + sums.splitlines()[0] + "\n")
    assert "again" in refused(bundle)


def test_links_to_files_and_folders_are_not_followed(bundle: Path, tmp_path: Path) -> None:
    os.rename(bundle / "elite.py", tmp_path / "elite.py")
    (bundle / "elite.py").symlink_to(tmp_path / "elite.py")
    assert "elite.py is a link" in refused(bundle)
    (bundle / "elite.py").unlink()
    os.rename(tmp_path / "elite.py", bundle / "elite.py")
    read_bundle(bundle)
    os.rename(bundle / "lineage", tmp_path / "lineage")
    (bundle / "lineage").symlink_to(tmp_path / "lineage")
    assert "lineage/000.py is a link" in refused(bundle)


def test_a_pipe_in_a_files_place_does_not_hang(bundle: Path) -> None:
    (bundle / "elite.py").unlink()
    os.mkfifo(bundle / "elite.py")
    assert "elite.py is no regular file" in refused(bundle)


def test_files_that_are_too_large_are_not_read_whole(bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sealed, "FILE_LIMIT", 4_000)
    (bundle / "README.md").write_text("x" * 4_001)
    reseal(bundle)
    assert "README.md is too large" in refused(bundle)
    monkeypatch.setattr(sealed, "TOTAL_LIMIT", 3_000)
    (bundle / "README.md").write_text("x")
    reseal(bundle)
    assert "is too large" in refused(bundle)


@pytest.mark.parametrize(
    ("place", "value", "said"),
    [
        (("bundle.json", "format"), "zip", "format must be"),
        (("bundle.json", "version"), 2, "reads version 1"),
        (("bundle.json", "elite"), "\x1b[31mx", "one evaluation of the elite"),
        (("bundle.json", "elite"), ["x"], "elite must be a text"),
        (("bundle.json", "precision"), "fp8", "unknown precision"),
        (("bundle.json", "problem"), None, "must be a JSON object"),
        (("bundle.json", "problem", "sha256"), "0" * 64, "problem.py has sha256"),
        (("bundle.json", "run", "name"), "x" * 5_000, "1 to 4096 characters"),
        (("evaluations.json", -1, "evaluation", "speedup"), "9", "is not one"),
        (("evaluations.json", -1, "evaluation", "speedup"), -1.0, "is not one"),
        (("evaluations.json", -1, "evaluation", "speedup_ci"), [9.0, 1.0], "does not hold its speedup"),
        (("evaluations.json", -1, "evaluation", "speedup"), 9.0, "does not hold its speedup"),
        (("evaluations.json", -1, "evaluation", "verdict"), "magic", "is not one"),
        (("evaluations.json", -1, "evaluation", "source_sha256"), "0" * 64, "is not what was evaluated"),
        (("evaluations.json", -1, "evaluation", "extra"), 1, "is not one"),
        (("environment.json", "config", "judge", "timeout_s"), -1.0, "timeout_s must be"),
        (("environment.json", "config", "judge", "memory_bytes"), "all", "memory_bytes must be"),
        (("environment.json", "config"), [], "config must be a JSON object"),
    ],
)
def test_a_forged_bundle_with_fitting_checksums_is_refused_where_its_parts_do_not_fit(
    bundle: Path, place: tuple[Any, ...], value: Any, said: str
) -> None:
    edit(bundle / place[0], *place[1:], value=value)
    reseal(bundle)
    found = refused(bundle)
    assert said in found and "/bundle/" in found and "\x1b" not in found


def test_a_bundle_gets_no_more_time_and_memory_than_is_allowed(bundle: Path) -> None:
    edit(bundle / "environment.json", "config", "judge", "timeout_s", value=1e300)
    edit(bundle / "environment.json", "config", "judge", "memory_bytes", value=10**400)
    reseal(bundle)
    judge = read_bundle(bundle).judge
    assert (judge["timeout_s"], judge["memory_bytes"]) == (LIMITS["timeout_s"], LIMITS["memory_bytes"])


@pytest.mark.parametrize("text", ["{", "[" * 100_000, '{"a": ' + "9" * 5_000 + "}", "[]", '"x"'])
def test_json_that_cannot_be_read_is_refused(bundle: Path, text: str) -> None:
    (bundle / "bundle.json").write_text(text)
    reseal(bundle)
    assert "bundle.json" in refused(bundle)


def test_a_text_that_is_not_unicode_is_refused(bundle: Path) -> None:
    (bundle / "elite.py").write_bytes(b"\xff\xfe")
    reseal(bundle)
    assert "elite.py is not UTF-8" in refused(bundle)


def test_reading_a_bundle_runs_nothing_of_it(bundle: Path, tmp_path: Path) -> None:
    trap = f"open({str(tmp_path / 'ran')!r}, 'w')\n"
    for name in ("problem.py", "elite.py", "lineage/000.py"):
        (bundle / name).write_text(trap + (bundle / name).read_text())
    (bundle / "conftest.py").write_text(trap)
    reseal(bundle)
    with pytest.raises(BundleError):
        read_bundle(bundle)
    assert not (tmp_path / "ran").exists()
