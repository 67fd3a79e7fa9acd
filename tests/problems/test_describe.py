"""Describing problems in real child processes, honest and hostile ones."""

import os
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from problems.describe import describe
from problems.problem import Problem, ProblemError

MODEL = """import os, subprocess, sys, time
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x)


def get_init_inputs():
    return []
"""


def given_by(body):
    return MODEL + "\n\ndef get_inputs():\n" + "".join(f"    {line}\n" for line in body.splitlines())


CONSTRUCTOR = """    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(65536, 10)

"""
HUGE = (
    given_by("return [torch.rand(1024 * 64, 65536)]")
    .replace("    def forward", CONSTRUCTOR + "    def forward")
    .replace("torch.relu(x)", "self.layer(x).relu()")
)


def at_once(code):
    """A file that misbehaves while it is loaded: its child need not import torch."""
    return f"import os, subprocess, sys, time\n{code}\n"


SOURCES = {
    "relu": given_by("return [torch.rand(300, 200)]"),
    "huge": HUGE,
    "raises": given_by("x = 1\nraise ValueError('no such shape', os.getcwd(), sorted(os.environ))"),
    "hangs": given_by("print('thinking', flush=True)\ntime.sleep(600)"),
    "prints and forks": given_by(
        "print('x' * 50_000_000)\nchild = subprocess.Popen(['sleep', '600'])\n"
        "open('@/forks', 'w').write(str(child.pid))\nreturn [torch.rand(30)]"
    ),
    "exits": at_once("sys.exit('had enough')"),
    "imports": at_once("import nowhere_to_be_found"),
    "vanishes": at_once("print('bye', flush=True)\nos._exit(0)"),
    "crashes": at_once("os.kill(os.getpid(), 11)"),
    "prints for ever": at_once("while True: os.write(1, b'spam ' * 13000)"),
    "greedy": at_once("bytearray(1 << 34)"),
    "leaves a child": at_once(
        "child = subprocess.Popen(['sleep', '600'])\nopen('@/left', 'w').write(str(child.pid))\nos._exit(3)"
    ),
    "drives the terminal": at_once("raise ValueError('\\x1b[2J')"),
    "forges": at_once(
        "for fd in range(3, 256):\n    try: os.write(fd, b'{\"anatomy\": {\"inputs\": 7}}\\n')\n"
        "    except OSError: pass\nos._exit(0)"
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """Everything above described at the same time: name -> Anatomy or the error's text."""
    folder = tmp_path_factory.mktemp("notes")

    def run(name, timeout_s=120.0):
        try:
            return describe(Problem(name, name, SOURCES[name].replace("@", str(folder))), timeout_s)
        except ProblemError as error:
            return str(error)

    os.environ["SECRET_API_KEY"] = "sesame"
    try:
        started = time.monotonic()
        answers = {"relu": run("relu")}
        patience_s = max(6.0, 5 * (time.monotonic() - started))
        with ThreadPoolExecutor(4) as pool:
            hanging = pool.submit(run, "hangs", patience_s)
            others = [name for name in SOURCES if name not in ("relu", "hangs")]
            answers |= zip(others, pool.map(run, others), strict=True)
            answers["hangs"] = hanging.result()
    finally:
        del os.environ["SECRET_API_KEY"]
    answers["notes"] = folder
    return answers


def is_alive(pid):
    """Whether a process runs (a zombie that init has not reaped does not)."""
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_small_problem_has_its_form_its_counts_and_its_findings(told):
    anatomy = told["relu"]
    (x,) = anatomy.inputs
    assert (x.name, x.shape, x.dtype, x.nbytes, x.contiguous) == ("x", (300, 200), "float32", 240_000, True)
    assert [(form.name, form.shape) for form in anatomy.outputs] == [("output", (300, 200))]
    assert (anatomy.matmul_flop, anatomy.pointwise_ops, anatomy.bytes_moved) == (0, 60_000, 480_000)
    assert (anatomy.reduction_length, anatomy.operators, anatomy.intensity) == (1, {"relu": 1}, 0.125)
    assert anatomy.traced == "real tensors"
    assert anatomy.cpu.bytes_per_s > 0 and anatomy.cpu.flop_per_s["fp32"] > 0


def test_relu_passes_for_the_identity_on_its_own_inputs_and_not_on_normal_ones(told):
    assert told["relu"].audit == "done"
    assert told["relu"].passing("own") == ("identity",)
    assert told["relu"].passing("normal") == ()


def test_inputs_of_16_gib_are_counted_without_memory(told):
    anatomy = told["huge"]
    assert anatomy.traced == "fake tensors"
    assert anatomy.input_bytes == 16 << 30
    assert anatomy.matmul_flop == 2 * 65536 * 65536 * 10
    assert anatomy.bytes_moved == (16 << 30) + 4 * (65536 * 10 + 10) + 4 * 65536 * 10
    assert anatomy.reduction_length == 65536
    assert anatomy.parameter_count == 655_370
    assert anatomy.findings == () and "inputs are 16384 MiB" in anatomy.audit


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (
            "raises",
            ["get_inputs() failed: ValueError: ('no such shape'", "problem.py", "raise ValueError('no such"],
        ),
        ("hangs", ["no description within", "killed in stage get_inputs()", "thinking"]),
        ("exits", ["importing the file failed: SystemExit: had enough"]),
        ("imports", ["No module named 'nowhere_to_be_found'", "Install the package"]),
        ("vanishes", ["(exit code 0) in stage importing the file", "bye"]),
        ("leaves a child", ["(exit code 3) in stage importing the file"]),
        ("crashes", ["(signal SIGSEGV) in stage importing the file"]),
        ("prints for ever", ["in stage importing the file", "more than 1024 MiB", "spam"]),
        ("greedy", ["importing the file failed: MemoryError"]),
        ("drives the terminal", ["ValueError: ?[2J"]),
        ("forges", ["answer of the wrong form"]),
    ],
)
def test_a_problem_that_cannot_be_described_is_refused_with_the_reason(told, name, said):
    assert isinstance(told[name], str), told[name]
    assert told[name].startswith(f"problem {name}: ")
    assert [words for words in said if words not in told[name]] == []
    assert len(told[name]) < 4000


def test_50_mb_of_printing_do_no_harm(told):
    assert told["prints and forks"].pointwise_ops == 30


def test_nothing_that_a_problem_started_survives(told):
    pids = [int((told["notes"] / name).read_text()) for name in ("forks", "left")]
    deadline = time.monotonic() + 5
    while any(map(is_alive, pids)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert [pid for pid in pids if is_alive(pid)] == []


def test_the_child_sees_neither_our_environment_nor_our_directory(told):
    said = told["raises"]
    assert "PYTHONSAFEPATH" in said and "SECRET" not in said
    assert os.getcwd() not in said
