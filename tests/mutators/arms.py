"""Scripted arms of known quality, and a search over them without programs: what the chooser's tests drive."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from fitness.evaluation import Evaluation, Verdict
from islands.candidate import Candidate, Evaluated, Ticket
from mutators.choose import Chooser, ChooserConfig
from mutators.proposal import Proposal, Usage

PARENT_MS = 1.0
DEFAULT = ChooserConfig()


@dataclass(frozen=True, slots=True)
class Arm:
    """An operator with a model: right with a probability that may change with the call's number, at a price."""

    arm: str
    right: Callable[[int], float]
    cost_usd: float = 0.01
    device_s: float = 2.0
    gain: float = 0.2
    """Mean log speedup of a right answer; single ones are spread over half to one and a half of it."""
    refuses: float = 0.0
    """How often an answer holds no program; it is paid all the same."""

    @property
    def name(self) -> str:
        return self.arm.partition("@")[0]

    def propose(self, ticket: Ticket) -> Proposal:
        """Never asked: `search` settles what came of a call."""
        return Proposal(self.name, "", source=f"x = {ticket.number}\n")


@dataclass(slots=True)
class Found:
    """What a search came to."""

    chosen: list[str]
    gain: float = 0.0
    fair_gain: float = 0.0
    """What the chosen arms gain on average: `gain` without the luck of single calls."""
    cost_usd: float = 0.0
    """Device time counted as money."""

    @property
    def rate(self) -> float:
        return self.gain / self.cost_usd

    @property
    def fair_rate(self) -> float:
        return self.fair_gain / self.cost_usd

    def share(self, arm: str, last: int) -> float:
        """The arm's part of the last calls."""
        return self.chosen[-last:].count(arm) / last


def evaluation_of(kernel_ms: float | None, evaluate_s: float | None = 2.0) -> Evaluation:
    """A correct evaluation, or a wrong result where kernel_ms is None."""
    if kernel_ms is None:
        return Evaluation(Verdict.WRONG_RESULT, "", "p", "cpp", "0", evaluate_s=evaluate_s)
    ci = (kernel_ms, kernel_ms)
    return Evaluation(Verdict.CORRECT, "", "p", "cpp", "0", kernel_ms=kernel_ms, kernel_ms_ci=ci, reference_ms=1.0,
                      speedup=1 / kernel_ms, speedup_ci=ci, evaluate_s=evaluate_s)  # fmt: skip


PARENT = evaluation_of(PARENT_MS)


def told(arm: str, number: int, kernel_ms: float | None, evaluate_s: float | None = 2.0) -> Evaluated:
    """A child of PARENT by an arm."""
    candidate = Candidate(f"run-{number:06d}", number, 0, 1, "cpp", "", mutator=arm.partition("@")[0],
                          details={"arm": arm})  # fmt: skip
    return Evaluated(candidate, evaluation_of(kernel_ms, evaluate_s))


def ticket_of(seed: int, number: int) -> Ticket:
    return Ticket(number, 0, f"{seed}:{number}", told("seed", 0, PARENT_MS))


def search(arms: list[Arm], calls: int, seed: int, config: ChooserConfig = DEFAULT, delay: int = 0) -> Found:
    """`calls` tickets, each outcome told `delay` tickets later.

    Luck belongs to the ticket, not to the arm: a call is right if the ticket's number in [0, 1) is below the
    arm's probability. So two policies that are compared on one seed differ by what they chose alone.
    """
    chooser, found, waiting = Chooser(list(arms), config), Found([]), deque()
    for number in range(1, calls + 1):
        while len(waiting) > delay:
            chooser.tell(waiting.popleft(), PARENT)
        arm = chooser.choose(ticket_of(seed, number))
        found.chosen.append(arm.arm)
        found.cost_usd += arm.cost_usd
        luck = Random(f"{seed}:{number}:luck")
        usage = Usage(arm.arm.partition("@")[2], 1000, 100, arm.cost_usd, 1.0)
        if luck.random() < arm.refuses:
            chooser.close(arm.arm, number, "refused", usage)
            continue
        chooser.close(arm.arm, number, "candidate", usage)
        gain = arm.gain * luck.uniform(0.5, 1.5) if luck.random() < arm.right(number) else None
        found.gain += gain or 0.0
        found.fair_gain += arm.gain * arm.right(number)
        found.cost_usd += arm.device_s * config.usd_per_device_hour / 3600
        kernel_ms = None if gain is None else PARENT_MS * math.exp(-gain)
        waiting.append(told(arm.arm, number, kernel_ms, arm.device_s))
    return found
