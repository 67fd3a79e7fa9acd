"""The command line: exit codes, one paragraph for each error, one JSON document for --json."""

from __future__ import annotations

import json
import os
import resource
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from fitness.evaluation import JudgeError, Verdict
from fitness.replay import Failure, Landscape, Replay
from islands.store import open_store
from kb_evolve.cli import add_commands, cli, explain
from kb_evolve.search import Outcome, Search

ROOT = Path(__file__).resolve().parents[2]
PROBLEM = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x)

def get_inputs():
    return [torch.rand(64, 64)]

def get_init_inputs():
    return []
"""

add_commands()


def kb(*arguments: str | Path | int) -> Result:
    return CliRunner().invoke(cli, [str(argument) for argument in arguments])


def assert_refused(result: Result, code: int, *parts: str) -> None:
    """One paragraph on stderr that holds the parts, nothing on stdout, the exit code."""
    assert result.exit_code == code, result.output
    assert result.stdout == ""
    text = result.stderr.strip()
    assert text and "\n\n" not in text and f'File "{ROOT}' not in text
    for part in parts:
        assert part in text, f"{part!r} is not in: {text}"


@pytest.fixture
def problem_file(tmp_path: Path) -> Path:
    path = tmp_path / "relu.py"
    path.write_text(PROBLEM)
    return path


@pytest.fixture(scope="module")
def searched(memory_dir: Path) -> tuple[Path, Outcome]:
    """A database with one finished run of the bundled problem softmax, on a scripted landscape."""
    db = memory_dir / "searched.db"
    outcome = Search(
        "softmax", workbench=Replay(Landscape(noise=0.01)), db=str(db), evaluations=15, run="night", islands=2
    ).run()
    return db, outcome


def _newer(db: Path) -> None:
    open_store(db).close()
    connection = sqlite3.connect(db)
    connection.execute("PRAGMA user_version = 9999")
    connection.close()


def _garbage(db: Path) -> None:
    db.write_bytes(b"this is no database" * 100)


def _torn(db: Path) -> None:
    """A database whose pages behind the first are overwritten."""
    open_store(db).close()
    content = bytearray(db.read_bytes())
    content[4096:] = b"\xa5" * (len(content) - 4096)
    db.write_bytes(content)


@pytest.mark.parametrize(("spoil", "part"), [(_newer, "newer"), (_garbage, "not a SQLite"), (_torn, "corrupt")])
def test_a_database_that_cannot_be_used_is_refused_unchanged(
    tmp_path: Path, spoil: Callable[[Path], None], part: str
) -> None:
    db = tmp_path / "kb.db"
    spoil(db)
    before = db.read_bytes()
    assert_refused(kb("run", "softmax", "--db", db, "--evaluations", 5), 2, part, "kb.db")
    assert_refused(kb("runs", "--db", db), 2, part)
    assert db.read_bytes() == before


def test_a_missing_problem_file_is_bad_input(tmp_path: Path) -> None:
    db = tmp_path / "kb.db"
    assert_refused(kb("run", tmp_path / "none.py", "--db", db), 2, "none.py")
    assert not db.exists(), "nothing is created for a command that cannot work"


def test_a_file_without_model_is_bad_input(tmp_path: Path) -> None:
    path = tmp_path / "empty.py"
    path.write_text("x = 1\n")
    assert_refused(kb("run", path, "--db", tmp_path / "kb.db"), 2, "Model")


def test_a_problem_without_a_first_kernel_says_how_to_give_one(problem_file: Path, tmp_path: Path) -> None:
    assert_refused(kb("run", problem_file, "--db", tmp_path / "kb.db"), 2, "--start KERNEL.py")


@pytest.mark.parametrize(
    ("flags", "part"),
    [
        (("--backend", "cobol"), "cpp"),
        (("--device", "tpu"), "cpu"),
        (("--precision", "fp7"), "bf16"),
        (("--sandbox", "maybe"), "auto"),
        (("--evaluations", "0"), "above 0"),
        (("--mutator", "tuna"), "tune"),
        (("--start", "nowhere.py"), "nowhere.py"),
    ],
)
def test_an_unknown_choice_names_the_possible_ones(tmp_path: Path, flags: tuple[str, ...], part: str) -> None:
    assert_refused(kb("run", "softmax", "--db", tmp_path / "kb.db", *flags), 2, part)


def test_an_unknown_config_key_suggests_the_nearest(tmp_path: Path) -> None:
    path = tmp_path / "night.toml"
    path.write_text("[budget]\nevaluatons = 5\n")
    assert_refused(kb("run", "softmax", "--config", path), 2, "night.toml", "'evaluations'")


def test_an_unknown_flag_is_wrong_usage() -> None:
    assert kb("run", "softmax", "--evalutions", "5").exit_code == 2


def test_a_run_needs_a_problem(tmp_path: Path) -> None:
    assert_refused(kb("run", "--db", tmp_path / "kb.db"), 2, "problems list")


def test_two_problems_cannot_share_one_run_name() -> None:
    assert_refused(kb("run", "softmax", "rmsnorm", "--run", "night"), 2, "night")


def test_a_run_that_another_process_holds_is_refused_with_its_pid(searched: tuple[Path, Outcome]) -> None:
    db, outcome = searched
    with open_store(db) as store, store.lease(outcome.run.id):
        assert_refused(kb("run", "softmax", "--run", "night", "--db", db), 2, f"process {os.getpid()}")


def test_resuming_with_another_seed_is_refused(searched: tuple[Path, Outcome]) -> None:
    db, _ = searched
    assert_refused(kb("run", "softmax", "--run", "night", "--db", db, "--seed", 7), 2, "seed", "--run NAME")


def test_eval_of_a_missing_kernel_is_bad_input(tmp_path: Path) -> None:
    assert_refused(kb("eval", tmp_path / "none.py", "--problem", "softmax"), 2, "none.py")


@pytest.mark.parametrize(
    ("verdict", "code"),
    [(Verdict.VERIFIED, 0), (Verdict.WRONG_RESULT, 1), (Verdict.COMPILE_ERROR, 1), (Verdict.NO_VERDICT, 3)],
)
def test_evals_exit_code_tells_right_wrong_and_unknown_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verdict: Verdict, code: int
) -> None:
    scripted = Landscape(failures=(Failure("ModelNew", verdict),))
    monkeypatch.setattr("kb_evolve.judging.open_workbench", lambda config: Replay(scripted))
    kernel = tmp_path / "kernel.py"
    kernel.write_text("import torch\nclass ModelNew(torch.nn.Module):\n    def forward(self, x): return x @ x\n")
    result = kb("eval", kernel, "--problem", "softmax")
    assert result.exit_code == code and str(verdict) in result.stdout
    assert "torch-ops (calls torch's own operators)" in result.stdout
    assert ("verified, not timed: no GPU" in result.stdout) is (verdict is Verdict.VERIFIED)
    found = json.loads(kb("eval", kernel, "--problem", "softmax", "--json").stdout)
    assert (found["verdict"], found["labels"], found["kernel_ms"]) == (str(verdict), ["torch-ops"], None)


def test_what_a_backend_cannot_do_without_a_gpu_is_said_in_one_line_on_stderr(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kb_evolve.judging.open_workbench", lambda config: Replay())
    kernel = tmp_path / "kernel.py"
    kernel.write_text("class ModelNew: pass\n")
    result = kb("eval", kernel, "--problem", "softmax", "--backend", "triton", "--device", "cpu", "--json")
    assert result.stderr.strip().count("\n") == 0 and "not timed" in result.stderr
    json.loads(result.stdout)


@pytest.mark.parametrize(
    ("flags", "code", "part"),
    [
        (("--device", "cuda"), 2, "--backend cuda or triton"),
        (("--arch", "sm_90"), 2, "cuda and triton"),
        (("--backend", "triton", "--device", "cuda:99"), 3, "cuda:99 was asked for"),
        (("--backend", "triton", "--device", "cpu"), 3, "a search needs times"),
    ],
)
def test_a_target_that_cannot_be_searched_is_refused_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flags: tuple[str, ...], code: int, part: str
) -> None:
    monkeypatch.setattr("kb_evolve.devices.has_package", lambda name: True)
    db = tmp_path / "kb.db"
    assert_refused(kb("run", "softmax", "--db", db, *flags), code, part)
    assert not db.exists()


def test_kernelbenchs_baseline_file_holds_one_kind(tmp_path: Path) -> None:
    two = ("--kind", "eager", "--kind", "compile")
    assert_refused(kb("baseline", "softmax", "--format", "kernelbench", *two), 2, "--kind once")
    assert_refused(kb("baseline", "softmax", "--out", tmp_path / "x.json"), 2, "--format kernelbench")
    assert_refused(kb("baseline", "softmax", "--kind", "eager-tf32"), 2, "needs a GPU")


LIGHT = """
import sys
for name in ("sqlite_utils", "litellm", "openevolve", "rich", "tree_sitter", "tree_sitter_cpp", "matplotlib", "jinja2"):
    sys.modules[name] = None
