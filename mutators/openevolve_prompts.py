"""A user's OpenEvolve template folder in place of our texts, filled by OpenEvolve's own PromptSampler.

What is theirs: the texts (`*.txt`, `fragments.json`; OpenEvolve's own where the folder has none), their placeholders,
and the sampler that fills them. What is ours: every candidate's text, message and label goes through the fence first;
real failures and measured relatives stand under "Previous Attempts"; labels compare times instead of scores; nothing is
drawn at random; the budget of tokens. The system message ends in ours (rules of data, problem, device, backend), the
user's in the operator's page, where OpenEvolve has no such operator, and in the request for a rationale and tunables.

A folder may hold `<operator>_user.txt`; otherwise edits use `diff_user` and whole programs `full_rewrite_user`. Besides
OpenEvolve's placeholders a user's message may name {problem}, {device}, {backend} and {precision}.

Against OpenEvolve 0.4.1: its sampler calls get_fragment without the values that some fragments need, and then formats
the error message that comes back; a folder that does not exist is only logged.
"""

from __future__ import annotations

import copy
import difflib
import functools
import math
import string
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from islands.candidate import Evaluated, Ticket
from mutators import sections
from mutators.brief import Brief, number
from mutators.dialogue import Message
from mutators.fence import Fence
from mutators.figures import limits, summary
from mutators.pages import digest_of
from mutators.prompt import EDITING, PER_BLOCK, PER_MESSAGE, WRITING, Prompt, PromptBuilder, Subject, keep
from mutators.proposal import ProposalError
from mutators.sections import Section, shown_name
from mutators.tokens import estimate_tokens

USER = frozenset(
    {
        *("metrics", "fitness_score", "feature_coords", "feature_dimensions", "improvement_areas"),
        *("evolution_history", "current_program", "language", "artifacts"),
        *("problem", "device", "backend", "precision"),
    }
)
PLACEHOLDERS = {
    "diff_user": USER,
    "full_rewrite_user": USER,
    **{f"{operator}_user": USER for operator in (*EDITING, *WRITING)},
    "evolution_history": frozenset({"previous_attempts", "top_programs", "inspirations_section"}),
    "previous_attempt": frozenset({"attempt_number", "changes", "performance", "outcome"}),
    "top_program": frozenset({"program_number", "score", "language", "program_snippet", "key_features"}),
    "inspirations_section": frozenset({"inspiration_programs"}),
    "inspiration_program": frozenset(
        {"program_number", "score", "program_type", "language", "program_snippet", "unique_features"}
    ),
}
"""What each template that is used here may name."""
OWN_TASK = ("combine", "repair", "explain", "translate", "seed")
"""Operators that OpenEvolve has no template for."""
NICHES = ("threads", "vector_bits", "registers", "shared_bytes", "launches_per_call")
LANGUAGE = "python"
"""Of every candidate file, whatever it holds."""
TOP = 2
"""Elites under "Top Performing Programs"; the rest are inspirations."""
MOST_ATTEMPTS = 5
"""Failed and timed relatives each: here they take three times the room."""


