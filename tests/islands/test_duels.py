"""The elite of a run: won by clear gains, measured again when in doubt, lost with a reason."""

from __future__ import annotations

import dataclasses
import math

import pytest

from fitness.evaluation import Evaluation, Verdict
from islands.bouts import BOUT, ELITE, FALLEN, bout_fields, elite_of, replay, standings
from islands.candidate import Evaluated
from islands.duels import BOUTS, DUEL, FOUGHT, UNDECIDED, Throne
from islands.elite import error_of, gain_over, pooled
from islands.population import Population, PopulationConfig
from islands.run import Event


def told(throne: Throne, *evaluated: Evaluated) -> Throne:
    for number, one in enumerate(evaluated):
        throne.tell(one, number)
    return throne


def again(one: Evaluated, other: Evaluation) -> Evaluated:
    """A fresh measurement of `one`, with the figures of `other`."""
    return Evaluated(one.candidate, dataclasses.replace(other, source_sha256=one.evaluation.source_sha256))


def fought(make, number, speedup, spread=0.01):
    return make.evaluated(number, speedup, spread, features={DUEL: FOUGHT})


def holder(throne: Throne) -> int:
    assert throne.holder is not None
    return throne.holder.evaluated.candidate.number


@pytest.mark.parametrize(("speedup", "wins"), [(1.020, False), (1.025, True)])
def test_a_duel_is_won_when_the_lower_bound_of_the_gain_lies_above_half_a_percent(make, speedup, wins):
    """Both err by 0.5 % (1 % is 1.96 errors): 2.326 * sqrt(2) * 0.51 % + 0.5 % = 2.2 %."""
    throne = told(Throne(5), make.evaluated(0, 1.0), fought(make, 1, speedup))
    assert (holder(throne) == 1) is wins


def test_errors_add_as_squares(make):
    first, second = make.evaluated(0, 1.0, 0.03).evaluation, make.evaluated(1, 1.1, 0.04).evaluation
    assert gain_over(second, first).error == pytest.approx(0.05 / 1.96, rel=1e-3)


def test_figures_of_one_program_are_pooled_and_an_outlier_among_them_widens_the_interval(make):
    alike = [make.evaluated(0, 1.0, 0.01).evaluation for _ in range(4)]
    assert error_of(pooled(alike)) == pytest.approx(error_of(alike[0]) / 2, rel=1e-3)
    mixed = pooled([*alike, make.evaluated(0, 1.2, 0.01).evaluation])
    assert error_of(mixed) > 3 * error_of(alike[0])
    assert mixed.speedup == pytest.approx(math.exp(math.log(1.2) / 5))


def test_a_first_measurement_above_the_elite_needs_a_duel_and_a_known_program_needs_none(make):
    throne = told(Throne(5), make.evaluated(0, 1.0), make.evaluated(1, 1.0))
    assert throne.is_worth_a_duel(make.evaluated(2, 1.006).evaluation)
    assert not throne.is_worth_a_duel(make.evaluated(2, 1.004).evaluation)
    assert not throne.is_worth_a_duel(make.evaluated(1, 2.0).evaluation)


@pytest.mark.parametrize("challengers", [0, 2])
def test_a_lucky_holder_loses_its_phantom_gain_as_soon_as_it_has_won(make, challengers):
    lucky = fought(make, 1, 1.30)
    others = [fought(make, 2 + number, 1.1) for number in range(challengers)]
    throne = told(Throne(2), make.evaluated(0, 1.0), lucky, *others)
    wanted = throne.wanted()
    assert wanted is not None and (wanted.role, wanted.evaluated) == ("holder", lucky)
    throne.retell(again(lucky, make.evaluated(1, 1.12).evaluation), 4)
    assert throne.holder is not None and throne.holder.evaluation.speedup == pytest.approx(1.12)
    assert throne.wanted() is None, "no rival lies above it"


def test_a_seed_is_measured_again_after_enough_challenges_and_not_before(make):
    throne = told(Throne(2), make.evaluated(0, 1.0), fought(make, 1, 1.0))
    assert throne.wanted() is None
    throne.tell(fought(make, 2, 1.0), 2)
    wanted = throne.wanted()
    assert wanted is not None and "survived 2 challenges" in wanted.why


def test_the_wait_for_the_next_re_duel_grows_with_each(make):
    throne = told(Throne(1), make.evaluated(0, 1.0), fought(make, 1, 0.9))
    assert throne.wanted() is not None
    throne.retell(make.evaluated(0, 1.0), 2)
    throne.tell(fought(make, 2, 0.9), 2)
    assert throne.wanted() is None
    throne.tell(fought(make, 3, 0.9), 3)
    assert throne.wanted() is not None