from click.testing import CliRunner
from kb_evolve.cli import add_commands, cli, explain
from kb_evolve.judging import evaluate
from kb_evolve.baselines import Shelf, measure
from fitness.replay import Replay
add_commands()
for words in ("problems list", "eval none.py --problem softmax", "baseline none", "doctor --help"):
    result = CliRunner().invoke(cli, words.split())
    assert result.exit_code in (0, 2) and "cannot be imported" not in result.output, (words, result.output)
from problems.catalogue import load
assert evaluate("class ModelNew: pass\\n", "softmax", workbench=Replay()).is_correct
from kb_evolve import doctor
assert doctor.check_database("x.db").is_fine and list(doctor.check_gpus())
"""


def test_eval_baseline_problems_and_doctor_need_click_dacite_and_torch_alone() -> None:
    done = subprocess.run([sys.executable, "-c", LIGHT], capture_output=True, text=True, cwd=ROOT, timeout=60)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("command", "part"),
    [
        (("show", "nobody"), "nobody"),
        (("report", "nobody", "--out", "x"), "night"),
        (("export", "nobody", "--format", "kernelbench", "--out", "x"), "night"),
    ],
)
def test_an_unknown_name_is_refused(searched: tuple[Path, Outcome], command: tuple[str, ...], part: str) -> None:
    assert_refused(kb(*command, "--db", searched[0]), 2, part)


def test_reading_a_database_that_does_not_exist_creates_none(tmp_path: Path) -> None:
    db = tmp_path / "none.db"
    assert_refused(kb("runs", "--db", db), 2, "none.db")
    assert not db.exists()


def test_a_failing_judge_exits_with_three() -> None:
    assert explain(JudgeError("the judge died")) == (3, "the judge died")


def test_an_unexpected_error_says_how_to_see_the_traceback() -> None:
    code, text = explain(ZeroDivisionError("division by zero"))
    assert code == 3 and "--debug" in text and "ZeroDivisionError" in text


def test_a_broken_installation_is_said_to_be_one() -> None:
    code, text = explain(ModuleNotFoundError("No module named 'sqlite_utils'"))
    assert code == 3 and "install kb_evolve again" in text


def test_debug_lets_the_traceback_through(tmp_path: Path) -> None:
    result = kb("--debug", "runs", "--db", tmp_path / "none.db")
    assert type(result.exception).__name__ == "StoreError"


def document(result: Result) -> Any:
    """The one JSON document on stdout."""
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_runs_lists_what_the_database_holds(searched: tuple[Path, Outcome]) -> None:
    db, outcome = searched
    (entry,) = document(kb("runs", "--db", db, "--json"))["runs"]
    assert (entry["run"], entry["problem"], entry["evaluations"]) == ("night", "softmax", 15)
    assert outcome.best is not None and entry["best"] == outcome.best.candidate.id
    assert "night" in kb("runs", "--db", db).stdout


def test_top_lists_the_elite_of_the_run_then_the_fastest_and_only_of_the_problem(
    searched: tuple[Path, Outcome],
) -> None:
    db, outcome = searched
    first, *others = found = document(kb("top", "softmax", "--db", db, "--limit", 4, "--json"))["top"]
    assert outcome.best is not None and first["id"] == outcome.best.candidate.id
    every = document(kb("top", "softmax", "--db", db, "--limit", 100, "--json"))["top"]
    speedups = sorted((entry["speedup"] for entry in every if entry["id"] != first["id"]), reverse=True)
    assert len(others) == 3 and [entry["speedup"] for entry in others] == speedups[:3]
    assert {"id", "run", "mutator", "verdict", "speedup_ci", "baseline", "source_sha256"} <= set(found[0])
    assert document(kb("top", "rmsnorm", "--db", db, "--json"))["top"] == []


def test_show_gives_a_candidate_by_the_beginning_of_its_id_and_a_runs_best(
    searched: tuple[Path, Outcome],
) -> None:
    db, outcome = searched
    assert outcome.best is not None
    best_id = outcome.best.candidate.id
    for name in (best_id, "night"):
        shown = document(kb("show", name, "--db", db, "--json"))
        assert shown["id"] == best_id and shown["source"] == outcome.best.candidate.source
        assert shown["lineage"][-1]["id"] == best_id
    assert kb("show", best_id, "--db", db, "--source").stdout == outcome.best.candidate.source
    assert best_id in kb("show", best_id, "--db", db).stdout


def test_a_finished_run_is_resumed_to_nothing_left_without_a_judge(searched: tuple[Path, Outcome]) -> None:
    db, outcome = searched
    again = Search("softmax", workbench=Replay(), db=str(db), run="night").run()
    assert again.evaluations == 15 and again.best == outcome.best


@pytest.mark.parametrize(
    "command", ["run", "eval", "baseline", "problems", "runs", "top", "show", "report", "export", "doctor"]
)
def test_every_command_has_an_example_in_its_help(command: str) -> None:
    result = kb(command, "--help")
    assert result.exit_code == 0 and "Example: kb-evolve" in result.stdout


HELP = """
import atexit, sys
sys.argv[1:] = ["--help"]
atexit.register(lambda: print(*sys.modules, file=sys.stderr))
from kb_evolve.cli import main
main()
"""


def test_help_is_fast_because_nothing_heavy_is_imported() -> None:
    def timed(code: str) -> tuple[float, str]:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, timeout=60)
        assert answer.returncode == 0, answer.stderr
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, answer.stderr

    loaded = {name.split(".")[0] for name in timed(HELP)[1].split()}
    assert "click" in loaded
    assert loaded.isdisjoint(
        {"torch", "rich", "litellm", "openevolve", "matplotlib", "sqlite_utils", "numpy", "dacite"}
    )
    help_s = min(timed(HELP)[0] for _ in range(3))
    bare_s = min(timed("import click")[0] for _ in range(3))
    assert help_s < 4 * bare_s, f"--help takes {help_s:.2f} s of CPU, importing click alone {bare_s:.2f} s"


@pytest.mark.parametrize("command", ["run", "problems show"])
def test_a_problem_whose_get_inputs_raises_is_bad_input_and_its_message_is_shown(
    tmp_path: Path, problem_file: Path, command: str
) -> None:
    problem_file.write_text(PROBLEM.replace("return [torch", "raise RuntimeError('no inputs today')\n    [torch"))
    kernel = tmp_path / "kernel.py"
    kernel.write_text("class ModelNew: pass\n")
    options = ("--start", kernel, "--db", tmp_path / "kb.db") if command == "run" else ()
    assert_refused(kb(*command.split(), problem_file, *options), 2, "get_inputs", "no inputs today")
