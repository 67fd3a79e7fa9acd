"""The whole way with the real judge: run, kill -9, resume, report, export, eval, from the command line."""

from __future__ import annotations

import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

sys.path.append(str(Path(__file__).parent))

from export_makers import edit, reseal

README = Path(__file__).parents[2] / "README.md"
EVALUATIONS = 4


def command(*words: str | Path) -> list[str]:
    return [sys.executable, "-m", "kb_evolve", *map(str, words)]


def call(*words: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(*words), cwd=cwd, capture_output=True, text=True, timeout=300)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder whose kb.db holds a run that was killed once and then finished."""
    folder = tmp_path_factory.mktemp("run")
    words = ("run", "row_variance", "--db", "kb.db", "--run", "real", "--evaluations", str(EVALUATIONS))
    process = subprocess.Popen(command(*words), cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while not any("fitness.judge" in part for part in _words(process.pid)) and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(1.0)
    tree = [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]
    os.kill(process.pid, signal.SIGKILL)  # the controller alone: the others must notice
    process.wait()
    _, alive = psutil.wait_procs(tree, timeout=10)
    (folder / "alive.json").write_text(json.dumps([member.pid for member in alive]))
    finished = call(*words, cwd=folder)
    assert finished.returncode == 0, finished.stderr
    (folder / "said.txt").write_text(finished.stdout)
    return folder


def _words(pid: int) -> list[str]:
    try:
        return [part for child in psutil.Process(pid).children(recursive=True) for part in child.cmdline()]
    except psutil.NoSuchProcess:
        return []


def test_no_process_outlives_a_killed_controller(folder):
    assert json.loads((folder / "alive.json").read_text()) == []


def test_the_resumed_run_used_exactly_its_budget(folder):
    (run,) = json.loads(call("runs", "--db", "kb.db", "--json", cwd=folder).stdout)["runs"]
    assert run["evaluations"] == EVALUATIONS


def test_a_finished_run_says_what_it_found_and_ends_at_once_when_called_again(folder):
    assert "x" in (folder / "said.txt").read_text()
    started = time.monotonic()
    again = call("run", "row_variance", "--db", "kb.db", "--run", "real", "--evaluations", str(EVALUATIONS), cwd=folder)
    assert again.returncode == 0
    assert time.monotonic() - started < 20


def test_report_and_export_of_a_real_run(folder):
    report = call("report", "real", "--db", "kb.db", "--out", "report", cwd=folder)
    assert report.returncode == 0, report.stderr
    assert (folder / "report" / "index.html").stat().st_size > 10_000
    export = call("export", "real", "--db", "kb.db", "--format", "kernelbench", "--out", "export", cwd=folder)
    assert export.returncode == 0, export.stderr
    assert list((folder / "export").rglob("*_sample_0_kernel.py"))


def test_eval_judges_the_exported_kernel_and_refuses_a_wrong_one(folder):
    call("export", "real", "--db", "kb.db", "--format", "kernelbench", "--out", "export", cwd=folder)
    (kernel,) = (folder / "export").rglob("*_sample_0_kernel.py")
    for _ in range(3):  # a machine may be busy for a while
        good = call("eval", kernel, "--problem", "row_variance", "--json", cwd=folder)
        if json.loads(good.stdout)["verdict"] != "no_verdict":
            break
    assert (good.returncode, json.loads(good.stdout)["verdict"]) == (0, "correct"), good.stderr
    wrong = folder / "wrong.py"
    wrong.write_text("import torch\nclass ModelNew(torch.nn.Module):\n    def forward(self, x): return x.mean(1)\n")
    bad = call("eval", wrong, "--problem", "row_variance", "--json", cwd=folder)
    assert (bad.returncode, json.loads(bad.stdout)["verdict"]) == (1, "wrong_result"), bad.stderr


def test_a_bundle_of_a_real_run_is_judged_again_where_there_is_no_database(folder, tmp_path):
    bundle = tmp_path / "bundle"
    export = call("export", "real", "--db", "kb.db", "--format", "bundle", "--out", bundle, cwd=folder)
    assert export.returncode == 0, export.stderr
    trap = tmp_path / "outside"
    prefix = f"try:\n    open({str(trap)!r}, 'w')\nexcept OSError:\n    pass\n"
    for name in ("problem.py", "elite.py"):  # a stranger's bundle: its files run in the judge's sandbox alone
        (bundle / name).write_text(prefix + (bundle / name).read_text())
    digests = {name: hashlib.sha256((bundle / name).read_bytes()).hexdigest() for name in ("problem.py", "elite.py")}
    edit(bundle / "bundle.json", "problem", "sha256", value=digests["problem.py"])
    edit(bundle / "evaluations.json", -1, "evaluation", "source_sha256", value=digests["elite.py"])
    reseal(bundle)
    answer = call("verify", bundle, "--json", cwd=tmp_path)
    document = json.loads(answer.stdout)
    assert not trap.exists()
    assert document["here"]["verdict"] in ("correct", "no_verdict"), document["here"]["reason"]
    assert answer.returncode == {True: 0, False: 1, None: 3}[document["agrees"]]
    assert any("is NOT the row_variance that is known here" in note for note in document["notes"])


def test_the_readmes_python_runs(tmp_path):
    (block,) = re.findall(r"```python\n(.*?)```", README.read_text(), re.S)
    short = block.replace("evaluations=20", "evaluations=2")
    assert short != block
    done = subprocess.run([sys.executable, "-c", short], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "ModelNew" in done.stdout
