"""One candidate as text and as JSON: what `kb-evolve show` prints."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from kb_evolve.commands.evaluate import evaluation_text
from kb_evolve.commands.shared import change_text, evaluated_json, lineage_text
from kb_evolve.commands.tables import exact_or_spelled, screen_width, wrapped
from kb_evolve.live import duration_text
from kb_evolve.report.text import one_line, visible

if TYPE_CHECKING:
    from islands.candidate import Candidate, Evaluated
    from islands.queries import Times

STEPS = 12
"""Of a lineage that are listed; earlier ones are counted."""
DIFF_LINES = 40
"""Of a diff that are shown with the figures."""
TEXT_LIMIT = 20_000
"""Characters of a text with the figures; the flags print all."""


@dataclass(frozen=True, slots=True)
class Shown:
    """A candidate and what is known of it."""

    candidate: Candidate
    told: Evaluated | None
    """None while it is not judged."""
    lineage: tuple[Evaluated, ...]
    """From the seed; itself last, if it was judged."""
    run: str
    times: Times | None

    @property
    def parent(self) -> Evaluated | None:
        """Its first parent, if that was judged."""
        ids = self.candidate.parent_ids[:1]
        return next((one for one in self.lineage if one.candidate.id in ids), None)


def shown_json(shown: Shown) -> dict[str, Any]:
    """The machine's version of `shown_text`, with the whole source."""
    candidate, told = shown.candidate, shown.told
    known = evaluated_json(told, shown.run) if told else {"id": candidate.id, "run": shown.run, "verdict": None}
    steps = [evaluated_json(entry, shown.run) for entry in shown.lineage]
    times = shown.times
    return {
        **known,
        "opened_at": times.opened_at if times else None,
        "added_at": times.added_at if times else None,
        "told_at": times.told_at if times else None,
        "details": candidate.details,
        "source": candidate.source,
        "lineage": steps,
    }


def shown_text(shown: Shown) -> str:
    """Who made it, what the judge found, when, from what, and what it changed."""
    candidate = shown.candidate
    lines = candidate.source.count("\n")
    head = f"{candidate.id} of run {shown.run}: island {candidate.island}, generation {candidate.generation}"
    parts = [
        one_line(head),
        wrapped("", one_line(change_text(candidate), 400), screen_width()),
        *_place(shown.told),
        visible(evaluation_text(shown.told.evaluation, screen_width()), TEXT_LIMIT) if shown.told else "not judged yet",
        *_times(shown.times),
        "lineage:",
        *_lineage(shown.lineage),
        *_change(shown),
        "",
        f"source: {lines} lines; --source, --diff, --log or --prompt prints that text whole",
    ]
    return "\n".join(parts)


def part_text(shown: Shown, part: str) -> str:
    """`source`, `diff` or `log` whole."""
    if part == "source":
        return exact_or_spelled(shown.candidate.source)
    if part == "diff":
        return "\n".join(_diff(shown)) or f"{shown.candidate.id} has no judged parent to compare with."
    log = shown.told.evaluation.log if shown.told else ""
    return exact_or_spelled(log) or f"No log of {shown.candidate.id} is kept."


def _place(told: Evaluated | None) -> list[str]:
    """Whether it is or was the elite of its run."""
    from islands.bouts import ELITE, FALLEN

    features = told.evaluation.features if told else {}
    lines = ["the elite of its run"] if ELITE in features else []
    fallen = [f"was the elite of its run until {one_line(features[FALLEN], 400)}"] if FALLEN in features else []
    return [*lines, *fallen]


def _times(times: Times | None) -> list[str]:
    if times is None:
        return []
    asked = f"asked {_clock(times.opened_at)}, " if times.opened_at else ""
    told = f", told {_clock(times.told_at)}" if times.told_at else ""
    begun = times.opened_at or times.added_at
    took = f" ({duration_text(_seconds(begun, times.told_at))} in all)" if times.told_at else ""
    usd = times.usage.get("cost_usd")
    money = f", ${usd:.4f}" if usd else ""
    text = f"{asked}recorded {_clock(times.added_at)}{told} UTC{took}{money}"
    return [wrapped("times        ", text, screen_width())]


def _clock(at: str) -> str:
    return at[:19].replace("T", " ")


def _seconds(begun: str, ended: str) -> float:
    return (datetime.fromisoformat(ended) - datetime.fromisoformat(begun)).total_seconds()


def _lineage(steps: tuple[Evaluated, ...]) -> list[str]:
    hidden = len(steps) - STEPS
    earlier = [f"  … {hidden} earlier steps, from {steps[0].candidate.id} on"] if hidden > 0 else []
    return [*earlier, lineage_text(steps[-STEPS:], screen_width())] if steps else []


def _change(shown: Shown) -> list[str]:
    lines = _diff(shown)
    if not lines:
        return []
    assert shown.parent is not None
    rest = len(lines) - DIFF_LINES
    more = [f"… {rest} more lines: --diff prints all"] if rest > 0 else []
    return [f"changed in {shown.parent.candidate.id}:", *(f"  {line}" for line in lines[:DIFF_LINES]), *more]


def _diff(shown: Shown) -> list[str]:
    """The change to its first parent; nothing is hidden in it, whatever the sources hold."""
    from kb_evolve.report.diff import unified

    if shown.parent is None:
        return []
    return [line.text for line in unified(shown.parent.candidate.source, shown.candidate.source)]