class OpenEvolvePrompts:
    """Builds prompts as PromptBuilder does, from OpenEvolve's templates. Threads may share it."""

    def __init__(self, brief: Brief, secret: bytes, token_budget: int, templates_dir: Path) -> None:
        """ProposalError for a folder that is not there, or a template that names what there is not."""
        self._ours = PromptBuilder(brief, secret, token_budget)
        self._sampler = _make_sampler(templates_dir)
        self._templates: dict[str, str] = self._sampler.template_manager.templates
        for name in PLACEHOLDERS.keys() & self._templates.keys():
            _check(name, self._templates[name], templates_dir)
        self.system = f"{self._sampler.template_manager.get_template('system_message').strip()}\n\n{self._ours.system}"
        self._system_tokens = estimate_tokens(self.system) + PER_MESSAGE

    def build(self, operator: str, ticket: Ticket, insights: Sequence[str] = ()) -> Prompt:
        """The prompt of one ticket; ProposalError where what must not be left out passes the budget."""
        fence, subject = self._ours.fence(ticket.number), self._ours.subject(operator, ticket)
        found = self._optional(ticket, insights, subject, fence)
        empty = [Section(section.name, ()) for section in found]
        fixed = self._system_tokens + PER_MESSAGE
        fixed += estimate_tokens(self._message(operator, ticket, subject, fence, empty))
        room = self._ours.room(fixed, operator, ticket)
        kept, dropped = keep(found, self._costs(), room)
        text = self._message(operator, ticket, subject, fence, kept)
        return Prompt(
            messages=(Message("system", self.system), Message("user", text)),
            version=self.version(operator),
            tokens=math.ceil(self._system_tokens + PER_MESSAGE + estimate_tokens(text)),
            dropped=dropped,
            operator=operator,
            number=ticket.number,
            parent_ids=tuple(one.candidate.id for one in subject.programs) if subject else (),
            source=subject.first.candidate.source if subject else "",
        )

    def follow_up(self, prompt: Prompt, reply_text: str, reason: str) -> tuple[Message, ...]:
        """The whole conversation for the second turn, as PromptBuilder's."""
        return self._ours.follow_up(prompt, reply_text, reason)

    def version(self, operator: str) -> str:
        """Hex digest of the user's templates and fragments, and of ours that stand beside them."""
        fragments = self._sampler.template_manager.fragments
        texts = {f"template {name}": text for name, text in self._templates.items()}
        texts |= {f"fragment {name}": str(text) for name, text in fragments.items()}
        return digest_of({**texts, "ours": self._ours.version(operator)})

    def _message(
        self, operator: str, ticket: Ticket, subject: Subject | None, fence: Fence, kept: Sequence[Section]
    ) -> str:
        """The user's message with these sections."""
        items = {section.name: section.items for section in kept}
        sampler = copy.copy(self._sampler)
        sampler.areas = self._areas(ticket, subject)
        program = sections.program(subject.first, fence) if subject else "(there is none yet)"
        said = sections.said_about(subject.first, fence, 2 * sections.LOG_LIMIT) if subject else ""
        filled = sampler.build_prompt(
            current_program=program,
            parent_program=program,
            program_metrics=_metrics(subject.first) if subject else {},
            previous_programs=[*items["failures"], *items["siblings"]],
            top_programs=list(items["elites"][:TOP]),
            inspirations=list(items["elites"][TOP:]),
            language=LANGUAGE,
            evolution_round=ticket.number,
            diff_based_evolution=operator in EDITING,
            template_key=f"{operator}_user" if f"{operator}_user" in self._templates else None,
            program_artifacts=dict(enumerate(filter(None, (said, *items["profile"])))),
            feature_dimensions=_niches(subject),
            **self._extra(fence),
        )["user"]
        before = self._ours.pages.render("parts/opening", mark=fence.mark)
        return "\n\n".join((before, filled.strip(), *self._after(operator, ticket, subject, fence, items["insights"])))

    def _after(
        self, operator: str, ticket: Ticket, subject: Subject | None, fence: Fence, lessons: Sequence[str]
    ) -> list[str]:
        parts = []
        if lessons:
            parts.append(self._ours.pages.render("parts/insights", block=fence.rows("insights", lessons)))
        if subject is not None and subject.second is not None:
            parts.append(self._ours.program(subject.second, "The second program", fence))
        if operator in OWN_TASK:
            parts.append(self._ours.task(operator, ticket, subject))
        return [*parts, self._ours.rationale()]

    def _extra(self, fence: Fence) -> dict[str, str]:
        brief = self._ours.brief
        return {
            "problem": fence.block("problem", brief.problem_source, sections.SOURCE_LIMIT),
            "device": brief.device_name,
            "backend": brief.backend,
            "precision": brief.precision,
        }

    def _areas(self, ticket: Ticket, subject: Subject | None) -> str:
        """What bounds the program, and whether it was a step forward from its own parent."""
        if subject is None:
            return self._fragment("no_specific_guidance")
        lines = limits(subject.first.evaluation, self._ours.brief)
        now = subject.first.evaluation.speedup
        parents = subject.first.candidate.parent_ids
        before = next((one.evaluation.speedup for one in ticket.lineage if one.candidate.id in parents), None)
        if now is not None and before is not None:
            name = "fitness_improved" if now > before else "fitness_declined" if now < before else "fitness_stable"
            lines.insert(0, self._fragment(name, prev=before, current=now))
        return "\n".join(f"- {line}" for line in lines or [self._fragment("no_specific_guidance")])

    def _fragment(self, name: str, **values: Any) -> str:
        return str(self._sampler.template_manager.get_fragment(name, **values))

    def _optional(
        self, ticket: Ticket, insights: Sequence[str], subject: Subject | None, fence: Fence
    ) -> tuple[Section, ...]:
        """What may be left out, each item filled into the user's template for it."""
        shown = subject.programs if subject else ()
        attempts = [
            Section(name, tuple(self._attempt(one, ticket, fence) for one in members[:MOST_ATTEMPTS]))
            for name, members in (
                ("failures", sections.failed_relatives(ticket, shown)),
                ("siblings", sections.timed_relatives(ticket, shown)),
            )
        ]
        elites = sections.distinct_elites(ticket, shown)
        programs = (self._elite(place, one, subject, fence) for place, one in enumerate(elites))
        profile = sections.profile(subject.first, fence) if subject else Section("profile", ())
        return (*attempts, Section("elites", tuple(programs)), profile, sections.insights(insights, fence))

    def _attempt(self, one: Evaluated, ticket: Ticket, fence: Fence) -> str:
        reason = fence.line(one.evaluation.reason, sections.REASON_LIMIT)
        changes = fence.line(one.candidate.rationale, sections.RATIONALE_LIMIT)
        outcome = sections.gain(one, ticket) or (fence.rows("reason", [reason]) if reason else "")
        return self._templates["previous_attempt"].format(
            attempt_number=one.candidate.number,
            changes=fence.rows("changes", [changes]) if changes else self._fragment("attempt_unknown_changes"),
            performance=summary(one.evaluation, self._ours.brief),
            outcome=outcome,
        )

    def _elite(self, place: int, one: Evaluated, subject: Subject | None, fence: Fence) -> str:
        values = {
            "program_number": place + 1 if place < TOP else place + 1 - TOP,
            "score": f"{one.evaluation.speedup or 0.0:.4f}",
            "language": LANGUAGE,
            "program_snippet": sections.program(one, fence),
        }
        about = f"{shown_name(one)}: {summary(one.evaluation, self._ours.brief)}"
        if place < TOP:
            return self._templates["top_program"].format(**values, key_features=about)
        kind = _compared(one, subject)
        return self._templates["inspiration_program"].format(**values, program_type=kind, unique_features=about)

    def _costs(self) -> dict[str, float]:
        around = estimate_tokens(self._templates["inspirations_section"]) + PER_BLOCK
        return {
            "elites": around,
            "profile": PER_BLOCK,
            "siblings": PER_BLOCK,
            "failures": PER_BLOCK,
            "insights": self._ours.pages.cost("parts/insights") + PER_BLOCK,
        }


