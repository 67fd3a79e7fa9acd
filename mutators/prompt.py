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

import difflib
import functools
import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from islands.candidate import Evaluated, Ticket
from mutators import sections
from mutators.brief import Brief, baseline_lines, fact_lines, floor_line
from mutators.dialogue import Message
from mutators.fence import Fence, make_fence
from mutators.figures import figures, limits
from mutators.proposal import ProposalError
from mutators.sections import Section, shown_name
from mutators.tokens import estimate_tokens, fewest_tokens

if TYPE_CHECKING:
    from jinja2 import Environment, Template

TEMPLATES = Path(__file__).parent / "prompts"
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


class PromptBuilder:
    """Builds prompts of one run. Holds compiled templates and nothing that changes."""

    def __init__(self, brief: Brief, secret: bytes, token_budget: int, templates_dir: Path | None = None) -> None:
        """ProposalError for a backend without a page, a secret that is too short, or a wrong template of the user's."""
        if brief.backend not in BACKENDS:
            raise ProposalError(f"no prompt page for backend {brief.backend!r}; there are {', '.join(BACKENDS)}")
        if token_budget < 1:
            raise ProposalError(f"the prompt's token budget must be above 0, found {token_budget}")
        self.brief, self.token_budget = brief, token_budget
        self._secret = secret
        self._texts, self._templates = _load(templates_dir)
        self._run_mark = make_fence(secret, "run").mark
        self._system = self._make_system()
        self._system_tokens = estimate_tokens(self._system) + PER_MESSAGE

    def build(self, operator: str, ticket: Ticket, insights: Sequence[str] = ()) -> Prompt:
        """The prompt of one ticket; ProposalError where what must not be left out passes the budget."""
        if operator not in (*EDITING, *WRITING):
            raise ProposalError(f"unknown operator {operator!r}: expected one of {', '.join((*EDITING, *WRITING))}")
        fence = make_fence(self._secret, ticket.number, (self._run_mark,))
        subject = self._subject(operator, ticket)
        self._check_size(subject)
        before, after = self._fixed(operator, ticket, subject, fence)
        fixed = self._system_tokens + PER_MESSAGE + sum(map(estimate_tokens, (*before, *after)))
        if fixed > self.token_budget:
            raise self._too_small(fixed, operator, ticket)
        middle, dropped = self._optional(operator, ticket, insights, subject, fence, self.token_budget - fixed)
        text = "\n\n".join((*before, *middle, *after))
        return Prompt(
            messages=(Message("system", self._system), Message("user", text)),
            version=self.version(operator),
            tokens=math.ceil(self._system_tokens + PER_MESSAGE + estimate_tokens(text)),
            dropped=dropped,
            operator=operator,
            number=ticket.number,
            parent_ids=tuple(one.candidate.id for one in _programs(subject)),
            source=subject.first.candidate.source if subject else "",
        )

    def follow_up(self, prompt: Prompt, reply_text: str, reason: str) -> tuple[Message, ...]:
        """The whole conversation for the second turn: the prompt, the model's answer, why it could not be used."""
        fence = make_fence(self._secret, prompt.number, (self._run_mark,))
        told = self._render(
            "parts/follow_up",
            mark=fence.mark,
            reason=fence.block("reason", reason, 2 * sections.LOG_LIMIT),
            wanted="the edits" if prompt.operator in EDITING else "the whole program",
        )
        reply = fence.plain(reply_text, REPLY_LIMIT) or "(empty)"
        return (*prompt.messages, Message("assistant", reply), Message("user", told))

    def version(self, operator: str) -> str:
        """Hex digest of the templates that prompts of `operator` are made of."""
        return _digest(self._texts, (operator, f"backends/{self.brief.backend}", *(f"parts/{name}" for name in PARTS)))

    def _make_system(self) -> str:
        brief = self.brief
        fence = make_fence(self._secret, "run")
        return self._render(
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
            page=self._render(f"backends/{brief.backend}"),
        )

    def _subject(self, operator: str, ticket: Ticket) -> Subject | None:
        """What the operator works on; ProposalError where the ticket has none."""
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

    def _check_size(self, subject: Subject | None) -> None:
        """ProposalError for a source that is too long, before anything is done with its text."""
        for one in _programs(subject):
            length = len(one.candidate.source)
            if length > sections.SOURCE_LIMIT or fewest_tokens(one.candidate.source) > self.token_budget:
                raise ProposalError(
                    f"candidate {one.candidate.id} has {length:,} characters: it does not fit into the token budget of "
                    f"{self.token_budget:,}; raise the budget or choose another parent"
                )

    def _fixed(
        self, operator: str, ticket: Ticket, subject: Subject | None, fence: Fence
    ) -> tuple[list[str], list[str]]:
        """What is never left out: (opening and programs, task and form of the answer)."""
        before = [self._render("parts/opening", mark=fence.mark)]
        if subject is not None:
            before.append(self._program(subject.first, subject.title, fence))
        if subject is not None and subject.second is not None:
            before.append(self._program(subject.second, "The second program", fence))
        rationale = self._render("parts/rationale", tunables=TUNABLES[self.brief.backend])
        if operator in EDITING and subject is not None:
            source = subject.first.candidate.source
            form = self._render(
                "parts/edits",
                title=f"program {shown_name(subject.first)}",
                regions="EVOLVE-BLOCK-START" in source,
                rationale=rationale,
            )
        else:
            form = self._render("parts/program", rationale=rationale)
        return before, [self._render(operator, **self._task(ticket, subject)), form]

    def _program(self, one: Evaluated, title: str, fence: Fence) -> str:
        return self._render(
            "parts/parent",
            title=f"{title}: {shown_name(one)}",
            figures=figures(one.evaluation, self.brief),
            limits=limits(one.evaluation, self.brief),
            said=sections.said_about(one, fence, 2 * sections.LOG_LIMIT),
            source=sections.program(one, fence),
        )

    def _task(self, ticket: Ticket, subject: Subject | None) -> dict[str, Any]:
        """What an operator's own page may name."""
        first, second = subject and subject.first, subject and subject.second
        return {
            "first": shown_name(first) if first else "",
            "second": shown_name(second) if second else "",
            "verdict": str(first.evaluation.verdict) if first else "",
            "origin": BACKENDS.get(first.candidate.backend, "another language") if first else "",
            "language": BACKENDS[self.brief.backend],
            "known": bool(ticket.parent.evaluation.is_correct or ticket.inspirations),
        }

    def _optional(
        self,
        operator: str,
        ticket: Ticket,
        insights: Sequence[str],
        subject: Subject | None,
        fence: Fence,
        room: float,
    ) -> tuple[list[str], tuple[str, ...]]:
        """(parts that fit into `room` tokens in the order of the message, what was left out)."""
        shown = _programs(subject)
        found = {
            "profile": sections.profile(subject.first, fence) if subject else Section("profile", ()),
            "failures": sections.failures(ticket, fence, shown),
            "siblings": sections.siblings(ticket, fence, shown) if subject else Section("siblings", ()),
            "insights": sections.insights(insights, fence),
            "elites": sections.elites(ticket, fence, self.brief, shown)
            if subject
            else sections.known_approaches(ticket, fence, self.brief),
        }
        kept, dropped = {}, []
        for name in KEPT_FIRST:
            kept[name], room = self._take(found[name], fence, room)
            left_out = len(found[name].items) - len(kept[name])
            if left_out:
                dropped.append(f"{name}: {left_out} of {len(found[name].items)}")
                room = 0.0  # so that nothing which is dropped earlier is kept instead
        parts = [self._section(name, items, fence) for name in found if (items := kept[name])]
        return parts, tuple(dropped)

    def _take(self, section: Section, fence: Fence, room: float) -> tuple[tuple[str, ...], float]:
        """(the section's first items that fit, the room that they leave)."""
        if not section.items:
            return (), room
        left = room - estimate_tokens(self._texts[f"parts/{section.name}"]) - estimate_tokens(fence.block("", "", 9))
        for index, item in enumerate(section.items):
            cost = estimate_tokens(item) + 1
            if cost > left:
                return section.items[:index], left if index else room
            left -= cost
        return section.items, left

    def _section(self, name: str, items: Sequence[str], fence: Fence) -> str:
        if name in ("profile", "elites"):
            return self._render(f"parts/{name}", items=items)
        return self._render(f"parts/{name}", block=fence.rows(name, items))

    def _render(self, name: str, **values: Any) -> str:
        from jinja2 import TemplateError

        try:
            return self._templates[name].render(values).strip()
        except TemplateError as error:
            raise ProposalError(f"the template {name}.md cannot be filled in: {error}") from error

    def _too_small(self, fixed: float, operator: str, ticket: Ticket) -> ProposalError:
        return ProposalError(
            f"the {operator} prompt of ticket {ticket.number} needs about {math.ceil(fixed):,} tokens for problem, "
            f"program and task alone, the budget is {self.token_budget:,}; raise the token budget"
        )


