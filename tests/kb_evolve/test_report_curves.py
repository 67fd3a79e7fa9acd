"""Best so far by evaluations, running time and dollars, island curves with migrations, throughput and load."""

from __future__ import annotations

import dataclasses

import pytest
from report_makers import a_record, a_run, at, attempt, evaluated, event, spent

from islands.bouts import bout_fields, opened_fields
from islands.candidate import DUPLICATE_OF
from islands.duels import Wanted
from islands.population import Population, PopulationConfig
from kb_evolve.report import captions, curves, figures, timeline
from kb_evolve.report.record import record_of
from kb_evolve.report.warnings import warnings_of

HISTORY = [
    evaluated(0, 0.5, mutator="seed", source="seed"),
    evaluated(1, 0.5, mutator="seed", source="seed", island=1),
    evaluated(2, 1.5, parents=(0,)),
    evaluated(3, parents=(1,), island=1),
    evaluated(4, 1.4, parents=(1,), island=1),
    evaluated(5, 3.0, parents=(2,)),
]
STARTED = [event("started", 0)]


def test_the_best_so_far_is_the_elite_and_not_the_luckiest_measurement() -> None:
    lucky = evaluated(6, 3.2, parents=(5,), spread=0.4)
    found = curves.best_curve(a_record([*HISTORY, lucky]), [1, 2, 3, 4, 5, 6, 7])
    assert found.candidate_ids == ("run-000000", "run-000002", "run-000005", "run-000005")
    assert found.x == (1, 3, 6, 7)
    assert found.speedup == (0.5, 1.5, 3.0, 3.0)
    assert found.low == pytest.approx((0.49, 1.47, 2.94, 2.94))
    assert found.high == pytest.approx((0.51, 1.53, 3.06, 3.06))


def test_an_elite_that_falls_is_a_step_down() -> None:
    history = [evaluated(0, 1.0), evaluated(1, 2.0)]
    slow = dataclasses.replace(history[1].evaluation, speedup=0.9, speedup_ci=(0.89, 0.91))
    bouts = [
        event("bout", 5, **bout_fields(Wanted(history[1], "holder", "it is new"), slow, 2)),
        event("bout", 6, **bout_fields(Wanted(history[0], "rival", "in doubt"), history[0].evaluation, 2)),
    ]
    found = curves.best_curve(a_record(history, events=bouts), [1, 2])
    assert found.candidate_ids == ("run-000000", "run-000001", "run-000000", "run-000000")
    assert found.speedup == pytest.approx((1.0, 0.9, 1.0, 1.0)), "at the estimates that count now"


def test_running_time_leaves_pauses_out() -> None:
    events = [event("started", 0), event("stopped", 5), event("started", 600)]
    record = a_record(HISTORY, events=events, told_at=[at(2), at(3), at(4), at(601), at(602), at(603)])
    assert curves.by_wall(record) == pytest.approx([2, 3, 4, 6, 7, 8])
    assert timeline.wall_seconds(record) == pytest.approx(8)


def test_dollars_are_counted_when_they_were_spent_failures_included() -> None:
    record = a_record(
        HISTORY,
        attempts=[
            attempt(2, usage={"cost_usd": 9.0}),
            attempt(3, usage={"cost_usd": 0.5}),
            attempt(7, "refused", usage={"cost_usd": float("nan")}),
        ],
        spent=[spent(2, 3, 0.25), spent(2, 5, 0.125), spent(9, 11, 1.0)],
    )
    assert curves.by_dollars(record) == pytest.approx([0, 0.75, 0.875, 0.875, 0.875, 1.875]), (
        "attempt 2 is counted by its replies, attempt 3 by its own usage"
    )
    assert curves.total_usd(record) == pytest.approx(1.875)


def test_islands_have_curves_of_their_own_and_migrations_are_those_of_the_population() -> None:
    config = {"population": {"islands": 2, "migration_every": 2}}
    record = a_record(HISTORY, a_run(config=config))
    population = Population(PopulationConfig(islands=2, migration_every=2), "run", 1)
    for each in HISTORY:
        population.tell(each)
    assert population.migrations
    assert [(mark.number, mark.origin, mark.target) for mark in curves.migrations(record)] == [
        (move.after, move.origin, move.target) for move in population.migrations
    ]
    found = curves.island_curves(record)
    assert found[0].speedup == (0.5, 1.5, 3.0, 3.0) and found[0].x == (1, 3, 6, 6)
    assert found[1].speedup == (0.5, 1.4, 1.4) and found[1].x == (2, 5, 6)


