"""Insight memory: short lessons of what was tried, on what bottleneck, and what it gave.

A lesson is written from measurements: the bottleneck is the parent's, the gain is the child's time against it. Only
what was tried is in the proposer's own words, cleaned and capped; it is untrusted, and prompts put it in a fence.
Lessons are shown on plateaus only, and only those of parents with a similar bottleneck: a search that still finds
improvements by itself is led astray by what once worked elsewhere.
"""

from __future__ import annotations

import dataclasses
import math
import operator
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from fitness.evaluation import Evaluation, Verdict
from islands.candidate import Evaluated, Ticket
from mutators.brief import Brief, number
from mutators.fence import clean
from mutators.figures import LOW_OCCUPANCY
from mutators.proposal import ProposalError
from problems.roofline import find_peaks

MOST_WHAT = 160
"""Characters of a lesson's own words."""
UNTIMED = (Verdict.NO_VERDICT, Verdict.VERIFIED)
"""Verdicts that teach nothing about a program."""
HALF_SPILL_BYTES = 32.0
"""Bytes spilled per thread that count as half of the worst."""
SAME_WORDS = 0.6
"""Common share of the words of two lessons from which on they are one lesson told twice."""
GROUP = 64
"""Lessons kept of each bottleneck and sign, those that say most: recalling takes under 2 ms."""
HELD = 256
"""Tickets whose lessons are held until they are asked for."""


PARTS = ("memory", "compute", "latency", "launch", "spill")


@dataclass(frozen=True, slots=True)
class Bottleneck:
    """What bounds a program, each part in 0..1; all 0 where the figures tell nothing."""

    memory: float = 0.0
    """Share of the memory's bandwidth in use."""
    compute: float = 0.0
    """Share of the arithmetic peak in use."""
    latency: float = 0.0
    """The share of the time that neither of the two nor launching explains."""
    launch: float = 0.0
    """The share of the time in which the device waits for the host; half of it is put down to several launches."""
    spill: float = 0.0

    @property
    def name(self) -> str:
        """The largest part, or `unknown`."""
        largest = max(self.parts)
        return PARTS[self.parts.index(largest)] if largest > 0 else "unknown"

    @property
    def parts(self) -> tuple[float, ...]:
        """Its parts in the order of PARTS."""
        return self.memory, self.compute, self.latency, self.launch, self.spill

    def similarity(self, other: Bottleneck) -> float:
        """1 for equal ones, 0 where a part differs as much as it can, and between known and unknown."""
        mine, others = self.parts, other.parts
        if any(mine) != any(others):
            return 0.0
        return 1.0 - max(map(abs, map(operator.sub, mine, others)))


def bottleneck_of(evaluation: Evaluation, brief: Brief) -> Bottleneck:
    """What bounds a program, from what was measured of it: hardware counters before rates before nothing.

    On a CPU there are rates and torch operators only. Failed programs have no bottleneck.
    """
    if evaluation.kernel_ms is None:
        return Bottleneck()
    features = evaluation.features
    memory_peak, flop_peak = _peaks(brief)
    memory = _used(features, "dram_percent", "achieved_bytes_per_s", memory_peak)
    compute = _used(features, "sm_percent", "achieved_flop_per_s", flop_peak)
    launch = _launch(evaluation)
    latency = 0.0
    if memory is not None or compute is not None:
        latency = 1.0 - max(memory or 0.0, compute or 0.0, launch)
    occupancy = number(features, "occupancy")
    if occupancy is not None and occupancy < LOW_OCCUPANCY:
        latency = max(latency, 0.5)
    spilled = number(features, "spill_bytes") or 0.0
    return Bottleneck(memory or 0.0, compute or 0.0, latency, launch, spilled / (spilled + HALF_SPILL_BYTES))


def _peaks(brief: Brief) -> tuple[float | None, float | None]:
    """Bandwidth and arithmetic rate of the device: as measured, else as its data sheet says."""
    sheet = find_peaks(brief.device_name)
    memory, flop = brief.fact("bytes_per_s"), brief.fact("flop_per_s")
    if sheet is None:
        return memory, flop
    return memory or sheet.bytes_per_s, flop or sheet.flop_per_s.get(brief.precision, sheet.flop_per_s["fp32"])


def _used(features: dict[str, Any], percent_name: str, rate_name: str, peak: float | None) -> float | None:
    """The used share of a limit in 0..1: as counted by the hardware, else the rate over the peak."""
    percent, rate = number(features, percent_name), number(features, rate_name)
    if percent is not None:
        return min(1.0, percent / 100)
    return min(1.0, rate / peak) if rate is not None and peak else None


