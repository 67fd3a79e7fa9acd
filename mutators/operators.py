"""Operators that ask a model for a program: one class, seven ways of asking."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from fitness.evaluation import Evaluation, Verdict
from islands.candidate import Candidate, Evaluated, Ticket
from mutators.dialogue import Message, Model, ModelError, Reply, Request
from mutators.edits import apply_edits, has_edits, printable, within_regions
from mutators.extract import answer_of, check_program, code_of, rationale_of
from mutators.proposal import Proposal, ProposalError, Refusal, Usage, add_usage, refused

MOST_TURNS = 2
"""The first question, and one more with the reason why its answer could not be used."""
MOST_REASON = 500


@dataclass(frozen=True, slots=True)
class Way:
    """What an operator takes from a reply, and what the result must keep."""

    takes_edits: bool
    takes_program: bool
    keeps_regions: bool = True
    """Text outside of EVOLVE-BLOCK regions stays; where there is no parent to keep it of, it need not."""


WAYS = {
    "diff": Way(takes_edits=True, takes_program=False),
    "rewrite": Way(takes_edits=False, takes_program=True),
    "combine": Way(takes_edits=True, takes_program=True),
    "repair": Way(takes_edits=True, takes_program=True),
    "explain": Way(takes_edits=True, takes_program=True),
    "translate": Way(takes_edits=False, takes_program=True, keeps_regions=False),
    "seed": Way(takes_edits=False, takes_program=True, keeps_regions=False),
}


class Prompted(Protocol):
    """A prompt that was built."""

    @property
    def messages(self) -> tuple[Message, ...]: ...

    @property
    def version(self) -> str:
        """Digest of the templates."""
        ...

    @property
    def parent_ids(self) -> tuple[str, ...]:
        """The programs that the answer is made from; none for `seed`."""
        ...

    @property
    def source(self) -> str:
        """What edits apply to, and what the answer must differ from; empty for `seed`."""
        ...


class Prompts(Protocol):
    """Builds prompts; mutators/prompt.py's PromptBuilder."""

    def build(self, operator: str, ticket: Ticket, insights: Sequence[str] = ()) -> Any:
        """A Prompted. ProposalError where the ticket has not what the operator needs, or does not fit."""
        ...

    def follow_up(self, prompt: Any, reply_text: str, reason: str) -> tuple[Message, ...]:
        """The messages of the second turn; both texts are untrusted and come uncapped."""
        ...


@dataclass(frozen=True, slots=True)
class OperatorOptions:
    """How the model is asked."""

    max_tokens: int = 8_192
    """Most completion tokens, reasoning included."""
    temperature: float | None = None
    """None: the provider's own."""
    parameters: dict[str, Any] = field(default_factory=dict)
    """Further parameters of the provider; never keys."""
    source: str = ""
    """What `translate` translates: a whole program."""
    source_backend: str = ""
    """The backend that it is written for."""


@dataclass(frozen=True, slots=True)
class Task:
    """What one ticket asks of an operator."""

    ticket: Ticket
    prompt: Prompted
    parent_ids: tuple[str, ...]

    @property
    def shown(self) -> tuple[str, ...]:
        """Programs that a reply may quote."""
        ticket = self.ticket
        members = (ticket.parent, *ticket.inspirations, *([ticket.failed] if ticket.failed else []))
        return (self.prompt.source, *(one.candidate.source for one in members))


@dataclass(frozen=True, slots=True)
class Made:
    """A new program from a reply."""

    source: str
    how: str
    """`program`, or which lines were edited."""


def no_insights(ticket: Ticket) -> Sequence[str]:
    """None, whatever the ticket."""
    del ticket
    return ()


