"""What each operator was asked for and what came of it."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from islands.candidate import Evaluated
from islands.run import Attempt
from kb_evolve.report import series


@dataclass(slots=True)
class Tally:
    """One operator; a seed is an ask of its own."""

    name: str
    asks: int = 0
    proposed: int = 0
    """Asks that gave a candidate."""
    correct: int = 0
    gains: list[float] = field(default_factory=list)
    """Speedup over that of the fastest parent, of candidates whose 95% interval lies above its."""
    cost_usd: float = 0.0

    @property
    def mean_gain(self) -> float | None:
        """Geometric mean of the gains."""
        return math.exp(math.fsum(map(math.log, self.gains)) / len(self.gains)) if self.gains else None


def tallies(history: Sequence[Evaluated], attempts: Sequence[Attempt]) -> list[Tally]:
    """One row for each operator, the one whose gains multiply to the most first."""
    by_id = {each.candidate.id: each for each in history}
    rows: dict[str, Tally] = defaultdict(lambda: Tally(""))
    told = {each.candidate.number for each in history}
    for each in history:
        row = rows[each.candidate.mutator]
        row.asks += 1
        row.proposed += 1
        row.correct += each.evaluation.verdict in series.RIGHT
        gain = series.clear_gain(each, by_id)
        row.gains += [gain] if gain is not None else []
    for attempt in attempts:
        row = rows[attempt.mutator]
        row.cost_usd += float(attempt.usage.get("cost_usd") or 0.0)
        if attempt.number not in told:
            row.asks += 1
            row.proposed += attempt.outcome == "candidate"
    for name, row in rows.items():
        row.name = name or "unnamed"
    return sorted(rows.values(), key=lambda row: (-math.prod(row.gains), -row.correct, row.name))
