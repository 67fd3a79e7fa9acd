"""Which baselines the judge has for a precision."""

from __future__ import annotations

import pytest

from fitness.evaluation import Job, JudgeError
from fitness.session import BASELINES, tf32_complaint

PROBLEM = """
import torch
class Model(torch.nn.Module):
    def forward(self, x): return torch.relu(x)
def get_inputs(): return [torch.rand(64, 64)]
def get_init_inputs(): return []
"""


@pytest.mark.parametrize("precision", ["fp16", "bf16"])
def test_the_judge_refuses_a_baseline_in_tf32_where_there_are_no_fp32_tensors(workbench, precision):
    job = Job("relu", PROBLEM, PROBLEM, precision=precision)
    with pytest.raises(JudgeError, match=rf"eager_tf32 of relu .*{precision}.*leave it out"):
        workbench.baseline(job, "eager_tf32")


def test_tf32_is_the_only_kind_that_a_precision_can_lack():
    lacking = {kind for kind in BASELINES for precision in ("fp16", "bf16") if tf32_complaint(kind, precision)}
    assert lacking == {"eager_tf32"}
    assert not any(tf32_complaint(kind, precision) for kind in BASELINES for precision in ("fp32", "tf32"))
