"""PromptBuilder: from a ticket to the messages that a model gets, within a budget of tokens.

The system message holds what is the same for every ticket of a run (rules, problem, device, the backend's page), so
that providers can keep it; the user's message holds the program to change with its figures, what is known around it,
the task and the form of the answer. The texts are the files under mutators/prompts/; a folder of the user's may hold
others under the same names.

Never left out: the system message, the program to change (for `combine` both, for `repair` the failed one with the
lines that say why), the task and the form of the answer. Where these alone pass the budget, ProposalError says so.
The rest is left out in this order, the last item of a section first:

1. elites      sources of other good programs
2. profile     what build and profile said of the program in words
3. siblings    what changes to it and its relatives gave
4. insights    lessons of the run
5. failures    what was tried near it and failed, the latest last

`Prompt.dropped` names what the budget left out, such as `elites: 2 of 3`. A prompt is a function of the builder and the
ticket: no clock, no state, no lot but the ticket's seed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from islands.candidate import Evaluated, Ticket
from mutators import sections
from mutators.brief import Brief, baseline_lines, fact_lines, floor_line
from mutators.dialogue import Message
from mutators.fence import Fence, make_fence
from mutators.figures import figures, limits
from mutators.pages import Pages
from mutators.proposal import ProposalError
from mutators.sections import Section, shown_name
from mutators.tokens import estimate_tokens, fewest_tokens

EDITING = ("diff", "repair", "explain")
"""Operators whose answers are edits of the program shown."""
WRITING = ("rewrite", "combine", "translate", "seed")
"""Operators whose answers are whole programs."""
PARTS = ("system", "opening", "parent", "profile", "failures", "siblings", "insights", "elites", "rationale", "edits",
         "program", "follow_up")  # fmt: skip
BACKENDS = {"cpp": "C++", "cuda": "CUDA C++", "triton": "Triton"}
KEPT_FIRST = ("failures", "insights", "siblings", "profile", "elites")

RULES = {
    "fp32": "IEEE fp32 or better. TF32, fp16 and bf16 products are judged wrong.",
    "tf32": "TF32 products are allowed, nothing coarser; everything else in fp32.",
    "fp16": "inputs and outputs are fp16; keep sums and products in fp32.",
    "bf16": "inputs and outputs are bf16; keep sums and products in fp32.",
}
TUNABLES = {
    "cpp": "constexpr int64_t TILE = 64;  // tune: 16 32 64 128",
    "cuda": "constexpr int THREADS = 256;  // tune: 128 256 512",
    "triton": "BLOCK = 1024  # tune: 512 1024 2048 4096",
}
PER_MESSAGE = 8.0
"""Tokens that a provider's own form adds to a message."""
PER_BLOCK = 40.0
"""Tokens of the two tags around a block."""
REPLY_LIMIT = 60_000
"""Characters of a refused reply that are shown to the model again."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """What is sent to a model for one ticket."""

    messages: tuple[Message, ...]
    version: str
    """Digest of the names and texts of all templates that a prompt of this operator is made of."""
    tokens: int
    """An estimate, rather too high."""
    dropped: tuple[str, ...] = ()
    """What the budget left out: `section: items left out of items there were`."""
    operator: str = ""
    number: int = 0
    """The ticket's."""
    parent_ids: tuple[str, ...] = ()
    """The programs that the answer is made from, the first being the one that edits change; empty for `seed`."""
    source: str = ""
    """What edits in the answer are applied to; empty for `seed`."""


@dataclass(frozen=True, slots=True)
class Subject:
    """The program that an operator works on, and a second one for `combine`."""

    first: Evaluated
    title: str
    second: Evaluated | None = None

    @property
    def programs(self) -> tuple[Evaluated, ...]:
        return (self.first,) if self.second is None else (self.first, self.second)


