"""How much of a run is left: evaluations, attempts and minutes, all counted from what is stored."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import pairwise

from islands.run import Attempt, Event
from kb_evolve.config import BudgetConfig

END_OF_TIME = datetime.max.replace(tzinfo=UTC)


@dataclass(slots=True)
class Budget:
    """Counts what a run has used against its limits.

    One evaluation is one program that was judged for this run: the seed counts once, however many
    islands it starts; a program whose evaluation was already stored counts nothing.
    """

    limits: BudgetConfig
    evaluations: int = 0
    attempts: int = 0
    earlier_s: float = 0.0
    """Wall seconds of the run's earlier parts."""
    started_s: float = field(default_factory=time.monotonic)

    @property
    def elapsed_s(self) -> float:
        """Wall seconds of the run, earlier parts included."""
        return self.earlier_s + time.monotonic() - self.started_s

    def exhausted(self, in_flight: int = 0) -> str:
        """Which limit forbids one more proposal, in words; empty while there is room.

        `in_flight` evaluations are asked for and not yet told.
        """
        limits = self.limits
        if limits.evaluations is not None and self.evaluations + in_flight >= limits.evaluations:
            return f"the budget of {limits.evaluations} evaluation{'s' * (limits.evaluations != 1)} is used"
        if limits.attempts is not None and self.attempts >= limits.attempts:
            return f"the budget of {limits.attempts} attempt{'s' * (limits.attempts != 1)} is used"
        if self.is_time_up():
            return f"the budget of {limits.minutes:g} minute{'s' * (limits.minutes != 1)} is used"
        return ""

    def is_time_up(self) -> bool:
        """Whether the limit of minutes is reached."""
        return self.limits.minutes is not None and self.elapsed_s >= 60 * self.limits.minutes

    def left(self) -> bool:
        """Whether one more proposal may be asked for when nothing is in flight."""
        return not self.exhausted()

    def eta_s(self) -> float | None:
        """Seconds until the first limit at the run's average pace; None before there is a pace."""
        guesses: list[float] = []
        elapsed_s = self.elapsed_s
        if self.limits.minutes is not None:
            guesses.append(60 * self.limits.minutes - elapsed_s)
        for limit, used in (
            (self.limits.evaluations, self.evaluations),
            (self.limits.attempts, self.attempts),
        ):
            if limit is not None and used > 1:
                guesses.append(elapsed_s / used * (limit - used))
        return max(min(guesses), 0.0) if guesses else None


def earlier_seconds(events: Iterable[Event], attempts: Iterable[Attempt]) -> float:
    """Wall seconds of a run's earlier parts: each from its `started` event to the last row it wrote.

    A killed part has no `stopped` event; its attempts say until when it lived.
    """
    events = list(events)
    moments = [datetime.fromisoformat(event.at) for event in events]
    for attempt in attempts:
        moments += [datetime.fromisoformat(at) for at in (attempt.opened_at, attempt.closed_at) if at]
    starts = [datetime.fromisoformat(event.at) for event in events if event.kind == "started"]
    if not starts:
        return 0.0
    total_s = 0.0
    for start, following in pairwise([*starts, END_OF_TIME]):
        inside = [at for at in moments if start <= at < following]
        total_s += (max(inside) - start).total_seconds()
    return total_s
