"""The folds behind the report, against values computed by hand on one small history."""

import hashlib

import pytest

from fitness.evaluation import Evaluation, Verdict
from islands.candidate import Candidate, Evaluated
from islands.run import Attempt
from kb_evolve.report import series
from kb_evolve.report.diff import unified


def evaluated(number, speedup=None, *, island=0, mutator="transform", parents=(), reason="", verdict=None, **fields):
    """Candidate `number`, correct with an interval of 5% to both sides when a speedup is given."""
    source = fields.pop("source", f"source {number}")
    times = {}
    if speedup is not None:
        interval = fields.pop("interval", (0.95 * speedup, 1.05 * speedup))
        kernel_ms = 3.0 / speedup
        times = {"kernel_ms": kernel_ms, "kernel_ms_ci": (kernel_ms, kernel_ms), "reference_ms": 3.0}
        times |= {"speedup": speedup, "speedup_ci": interval}
    candidate = Candidate(
        id=f"run-{number:06d}",
        number=number,
        island=island,
        generation=min(1, len(parents)),
        backend="cpp",
        source=source,
        parent_ids=tuple(f"run-{parent:06d}" for parent in parents),
        mutator=mutator,
        rationale=f"change {number}",
    )
    evaluation = Evaluation(
        verdict=verdict or Verdict.CORRECT,
        reason=reason,
        problem="softmax",
        backend="cpp",
        source_sha256=hashlib.sha256(source.encode()).hexdigest(),
        compile_s=0.5,
        evaluate_s=1.5,
        **times,
        **fields,
    )
    return Evaluated(candidate, evaluation)


def attempt(number, mutator, outcome, reason=""):
    at = "2026-03-01T09:00:00+00:00"
    return Attempt("run", number, 0, mutator, (), at, outcome=outcome, reason=reason)


@pytest.fixture
def history():
    return [
        evaluated(0, 0.5, mutator="seed", source="seed", peak_mem_bytes=100, error_ratio=1.0),
        evaluated(1, 0.5, mutator="seed", source="seed", island=1, peak_mem_bytes=100, error_ratio=1.0),
        evaluated(2, 1.0, parents=(0,), peak_mem_bytes=200, error_ratio=0.5),
        evaluated(3, mutator="tune", island=1, parents=(1,), verdict=Verdict.COMPILE_ERROR, reason="line 3: no x"),
        evaluated(5, 1.02, mutator="tune", parents=(2,), peak_mem_bytes=300, error_ratio=1.0),
        evaluated(8, parents=(5,), verdict=Verdict.WRONG_RESULT, reason="element 77 is 3e-5"),
        evaluated(6, 2.0, mutator="crossover", island=1, parents=(1, 2), peak_mem_bytes=300, error_ratio=1.0),
        evaluated(7, parents=(5,), verdict=Verdict.WRONG_RESULT, reason="element 5 is 0.1"),
    ]


@pytest.fixture
def attempts():
    return [
        attempt(2, "transform", "candidate"),
        attempt(3, "tune", "candidate"),
        attempt(4, "tune", "refused", "no tunables"),
        attempt(5, "tune", "candidate"),
        attempt(6, "crossover", "candidate"),
        attempt(7, "transform", "candidate"),
        attempt(8, "transform", "candidate"),
        attempt(9, "tune", None),
    ]


def test_best_so_far_has_one_corner_for_each_new_best_by_evaluation_number(history):
    corners = series.best_so_far(series.correct_points(history))
    assert [(corner.number, corner.speedup) for corner in corners] == [
        (1, 0.5),
        (3, 1.0),
        (7, 2.0),
    ]
    assert (corners[-1].low, corners[-1].high) == (1.9, 2.1)


def test_an_island_s_curve_holds_that_island_s_candidates_only(history):
    curves = series.island_curves(history)
    assert {island: [point.speedup for point in points] for island, points in curves.items()} == {
        0: [0.5, 1.0],
        1: [0.5, 2.0],
    }


def test_verdicts_are_counted_commonest_first(history):
    counts = series.verdict_counts(history)
    assert list(counts.items()) == [
        (Verdict.CORRECT, 5),
        (Verdict.WRONG_RESULT, 2),
        (Verdict.COMPILE_ERROR, 1),
    ]


def test_the_funnel_counts_from_asks_to_intervals_above_one(history, attempts):
    stages = {stage.name: stage.count for stage in series.funnel(history, attempts)}
    assert stages == {
        "asked": 10,
        "proposed": 8,
        "judged": 8,
        "compiled": 7,
        "ran": 7,
        "correct": 5,
        "faster": 1,
    }


@pytest.mark.parametrize("verdict", list(Verdict))
def test_the_funnel_never_widens_whatever_the_verdict(verdict):
    speedup = 2.0 if verdict is Verdict.CORRECT else None
    counts = [stage.count for stage in series.funnel([evaluated(0, speedup, verdict=verdict)], [])]
    assert counts == sorted(counts, reverse=True)
    assert counts[2] == 1


