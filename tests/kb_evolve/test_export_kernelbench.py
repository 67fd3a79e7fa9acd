"""The export in KernelBench's layout: files, numbers, and kernels that run with torch and g++ alone."""

import ast
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent))

from kernelbench_makers import HISTORY, KERNEL, REFERENCE, RUN, SMALL, evaluated, numbered, owned

from fitness.evaluation import Evaluation, Verdict
from kb_evolve.export.kernelbench import ExportError, export_run, export_runs, folder_name, kernelbench_numbers
from kb_evolve.export.portable import function_text, portable
from kb_evolve.seeding.bundles import evolved_source


def test_the_elite_is_sample_0_and_other_pareto_kernels_follow_once_each(tmp_path):
    paths = export_run(RUN, HISTORY, tmp_path, level=1, problem_id=23)
    folder = tmp_path / "runs" / "twice_run_1"
    assert [path.name for path in paths[:2]] == [
        "level_1_problem_23_sample_0_kernel.py",
        "level_1_problem_23_sample_1_kernel.py",
    ]
    assert "Doubles every" in paths[0].read_text() and "Doubles frugally" in paths[1].read_text()
    assert sorted(path.name for path in folder.iterdir()) == sorted(path.name for path in paths)
    assert (folder / "reference.py").read_text() == REFERENCE


def test_eval_results_have_kernelbench_s_keys_and_three_digit_milliseconds(tmp_path):
    export_run(RUN, HISTORY, tmp_path, level=1, problem_id=23)
    document = json.loads((tmp_path / "runs" / "twice_run_1" / "eval_results.json").read_text())
    assert list(document) == ["23"] and [entry["sample_id"] for entry in document["23"]] == [0, 1]
    first = document["23"][0]
    assert set(first) == {"sample_id", "compiled", "correctness", "metadata", "runtime", "runtime_stats"}
    assert (first["compiled"], first["correctness"], first["runtime"]) == (True, True, 1.23)
    assert document["23"][1]["runtime"] == 2.47
    assert set(first["runtime_stats"]) == {"mean", "std", "min", "max", "num_trials", "hardware", "device"}
    assert first["metadata"]["hardware"] == "Some CPU"
    assert first["metadata"]["correctness_trials"] == "(62 / 62)"


def test_correctness_is_what_kernelbench_s_own_rule_says(tmp_path):
    export_run(RUN, [evaluated(0, KERNEL, 1.0, kernelbench_correct=False)], tmp_path, level=1, problem_id=2)
    document = json.loads((tmp_path / "runs" / "twice_run_1" / "eval_results.json").read_text())
    assert document["2"][0]["correctness"] is False


def test_provenance_holds_evaluation_hashes_ids_and_the_source_as_evolved(tmp_path):
    paths = export_run(RUN, HISTORY, tmp_path, level=1, problem_id=23)
    document = json.loads((paths[0].parent / "provenance.json").read_text())
    kernel = document["samples"][0]
    assert kernel["candidate_id"] == "abcdefgh-000002" and kernel["source"] == KERNEL
    assert kernel["source_sha256"] == hashlib.sha256(KERNEL.encode()).hexdigest()
    assert kernel["file_sha256"] == hashlib.sha256(paths[0].read_bytes()).hexdigest()
    assert Evaluation.from_json(kernel["evaluation"]) == HISTORY[2].evaluation
    assert document["run"]["id"] == "abcdefgh" and document["run"]["problem_sha256"] == RUN.problem_sha256


