"""fast_p on KernelBench's files and on our database; where a checkout is given, against KernelBench's own script."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import subprocess
import sys
from pathlib import Path
from random import Random
from typing import Any

import pytest

sys.path.append(str(Path(__file__).parent))

from export_makers import kb, problem, searched

from fitness.evaluation import Verdict
from fitness.replay import Failure, Landscape, Replay
from islands.store import open_store
from kb_evolve.export.fastp import analyse_folder, read_kernelbench_baseline
from kb_evolve.export.kernelbench import export_run, export_runs
from kb_evolve.search import Search
from kb_evolve.standing import best_of, standing

ROOT = os.environ.get("KERNELBENCH_ROOT", "")

SCRIPT = """
import json, sys, types

class Config:
    pass

try:
    import pydra
except ImportError:  # it only parses the script's command line, which is not used here
    as_it_is = lambda base: lambda function: function
    sys.modules["pydra"] = types.SimpleNamespace(Config=Config, REQUIRED=None, main=as_it_is)
package = types.ModuleType("kernelbench")  # without its __init__.py, which imports model providers
package.__path__ = [sys.argv[1] + "/src/kernelbench"]
sys.modules["kernelbench"] = package
sys.path.insert(0, sys.argv[1] + "/scripts")
from benchmark_eval_analysis import analyze_greedy_eval

run, level, baseline, runs, out = sys.argv[2:]
found = analyze_greedy_eval(run, "H", "b", int(level), baseline_file=baseline, eval_results_dir=runs)
json.dump(found, open(out, "w"), default=float)
"""


@pytest.fixture(autouse=True)
def _no_checkout(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rates refer to what a test gives, also where the environment names a checkout."""
    monkeypatch.delenv("KERNELBENCH_ROOT", raising=False)


def entry(runtime: float = 1.0, sample_id: int = 0, **fields: Any) -> dict[str, Any]:
    """One result in KernelBench's schema."""
    values = {"sample_id": sample_id, "compiled": True, "correctness": True, "metadata": {}, "runtime": runtime}
    return {**values, "runtime_stats": {}, **fields}


def wrong(**fields: Any) -> dict[str, Any]:
    return entry(-1.0, correctness=False, **fields)


