"""The parts of a prompt that a ticket fills, as fenced items that may be left out one by one."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from random import Random

from fitness.evaluation import Verdict
from islands.candidate import Evaluated, Ticket
from mutators.brief import Brief, ms
from mutators.fence import Fence
from mutators.figures import summary

MOST_ELITES, MOST_FAILURES, MOST_SIBLINGS, MOST_INSIGHTS = 3, 8, 16, 5
SOURCE_LIMIT = 1 << 20
"""Characters; a source is shown whole or not at all, because edits must find its text."""
ELITE_LIMIT = 40_000
LOG_LIMIT, REASON_LIMIT, RATIONALE_LIMIT, INSIGHT_LIMIT = 3_000, 600, 240, 300
LEAST_REASON = 120
"""Older failures get less room, down to this: each half of the one before."""
NOT_AT_FAULT = (Verdict.CORRECT, Verdict.VERIFIED, Verdict.NO_VERDICT)
PROFILE_LISTS = ("kernel_names", "kernel_us", "kernel_registers", "kernel_shared_bytes", "kernel_threads",
                 "kernel_blocks", "kernel_occupancy", "operator_names", "operator_us")  # fmt: skip


@dataclass(frozen=True, slots=True)
class Section:
    """One part of a prompt; `items` in the order in which they are kept."""

    name: str
    items: tuple[str, ...]


def shown_name(one: Evaluated) -> str:
    """`#31`: a candidate by its number, because an id holds a name that somebody chose."""
    return f"#{one.candidate.number}"


def failed_program(ticket: Ticket) -> Evaluated | None:
    """What `repair` repairs: the ticket's failed program, its parent if that failed, or the last failed relative."""
    if ticket.failed is not None:
        return ticket.failed
    return next((one for one in (ticket.parent, *reversed(ticket.lineage)) if _is_failed(one)), None)


def second_parent(ticket: Ticket) -> Evaluated | None:
    """What `combine` combines the parent with: an inspiration by lot, of another structure where there is one."""
    others = [one for one in ticket.inspirations if one.candidate.source != ticket.parent.candidate.source]
    own = _form(ticket.parent.candidate.source)
    others = [one for one in others if _form(one.candidate.source) != own] or others
    return Random(f"{ticket.seed}:second parent").choice(others) if others else None


def foreign_program(ticket: Ticket, backend: str) -> Evaluated | None:
    """What `translate` translates: the first program shown that is not written for `backend`."""
    shown = (ticket.parent, *ticket.inspirations, *ticket.lineage)
    return next((one for one in shown if one.candidate.backend != backend), None)


def said_about(one: Evaluated, fence: Fence, limit: int) -> str:
    """The judge's sentence, labels and log of a program that failed, fenced; of one that did not, its labels."""
    evaluation = one.evaluation
    lines = [f"labels: {fence.line(', '.join(evaluation.labels[:20]), REASON_LIMIT)}"] if evaluation.labels else []
    if _is_failed(one):
        lines = [f"reason: {fence.line(evaluation.reason, 2 * REASON_LIMIT)}", *lines]
        if evaluation.log:
            lines.append(f"log:\n{without_traceback(evaluation.log)}")
    return fence.block("judge", "\n".join(lines), limit) if lines else ""


def without_traceback(log: str) -> str:
    """A build's log without the builder's own traceback, which stands before the compiler's lines."""
    if not log.startswith("Traceback"):
        return log
    lines = log.split("\n")
    first = next((number for number, line in enumerate(lines) if ": error" in line or "error:" in line.lower()), 0)
    return "\n".join(lines[first:])


def profile(one: Evaluated, fence: Fence) -> Section:
    """What the build and the profile say in words; all of it comes from the candidate's own processes."""
    items = []
    lists = {name: one.evaluation.features.get(name) for name in PROFILE_LISTS}
    told = [f"{name}: {json.dumps(value)[:400]}" for name, value in lists.items() if isinstance(value, list) and value]
    if told:
        items.append(fence.block("profile, the longest first", "\n".join(told), LOG_LIMIT))
    if one.evaluation.log and not _is_failed(one):
        items.append(fence.block("log", one.evaluation.log, LOG_LIMIT))
    return Section("profile", tuple(items))


def failures(ticket: Ticket, fence: Fence, but: Sequence[Evaluated]) -> Section:
    """Failed relatives in a line each, the latest first; older ones in fewer words."""
    lines = []
    for age, one in enumerate(failed_relatives(ticket, but)):
        room = max(LEAST_REASON, REASON_LIMIT >> age)
        reason = fence.line(one.evaluation.reason, room)
        lines.append(f"{shown_name(one)} {one.evaluation.verdict}: {reason}{_tried(one, fence, room)}")
    return Section("failures", tuple(lines))