def test_a_wide_interval_of_the_holder_does_not_keep_a_faster_candidate_out_for_ever(make):
    """The rule of cells would ask it for a gain of 50 %, for ever; it gets one by measuring the holder again."""
    seed, faster = make.evaluated(0, 1.0, 0.5), fought(make, 1, 1.25, 0.05)
    throne, roles = told(Throne(5), seed, faster), []
    assert holder(throne) == 0
    while (wanted := throne.wanted()) is not None and len(roles) < 10:
        roles.append(wanted.role)
        fresh = (1.0, 0.05) if wanted.evaluated.candidate.number == 0 else (1.25, 0.05)
        throne.retell(again(wanted.evaluated, make.evaluated(9, *fresh).evaluation), 2)
    assert holder(throne) == 1 and roles[0] == "holder" and len(roles) <= BOUTS


def test_a_new_judge_measures_the_holder_before_anybody_is_compared_with_it(make):
    seed = make.evaluated(0, 1.0, judge_sha256="old")
    throne = told(Throne(5), seed, make.evaluated(1, 2.0, judge_sha256="new", features={DUEL: FOUGHT}))
    assert holder(throne) == 0
    wanted = throne.wanted()
    assert wanted is not None and wanted.role == "holder" and "another judge" in wanted.why
    throne.retell(make.evaluated(0, 1.1, judge_sha256="new"), 2)
    wanted = throne.wanted()
    assert wanted is not None and wanted.evaluated.candidate.number == 1
    throne.retell(make.evaluated(1, 2.0, judge_sha256="new"), 2)
    assert holder(throne) == 1


def test_a_duel_without_a_verdict_wins_nothing_and_is_fought_again(make):
    throne = told(Throne(5), make.evaluated(0, 1.0), make.evaluated(1, 2.0, features={DUEL: UNDECIDED}))
    assert holder(throne) == 0
    wanted = throne.wanted()
    assert wanted is not None and wanted.evaluated.candidate.number == 1
    silent = make.evaluated(1, None, verdict=Verdict.NO_VERDICT)
    for _ in range(BOUTS):
        throne.retell(silent, 2)
    assert throne.wanted() is None, "a machine that gives no verdict is not asked without end"


def test_a_holder_that_is_found_wrong_is_deposed_with_its_reason(make):
    throne = told(Throne(5), make.evaluated(0, 1.0), fought(make, 1, 2.0))
    throne.retell(make.evaluated(1, None), 2)
    assert holder(throne) == 0
    assert "wrong in 3 places" in throne.falls[-1].reason and throne.falls[-1].by.endswith("-000000")


def test_a_population_replaces_the_estimate_wherever_the_program_is_a_member(make):
    population = Population(PopulationConfig(islands=2, axes=(), migration_every=0), "run00000", 1)
    for number in range(2):
        population.tell(make.evaluated(number, 1.5, source="same", island=number))
    population.retell(make.evaluated(0, 1.2, source="same", island=0))
    best = population.best()
    assert best is not None and best.evaluation.speedup == pytest.approx(1.2)
    assert [one.evaluation.speedup for one in population.cells.values()] == [1.2, 1.2]
    assert population.ask(0).parent.evaluation.speedup == pytest.approx(1.2)


def test_a_member_found_wrong_leaves_its_island(make):
    population = Population(PopulationConfig(islands=1, axes=()), "run00000", 1)
    for one in (make.evaluated(0, 1.0, island=0), make.evaluated(1, 2.0, island=0)):
        population.tell(one)
    population.retell(make.evaluated(1, None, island=0))
    assert population.ask(0).parent.candidate.number != 1
    with pytest.raises(ValueError, match="never told"):
        population.retell(make.evaluated(7, 1.0, island=0))


def test_a_replayed_record_gives_the_same_population_and_marks_the_elite_and_the_fallen(make):
    config = PopulationConfig(islands=1, reduel_after=1)
    live, history, events = Population(config, "run00000", 1), [], []
    for number, speedup in enumerate((1.0, 1.3, 1.2, 1.25)):
        one = make.evaluated(number, speedup, island=0, features={DUEL: FOUGHT})
        live.tell(one)
        history.append(one)
        while (wanted := live.wanted()) is not None:
            fresh = again(wanted.evaluated, make.evaluated(9, 1.1).evaluation)
            events.append(Event("run00000", BOUT, bout_fields(wanted, fresh.evaluation, live.told), ""))
            live.retell(fresh)
    assert events
    replayed = Population(config, "run00000", 1)
    replay(replayed, history, events)
    assert replayed.digest() == live.digest()
    best = live.best()
    found = elite_of(history, events)
    assert best is not None and found is not None
    assert (found.candidate.id, found.evaluation.speedup) == (best.candidate.id, best.evaluation.speedup)
    marks = [one.evaluation.features for one in standings(history, events)]
    assert sum(ELITE in mark for mark in marks) == 1
    assert "000001 was faster in a duel" in marks[0][FALLEN]


def test_a_tie_between_rivals_and_holder_changes_nothing(make):
    throne = told(Throne(5), *(fought(make, number, 1.0) for number in range(4)))
    assert holder(throne) == 0 and not throne.falls
