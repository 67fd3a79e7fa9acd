"""Which arm gets a ticket: a fold over what each one's proposals brought and cost.

An arm is what can be chosen: a mutator, or an operator with one model (`diff@openai/gpt-5`). A *try* is one question
put to an arm that can be judged: an evaluated candidate, or a model's answer without use.

    gain    log(parent's kernel_ms / child's kernel_ms) of a correct, faster child, else 0
    cost    cost_usd + device_s * usd_per_device_hour / 3600 + compile_s * usd_per_build_hour / 3600   [USD]
    weight  discount ** (latest number - number), where numbers are the tickets'

An arm's value is its weighted gain per try over its weighted cost per try. A duplicate is credited to nobody: it is a
try without gain that costs what was paid for it, exactly as a refusal is.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from random import Random
from typing import Any

from fitness.evaluation import Evaluation, Verdict
from islands.candidate import Candidate, Evaluated, Ticket
from mutators.proposal import Mutator, ProposalError, Usage

POLICIES = ("bandit", "uniform", "fixed")
UNTOLD = (Verdict.NO_VERDICT, Verdict.VERIFIED)
"""Verdicts that say nothing about the arm: the machine was too noisy, or there was no device."""
HOUR_S = 3600.0


@dataclass(frozen=True, slots=True)
class ChooserConfig:
    """How arms are chosen."""

    policy: str = "bandit"
    """`bandit` by past gains per cost, `uniform`, or `fixed` by weights."""
    weights: dict[str, float] = field(default_factory=dict)
    """For `fixed`: relative shares by arm, operator or model, `*` and `?` allowed (`diff@*`, `*@openai/gpt-5`). An
    arm's exact name decides alone; otherwise all that match are multiplied. An arm that nothing matches has none."""
    discount: float = 0.98
    """What a past try is worth one ticket later: what an operator is good for changes during a run."""
    floor: float = 0.08
    """Smallest probability of each arm under `bandit`, as far as `explore` allows: an equal part of the calls where
    all arms cost the same, else of the money."""
    explore: float = 0.25
    """Most that the floors of all arms may take together."""
    prior_gain: float = 0.3
    """Gain per try that is expected of all arms together before anything is known [log speedup]."""
    prior_count: float = 4.0
    """Tries that this expectation is worth, and that what other arms did is worth as an arm's own prior."""
    sharpness: float = 2.0
    """A draw takes each try for this many: 1 is plain Thompson sampling, more explores less (Chapelle and Li, An
    Empirical Evaluation of Thompson Sampling, NeurIPS 2011, posterior reshaping). Of two models right with 0.5 and
    0.2, the better got 0.74 of 60 calls at 1 and 0.76 at 2 (400 seeds of tests/mutators/arms.py)."""
    usd_per_device_hour: float = 2.5
    """What an hour of the measuring device costs: about the rent of one datacenter GPU."""
    usd_per_build_hour: float = 0.05
    """What an hour of compiling costs: about the rent of one CPU core. Builds do not hold the device."""

    def check(self) -> None:
        """Raises ProposalError for a value that cannot be used."""
        if self.policy not in POLICIES:
            raise ProposalError(f"unknown policy {self.policy!r}: expected one of {', '.join(POLICIES)}")
        if not 0 < self.discount <= 1:
            raise ProposalError(f"discount must lie above 0 and at most at 1, found {self.discount}")
        for name in ("floor", "explore"):
            if not 0 <= getattr(self, name) <= 1:
                raise ProposalError(f"{name} is a probability and must lie in 0..1, found {getattr(self, name)}")
        for name in ("prior_gain", "usd_per_device_hour", "usd_per_build_hour"):
            if not (math.isfinite(getattr(self, name)) and getattr(self, name) >= 0):
                raise ProposalError(f"{name} must be finite and not negative, found {getattr(self, name)}")
        for name in ("prior_count", "sharpness"):
            if not (math.isfinite(getattr(self, name)) and getattr(self, name) > 0):
                raise ProposalError(f"{name} must be finite and positive, found {getattr(self, name)}")