def test_throughput_counts_every_candidate_once_and_load_all_that_was_measured() -> None:
    first = HISTORY[5].evaluation
    again = event("bout", 12, **bout_fields(Wanted(HISTORY[5], "holder", "it is new"), first, 6))
    opened = event("duel_opened", 10, **opened_fields("run-000005", "run-000002", first))
    record = a_record(HISTORY, events=[*STARTED, opened, again])
    found = timeline.timeline(record, bins=20)
    assert found is not None
    assert found.edges_s == pytest.approx((0, 2, 4, 6, 8, 10, 12))
    assert found.correct == (0, 1, 1, 1, 0, 2) and found.failed == (0, 0, 0, 0, 1, 0)
    assert sum(found.judging) * 2 == pytest.approx(1.5 * (5 + 2)), "one seed was measured, and two duels and bouts"
    assert sum(found.building) * 2 == pytest.approx(0.5 * (5 + 2))


def test_what_repeats_a_twin_s_figures_cost_nothing() -> None:
    twin = evaluated(6, 3.0, parents=(5,), features={DUPLICATE_OF: "run-000005"})
    paid = [each.candidate.number for each in timeline.paid_for([*HISTORY, twin])]
    assert paid == [0, 2, 3, 4, 5], "the second seed and the twin share a measurement"


def test_a_record_without_moments_or_money_has_empty_curves() -> None:
    record = record_of(a_run(), HISTORY)
    assert curves.by_wall(record) == [] == curves.by_dollars(record)
    assert curves.best_curve(record, []) == curves.EMPTY
    assert timeline.timeline(record) is None


def test_figures_draw_the_folds_numbers() -> None:
    record = a_record(HISTORY, a_run(config={"population": {"islands": 2, "migration_every": 2}}), events=STARTED)
    for draw, xs in ((figures.progress, curves.by_evaluation(record)), (figures.wall, curves.by_wall(record))):
        axes = draw("t", record).axes[0]
        line = next(line for line in axes.lines if line.get_label() == "best so far")
        found = curves.best_curve(record, xs)
        assert (tuple(line.get_xdata()), tuple(line.get_ydata())) == (found.x, found.speedup)
        dots = next(each for each in axes.collections if each.get_label() == "correct candidate")
        assert [tuple(place) for place in dots.get_offsets().tolist()] == [
            (xs[index], each.evaluation.speedup) for index, each in enumerate(HISTORY) if each.evaluation.is_correct
        ]
    axes = figures.islands("t", record).axes[0]
    lines = {str(line.get_label()): tuple(line.get_ydata()) for line in axes.lines}
    for island, curve in curves.island_curves(record).items():
        assert lines[f"island {island}"] == curve.speedup
    marks = [tuple(place) for place in axes.collections[0].get_offsets().tolist()]
    assert marks == [(mark.number, mark.speedup) for mark in curves.migrations(record)]


@pytest.mark.parametrize(("islands", "labels"), [(1, 1), (5, 5), (9, 1)])
def test_island_curves_have_own_colours_while_there_are_enough(islands: int, labels: int) -> None:
    history = [evaluated(number, 1.0 + number, island=number) for number in range(islands)]
    axes = figures.islands("t", a_record(history, a_run(config={}))).axes[0]
    found = [line for line in axes.lines if "island" in str(line.get_label())]
    assert len(found) == labels
    assert len({line.get_color() for line in found}) == labels


def test_of_too_many_marks_the_first_the_last_and_evenly_spaced_ones_are_drawn() -> None:
    assert curves.sampled(range(10), 4) == [0, 3, 6, 9]
    assert curves.sampled(range(4), 4) == [0, 1, 2, 3]


def test_a_history_that_cannot_be_told_again_is_reported_as_far_as_it_goes() -> None:
    record = a_record([*HISTORY, HISTORY[5]])
    assert "6 of 7" in record.trouble and "told before" in record.trouble
    assert len(record.replayed.reigns) == 3
    foreign = a_record(HISTORY, a_run(config={"population": {"islands": 2, "greed": 1}}))
    assert "greed" in foreign.trouble and len(foreign.replayed.reigns) == 3
    unusable = a_record(HISTORY, a_run(config={"population": {"islands": "many"}}))
    assert "cannot be used" in unusable.trouble and len(unusable.replayed.reigns) == 3


def test_what_cannot_be_read_is_said_and_never_a_crash() -> None:
    lost = event("bout", 9, **{**bout_fields(Wanted(HISTORY[2], "rival", "x"), HISTORY[2].evaluation, 1)})
    timeless = dataclasses.replace(event("started", 0), at="yesterday")
    record = a_record(
        HISTORY,
        a_run(started_at="<b>"),
        events=[timeless, lost],
        attempts=[dataclasses.replace(attempt(2, usage={"cost_usd": 0.5}), closed_at="never")],
        told_at=[at(1), "?", *[at(2)] * 4],
    )
    assert "run-000002" in record.trouble and len(record.replayed.reigns) == 1
    assert curves.by_wall(record) == [] and curves.total_usd(record) == 0.5
    assert timeline.timeline(record) is None and timeline.wall_seconds(record) >= 0
    assert "no times" in a_record(HISTORY, told_at=["?"] * 6).trouble
    assert captions.captions(record) and warnings_of(record)
