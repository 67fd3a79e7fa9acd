"""What KernelBench's rule would have said, beside a verdict of ours that says something else."""

from __future__ import annotations

import pytest
import torch

from fitness import kernelbench, verify
from fitness.evaluation import Job, Verdict

TANH = """
import torch, torch.nn as nn
class Model(nn.Module):
    def forward(self, x):
        return torch.tanh(x)
def get_inputs(): return [torch.rand(256, 2048)]
def get_init_inputs(): return []
"""


def candidate(forward: str, before: str = "") -> str:
    """A candidate for TANH with this body of `forward`, and `before` at the top of the module."""
    lines = "\n".join(f"        {line}" for line in forward.splitlines())
    return f"import torch, torch.nn as nn\n{before}\nclass ModelNew(nn.Module):\n    def forward(self, x):\n{lines}\n"


JUDGED = {
    "right": (candidate("return torch.tanh(x)"), Verdict.CORRECT, True),
    "off by half of KernelBench's tolerance": (candidate("return torch.tanh(x) + 5e-5"), Verdict.WRONG_RESULT, True),
    "right on the problem's own inputs alone": (
        candidate("return torch.tanh(x.clamp(min=0))"),
        Verdict.WRONG_RESULT,
        True,
    ),
    "right ten times": (
        candidate("C.append(1)\nreturn torch.tanh(x) if len(C) <= 10 else torch.zeros_like(x)", "C = []"),
        Verdict.WRONG_RESULT,
        True,
    ),
    "wrong": (candidate("return torch.zeros_like(x)"), Verdict.WRONG_RESULT, False),
    "wrong the second time": (
        candidate("C.append(1)\nreturn torch.tanh(x) if len(C) == 1 else torch.zeros_like(x)", "C = []"),
        Verdict.WRONG_RESULT,
        False,
    ),
    "of another shape": (candidate("return torch.tanh(x)[:8]"), Verdict.CONTRACT, None),
    "of another dtype from the third call on": (
        candidate("C.append(1)\nreturn torch.tanh(x) if len(C) <= 2 else torch.tanh(x).double()", "C = []"),
        Verdict.CONTRACT,
        True,
    ),
    "failing from the third call on": (
        candidate("C.append(1)\nif len(C) > 2: raise ValueError\nreturn torch.tanh(x)", "C = []"),
        Verdict.RUNTIME_ERROR,
        None,
    ),
}


@pytest.mark.parametrize("case", JUDGED.values(), ids=JUDGED.keys())
def test_kernelbenchs_reading_is_of_the_own_draws_whatever_our_verdict(workbench, case):
    source, verdict, reading = case
    for _ in range(3):  # a machine may be busy for a while
        found = workbench.evaluate(Job("tanh", TANH, source))
        if found.verdict is not Verdict.NO_VERDICT:
            break
    assert (found.verdict, found.kernelbench_correct) == (verdict, reading), found.reason


def accepts(reference: torch.Tensor, actual: torch.Tensor, precision: str = "fp32") -> bool:
    expected = verify.expect(reference, reference.double(), terms=2, keep=True)
    return kernelbench.accepts([actual], [expected], precision)


@pytest.mark.parametrize(("precision", "tolerance"), [("fp32", 1e-4), ("tf32", 1e-4), ("fp16", 1e-2), ("bf16", 1e-2)])
def test_the_tolerance_follows_the_precision(precision, tolerance):
    zeros = torch.zeros(64)
    assert accepts(zeros, zeros + 0.9 * tolerance, precision)
    assert not accepts(zeros, zeros + 1.1 * tolerance, precision)


def test_the_relative_part_is_of_the_candidates_value():
    """As KernelBench orders the arguments of torch.allclose: 1 and 1.0201 differ by more than 0.01 (1 + 1) but by less
    than 0.01 (1 + 1.0201)."""
    one, more = torch.tensor([1.0]), torch.tensor([1.0201])
    assert accepts(one, more, "bf16") and not accepts(more, one, "bf16")


def test_a_nan_agrees_with_nothing_and_an_infinity_with_itself():
    values = torch.tensor([1.0, float("inf")])
    assert accepts(values, values.clone())
    strange = torch.tensor([1.0, float("nan")])
    assert not accepts(strange, strange.clone())


def test_whole_numbers_are_compared_with_the_same_tolerance():
    places = torch.tensor([20_000, 3])
    assert accepts(places, places + torch.tensor([1, 0]))
    assert not accepts(places, places + torch.tensor([0, 1]))


def test_outputs_in_fp64_are_compared_too():
    values = torch.linspace(-2, 2, 64, dtype=torch.float64)
    exact = values + 1e-8
    expected = verify.expect(values.clone(), exact, terms=2, keep=True)
    assert kernelbench.accepts([values], [expected], "fp32")
    assert not kernelbench.accepts([values + 1e-3], [expected], "fp32")
