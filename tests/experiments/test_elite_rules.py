"""The simulation of elite rules: small, but large enough to tell the rules apart."""

from experiments.bench.elite_rules import NOISES, RULES, equals, power


def test_duels_promote_fewer_equal_programs_than_the_naive_rule_and_report_less_gain_that_is_none():
    naive, duel = (equals(RULES[name], NOISES["outliers"], 200, 8) for name in ("naive", "reduel"))
    assert naive["false_elites"] > 3 > 1 > duel["false_elites"]
    assert naive["phantom_gain"] > 5 * abs(duel["phantom_gain"])


def test_a_clearly_faster_program_becomes_the_elite_by_duels():
    assert power(RULES["reduel"], NOISES["lognormal"], 0.10, 8)["in_the_end"] == 1.0
