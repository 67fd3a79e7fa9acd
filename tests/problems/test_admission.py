"""The admission audit: which tricks pass for which function."""

import math

import pytest
import torch

from problems import admission


def passing(forward, *shapes, draw=torch.rand):
    findings = admission.audit(lambda: [draw(*shape) for shape in shapes], lambda *x: [forward(*x)], 60.0)
    return {(found.trick, found.family) for found in findings if found.passes}


def test_relu_passes_for_the_identity_on_its_own_inputs_only():
    assert passing(torch.relu, (64, 64)) == {("identity", "own")}


def test_a_signed_relu_is_not_degenerate():
    assert passing(torch.relu, (64, 64), draw=torch.randn) == set()


def test_tiny_outputs_pass_for_zeros_everywhere():
    found = passing(lambda x: x * 1e-6, (64, 64))
    assert {("zeros", "own"), ("zeros", "normal"), ("constant", "own"), ("other_draw", "own")} <= found


def test_an_output_of_the_weights_alone_is_found():
    weights = torch.rand(64)
    found = passing(lambda x: weights + 1e-7 * x.mean(), (64, 64))
    assert {("weights_only", "own"), ("other_draw", "own"), ("weights_only", "normal")} <= found
    assert ("constant", "own") not in found and ("zeros", "own") not in found


def test_a_mean_of_many_uniform_numbers_passes_for_a_constant_on_its_own_inputs_only():
    found = passing(lambda x: 1 + 1e-3 * x.mean(-1), (8, 4096))
    assert ("constant", "own") in found and ("constant", "normal") not in found


def test_the_worst_error_is_the_largest_distance():
    findings = admission.audit(lambda: [torch.ones(4)], lambda x: [x * 3], 60.0)
    errors = {found.trick: found.worst_abs_err for found in findings if found.family == "own"}
    assert errors == {"zeros": 3.0, "constant": 0.0, "identity": 2.0, "other_draw": 0.0, "weights_only": 0.0}


def test_a_trick_without_an_answer_is_not_reported():
    findings = admission.audit(lambda: [torch.rand(8, 3)], lambda x: [x.sum(-1)], 60.0)
    assert "identity" not in {found.trick for found in findings}


def test_an_in_place_model_does_not_make_the_identity_pass():
    findings = admission.audit(lambda: [torch.rand(8)], lambda x: [x.mul_(3)], 60.0)
    assert not {found.passes for found in findings if found.trick == "identity"} - {False}


def test_nan_passes_for_nothing():
    assert passing(lambda x: x * math.nan, (8,)) == set()


def test_a_constant_for_integers_is_a_whole_number():
    assert passing(lambda x: (x > 2).long() + 7, (8, 8)) >= {("constant", "own"), ("weights_only", "own")}


def test_a_slow_problem_is_skipped_with_the_time_it_would_take():
    with pytest.raises(admission.AuditSkipped, match="more than 0 s"):
        admission.audit(lambda: [torch.rand(64)], lambda x: [x], 0.0)


@pytest.mark.parametrize("size", [5, admission.BLOCK, 2 * admission.BLOCK + 3])
def test_compare_says_what_allclose_says_in_every_block(size):
    reference = torch.ones(size)
    answer = reference.clone()
    answer[-1] = 1 + 1.9e-4
    assert admission.compare(reference, answer)[0]
    answer[-1] = 1 + 2.1e-4
    assert not admission.compare(reference, answer)[0]


def test_equal_infinities_pass_and_have_no_error():
    x = torch.tensor([math.inf, -math.inf, 1.0])
    assert admission.compare(x, x.clone()) == (True, 0.0)
    assert admission.compare(x, -x) == (False, math.inf)
