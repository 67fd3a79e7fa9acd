"""The fault list: whatever dies, stops, hangs or fills up, the verdict is typed, in time, and the next one is fine."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import psutil
import pytest

from experiments.hostile.attacks import VICTIM, attacker, is_frozen_victim, is_victim, kill, program
from experiments.hostile.cases import PROBLEM
from fitness import quota, wire
from fitness.children import Child, Zygote
from fitness.evaluation import Evaluation, Job, JudgeError, Verdict
from fitness.process import Limits, ModelProcess
from fitness.sandbox import ROOT, state_dir
from fitness.session import private_policy
from fitness.workbench import Workbench

NAMED = """
import ctypes, os, time
import torch

def say_name(name):
    ctypes.CDLL(None).prctl(15, name.encode(), 0, 0, 0)

building = os.path.isdir("products")
{at_import}

class ModelNew(torch.nn.Module):
    calls = 0

    def forward(self, x):
        self.calls += 1
        {in_forward}
        return torch.tanh(x)
"""
"""A candidate that names its process when it is where the test wants it."""
TIMEOUT_S = 3.0


@pytest.fixture(scope="module")
def bench() -> Iterator[Workbench]:
    """A workbench of our own: its judge and its zygotes get killed."""
    with Workbench() as running:
        assert _judge(running, candidate()).verdict is Verdict.CORRECT
        yield running


def candidate(at_import: str = "", in_forward: str = "pass") -> str:
    return NAMED.format(at_import=at_import, in_forward=in_forward) + f"# {time.time_ns()}\n"


def _job(source: str, **options: object) -> Job:
    values = {"timeout_s": TIMEOUT_S, "build_timeout_s": 20.0, "incumbent_ms": 1e-6, **options}
    return Job("tanh", PROBLEM, source, **values)  # type: ignore[arg-type]


def _judge(bench: Workbench, source: str, **options: object) -> Evaluation:
    for _ in range(3):
        found = bench.evaluate(_job(source, **options))
        if found.verdict is not Verdict.NO_VERDICT:
            break
    return found


def _next_is_fine(bench: Workbench, **options: object) -> None:
    found = _judge(bench, candidate(), **options)
    assert found.verdict is Verdict.CORRECT, found.reason


def _is_gone(pid: int, within_s: float = 1.0) -> bool:
    deadline = time.monotonic() + within_s
    while _is_there(pid) and time.monotonic() < deadline:
        time.sleep(0.01)
    return not _is_there(pid)


def _is_there(pid: int) -> bool:
    """A dead process whose parent is dead too is init's to clear up, which some inits do late."""
    try:
        process = psutil.Process(pid)
        return not (process.status() == psutil.STATUS_ZOMBIE and process.ppid() == 1)
    except psutil.NoSuchProcess:
        return False


SLEEP = f"say_name({VICTIM!r}); time.sleep(60)"


def test_a_candidate_that_rests_wherever_it_is_asked_is_waited_for_so_long_and_no_longer(bench):
    rest = """
import weakref
rested = {}
def rest(where):
    if not building and time.monotonic() - rested.get(where, 0) > 0.1:  # once in a batch
        time.sleep(0.7)
        rested[where] = time.monotonic()
"""
    forward = "rest('call'); out = torch.tanh(x); weakref.finalize(out, rest, 'release'); return out"
    started = time.monotonic()
    found = _judge(bench, candidate(rest, forward), timeout_s=1.0)
    assert found.verdict is Verdict.TIMEOUT, found.reason
    assert found.reason == "loading it and all its calls took longer than 20 s together"
    assert time.monotonic() - started < 20 + 5
    _next_is_fine(bench)


def test_a_runner_that_is_killed_before_the_candidates_code_begins_is_nobodys_verdict(monkeypatch):
    zygote = Zygote(1)
    spawn = zygote.spawn

    def kill_at_once(*arguments: object) -> Child:
        child = spawn(*arguments)  # type: ignore[arg-type]
        os.kill(child.pid, signal.SIGKILL)
        return child

    monkeypatch.setattr(zygote, "spawn", kill_at_once)
    runner = ModelProcess(zygote, "run", {}, private_policy(()), Limits(TIMEOUT_S, 1 << 30))
    try:
        with pytest.raises(JudgeError, match=r"before it came to the candidate's code: the process was killed"):
            runner._await(wire.READY, "loading the module")
    finally:
        runner.close()
        runner.child.discard()
        zygote.close()


