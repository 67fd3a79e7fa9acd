"""Which rule should decide who is the elite of a run, by simulation: a judge with noise, and programs of known speed.

    python -m experiments.bench.elite_rules --out experiments/bench/results/elite_rules.json

Rules: `naive` (the highest figure), `interval` (islands/elite.py: beats), `duel` (a fresh second measurement) and
`reduel` (the elite and close rivals are measured again, as a run does it). Duels are the real ones, islands/duels.py.
"""

from __future__ import annotations

import dataclasses
import json
import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import click

from experiments.bench import records
from fitness.evaluation import Evaluation, Verdict
from islands.candidate import Candidate, Evaluated
from islands.duels import DUEL, FOUGHT, Throne
from islands.elite import TWO_SIDED_95, beats

GAINS = (0.01, 0.03, 0.10)
EQUALS_BEFORE, EQUALS_AFTER = 50, 200
"""Equal proposals told before and after the faster one whose fate is looked at."""


@dataclass(frozen=True, slots=True)
class Noise:
    """Errors of a measured log(speedup); the judge's interval knows of `sigma` alone."""

    sigma: float = 0.01
    outliers: float = 0.0
    """Probability of an error of 5 to 15 sigma, to either side."""
    drift: float = 0.0
    """Standard deviation of a slow wander (autoregressive, 0.98 from one measurement to the next)."""
    first: float = 1.0
    """How many times wider the very first measurement errs."""


NOISES = {
    "lognormal": Noise(),
    "outliers": Noise(outliers=0.02),
    "drift": Noise(drift=0.005),
    "all": Noise(outliers=0.02, drift=0.005),
}


class NoisyJudge:
    """Measures a program of known log(speedup); every call errs anew."""

    def __init__(self, noise: Noise, rng: Random) -> None:
        self.noise, self.rng, self.calls, self._wander = noise, rng, 0, 0.0

    def measure(self, number: int, truth: float) -> Evaluated:
        """The program `number` with what was found."""
        noise, rng = self.noise, self.rng
        sigma = noise.sigma * (noise.first if self.calls == 0 else 1.0)
        self.calls += 1
        self._wander = 0.98 * self._wander + rng.gauss(0.0, noise.drift * math.sqrt(1 - 0.98**2))
        error = rng.gauss(0.0, sigma) + self._wander
        if rng.random() < noise.outliers:
            error += rng.choice((-1, 1)) * rng.uniform(5, 15) * sigma
        speedup, width = math.exp(truth + error), math.exp(TWO_SIDED_95 * sigma)
        interval, kernel_ms = (speedup / width, speedup * width), 1 / speedup
        evaluation = Evaluation(
            Verdict.CORRECT,
            "simulated",
            "simulated",
            "cpp",
            f"{number}",
            kernel_ms=kernel_ms,
            kernel_ms_ci=(kernel_ms / width, kernel_ms * width),
            reference_ms=1.0,
            speedup=speedup,
            speedup_ci=interval,
            device_name="simulated",
        )
        return Evaluated(Candidate(f"{number}", number, 0, 0, "cpp", ""), evaluation)


@dataclass(frozen=True, slots=True)
class State:
    """Who is the elite after a proposal."""

    number: int
    speedup: float
    changes: int
    """How often the first place changed hands."""


Rule = Callable[[NoisyJudge, Sequence[float]], Iterator[State]]


def by(wins: Callable[[Evaluation, Evaluation | None], bool]) -> Rule:
    """A rule that looks at one measurement of each."""

    def play(judge: NoisyJudge, truths: Sequence[float]) -> Iterator[State]:
        holder, changes = judge.measure(0, truths[0]), 0
        yield State(0, holder.evaluation.speedup or 0.0, 0)
        for number, truth in enumerate(truths[1:], 1):
            challenger = judge.measure(number, truth)
            if wins(challenger.evaluation, holder.evaluation):
                holder, changes = challenger, changes + 1
            yield State(holder.candidate.number, holder.evaluation.speedup or 0.0, changes)

    return play


