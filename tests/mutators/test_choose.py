"""Who gets a ticket."""

from __future__ import annotations

import pytest

from mutators.choose import Chooser, ChooserConfig
from mutators.proposal import ProposalError
from mutators.registry import create, names


def mutators():
    return [create(name) for name in names()]


def shares(chooser, ticket, evaluated, count=400):
    chosen = [chooser.choose(ticket(evaluated("x"), str(seed))).name for seed in range(count)]
    return {name: chosen.count(name) / count for name in names()}


def test_the_mutator_that_gains_most_is_chosen_most_and_no_other_is_starved(ticket, evaluated):
    chooser = Chooser(mutators())
    parent = evaluated("a", 0, 2.0).evaluation
    for number in range(30):
        chooser.tell(evaluated("b", number, 1.0, "tune"), parent)
        chooser.tell(evaluated("c", number, 2.1, "transform"), parent)
        chooser.tell(evaluated("d", number, None, "crossover"), parent)
    found = shares(chooser, ticket, evaluated)
    assert found["tune"] > 0.7
    assert min(found.values()) > 0.05


def test_old_gains_are_forgotten(ticket, evaluated):
    chooser = Chooser(mutators())
    parent = evaluated("a", 0, 2.0).evaluation
    for number in range(60):
        chooser.tell(evaluated("b", number, 0.5, "transform"), parent)
    for number in range(150):
        chooser.tell(evaluated("b", number, 2.0, "transform"), parent)
        chooser.tell(evaluated("b", number, 1.5, "tune"), parent)
    found = shares(chooser, ticket, evaluated)
    assert found["tune"] > found["transform"]


def test_the_same_history_and_ticket_give_the_same_order(ticket, evaluated):
    orders = []
    for _ in range(2):
        chooser = Chooser(mutators())
        chooser.tell(evaluated("b", 1, 1.0, "tune"), evaluated("a", 0, 2.0).evaluation)
        asked = [ticket(evaluated("x"), str(seed)) for seed in range(20)]
        orders.append([[mutator.name for mutator in chooser.order(one)] for one in asked])
    assert orders[0] == orders[1]
    assert all(sorted(order) == sorted(names()) for order in orders[0])


def test_uniform_ignores_gains(ticket, evaluated):
    chooser = Chooser(mutators(), ChooserConfig(policy="uniform"))
    for number in range(50):
        chooser.tell(evaluated("b", number, 1.0, "tune"), evaluated("a", 0, 9.0).evaluation)
    assert max(shares(chooser, ticket, evaluated).values()) < 0.45


def test_fixed_weights_are_kept_and_the_rest_comes_last(ticket, evaluated):
    chooser = Chooser(mutators(), ChooserConfig(policy="fixed", weights={"tune": 3.0, "transform": 1.0}))
    found = shares(chooser, ticket, evaluated)
    assert 0.65 < found["tune"] < 0.85 and found["crossover"] == 0
    assert chooser.order(ticket(evaluated("x")))[-1].name == "crossover"


def test_seeds_earn_no_credit(evaluated):
    chooser = Chooser(mutators())
    chooser.tell(evaluated("b", 1, 1.0, "seed"), None)
    assert all(credit.count == 0 for credit in chooser.credits.values())


@pytest.mark.parametrize(
    "config", [ChooserConfig(policy="greedy"), ChooserConfig(policy="fixed", weights={"tuna": 1.0})]
)
def test_a_wrong_policy_or_weight_is_an_error(config):
    with pytest.raises(ProposalError):
        Chooser(mutators(), config)
