"""Bundles: what they hold, how a bad one is refused, and what judging one again answers."""

from __future__ import annotations

import dataclasses
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

from fitness.evaluation import Evaluation, Job, Verdict
from fitness.replay import Failure, Landscape, Replay, bowl
from islands.store import open_store
from kb_evolve.commands.verify import answer_text
from kb_evolve.export import sealed
from kb_evolve.export.opened import Bundle, read_bundle
from kb_evolve.export.rejudge import Answer, compare, config_of, rejudge
from kb_evolve.export.sealed import BundleError
from kb_evolve.standing import best_of
from kb_evolve.targets import settle
from problems.problem import ProblemError


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
            request = {"number": each, "turn": 0, "operator": "diff", "model": "m", "island": 0, "parent_ids": ()}
            request |= {"messages": [{"role": "user", "content": text}], "prompt_version": "1", "parameters": {}}
            store.open_request(run.id, request | {"worst_usd": None})
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
        (("bundle.json", "run", "name"), "x" * 400, "1 to 300 characters"),
        (("evaluations.json", -1, "evaluation", "speedup"), "9", "is not one"),
        (("evaluations.json", -1, "evaluation", "speedup"), -1.0, "is not one"),
        (("evaluations.json", -1, "evaluation", "speedup_ci"), [9.0, 1.0], "upside down"),
        (("evaluations.json", -1, "evaluation", "verdict"), "magic", "is not one"),
        (("evaluations.json", -1, "evaluation", "source_sha256"), "0" * 64, "is not what was evaluated"),
        (("evaluations.json", -1, "evaluation", "extra"), 1, "is not one"),
        (("environment.json", "config", "judge", "timeout_s"), 1e9, "timeout_s must be"),
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


# Judged again


def answer_of(bundle: Path, landscape: Landscape | None = None) -> tuple[Bundle, Answer]:
    opened = read_bundle(bundle)
    config = settle(config_of(opened, device=None, arch=None, sandbox=None))
    return opened, rejudge(opened, Replay(landscape or Landscape()), config)


def test_the_same_kernel_on_the_same_device_agrees(bundle: Path) -> None:
    opened, answer = answer_of(bundle)
    assert answer.agrees is True and answer.reason.startswith("verdict and speedup agree")
    document = answer.to_json(opened)
    assert document["agrees"] is True
    assert document["claimed"]["speedup"] == document["here"]["speedup"]
    assert answer.notes == ()


def test_a_boast_is_told_with_both_figures(bundle: Path) -> None:
    evaluation = json.loads((bundle / "evaluations.json").read_text())[-1]["evaluation"]
    for name in ("speedup", "speedup_ci"):
        value = evaluation[name]
        edit(
            bundle / "evaluations.json",
            -1,
            "evaluation",
            name,
            value=[3 * one for one in value] if isinstance(value, list) else 3 * value,
        )
    reseal(bundle)
    _, answer = answer_of(bundle)
    assert answer.agrees is False
    assert "the speedup does not" in answer.reason and "66.7% slower than claimed" in answer.reason


def test_one_bad_measurement_is_no_difference_and_two_equal_ones_are(bundle: Path) -> None:
    for factors, agrees in (((3.0, 1.0), True), ((3.0, 3.0), False)):
        left = list(factors)
        landscape = Landscape(kernel_ms=lambda reading, left=left: bowl(reading) * left.pop(0))
        _, answer = answer_of(bundle, landscape)
        assert answer.agrees is agrees, answer.reason
        assert left == [] and answer.here.rounds == 40


def test_a_kernel_that_fails_when_it_is_judged_twice_differs(bundle: Path) -> None:
    calls: list[int] = []

    class Flaky(Replay):
        def evaluate(self, job: Job) -> Evaluation:
            calls.append(1)
            factor = 3.0 if len(calls) == 1 else 1.0
            failures = (Failure("ModelNew", Verdict.WRONG_RESULT),) if len(calls) == 2 else ()
            return Replay(Landscape(kernel_ms=lambda reading: factor * bowl(reading), failures=failures)).evaluate(job)

    opened = read_bundle(bundle)
    answer = rejudge(opened, Flaky(), settle(config_of(opened, device=None, arch=None, sandbox=None)))
    assert answer.agrees is False and "wrong_result" in answer.reason


def test_a_kernel_that_is_wrong_here_differs(bundle: Path) -> None:
    _, answer = answer_of(bundle, Landscape(failures=(Failure("ModelNew", Verdict.WRONG_RESULT),)))
    assert answer.agrees is False and "claimed correct, here wrong_result" in answer.reason