class Faded:
    """A sum of amounts of which each fades by `discount` per ticket number.

    Exact: amounts are counted in units of 2**-40 and weights are whole numbers, so that the same amounts give the
    same sum, bit for bit, in whatever order they come. `discount ** -number` outgrows floats, Python's integers not.
    """

    UNIT_BITS = 40
    WEIGHT_BITS = 40

    __slots__ = ("_bits_per_number", "_sum")

    def __init__(self, discount: float = 1.0) -> None:
        self._bits_per_number = -math.log2(discount)
        self._sum = 0

    def add(self, number: int, amount: float) -> None:
        """Counts an amount; what is not finite and positive, as a provider's wrong usage may be, counts as 0."""
        if math.isfinite(amount) and amount > 0:
            self._sum += round(math.ldexp(amount, self.UNIT_BITS)) * self._weight(number)

    def at(self, latest: int) -> float:
        """The sum as it stands at ticket `latest`."""
        return self._sum / (self._weight(latest) << self.UNIT_BITS)

    def _weight(self, number: int) -> int:
        """discount ** -number, in units of 2**-40."""
        fraction, whole = math.modf(number * self._bits_per_number)
        return round(math.ldexp(2.0**fraction, self.WEIGHT_BITS)) << int(whole)


QUANTITIES = ("tries", "paid", "gain", "cost_usd", "device_s", "build_s")
"""`paid`: tries whose cost is known to be more than nothing."""


@dataclass(frozen=True, slots=True)
class Standing:
    """What a sum of tries comes to, older ones counting less."""

    tries: float = 0.0
    gain: float = 0.0
    paid: float = 0.0
    cost: float = 0.0
    """Money, device and builds in one unit [USD]."""

    def __add__(self, other: Standing) -> Standing:
        return Standing(
            self.tries + other.tries, self.gain + other.gain, self.paid + other.paid, self.cost + other.cost
        )

    def __sub__(self, part: Standing) -> Standing:
        """The rest; rounding makes nothing of it negative."""
        return Standing(
            max(0.0, self.tries - part.tries),
            max(0.0, self.gain - part.gain),
            max(0.0, self.paid - part.paid),
            max(0.0, self.cost - part.cost),
        )

    def gain_per_try(self, count: float, prior: float) -> float:
        """The mean where `count` further tries are taken to have gained `prior` each."""
        return (self.gain + count * prior) / (self.tries + count)

    def cost_per_try(self, count: float, prior: float) -> float:
        """The mean where `count` further tries are taken to have cost `prior` each."""
        return (self.cost + count * prior) / (self.paid + count)


@dataclass(frozen=True, slots=True)
class Posterior:
    """What is believed of one arm, prior included."""

    gain: float
    tries: float
    cost: float
    """Per try [USD]; 1 for all arms while nothing has cost anything."""

    @property
    def value(self) -> float:
        """Gain per USD."""
        return self.gain / self.tries / self.cost

    def sample(self, random: Random, sharpness: float) -> float:
        """A draw of the value, from an inverse Gamma posterior of the gain per try."""
        return sharpness * self.gain / random.gammavariate(sharpness * self.tries + 1.0, 1.0) / self.cost


class Credit:
    """What one arm brought and cost: faded for choosing, plain for reports."""

    def __init__(self, discount: float) -> None:
        self.faded = {name: Faded(discount) for name in QUANTITIES}
        self.plain = {name: Faded() for name in QUANTITIES}

    def add(self, number: int, **amounts: float) -> None:
        """Counts amounts of QUANTITIES for ticket `number`."""
        for name, amount in amounts.items():
            self.faded[name].add(number, amount)
            self.plain[name].add(number, amount)

    def total(self, name: str) -> float:
        """All that was ever counted of one of QUANTITIES."""
        return self.plain[name].at(0)

    def standing(self, latest: int, config: ChooserConfig) -> Standing:
        """Where the arm stands at ticket `latest`."""
        now = {name: faded.at(latest) for name, faded in self.faded.items()}
        cost = in_usd(config, now["cost_usd"], now["device_s"], now["build_s"])
        return Standing(now["tries"], now["gain"], now["paid"], cost)


def in_usd(config: ChooserConfig, cost_usd: float, device_s: float, build_s: float) -> float:
    """Money, device time and build time in one unit [USD]."""
    return cost_usd + (device_s * config.usd_per_device_hour + build_s * config.usd_per_build_hour) / HOUR_S


def arm_of(mutator: Mutator) -> str:
    """What a mutator is chosen as: its `arm`, such as `diff@openai/gpt-5`, else its name."""
    return str(getattr(mutator, "arm", mutator.name))


def arm_of_candidate(candidate: Candidate) -> str:
    """The arm that proposed a candidate."""
    return str(candidate.details.get("arm", candidate.mutator))