def results(folder: Path, document: Any, level: int = 1) -> Path:
    """A run's folder with results and a kernel that says its level."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "eval_results.json").write_text(json.dumps(document))
    (folder / f"level_{level}_problem_1_sample_0_kernel.py").write_text("")
    return folder


def baseline(path: Path, means: dict[str, float], level: int = 1) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({f"level{level}": {name: {"mean": mean, "std": 0.1} for name, mean in means.items()}}))
    return path


FOUR = {"1_A.py": 2.0, "2_B.py": 2.0, "3_C.py": 2.0, "4_D.py": 2.0}
MIXED = {
    "1": [entry(1.0)],
    "2": [entry(2.0)],
    "3": [wrong(), entry(0.1, sample_id=1)],
    "9": [entry(0.5)],
}


def test_fast_p_counts_correct_kernels_of_more_than_p_among_problems_with_a_baseline(tmp_path: Path) -> None:
    runs, times = results(tmp_path / "runs" / "mine", MIXED), baseline(tmp_path / "H" / "eager.json", FOUR)
    document = json.loads(kb("fastp", runs, "--baseline", times, "--json").stdout)
    (found,) = document["analyses"]
    assert found["fast_p"] == {"0.0": 0.5, "0.5": 0.5, "0.8": 0.5, "1.0": 0.25, "1.5": 0.25, "2.0": 0.0}
    assert found["geo_mean_speedup"] == pytest.approx(math.sqrt(2.0))
    counts = {"total_count": 4, "total_eval": 4, "compiled_count": 4, "correct_count": 3, "aligned_count": 4}
    assert {name: found[name] for name in counts} == counts
    assert (found["run_name"], found["level"], found["hardware"], found["baseline"]) == ("mine", 1, "H", "eager")
    assert found["notes"] == ["1 results are of problems without a baseline or of another level"]


def test_every_run_of_a_folder_meets_every_baseline(tmp_path: Path) -> None:
    for name in ("a", "b"):
        results(tmp_path / "runs" / name, MIXED)
    files = [baseline(tmp_path / hardware / "eager.json", FOUR) for hardware in ("H", "A")]
    words = [word for file in files for word in ("--baseline", file)]
    text = kb("fastp", tmp_path / "runs", *words).stdout
    assert len([line for line in text.splitlines() if " eager " in line]) == 4
    assert "fast_1.5" in text and "3 of 4" in text and "1.41x" in text


def test_a_correct_kernel_without_a_time_counts_as_correct_alone(tmp_path: Path) -> None:
    runs = results(tmp_path / "mine", {"1": [entry(-1.0)], "2": [entry(1.0)]})
    found = analyse_folder(
        runs, read_kernelbench_baseline(baseline(tmp_path / "b.json", FOUR)), None, lambda level: None
    )
    assert (found.correct_count, found.fast_p(0.0), found.geometric_mean) == (2, 0.25, 2.0)
    assert "correct without a time: problem 1" in found.notes[0]


def test_nothing_correct_has_mean_0(tmp_path: Path) -> None:
    runs = results(tmp_path / "mine", {"1": [wrong()]})
    found = analyse_folder(
        runs, read_kernelbench_baseline(baseline(tmp_path / "b.json", FOUR)), None, lambda level: None
    )
    assert (found.geometric_mean, found.fast_p(0.0)) == (0.0, 0.0)


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ([], "expected a JSON object"),
        ({"one": []}, "expected"),
        ({"1": entry()}, "expected"),
        ({"1": ["x"]}, "expected"),
        ({"1": [entry(), entry()]}, "2 results of sample 0"),
        ({"1": [entry(compiled=None)]}, "compiled must be true or false"),
        ({"1": [entry(correctness="yes")]}, "correctness must be true or false"),
        ({"1": [entry(runtime="fast")]}, "runtime must be a number"),
        ({"1": [entry(runtime=math.nan)]}, "runtime must be a number"),
        ({"1": [entry(runtime=10**400)]}, "runtime must be a number"),
        ({"1": [entry(runtime=5e-324)]}, "runtime must be a number"),
        ({"1" * 5_000: []}, "expected"),
        ({"1": [], "01": []}, "found '01'"),
        ({"\u0661": []}, "expected"),
    ],
)
def test_results_of_another_form_are_refused_with_the_place(tmp_path: Path, document: Any, said: str) -> None:
    times = baseline(tmp_path / "b.json", FOUR)
    result = kb("fastp", results(tmp_path / "mine", document), "--baseline", times)
    assert result.exit_code == 2 and said in result.stderr and "eval_results.json" in result.stderr


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ("[]", "expected a JSON object"),
        ("{}", "holds no baseline"),
        ('{"level1": {"1_A.py": {"mean": 0}}}', "a mean in ms above 0"),
        ('{"level1": {"1_A.py": {"mean": "x"}}}', "a mean in ms above 0"),
        ('{"level1": {"A.py": {"mean": 1}}}', "a mean in ms above 0"),
        ('{"level1": {"1_A.py": {"mean": 1' + "0" * 400 + "}}}", "a mean in ms above 0"),
        ('{"level1": {"1_A.py": {"mean": 1e308}}}', "a mean in ms above 0"),
        ('{"level1": {"1_A.py": {"mean": 1}, "1_B.py": {"mean": 2}}}', "several means of problem 1"),
        ('{"first": {}}', "expected"),
        ('{"level2": {"1_A.py": {"mean": 1}}}', "no problem of level 1; its levels: 2"),
    ],
)
def test_a_baseline_of_another_form_is_refused(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "b.json").write_text(text)
    result = kb("fastp", results(tmp_path / "mine", MIXED), "--baseline", tmp_path / "b.json")
    assert result.exit_code == 2 and said in result.stderr


def test_what_is_missing_is_said(tmp_path: Path) -> None:
    runs, times = results(tmp_path / "mine", MIXED), baseline(tmp_path / "b.json", FOUR)
    assert "give one with --baseline" in kb("fastp", runs).stderr
    misspelt = kb("fastp", tmp_path / "mime", "--baseline", times, "--db", tmp_path / "none.db")
    assert misspelt.exit_code == 2 and f"there is no folder {tmp_path / 'mime'}, and no database" in misspelt.stderr
    assert "cannot be read" in kb("fastp", runs, "--baseline", tmp_path / "none.json").stderr
    (tmp_path / "empty").mkdir()
    assert "holds no eval_results.json" in kb("fastp", tmp_path / "empty", "--baseline", times).stderr
    (runs / "level_2_problem_1_sample_0_kernel.py").write_text("")
    assert "give --level N" in kb("fastp", runs, "--baseline", times).stderr
    assert kb("fastp", runs, "--baseline", times, "--level", "1").exit_code == 0
    assert "holds no run 'none'" in kb("fastp", "none", "--db", new_database(tmp_path)).stderr
    assert "no run on a problem of level 3" in kb("fastp", "--level", "3", "--db", tmp_path / "kb.db").stderr


# Our database


def new_database(tmp_path: Path) -> Path:
    searched(tmp_path / "kb.db", evaluations=6)
    return tmp_path / "kb.db"


def test_runs_of_the_database_are_set_against_eager(tmp_path: Path) -> None:
    db = new_database(tmp_path)
    slow = Landscape(failures=(Failure("ModelNew", Verdict.WRONG_RESULT),))
    searched(db, slow, ref="softmax", run="bad", evaluations=3)
    with open_store(db, read_only=True) as store:
        elite = best_of(store, store.runs()[0].id)
    assert elite is not None and elite.evaluation.speedup is not None
    (found,) = json.loads(kb("fastp", "--db", db, "--json").stdout)["analyses"]
    assert (found["baseline"], found["total_count"], found["correct_count"], found["aligned_count"]) == (
        "eager",
        2,
        1,
        2,
    )
    assert found["geo_mean_speedup"] == pytest.approx(elite.evaluation.speedup)
    assert found["fast_p"]["0.0"] == 0.5
    assert found["fast_p"]["0.5"] == (0.5 if elite.evaluation.speedup > 0.5 else 0.0)
    assert "1 of 2" in kb("fastp", "--db", db).stdout


def test_runs_of_the_database_meet_the_baselines_of_this_program(tmp_path: Path) -> None:
    db = new_database(tmp_path)
    entries = [
        {"problem": "row_variance", "kind": "compile", "ms": 2.0, "speedup_vs_eager": 2.0, "device_name": "replay"}
    ]
    (tmp_path / "ours.json").write_text(json.dumps({"baselines": entries}))
    document = json.loads(kb("fastp", "night", "--db", db, "--baseline", tmp_path / "ours.json", "--json").stdout)
    eager, compiled = document["analyses"]
    assert (eager["baseline"], compiled["baseline"]) == ("eager", "compile")
    assert compiled["geo_mean_speedup"] == pytest.approx(eager["geo_mean_speedup"] / 2)


def test_runs_on_kernelbenchs_problems_meet_its_baseline_whatever_names_the_problem(tmp_path: Path) -> None:
    times = baseline(tmp_path / "H" / "b.json", {"19_ReLU.py": 4.0, "20_Other.py": 1.0})
    for problem_id in ("level1/19", "level1/19_ReLU", "/there/KernelBench/level1/19_ReLU.py"):
        db = tmp_path / f"{abs(hash(problem_id))}.db"
        named = dataclasses.replace(problem(), id=problem_id)
        Search(named, db=str(db), run="night", workbench=Replay(), evaluations=4).run()
        words = ("--db", db, "--baseline", times, "--json")
        analyses = json.loads(kb("fastp", *words).stdout)["analyses"]
        assert [one["baseline"] for one in analyses] == ["eager", "H/b"]
        assert (analyses[1]["aligned_count"], analyses[1]["fast_p"]["0.0"]) == (1, 1.0)
        with open_store(db, read_only=True) as store:
            elite = best_of(store, store.runs()[0].id)
        assert elite is not None and elite.evaluation.kernel_ms is not None
        assert analyses[1]["geo_mean_speedup"] == pytest.approx(4.0 / elite.evaluation.kernel_ms)


# KernelBench's own words


def exported_level_1(tmp_path: Path, several: bool = False) -> tuple[Path, Path]:
    """Our export of an elite as level 1, problem 19, or of several runs, and a baseline that knows two problems."""
    db = new_database(tmp_path)
    with open_store(db, read_only=True) as store:
        run = store.runs()[0]
        history = standing(store, run.id)
    if several:
        runs = [(dataclasses.replace(run, problem_id=f"level1/{number}"), history) for number in (19, 20)]
        unsolved = dataclasses.replace(run, problem_id="level1/21"), []
        folder = export_runs([*runs, unsolved], tmp_path / "out")[0].parent
    else:
        folder = export_run(run, history, tmp_path / "out", 1, 19)[0].parent
    return folder, baseline(tmp_path / "H" / "b.json", {"19_ReLU.py": 4.0, "20_LeakyReLU.py": 1.0})


def test_our_export_reads_by_the_documented_schema(tmp_path: Path) -> None:
    folder, times = exported_level_1(tmp_path)
    document = json.loads((folder / "eval_results.json").read_text())
    ((key, entries),) = document.items()
    assert key == "19"
    assert [one["sample_id"] for one in entries] == list(range(len(entries)))
    schema = {"compiled": bool, "correctness": bool, "metadata": dict, "runtime": float, "runtime_stats": dict}
    for one in entries:
        assert all(type(one[name]) is kind for name, kind in schema.items())
    found = analyse_folder(folder, read_kernelbench_baseline(times), None, lambda level: None)
    assert (found.correct_count, found.aligned, found.fast_p(0.0)) == (1, 2, 0.5)
    assert found.speedups == (4.0 / entries[0]["runtime"],)


def random_results(seed: int, numbers: range) -> dict[str, Any]:
    """Results of some problems, correct or not, some with further samples, and some without sample 0."""
    random, document = Random(seed), dict[str, Any]()
    for number in numbers:
        kind = random.random()
        one = entry(random.lognormvariate(1.0, 1.0)) if kind < 0.6 else wrong(compiled=kind < 0.8)
        document[str(number)] = [one | {"sample_id": 2}] if kind > 0.9 else [one, entry(0.001, sample_id=1)]
    return document


@pytest.mark.skipif(not ROOT, reason="KERNELBENCH_ROOT names no checkout of KernelBench")
@pytest.mark.parametrize("case", ["export", "several", "random", "none correct"])
def test_kernelbenchs_own_script_says_the_same(tmp_path: Path, case: str) -> None:
    if case in ("export", "several"):
        folder, times = exported_level_1(tmp_path, case == "several")
    else:
        document = random_results(1, range(1, 91)) if case == "random" else {"1": [wrong()]}
        folder = results(tmp_path / "runs" / "mine", document)
        names = sorted(path.name for path in (Path(ROOT) / "KernelBench" / "level1").glob("*.py"))
        times = baseline(tmp_path / "H" / "b.json", {name: 3.0 + len(name) / 7 for name in names[::2]})
    words = [ROOT, folder.name, "1", str(times), str(folder.parent), str(tmp_path / "theirs.json")]
    answer = subprocess.run([sys.executable, "-c", SCRIPT, *words], capture_output=True, text=True, cwd=ROOT)
    assert answer.returncode == 0, answer.stderr
    theirs = json.loads((tmp_path / "theirs.json").read_text())
    (ours,) = json.loads(kb("fastp", folder, "--baseline", times, "--kernelbench", ROOT, "--json").stdout)["analyses"]
    assert theirs["total_eval"] > 0
    for name, value in theirs.items():
        assert ours[name] == pytest.approx(value), name
