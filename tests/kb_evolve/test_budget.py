"""A budget is counted from what is stored, and says in words which limit was reached."""

from __future__ import annotations

from islands.run import Attempt, Event
from kb_evolve.budget import Budget, earlier_seconds
from kb_evolve.config import BudgetConfig


def event(kind: str, at: str) -> Event:
    return Event("r", kind, {}, f"2026-01-01T00:{at}+00:00")


def attempt(number: int, opened: str, closed: str | None) -> Attempt:
    closed_at = None if closed is None else f"2026-01-01T00:{closed}+00:00"
    return Attempt("r", number, 0, "tune", (), f"2026-01-01T00:{opened}+00:00", closed_at=closed_at)


def test_evaluations_in_flight_count_against_the_limit() -> None:
    budget = Budget(BudgetConfig(evaluations=10), evaluations=7)
    assert not budget.exhausted(in_flight=2)
    assert "10 evaluations" in budget.exhausted(in_flight=3)
    assert budget.left()


def test_the_limit_that_is_reached_first_is_named() -> None:
    assert "5 attempts" in Budget(BudgetConfig(evaluations=10, attempts=5), attempts=5).exhausted()
    assert "2 minutes" in Budget(BudgetConfig(minutes=2), earlier_s=120.5).exhausted()
    assert not Budget(BudgetConfig(minutes=2), earlier_s=60.0).exhausted()


def test_a_killed_part_counts_until_the_last_row_that_it_wrote() -> None:
    events = [event("started", "00:00"), event("started", "10:00"), event("stopped", "10:30")]
    attempts = [attempt(4, "01:00", "01:10"), attempt(5, "01:30", None), attempt(6, "10:05", "10:06")]
    assert earlier_seconds(events, attempts) == 90 + 30


def test_a_run_without_earlier_parts_has_used_no_time() -> None:
    assert earlier_seconds([], []) == 0.0


def test_the_estimate_follows_the_limit_that_comes_first() -> None:
    by_pace = Budget(BudgetConfig(evaluations=30), evaluations=10, earlier_s=100.0)
    assert 190 < (by_pace.eta_s() or 0) < 230
    by_clock = Budget(BudgetConfig(evaluations=30, minutes=2), evaluations=10, earlier_s=100.0)
    assert (by_clock.eta_s() or 0) <= 20
    assert Budget(BudgetConfig(evaluations=30)).eta_s() is None
