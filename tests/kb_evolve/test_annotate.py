"""What the controller adds to an evaluation: labels and rates, never another verdict."""

from __future__ import annotations

import dataclasses

import pytest

from fitness.evaluation import Evaluation, Job, Verdict
from fitness.replay import Failure, Landscape, Replay
from kb_evolve.annotate import annotate, find_costs
from problems.problem import Problem
from problems.roofline import Costs

CALLS_TORCH = "import torch\n\nclass ModelNew(torch.nn.Module):\n    def forward(self, x): return torch.relu(x)\n"
GIGABYTE = Costs(bytes_moved=10**9, matmul_flop=0, pointwise_ops=2 * 10**9)


def judged(source: str = CALLS_TORCH, **job: str) -> tuple[Job, Evaluation]:
    made = Job(problem="toy", problem_source="", source=source, **job)  # type: ignore[arg-type]
    return made, Replay(Landscape(kernel_ms=lambda _: 0.25)).evaluate(made)


def on_h200(evaluation: Evaluation, kernel_ms: float) -> Evaluation:
    return dataclasses.replace(evaluation, device_name="NVIDIA H200", kernel_ms=kernel_ms)


def test_labels_are_added_to_the_judges_own_and_the_verdict_stays() -> None:
    job, evaluation = judged()
    found = annotate(dataclasses.replace(evaluation, labels=("uncertified", "torch-ops")), job)
    assert found.labels == ("torch-ops", "uncertified")
    assert dataclasses.replace(found, labels=()) == evaluation
    assert annotate(found, job) == found, "twice adds nothing"


@pytest.mark.parametrize("verdict", [Verdict.COMPILE_ERROR, Verdict.WRONG_RESULT, Verdict.VERIFIED])
def test_a_kernel_without_times_gets_labels_and_no_rates(verdict: Verdict) -> None:
    job = Job(problem="toy", problem_source="", source=CALLS_TORCH)
    evaluation = Replay(Landscape(failures=(Failure("torch", verdict),))).evaluate(job)
    found = annotate(evaluation, job, GIGABYTE)
    assert found.labels == ("torch-ops",) and found.verdict is verdict and found.features == evaluation.features


def test_rates_are_bytes_and_operations_over_the_kernels_time() -> None:
    job, evaluation = judged()
    found = annotate(on_h200(evaluation, 0.25), job, GIGABYTE)
    assert found.features["achieved_bytes_per_s"] == pytest.approx(4e12)
    assert found.features["achieved_flop_per_s"] == pytest.approx(8e12)
    assert found.features["roofline_fraction"] == pytest.approx(4 / 4.8)
    assert "above-roofline" not in found.labels


def test_a_time_near_the_speed_of_light_is_an_alarm_and_no_verdict() -> None:
    job, evaluation = judged()
    found = annotate(on_h200(evaluation, 0.22), job, GIGABYTE)
    assert "above-roofline" in found.labels and found.is_correct
    half, _ = judged(precision="bf16")
    assert "above-roofline" not in annotate(on_h200(evaluation, 0.22), half, GIGABYTE).labels, "half of the bytes"


def test_on_a_device_without_a_data_sheet_there_is_no_limit_to_hold_a_time_against() -> None:
    job, evaluation = judged()
    found = annotate(evaluation, job, GIGABYTE)
    assert "achieved_bytes_per_s" in found.features and "roofline_fraction" not in found.features


def test_costs_of_a_problem_that_cannot_be_traced_are_unknown() -> None:
    assert find_costs(Problem("broken", "broken", "raise SystemExit")) is None
