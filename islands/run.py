"""The nouns of a run's record: Run, Attempt, Event, Counts."""

from __future__ import annotations

import datetime
import secrets
import string
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

Outcome = Literal["candidate", "refused", "duplicate", "error", "lost"]
"""How an attempt ended; `lost` is work that was in flight when its process died."""

OUTCOMES: tuple[str, ...] = get_args(Outcome)


@dataclass(frozen=True, slots=True)
class Run:
    """One search: its problem, its resolved configuration and where it came from."""

    id: str
    """Eight lower-case letters and digits, see `new_run_id`."""
    name: str
    """What the user calls it; unique in its database."""
    problem_id: str
    problem_sha256: str
    problem_source: str
    backend: str
    device: str
    precision: str
    config: dict[str, Any]
    """The resolved configuration, as JSON values."""
    seed: int
    budget: dict[str, Any]
    git_commit: str
    started_at: str
    """UTC, ISO 8601, see `utc_now`."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One ask and what became of it; `outcome` is None while it is open."""

    run_id: str
    number: int
    island: int
    mutator: str
    parent_ids: tuple[str, ...]
    opened_at: str
    outcome: str | None = None
    reason: str = ""
    rationale: str = ""
    usage: dict[str, Any] = field(default_factory=dict)
    """The fields of the mutator's Usage; empty where nothing was spent."""
    details: dict[str, Any] = field(default_factory=dict)
    closed_at: str | None = None


@dataclass(frozen=True, slots=True)
class Event:
    """Something worth remembering that is neither an attempt nor an evaluation."""

    run_id: str
    kind: str
    fields: dict[str, Any]
    at: str


@dataclass(frozen=True, slots=True)
class Counts:
    """What a run holds, counted by the database."""

    attempts: dict[str, int]
    """Attempts by outcome; those still open are under `open`."""
    verdicts: dict[str, int]
    """Told candidates by verdict."""
    candidates: int
    told: int
    measured: int
    """Evaluations that this run paid for; `told` minus the ones that were already known."""
    prompt_tokens: int
    completion_tokens: int
    cost_usd: float


def new_run_id() -> str:
    """Eight random lower-case letters and digits; the first one is a letter."""
    alphabet = string.ascii_lowercase + string.digits
    return secrets.choice(string.ascii_lowercase) + "".join(secrets.choice(alphabet) for _ in range(7))


def utc_now() -> str:
    """This moment in UTC, ISO 8601 to the millisecond."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")
