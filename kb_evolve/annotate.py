"""What the controller adds to the judge's answer: source labels, and how near the kernel came to the roofline."""

from __future__ import annotations

import dataclasses
from typing import Any

from fitness.evaluation import Evaluation, Job
from kb_evolve.labels import LABELS, labels_of
from problems.anatomy import Anatomy
from problems.problem import Problem, ProblemError
from problems.roofline import Costs, Reached, reached

ALARM = 0.9
"""Share of the data sheet's limit above which a time is suspicious: measured peaks stay below it."""
ABOVE_ROOFLINE = "above-roofline"


def annotate(evaluation: Evaluation, job: Job, costs: Costs | None = None) -> Evaluation:
    """The evaluation with the labels of its source and, where it has times, its rates. The verdict stays."""
    seen = {*evaluation.labels, *labels_of(job.source, job.precision)}
    features = dict(evaluation.features)
    if evaluation.kernel_ms is not None and costs is not None:
        found = reached(costs, evaluation.kernel_ms, evaluation.device_name, job.precision)
        features |= _rates(found)
        if found.fraction is not None and found.fraction > ALARM:
            seen.add(ABOVE_ROOFLINE)
    others = sorted(seen - LABELS.keys())
    labels = (*(label for label in LABELS if label in seen), *others)
    return dataclasses.replace(evaluation, labels=labels, features=features)


def _rates(found: Reached) -> dict[str, Any]:
    rates = {"achieved_bytes_per_s": found.bytes_per_s, "achieved_flop_per_s": found.flop_per_s}
    if found.fraction is not None:
        rates["roofline_fraction"] = found.fraction
    return rates


def costs_of(anatomy: Anatomy) -> Costs:
    """The part of an anatomy that `annotate` needs."""
    return Costs(anatomy.bytes_moved, anatomy.matmul_flop, anatomy.pointwise_ops)


def find_costs(problem: Problem) -> Costs | None:
    """What the problem costs at least, traced in a child process without memory; None when it cannot be traced."""
    from problems.describe import describe

    try:
        return costs_of(describe(problem, audit=False))
    except ProblemError:
        return None
