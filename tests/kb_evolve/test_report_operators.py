"""What arms and models earned, runs against control arms, the map of elites, times, and the roofline, by hand."""

from __future__ import annotations

import math

import pytest
from report_makers import a_record, a_run, attempt, evaluated, event, spent

from islands.bouts import bout_fields
from islands.duels import Wanted
from kb_evolve.report import cells, charts, operators, roofline, timings

HISTORY = [
    evaluated(0, 0.5, mutator="seed", source="seed"),
    evaluated(1, 0.5, mutator="seed", source="seed", island=1),
    evaluated(2, 1.0, parents=(0,), mutator="diff"),
    evaluated(3, parents=(1,), island=1, mutator="diff"),
    evaluated(4, 1.005, parents=(2,)),
    evaluated(5, 2.0, parents=(2,), mutator="rewrite"),
]
ATTEMPTS = [
    attempt(2, mutator="diff"),
    attempt(3, mutator="diff", usage={"model": "small", "cost_usd": 0.5}),
    attempt(4),
    attempt(5, mutator="rewrite"),
    attempt(6, "refused", mutator="diff", usage={"model": "small", "cost_usd": 0.125}),
    attempt(7, None),
]
SPENT = [spent(2, 2, 0.25, "large"), spent(5, 5, 1.0, "large"), spent(5, 5.5, 1.0, "large")]


def full_record(**fields):
    return a_record(HISTORY, fields.pop("run", None), attempts=ATTEMPTS, spent=SPENT, **fields)


def test_each_operator_with_each_model_is_an_arm_with_its_own_gain_and_cost() -> None:
    bout = event("bout", 13, **bout_fields(Wanted(HISTORY[5], "holder", "it is new"), HISTORY[5].evaluation, 6))
    rows = {arm.name: arm for arm in operators.arm_table(full_record(events=[bout]))}
    assert list(rows) == ["diff@large", "rewrite@large", "seed", "tune", "diff@small"]
    large, small, tune = rows["diff@large"], rows["diff@small"], rows["tune"]
    assert (large.asks, large.valid, large.correct, large.elites, large.improved) == (1, 1, 1, 1, 1)
    assert large.log_gain == pytest.approx(math.log(2)) and large.mean_gain == pytest.approx(2)
    assert (large.cost_usd, large.device_s) == (0.25, 1.5)
    assert (small.asks, small.valid, small.correct, small.elites) == (2, 0, 0, 0)
    assert (small.cost_usd, small.device_s) == (0.625, 1.5), "an answer without use costs too"
    assert (tune.asks, tune.correct, tune.improved, tune.log_gain) == (2, 1, 0, 0.0), "0.5% is within the noise"
    assert rows["rewrite@large"].cost_usd == 2.0, "both turns"
    assert rows["rewrite@large"].device_s == 3.0, "its own measurement and the fresh one"
    assert (rows["seed"].asks, rows["seed"].device_s) == (2, 1.5), "two islands share one measurement"


def test_models_are_set_against_what_asks_none() -> None:
    rows = {arm.name: arm for arm in operators.by_model(operators.arm_table(full_record()))}
    assert list(rows) == ["large", "no model", "small"]
    assert (rows["large"].asks, rows["large"].elites, rows["large"].cost_usd) == (2, 2, 2.25)
    assert rows["large"].mean_gain == pytest.approx(2.0)
    assert (rows["no model"].asks, rows["no model"].correct, rows["no model"].cost_usd) == (4, 3, 0.0)


def test_the_parts_of_the_table_add_up_to_the_run() -> None:
    record = full_record()
    arms = operators.arm_table(record)
    (total,) = operators.totals([record])
    assert sum(arm.asks for arm in arms) == total.asks == 8
    assert sum(arm.cost_usd for arm in arms) == pytest.approx(total.cost_usd) == pytest.approx(2.875)
    assert sum(arm.device_s for arm in arms) == pytest.approx(total.device_s) == pytest.approx(5 * 1.5)
    assert sum(arm.elites for arm in arms) == total.elites == 3
    assert operators.device_seconds(a_record(HISTORY, told_at=())) == pytest.approx(5 * 1.5), "also without moments"


def test_a_run_is_set_against_control_arms_at_equal_evaluations() -> None:
    plain = a_run(id="other", name="plain", config={"mutators": {"policy": "uniform"}})
    own, control = operators.totals([full_record(), a_record(HISTORY[:3], plain)])
    assert (own.is_control, control.is_control, control.policy) == (False, True, "uniform")
    assert own.best == pytest.approx((2.0, 1.96, 2.04))
    assert own.at_equal == control.at_equal == control.best == pytest.approx((1.0, 0.98, 1.02))
    assert operators.is_comparable(a_run(), plain) and not operators.is_comparable(plain, plain)
    assert not operators.is_comparable(a_run(), a_run(id="third", precision="bf16"))


