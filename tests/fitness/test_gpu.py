"""The judge on a real NVIDIA GPU: honest kernels pass, tricks fail, each with its own verdict."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from amplifying import BACKWARDS, RECURRENCE

from fitness.evaluation import Job, Verdict
from fitness.workbench import Workbench

pytestmark = pytest.mark.gpu
KERNELS = Path(__file__).parent / "kernels"

RELU = """
import torch, torch.nn as nn
class Model(nn.Module):
    def forward(self, x): return torch.relu(x)
def get_inputs(): return [torch.rand({count})]
def get_init_inputs(): return []
"""
LAYERNORM = """
import torch, torch.nn as nn
class Model(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.norm = nn.LayerNorm(n)
    def forward(self, x): return self.norm(x)
def get_inputs(): return [torch.rand(4096, 4096)]
def get_init_inputs(): return [4096]
"""
MATMUL = """
import torch, torch.nn as nn
class Model(nn.Module):
    def forward(self, a, b): return a @ b
def get_inputs(): return [torch.rand(2048, 2048), torch.rand(2048, 2048)]
def get_init_inputs(): return []
"""
WATCHING = """
import subprocess, sys, time, torch
from fitness.gpu import memory, sentinel
memory.use("cuda:0")
watch = sentinel.shared()
other = subprocess.Popen([sys.executable, "-c", sys.argv[1]], stdin=-1, stdout=-1, text=True)
other.stdout.readline()
for act in (lambda: time.sleep(0.02), lambda: (other.stdin.write("\\n"), other.stdin.flush(), other.stdout.readline())):
    torch.zeros(1, device="cuda:0").item()
    watch.begin(60)
    act()
    print(watch.end())
"""
"""Two processes of their own: a context in this one would be a foreign program to the judge."""
ZEROING = """
import torch
x = torch.empty(1 << 28, device="cuda")
torch.cuda.synchronize()
print(flush=True)
input()
for _ in range(20):
    x.zero_()
torch.cuda.synchronize()
print(flush=True)
"""
TUNED = """@triton.autotune(
    configs=[triton.Config({{"BLOCK": 256 << i % 5}}, num_warps=1 << i // 5) for i in range({count})], key=["n"]
)
@triton.jit"""
"""In place of the decorator of TRITON_RELU, with the launch below: Triton's autotuner chooses at the first call."""
TUNED_LAUNCH = "relu[lambda sizes: (triton.cdiv(x.numel(), sizes['BLOCK']),)](x, y, x.numel())"
TRITON_RELU = """
import torch, torch.nn as nn, triton, triton.language as tl
@triton.jit
def relu(x, y, n, BLOCK: tl.constexpr):
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + place, mask=place < n)
    tl.store(y + place, tl.maximum(value, 0.0), mask=place < n)
class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        relu[(triton.cdiv(x.numel(), 4096),)](x, y, x.numel(), BLOCK=4096, num_warps=8)
        return y
"""


@pytest.fixture(scope="module")
def bench():
    with Workbench(device="cuda:0") as running:
        yield running


def module(forward: str, before: str = "") -> str:
    """A candidate in plain torch."""
    lines = "\n".join(f"        {line}" for line in forward.splitlines())
    return f"import torch, torch.nn as nn\n{before}\nclass ModelNew(nn.Module):\n    def forward(self, x):\n{lines}\n"


def judge(bench, problem: str, source: str, **options):
    return bench.evaluate(Job("p", problem, source, **{"backend": "cuda", "device": "cuda:0", **options}))


@pytest.mark.parametrize("count", [1 << 12, 1 << 24])
def test_an_honest_kernel_is_correct_and_as_fast_as_itself(bench, count):
    found = judge(bench, RELU.format(count=count), module("return torch.relu(x)"))
    assert found.verdict is Verdict.CORRECT, found.reason
    assert 0.8 < found.speedup < 1.25 and found.device_name.startswith("NVIDIA") and found.sandbox in ("S2", "S3")


def test_a_triton_kernel_compiled_ahead_is_correct(bench):
    found = judge(bench, RELU.format(count=1 << 24), TRITON_RELU, backend="triton")
    assert found.verdict is Verdict.CORRECT, found.reason
    assert found.features["build_routes"] == ["triton"]


@pytest.mark.parametrize("count", [4, 20], ids=["all compiled ahead", "some compiled at the first call"])
def test_an_autotuned_triton_kernel_is_correct(bench, count):
    launch = "relu[(triton.cdiv(x.numel(), 4096),)](x, y, x.numel(), BLOCK=4096, num_warps=8)"
    assert launch in TRITON_RELU
    source = TRITON_RELU.replace("@triton.jit", TUNED.format(count=count)).replace(launch, TUNED_LAUNCH)
    found = judge(bench, RELU.format(count=1 << 24), source, backend="triton")
    assert found.verdict is Verdict.CORRECT, found.reason
    assert found.features["build_routes"] == ["triton" if count == 4 else "triton-jit"]


@pytest.mark.parametrize(
    ("backend", "source"), [("triton", TRITON_RELU), ("cuda", module("return torch.relu(x)"))], ids=["triton", "cuda"]
)
def test_a_job_that_asks_for_a_profile_gets_launches_occupancy_and_their_source(bench, backend, source):
    found = judge(bench, RELU.format(count=1 << 24), source, backend=backend, profile=True)
    assert found.verdict is Verdict.CORRECT, found.reason
    features = found.features
    assert features["profile_source"] == "cupti", features.get("profile_note")
    assert features["launches_per_call"] == features["kernels_per_call"] == 1
    assert 0 < features["occupancy"] <= 1 and features["device_us_per_call"] > 0


def test_without_a_profile_there_is_the_compilers_report_alone(bench):
    found = judge(bench, RELU.format(count=1 << 24), TRITON_RELU, backend="triton", fresh=True)
    assert found.verdict is Verdict.CORRECT, found.reason
    assert found.features["profile_source"] == "compiler" and found.features["registers"] > 0
    assert "launches_per_call" not in found.features


def test_a_kernel_compiled_at_load_time_is_correct(bench):
    found = judge(bench, RELU.format(count=1 << 24), (KERNELS / "nvrtc_relu.py").read_text())
    assert found.verdict is Verdict.CORRECT, found.reason


def test_16_gib_of_input_and_output_are_judged(bench):
    found = judge(bench, RELU.format(count=4096 * 393216), module("return torch.relu(x)"))
    assert found.verdict is Verdict.CORRECT, found.reason


@pytest.mark.parametrize("precision", ["tf32", "bf16", "fp16"])
def test_every_precision_has_its_own_policy(bench, precision):
    source = MATMUL.replace("class Model(", "class ModelNew(")
    found = judge(bench, MATMUL, source, precision=precision)
    assert found.verdict is Verdict.CORRECT, found.reason


@pytest.mark.parametrize("precision", ["fp32", "tf32"])
def test_an_honest_kernel_of_a_problem_that_amplifies_rounding_is_correct(bench, precision):
    found = judge(bench, RECURRENCE, BACKWARDS, precision=precision)
    assert found.verdict is Verdict.CORRECT, found.reason


def test_tf32_is_refused_under_fp32(bench):
    flip = "torch.backends.cuda.matmul.allow_tf32 = True"
    source = f"import torch, torch.nn as nn\nclass ModelNew(nn.Module):\n    def forward(self, a, b):\n        {flip}\n"
    found = judge(bench, MATMUL, source + "        return a @ b\n")
    assert found.verdict is Verdict.WRONG_RESULT


WRONG = {
    "the negative half kept": (module("return x.clone()"), Verdict.WRONG_RESULT),
    "the input returned": (module("return x"), Verdict.CONTRACT),
    "the input overwritten": (module("y = torch.relu(x)\nx.zero_()\nreturn y"), Verdict.CONTRACT),
    "half precision": (module("return torch.relu(x.half()).float()"), Verdict.WRONG_RESULT),
    "another dtype": (module("return torch.relu(x).double()"), Verdict.CONTRACT),
    "on the host": (module("return torch.relu(x.cpu())"), Verdict.CONTRACT),
    "remembered by address": (
        module("if x.data_ptr() not in M: M[x.data_ptr()] = torch.relu(x)\nreturn M[x.data_ptr()]", "M = {}"),
        Verdict.WRONG_RESULT,
    ),
    "more memory than there is": (
        module("torch.empty(200 << 30, dtype=torch.uint8, device=x.device)\nreturn torch.relu(x)"),
        Verdict.OUT_OF_MEMORY,
    ),
    "memory for itself alone": (
        module(
            "if not H: H.append(torch.empty(125 << 30, dtype=torch.uint8, device=x.device))\nreturn torch.relu(x)",
            "H = []",
        ),
        Verdict.OUT_OF_MEMORY,
    ),
}


@pytest.mark.parametrize("case", WRONG.values(), ids=WRONG.keys())
def test_each_trick_has_its_own_verdict(bench, case):
    source, verdict = case
    found = judge(bench, RELU.format(count=1 << 24), source)
    assert found.verdict is verdict, found.reason


def test_work_that_goes_on_after_it_said_done_is_refused(bench):
    source = module(
        "y = torch.empty_like(x)\nwith torch.cuda.stream(S):\n"
        "    torch.cuda._sleep(2000000)\n    y.copy_(x.relu())\nreturn y",
        "S = torch.cuda.Stream()\ntorch.cuda.synchronize = lambda *a: None",
    )
    found = judge(bench, RELU.format(count=1 << 24), source)
    # The first while a batch is compared; the second between two calls, where a warm reference is spared.
    assert found.verdict in (Verdict.WRONG_RESULT, Verdict.CONTRACT), found.reason


def test_work_between_windows_is_charged(bench):
    forward = "y = torch.relu(x)\n{}return y"
    work = "SCRATCH or SCRATCH.append(torch.empty(1 << 26, device=x.device))\nweakref.finalize(y, SCRATCH[0].zero_)\n"
    busy = module(forward.format(work), "import weakref\nSCRATCH = []")
    problem = RELU.format(count=1 << 24)
    honest, found = (judge(bench, problem, one, profile=False) for one in (module(forward.format("")), busy))
    assert honest.verdict is Verdict.CORRECT and "put_off_ms" not in honest.features, honest.reason
    assert found.verdict is Verdict.CORRECT and found.features["put_off_ms"] > 0, found.reason
    assert found.kernel_ms > 1.5 * honest.kernel_ms  # twice the bytes of the work itself


@pytest.mark.parametrize(
    ("name", "verdict"),
    [
        ("diagonals", Verdict.CORRECT),
        ("keeps_the_background", Verdict.WRONG_RESULT),
        ("zeroes_by_copies", Verdict.WRONG_RESULT),
        ("zeroes_after_the_window", Verdict.WRONG_RESULT),
        ("zeroes_alternately", Verdict.CONTRACT),
    ],
)
def test_outputs_made_ready_between_windows_are_of_no_use(bench, name, verdict):
    files = Path(__file__).parents[2] / "experiments" / "adversarial"
    problem = (files / "problems" / "gpu_diagonals.py").read_text()
    found = judge(bench, problem, (files / "cuda" / f"{name}.py").read_text(), profile=False)
    assert found.verdict is verdict, found.reason


def test_the_sentinel_counts_what_others_had_of_the_device():
    told = subprocess.run([sys.executable, "-c", WATCHING, ZEROING], capture_output=True, text=True)
    idle_ms, worked_ms = map(float, told.stdout.split())
    assert idle_ms == 0.0
    assert 4.0 < worked_ms < 60.0  # 20 GiB are written


def test_a_dropped_scale_and_bias_show(bench):
    source = LAYERNORM.replace("class Model(", "class ModelNew(")
    assert judge(bench, LAYERNORM, source).verdict is Verdict.CORRECT
    dropped = source.replace("self.norm(x)", "torch.nn.functional.layer_norm(x, (4096,))")
    assert judge(bench, LAYERNORM, dropped).verdict is Verdict.WRONG_RESULT


def test_a_problem_that_is_too_large_for_the_card_says_what_it_needs(bench):
    from fitness.evaluation import JudgeError

    with pytest.raises(JudgeError, match="GiB"):
        judge(bench, RELU.format(count=12 << 30), module("return torch.relu(x)"))
