"""What a history alone tells: correct candidates, corners, funnel, reasons, front and lineage, as pure folds.

`history` is always the list of `Evaluated` in the order told; evaluation number n is its n-th
member, counted from 1. Nothing here reads a clock, a file or a random number.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from fitness.evaluation import Verdict
from islands.bouts import ELITE, elite_of
from islands.candidate import Evaluated
from islands.elite import TWO_SIDED_95, Gain
from islands.run import Attempt
from kb_evolve.report.text import one_line

History = Sequence[Evaluated]

RIGHT = {Verdict.CORRECT, Verdict.VERIFIED}
"""Right on every draw, timed or not."""
NOT_COMPILED = {Verdict.COMPILE_ERROR}
NOT_RUN = NOT_COMPILED | {Verdict.LOAD_ERROR, Verdict.RUNTIME_ERROR, Verdict.TIMEOUT, Verdict.OUT_OF_MEMORY}


@dataclass(frozen=True, slots=True)
class Point:
    """A correct candidate, placed at the number of its evaluation."""

    number: int
    candidate_id: str
    island: int
    speedup: float
    low: float
    high: float
    kernel_ms: float


@dataclass(frozen=True, slots=True)
class Stage:
    """How many candidates reached a stage of the funnel."""

    name: str
    count: int


@dataclass(frozen=True, slots=True)
class Reason:
    """Failures that differ in numbers only."""

    outcome: str
    """A verdict, or an attempt's outcome where no candidate was judged."""
    example: str
    """The first such reason, as it was given."""
    count: int


@dataclass(frozen=True, slots=True)
class Route:
    """How many extensions of all candidates were built in one way."""

    name: str
    count: int
    reason: str
    """Why the first of them was not built by a quicker route; empty for the routes that are tried first."""


@dataclass(frozen=True, slots=True)
class Step:
    """One member of the best candidate's line of descent."""

    evaluated: Evaluated
    gain: float | None
    """Speedup over the previous step's speedup; None for the first and after a failed parent."""
    is_clear: bool
    """The 95% intervals of this step and the previous one lie apart."""
    parent: Evaluated | None


def correct_points(history: History) -> list[Point]:
    """One point for each correct candidate, in the order told."""
    return [_point(number, each) for number, each in enumerate(history, 1) if each.evaluation.is_correct]


def best_so_far(points: Iterable[Point]) -> list[Point]:
    """The points that are clearly faster than the one before (elite.Gain): the corners of the best-so-far curve."""
    corners: list[Point] = []
    for point in points:
        if not corners or _gain(point, corners[-1]).is_clear:
            corners.append(point)
    return corners


def island_curves(history: History) -> dict[int, list[Point]]:
    """Each island's own best-so-far corners, by island number; islands without a correct candidate lack."""
    points = correct_points(history)
    islands = sorted({point.island for point in points})
    return {island: best_so_far(point for point in points if point.island == island) for island in islands}


def best(history: History) -> Evaluated | None:
    """The elite: the one marked as such (bouts.standings), else who is it by the history alone."""
    marked = next((each for each in history if ELITE in each.evaluation.features), None)
    elite = marked or elite_of(history, ())
    return next((each for each in history if elite and each.candidate.id == elite.candidate.id), None)


def verdict_counts(history: History) -> dict[Verdict, int]:
    """How often each verdict was given, the commonest first; verdicts never given lack."""
    counts = Counter(each.evaluation.verdict for each in history)
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0].value)))


def build_routes(history: History, limit: int = 12) -> list[Route]:
    """How the candidates' extensions were built, the commonest way first; what no route compiled is not among them."""
    counts: Counter[str] = Counter()
    reasons: dict[str, str] = {}
    for each in history:
        counts.update(_texts(each, "build_routes"))
        for said in _texts(each, "build_fallbacks"):
            name, _, reason = said.partition(": ")
            reasons.setdefault(name, reason)
    return [Route(name, count, reasons.get(name, "")) for name, count in counts.most_common(limit)]


def _texts(each: Evaluated, feature: str) -> list[str]:
    """A feature that a build has told; empty where it is no list."""
    said = each.evaluation.features.get(feature)
    return [text for text in said if isinstance(text, str)] if isinstance(said, list) else []


def funnel(history: History, attempts: Sequence[Attempt]) -> list[Stage]:
    """Asked, proposed, judged, compiled, ran, correct, faster (95% interval above 1), in this order.

    Seeds are candidates without an ask of their own, so a candidate counts as asked and proposed even
    where no attempt has its number.
    """
    told = {each.candidate.number for each in history}
    asked = told | {attempt.number for attempt in attempts}
    proposed = told | {attempt.number for attempt in attempts if attempt.outcome == "candidate"}
    verdicts = [each.evaluation.verdict for each in history]
    faster = [each for each in history if each.evaluation.speedup_ci and each.evaluation.speedup_ci[0] > 1]
    return [
        Stage("asked", len(asked)),
        Stage("proposed", len(proposed)),
        Stage("judged", len(history)),
        Stage("compiled", sum(verdict not in NOT_COMPILED for verdict in verdicts)),
        Stage("ran", sum(verdict not in NOT_RUN for verdict in verdicts)),
        Stage("correct", sum(verdict in RIGHT for verdict in verdicts)),
        Stage("faster", len(faster)),
    ]


