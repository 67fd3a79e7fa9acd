"""Attempts that a killed process had open: those with a recorded reply are thought of again, at no cost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fitness.evaluation import Evaluation, Verdict
from islands.candidate import Candidate, Evaluated, Ticket
from islands.run import Attempt, Run
from islands.turns import Turn
from mutators import mailbox
from mutators.choose import arm_of
from mutators.proposal import Mutator
from problems.problem import Problem

if TYPE_CHECKING:
    from kb_evolve.config import Config
    from kb_evolve.loop import Parts

PROBLEM = "problem"
"""Id of what stands in for a parent where there is none."""
PATIENT = frozenset({mailbox.NAME})
"""Models whose open questions are waited for again."""


def again(parts: Parts, attempt: Attempt) -> tuple[list[Mutator], Ticket] | None:
    """The operator that was asked and the ticket it had, as far as its reply needs it; None where nothing is to be had.

    The ticket has the parents that the request names, and no others: they are all that an edit is applied to.
    """
    turns = parts.store.turns(parts.run.id, attempt.number)
    if not is_worthwhile(turns):
        return None
    arm = f"{turns[0].operator}@{turns[0].model}"
    mutator = next((one for one in (*parts.chooser.mutators, *parts.seeders) if arm_of(one) == arm), None)
    ticket = _ticket(attempt, turns[0], parts)
    return ([mutator], ticket) if mutator is not None and ticket is not None else None


def first_ticket(number: int, config: Config, run: Run, problem: Problem) -> Ticket:
    """A ticket for a first kernel: the problem itself stands where a parent would."""
    island = number % config.population.islands
    stand_in = Candidate(PROBLEM, number, island, 0, "torch", problem.source, mutator="problem")
    evaluation = Evaluation(Verdict.NO_VERDICT, "the problem itself", problem.id, run.backend, stand_in.source_sha256)
    return Ticket(number, island, f"{run.seed}:{number}", Evaluated(stand_in, evaluation))


def is_worthwhile(turns: Sequence[Turn]) -> bool:
    """Whether all questions of an open attempt have their replies or are waited for: none is asked, and paid, twice."""
    return bool(turns) and all(turn.text is not None or turn.model in PATIENT for turn in turns)


def _ticket(attempt: Attempt, asked: Turn, parts: Parts) -> Ticket | None:
    if not attempt.parent_ids:
        return first_ticket(attempt.number, parts.config, parts.run, parts.problem)
    find = parts.population.find
    parent = find(attempt.parent_ids[0])
    if parent is None:
        return None
    found = [find(one) for one in asked.parent_ids if one not in attempt.parent_ids]
    others = tuple(one for one in found if one is not None)
    failed = find(asked.parent_ids[0]) if asked.operator == "repair" and asked.parent_ids else None
    seed = f"{parts.run.seed}:{attempt.number}"
    return Ticket(attempt.number, attempt.island, seed, parent, inspirations=others, failed=failed)
