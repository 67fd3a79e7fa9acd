"""The search over declared tunables."""

from __future__ import annotations

import math
import re
from dataclasses import replace

import pytest

from fitness.evaluation import Verdict
from mutators.tunables import find_tunables, set_values, structure, values_of
from mutators.tune import Tune

SOURCE = """TILE = 64  # tune: 16 32 64 128 256
constexpr int UNROLL = 1;  // tune: 1 2 4 8
#define KIND row  // tune: row column
constexpr float ALPHA = 0.5f;
"""


def test_tunables_are_found_in_cpp_python_and_macros():
    found = {tunable.name: (tunable.value, tunable.choices) for tunable in find_tunables(SOURCE)}
    assert found == {
        "TILE": ("64", ("16", "32", "64", "128", "256")),
        "UNROLL": ("1", ("1", "2", "4", "8")),
        "KIND": ("row", ("row", "column")),
    }


def test_setting_values_changes_only_them():
    changed = set_values(SOURCE, {"TILE": "16", "KIND": "column"})
    assert changed == SOURCE.replace("TILE = 64", "TILE = 16").replace("KIND row ", "KIND column ")


def test_structure_ignores_values_and_nothing_else():
    assert structure(set_values(SOURCE, {"TILE": "256"})) == structure(SOURCE)
    assert structure(SOURCE.replace("0.5f", "0.6f")) != structure(SOURCE)


def test_powers_of_two_are_spaced_by_their_logarithm():
    tile = find_tunables(SOURCE)[0]
    assert tile.coordinates() == {"16": 0, "32": 0.25, "64": 0.5, "128": 0.75, "256": 1}


def cost(source: str) -> float | None:
    """A landscape with its optimum at TILE 128, UNROLL 4, column; UNROLL 8 with TILE 256 fails."""
    values = values_of(source)
    if values["TILE"] == "256" and values["UNROLL"] == "8":
        return None
    tile, unroll = math.log2(int(values["TILE"])), math.log2(int(values["UNROLL"]))
    return math.exp(0.3 * (tile - 7) ** 2 + 0.4 * (unroll - 2) ** 2 + (values["KIND"] == "row"))


def search(ticket, evaluated, seed: int, count: int) -> list[str]:
    """The sources of a run: every proposal's parent is the best so far."""
    history = [evaluated(SOURCE, 0, cost(SOURCE))]
    while len(history) <= count:
        timed = [one for one in history if one.evaluation.is_correct]
        best = min(timed, key=lambda one: one.evaluation.kernel_ms)
        proposal = Tune().propose(ticket(best, f"{seed}:{len(history)}", lineage=history))
        if proposal.refusal is not None:
            break
        history.append(evaluated(proposal.source, len(history), cost(proposal.source), "tune"))
    return [one.candidate.source for one in history]


def test_the_best_configuration_is_found_in_a_fraction_of_the_grid(ticket, evaluated):
    needed = []
    for seed in range(6):
        costs = [cost(source) for source in search(ticket, evaluated, seed, 20)]
        needed.append(next((place for place, ms in enumerate(costs) if ms == 1.0), 40))
    assert sorted(needed)[3] <= 14, f"median of {needed} proposals, of 40 configurations"


def test_no_configuration_is_proposed_twice_and_the_end_is_a_refusal(ticket, evaluated):
    sources = search(ticket, evaluated, 3, 100)
    assert len(sources) == len(set(sources)) == 40
    parent = evaluated(SOURCE, 0, 1.0)
    lineage = [evaluated(source, number, cost(source)) for number, source in enumerate(sources)]
    assert "all 40 configurations" in Tune().propose(ticket(parent, lineage=lineage)).refusal


RULED = """A = 1;  // tune: 1 2 3 4 5 6 7 8
B = 1;  // tune: 1 2 3 4 5 6 7 8
C = 1;  // tune: 1 2 3 4 5 6 7 8
"""


def ruled(source: str) -> float | None:
    """Only A + B <= 6 works, with the best at the edge of what works."""
    a, b, c = (int(values_of(source)[name]) for name in "ABC")
    return None if a + b > 6 else 10.0 - a - b + abs(c - 5)


def test_a_rule_that_fails_most_configurations_is_learnt_on_the_way_to_the_optimum(ticket, evaluated):
    """Three of four configurations fail, the times alone lead into them, and five of 512 are best."""
    needed, failed = [], 0
    for seed in range(5):
        history = [evaluated(RULED, 0, ruled(RULED))]
        while history[-1].evaluation.kernel_ms != 4.0 and len(history) < 80:
            proposal = Tune().propose(ticket(history[0], f"{seed}:{len(history)}", lineage=history))
            history.append(evaluated(proposal.source, len(history), ruled(proposal.source), "tune"))
        needed.append(len(history))
        failed += sum(not one.evaluation.is_correct for one in history)
    assert sorted(needed)[2] <= 30, f"{needed} evaluations; at random half of the searches need 70"
    assert failed < 0.6 * sum(needed), f"{failed} of {sum(needed)} failed; at random 0.77 of them"