def test_several_runs_of_one_level_share_a_folder_that_knows_the_unsolved_ones(tmp_path):
    runs = [
        (numbered("level1/23"), HISTORY),
        (numbered("level1/7"), HISTORY[2:3]),
        (numbered("level1/40"), [HISTORY[1]]),
    ]
    paths = export_runs([(run, owned(run, history)) for run, history in runs], tmp_path)
    folder = tmp_path / "runs" / "kb_evolve_level1"
    assert {path.parent for path in paths} == {folder}
    kernels = sorted(path.name for path in paths if path.name.endswith("_kernel.py"))
    assert kernels == [f"level_1_problem_{place}_kernel.py" for place in ("23_sample_0", "23_sample_1", "7_sample_0")]
    results = json.loads((folder / "eval_results.json").read_text())
    assert {key: [one["correctness"] for one in entries] for key, entries in results.items()} == {
        "23": [True, True],
        "7": [True],
        "40": [False],
    }
    assert results["40"][0]["runtime"] == -1.0 and results["40"][0]["compiled"] is True
    evidence = json.loads((folder / "provenance.json").read_text())
    assert [run["name"] for run in evidence["runs"]] == ["level1/23", "level1/7", "level1/40"]
    for sample in evidence["samples"]:
        assert sample["file_sha256"] == hashlib.sha256((folder / sample["file"]).read_bytes()).hexdigest()
    for file in kernels:
        source, origin = evolved_source(evidence, file, (folder / file).read_text())
        number = file.split("_")[3]
        assert source in (KERNEL, SMALL) and origin["run"] == f"level1/{number}"
    assert "subset: [7, 40]" in (folder / "generation_config.yaml").read_text()