def test_a_builder_killed_while_it_compiles_is_a_load_error_and_the_same_source_builds_again(bench):
    source = candidate(f"if building: say_name({VICTIM!r}); time.sleep(1.5)")
    with attacker(kill, is_victim) as struck:
        found = _judge(bench, source)
    assert found.verdict is Verdict.LOAD_ERROR and "SIGKILL" in found.reason
    assert _is_gone(struck[0])
    assert not list((state_dir() / "builds").glob(f"*.{os.getpid()}.*.tmp"))
    assert bench.build(_job(source)).failure is None


CONTROLLER = """
import sys
from fitness.evaluation import Job
from fitness.workbench import Workbench
bench = Workbench()
bench.sandbox_level = "S2"  # as after the first measurement: only the build is of interest here
bench.build(Job("tanh", open(sys.argv[1]).read(), open(sys.argv[2]).read()))
"""


def test_a_controller_killed_while_a_candidate_compiles_leaves_no_process_and_no_folder(tmp_path):
    program = "import subprocess; subprocess.run(['sleep', '600'])"
    (tmp_path / "problem.py").write_text(PROBLEM)
    (tmp_path / "candidate.py").write_text(candidate(f"if building: say_name({VICTIM!r}); {program}"))
    command = [sys.executable, "-c", CONTROLLER, str(tmp_path / "problem.py"), str(tmp_path / "candidate.py")]
    below: list[psutil.Process] = []

    def note_and_kill(process: psutil.Process) -> None:
        while not process.children():
            time.sleep(0.01)
        below.extend(controller.children(recursive=True))
        controller.kill()

    controller = psutil.Popen(command, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)})
    with attacker(note_and_kill, is_victim):
        controller.wait(60)
    assert len(below) >= 3  # zygote, builder, what the builder had started
    assert all(_is_gone(process.pid, 2.0) for process in below)
    left = list((state_dir() / "builds").glob(f"*.{controller.pid}.*.tmp"))
    script = "from fitness.builds import sweep; from fitness.sandbox import state_dir; sweep(state_dir() / 'builds')"
    subprocess.run([sys.executable, "-c", script], cwd=ROOT, check=True)
    assert left and not any(path.exists() for path in left)


KILLED = {
    "while it loads": (candidate(f"if not building: {SLEEP}"), is_victim, "loading"),
    "during a call": (candidate(in_forward=SLEEP), is_victim, "a forward call"),
    "between two calls": (candidate(in_forward=f"say_name({VICTIM!r})"), is_frozen_victim, "SIGKILL"),
}


@pytest.mark.parametrize("case", KILLED.values(), ids=KILLED.keys())
def test_a_runner_killed_by_somebody_is_a_runtime_error_that_says_so(bench, case):
    source, wanted, words = case
    with attacker(kill, wanted) as struck:
        found = bench.evaluate(_job(source))
    assert struck and _is_gone(struck[0])
    assert found.verdict is Verdict.RUNTIME_ERROR and words in found.reason and "SIGKILL" in found.reason
    _next_is_fine(bench)


TOUCHED = {
    "lets it run": (lambda process: process.send_signal(signal.SIGCONT), "stopped"),
    "binds it to another CPU": (lambda process: process.cpu_affinity([os.cpu_count() - 1]), "bound to other CPUs"),
}


@pytest.mark.skipif(os.cpu_count() == 1, reason="needs two CPUs")
@pytest.mark.parametrize("case", TOUCHED.values(), ids=TOUCHED.keys())
def test_a_stopped_runner_that_somebody_touches_breaks_the_contract(bench, case):
    touch, words = case

    def act(process: psutil.Process) -> None:
        for _ in range(300):  # once may fall between the stop and the look at how its threads stand
            touch(process)
            time.sleep(0.002)

    with attacker(act, is_frozen_victim):
        found = _judge(bench, candidate(in_forward=f"say_name({VICTIM!r})"))
    assert found.verdict is Verdict.CONTRACT and words in found.reason, found.reason
    _next_is_fine(bench)


