"""The admission audit: would an answer that computes nothing pass KernelBench's own rule?

Runs in the child process only. KernelBench accepts a candidate's output if it has the reference's shape
and torch.allclose(reference, output, atol=1e-4, rtol=1e-4) holds in fp32. On inputs that are all uniform
in [0, 1) some problems accept one of these tricks on every draw:

| trick | answer |
|---|---|
| zeros | zeros |
| constant | one number: the mean of one true output of another draw |
| identity | an input that has the output's shape |
| other_draw | the true output of another draw |
| weights_only | the mean of the true outputs of other draws: what depends on the weights alone |

A trick that passes on the problem's own draws is judged again, unchanged, on the signed normal family.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

import torch

from problems.anatomy import Finding
from problems.inputs import draw

ATOL = RTOL = 1e-4
"""KernelBench's fp32 tolerances (src/kernelbench/eval.py, get_tolerance_for_precision)."""
JUDGED_DRAWS = 3
OTHER_DRAWS = 4
"""Draws whose outputs the tricks may know; never judged."""
BLOCK = 1 << 14
"""Elements compared at once: they stay in a cache, and torch takes one thread (less than its grain of 2**15),
which on a busy machine is many times faster than waiting for the others."""
RUNS = OTHER_DRAWS + 2 * JUDGED_DRAWS
"""Most times that the reference runs."""
OTHER_SEED = 1000
"""Seed of the first of those; the judged draws have seeds 0, 1, 2."""

Outputs = list[torch.Tensor]
Trick = Callable[[list[Any], Outputs], Outputs | None]
"""(inputs, reference outputs, for their form only) -> the trick's answer, None where it has none."""


class AuditSkipped(Exception):
    """Why a problem was not audited."""


def audit(get_inputs: Callable[[], list[Any]], forward: Callable[..., Outputs], budget_s: float) -> list[Finding]:
    """Findings for every trick on the own draws, and on normal draws for those that pass there.

    `forward` takes the inputs and returns the output's tensors (complex ones as their real view). Raises
    AuditSkipped if one reference run shows that all of them would take longer than `budget_s`.
    """

    def own(seed: int) -> list[Any]:
        torch.manual_seed(seed)
        return list(get_inputs())

    started = time.monotonic()
    first = [output.clone() for output in forward(*own(OTHER_SEED))]
    planned_s = (time.monotonic() - started) * RUNS
    if planned_s > budget_s:
        raise AuditSkipped(f"skipped: it would take about {planned_s:.0f} s on this CPU, more than {budget_s:.0f} s")
    mean = [output.float() for output in first]
    for seed in range(OTHER_SEED + 1, OTHER_SEED + OTHER_DRAWS):
        mean = [total + output.float() for total, output in zip(mean, forward(*own(seed)), strict=True)]
    tricks = _tricks(first, [total / OTHER_DRAWS for total in mean])
    findings = _judge(tricks, "own", own, forward)
    passing = {found.trick: tricks[found.trick] for found in findings if found.passes}
    if passing:
        findings += _judge(passing, "normal", lambda seed: draw(own(seed), "normal", seed), forward)
    return findings


def _tricks(first: Outputs, mean: Outputs) -> dict[str, Trick]:
    """The five tricks, given the output of one draw and the mean output of several."""
    levels = [output.float().mean() for output in first]

    def constant(_: list[Any], reference: Outputs) -> Outputs:
        return [_like(level.expand(ref.shape), ref) for level, ref in zip(levels, reference, strict=True)]

    return {
        "zeros": lambda _, reference: [torch.zeros_like(ref) for ref in reference],
        "constant": constant,
        "identity": _identity,
        "other_draw": lambda _, reference: first,
        "weights_only": lambda _, reference: list(map(_like, mean, reference)),
    }


def _identity(inputs: list[Any], reference: Outputs) -> Outputs | None:
    """For each output the input of its form that comes closest; None where there is no such input."""
    answers = []
    for ref in reference:
        alike = [x for x in inputs if isinstance(x, torch.Tensor) and (x.shape, x.dtype) == (ref.shape, ref.dtype)]
        if not alike:
            return None
        answers.append(min(alike, key=lambda x: compare(ref, x)[1]))
    return answers


def _judge(
    tricks: dict[str, Trick],
    family: str,
    inputs_of: Callable[[int], list[Any]],
    forward: Callable[..., Outputs],
) -> list[Finding]:
    """One finding for every trick that has an answer: it passes if it does on every judged draw.

    A trick that failed is not judged again: its error is that of the draw on which it failed.
    """
    findings: dict[str, Finding] = {}
    for seed in range(JUDGED_DRAWS):
        inputs = inputs_of(seed)
        kept = [value.clone() if isinstance(value, torch.Tensor) else value for value in inputs]
        reference = forward(*inputs)
        for name, trick in tricks.items():
            if name in findings and not findings[name].passes:
                continue
            answer = trick(kept, reference)
            if answer is not None:
                verdicts = [compare(ref, found) for ref, found in zip(reference, answer, strict=True)]
                worst = max(error for _, error in verdicts)
                if name in findings:
                    worst = max(worst, findings[name].worst_abs_err)
                findings[name] = Finding(name, family, all(passed for passed, _ in verdicts), worst)
    return list(findings.values())


def compare(reference: torch.Tensor, answer: torch.Tensor) -> tuple[bool, float]:
    """(KernelBench's verdict in fp32, largest absolute error; inf where a difference is not finite)."""
    if reference.shape != answer.shape:
        return False, math.inf
    passed, largest = True, 0.0
    blocks = zip(reference.reshape(-1).split(BLOCK), answer.reshape(-1).split(BLOCK), strict=True)
    for expected, found in ((ref.float(), ans.float()) for ref, ans in blocks if ref.numel()):
        passed = passed and torch.allclose(expected, found, atol=ATOL, rtol=RTOL)
        difference = (expected - found).abs_().masked_fill_(expected == found, 0.0)  # equal infinities
        error = float(difference.max())
        largest = max(largest, error if math.isfinite(error) else math.inf)
    return passed, largest


def _like(values: torch.Tensor, form: torch.Tensor) -> torch.Tensor:
    """Values in the type of a tensor: rounded where it holds integers."""
    return (values if form.is_floating_point() else values.round()).to(form.dtype)