class ModelOperator:
    """The mutator. Without state: several threads may propose at once."""

    def __init__(
        self,
        operator: str,
        model: Model,
        model_name: str,
        prompts: Prompts,
        options: OperatorOptions = OperatorOptions(),
        *,
        insights: Callable[[Ticket], Sequence[str]] = no_insights,
    ) -> None:
        """`insights` gives the lessons to be shown for a ticket. Raises ProposalError where nothing could ever come."""
        if operator not in WAYS:
            raise ProposalError(f"unknown operator {operator!r}: expected one of {', '.join(WAYS)}")
        if operator == "translate" and not (options.source and options.source_backend):
            raise ProposalError("translate needs the options `source` (a whole program) and `source_backend`")
        self.name, self.way = operator, WAYS[operator]
        self.model, self.model_name, self.prompts, self.options = model, model_name, prompts, options
        self.insights = insights
        self.arm = f"{operator}@{model_name}"

    def fits(self, ticket: Ticket) -> bool:
        """Whether the ticket has what this operator needs."""
        return _lacks(self.name, ticket) is None

    def propose(self, ticket: Ticket) -> Proposal:
        """A program from the model's answer, or from its second one after it was told what was wrong with the first."""
        task = self._task(ticket)
        if isinstance(task, Refusal):
            return refused(self.name, task.reason, ticket)
        draft = Proposal(self.name, "", refusal="", parent_ids=task.parent_ids, usage=Usage(self.model_name))
        messages = task.prompt.messages
        reasons: list[str] = []
        for turn in range(MOST_TURNS):
            draft = dataclasses.replace(draft, details=self._details(task, turn + 1))
            try:
                reply = self.model.ask(self._request(task, turn, messages))
            except ModelError as error:
                usage = add_usage(draft.usage, error.usage)
                return dataclasses.replace(draft, usage=usage, refusal=_unanswered(error, reasons))
            draft = dataclasses.replace(draft, usage=add_usage(draft.usage, reply.usage))
            made = self._read(reply, task)
            if isinstance(made, Made):
                return _accepted(draft, reply, made)
            reasons.append(made.reason)
            if reply.finish_reason == "content_filter":
                break
            if turn + 1 < MOST_TURNS:
                messages = self.prompts.follow_up(task.prompt, reply.text, made.reason)
        return dataclasses.replace(draft, refusal="; and of the second reply: ".join(reasons))

    def _task(self, ticket: Ticket) -> Task | Refusal:
        if lack := _lacks(self.name, ticket):
            return Refusal(lack)
        if self.name == "translate":
            ticket = dataclasses.replace(ticket, parent=self._given(ticket))
        try:
            prompt: Prompted = self.prompts.build(self.name, ticket, self.insights(ticket))
        except ProposalError as error:
            return Refusal(f"no prompt: {error}")
        return Task(ticket, prompt, () if self.name == "translate" else prompt.parent_ids)

    def _given(self, ticket: Ticket) -> Evaluated:
        """The program to translate, as a parent of which nothing was measured here."""
        source, backend = self.options.source, self.options.source_backend
        candidate = Candidate("given", ticket.number, ticket.island, 0, backend, source, mutator="given")
        problem = ticket.parent.evaluation.problem
        reason, problem = "given by the user, not measured here", ticket.parent.evaluation.problem
        evaluation = Evaluation(Verdict.NO_VERDICT, reason, problem, backend, candidate.source_sha256)
        return Evaluated(candidate, evaluation)

    def _request(self, task: Task, turn: int, messages: tuple[Message, ...]) -> Request:
        return Request(
            number=task.ticket.number,
            turn=turn,
            operator=self.name,
            model=self.model_name,
            messages=messages,
            island=task.ticket.island,
            parent_ids=task.parent_ids,
            prompt_version=task.prompt.version,
            max_tokens=self.options.max_tokens,
            temperature=self.options.temperature,
            parameters=dict(self.options.parameters),
        )

    def _details(self, task: Task, turns: int) -> dict[str, Any]:
        version = task.prompt.version
        return {"model": self.model_name, "arm": self.arm, "prompt_version": version, "turns": turns}

    def _read(self, reply: Reply, task: Task) -> Made | Refusal:
        """The new program of a reply, or a reason that the model can act on."""
        answer = answer_of(reply)
        if isinstance(answer, Refusal):
            return answer
        if self.way.takes_edits and (has_edits(answer) or not self.way.takes_program):
            made = _edited(reply, answer, task.prompt.source)
        else:
            made = self._program(reply, task)
        if isinstance(made, Refusal):
            return made
        if made.source.strip() == task.prompt.source.strip():
            return Refusal("it changed nothing: the program is the one that was to be changed")
        ticket = task.ticket
        if any(one.candidate.source == made.source for one in (ticket.parent, *ticket.inspirations, *ticket.lineage)):
            return Refusal("it changed nothing: the program is one that was shown")
        return made

    def _program(self, reply: Reply, task: Task) -> Made | Refusal:
        source = code_of(reply, task.shown)
        if self.way.keeps_regions and isinstance(source, str):
            source = within_regions(task.prompt.source, source)
        return source if isinstance(source, Refusal) else Made(source, "program")


def _lacks(operator: str, ticket: Ticket) -> str | None:
    """What a ticket has not that the operator needs."""
    if operator == "repair" and ticket.failed is None:
        return "there is no failed candidate to repair"
    own = ticket.parent.candidate.source
    if operator == "combine" and all(one.candidate.source == own for one in ticket.inspirations):
        return "there is no second parent that differs from the first"
    return None


def _edited(reply: Reply, answer: str, base: str) -> Made | Refusal:
    if reply.finish_reason == "length":
        return Refusal("the reply is truncated (finish reason length), so edits may be missing: answer in fewer words")
    edited = apply_edits(base, answer)
    if isinstance(edited, Refusal):
        return edited
    fault = check_program(edited.source)
    if fault is not None:
        return Refusal(f"with the edits in it ({printable(edited.summary, 200)}), {fault.reason}")
    return Made(edited.source, edited.summary)


def _accepted(draft: Proposal, reply: Reply, made: Made) -> Proposal:
    answer = answer_of(reply)
    said = rationale_of(answer) if isinstance(answer, str) else ""
    return dataclasses.replace(
        draft,
        refusal=None,
        source=made.source,
        rationale=said or f"The model gave no reason ({printable(made.how, 200)}).",
        details={**draft.details, "made": printable(made.how, MOST_REASON)},
    )


def _unanswered(error: ModelError, reasons: Sequence[str]) -> str:
    before = f"; before that: {'; '.join(reasons)}" if reasons else ""
    return f"{error.kind}: {printable(error.reason, MOST_REASON)}{before}"