def failed_relatives(ticket: Ticket, but: Sequence[Evaluated]) -> list[Evaluated]:
    """The latest failed relatives with different reasons; numbers make no difference."""
    found: list[Evaluated] = []
    seen: set[tuple[str, str]] = set()
    for one in _others(reversed(ticket.lineage), but):
        key = (one.evaluation.verdict, re.sub(r"\d+", "#", one.evaluation.reason[:REASON_LIMIT]))
        if _is_failed(one) and key not in seen and len(found) < MOST_FAILURES:
            seen.add(key)
            found.append(one)
    return found


def siblings(ticket: Ticket, fence: Fence, but: Sequence[Evaluated]) -> Section:
    """Timed relatives in a line each: what was changed and what it gave."""
    lines = []
    for one in timed_relatives(ticket, but):
        gave = f" ({found})" if (found := gain(one, ticket)) else ""
        lines.append(
            f"{shown_name(one)} {ms(one.evaluation.kernel_ms or 0.0)}{gave}{_tried(one, fence, RATIONALE_LIMIT)}"
        )
    return Section("siblings", tuple(lines))


def timed_relatives(ticket: Ticket, but: Sequence[Evaluated]) -> list[Evaluated]:
    """Relatives with a time: the children of the programs shown first, then the latest."""
    parents = {one.candidate.id for one in but}
    timed = [one for one in _others(reversed(ticket.lineage), but) if one.evaluation.kernel_ms is not None]
    return sorted(timed, key=lambda one: parents.isdisjoint(one.candidate.parent_ids))[:MOST_SIBLINGS]


def gain(one: Evaluated, ticket: Ticket) -> str:
    """`0.93x of what it changed`: its time over its first known parent's; empty where neither is known."""
    before = next((known for key in one.candidate.parent_ids if (known := _time_of(key, ticket))), None)
    own = one.evaluation.kernel_ms
    return f"{own / before:.3g}x of what it changed" if own and before else ""


def insights(texts: Sequence[str], fence: Fence) -> Section:
    """Lessons, one line each, in the order given."""
    return Section("insights", tuple(f"- {fence.line(text, INSIGHT_LIMIT)}" for text in texts[:MOST_INSIGHTS]))


def elites(ticket: Ticket, fence: Fence, brief: Brief, but: Sequence[Evaluated]) -> Section:
    """The best programs of different structures with their sources."""
    return Section(
        "elites",
        tuple(
            f"{shown_name(one)}: {summary(one.evaluation, brief)}\n\n{program(one, fence)}"
            for one in distinct_elites(ticket, but)
        ),
    )


def distinct_elites(ticket: Ticket, but: Sequence[Evaluated]) -> list[Evaluated]:
    """The best inspirations that differ in more than tunables; sources beyond ELITE_LIMIT teach too little."""
    found: list[Evaluated] = []
    seen = {_form(one.candidate.source) for one in but}
    for one in _others(ticket.inspirations, but):
        source = one.candidate.source
        if len(found) == MOST_ELITES:
            break
        if len(source) > ELITE_LIMIT or not one.evaluation.is_correct or (form := _form(source)) in seen:
            continue
        seen.add(form)
        found.append(one)
    return found


def known_approaches(ticket: Ticket, fence: Fence, brief: Brief) -> Section:
    """The parent and the inspirations in a line each, without sources: what a new first program is to differ from."""
    lines = []
    for one in (ticket.parent, *ticket.inspirations)[: MOST_ELITES + 1]:
        about = one.candidate.rationale or one.candidate.source.lstrip("\n\"' ").split("\n", 1)[0]
        lines.append(f"{shown_name(one)} {summary(one.evaluation, brief)}: {fence.line(about, RATIONALE_LIMIT)}")
    return Section("elites", (fence.block("programs that exist", "\n".join(lines), SOURCE_LIMIT),))


def program(one: Evaluated, fence: Fence) -> str:
    """A candidate's source, whole and fenced."""
    return fence.block(f"program {shown_name(one)}", one.candidate.source, SOURCE_LIMIT)


def _others(members: Iterable[Evaluated], but: Sequence[Evaluated]) -> Iterator[Evaluated]:
    ids = {one.candidate.id for one in but}
    return (one for one in members if one.candidate.id not in ids)


def _form(source: str) -> str:
    """A source without its tunables' lines: 30 times faster than `tunables.structure`, and as good for comparing."""
    return "\n".join(line for line in source.split("\n") if "tune:" not in line)


def _time_of(candidate_id: str, ticket: Ticket) -> float | None:
    members = (ticket.parent, *ticket.lineage)
    return next((one.evaluation.kernel_ms for one in members if one.candidate.id == candidate_id), None)


def _is_failed(one: Evaluated) -> bool:
    return one.evaluation.verdict not in NOT_AT_FAULT


def _tried(one: Evaluated, fence: Fence, room: int) -> str:
    mutator = fence.line(one.candidate.mutator, 40)
    rationale = fence.line(one.candidate.rationale, min(room, RATIONALE_LIMIT))
    return f" | {mutator}: {rationale}" if rationale else f" | {mutator}"