def _metrics(one: Evaluated) -> dict[str, float | str]:
    """Measured figures under OpenEvolve's names; `combined_score`, its fitness, is the speedup, 0 for a failure."""
    evaluation = one.evaluation
    found: dict[str, float | str] = {"combined_score": evaluation.speedup or 0.0, "verdict": str(evaluation.verdict)}
    for name in ("kernel_ms", "reference_ms", "error_ratio"):
        value = getattr(evaluation, name)
        if value is not None:
            found[name] = value
    return found | {name: value for name in NICHES if (value := number(evaluation.features, name)) is not None}


def _niches(subject: Subject | None) -> list[str]:
    features = subject.first.evaluation.features if subject else {}
    return [name for name in NICHES if number(features, name) is not None]


def _compared(one: Evaluated, subject: Subject | None) -> str:
    """An elite's time set against that of the program to change."""
    own = subject.first.evaluation.kernel_ms if subject else None
    if own is None or one.evaluation.kernel_ms is None:
        return "another approach"
    ratio = one.evaluation.kernel_ms / own
    return f"{1 / ratio:.3g}x as fast" if ratio <= 1 else f"takes {ratio:.3g}x as long"


def _check(name: str, template: str, folder: Path) -> None:
    """ProposalError where a template cannot be filled in: by the placeholders it names, or by how it formats them."""
    known = PLACEHOLDERS[name]
    try:
        named = {field for _, field, _, _ in string.Formatter().parse(template) if field is not None}
    except ValueError as error:
        raise ProposalError(f"the template {name}.txt in {folder} is not a format string: {error}") from error
    for field in sorted(named):
        if field not in known:
            close = difflib.get_close_matches(field, sorted(known), n=1)
            hint = f"; did you mean {{{close[0]}}}?" if close else f"; there are {', '.join(sorted(known))}"
            raise ProposalError(f"the template {name}.txt in {folder} names {{{field}}}, which is not given{hint}")
    if known is USER and "current_program" not in named:
        raise ProposalError(f"the template {name}.txt in {folder} must name {{current_program}}, the program to change")
    try:
        template.format(**dict.fromkeys(known, "1"))
    except (ValueError, KeyError, IndexError, AttributeError) as error:
        raise ProposalError(
            f"the template {name}.txt in {folder} cannot be filled in: {error}; all values are texts here"
        ) from error


