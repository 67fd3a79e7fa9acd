"""Who is best, for everybody who shows it: `run`, `runs`, `top`, `show`, `report` and `export` ask here.

A run's best is its elite by the record of its duels (islands/bouts.py), never the luckiest single measurement.
"""

from __future__ import annotations

from islands.bouts import ELITE, elite_of, standings
from islands.candidate import Evaluated
from islands.store import Store


def standing(store: Store, run_id: str) -> list[Evaluated]:
    """A run's history with the estimates that count now; the elite and former ones are marked."""
    return standings(store.history(run_id), store.events(run_id))


def best_of(store: Store, run_id: str) -> Evaluated | None:
    """The elite of a run; None while no candidate is correct."""
    return elite_of(store.history(run_id), store.events(run_id))


def is_elite(evaluated: Evaluated) -> bool:
    """Whether it was marked as the elite of its run."""
    return ELITE in evaluated.evaluation.features


def top(store: Store, problem_id: str | None, limit: int) -> list[Evaluated]:
    """The elites of the runs, the fastest first, then the other correct candidates, the fastest first.

    With `problem_id`, of that problem. What is no elite may show a higher figure: nobody knows if it is more than luck.
    """
    runs = store.runs()
    wanted = {run.problem_sha256 for run in runs if problem_id in (None, run.problem_id)}
    standings_of = [standing(store, run.id) for run in runs if run.problem_sha256 in wanted]
    known = {one.candidate.id: one for told in standings_of for one in told if one.evaluation.is_correct}
    elites = [one for one in known.values() if is_elite(one)]
    found = store.top(problem_id, limit + len(elites))
    others = [known[one.candidate.id] for one in found if one.candidate.id in known]
    others = [one for one in others if not is_elite(one)]
    return [*sorted(elites, key=_slowness), *sorted(others, key=_slowness)][:limit]


def _slowness(evaluated: Evaluated) -> float:
    return -(evaluated.evaluation.speedup or 0.0)