def _launch(evaluation: Evaluation) -> float:
    """The share of the time that goes into launching, or into the passes of single operators."""
    busy_us = number(evaluation.features, "device_us_per_call")
    launches = number(evaluation.features, "launches_per_call") or number(evaluation.features, "operators_per_call")
    several = 0.5 * (1.0 - 1.0 / launches) if launches and launches > 1 else 0.0
    if not busy_us or evaluation.kernel_ms is None:
        return several
    return max(several, 1.0 - min(1.0, busy_us / (1e3 * evaluation.kernel_ms)))


@dataclass(frozen=True, slots=True)
class Insight:
    """One lesson."""

    what: str
    """What was tried, in its proposer's words: one line of at most MOST_WHAT characters, untrusted."""
    bottleneck: str
    """Of the parent: `memory`, `compute`, `latency`, `launch`, `spill` or `unknown`."""
    vector: Bottleneck
    gain: float
    """log(parent's time / child's time); below 0 for a slower child, 0 for a failed one."""
    outcome: str
    """The child's verdict."""
    candidate_id: str
    problem_id: str
    backend: str

    @property
    def weight(self) -> float:
        """How much it says: a slower child says half as much as one that is faster by as much, a failure little."""
        if self.outcome != Verdict.CORRECT:
            return 0.1
        return self.gain if self.gain > 0 else min(1.0, -self.gain) / 2

    def __str__(self) -> str:
        """The lesson in one line, as prompts show it."""
        where = "" if self.bottleneck == "unknown" else f"{self.bottleneck}-bound parent: "
        return f"{where}{self.what} -> {self.effect}"

    @property
    def effect(self) -> str:
        """Such as `1.35x faster`."""
        if self.outcome != Verdict.CORRECT:
            return f"failed: {self.outcome}"
        return f"{math.exp(abs(self.gain)):.2f}x {'faster' if self.gain > 0 else 'slower'}"

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, document: Any) -> Insight:
        """The lesson that `to_json` wrote; ProposalError for anything else. Its words are cleaned again."""
        try:
            vector = Bottleneck(**{name: _share(value) for name, value in document["vector"].items()})
            words = {name: str(document[name]) for name in ("candidate_id", "problem_id", "backend")}
            return cls(
                what=said(str(document["what"])),
                bottleneck=vector.name,
                vector=vector,
                gain=_finite(document["gain"]),
                outcome=Verdict(document["outcome"]),
                **words,
            )
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ProposalError(
                f"a stored lesson is not of the form that Insight.to_json writes ({type(error).__name__}: {error}); "
                f"it begins {str(document)[:80]!r}"
            ) from error


def _finite(value: Any) -> float:
    number_found = float(value)
    if not math.isfinite(number_found):
        raise ValueError(f"expected a finite number, found {value!r}")
    return number_found


def _share(value: Any) -> float:
    share = _finite(value)
    if not 0 <= share <= 1:
        raise ValueError(f"expected a share in 0..1, found {value!r}")
    return share


def said(text: str) -> str:
    """Untrusted words in one line of at most MOST_WHAT characters, nothing unseen among them."""
    line = " ".join(clean(text[: 8 * MOST_WHAT]).split())
    return line if len(line) <= MOST_WHAT else line[: MOST_WHAT - 3].rstrip() + "..."