def _make_sampler(folder: Path) -> Any:
    from openevolve.config import PromptConfig

    if not folder.is_dir():
        raise ProposalError(f"the OpenEvolve template folder {folder} does not exist; check the path")
    config = PromptConfig(template_dir=str(folder), use_template_stochasticity=False)
    try:
        return _sampler_class()(config)
    except (OSError, ValueError) as error:
        raise ProposalError(f"the OpenEvolve templates in {folder} cannot be read: {error}") from error


@functools.cache
def _sampler_class() -> Any:
    """PromptSampler with its faults mended; made on first use, because importing openevolve takes 0.8 s."""
    from openevolve.prompt.sampler import PromptSampler
    from openevolve.prompt.templates import TemplateManager

    class Templates(TemplateManager):
        """A fragment is never an error message: one that needs values is filled by whoever has them."""

        def get_fragment(self, name: str, **kwargs: Any) -> str:
            if name not in self.fragments:
                raise ProposalError(f"there is no fragment {name!r} in fragments.json")
            try:
                return str(self.fragments[name].format(**kwargs))
            except (KeyError, IndexError):
                return str(self.fragments[name])
            except (ValueError, AttributeError) as error:
                raise ProposalError(f"the fragment {name!r} of fragments.json cannot be filled in: {error}") from error

    class Sampler(PromptSampler):
        """Puts together texts that are fenced and filled in already."""

        areas = ""

        def __init__(self, config: Any) -> None:
            super().__init__(config)
            self.template_manager = Templates(config.template_dir)

        def _identify_improvement_areas(self, *args: Any, **kwargs: Any) -> str:
            return self.areas

        def _render_artifacts(self, artifacts: dict[int, str]) -> str:
            title = self.template_manager.get_fragment("artifact_title")
            return "\n\n".join((f"## {title}", *artifacts.values()))

        def _format_evolution_history(
            self, previous: list[str], top: list[str], inspirations: list[str], *args: Any, **kwargs: Any
        ) -> str:
            section = ""
            if inspirations:
                template = self.template_manager.get_template("inspirations_section")
                section = template.format(inspiration_programs="\n\n".join(inspirations))
            return str(
                self.template_manager.get_template("evolution_history").format(
                    previous_attempts="\n\n".join(previous),
                    top_programs="\n\n".join(top),
                    inspirations_section=section,
                )
            )

    return Sampler