def failure_reasons(history: History, attempts: Sequence[Attempt], limit: int = 12) -> list[Reason]:
    """The commonest reasons why an ask gave no correct candidate, reasons equal up to numbers as one."""
    found: dict[tuple[str, str], tuple[str, int]] = {}
    for outcome, reason in _failures(history, attempts):
        example = one_line(reason, 300)
        key = (outcome, re.sub(r"\d+(\.\d+)?(e[+-]?\d+)?", "#", example))
        first, count = found.get(key, (example, 0))
        found[key] = (first, count + 1)
    ranked = sorted(found.items(), key=lambda item: -item[1][1])
    return [Reason(key[0], example, count) for key, (example, count) in ranked[:limit]]


def pareto_front(history: History) -> list[Evaluated]:
    """The correct candidates that none beats in time, memory and error together, the fastest first.

    Of candidates with the same source the fastest stands for all.
    """
    from islands.archive import pareto

    front = pareto([each for each in history if each.evaluation.is_correct])
    distinct: dict[str, Evaluated] = {}
    for each in sorted(front, key=lambda each: each.evaluation.kernel_ms or math.inf):
        distinct.setdefault(each.candidate.source_sha256, each)
    return list(distinct.values())


def lineage(history: History) -> list[Step]:
    """From the seed to the best candidate through each one's first parent; empty where none is correct.

    A parent that the history lacks (an imported one, say) ends the chain.
    """
    by_id: Mapping[str, Evaluated] = {each.candidate.id: each for each in history}
    chain: list[Evaluated] = []
    seen: set[str] = set()
    current = best(history)
    while current is not None and current.candidate.id not in seen:
        chain.append(current)
        seen.add(current.candidate.id)
        parents = current.candidate.parent_ids
        current = by_id.get(parents[0]) if parents else None
    chain.reverse()
    return [_step(chain[index - 1] if index else None, each) for index, each in enumerate(chain)]


def distinct_programs(history: History) -> int:
    """How many different sources were told; several islands may start from one."""
    return len({each.evaluation.source_sha256 for each in history})


def clear_gain(each: Evaluated, by_id: Mapping[str, Evaluated]) -> float | None:
    """Speedup over the fastest correct parent's where the 95% interval lies above its; else None."""
    found = [by_id[parent] for parent in each.candidate.parent_ids if parent in by_id]
    parents = [parent for parent in found if parent.evaluation.is_correct]
    if not parents or not each.evaluation.is_correct:
        return None
    parent = max(parents, key=_speedup)
    gain = _speedup(each) / _speedup(parent)
    return gain if gain > 1 and _are_apart(parent, each) else None


def _gain(point: Point, before: Point) -> Gain:
    errors = [math.log(one.high / one.low) / (2 * TWO_SIDED_95) for one in (point, before)]
    return Gain(math.log(point.speedup / before.speedup), math.hypot(*errors))


def _point(number: int, each: Evaluated) -> Point:
    evaluation = each.evaluation
    assert evaluation.speedup is not None and evaluation.speedup_ci is not None and evaluation.kernel_ms is not None
    low, high = evaluation.speedup_ci
    candidate = each.candidate
    return Point(number, candidate.id, candidate.island, evaluation.speedup, low, high, evaluation.kernel_ms)


def _failures(history: History, attempts: Sequence[Attempt]) -> Iterable[tuple[str, str]]:
    """(verdict or outcome, reason) of all that failed, in the order of their tickets' recording."""
    for each in history:
        if each.evaluation.verdict not in RIGHT:
            yield each.evaluation.verdict.value, each.evaluation.reason
    for attempt in attempts:
        if attempt.outcome not in (None, "", "candidate"):
            yield str(attempt.outcome), attempt.reason


def _step(parent: Evaluated | None, each: Evaluated) -> Step:
    if parent is None or not (parent.evaluation.is_correct and each.evaluation.is_correct):
        return Step(each, None, is_clear=False, parent=parent)
    return Step(each, _speedup(each) / _speedup(parent), _are_apart(parent, each), parent)


def _are_apart(one: Evaluated, other: Evaluated) -> bool:
    """Whether two correct candidates' 95% intervals share no point."""
    first, second = one.evaluation.speedup_ci, other.evaluation.speedup_ci
    assert first is not None and second is not None
    return first[0] > second[1] or second[0] > first[1]


def _speedup(each: Evaluated) -> float:
    """The speedup of a correct candidate, 0 for any other."""
    return each.evaluation.speedup or 0.0