def test_the_map_shows_the_two_axes_that_tell_most_apart_and_the_best_of_each_square() -> None:
    kinds = [(128, 1, 1.0), (256, 1, 2.0), (512, 1, 4.0), (256, 4, 3.0), (256, 1, 2.5)]
    history = [
        evaluated(number, speedup, island=number % 2, features={"vector_bits": bits, "threads": threads})
        for number, (bits, threads, speedup) in enumerate(kinds)
    ]
    config = {"population": {"islands": 2, "migration_every": 0, "axes": ["threads", "vector", "memory"]}}
    found = cells.heat_map(a_record(history, a_run(config=config)).replayed)
    assert found is not None
    assert (found.x_axis, found.y_axis, found.other_axes) == ("vector", "threads", ())
    assert found.x_labels == ("128–256", "256–512", "≥ 512") and found.y_labels == ("< 2", "2–4", "4–16")
    assert found.speedup == ((1.0, 2.5, 4.0), (None, None, None), (None, 3.0, None))
    assert found.count == ((1, 2, 1), (0, 0, 0), (0, 1, 0))
    axes = charts.cells("t", a_record(history, a_run(config=config))).axes[0]
    drawn = [
        [None if math.isnan(value) else value for value in row] for row in axes.images[0].get_array().filled(math.nan)
    ]
    assert drawn == [list(row) for row in found.speedup]


def test_a_map_of_one_kind_is_one_square_and_one_without_elites_none() -> None:
    found = cells.heat_map(a_record([evaluated(0, 2.0)]).replayed)
    assert found is not None and found.y_axis == "" and found.speedup == ((2.0,),)
    assert cells.heat_map(a_record([evaluated(0)]).replayed) is None
    flat = a_run(config={"population": {"axes": []}})
    assert cells.heat_map(a_record([evaluated(0, 2.0)], flat).replayed) is None


def test_bins_are_named_by_their_edges_also_by_a_run_s_own() -> None:
    assert cells.bin_label("binary", 0, {}) == "< 16 K" and cells.bin_label("binary", 5, {}) == "≥ 64 K"
    assert cells.bin_label("size", 1, {"size": (10, 20, 30)}) == "10–20"
    assert cells.bin_label("size", 1, {"size@triton": (5, 6)}, "triton") == "5–6"
    assert cells.bin_label("backend", 2, {}) == "triton" and cells.bin_label("vector", -1, {}) == "?"


def test_times_are_those_of_distinct_programs_and_the_elite_comes_first() -> None:
    again = evaluated(6, 2.0, parents=(2,), source="int version = 5;\n")
    found = timings.timings([*HISTORY, again])
    assert found is not None
    assert found.kernel_ms == pytest.approx((1.5, 3 / 1.005, 3.0, 6.0))
    assert found.reference_ms == (3.0,) * 4 and found.median_width == pytest.approx(0.04)
    assert [(each.number, each.is_elite) for each in found.fastest] == [(5, True), (4, False), (2, False), (0, False)]
    assert (found.fastest[0].low, found.fastest[0].high) == pytest.approx((1.47, 1.53))
    assert timings.shares(found.kernel_ms) == [0.25, 0.5, 0.75, 1.0]
    assert timings.timings([evaluated(0)]) is None
    left, right = charts.timings("t", a_record(HISTORY)).axes
    assert tuple(left.lines[0].get_xdata()) == timings.timings(HISTORY).kernel_ms
    assert [tuple(line.get_xdata()) for line in right.lines[::2]] == [
        (each.low, each.high) for each in timings.timings(HISTORY).fastest
    ]


COSTS = {"bytes_moved": 2_000_000, "matmul_flop": 0, "pointwise_ops": 1_000_000}
CPU = {"name": "cpu", "bytes_per_s": 1e10, "flop_per_s": {"fp32": 1e11}}


def test_the_roofline_is_drawn_from_the_problem_s_costs_and_the_device_s_limits() -> None:
    record = a_record(HISTORY, a_run(config={"costs": COSTS, "cpu": CPU}))
    found = roofline.roofline(record)
    assert found is not None
    assert found.intensity == 0.5 and found.attainable == 5e9, "memory limits: 10 GB/s at half a FLOP for each byte"
    assert found.rates == pytest.approx([1e9 / ms for ms in (6, 6, 3, 3 / 1.005, 1.5)])
    assert found.best_rate == pytest.approx(1e9 / 1.5) and found.reference_rate == pytest.approx(1e9 / 3)
    assert found.share == pytest.approx(0.4 / 3)
    marks = charts.roofline("t", record).axes[0].collections
    assert [tuple(place) for place in marks[2].get_offsets().tolist()] == [(0.5, pytest.approx(found.best_rate))]


def test_on_a_gpu_the_limits_are_the_data_sheet_s_and_products_have_their_own() -> None:
    history = [evaluated(0, 1.0, device_name="NVIDIA H200")]
    costs = {"bytes_moved": 1_000_000, "matmul_flop": 4_000_000_000, "pointwise_ops": 0}
    found = roofline.roofline(a_record(history, a_run(device="cuda:0", precision="bf16", config={"costs": costs})))
    assert found is not None
    assert found.ceilings == (("fp32", 67e12), ("bf16", 989.5e12)) and found.bytes_per_s == 4.8e12
    assert found.intensity == 8000.0, "half of the bytes in bf16"
    assert found.attainable == 989.5e12


@pytest.mark.parametrize(
    ("config", "why"),
    [
        ({}, "what the problem computes was not traced"),
        ({"costs": {"bytes": 1}}, "what the problem computes was not traced"),
        ({"costs": COSTS}, "the device's limits are not known"),
        ({"costs": {**COSTS, "pointwise_ops": 0}, "cpu": CPU}, "the problem's arithmetic or traffic is zero"),
    ],
)
def test_a_roofline_that_cannot_be_drawn_says_why(config: dict[str, object], why: str) -> None:
    record = a_record(HISTORY, a_run(config=config))
    assert roofline.roofline(record) is None and roofline.why_no_roofline(record) == why
