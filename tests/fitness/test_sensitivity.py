"""Problems that amplify rounding: honest kernels are accepted, others are not, and the draws stay as they were."""

from __future__ import annotations

import sys

import pytest
import torch
from amplifying import BACKWARDS, RECURRENCE

from fitness import verify
from fitness.evaluation import Job, Verdict
from fitness.oracle import ProblemBench


def backwards(x: torch.Tensor, weight: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The same recurrence with sums in the other direction, in fp32, of factors rounded to `dtype`."""
    h = torch.zeros(x.shape[1], 64)
    factor = weight.flip(0).to(dtype).float()
    for row in x:
        h = torch.tanh(row + h.flip(1).to(dtype).float() @ factor)
    return h


@pytest.fixture
def bench(tmp_path):
    path = tmp_path / "problem.py"
    path.write_text(RECURRENCE)
    yield ProblemBench(str(path), "cpu", "fp32")
    del sys.modules["problem"]


def test_honest_kernels_stray_elsewhere_than_the_reference_and_lower_precision_strays_everywhere(bench):
    [weight], refused = bench.weights(), 0
    for seed in range(16):
        [x] = values = bench.inputs("sparse", seed)
        [reference], [exact] = bench.narrow(values, True), bench.wide(values, True)
        by_luck = verify.expect(reference, exact, terms=64)
        expected = verify.expect(reference, exact, terms=64, sensitivity=lambda v=values: bench.sensitivity(v, True)[0])
        honest = backwards(x, weight, torch.float32)
        refused += not verify.is_right(honest, by_luck)
        assert expected.is_usable
        assert verify.is_right(honest, expected), verify.complaint(honest, expected)
        for lower in (torch.float16, torch.bfloat16):
            assert not verify.is_right(backwards(x, weight, lower), expected)
    assert refused > 0  # the reference's own errors alone are no measure


def test_the_sensitivity_leaves_weights_and_results_as_they_were(bench):
    values = bench.inputs("own", 1)
    before, state = bench.wide(values, True)[0].clone(), bench.describe()
    first, second = bench.sensitivity(values, True)[0], bench.sensitivity(values, True)[0]
    assert first.dtype == torch.float64 and first.shape == before.shape
    assert torch.equal(first, second)
    assert 2.0**-26 < float(first.median()) < 1e-3
    assert torch.equal(bench.wide(values, True)[0], before)
    assert bench.describe() == state


def test_only_a_straying_reference_is_asked_for_it(rows):
    def never() -> torch.Tensor:
        raise AssertionError("asked")

    exact = rows.double()
    verify.expect(rows, exact, terms=64, sensitivity=never)
    slightly, much = rows.clone(), rows.clone()
    slightly[3] *= 1 + 1e-4
    much[:1000] *= 1.5
    verify.expect(much, exact, terms=64, sensitivity=never)  # it is unusable anyway
    moved = torch.zeros_like(exact)
    moved[6], moved[7], moved[8] = 1e-2, torch.inf, torch.nan
    expected = verify.expect(slightly, exact, terms=64, sensitivity=lambda: moved)
    without = verify.expect(slightly, exact, terms=64)
    others = torch.arange(len(rows)).sub(7).abs() > 1
    assert torch.equal(expected.low[others], without.low[others])
    assert torch.equal(expected.high[others], without.high[others])
    torch.testing.assert_close(expected.high[6].double() - exact[6], torch.tensor(0.16).double(), rtol=1e-4, atol=0)
    torch.testing.assert_close(exact[6] - expected.low[6].double(), torch.tensor(0.16).double(), rtol=1e-4, atol=0)
    assert expected.low[7:9].isneginf().all() and expected.high[7:9].isposinf().all()
    assert expected.unusable_share == pytest.approx(2 / len(rows))


def test_even_an_unusable_draw_tells_garbage_from_a_result(rows):
    reference = rows.clone()
    reference[:1000] *= 1.5
    expected = verify.expect(reference, rows.double(), terms=64)
    assert not expected.is_usable
    assert verify.is_right(rows, expected) and verify.is_right(reference, expected)
    assert not verify.is_right(torch.full_like(rows, 17.0), expected)
    assert not verify.stretch_is_right(torch.full_like(rows[:5], 17.0), expected, 2000)


@pytest.fixture
def rows():
    return torch.randn(20_000, generator=torch.Generator().manual_seed(3))


def test_a_judge_accepts_an_honest_kernel_of_such_a_problem(workbench):
    for _ in range(3):  # as the search does: a machine may be busy for a while
        found = workbench.evaluate(Job("recurrence", RECURRENCE, BACKWARDS))
        if found.verdict is not Verdict.NO_VERDICT:
            break
    assert found.verdict is Verdict.CORRECT, found.reason