ENDLESS = {
    "in Python": "while True: pass",
    "in a call that never lets go of the interpreter": "ctypes.PyDLL(None).sleep(600)",
    "stopped by itself": "os.kill(os.getpid(), 19)",
}


@pytest.mark.parametrize("code", ENDLESS.values(), ids=ENDLESS.keys())
def test_an_endless_call_is_dead_five_seconds_after_its_time(bench, code):
    lived_s: list[float] = []

    def time_its_end(process: psutil.Process) -> None:
        started = time.monotonic()
        _is_gone(process.pid, 60)
        lived_s.append(time.monotonic() - started)

    with attacker(time_its_end, is_victim):
        found = bench.evaluate(_job(candidate(in_forward=f"say_name({VICTIM!r})\n        {code}"), timeout_s=1.0))
    assert found.verdict is Verdict.TIMEOUT, found.reason
    assert lived_s[0] < 1.0 + 5.0
    _next_is_fine(bench)


def test_a_segmentation_fault_in_a_thread_is_a_runtime_error_with_its_signal(bench):
    fault = "import threading; t = threading.Thread(target=lambda: ctypes.string_at(8)); t.start(); t.join()"
    found = _judge(bench, candidate(in_forward=fault))
    assert found.verdict is Verdict.RUNTIME_ERROR and "SIGSEGV" in found.reason
    _next_is_fine(bench)


def test_a_judge_that_was_stopped_for_a_while_gives_the_same_verdict(bench):
    """The call's deadline passes while nobody looks; the answer is there all the same."""

    def stop_for_a_while(process: psutil.Process) -> None:
        judge = program("fitness.judge")
        judge.suspend()
        time.sleep(1.5)
        judge.resume()

    slow_once = f"if self.calls == 8: say_name({VICTIM!r}); time.sleep(0.3)"
    with attacker(stop_for_a_while, is_victim) as struck:
        found = bench.evaluate(_job(candidate(in_forward=slow_once), timeout_s=1.0))
    assert struck
    assert found.verdict in (Verdict.CORRECT, Verdict.NO_VERDICT), found.reason
    _next_is_fine(bench)


@pytest.mark.slow
def test_a_judge_that_is_stopped_and_left_so_is_given_up(bench, monkeypatch):
    monkeypatch.setattr("fitness.workbench.STOPPED_TIMEOUT_S", 2.0)
    judge = program("fitness.judge")
    judge.suspend()
    started = time.monotonic()
    with pytest.raises(JudgeError, match="new judge"):
        bench.evaluate(_job(candidate()))
    assert time.monotonic() - started < 20 and _is_gone(judge.pid)
    _next_is_fine(bench)


def test_a_judge_killed_while_it_measures_is_an_error_of_ours_and_the_next_measurement_has_a_new_one(bench):
    judge, zygote = program("fitness.judge"), program("fitness.zygote", of_judge=True)
    with (
        attacker(lambda process: judge.kill(), is_victim) as struck,
        pytest.raises(JudgeError, match="judge process died"),
    ):
        bench.evaluate(_job(candidate(in_forward=SLEEP)))
    assert _is_gone(struck[0]) and _is_gone(zygote.pid)
    _next_is_fine(bench)


def test_a_judge_without_memory_says_that_it_failed_itself_and_the_next_measurement_has_a_new_one(bench):
    problem = """
import torch
class Model(torch.nn.Module):
    def forward(self, x):
        return torch.tanh(x)
def get_inputs(): return [torch.randn(4096, 4096)]
def get_init_inputs(): return []
"""
    _next_is_fine(bench)
    judge = program("fitness.judge")
    held = judge.memory_info().vms + (64 << 20)
    resource.prlimit(judge.pid, resource.RLIMIT_AS, (held, resource.RLIM_INFINITY))
    with pytest.raises(JudgeError, match=r"the judge itself failed on cpu: .*the next measurement starts a new one"):
        bench.evaluate(dataclasses.replace(_job(candidate()), problem_source=problem))
    assert _is_gone(judge.pid)
    _next_is_fine(bench)


@pytest.mark.slow
def test_a_judge_killed_between_two_measurements_is_replaced_unnoticed(bench):
    judge = program("fitness.judge")
    judge.kill()
    judge.wait(5)
    _next_is_fine(bench)