@pytest.mark.parametrize(("disturbed", "agrees"), [(1, True), (2, True), (None, None)])
def test_a_judgement_that_noise_disturbed_is_made_again_until_it_is_no_answer(
    bundle: Path, disturbed: int | None, agrees: bool | None
) -> None:
    noise = Failure("ModelNew", Verdict.NO_VERDICT, times=disturbed)
    _, answer = answer_of(bundle, Landscape(failures=(noise,)))
    assert answer.agrees is agrees
    assert ("there is no verdict here" in answer.reason) is (agrees is None)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("softmax", "the problem is NOT the softmax that is known here"),
        ("nobody", "no problem named nobody is known here"),
        ("/etc/passwd", "no problem named /etc/passwd is known here"),
    ],
)
def test_a_problem_that_is_not_the_one_of_its_name_here_is_told(bundle: Path, name: str, said: str) -> None:
    edit(bundle / "bundle.json", "problem", "id", value=name)
    reseal(bundle)
    _, answer = answer_of(bundle)
    assert [said in note for note in answer.notes] == [True]


def test_what_a_bundle_says_of_sandboxes_is_not_heard(bundle: Path) -> None:
    edit(bundle / "environment.json", "config", "judge", "sandbox", value="none")
    reseal(bundle)
    assert config_of(read_bundle(bundle), device=None, arch=None, sandbox=None).judge.sandbox == "auto"


def evaluation(speedup: float, low: float, high: float, **fields: Any) -> Evaluation:
    values = {"verdict": Verdict.CORRECT, "reason": "r", "problem": "p", "backend": "cpp", "source_sha256": "0"}
    times = {"kernel_ms": 1.0, "kernel_ms_ci": (1.0, 1.0), "reference_ms": speedup, "device_name": "d"}
    return Evaluation(**{**values, **times, "speedup": speedup, "speedup_ci": (low, high), **fields})


@pytest.mark.parametrize(
    ("here", "agrees"),
    [
        (evaluation(2.0, 1.9, 2.1), True),
        (evaluation(2.15, 2.05, 2.25), True),
        (evaluation(1.85, 1.75, 1.95), True),
        (evaluation(2.4, 2.3, 2.5), False),
        (evaluation(1.6, 1.5, 1.7), False),
        (evaluation(9.0, 8.9, 9.1, device_name="another"), True),
        (evaluation(9.0, 8.9, 9.1, baseline="another"), True),
    ],
)
def test_speedups_agree_where_their_intervals_meet_and_only_on_one_device(here: Evaluation, agrees: bool) -> None:
    claim = evaluation(2.0, 1.9, 2.1)
    assert compare(claim, here)[0] is agrees
    if here.device_name == "another":
        assert "speedups of different devices are not compared" in compare(claim, here)[1]


def test_what_was_verified_and_not_timed_agrees_in_the_verdict() -> None:
    times = dict.fromkeys(("kernel_ms", "kernel_ms_ci", "reference_ms", "speedup", "speedup_ci"))
    here = dataclasses.replace(evaluation(1.0, 0.9, 1.1), verdict=Verdict.VERIFIED, **times)
    agrees, reason = compare(evaluation(2.0, 1.9, 2.1), here)
    assert agrees is True and "the verdict agrees" in reason


class Failing:
    """A workbench on which the problem's own code fails, as the real one says it."""

    def __init__(self, text: str) -> None:
        self.text = text

    def evaluate(self, job: Job) -> Evaluation:
        raise ProblemError(self.text)


def test_a_problem_that_fails_makes_a_bad_bundle_and_its_words_stay_words(bundle: Path) -> None:
    opened = read_bundle(bundle)
    config = settle(config_of(opened, device=None, arch=None, sandbox=None))
    with pytest.raises(BundleError, match="cannot be judged") as caught:
        rejudge(opened, Failing("\x1b[2J\u202eno"), config)  # type: ignore[arg-type]
    assert not {"\x1b", "\u202e"} & set(str(caught.value))


def test_a_cuda_kernel_is_built_once_where_no_gpu_is_and_that_is_no_answer(bundle: Path) -> None:
    edit(bundle / "bundle.json", "backend", value="cuda")
    reseal(bundle)
    bench = Replay(Landscape(failures=(Failure("ModelNew", Verdict.NO_VERDICT),)))
    opened = read_bundle(bundle)
    answer = rejudge(opened, bench, config_of(opened, device="cpu", arch=None, sandbox=None))
    assert answer.agrees is None
    assert [span.stage for span in bench.spans] == ["build", "measure"]


def test_the_printed_answer_has_nothing_hidden_in_it(bundle: Path) -> None:
    evil = "\x1b[2J\u202eevil\r"
    edit(bundle / "bundle.json", "run", "name", value=evil)
    edit(bundle / "evaluations.json", -1, "evaluation", "device_name", value=evil)
    edit(bundle / "evaluations.json", -1, "evaluation", "sandbox", value=evil)
    reseal(bundle)
    opened, answer = answer_of(bundle)
    text = answer_text(opened, answer)
    assert text.startswith("agrees: the verdict agrees; speedups of different devices are not compared")
    assert not set("\x1b\u202e\r") & set(text)
    assert opened.candidate_id in text and "note         another sandbox" in text
