"""What each operator, with each model, was asked for and what came of it; and whole runs against control arms.

An arm is an operator, or an operator with one model (`diff@openai/gpt-5`). Control arms are runs of the same problem,
backend, device and precision whose chooser does not learn (policies `uniform` and `fixed`, docs/models.md).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from islands.candidate import Evaluated
from islands.run import Run
from kb_evolve.report import series
from kb_evolve.report.curves import total_usd, usd_of
from kb_evolve.report.record import Record
from kb_evolve.report.timeline import Work, paid_for, works

CONTROLS = ("uniform", "fixed")
"""Policies of mutators.choose that learn nothing."""


@dataclass(frozen=True, slots=True)
class Arm:
    """One row of the operator and model table."""

    name: str
    model: str
    """Empty for an operator that asks none."""
    asks: int
    valid: int
    """Asks that gave a program which built and ran."""
    correct: int
    elites: int
    """Of these, how many became the elite of the run."""
    improved: int
    """Correct candidates whose 95% interval lies above that of their fastest parent."""
    log_gain: float
    """Sum over the improved ones of ln(speedup / fastest parent's speedup)."""
    cost_usd: float
    device_s: float
    """Seconds of measuring its candidates, duels and fresh measurements included; builds are not."""

    @property
    def mean_gain(self) -> float:
        """Geometric mean of the improvements' factors; 1 without any."""
        return math.exp(self.log_gain / self.improved) if self.improved else 1.0


@dataclass(frozen=True, slots=True)
class Total:
    """A whole run, to be set against its control arms."""

    run_name: str
    policy: str
    is_control: bool
    asks: int
    evaluations: int
    """Programs that were measured."""
    correct: int
    elites: int
    cost_usd: float
    device_s: float
    best: tuple[float, float, float] | None
    """Speedup of the elite, with its 95% interval."""
    at_equal: tuple[float, float, float] | None
    """The same of who was the elite when as many candidates were told as in the shortest of the compared runs."""


def arm_table(record: Record) -> list[Arm]:
    """One row for each arm, the one with the largest summed gain first."""
    arms = arms_of(record)
    by_number = {each.candidate.number: each for each in record.history}
    by_id = {each.candidate.id: each for each in record.history}
    elites = {reign.candidate_id for reign in record.replayed.reigns}
    usd, device_s = dollars_by_number(record), device_by_id(works(record))
    rows = []
    for (operator, model), numbers in arms.items():
        judged = [by_number[number] for number in sorted(numbers) if number in by_number]
        gains = [gain for each in judged if (gain := series.clear_gain(each, by_id)) is not None]
        rows.append(
            Arm(
                name=f"{operator}@{model}" if model else operator,
                model=model,
                asks=len(numbers),
                valid=sum(each.evaluation.verdict not in series.NOT_RUN for each in judged),
                correct=sum(each.evaluation.verdict in series.RIGHT for each in judged),
                elites=sum(each.candidate.id in elites for each in judged),
                improved=len(gains),
                log_gain=sum(math.log(gain) for gain in gains),
                cost_usd=sum(usd.get(number, 0.0) for number in numbers),
                device_s=sum(device_s.get(each.candidate.id, 0.0) for each in judged),
            )
        )
    return sorted(rows, key=lambda row: (-row.log_gain, -row.correct, row.name))


def by_model(arms: Iterable[Arm]) -> list[Arm]:
    """The arms of each model, and those that ask none, added up; the largest summed gain first."""
    groups: dict[str, list[Arm]] = defaultdict(list)
    for arm in arms:
        groups[arm.model].append(arm)
    rows = [
        Arm(
            name=model or "no model",
            model=model,
            asks=sum(arm.asks for arm in several),
            valid=sum(arm.valid for arm in several),
            correct=sum(arm.correct for arm in several),
            elites=sum(arm.elites for arm in several),
            improved=sum(arm.improved for arm in several),
            log_gain=sum(arm.log_gain for arm in several),
            cost_usd=sum(arm.cost_usd for arm in several),
            device_s=sum(arm.device_s for arm in several),
        )
        for model, several in groups.items()
    ]
    return sorted(rows, key=lambda row: (-row.log_gain, -row.correct, row.name))


def arms_of(record: Record) -> dict[tuple[str, str], set[int]]:
    """Numbers of the asks of each (operator, model), in order of their first ask; seeds are asks of their own.

    The model is the one whose reply was paid for last, else the one that the attempt's usage names.
    """
    models = {attempt.number: str(attempt.usage.get("model") or "") for attempt in record.attempts}
    models |= {one.number: one.model for one in record.spent}
    operators = {attempt.number: attempt.mutator or "unnamed" for attempt in record.attempts}
    operators |= {each.candidate.number: each.candidate.mutator for each in record.history}
    arms: dict[tuple[str, str], set[int]] = {}
    for number in sorted(operators):
        arms.setdefault((operators[number], models.get(number, "")), set()).add(number)
    return arms


def dollars_by_number(record: Record) -> dict[int, float]:
    """USD by the number of the ask."""
    asked: dict[int, float] = defaultdict(float)
    for one in record.spent:
        asked[one.number] += usd_of(one.usage)
    for attempt in record.attempts:
        if attempt.number not in asked:
            asked[attempt.number] = usd_of(attempt.usage)
    return dict(asked)


def device_by_id(found: Iterable[Work]) -> dict[str, float]:
    """Seconds of measuring by candidate."""
    spent_s: dict[str, float] = defaultdict(float)
    for work in found:
        spent_s[work.candidate_id] += work.evaluate_s
    return dict(spent_s)


def device_seconds(record: Record) -> float:
    """Seconds of measuring of the whole run."""
    return sum(work.evaluate_s for work in works(record))


def is_control(run: Run) -> bool:
    """Whether the run's chooser learns nothing."""
    return policy_of(run) in CONTROLS


def policy_of(run: Run) -> str:
    """How the run chose its operators; empty for a run that does not say."""
    chosen = run.config.get("mutators")
    return str(chosen.get("policy", "")) if isinstance(chosen, Mapping) else ""


def is_comparable(one: Run, other: Run) -> bool:
    """Whether two different runs searched the same problem in the same setting."""
    setting = [(run.problem_sha256, run.backend, run.device, run.precision) for run in (one, other)]
    return one.id != other.id and setting[0] == setting[1]


def totals(records: Sequence[Record]) -> list[Total]:
    """One row for each run, in the order given; `at_equal` after as many candidates as the shortest one has."""
    shortest = min((len(record.history) for record in records), default=0)
    return [_total(record, shortest) for record in records]


def _total(record: Record, shortest: int) -> Total:
    figures = {each.candidate.id: _figure(each) for each in record.history}
    reigns = record.replayed.reigns
    early = [reign for reign in reigns if reign.number <= shortest]
    return Total(
        run_name=record.run.name,
        policy=policy_of(record.run),
        is_control=is_control(record.run),
        asks=sum(len(numbers) for numbers in arms_of(record).values()),
        evaluations=len(paid_for(record.told)),
        correct=sum(each.evaluation.verdict in series.RIGHT for each in record.history),
        elites=len({reign.candidate_id for reign in reigns}),
        cost_usd=total_usd(record),
        device_s=device_seconds(record),
        best=figures.get(reigns[-1].candidate_id) if reigns else None,
        at_equal=figures.get(early[-1].candidate_id) if early else None,
    )


def _figure(each: Evaluated) -> tuple[float, float, float] | None:
    evaluation = each.evaluation
    if evaluation.speedup is None or evaluation.speedup_ci is None:
        return None
    return evaluation.speedup, *evaluation.speedup_ci
