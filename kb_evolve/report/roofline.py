"""Where the kernels stand under the device's roofline.

The model of Williams, Waterman and Patterson (CACM 52(4), 2009) with the problem's compulsory bytes and the traced
algorithm's arithmetic (problems/roofline.py): all kernels of a problem stand at one intensity, and the faster one is
the higher one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from islands.run import Run
from kb_evolve.report import series
from kb_evolve.report.record import Record
from problems.roofline import Costs, Peaks, find_peaks, in_precision


@dataclass(frozen=True, slots=True)
class Roofline:
    """Rates in FLOP/s, intensities in FLOP/B."""

    device: str
    peaks_source: str
    """Where the device's figures are printed; empty: measured when the run began."""
    bytes_per_s: float
    ceilings: tuple[tuple[str, float], ...]
    """(name, FLOP/s) of the arithmetic rates that matter here, the lowest first."""
    intensity: float
    rates: tuple[float, ...]
    """Of each correct candidate, in the order told."""
    best_rate: float
    reference_rate: float
    """Of the baseline, by the time in the elite's evaluation."""
    attainable: float
    """The lower of memory's and arithmetic's limit at this intensity."""

    @property
    def share(self) -> float:
        """How much of what the device allows the elite reaches."""
        return self.best_rate / self.attainable


def roofline(record: Record) -> Roofline | None:
    """The run's roofline; None where it is not known what the problem costs or what the device can do, where the
    problem computes nothing, or no candidate is correct.
    """
    winner = series.best(record.history)
    costs = costs_of_run(record.run)
    if winner is None or costs is None or winner.evaluation.kernel_ms is None:
        return None
    peaks = peaks_of(record.run, winner.evaluation.device_name)
    moved = in_precision(costs, record.run.precision)
    if peaks is None or not moved.flop or not moved.bytes_moved:
        return None
    intensity = moved.flop / moved.bytes_moved
    ceilings = _ceilings(peaks, moved, record.run.precision)
    times = [point.kernel_ms for point in series.correct_points(record.history)]
    return Roofline(
        peaks.name,
        peaks.source,
        peaks.bytes_per_s,
        ceilings,
        intensity,
        tuple(1e3 * moved.flop / kernel_ms for kernel_ms in times),
        1e3 * moved.flop / winner.evaluation.kernel_ms,
        1e3 * moved.flop / (winner.evaluation.reference_ms or winner.evaluation.kernel_ms),
        min(intensity * peaks.bytes_per_s, ceilings[-1][1]),
    )


def why_no_roofline(record: Record) -> str:
    """Why `roofline` gives None, in words; empty where it does not."""
    winner = series.best(record.history)
    costs = costs_of_run(record.run)
    if winner is None:
        return "no correct candidate yet"
    if costs is None:
        return "what the problem computes was not traced"
    if not costs.flop or not costs.bytes_moved:
        return "the problem's arithmetic or traffic is zero"
    if peaks_of(record.run, winner.evaluation.device_name) is None:
        return "the device's limits are not known"
    return ""


def costs_of_run(run: Run) -> Costs | None:
    """What was recorded of the problem's bytes and arithmetic; None where that is missing or unreadable."""
    costs = run.config.get("costs")
    try:
        return Costs(**costs) if isinstance(costs, Mapping) else None
    except TypeError:
        return None


def peaks_of(run: Run, device_name: str) -> Peaks | None:
    """The data sheet's figures for the device, for a CPU what was measured when the run began."""
    cpu: Any = run.config.get("cpu")
    if run.device != "cpu" or not isinstance(cpu, Mapping):
        return find_peaks(device_name)
    try:
        return Peaks(**cpu)
    except TypeError:
        return None


def _ceilings(peaks: Peaks, costs: Costs, precision: str) -> tuple[tuple[str, float], ...]:
    """The plain rate, and for a problem with matrix products the precision's own; the last one limits."""
    vector = peaks.flop_per_s["fp32"]
    product = peaks.flop_per_s.get(precision, vector)
    if product == vector or not costs.matmul_flop:
        return (("fp32", vector),)
    pairs: Sequence[tuple[str, float]] = sorted([("fp32", vector), (precision, product)], key=lambda pair: pair[1])
    return tuple(pairs)
