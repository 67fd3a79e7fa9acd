"""Asking: from a ticket to an attempt that is closed, with a new program or without."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any

from islands.candidate import Candidate, Ticket
from kb_evolve import rethink
from kb_evolve.known import Known
from kb_evolve.thinking import Alike, Thought, is_paid, think
from mutators.choose import arm_of
from mutators.proposal import Mutator, Proposal, Usage

if TYPE_CHECKING:
    from kb_evolve.loop import Parts


KNOBS = "knobs"
"""Changes nothing but constants, which hardly turn an embedding."""
SEED_SHARE = 0.4
"""While no kernel is correct: how often a new one is asked for although there is one to repair."""


def fixes(mutator: Mutator, ticket: Ticket) -> bool:
    """Whether it repairs failed candidates and the ticket has one."""
    return mutator.name == "repair" and ticket.failed is not None


class Asking:
    """The part of a loop that asks, thinks and accepts. In order it accepts by ticket number, and shows each ticket
    only programs that came before everything in flight."""

    def __init__(
        self,
        parts: Parts,
        known: Known,
        *,
        submit: Callable[[Candidate], None],
        settle: Callable[[int], None],
        measured: Callable[[], list[int]],
    ) -> None:
        """`submit` takes a new candidate, `settle` the number of a ticket that gave none; `measured` gives the numbers
        of what is on its way to being told."""
        self.parts, self.known = parts, known
        self.run, self.store, self.in_order = parts.run, parts.store, parts.config.run.in_order
        self._submit, self._settle, self._measured = submit, settle, measured
        self.thinking: dict[Future[Thought], Ticket] = {}
        self.patient: set[int] = set()
        """Tickets that wait for a person's answer, which may never come."""
        self.thought: dict[int, tuple[Ticket, Thought]] = {}
        """What waits to be accepted."""
        self.closed: dict[int, tuple[str, str, Usage]] = {}
        """In order: arm, outcome and cost of closed attempts that the chooser is yet to hear of."""
        self.next_number = 0

    def resume(self) -> None:
        """Takes up the attempts on record. Open ones that a model was asked for are thought of again, from its recorded
        reply; the rest is lost."""
        attempts = self.store.attempts(self.run.id)
        self.parts.budget.attempts = len(attempts)
        self.next_number = self.store.next_number(self.run.id)
        for attempt in attempts:
            if attempt.outcome is not None:
                arm = attempt.details.get("arm", attempt.mutator)
                self.parts.chooser.close(arm, attempt.number, attempt.outcome, Usage(**attempt.usage))
            elif again := rethink.again(self.parts, attempt):
                self._think(*again)
            else:
                self.store.close_attempt(self.run.id, attempt.number, "lost", reason="the process ended during it")

    def ask(self) -> bool:
        """The next ticket, on its way to a mutator. False where the last that may be asked was paid out just now."""
        ticket = self.parts.population.ask(self.next_number)
        if self.parts.insights is not None:
            self.parts.insights.hold(ticket)
        mutators = self.payable(self.parts.chooser.order(ticket)) or self.payable(self.parts.chooser.mutators)
        return self._open(mutators, ticket, (ticket.parent.candidate.id,))

    def _open(self, mutators: Sequence[Mutator], ticket: Ticket, parent_ids: tuple[str, ...]) -> bool:
        if not mutators:
            return False
        self.store.open_attempt(self.run.id, ticket.number, ticket.island, mutators[0].name, parent_ids)
        self.next_number += 1
        self.parts.budget.attempts += 1
        self._think(mutators, ticket)
        return True

    def ask_first(self) -> bool:
        """A ticket for a first kernel, while none is correct: from the problem alone, or repairing one that failed.
        False as for `ask`."""
        number = self.next_number
        ticket = self.parts.population.ask(number) if self.parts.population.ready(number) else None
        repairers = [one for one in self.parts.chooser.mutators if ticket is not None and fixes(one, ticket)]
        if ticket is None or not repairers or Random(f"{ticket.seed}:first").random() < SEED_SHARE:
            ticket, repairers = rethink.first_ticket(number, self.parts.config, self.run, self.parts.problem), []
        mutators = self.payable(repairers or self.parts.seeders)
        parent_ids = (ticket.parent.candidate.id,) if repairers else ()
        return self._open(mutators and [mutators[number % len(mutators)]], ticket, parent_ids)

    def payable(self, mutators: Sequence[Mutator]) -> list[Mutator]:
        """Without those that ask models, once these have cost what they may."""
        is_over = bool(self.parts.paid_out())
        return [mutator for mutator in mutators if not (is_over and is_paid(mutator))]

    def numbers(self) -> list[int]:
        """Tickets that are thought of, or thought of and not yet accepted."""
        return [*(ticket.number for ticket in self.thinking.values()), *self.thought]

    def only_waits_for_people(self) -> bool:
        """Whether all that is thought of waits for a person's answer."""
        return not self.thought and all(ticket.number in self.patient for ticket in self.thinking.values())

    def collect(self, done: Collection[Future[Any]]) -> None:
        """Accepts what was thought, as far as its turn has come."""
        for future in [future for future in self.thinking if future in done]:
            ticket = self.thinking.pop(future)
            self.thought[ticket.number] = ticket, future.result()
        self._accept_thoughts()

    def count(self, number: int) -> None:
        """Tells the chooser what became of an attempt and what it cost."""
        if (closed := self.closed.pop(number, None)) is not None:
            arm, outcome, usage = closed
            self.parts.chooser.close(arm, number, outcome, usage)

    def record(self, candidate: Candidate) -> None:
        """Into the store, and known from now on."""
        self.store.add_candidate(self.run.id, candidate)
        self.known.add(candidate)

    def abandon(self) -> None:
        """Closes what is thought of, but for what a model was or will be asked: that is taken up on resuming."""
        for future in self.thinking:
            future.cancel()
        for number in self.numbers():
            if not rethink.is_worthwhile(self.store.turns(self.run.id, number)):
                self.store.close_attempt(self.run.id, number, "lost", reason="the run stopped during it")
        self.thinking.clear()
        self.thought.clear()

    def _think(self, mutators: Sequence[Mutator], ticket: Ticket) -> None:
        oldest = min([*self.numbers(), *self._measured()], default=ticket.number)
        known_as = partial(self._name_before, oldest if self.in_order else None, ticket.island)
        future = self.parts.pools.thinking.submit(think, mutators, ticket, known_as, self._alike(mutators[0], ticket))
        self.thinking[future] = ticket
        if arm_of(mutators[0]).rpartition("@")[2] in rethink.PATIENT:
            self.patient.add(ticket.number)
        if future.done():
            self.collect([future])

    def _alike(self, mutator: Mutator, ticket: Ticket) -> Alike | None:
        """Compares a model's program with the elites that the ticket's island has now."""
        embeddings = self.parts.embeddings
        if embeddings is None or mutator.name == KNOBS or not is_paid(mutator):
            return None
        elites = [one.candidate for (home, _), one in self.parts.population.cells.items() if home == ticket.island]

        def alike(source: str) -> tuple[str | None, Usage]:
            found = embeddings.nearest(ticket.number, ticket.island, source, elites)
            is_same = found.cosine >= self.parts.config.models.embedding_threshold
            return found.id if is_same and found.id else None, found.usage

        return alike

    def _name_before(self, until: int | None, island: int, source: str) -> str | None:
        """The id of the island's candidate with the same program, if its ticket came before `until`."""
        known_id = self.known.name_of(island, source)
        if known_id is None or until is None or int(known_id.rpartition("-")[2]) < until:
            return known_id
        return None

    def _accept_thoughts(self) -> None:
        """Accepts what was thought; in order only once no earlier ticket is still thought of."""
        while self.thought:
            number = min(self.thought)
            if self.in_order and any(ticket.number < number for ticket in self.thinking.values()):
                return
            self._accept(*self.thought.pop(number))

    def _accept(self, ticket: Ticket, thought: Thought) -> None:
        """Closes the attempt; a new program becomes a candidate on its way to the judge."""
        proposal = thought.proposal
        if proposal is None or proposal.source is None:
            return self._close_barren(ticket, thought, thought.outcome, "; ".join(thought.reasons))
        if (known_id := self.known.name_of(ticket.island, proposal.source)) is not None:
            reason = f"{proposal.mutator} repeated candidate {known_id}, which came in meanwhile"
            return self._close_barren(ticket, thought, "duplicate", reason)
        candidate = self._candidate(ticket, proposal, proposal.source)
        with self.store.transaction():
            self.record(candidate)
            self._close(ticket, thought, "candidate", "")
        return self._submit(candidate)

    def _candidate(self, ticket: Ticket, proposal: Proposal, source: str) -> Candidate:
        is_first = ticket.parent.candidate.id == rethink.PROBLEM
        parent_ids = proposal.parent_ids or (() if is_first else (ticket.parent.candidate.id,))
        return Candidate(
            id=f"{self.run.id}-{ticket.number:06d}",
            number=ticket.number,
            island=ticket.island,
            generation=1 + max((self.known.generations.get(one, 0) for one in parent_ids), default=-1),
            backend=self.parts.config.run.backend,
            source=source,
            parent_ids=parent_ids,
            mutator=proposal.mutator,
            rationale=proposal.rationale,
            details=proposal.details,
        )

    def _close_barren(self, ticket: Ticket, thought: Thought, outcome: str, reason: str) -> None:
        self._close(ticket, thought, outcome, reason)
        self._settle(ticket.number)

    def _close(self, ticket: Ticket, thought: Thought, outcome: str, reason: str) -> None:
        proposal = thought.proposal
        self.store.close_attempt(
            self.run.id,
            ticket.number,
            outcome,
            reason=reason,
            usage=thought.usage,
            details=proposal.details if proposal else thought.details,
            mutator=proposal.mutator if proposal else None,
            rationale=proposal.rationale if proposal else "",
        )
        self.closed[ticket.number] = thought.arm, outcome, thought.usage
        if not self.in_order:
            self.count(ticket.number)