def duels(reduel_after: int) -> Rule:
    """The rule of a run (islands/duels.py)."""

    def play(judge: NoisyJudge, truths: Sequence[float]) -> Iterator[State]:
        throne = Throne(reduel_after)
        for number, truth in enumerate(truths):
            told = judge.measure(number, truth)
            if throne.is_worth_a_duel(told.evaluation):
                again = judge.measure(number, truth).evaluation
                told = dataclasses.replace(told, evaluation=dataclasses.replace(again, features={DUEL: FOUGHT}))
            throne.tell(told, number)
            while (wanted := throne.wanted()) is not None:
                who = wanted.evaluated.candidate.number
                throne.retell(judge.measure(who, truths[who]), number + 1)
            assert throne.holder is not None
            elite = throne.holder.evaluated
            yield State(elite.candidate.number, elite.evaluation.speedup or 0.0, len(throne.falls))

    return play


def is_higher(challenger: Evaluation, holder: Evaluation | None) -> bool:
    """The naive rule."""
    return holder is None or (challenger.speedup or 0.0) > (holder.speedup or 0.0)


RULES: dict[str, Rule] = {"naive": by(is_higher), "interval": by(beats), "duel": duels(0), "reduel": duels(5)}


def equals(rule: Rule, noise: Noise, proposals: int, seeds: int) -> dict[str, float]:
    """Over `proposals` programs as fast as the first: false elites, gain that is none, measurements per proposal."""
    ends, calls = [], 0
    for seed in range(seeds):
        judge = NoisyJudge(noise, Random(f"equals:{seed}"))
        *_, last = rule(judge, [0.0] * (proposals + 1))
        ends.append(last)
        calls += judge.calls
    phantom = [math.log(end.speedup) for end in ends]
    return {
        "false_elites": statistics.mean(end.changes for end in ends),
        "runs_with_a_false_elite": statistics.mean(end.changes > 0 for end in ends),
        "phantom_gain": math.expm1(statistics.mean(phantom)),
        "phantom_gain_worst": math.expm1(max(phantom)),
        "measurements_per_proposal": calls / seeds / (proposals + 1),
    }


def power(rule: Rule, noise: Noise, gain: float, seeds: int, before: int = EQUALS_BEFORE) -> dict[str, float]:
    """How often one program that is faster by `gain` is the elite at once, and after EQUALS_AFTER more proposals."""
    truths = [0.0] * before + [math.log1p(gain)] + [0.0] * EQUALS_AFTER
    at_once = later = 0
    for seed in range(seeds):
        states = list(rule(NoisyJudge(noise, Random(f"power:{seed}")), truths))
        at_once += states[before].number == before
        later += states[-1].number == before
    return {"at_once": at_once / seeds, "in_the_end": later / seeds}


def study(rule: Rule, noise: Noise, proposals: int, seeds: int) -> dict[str, Any]:
    """All figures of one rule under one noise."""
    wide = dataclasses.replace(noise, first=10.0)
    return {
        "equals": equals(rule, noise, proposals, seeds),
        "power": {f"{gain:.0%}": power(rule, noise, gain, seeds) for gain in GAINS},
        "power_10%_against_a_wide_first": power(rule, wide, 0.10, seeds, before=1),
    }


@click.command()
@click.option("--out", type=click.Path(path_type=Path), default=Path("experiments/bench/results/elite_rules.json"))
@click.option("--proposals", default=1000, show_default=True)
@click.option("--seeds", default=100, show_default=True)
def main(out: Path, proposals: int, seeds: int) -> None:
    """Writes every rule under every noise as one JSON document."""
    found = {
        kind: {name: study(rule, noise, proposals, seeds) for name, rule in RULES.items()}
        for kind, noise in NOISES.items()
    }
    noises = {kind: dataclasses.asdict(noise) for kind, noise in NOISES.items()}
    document = {"about": records.about("cpu"), "proposals": proposals, "seeds": seeds, "noises": noises, "found": found}
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(document, indent=1) + "\n")
    click.echo(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
