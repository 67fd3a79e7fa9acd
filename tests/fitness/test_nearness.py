"""What is near the reference's own output is right; what is wrong anywhere is not near."""

from __future__ import annotations

import math

import pytest
import torch

from fitness import verify
from fitness.nearness import Nearness, are_near


@pytest.fixture
def rows():
    return torch.randn(64, 4096, generator=torch.Generator().manual_seed(1))


def near_to(x: torch.Tensor) -> Nearness:
    return Nearness.of([verify.expect(x, x.double(), terms=2, keep=True)])


@pytest.mark.parametrize("count", [7, 1 << 18])
def test_outputs_of_many_calls_are_near_until_one_element_of_one_is_not(count):
    calls = [torch.randn(count, generator=torch.Generator().manual_seed(seed)) for seed in range(4)]
    near = [near_to(calls[0])]
    assert are_near([([x], [x]) for x in calls], near)
    rounded = [(x.double() * (1 + 2.0**-24)).float() for x in calls]
    assert are_near([([a], [x]) for a, x in zip(rounded, calls, strict=True)], near)
    for wrong in (0.01, math.nan, math.inf):
        changed = [x.clone() for x in calls]
        changed[2][count - 1] += wrong
        assert not are_near([([a], [x]) for a, x in zip(changed, calls, strict=True)], near)


def test_an_error_of_the_last_place_of_a_large_element_is_near(rows):
    flat = rows.reshape(-1).clone()
    flat[100] = 1e6  # its last place is worth more than what small elements may be off by
    off = flat.clone()
    off[100] = torch.nextafter(flat[100], torch.tensor(math.inf))
    near = [near_to(flat)]
    assert are_near([([off], [flat])], near)
    off[101] += off[100] - flat[100]
    assert not are_near([([off], [flat])], near)


def test_infinities_and_nans_are_near_their_own_kind_alone(rows):
    flat = rows.reshape(-1).clone()
    flat[:3] = torch.tensor([math.inf, -math.inf, math.nan])
    assert are_near([([flat.clone()], [flat])], [near_to(rows.reshape(-1))])
    for place, value in ((0, -math.inf), (1, math.nan), (2, 0.0), (3, math.nan)):
        changed = flat.clone()
        changed[place] = value
        assert not are_near([([changed], [flat])], [near_to(rows.reshape(-1))])


def test_whole_numbers_are_near_only_when_equal():
    whole = torch.arange(10)
    exact = [Nearness(None, 0.0)]
    assert are_near([([whole], [whole]), ([whole], [whole])], exact)
    assert not are_near([([whole], [whole]), ([whole + (whole == 9)], [whole])], exact)


def test_outputs_without_elements_are_near():
    empty = torch.empty(0, 4)
    assert are_near([([empty], [empty])] * 2, [near_to(torch.randn(8))])
