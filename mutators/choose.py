"""Which mutator gets a ticket: a fold over what each one's proposals brought."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from random import Random

from fitness.evaluation import Evaluation
from islands.candidate import Evaluated, Ticket
from mutators.proposal import Mutator, ProposalError

POLICIES = ("bandit", "uniform", "fixed")


@dataclass(frozen=True, slots=True)
class ChooserConfig:
    """How mutators are chosen."""

    policy: str = "bandit"
    """`bandit` by past gains, `uniform`, or `fixed` by weights."""
    weights: dict[str, float] = field(default_factory=dict)
    """For `fixed`: relative shares; a mutator that is not named has none."""
    discount: float = 0.97
    """What a past gain is worth after one more evaluation: operators' use changes during a run."""
    floor: float = 0.1
    """Smallest probability of each mutator under `bandit`."""
    prior_gain: float = 0.3
    prior_count: float = 1.0
    """Every mutator starts as if it had made `prior_count` proposals that gained `prior_gain` (log speedup) each."""


@dataclass(slots=True)
class Credit:
    """What one mutator brought, older proposals counting less."""

    gain: float = 0.0
    count: float = 0.0


class Chooser:
    """Chooses among mutators. State is a fold over `tell`; a choice rests on that state and the ticket's seed alone.

    The credit of a proposal is log(parent's kernel_ms / child's kernel_ms), 0 where the child failed or is slower; a
    child of a failed parent that is correct earns `prior_gain`. Choices are drawn by discounted Thompson sampling on
    an exponential reward (its scale has a Gamma posterior), mixed with a floor for every mutator.
    """

    def __init__(self, mutators: list[Mutator], config: ChooserConfig = ChooserConfig()) -> None:
        if not mutators:
            raise ProposalError("a chooser needs at least one mutator, found none")
        if config.policy not in POLICIES:
            raise ProposalError(f"unknown policy {config.policy!r}: expected one of {', '.join(POLICIES)}")
        unknown = set(config.weights) - {mutator.name for mutator in mutators}
        if config.policy == "fixed" and (unknown or not any(value > 0 for value in config.weights.values())):
            raise ProposalError(f"fixed weights need a positive share of a known mutator, found {config.weights}")
        self.mutators = list(mutators)
        self.config = config
        self.credits = {mutator.name: Credit() for mutator in mutators}

    def tell(self, evaluated: Evaluated, parent_evaluation: Evaluation | None) -> None:
        """Count one evaluated proposal for the mutator that made it; seeds and unknown mutators count for none."""
        name = evaluated.candidate.mutator
        if name not in self.credits:
            return
        for credit in self.credits.values():
            credit.gain *= self.config.discount
            credit.count *= self.config.discount
        self.credits[name].gain += self._gain(evaluated.evaluation, parent_evaluation)
        self.credits[name].count += 1.0

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
        """All mutators, in the order in which they are to be tried until one does not refuse."""
        random = Random(f"{ticket.seed}:choose")
        waiting, ordered = list(self.mutators), []
        while waiting:
            chosen = self._draw(waiting, random)
            ordered.append(chosen)
            waiting.remove(chosen)
        return ordered

    def _draw(self, waiting: list[Mutator], random: Random) -> Mutator:
        if self.config.policy == "fixed":
            shares = [self.config.weights.get(mutator.name, 0.0) for mutator in waiting]
            if sum(shares) > 0:
                return random.choices(waiting, shares)[0]
        explores = random.random() < self.config.floor * len(waiting)
        if self.config.policy != "bandit" or explores:
            return random.choice(waiting)
        return max(waiting, key=lambda mutator: self._sample(mutator.name, random))

    def _sample(self, name: str, random: Random) -> float:
        """A draw of the mutator's mean gain from its posterior."""
        credit = self.credits[name]
        count = credit.count + self.config.prior_count
        gain = credit.gain + self.config.prior_count * self.config.prior_gain
        return gain / random.gammavariate(count + 1.0, 1.0)
