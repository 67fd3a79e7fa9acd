"""The draw families: their distributions, and the form that they keep."""

import pytest
import torch

from problems.inputs import EDGES, FAMILIES, draw

REDRAWN = [family for family in FAMILIES if family != "own"]
DTYPES = [torch.float32, torch.float16, torch.bfloat16, torch.float64]


def test_the_own_family_returns_the_specimen():
    x = torch.rand(4)
    assert draw([x, 3], "own", 1)[0] is x


def test_an_unknown_family_is_refused_with_the_known_ones():
    with pytest.raises(ValueError, match="sparse"):
        draw([torch.rand(2)], "cauchy", 1)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("family", REDRAWN)
def test_shape_and_dtype_are_kept_and_values_are_finite_and_new(family, dtype):
    x = torch.rand(40, 50).to(dtype)
    (drawn,) = draw([x], family, 7)
    assert drawn.shape == x.shape and drawn.dtype == dtype
    assert torch.isfinite(drawn).all()
    assert not torch.equal(drawn, x)


@pytest.mark.parametrize(
    "x",
    [
        torch.rand(6, 8).t(),
        torch.rand(6, 8)[:, ::2],
        torch.rand(2, 3, 4, 5).to(memory_format=torch.channels_last),
        torch.rand(6, 1).expand(6, 8),
        torch.rand(10).as_strided((8, 3), (1, 1)),
        torch.rand(0, 3),
        torch.rand(()),
    ],
    ids=["transposed", "sliced", "channels_last", "expanded", "overlapping", "empty", "scalar"],
)
def test_strides_are_kept(x):
    (drawn,) = draw([x], "normal", 1)
    assert drawn.shape == x.shape and drawn.stride() == x.stride()


def test_what_is_no_floating_tensor_is_kept():
    numbers, mask, phase = torch.arange(5), torch.tensor([True, False]), torch.rand(3, dtype=torch.complex64)
    specimen = [numbers, mask, phase, 2.5, "mean", None]
    assert all(new is old for new, old in zip(draw(specimen, "wide", 1), specimen, strict=True))


def test_tensors_in_lists_and_dicts_are_drawn_too():
    x, y = torch.zeros(100), torch.zeros(100)
    (a, one), named = draw([[x, 1], {"y": y}], "normal", 1)
    assert a.std() > 0.5 and named["y"].std() > 0.5 and one == 1


def test_a_tensor_given_twice_stays_one_tensor():
    x = torch.rand(3)
    first, second = draw([x, x], "normal", 1)
    assert first is second


def test_two_tensors_of_one_form_get_different_values():
    first, second = draw([torch.rand(9), torch.rand(9)], "normal", 1)
    assert not torch.equal(first, second)


@pytest.mark.parametrize("family", REDRAWN)
def test_the_same_seed_gives_the_same_values_whatever_was_drawn_before(family):
    x = torch.rand(1000)
    (first,) = draw([x], family, 5)
    torch.rand(3)
    (again,) = draw([x], family, 5)
    assert torch.equal(first, again)


def test_all_128_bits_of_a_seed_matter():
    x = torch.rand(100)
    drawn = [draw([x], "normal", seed)[0] for seed in (0, 1 << 127, (1 << 128) - 1, 1 << 40, 1)]
    assert all(not torch.equal(a, b) for i, a in enumerate(drawn) for b in drawn[:i])


def test_normal_is_signed_with_unit_deviation():
    (drawn,) = draw([torch.rand(100_000)], "normal", 3)
    assert abs(drawn.mean()) < 0.02 and abs(drawn.std() - 1) < 0.02


@pytest.mark.parametrize(
    ("dtype", "low", "high"), [(torch.float32, -20, 20), (torch.bfloat16, -20, 20), (torch.float16, -7, 4)]
)
def test_wide_spreads_exponents_evenly_over_both_signs(dtype, low, high):
    (drawn,) = draw([torch.rand(100_000).to(dtype)], "wide", 3)
    exponents = drawn.double().abs().log2()
    assert low - 0.01 <= exponents.min() < low + 0.1 and high - 0.1 < exponents.max() <= high + 0.01
    assert abs(exponents.mean() - (low + high) / 2) < 0.2
    assert abs((drawn > 0).double().mean() - 0.5) < 0.02


def test_sparse_is_mostly_zero_with_heavy_tails():
    (drawn,) = draw([torch.rand(200_000)], "sparse", 3)
    kept = drawn[drawn != 0]
    assert abs(len(kept) / len(drawn) - 1 / 8) < 0.01
    # Student's t with 2 degrees of freedom: P(|t| > 1) = 1 - 1/sqrt(3), P(|t| > 10) = 1 - 10/sqrt(102)
    assert abs((kept.abs() > 1).float().mean() - 0.4226) < 0.01
    assert abs((kept.abs() > 10).float().mean() - 0.00985) < 0.002
    assert abs((kept > 0).float().mean() - 0.5) < 0.01


@pytest.mark.parametrize("dtype", DTYPES)
def test_edge_takes_every_edge_about_equally_often(dtype):
    (drawn,) = draw([torch.zeros(100_000, dtype=dtype)], "edge", 3)
    values, counts = drawn.double().unique(return_counts=True)
    assert len(values) == len(EDGES) - 1  # the two zeros are equal
    assert torch.signbit(drawn[drawn == 0]).any()
    assert values.abs()[values != 0].min() == torch.finfo(dtype).tiny
    zeros = values == 0
    assert torch.allclose(counts[~zeros].double(), torch.tensor(1e4).double(), rtol=0.1)
    assert abs(int(counts[zeros]) - 20_000) < 2_000


@pytest.mark.parametrize("dtype", DTYPES)
def test_spikes_are_normal_but_for_a_few_that_a_sample_does_not_show(dtype):
    (drawn,) = draw([torch.rand(1 << 19, dtype=torch.float32).to(dtype)], "spikes", 3)
    high = drawn.abs() > 7 if dtype != torch.float16 else drawn.abs() > 5.5
    assert 1 <= int(high.sum()) <= 4
    assert abs(drawn[~high].double().std() - 1) < 0.01
    small, *_ = draw([torch.rand(8, dtype=torch.float32).to(dtype)], "spikes", 3)
    assert small.abs().max() > 3.9