def test_reasons_that_differ_in_numbers_only_are_counted_together(history, attempts):
    reasons = series.failure_reasons(history, attempts)
    assert [(reason.outcome, reason.count, reason.example) for reason in reasons] == [
        ("wrong_result", 2, "element 77 is 3e-5"),
        ("compile_error", 1, "line 3: no x"),
        ("refused", 1, "no tunables"),
    ]


def test_builds_are_counted_by_route_with_the_first_reason_for_a_fallback():
    first = {"build_routes": ["slim", "full"], "build_fallbacks": ["full: uses torch::nn"]}
    again = {"build_routes": ["full"], "build_fallbacks": ["full: did not compile: error: x"]}
    broken = {"build_routes": "slim", "build_fallbacks": [7, None]}
    features = (first, again, broken, {}, {"build_routes": ["full", 3]})
    history = [evaluated(number, 1.0, features=each) for number, each in enumerate(features)]
    full, slim = series.build_routes(history)
    assert (full.name, full.count, full.reason) == ("full", 3, "uses torch::nn")
    assert (slim.name, slim.count, slim.reason) == ("slim", 1, "")


def test_a_gain_is_one_over_the_fastest_parent_outside_the_noise(history):
    by_id = {each.candidate.id: each for each in history}
    gains = {each.candidate.number: series.clear_gain(each, by_id) for each in history}
    assert gains.pop(2) == pytest.approx(2.0) and gains.pop(6) == pytest.approx(2.0), "of two parents the fastest"
    assert set(gains.values()) == {None}, "2% lie within the noise, failures and seeds gain nothing"


def test_the_lineage_follows_first_parents_from_the_seed_to_the_best(history):
    steps = series.lineage(history)
    assert [step.evaluated.candidate.number for step in steps] == [1, 6]
    assert steps[0].gain is None and steps[0].parent is None
    assert steps[1].gain == pytest.approx(4.0) and steps[1].is_clear


def test_a_step_within_the_noise_is_marked_as_such():
    steps = series.lineage([evaluated(0, 1.0), evaluated(1, 1.02, parents=(0,)), evaluated(2, 2.0, parents=(1,))])
    assert steps[1].gain == pytest.approx(1.02) and not steps[1].is_clear


def test_a_lineage_through_a_failed_parent_has_no_gain_there():
    history = [
        evaluated(0, 1.0),
        evaluated(1, parents=(0,), verdict=Verdict.COMPILE_ERROR),
        evaluated(2, 2.0, parents=(1,)),
    ]
    assert [step.gain for step in series.lineage(history)] == [None, None, None]


def test_a_lineage_ends_at_an_unknown_parent_and_survives_a_cycle():
    assert len(series.lineage([evaluated(5, 1.0, parents=(99,))])) == 1
    cycle = [evaluated(0, 1.0, parents=(1,)), evaluated(1, 2.0, parents=(0,))]
    assert [step.evaluated.candidate.number for step in series.lineage(cycle)] == [0, 1]


def test_the_pareto_front_keeps_what_none_beats_in_all_three(history):
    front = series.pareto_front(history)
    assert [each.candidate.number for each in front] == [6, 2, 0]


def test_the_best_of_equals_is_the_first_told():
    history = [evaluated(3, 1.5), evaluated(1, 1.5)]
    winner = series.best(history)
    assert winner is not None and winner.candidate.number == 3


def test_equal_sources_are_one_program(history):
    assert series.distinct_programs(history) == 7


def test_every_fold_of_nothing_is_nothing():
    assert series.best([]) is None
    assert series.lineage([]) == series.pareto_front([]) == []
    assert series.failure_reasons([], []) == [] and series.verdict_counts([]) == {}
    assert {stage.count for stage in series.funnel([], [])} == {0}


def test_a_diff_shows_what_changed_with_its_place():
    lines = unified("a\nb\nc\n", "a\nB\nc\n")
    assert [(line.kind, line.text) for line in lines] == [
        ("place", "@@ -1,3 +1,3 @@"),
        ("same", " a"),
        ("removed", "-b"),
        ("added", "+B"),
        ("same", " c"),
    ]
    assert unified("a\n", "a\n") == []


def test_a_long_diff_is_cut_and_says_by_how_much():
    lines = unified("", "\n".join(f"line {number}" for number in range(1_000)))
    assert len(lines) == 201
    assert lines[-1].kind == "note" and "801 more lines" in lines[-1].text


def test_a_verified_candidate_is_right_without_being_a_failure_or_having_a_place_on_the_curve():
    history = [evaluated(0, 1.0), evaluated(1, parents=(0,), verdict=Verdict.VERIFIED, reason="right on 20 draws")]
    stages = {stage.name: stage.count for stage in series.funnel(history, [])}
    assert (stages["correct"], stages["faster"]) == (2, 0)
    assert series.failure_reasons(history, []) == [] and len(series.correct_points(history)) == 1
    assert series.verdict_counts(history) == {Verdict.CORRECT: 1, Verdict.VERIFIED: 1}