class Chooser:
    """Chooses among arms. State is a fold over `tell` and `close` that does not depend on their order.

    A choice rests on that state and the ticket's seed alone. Under `bandit` it is drawn by Thompson sampling: a draw
    of the arm's gain per try (rewards taken as exponential, so that their scale has an inverse Gamma posterior) over
    its cost per try, mixed with a floor for every arm. The prior of both is what other arms did.
    """

    def __init__(self, mutators: list[Mutator], config: ChooserConfig = ChooserConfig()) -> None:
        if not mutators:
            raise ProposalError("a chooser needs at least one mutator, found none")
        config.check()
        self.mutators = list(mutators)
        self.config = config
        self.credits = {arm_of(mutator): Credit(config.discount) for mutator in mutators}
        self.latest = 0
        """The highest ticket number told so far."""
        if config.policy == "fixed":
            _check_weights(self.mutators, config.weights)

    def tell(self, evaluated: Evaluated, parent_evaluation: Evaluation | None) -> None:
        """Counts one evaluated candidate as a try of the arm that proposed it; seeds and unknown arms count for none.

        Its device time is charged also where the same program was measured before, for another island: whether
        that was so depends on the order of telling. Its money comes with `close`.
        """
        credit = self.credits.get(arm_of_candidate(evaluated.candidate))
        if credit is None or evaluated.evaluation.verdict in UNTOLD:
            return
        evaluation, number = evaluated.evaluation, evaluated.candidate.number
        self.latest = max(self.latest, number)
        credit.add(
            number,
            tries=1,
            paid=1,
            gain=self._gain(evaluation, parent_evaluation),
            device_s=evaluation.evaluate_s or 0.0,
            build_s=evaluation.compile_s or 0.0,
        )

    def close(self, arm: str, number: int, outcome: str, usage: Usage) -> None:
        """Counts what a question of ticket `number` cost; several arms may be asked for one ticket.

        `candidate`: only the money, the try comes with `tell`; `lost`: only the money, the run was stopped. Any other
        outcome (`duplicate`, `refused`, `error`) is a try without gain if the arm broke, has a model or spent
        something; else a mutator has only said that the ticket does not suit it, the next one's turn came, and
        nothing is counted. A try for nothing (a server that does not answer, a model without a price) costs as much
        as the arm's other tries do, or an arm that never answers would look cheap. An unknown price counts as 0: such
        an arm is chosen by the device time that it needs.
        """
        credit = self.credits.get(arm)
        if credit is None:
            return
        self.latest = max(self.latest, number)
        is_barren = outcome not in ("candidate", "lost") and (outcome == "error" or "@" in arm or _is_spent(usage))
        credit.add(number, cost_usd=usage.cost_usd, tries=is_barren, paid=is_barren and usage.cost_usd > 0)

    def _gain(self, child: Evaluation, parent: Evaluation | None) -> float:
        if child.kernel_ms is None:
            return 0.0
        if parent is None or parent.kernel_ms is None:
            return self.config.prior_gain
        return max(0.0, math.log(parent.kernel_ms / child.kernel_ms))

    def choose(self, ticket: Ticket) -> Mutator:
        """The mutator for a ticket."""
        return self.order(ticket)[0]

    def order(self, ticket: Ticket) -> list[Mutator]:
        """The mutators in the order in which they are to be tried until one does not refuse.

        Those whose `fits(ticket)` says no are left out, unless that leaves none.
        """
        random = Random(f"{ticket.seed}:choose")
        waiting = [mutator for mutator in self.mutators if _fits(mutator, ticket)] or list(self.mutators)
        values = self._posteriors() if self.config.policy == "bandit" else {}
        ordered = []
        while waiting:
            chosen = self._draw(waiting, values, random)
            ordered.append(chosen)
            waiting.remove(chosen)
        return ordered

    def _draw(self, waiting: list[Mutator], values: dict[str, Posterior], random: Random) -> Mutator:
        if self.config.policy == "fixed":
            shares = [share_of(mutator, self.config.weights) for mutator in waiting]
            if sum(shares) > 0:
                return random.choices(waiting, shares)[0]
        if self.config.policy != "bandit":
            return random.choice(waiting)
        if random.random() < min(self.config.explore, self.config.floor * len(waiting)):
            return random.choices(waiting, [1 / values[arm_of(mutator)].cost for mutator in waiting])[0]
        return max(waiting, key=lambda mutator: values[arm_of(mutator)].sample(random, self.config.sharpness))

    def _posteriors(self) -> dict[str, Posterior]:
        """Every arm's posterior. An arm with few tries is expected to do as its operator and its model do elsewhere.

        Its prior is the mean over all arms, times how the operator's other arms compare with that mean, times how
        the model's other arms do.
        """
        config = self.config
        count = config.prior_count
        standings = {arm: credit.standing(self.latest, config) for arm, credit in self.credits.items()}
        groups = _groups(standings)
        everyone = sum(standings.values(), Standing())
        mean_gain = everyone.gain_per_try(count, config.prior_gain)
        mean_cost = everyone.cost / everyone.paid if everyone.cost and everyone.paid else 1.0
        found = {}
        for arm, own in standings.items():
            prior_gain, prior_cost = mean_gain, mean_cost
            for others in (groups[key] - own for key in _keys(arm)):
                prior_gain *= others.gain_per_try(count, mean_gain) / mean_gain if mean_gain else 1.0
                prior_cost *= others.cost_per_try(count, mean_cost) / mean_cost
            gain, tries = own.gain + count * prior_gain, own.tries + count
            cost = own.cost_per_try(count, prior_cost) if everyone.cost else 1.0
            found[arm] = Posterior(gain, tries, cost)
        return found

    def posterior(self) -> dict[str, dict[str, Any]]:
        """What is believed of each arm, for reports: totals of all told so far, and the value that choices rest on.

        `gain_per_usd` counts old tries less, device and build time as money, and the prior in; None while nothing
        has cost anything. `share` is the arm's part of all tries, None while there are none.
        """
        totals = {arm: {name: credit.total(name) for name in QUANTITIES} for arm, credit in self.credits.items()}
        tries = sum(total["tries"] for total in totals.values())
        costs = any(in_usd(self.config, one["cost_usd"], one["device_s"], one["build_s"]) for one in totals.values())
        believed = self._posteriors()
        return {
            arm: {
                "trials": round(total["tries"]),
                "gain": total["gain"],
                "cost_usd": total["cost_usd"],
                "device_s": total["device_s"],
                "build_s": total["build_s"],
                "gain_per_trial": believed[arm].gain / believed[arm].tries,
                "gain_per_usd": believed[arm].value if costs else None,
                "share": total["tries"] / tries if tries else None,
            }
            for arm, total in totals.items()
        }