class PromptBuilder:
    """Builds prompts of one run. Holds compiled templates and nothing that changes; threads may share it."""

    def __init__(self, brief: Brief, secret: bytes, token_budget: int, templates_dir: Path | None = None) -> None:
        """ProposalError for a backend without a page, a secret that is too short, or a wrong template of the user's."""
        if brief.backend not in BACKENDS:
            raise ProposalError(f"no prompt page for backend {brief.backend!r}; there are {', '.join(BACKENDS)}")
        if token_budget < 1:
            raise ProposalError(f"the prompt's token budget must be above 0, found {token_budget}")
        self.brief, self.token_budget = brief, token_budget
        self._secret = secret
        self._run_mark = make_fence(secret, "run").mark
        self.pages = Pages(templates_dir)
        self.system = self._make_system()
        self.system_tokens = estimate_tokens(self.system) + PER_MESSAGE

    def build(self, operator: str, ticket: Ticket, insights: Sequence[str] = ()) -> Prompt:
        """The prompt of one ticket; ProposalError where what must not be left out passes the budget."""
        fence, subject = self.fence(ticket.number), self.subject(operator, ticket)
        before = [self.pages.render("parts/opening", mark=fence.mark), *self._programs(subject, fence)]
        after = [self.task(operator, ticket, subject), self._form(operator, subject)]
        fixed = self.system_tokens + PER_MESSAGE + sum(map(estimate_tokens, (*before, *after)))
        room = self.room(fixed, operator, ticket)
        kept, dropped = self._kept(self._optional(ticket, insights, subject, fence), room)
        middle = [self._section(section, fence) for section in kept if section.items]
        text = "\n\n".join((*before, *middle, *after))
        return Prompt(
            messages=(Message("system", self.system), Message("user", text)),
            version=self.version(operator),
            tokens=math.ceil(self.system_tokens + PER_MESSAGE + estimate_tokens(text)),
            dropped=dropped,
            operator=operator,
            number=ticket.number,
            parent_ids=tuple(one.candidate.id for one in subject.programs) if subject else (),
            source=subject.first.candidate.source if subject else "",
        )

    def follow_up(self, prompt: Prompt, reply_text: str, reason: str) -> tuple[Message, ...]:
        """The whole conversation for the second turn: the prompt, the model's answer, why it could not be used."""
        fence = self.fence(prompt.number)
        told = self.pages.render(
            "parts/follow_up",
            mark=fence.mark,
            reason=fence.block("reason", reason, 2 * sections.LOG_LIMIT),
            wanted="the edits" if prompt.operator in EDITING else "the whole program",
        )
        reply = fence.plain(reply_text, REPLY_LIMIT) or "(empty)"
        return (*prompt.messages, Message("assistant", reply), Message("user", told))

    def version(self, operator: str) -> str:
        """Hex digest of the templates that prompts of `operator` are made of."""
        return self.pages.digest((operator, f"backends/{self.brief.backend}", *(f"parts/{name}" for name in PARTS)))

    def fence(self, number: int) -> Fence:
        """The fence of a ticket; the mark of the system message is struck out too."""
        return make_fence(self._secret, number, (self._run_mark,))

    def room(self, fixed: float, operator: str, ticket: Ticket) -> float:
        """Tokens left for what may be left out; ProposalError where there are none."""
        if fixed > self.token_budget:
            raise ProposalError(
                f"the {operator} prompt of ticket {ticket.number} needs about {math.ceil(fixed):,} tokens for problem, "
                f"program and task alone, the budget is {self.token_budget:,}; raise the token budget"
            )
        return self.token_budget - fixed

    def _make_system(self) -> str:
        brief = self.brief
        fence = make_fence(self._secret, "run")
        return self.pages.render(
            "parts/system",
            language=BACKENDS[brief.backend],
            device_name=brief.device_name,
            mark=fence.mark,
            problem_id=brief.problem_id,
            precision=brief.precision,
            precision_rule=RULES.get(brief.precision, "as the reference's."),
            problem=fence.block("problem", brief.problem_source, sections.SOURCE_LIMIT),
            shapes=brief.shapes,
            facts=fact_lines(brief),
            baselines=baseline_lines(brief),
            floor=floor_line(brief),
            page=self.pages.render(f"backends/{brief.backend}"),
        )

    def subject(self, operator: str, ticket: Ticket) -> Subject | None:
        """What the operator works on, None for `seed`; ProposalError where the ticket has none, or one too long."""
        if operator not in (*EDITING, *WRITING):
            raise ProposalError(f"unknown operator {operator!r}: expected one of {', '.join((*EDITING, *WRITING))}")
        found = self._find(operator, ticket)
        for one in found.programs if found else ():
            length = len(one.candidate.source)
            if length > sections.SOURCE_LIMIT or fewest_tokens(one.candidate.source) > self.token_budget:
                raise ProposalError(
                    f"candidate {one.candidate.id} has {length:,} characters: it does not fit into the token budget of "
                    f"{self.token_budget:,}; raise the budget or choose another parent"
                )
        return found

    def _find(self, operator: str, ticket: Ticket) -> Subject | None:
        if operator == "seed":
            return None
        if operator == "repair":
            one = sections.failed_program(ticket)
            return Subject(_need(one, operator, ticket, "a failed program"), "The program to repair")
        if operator == "translate":
            one = sections.foreign_program(ticket, self.brief.backend)
            what = f"a program of another backend than {self.brief.backend}"
            return Subject(_need(one, operator, ticket, what), "The program to translate")
        if operator == "combine":
            second = _need(sections.second_parent(ticket), operator, ticket, "a second program")
            return Subject(ticket.parent, "The first program", second)
        return Subject(ticket.parent, "The program to change")

    def task(self, operator: str, ticket: Ticket, subject: Subject | None) -> str:
        """The operator's own page."""
        first, second = subject and subject.first, subject and subject.second
        return self.pages.render(
            operator,
            first=shown_name(first) if first else "",
            second=shown_name(second) if second else "",
            verdict=str(first.evaluation.verdict) if first else "",
            origin=BACKENDS.get(first.candidate.backend, "another language") if first else "",
            language=BACKENDS[self.brief.backend],
        )

    def rationale(self) -> str:
        """The request for tunables and for one line of reasons."""
        return self.pages.render("parts/rationale", tunables=TUNABLES[self.brief.backend])

    def program(self, one: Evaluated, title: str, fence: Fence) -> str:
        """A program with its figures, what bounds it, and the judge's words."""
        return self.pages.render(
            "parts/parent",
            title=f"{title}: {shown_name(one)}",
            figures=figures(one.evaluation, self.brief),
            limits=limits(one.evaluation, self.brief),
            said=sections.said_about(one, fence, 2 * sections.LOG_LIMIT),
            source=sections.program(one, fence),
        )

    def _programs(self, subject: Subject | None, fence: Fence) -> list[str]:
        if subject is None:
            return []
        titles = (subject.title, "The second program")
        return [self.program(one, title, fence) for one, title in zip(subject.programs, titles, strict=False)]

    def _form(self, operator: str, subject: Subject | None) -> str:
        if operator not in EDITING or subject is None:
            return self.pages.render("parts/program", rationale=self.rationale())
        return self.pages.render(
            "parts/edits",
            title=f"program {shown_name(subject.first)}",
            regions="EVOLVE-BLOCK-START" in subject.first.candidate.source,
            rationale=self.rationale(),
        )

    def _optional(
        self, ticket: Ticket, insights: Sequence[str], subject: Subject | None, fence: Fence
    ) -> tuple[Section, ...]:
        """What may be left out, in the order of the message."""
        if subject is None:
            known = sections.known_approaches(ticket, fence, self.brief)
            return sections.failures(ticket, fence, ()), sections.insights(insights, fence), known
        shown = subject.programs
        return (
            sections.profile(subject.first, fence),
            sections.failures(ticket, fence, shown),
            sections.siblings(ticket, fence, shown),
            sections.insights(insights, fence),
            sections.elites(ticket, fence, self.brief, shown),
        )

    def _kept(self, found: Sequence[Section], room: float) -> tuple[list[Section], tuple[str, ...]]:
        costs = {name: self.pages.cost(f"parts/{name}") + PER_BLOCK for name in KEPT_FIRST}
        return keep(found, costs, room)

    def _section(self, section: Section, fence: Fence) -> str:
        if section.name in ("profile", "elites"):
            return self.pages.render(f"parts/{section.name}", items=section.items)
        return self.pages.render(f"parts/{section.name}", block=fence.rows(section.name, section.items))


def keep(found: Sequence[Section], costs: Mapping[str, float], room: float) -> tuple[list[Section], tuple[str, ...]]:
    """(the sections with the items that fit into `room` tokens, what was left out), in the order of dropping above.

    `costs`: what a section costs beside its items. Where an item does not fit, nothing that is dropped earlier is kept.
    """
    kept: dict[str, Section] = {}
    dropped = []
    for section in sorted(found, key=lambda section: KEPT_FIRST.index(section.name)):
        left = room - costs[section.name]
        count = 0
        for item in section.items:
            left -= estimate_tokens(item) + 1
            if left < 0:
                break
            count += 1
            room = left
        kept[section.name] = Section(section.name, section.items[:count])
        if count < len(section.items):
            dropped.append(f"{section.name}: {len(section.items) - count} of {len(section.items)}")
            room = 0.0
    return [kept[section.name] for section in found], tuple(dropped)


def _need(one: Evaluated | None, operator: str, ticket: Ticket, what: str) -> Evaluated:
    if one is None:
        raise ProposalError(f"{operator} needs {what}; ticket {ticket.number} shows none")
    return one