def _programs(subject: Subject | None) -> tuple[Evaluated, ...]:
    if subject is None:
        return ()
    return (subject.first,) if subject.second is None else (subject.first, subject.second)


def _need(one: Evaluated | None, operator: str, ticket: Ticket, what: str) -> Evaluated:
    if one is None:
        raise ProposalError(f"{operator} needs {what}; ticket {ticket.number} shows none")
    return one


def _digest(texts: dict[str, str], names: Sequence[str]) -> str:
    parts = "".join(f"{name}\0{texts[name]}\0" for name in sorted(names))
    return hashlib.sha256(parts.encode()).hexdigest()


def _load(templates_dir: Path | None) -> tuple[dict[str, str], dict[str, Template]]:
    """(texts, compiled templates) by name without `.md`; the user's folder goes before ours."""
    texts = {path.relative_to(TEMPLATES).with_suffix("").as_posix(): path.read_text("utf-8") for path in _pages()}
    if templates_dir is not None:
        texts |= _of_user(templates_dir, texts)
    environment = _environment()
    return texts, {name: _compiled(environment, name, text) for name, text in texts.items()}


@functools.cache
def _pages() -> tuple[Path, ...]:
    return tuple(sorted(TEMPLATES.rglob("*.md")))


def _environment() -> Environment:
    from jinja2 import Environment, StrictUndefined

    return Environment(undefined=StrictUndefined, autoescape=False, trim_blocks=True, lstrip_blocks=True)


def _compiled(environment: Environment, name: str, text: str) -> Template:
    from jinja2 import TemplateSyntaxError

    try:
        return environment.from_string(text)
    except TemplateSyntaxError as error:
        raise ProposalError(f"the template {name}.md is wrong in line {error.lineno}: {error.message}") from error


def _of_user(folder: Path, ours: dict[str, str]) -> dict[str, str]:
    """The templates of a user's folder; ProposalError for a folder that is not there or a name that is not ours."""
    if not folder.is_dir():
        raise ProposalError(f"the template folder {folder} does not exist; make it or leave the option out")
    found = {}
    for path in sorted(folder.rglob("*.md")):
        name = path.relative_to(folder).with_suffix("").as_posix()
        if name not in ours:
            close = difflib.get_close_matches(name, list(ours), n=1)
            hint = f"; did you mean {close[0]}.md?" if close else f"; there are {', '.join(sorted(ours))}"
            raise ProposalError(f"{path} is no template of ours{hint}")
        try:
            found[name] = path.read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ProposalError(f"the template {path} cannot be read: {error}") from error
    return found
