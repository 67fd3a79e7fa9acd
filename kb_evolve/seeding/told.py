"""What became of a run's seeds, from its record."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from fitness.evaluation import Evaluation
from islands.candidate import Evaluated
from islands.run import Run
from islands.store import Store
from kb_evolve.seeding.seed import ORIGIN


@dataclass(frozen=True, slots=True)
class Seeded:
    """What `--seeds` brought into a run."""

    taken: int
    verdicts: dict[str, int]
    """Seeds that were judged, by verdict."""
    left_out: tuple[str, ...]
    """What could not be taken, each with its reason in a sentence."""


def is_seeded(store: Store, run: Run) -> bool:
    """Whether the run's seeds, or that there were none, are on record."""
    return any(event.kind == "seeded" for event in store.events(run.id))


def seeded(store: Store, run: Run, history: Iterable[Evaluated]) -> Seeded | None:
    """What the record says; None for a run that named no seeds."""
    event = next((event for event in store.events(run.id) if event.kind == "seeded"), None)
    if event is None:
        return None
    judged = Counter(str(one.evaluation.verdict) for one in history if ORIGIN in one.candidate.details)
    return Seeded(event.fields["taken"], dict(judged), tuple(event.fields["left_out"]))


def why_no_kernel(judged: Sequence[Evaluation], is_asked: bool) -> str:
    """Why a run has no correct kernel to begin with; `is_asked`: there was no first one but seeds and models' ones."""
    if not judged:
        return "there was no first kernel to judge"
    if is_asked:
        last = judged[-1]
        return (
            f"no seed was right and no model wrote a correct first kernel, {len(judged)} were judged; the last one: "
            f"{last.verdict}, {last.reason}"
        )
    return f"the first kernel is not correct ({judged[0].verdict}): {judged[0].reason}"