def _groups(standings: dict[str, Standing]) -> dict[tuple[bool, str], Standing]:
    """The sums over all arms of each operator (True, name) and of each model (False, name)."""
    sums: dict[tuple[bool, str], Standing] = defaultdict(Standing)
    for arm, standing in standings.items():
        for key in _keys(arm):
            sums[key] += standing
    return sums


def _keys(arm: str) -> tuple[tuple[bool, str], ...]:
    operator, _, model = arm.partition("@")
    return ((True, operator), (False, model)) if model else ((True, operator),)


def share_of(mutator: Mutator, weights: dict[str, float]) -> float:
    """The relative share of a mutator under the policy `fixed`."""
    arm = arm_of(mutator)
    if arm in weights:
        return weights[arm]
    names = (arm, mutator.name, arm.partition("@")[2])
    matching = [weight for key, weight in weights.items() if any(fnmatchcase(name, key) for name in names if name)]
    return math.prod(matching) if matching else 0.0


def _check_weights(mutators: list[Mutator], weights: dict[str, float]) -> None:
    arms = ", ".join(map(arm_of, mutators))
    for key, weight in weights.items():
        if not any(share_of(mutator, {key: 1.0}) for mutator in mutators):
            raise ProposalError(f"fixed weight {key!r} names no arm, operator or model; the arms are {arms}")
        if not (math.isfinite(weight) and weight >= 0):
            raise ProposalError(f"fixed weight of {key!r} must be finite and not negative, found {weight}")
    if not any(share_of(mutator, weights) for mutator in mutators):
        raise ProposalError(f"fixed weights need a positive share of one of {arms}, found {weights}")


def _fits(mutator: Mutator, ticket: Ticket) -> bool:
    fits = getattr(mutator, "fits", None)
    return fits is None or bool(fits(ticket))


def _is_spent(usage: Usage) -> bool:
    """Whether a model was asked at all."""
    return bool(usage.cost_usd or usage.prompt_tokens or usage.completion_tokens or usage.latency_s)