@pytest.mark.parametrize(
    ("runs", "said"),
    [
        ([numbered("level1/1"), numbered("softmax")], "softmax, which has no number"),
        ([numbered("level1/1"), numbered("level1/1")], "are both on level1/1"),
        ([numbered("level1/1"), numbered("level2/1")], "has one level, these runs have 1, 2"),
        ([numbered("level1/1"), numbered("level1/2", backend="cuda")], "has one backend, these runs have cpp, cuda"),
        ([numbered("level1/1"), numbered("level1/2", precision="tf32")], "has one precision"),
    ],
)
def test_runs_that_kernelbench_cannot_hold_side_by_side_are_refused(tmp_path, runs, said):
    with pytest.raises(ExportError, match=said):
        export_runs([(run, HISTORY) for run in runs], tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_several_runs_without_a_correct_candidate_are_refused(tmp_path):
    with pytest.raises(ExportError, match="none of the 2 runs"):
        export_runs([(numbered("level1/1"), []), (numbered("level1/2"), [HISTORY[1]])], tmp_path)


@pytest.mark.parametrize("history", [[], [HISTORY[1]]])
def test_a_run_without_a_correct_candidate_is_refused_and_writes_nothing(tmp_path, history):
    with pytest.raises(ExportError, match="no correct candidate"):
        export_run(RUN, history, tmp_path, level=1, problem_id=1)
    assert list(tmp_path.iterdir()) == []


def test_a_run_with_verified_candidates_alone_says_that_they_were_never_timed(tmp_path):
    evaluation = replace(HISTORY[1].evaluation, verdict=Verdict.VERIFIED)
    verified = replace(HISTORY[1], evaluation=evaluation)
    with pytest.raises(ExportError, match="1 verified, but never timed"):
        export_run(RUN, [verified], tmp_path)


def test_negative_numbers_are_refused(tmp_path):
    with pytest.raises(ExportError, match="0 or more, found -1 and 3"):
        export_run(RUN, HISTORY, tmp_path, level=-1, problem_id=3)


@pytest.mark.parametrize(
    ("problem", "numbers"),
    [
        ("level1/19", (1, 19)),
        ("level2/76_Gemm_Add_ReLU", (2, 76)),
        ("/data/KernelBench/level3/5_AlexNet.py", (3, 5)),
        ("softmax", (0, 0)),
        ("mylevel1/19", (0, 0)),
    ],
)
def test_level_and_problem_come_from_the_problem_s_name(problem, numbers):
    assert kernelbench_numbers(problem) == numbers


def test_a_problem_of_our_own_is_exported_as_number_0(tmp_path):
    assert export_run(RUN, HISTORY, tmp_path)[0].name == "level_0_problem_0_sample_0_kernel.py"


@pytest.mark.parametrize(
    ("name", "folder"),
    [("../../etc", "_.._etc"), ("a b/c", "a_b_c"), ("..", "run"), ("", "run"), ("ok-1.2_x", "ok-1.2_x")],
)
def test_a_run_s_name_cannot_lead_out_of_the_folder(name, folder):
    assert folder_name(name) == folder


@pytest.fixture(scope="module")
def checks(tmp_path_factory):
    """{"right" or "wrong": (folder, exit code, stdout, stderr)} of check.py on a right and a wrong kernel.

    Both run in processes that have torch, a PATH with the compiler and no ninja, and nothing of ours.
    """
    base = tmp_path_factory.mktemp("checks")
    (base / "bin").mkdir()
    for tool in ("g++", "as", "ld"):
        found = shutil.which(tool)
        if found is None:
            pytest.skip(f"{tool} is not installed")
        os.symlink(found, base / "bin" / tool)
    started = {}
    for name, factor in (("right", "2.0f"), ("wrong", "2.1f")):
        kernel = evaluated(0, KERNEL.replace("FACTOR = 2.0f", f"FACTOR = {factor}"), 1.0)
        folder = export_run(RUN, [kernel], base / name, level=1, problem_id=23)[0].parent
        command = [sys.executable, "-P", "check.py", "--rounds", "3"]
        environment = {"PATH": str(base / "bin"), "HOME": str(base), "TMPDIR": str(folder)}
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        started[name] = folder, subprocess.Popen(command, cwd=folder, env=environment, **pipes)
    ended = {}
    for name, (folder, process) in started.items():
        stdout, stderr = process.communicate(timeout=120)
        ended[name] = folder, process.returncode, stdout, stderr
    return ended


def test_an_exported_kernel_builds_and_checks_without_ninja(checks):
    folder, code, stdout, stderr = checks["right"]
    assert code == 0, stderr
    assert "equal on 5 of 5 draws" in stdout
    assert re.search(r"reference \S+ ms, kernel \S+ ms \(medians of 3 rounds\): \S+x", stdout)
    assert [path.name for path in folder.iterdir() if path.name.startswith("twice_")] == [], "its build is gone"


def test_check_says_no_to_a_wrong_kernel(checks):
    _, code, stdout, stderr = checks["wrong"]
    assert code == 1, stderr
    assert "equal on 0 of 5 draws" in stdout


def test_only_the_import_line_changes_and_the_file_stays_valid():
    changed = portable(KERNEL)
    assert changed is not None
    ast.parse(changed)
    before, after = KERNEL.split("from torch.utils.cpp_extension import load_inline\n")
    assert changed.startswith(before) and changed.endswith(after)


def test_the_carried_function_has_nothing_that_kernelbench_s_checker_forbids():
    for word in ("try", "except", "pass", "threading", "multiprocessing"):
        assert not re.search(rf"\b{word}\b", function_text())


@pytest.mark.parametrize(
    "change",
    [
        ("is_python_module=False", "is_python_module=True"),
        ("no_implicit_headers=True, ", ""),
        ("functions=None", 'functions=["twice"]'),
        ("functions=None", 'cuda_sources=""'),
        ("functions=None", "**{}"),
        ("import load_inline", "import load_inline as build"),
        ("import load_inline", "import load, load_inline"),
        ("import load_inline", "import load_inline; import os"),
        ("import torch\n", "import torch\nimport torch.utils.cpp_extension\n"),
        ("class ModelNew", "class ModelNew ("),
    ],
)
def test_a_kernel_of_another_form_is_left_as_it_is(change):
    assert change[0] in KERNEL
    assert portable(KERNEL.replace(*change)) is None


def test_an_import_inside_a_string_is_not_taken_for_the_import():
    text = 'NOTE = """\nfrom torch.utils.cpp_extension import load_inline\n"""\n'
    assert portable(text) is None
    changed = portable(text + KERNEL)
    assert changed is not None and changed.startswith(text)