def insight_of(evaluated: Evaluated, parent: Evaluation | None, brief: Brief, least_gain: float) -> Insight | None:
    """The lesson of one evaluated child; None where there is none to learn.

    That is where the parent has no time, nothing was said about the change, the judge could not say, or the two
    times differ by less than `least_gain`.
    """
    candidate, child = evaluated.candidate, evaluated.evaluation
    what = said(candidate.rationale)
    if parent is None or parent.kernel_ms is None or not what or child.verdict in UNTIMED:
        return None
    gain = 0.0 if child.kernel_ms is None else math.log(parent.kernel_ms / child.kernel_ms)
    if child.is_correct and abs(gain) < least_gain:
        return None
    vector = bottleneck_of(parent, brief)
    return Insight(
        what, vector.name, vector, gain, child.verdict, candidate.id, brief.problem_id, candidate.backend
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class InsightsConfig:
    """When lessons are shown, and how many."""

    enabled: bool = True
    plateau: int = 12
    """Evaluations of an island without an improvement, from which on its tickets get lessons."""
    most: int = 5
    """Lessons of one prompt; at least two of them, where there are any, of what did not work."""
    least_similarity: float = 0.6
    least_gain: float = 0.05
    """Differences below this are taken for noise [log speedup]."""


class Insights:
    """The lessons of a run: a fold over `tell` that does not depend on its order. `recall` may run in any thread."""

    def __init__(self, brief: Brief, config: InsightsConfig = InsightsConfig()) -> None:
        self.brief = brief
        self.config = config
        self._groups: dict[tuple[str, bool], tuple[Insight, ...]] = {}
        self._held: dict[int, list[str]] = {}

    def tell(self, evaluated: Evaluated, parent_evaluation: Evaluation | None) -> None:
        """Learns from one evaluated candidate; `parent_evaluation` is that of its first parent."""
        if self.config.enabled:
            found = insight_of(evaluated, parent_evaluation, self.brief, self.config.least_gain)
            if found is not None:
                self.add([found])

    def add(self, insights: Iterable[Insight]) -> None:
        """Takes up lessons, such as those of other runs; of other problems and backends they are never recalled."""
        groups = dict(self._groups)
        for insight in insights:
            key = insight.bottleneck, insight.gain > 0
            members = {one.candidate_id: one for one in (*groups.get(key, ()), insight)}
            groups[key] = tuple(sorted(members.values(), key=lambda one: (-one.weight, one.candidate_id))[:GROUP])
        self._groups = groups  # replaced as a whole: other threads read it

    def __len__(self) -> int:
        return sum(map(len, self._groups.values()))

    def hold(self, ticket: Ticket) -> None:
        """Fixes what `recall` will say for a ticket when it is asked out of a thread, whatever is told until then."""
        if self._is_due(ticket):
            while len(self._held) >= HELD:
                del self._held[next(iter(self._held))]
            self._held[ticket.number] = self._recall(ticket)

    def recall(self, ticket: Ticket) -> list[str]:
        """The lessons for a ticket, one line each, those that say most first; none unless its island has stalled.

        They are of this problem and backend, of parents bounded as the ticket's parent is, no two alike, and not of
        the parent's own relatives, which prompts show anyway.
        """
        if not self._is_due(ticket):
            return []
        held = self._held.get(ticket.number)
        return self._recall(ticket) if held is None else list(held)

    def _is_due(self, ticket: Ticket) -> bool:
        return self.config.enabled and ticket.stalled >= self.config.plateau

    def _recall(self, ticket: Ticket) -> list[str]:
        here = bottleneck_of(ticket.parent.evaluation, self.brief)
        shown = {one.candidate.id for one in (ticket.parent, *ticket.lineage)}
        scored = [
            (one.vector.similarity(here), one)
            for members in self._groups.values()
            for one in members
            if (one.problem_id, one.backend) == (self.brief.problem_id, self.brief.backend)
            and one.candidate_id not in shown
        ]
        near = [
            (similarity * one.weight, one) for similarity, one in scored if similarity >= self.config.least_similarity
        ]
        near.sort(key=lambda pair: (-pair[0], pair[1].candidate_id))
        return [str(one) for one in _selected([one for _, one in near], self.config.most)]

    def to_json(self) -> list[dict[str, Any]]:
        """All lessons as plain JSON values, for another run of the same problem."""
        ordered = sorted(
            (one for members in self._groups.values() for one in members), key=lambda one: one.candidate_id
        )
        return [one.to_json() for one in ordered]

    def from_json(self, documents: Sequence[Any]) -> None:
        """Takes up what `to_json` wrote. Raises ProposalError for what it did not write."""
        self.add([Insight.from_json(document) for document in documents])


def _selected(ranked: Sequence[Insight], most: int) -> list[Insight]:
    """The first `most` that differ, in order; two places are kept for what did not work, if anything did not."""
    distinct = _distinct(ranked, most)
    worked = [one for one in distinct if one.gain > 0]
    failed = [one for one in distinct if one.gain <= 0]
    room = most - min(len(failed), min(2, most // 2))
    kept = worked[:room]
    kept += failed[: most - len(kept)]
    return [one for one in distinct if one in kept]


def _distinct(ranked: Sequence[Insight], most: int) -> list[Insight]:
    """At most `most` lessons of each sign of which no two use mostly the same words."""
    kept: list[tuple[Insight, frozenset[str]]] = []
    counts = {True: 0, False: 0}
    for one in ranked:
        is_gain = one.gain > 0
        if counts[is_gain] == most:
            continue
        words = _words(one.what)
        if all(_common(words, other) < SAME_WORDS for _, other in kept):
            kept.append((one, words))
            counts[is_gain] += 1
    return [one for one, _ in kept]


def _words(text: str) -> frozenset[str]:
    return frozenset(re.findall(r"\w+", text.lower()))


def _common(one: frozenset[str], other: frozenset[str]) -> float:
    """Jaccard's index."""
    return len(one & other) / len(one | other) if one | other else 1.0
