"""Who is best, for everybody who shows it: `run`, `runs`, `top`, `show`, `report` and `export` ask here.

A run's best is its elite by the record of its duels (islands/bouts.py), never the luckiest single measurement.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from islands.bouts import ELITE, standings
from islands.candidate import Evaluated
from islands.queries import front, lineage, record, records
from islands.store import Store


def standing(store: Store, run_id: str) -> list[Evaluated]:
    """A run's history with the estimates that count now; the elite and former ones are marked."""
    return standings(store.history(run_id), store.events(run_id))


def stream(store: Store, run_id: str) -> Iterator[Evaluated]:
    """The same as it is read: a page in memory at a time."""
    known = record(store, run_id)
    return map(known.of, store.stream(run_id))


def best_of(store: Store, run_id: str) -> Evaluated | None:
    """The elite of a run; None while no candidate is correct."""
    known = record(store, run_id)
    elite = store.evaluated(known.elite_id) if known.elite_id else None
    return known.of(elite) if elite is not None else None


def bests(store: Store, run_ids: Sequence[str]) -> dict[str, Evaluated | None]:
    """The elites of several runs by run id, read together."""
    known = records(store, run_ids)
    told = {one.candidate.id: one for one in store.told_of([each.elite_id for each in known.values() if each.elite_id])}
    return {run_id: each.of(told[each.elite_id]) if each.elite_id else None for run_id, each in known.items()}


def finalists(store: Store, run_id: str) -> list[Evaluated]:
    """A run's Pareto front in the order told, and its elite where the front lacks it; nothing while none is correct.

    Whoever looks for elite and front in these (archive.pareto) finds those of the whole history.
    """
    known = record(store, run_id)
    if not known.elite_id:
        return []
    ids = list(dict.fromkeys([*front(store, run_id, known), known.elite_id]))
    told = {one.candidate.id: known.of(one) for one in store.told_of(ids)}
    return [told[one] for one in ids]


def line_of(store: Store, run_id: str, candidate_id: str | None = None) -> list[Evaluated]:
    """A candidate's told ancestors through first parents, oldest first, itself last, with what counts of them now.

    Of the elite where none is named: empty while no candidate is correct.
    """
    known = record(store, run_id)
    return [known.of(one) for one in lineage(store, known.elite_id if candidate_id is None else candidate_id)]


def is_elite(evaluated: Evaluated) -> bool:
    """Whether it was marked as the elite of its run."""
    return ELITE in evaluated.evaluation.features


def top(store: Store, problem_id: str | None, limit: int) -> list[Evaluated]:
    """The elites of the runs, the fastest first, then the other correct candidates, the fastest first.

    With `problem_id`, of that problem. What is no elite may show a higher figure: nobody knows if it is more than luck.
    """
    runs = store.runs()
    wanted = {run.problem_sha256 for run in runs if problem_id in (None, run.problem_id)}
    known = records(store, [run.id for run in runs if run.problem_sha256 in wanted])
    elites = [known[_run_id(one)].of(one) for one in store.told_of([each.elite_id for each in known.values()])]
    found = store.top(problem_id, limit + len(elites))
    others = [known[_run_id(one)].of(one) for one in found]
    others = [one for one in others if one.evaluation.is_correct and not is_elite(one)]
    return [*sorted(elites, key=_slowness), *sorted(others, key=_slowness)][:limit]


def _run_id(evaluated: Evaluated) -> str:
    return evaluated.candidate.id.rpartition("-")[0]


def _slowness(evaluated: Evaluated) -> float:
    return -(evaluated.evaluation.speedup or 0.0)