def test_after_the_death_of_the_builds_zygote_one_error_and_then_a_new_one(bench):
    zygote = program("fitness.zygote")
    with attacker(lambda process: zygote.kill(), is_victim) as struck, contextlib.suppress(JudgeError):
        found = bench.evaluate(_job(candidate(f"if building: {SLEEP}")))
        assert found.verdict is Verdict.LOAD_ERROR
    assert _is_gone(struck[0])
    _next_is_fine(bench)


def test_after_the_death_of_the_judges_zygote_one_error_and_then_a_new_judge(bench):
    zygote = program("fitness.zygote", of_judge=True)
    with attacker(lambda process: zygote.kill(), is_victim) as struck, contextlib.suppress(JudgeError):
        found = bench.evaluate(_job(candidate(in_forward=SLEEP)))
        assert found.verdict is Verdict.RUNTIME_ERROR, found.reason
    assert _is_gone(struck[0])
    with contextlib.suppress(JudgeError):
        bench.evaluate(_job(candidate()))
    _next_is_fine(bench)


def test_a_build_that_fails_on_a_full_disk_is_an_error_of_ours_and_is_not_kept(bench, monkeypatch):
    source = candidate(
        "if building and not os.path.exists('/nonexistent'): raise OSError(28, 'No space left on device')"
    )
    with monkeypatch.context() as patch:
        patch.setattr(quota, "LEAST_DISK_BYTES", 1 << 60)
        with pytest.raises(JudgeError, match="make room"):
            bench.build(_job(source))
    _next_is_fine(bench)


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to mount a small disk")
def test_on_a_disk_that_is_really_full_a_build_is_an_error_of_ours(tmp_path):
    script = """
import ctypes, os, sys, tempfile
libc = ctypes.CDLL(None, use_errno=True)
if libc.unshare(0x20000) or libc.mount(b"none", b"/", None, 0x44000, None) or \\
        libc.mount(b"tmpfs", sys.argv[1].encode(), b"tmpfs", 0, b"size=1m,mode=755"):
    sys.exit(77)
tempfile.tempdir = sys.argv[1]
from fitness.builder import Builder
from fitness.children import Zygote
from fitness.evaluation import Job, JudgeError
zygote = Zygote(1)
builder = Builder(zygote, fenced=True)
with open(sys.argv[1] + "/filler", "wb", buffering=0) as file:
    try:
        while True: file.write(b"x" * 4096)
    except OSError: pass
try:
    builder.build(Job("tanh", open(sys.argv[2]).read(), "import torch\\nclass ModelNew(torch.nn.Module): pass"))
except JudgeError as error:
    print("JudgeError", error)
zygote.close()
"""
    (tmp_path / "problem.py").write_text(PROBLEM)
    (tmp_path / "disk").mkdir()
    command = [sys.executable, "-c", script, str(tmp_path / "disk"), str(tmp_path / "problem.py")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    if done.returncode == 77:
        pytest.skip("mounting is not allowed here")
    assert "JudgeError" in done.stdout and "disk" in done.stdout, done.stdout + done.stderr


def test_lock_files_of_dead_processes_hold_nobody_up(bench):
    script = (
        "import os, sys; from fitness import builds, machine; from fitness.sandbox import state_dir\n"
        "held = machine.device_lock('cpu'); held.__enter__()\n"
        "key = builds.lock(state_dir() / 'builds', sys.argv[1]); key.__enter__()\n"
        "os.kill(os.getpid(), 9)"
    )
    source = candidate()
    key = bench._builder._key(_job(source))
    done = subprocess.run([sys.executable, "-c", script, key], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert (state_dir() / "device-cpu.lock").exists() and (state_dir() / "builds" / "locks" / key).exists()
    assert _judge(bench, source).verdict is Verdict.CORRECT


def test_no_deadline_and_no_time_comes_from_the_wall_clock():
    """Clock jumps then change nothing. Left are the age of kept builds and the date in a record."""
    wall = re.compile(r"time\.time\(|datetime\.now|CLOCK_REALTIME")
    users = {path.name for path in (ROOT / "fitness").rglob("*.py") if wall.search(path.read_text())}
    assert users <= {"builds.py", "health.py"}
