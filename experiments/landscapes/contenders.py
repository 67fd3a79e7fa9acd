"""Who searches a landscape, and the referee that counts for all of them alike.

Everybody starts with the same configuration, one that works, drawn by the seed. A configuration costs one evaluation
when it is judged first, whether it works or not; to judge it again costs nobody anything, as in a run of ours, where a
program that was seen before is recognised by its source and never sent to the judge. A search ends when it is near the
optimum, or when its evaluations are used up.
"""

from __future__ import annotations

import importlib.util
import json
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

from experiments.landscapes.landscape import NEAR, Landscape, Values
from fitness.evaluation import Evaluation, Verdict
from islands.candidate import Candidate, Evaluated
from islands.population import Population, PopulationConfig
from mutators.dialogue import Reply, Request
from mutators.knobs import Knobs
from mutators.proposal import Mutator
from mutators.tunables import find_tunables, values_of
from mutators.tune import Tune

BARREN = 500
"""Attempts in a row without a new configuration after which a contender gives up."""
BLIND = "blind"
REPEATS = 3
"""Repetitions in a row after which TPE is given a configuration drawn at random."""
WORST_FACTOR = 10.0
"""What TPE is told of a failure: this many times the slowest time recorded. It looks only at ranks."""


@dataclass(slots=True)
class Referee:
    """Judges from the record and counts what is paid for."""

    landscape: Landscape
    budget: int
    seen: dict[tuple[str, ...], float | None] = field(default_factory=dict)
    reached_at: int | None = None
    """Evaluations that were paid for when a configuration near the optimum was judged."""
    barren: int = 0
    """Judgements since the last one that was paid for."""

    @property
    def is_over(self) -> bool:
        """Whether the search is near the optimum, at the end of its budget, or only repeats itself."""
        return self.reached_at is not None or len(self.seen) >= self.budget or self.barren >= BARREN

    def judge(self, values: Values) -> float | None:
        """The recorded time, None where the configuration fails."""
        key = tuple(values[name] for name in self.landscape.choices)
        self.barren += 1
        if key not in self.seen:
            self.barren, self.seen[key] = 0, self.landscape.time(values)
            time = self.seen[key]
            if self.reached_at is None and time is not None and time <= NEAR * self.landscape.optimum:
                self.reached_at = len(self.seen)
        return self.seen[key]


Contender = Callable[[Referee, Values, int], None]
"""Searches until the referee says that it is over: (referee, start, seed)."""


def start_of(landscape: Landscape, seed: int) -> Values:
    """A configuration that works, drawn by the seed."""
    keys = sorted(landscape.times)
    return dict(zip(landscape.choices, Random(f"{seed}:start").choice(keys), strict=True))


def random_search(referee: Referee, start: Values, seed: int) -> None:
    """Configurations of the whole product at random, none twice."""
    rng = Random(f"{seed}:random")
    referee.judge(start)
    while not referee.is_over:
        referee.judge({name: rng.choice(choices) for name, choices in referee.landscape.choices.items()})


def random_valid(referee: Referee, start: Values, seed: int) -> None:
    """The same among those that work: a bound on what knowing the rules of the kernel beforehand is worth."""
    keys = sorted(referee.landscape.times)
    Random(f"{seed}:random").shuffle(keys)
    referee.judge(start)
    for key in keys:
        if referee.is_over:
            return
        referee.judge(dict(zip(referee.landscape.choices, key, strict=True)))


def best_of_n(referee: Referee, start: Values, seed: int) -> None:
    """Every proposal changes the same parent, the start, in one to all of its tunables: no feedback."""
    rng = Random(f"{seed}:best of n")
    choices = referee.landscape.choices
    referee.judge(start)
    while not referee.is_over:
        changed = rng.sample(list(choices), rng.randint(1, len(choices)))
        referee.judge({**start, **{name: rng.choice(choices[name]) for name in changed}})


def tpe(referee: Referee, start: Values, seed: int, multivariate: bool = False) -> None:
    """Optuna's TPE with its default settings; ordered tunables as places in their order, others as categories.

    What it repeats is not told again (a failed trial, which it ignores); after REPEATS in a row it is given a
    configuration at random, so that it never stands still.
    """
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", category=optuna.exceptions.ExperimentalWarning)
        sampler = optuna.samplers.TPESampler(seed=seed, multivariate=multivariate)
    study, orders, rng = optuna.create_study(sampler=sampler), orders_of(referee.landscape), Random(f"{seed}:tpe")
    failed = WORST_FACTOR * max(referee.landscape.times.values())
    study.enqueue_trial(_as_trial(start, orders))
    while not referee.is_over:
        trial = study.ask()
        values = {name: _suggest(trial, name, order, referee.landscape) for name, order in orders.items()}
        time = referee.judge(values)
        if referee.barren:
            study.tell(trial, state=optuna.trial.TrialState.FAIL)
        else:
            study.tell(trial, failed if time is None else time)
        if referee.barren and referee.barren % REPEATS == 0:
            drawn = {name: rng.choice(choices) for name, choices in referee.landscape.choices.items()}
            study.enqueue_trial(_as_trial(drawn, orders))


