"""A ticket is offered to one mutator after the other until one gives a new program."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from fitness.evaluation import Job
from fitness.replay import Replay
from islands.candidate import Candidate, Evaluated, Ticket
from kb_evolve.thinking import think
from mutators.proposal import Proposal, Usage


@dataclass
class Scripted:
    """A mutator that gives its answers in turn: a source, or None for a refusal, or raises them."""

    name: str
    answers: list[str | Exception | None]
    seeds: list[str] = field(default_factory=list)

    def propose(self, ticket: Ticket) -> Proposal:
        self.seeds.append(ticket.seed)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        refusal = "nothing to do" if answer is None else None
        return Proposal(self.name, "", source=answer, refusal=refusal, usage=Usage("m", 10, 2, 0.5, 1.0))


@pytest.fixture
def ticket() -> Ticket:
    candidate = Candidate("r-000000", 0, 0, 0, "cpp", "seed")
    evaluation = Replay().evaluate(Job(problem="toy", problem_source="", source="seed"))
    return Ticket(7, 0, "0:7", Evaluated(candidate, evaluation))


def known_as(source: str) -> str | None:
    return "r-000003" if source == "old" else None


def test_a_refusal_passes_the_ticket_on(ticket: Ticket) -> None:
    thought = think([Scripted("one", [None]), Scripted("two", ["new"])], ticket, known_as)
    assert thought.outcome == "candidate"
    assert thought.proposal is not None and thought.proposal.mutator == "two"
    assert thought.usage.cost_usd == 1.0, "the refusal was paid for too"


def test_a_mutator_that_repeats_itself_is_asked_again_with_another_seed_after_the_others(
    ticket: Ticket,
) -> None:
    one, two = Scripted("one", ["old", "new"]), Scripted("two", [None])
    thought = think([one, two], ticket, known_as)
    assert thought.proposal is not None and thought.proposal.source == "new"
    assert one.seeds[0] == ticket.seed != one.seeds[1]
    assert two.seeds == [ticket.seed]


def test_when_all_that_is_proposed_is_known_the_attempt_is_a_duplicate(ticket: Ticket) -> None:
    thought = think([Scripted("one", ["old", "old"]), Scripted("two", [None])], ticket, known_as)
    assert (thought.proposal, thought.outcome) == (None, "duplicate")
    assert "one repeated candidate r-000003" in thought.reasons
    assert "two refused: nothing to do" in thought.reasons


def test_when_all_refuse_the_attempt_is_refused_with_every_reason(ticket: Ticket) -> None:
    thought = think([Scripted("one", [None]), Scripted("two", [None])], ticket, known_as)
    assert (thought.proposal, thought.outcome, len(thought.reasons)) == (None, "refused", 2)


def test_a_mutator_that_raises_costs_nothing_but_its_turn(ticket: Ticket) -> None:
    broken = Scripted("broken", [RuntimeError("boom")])
    assert think([broken, Scripted("two", ["new"])], ticket, known_as).outcome == "candidate"
    broken.answers.append(RuntimeError("boom"))
    thought = think([broken], ticket, known_as)
    assert thought.outcome == "error" and "RuntimeError: boom" in thought.reasons[0]
