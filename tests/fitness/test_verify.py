"""The bounds accept honest rounding and nothing else."""

from __future__ import annotations

import math

import pytest
import torch

from fitness import roundoff, verify


def pair(exact: torch.Tensor, reference: torch.Tensor | None = None) -> verify.Expected:
    reference = exact.float() if reference is None else reference
    return verify.expect(reference, exact, terms=2, keep=True)


@pytest.fixture
def rows():
    generator = torch.Generator().manual_seed(1)
    return torch.randn(64, 4096, generator=generator)


def sequential_sum(x: torch.Tensor) -> torch.Tensor:
    """What a naive loop in C++ does: one fp32 accumulator per row."""
    total = torch.zeros(x.shape[0])
    for column in x.T:
        total = total + column
    return total


def test_a_naive_sequential_sum_is_accepted(rows):
    for x in (rows, rows.abs()):
        expected = verify.expect(x.sum(1), x.double().sum(1), terms=x.shape[1])
        assert verify.is_right(sequential_sum(x), expected)


def test_arithmetic_of_lower_precision_is_refused(rows):
    a, b = rows[:, :1024], rows[:, 1024:2048].T
    expected = verify.expect(a @ b, a.double() @ b.double(), terms=1024)
    tf32 = truncate_to_tf32(a) @ truncate_to_tf32(b)
    assert verify.is_right(a @ b, expected)
    assert not verify.is_right(tf32, expected)
    assert not verify.is_right((a.bfloat16() @ b.bfloat16()).float(), expected)


@pytest.mark.parametrize("channels", [3, 64])
def test_arithmetic_of_lower_precision_is_refused_where_bounds_are_at_their_widest(channels):
    generator = torch.Generator().manual_seed(2)
    x = torch.rand(4, channels, 40, 40, generator=generator)
    weight = torch.randn(16, channels, 3, 3, generator=generator)
    conv = torch.nn.functional.conv2d
    terms = verify.longest_sum([tuple(x.shape), tuple(weight.shape)], [(4, 16, 38, 38)])
    expected = verify.expect(conv(x, weight), conv(x.double(), weight.double()), terms)
    assert expected.factor == pytest.approx(1e-4, rel=0.05)
    assert verify.is_right(conv(x.double(), weight.double()).float(), expected)
    for rounded in (truncate_to_tf32, lambda t: t.half().float(), lambda t: t.bfloat16().float()):
        assert not verify.is_right(conv(rounded(x), rounded(weight)), expected)
    assert not verify.is_right(conv(x, weight).half().float(), expected)


def truncate_to_tf32(x: torch.Tensor) -> torch.Tensor:
    """Keeps 10 bits of the fraction, as tensor cores do."""
    return (x.view(torch.int32) & ~0x1FFF).view(torch.float32)


def test_one_wrong_element_among_many_is_found_and_named(rows):
    expected = pair(rows.double())
    wrong = rows.clone()
    wrong[3, 7] += 0.25
    assert not verify.is_right(wrong, expected)
    assert "1 of 262144" in verify.complaint(wrong, expected)
    assert "[3, 7]" in verify.complaint(wrong, expected)


def test_a_constant_is_refused_where_kernelbench_would_accept_it():
    x = torch.rand(16, 4096)
    softmax = torch.softmax(x, 1)
    expected = verify.expect(softmax, torch.softmax(x.double(), 1), terms=4096)
    assert torch.allclose(torch.full_like(softmax, 1 / 4096), softmax, atol=1e-3)
    assert not verify.is_right(torch.full_like(softmax, 1 / 4096), expected)


def test_small_elements_are_judged_by_the_references_error_at_their_own_size():
    x = torch.linspace(-6, -4, 4096)
    gelu, exact = torch.nn.functional.gelu(x), torch.nn.functional.gelu(x.double())
    by_another_formula = 0.5 * x * torch.erfc(-x / math.sqrt(2))
    assert verify.is_right(by_another_formula, verify.expect(gelu, exact, terms=2))


def formula(reference: torch.Tensor, exact: torch.Tensor, factor: float) -> list[tuple[float, float]]:
    """The bounds as the module's docstring says them, element by element."""
    info, share = torch.finfo(reference.dtype), max(0.01, 16 * roundoff.roundoff(reference.dtype))
    truth, given = exact.tolist(), reference.double().tolist()
    held = [
        math.isfinite(float(y)) and math.isfinite(float(n))
        for y, n in zip(truth, exact.to(reference.dtype), strict=True)
    ]
    rms = math.sqrt(sum(y * y for y, is_held in zip(truth, held, strict=True) if is_held) / len(truth))
    usable = [
        is_held and abs(r - y) <= share * max(abs(y), rms) + info.tiny
        for y, r, is_held in zip(truth, given, held, strict=True)
    ]
    worst: dict[int, float] = {}
    for y, r, is_usable in zip(truth, given, usable, strict=True):
        if is_usable:
            worst[math.frexp(y)[1]] = max(worst.get(math.frexp(y)[1], 0.0), abs(r - y))
    bounds = []
    for y, r, is_held, is_usable in zip(truth, given, held, usable, strict=True):
        if math.isfinite(y):
            near = max(worst.get(math.frexp(y)[1] + step, 0.0) for step in (-1, 0, 1))
            off = max(4 * near, factor * max(abs(y), rms)) + info.tiny
        if is_usable or (not is_held and math.isfinite(y) and r == math.copysign(math.inf, y)):
            bounds.append((y - off, y + off))
        elif math.isinf(y) and r == y:
            bounds.append((y, y))
        else:
            bounds.append((-math.inf, math.inf))
    return bounds