def _as_trial(values: Values, orders: dict[str, tuple[str, ...]]) -> dict[str, str | int]:
    return {name: order.index(values[name]) if order else values[name] for name, order in orders.items()}


def tpe_multivariate(referee: Referee, start: Values, seed: int) -> None:
    """The same with `multivariate=True`, which models tunables together."""
    tpe(referee, start, seed, multivariate=True)


def _suggest(trial: Any, name: str, order: tuple[str, ...], landscape: Landscape) -> str:
    if order:
        return order[trial.suggest_int(name, 0, len(order) - 1)]
    return str(trial.suggest_categorical(name, landscape.choices[name]))


def orders_of(landscape: Landscape) -> dict[str, tuple[str, ...]]:
    """The values of each tunable in ascending order; empty where they have none."""
    first = {name: choices[0] for name, choices in landscape.choices.items()}
    tunables = find_tunables(landscape.source(first))
    return {
        one.name: tuple(sorted(one.choices, key=one.coordinates().__getitem__)) if one.is_ordinal else ()
        for one in tunables
    }


def population_tune(referee: Referee, start: Values, seed: int) -> None:
    """Our population with its default configuration and the operator `tune`."""
    population_search(referee, start, seed, Tune(), PopulationConfig())


def one_island_tune(referee: Referee, start: Values, seed: int) -> None:
    """The same with one island."""
    population_search(referee, start, seed, Tune(), PopulationConfig(islands=1))


def population_knobs(referee: Referee, start: Values, seed: int) -> None:
    """Our population with `knobs`, asked of a model that answers blindly: what the operator is worth without one."""
    population_search(referee, start, seed, Knobs(BlindModel(seed), BLIND), PopulationConfig())


class BlindModel:
    """Answers with any of the values that the request allows."""

    def __init__(self, seed: int) -> None:
        self.name, self.seed = BLIND, seed

    def ask(self, request: Request) -> Reply:
        """One JSON object, drawn by the seed and the request's number and turn."""
        rng = Random(f"{self.seed}:{request.number}:{request.turn}")
        allowed = request.parameters["response_format"]["json_schema"]["schema"]["properties"]
        return Reply(json.dumps({name: rng.choice(one["enum"]) for name, one in allowed.items()}), finish_reason="stop")


def population_search(
    referee: Referee, start: Values, seed: int, mutator: Mutator, config: PopulationConfig
) -> Population:
    """One run: the same source on every island, then tickets in order, each told before the next is asked."""
    landscape, run_id = referee.landscape, f"land{seed:04d}"
    population = Population(config, run_id, seed)
    for made in population.seed_candidates(landscape.source(start), "cuda"):
        population.tell(Evaluated(made, _evaluation(made, referee.judge(start))))
    known = {(made.island, made.source_sha256) for made in population.seed_candidates(landscape.source(start), "cuda")}
    number = population.told
    while not referee.is_over:
        ticket = population.ask(number)
        source = mutator.propose(ticket).source
        number += 1
        if source is None:
            referee.barren += 1
            continue
        parents = (ticket.parent.candidate.id,)
        generation = ticket.parent.candidate.generation + 1
        made = Candidate(
            f"{run_id}-{number - 1:06d}", number - 1, ticket.island, generation, "cuda", source, parents, mutator.name
        )
        if (made.island, made.source_sha256) in known:  # as the loop: a repeated program is no candidate
            referee.barren += 1
            continue
        known.add((made.island, made.source_sha256))
        population.tell(Evaluated(made, _evaluation(made, referee.judge(values_of(source)))))
    return population


def _evaluation(made: Candidate, time: float | None) -> Evaluation:
    """What the judge would say: the record has one number for each configuration, hence no interval."""
    common: dict[str, Any] = {"problem": "landscape", "backend": made.backend, "source_sha256": made.source_sha256}
    if time is None:
        return Evaluation(Verdict.RUNTIME_ERROR, "not in the record", **common)
    exact = (time, time)
    return Evaluation(
        Verdict.CORRECT,
        "recorded",
        **common,
        kernel_ms=time,
        kernel_ms_ci=exact,
        reference_ms=1.0,
        speedup=1 / time,
        speedup_ci=(1 / time, 1 / time),
        error_ratio=1.0,
    )


CONTENDERS: dict[str, Contender] = {
    "random": random_search,
    "random, rules known": random_valid,
    "best-of-N": best_of_n,
    "TPE": tpe,
    "TPE multivariate": tpe_multivariate,
    "ours: tune": population_tune,
    "ours: tune, one island": one_island_tune,
    "ours: knobs, blind model": population_knobs,
}


def is_there(name: str) -> bool:
    """Whether a contender can run here: TPE needs optuna."""
    return not name.startswith("TPE") or importlib.util.find_spec("optuna") is not None