def test_other_islands_failures_are_heeded_always_and_their_times_only_at_first(ticket, evaluated):
    other = [set_values(RULED, {"A": str(a), "B": str(b), "C": "8"}) for a in range(1, 9) for b in range(1, 9)]
    elsewhere = tuple(evaluated(source, 100 + number, ruled(source)) for number, source in enumerate(other))
    failed = {True: 0, False: 0}
    for seed in range(4):
        for is_told in failed:
            history = [evaluated(RULED, 0, ruled(RULED))]
            while len(history) < 12:
                asked = ticket(history[0], f"{seed}:{len(history)}", lineage=history)
                asked = replace(asked, elsewhere=elsewhere if is_told else ())
                proposal = Tune().propose(asked)
                if is_told:
                    timed = sum(one.evaluation.is_correct for one in history)
                    learnt_from = int(re.search(r"model of (\d+)", proposal.rationale)[1])
                    assert learnt_from > 64 if timed < 4 else learnt_from == len(history)
                history.append(evaluated(proposal.source, len(history), ruled(proposal.source), "tune"))
            failed[is_told] += sum(not one.evaluation.is_correct for one in history)
    assert failed[True] < 0.7 * failed[False], failed


def test_tickets_asked_before_the_last_one_is_told_get_different_proposals(ticket, evaluated):
    history = [evaluated(RULED, 0, ruled(RULED))]
    for number in range(1, 12):
        proposal = Tune().propose(ticket(history[0], f"0:{number}", lineage=history))
        history.append(evaluated(proposal.source, number, ruled(proposal.source), "tune"))
    asked = {Tune().propose(ticket(history[0], f"later:{number}", lineage=history)).source for number in range(8)}
    assert len(asked) >= 3


def test_a_large_space_is_sampled_and_nothing_comes_twice(ticket, evaluated):
    source = "".join(f"T{place} = 1;  // tune: 1 2 4 8 16\n" for place in range(8))
    history = [evaluated(source, 0, 9.0)]
    for number in range(1, 15):
        proposal = Tune().propose(ticket(history[0], f"5:{number}", lineage=history))
        history.append(evaluated(proposal.source, number, 9.0 / sum(map(int, values_of(proposal.source).values()))))
    assert len({one.candidate.source for one in history}) == 15


def test_the_same_ticket_gives_the_same_proposal(ticket, evaluated):
    asked = ticket(evaluated(SOURCE, 0, 2.0), "9", lineage=[evaluated(set_values(SOURCE, {"TILE": "16"}), 1, 3.0)])
    assert Tune().propose(asked) == Tune().propose(asked)


def test_the_proposal_says_what_it_set(ticket, evaluated):
    proposal = Tune().propose(ticket(evaluated(SOURCE)))
    assert proposal.details["tunables"] == values_of(proposal.source)
    assert " -> " in proposal.rationale and proposal.parent_ids == ("run-000000",)


def test_a_source_without_tunables_is_refused(ticket, evaluated):
    assert "declares no tunables" in Tune().propose(ticket(evaluated("x = 1\n"))).refusal


def test_relatives_of_another_structure_teach_nothing(ticket, evaluated):
    other = set_values(SOURCE, {"TILE": "16"}).replace("0.5f", "0.6f")
    parent = evaluated(SOURCE)
    alone, with_other = (Tune().propose(ticket(parent, lineage=lineage)) for lineage in ([], [evaluated(other, 1, 9)]))
    assert alone == with_other


def test_an_evaluation_without_a_verdict_is_not_taken_for_a_failure(ticket, evaluated):
    """The machine was too noisy: whether the configuration works is not known, but it is not proposed again."""
    seen = [evaluated(set_values(SOURCE, {"TILE": tile}), number) for number, tile in enumerate(("16", "32", "128"), 1)]
    seen += [evaluated(set_values(SOURCE, {"UNROLL": unroll}), number, 2.0) for number, unroll in ((4, "2"), (5, "8"))]
    failed = evaluated(set_values(SOURCE, {"TILE": "256"}), 6, None)
    unknown = replace(failed, evaluation=replace(failed.evaluation, verdict=Verdict.NO_VERDICT))
    none, noisy, wrong = (
        [Tune().propose(ticket(evaluated(SOURCE), str(seed), lineage=[*seen, *last])).source for seed in range(12)]
        for last in ([], [unknown], [failed])
    )
    assert unknown.candidate.source not in noisy
    assert sum(a == b for a, b in zip(none, noisy, strict=True)) > sum(a == b for a, b in zip(none, wrong, strict=True))


@pytest.mark.parametrize("value", ["48", "-1"])
def test_a_present_value_outside_the_choices_is_one_more_choice(value):
    (tunable,) = find_tunables(f"constexpr int N = {value};  // tune: 16 32\n")
    assert tunable.choices == (value, "16", "32")


def test_a_relative_whose_value_is_no_choice_teaches_nothing_and_breaks_nothing(ticket, evaluated):
    """A model may set a value that the comment beside it does not name."""
    inside = [evaluated(set_values(SOURCE, {"TILE": tile}), number) for number, tile in enumerate(("16", "32"), 1)]
    inside += [evaluated(set_values(SOURCE, {"UNROLL": unroll}), number) for number, unroll in ((3, "2"), (4, "8"))]
    outside = evaluated(set_values(SOURCE, {"TILE": "48"}), 5, 0.01)
    alone, with_it = (Tune().propose(ticket(evaluated(SOURCE), lineage=seen)) for seen in (inside, [*inside, outside]))
    assert alone.source is not None and with_it == alone
