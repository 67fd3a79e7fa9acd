"""Running a problem's code, as the child process does: what is found, and what is refused."""

import dataclasses

import pytest
import torch

from problems import examine, tracing
from problems.roofline import Peaks

LINEAR = """import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, inner, outer):
        super().__init__()
        self.layer = nn.Linear(inner, outer)

    def forward(self, x):
        return self.layer(x).relu()


def get_inputs():
    return [torch.rand(8, 16)]


def get_init_inputs():
    return [16, 4]
"""


@pytest.fixture
def trace(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def run(*replacements):
        source = LINEAR
        for old, new in replacements:
            assert old in source
            source = source.replace(old, new)
        with torch.no_grad():
            return tracing.trace(examine.load(source, lambda message: None))

    return run


def test_a_small_problem_is_traced_on_real_tensors(trace):
    anatomy = trace()
    assert anatomy.traced == "real tensors"
    assert (anatomy.matmul_flop, anatomy.pointwise_ops, anatomy.reduction_length) == (2 * 8 * 16 * 4, 32, 16)
    assert (anatomy.parameter_count, anatomy.parameter_bytes) == (68, 272)
    assert anatomy.bytes_moved == 4 * (8 * 16 + 68 + 8 * 4)


def test_arguments_that_are_no_tensors_and_several_outputs_are_named(trace):
    anatomy = trace(
        ("return [torch.rand(8, 16)]", "return [torch.rand(16, 8).t(), 2.5]"),
        ("forward(self, x)", "forward(self, x, scale)"),
        ("return self.layer(x).relu()", "return x * scale, {'sum': x.sum(0)}"),
    )
    assert anatomy.arguments == ("scale=2.5",)
    assert [(form.name, form.shape, form.contiguous) for form in anatomy.inputs] == [("x", (8, 16), False)]
    assert [(form.name, form.shape) for form in anatomy.outputs] == [
        ("output.0", (8, 16)),
        ("output.1", (16,)),
    ]
    assert anatomy.bytes_moved == 4 * (128 + 128 + 16)  # the layer's weights are not read


def test_a_large_model_that_reads_values_when_it_is_built_is_traced_with_real_weights(trace):
    anatomy = trace(
        ("torch.rand(8, 16)", "torch.rand(1 << 22, 16)"),
        ("nn.Linear(inner, outer)", "nn.Linear(inner, int(torch.linspace(0, outer, 3).tolist()[-1]))"),
    )
    assert anatomy.traced == "fake inputs, real weights"
    assert anatomy.bytes_moved == 4 * (16 * (1 << 22) + 68 + 4 * (1 << 22))


def test_a_small_problem_that_reads_its_inputs_values_is_traced_on_real_tensors(trace):
    anatomy = trace(("self.layer(x).relu()", "self.layer(x[: int((x[0] < 2).sum())])"))
    assert anatomy.traced == "real tensors"


@pytest.mark.parametrize(
    ("replacement", "stage", "said"),
    [
        (("return [torch.rand(8, 16)]", "return [3]"), "get_inputs()", "at least one tensor"),
        (("return [torch.rand(8, 16)]", "return torch.rand(8, 16)"), "get_inputs()", "expected a list"),
        (("return self.layer(x).relu()", "self.layer(x)"), "Model.forward", "found none"),
        (("torch.rand(8, 16)", "torch.rand(8, 15)"), "Model.forward", "cannot be multiplied"),
        (("return [16, 4]", "return [16]"), "Model(...)", "missing 1 required positional argument"),
        (
            ("class Model(nn.Module)", "import nowhere_to_be_found\nclass Model"),
            "importing the file",
            "No module",
        ),
    ],
)
def test_a_part_that_fails_is_named_with_its_error(trace, replacement, stage, said):
    with pytest.raises(examine.StageFailed) as raised:
        trace(replacement)
    assert raised.value.stage == stage
    assert said in str(raised.value.__cause__)


CPU = Peaks("cpu", 1e10, {"fp32": 1e9})
UNRUN = examine.Program(module=None, tell=lambda message: None)


def test_outputs_that_are_too_large_are_not_audited(trace, monkeypatch):
    monkeypatch.setattr(tracing, "AUDIT_BYTES", 8 * 16 * 4)
    findings, outcome = tracing.audit(UNRUN, trace(("return [16, 4]", "return [16, 400]")), CPU, 1.0)
    assert findings == [] and outcome.startswith("skipped: outputs are")


def test_a_problem_that_must_take_too_long_is_not_run_for_its_audit(trace):
    anatomy = dataclasses.replace(trace(), matmul_flop=10**9)
    findings, outcome = tracing.audit(UNRUN, anatomy, CPU, 9.0)
    assert findings == [] and outcome.startswith("skipped: it would take at least 10 s")
