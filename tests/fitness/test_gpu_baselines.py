"""What the reference is timed against on an NVIDIA GPU, and KernelBench's rule on wrong results there."""

from __future__ import annotations

import pytest

from fitness.evaluation import Job, JudgeError, Verdict
from fitness.session import BASELINES, tf32_complaint
from fitness.workbench import Workbench

pytestmark = pytest.mark.gpu

LINEAR = """
import torch, torch.nn as nn
class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.linear = nn.Linear(width, width)
    def forward(self, x): return self.linear(x)
def get_inputs(): return [torch.rand(256, 256)]
def get_init_inputs(): return [256]
"""
RELU = """
import torch, torch.nn as nn
class Model(nn.Module):
    def forward(self, x): return torch.relu(x)
def get_inputs(): return [torch.rand({count})]
def get_init_inputs(): return []
"""


@pytest.fixture(scope="module")
def bench():
    with Workbench(device="cuda:0") as running:
        yield running


def linear(precision: str) -> Job:
    return Job("linear", LINEAR, LINEAR, "cuda", "cuda:0", precision=precision)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("kind", BASELINES)
def test_every_baseline_of_a_precision_is_measured(bench, kind, precision):
    if tf32_complaint(kind, precision):
        pytest.skip("its refusal has a test of its own")
    found = bench.baseline(linear(precision), kind)
    assert found["kind"] == kind and found["device_name"].startswith("NVIDIA")
    assert found["ms"] > 0 and found["rounds"] == len(found["samples_ms"]) > 0


@pytest.mark.parametrize("precision", ["fp16", "bf16"])
def test_tf32_is_refused_where_there_are_no_fp32_tensors(bench, precision):
    with pytest.raises(JudgeError, match=rf"eager_tf32 of linear .*{precision}.*leave it out"):
        bench.baseline(linear(precision), "eager_tf32")


@pytest.mark.parametrize("count", [1 << 12, 1 << 30], ids=["draws kept", "draws made anew"])
@pytest.mark.parametrize(("forward", "reading"), [("x.clone()", True), ("torch.relu(x) + 1", False)])
def test_kernelbenchs_rule_is_read_from_the_problems_own_inputs_of_a_wrong_result(bench, forward, reading, count):
    source = f"import torch\nclass ModelNew(torch.nn.Module):\n    def forward(self, x): return {forward}\n"
    found = bench.evaluate(Job("relu", RELU.format(count=count), source, "cuda", "cuda:0"))
    assert (found.verdict, found.kernelbench_correct) == (Verdict.WRONG_RESULT, reading), found.reason