ODDITIES = {
    "none": [],
    "zeros": [(0.0, 0.0), (0.0, 1e-7), (-0.0, 0.0)],
    "a reference astray": [(1.0, 1.5), (2.0, math.nan), (3.0, math.inf)],
    "infinity and NaN": [(math.inf, math.inf), (-math.inf, -math.inf), (math.inf, 3.0), (math.nan, math.nan)],
    "beyond the range": [(1e39, math.inf), (-1e300, -math.inf), (1e39, 5.0)],
    "small numbers": [(1e-30, 1.1e-30), (1e-300, 0.0)],
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("spread", [0.0, 6.0])
@pytest.mark.parametrize("noise", [0.0, 1e-6, 3e-3])
@pytest.mark.parametrize("oddity", ODDITIES.values(), ids=ODDITIES.keys())
def test_the_bounds_are_those_of_the_formula(dtype, spread, noise, oddity):
    """On whichever of the quick ways the numbers take."""
    generator = torch.Generator().manual_seed(7)
    exact = torch.randn(300, generator=generator, dtype=torch.float64)
    exact *= (spread * torch.randn(300, generator=generator, dtype=torch.float64)).exp2()
    reference = (exact * (1 + noise * torch.randn(300, generator=generator, dtype=torch.float64))).to(dtype)
    for place, (y, r) in enumerate(oddity):
        exact[place], reference[place] = y, r
    expected = verify.expect(reference, exact, terms=64)
    wanted = torch.tensor(formula(reference, exact, expected.factor), dtype=torch.float64).to(dtype)
    nan = torch.isnan(exact) & torch.isnan(reference)
    assert not nan.any() if expected.nan is None else torch.equal(expected.nan, nan)
    for bounds, column in ((expected.low, 0), (expected.high, 1)):
        found = torch.where(nan, wanted[:, column], bounds)
        torch.testing.assert_close(found, wanted[:, column], rtol=2 * torch.finfo(dtype).eps, atol=0)


def test_at_the_end_of_a_types_range_both_sides_of_the_rounding_are_right():
    """In fp16, 65504 is the largest number and from 65520 on values round to infinity; c u y is about 180 here."""
    exact = torch.tensor([1.0, 65510.0, -65518.0, 65530.0, 66000.0, 1e5], dtype=torch.float64)
    expected = verify.expect(exact.half(), exact, terms=2)
    assert expected.is_usable and expected.nan is None
    assert verify.is_right(exact.half(), expected)
    right = [(1, math.inf), (1, 65376.0), (2, -math.inf), (2, -65504.0), (3, 65504.0), (3, 65376.0)]
    wrong = [(1, 0.0), (1, -math.inf), (2, math.inf), (2, -65000.0), (3, 65000.0), (3, math.nan), (4, 65504.0)]
    for place, value in right + wrong + [(5, 65504.0), (5, -math.inf)]:
        actual = exact.half()
        actual[place] = value
        assert verify.is_right(actual, expected) == ((place, value) in right), (place, value)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_what_rounds_to_the_largest_number_is_finite(dtype):
    most = torch.finfo(dtype).max
    step = most - float(torch.nextafter(torch.tensor(most, dtype=dtype), torch.tensor(0.0, dtype=dtype)))
    exact = torch.tensor([most, most + 0.4 * step, most + 0.6 * step, -most - 0.4 * step], dtype=torch.float64)
    assert roundoff.finite(exact, dtype)[1].tolist() == [True, True, False, True]
    assert torch.isfinite(exact.to(dtype)).tolist() == [True, True, False, True]


def test_infinity_and_nan_must_match():
    exact = torch.tensor([1.0, math.inf, -math.inf, math.nan, 2.0], dtype=torch.float64)
    expected = pair(exact)
    assert verify.is_right(exact.float(), expected)
    for place, value in ((1, -math.inf), (1, 3.0), (3, 0.0), (0, math.nan), (0, math.inf)):
        wrong = exact.float()
        wrong[place] = value
        assert not verify.is_right(wrong, expected), (place, value)


def test_elements_that_the_reference_itself_gets_wrong_are_left_out_and_counted():
    exact = torch.ones(10_000, dtype=torch.float64)
    reference = exact.float()
    reference[:4] = 1.5
    expected = pair(exact, reference)
    assert expected.unusable_share == pytest.approx(4e-4)
    assert expected.is_usable
    reference[:20] = math.nan
    assert not pair(exact, reference).is_usable


def test_integer_results_must_equal_the_reference_or_the_exact_ones():
    expected = verify.expect(torch.tensor([1, 2, 3]), torch.tensor([1, 2, 4]), terms=2)
    assert verify.is_right(torch.tensor([1, 2, 3]), expected)
    assert verify.is_right(torch.tensor([1, 2, 4]), expected)
    assert not verify.is_right(torch.tensor([1, 3, 3]), expected)


def test_an_fp64_output_and_its_reference_stay_as_they_are():
    exact = torch.randn(64, 32, dtype=torch.float64)
    reference, actual = exact * (1 + 1e-15), exact * (1 - 1e-15)
    before = reference.clone(), actual.clone()
    expected = verify.expect(reference, exact, 64, keep=True)
    assert verify.errors(actual, expected).max_abs_err > 0
    assert torch.equal(reference, before[0]) and torch.equal(actual, before[1])


def test_the_error_ratio_is_one_for_the_reference_and_larger_for_a_coarser_result(rows):
    exact = torch.tanh(rows.double())
    reference = torch.tanh(rows)
    expected = verify.expect(reference, exact, terms=2, keep=True)
    assert verify.errors(reference, expected).ratio == pytest.approx(1, abs=0.5)
    assert verify.errors(reference + 1e-6, expected).ratio > 5


@pytest.mark.parametrize("size", [0, 1, (1 << 14) - 1, 1 << 14, (1 << 14) + 1, 100_000])
def test_bounds_do_not_depend_on_how_the_work_is_cut_up(size):
    exact = torch.randn(size, dtype=torch.float64)
    reference = exact.float()
    expected = verify.expect(reference, exact, terms=9)
    assert verify.is_right(reference, expected)
    if size:
        wrong = reference.clone()
        wrong[-1] += 1
        assert not verify.is_right(wrong, expected)


def test_the_longest_sum_covers_matrix_products_filters_normalisation_and_full_reductions():
    assert verify.longest_sum([(128, 700), (700, 64)], [(128, 64)]) >= 700
    assert verify.longest_sum([(8, 32, 56, 56), (64, 32, 3, 3)], [(8, 64, 54, 54)]) >= 32 * 9
    assert verify.longest_sum([(1000, 1000)], [()]) >= 1_000_000
    assert verify.longest_sum([(16, 64, 256, 256), (64, 256, 256)], [(16, 64, 256, 256)]) >= 64 * 256 * 256
    assert verify.longest_sum([(4096, 8192)], [(4096, 8192)]) == 8192
    assert verify.longest_sum([(5000,), ()], [(5000,)]) == 5000


def test_a_normalisation_with_one_plain_sum_per_group_is_accepted():
    x = torch.rand(4, 64, 32, 32, generator=torch.Generator().manual_seed(5)) + 1
    groups = x.reshape(32, -1)
    exact = torch.nn.functional.layer_norm(groups.double(), groups.shape[1:], eps=1e-5).reshape(x.shape)
    reference = torch.nn.functional.group_norm(x, 8, eps=1e-5)
    mean = sequential_sum(groups) / groups.shape[1]
    centred = groups - mean[:, None]
    scale = (sequential_sum(centred.square()) / groups.shape[1] + 1e-5).rsqrt()
    terms = verify.longest_sum([tuple(x.shape)], [tuple(x.shape)])
    honest = (centred * scale[:, None]).reshape(x.shape)
    assert verify.is_right(honest, verify.expect(reference, exact, terms))
    assert not verify.is_right(honest, verify.expect(reference, exact, 64))  # what the longest dimension would allow
    half = (groups.half().float() - mean[:, None]) * scale[:, None]
    assert not verify.is_right(half.reshape(x.shape), verify.expect(reference, exact, terms))


@pytest.mark.parametrize("count", [1, 63, 64, 1000])
def test_errors_by_exponent_are_the_same_however_they_are_spread_over_columns(count):
    generator = torch.Generator().manual_seed(count)
    rows = torch.randint(0, 7, (count,), generator=generator)
    values = torch.rand(count, dtype=torch.float64, generator=generator) * 10.0 ** torch.randint(-300, 300, (count,))
    found = []
    for lanes in (1, 64):
        largest = torch.zeros((7, lanes), dtype=torch.int64)
        verify._raise(largest, rows, values)
        found.append(largest.amax(1).view(torch.float64))
    expected = [max((float(v) for r, v in zip(rows, values, strict=True) if r == row), default=0.0) for row in range(7)]
    assert found[0].tolist() == found[1].tolist() == expected
