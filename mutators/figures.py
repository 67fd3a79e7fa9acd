"""What was measured of a program, in lines for a prompt; and what bounds it, read from those figures.

Figures come from the judge's clock and, where `features` are used, from the candidate's own process: those are checked
to be numbers here, and texts among them go through the fence (see sections.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from fitness.evaluation import Evaluation, Verdict
from mutators.brief import Brief, binary, ms, number, scaled

NEAR_FLOOR, BUSY_PERCENT, IDLE_SHARE = 0.8, 60.0, 0.25
BEYOND = 1.1
"""A fraction of the roofline above this says something about the roofline, not about the program."""
LOW_OCCUPANCY = 0.25


@dataclass(frozen=True, slots=True)
class Figure:
    """A feature as it is shown."""

    name: str
    label: str
    show: Callable[[float], str] = "{:.4g}".format


def _percent(value: float) -> str:
    return f"{value:.0f}%"


def _share(value: float) -> str:
    return f"{100 * value:.0f}%"


CPU_FIGURES = (
    Figure("threads", "threads"),
    Figure("vector_bits", "widest vector registers used [bits]"),
    Figure("operators_per_call", "torch operators per call"),
    Figure("peak_extra_bytes", "memory beyond inputs and weights", binary),
)
GPU_FIGURES = (
    Figure("launches_per_call", "launches per call"),
    Figure("kernels_per_call", "kernels per call"),
    Figure("copies_per_call", "memory copies and fills per call"),
    Figure("device_us_per_call", "device busy per call [us]"),
    Figure("registers", "registers per thread, the most of its kernels"),
    Figure("spill_bytes", "bytes spilled per thread"),
    Figure("shared_bytes", "shared memory per block", binary),
    Figure("occupancy", "theoretical occupancy", _share),
    Figure("achieved_occupancy_percent", "achieved occupancy", _percent),
    Figure("dram_percent", "memory bandwidth in use (counted)", _percent),
    Figure("sm_percent", "multiprocessors' throughput in use (counted)", _percent),
    Figure("l2_hit_percent", "hits in L2", _percent),
    Figure("dram_read_bytes", "read from memory (counted)", binary),
    Figure("dram_write_bytes", "written to memory (counted)", binary),
    Figure("num_warps", "warps per program"),
    Figure("num_stages", "pipeline stages"),
    Figure("peak_extra_bytes", "memory beyond inputs and weights", binary),
)


def figures(evaluation: Evaluation, brief: Brief) -> list[str]:
    """The verdict, times, errors and features of a program, one line each, the most telling first."""
    lines = (
        [f"verdict: {evaluation.verdict}"] if evaluation.verdict is not Verdict.NO_VERDICT else ["not measured here"]
    )
    if evaluation.kernel_ms is not None and evaluation.speedup is not None:
        lines.append(_time(evaluation))
        lines += _floor(evaluation, brief)
        lines += _rates(evaluation, brief)
    if evaluation.error_ratio is not None:
        lines.append(f"error against double precision: {evaluation.error_ratio:.3g} of the reference's own error")
    table = CPU_FIGURES if evaluation.backend == "cpp" else GPU_FIGURES
    for figure in table:
        value = number(evaluation.features, figure.name)
        if value is not None:
            lines.append(f"{figure.label}: {figure.show(value)}")
    return lines


def summary(evaluation: Evaluation, brief: Brief) -> str:
    """The result in a few words: `1.92 ms, 2.2x eager, 41% of the roofline`."""
    if evaluation.kernel_ms is None or evaluation.speedup is None:
        return str(evaluation.verdict)
    fraction = roofline_fraction(evaluation, brief)
    near = f", {_share(fraction)} of the roofline" if fraction is not None else ""
    return f"{ms(evaluation.kernel_ms)}, {evaluation.speedup:.3g}x {evaluation.baseline}{near}"


def roofline_fraction(evaluation: Evaluation, brief: Brief) -> float | None:
    """The floor's time over the program's: 1 is the speed of light; None where either is not known."""
    if evaluation.kernel_ms is None:
        return None
    if brief.floor_ms is not None:
        return brief.floor_ms / evaluation.kernel_ms
    return number(evaluation.features, "roofline_fraction")


def limits(evaluation: Evaluation, brief: Brief) -> list[str]:
    """What bounds a timed program, in the order of how sure it is; empty where the figures tell nothing."""
    if evaluation.kernel_ms is None:
        return []
    of_device = _cpu_limits if evaluation.backend == "cpp" else _gpu_limits
    found = of_device(evaluation, brief)
    fraction = roofline_fraction(evaluation, brief)
    if fraction is not None and fraction > BEYOND:
        return ["it is faster than the floor: the peaks were measured too low, or less need be computed", *found]
    if fraction is not None and fraction >= NEAR_FLOOR:
        near = f"it is at {_share(fraction)} of the roofline: little is left but moving fewer bytes or doing less"
        return [near, *found]
    return found


def _time(evaluation: Evaluation) -> str:
    low, high = evaluation.kernel_ms_ci or (0.0, 0.0)
    assert evaluation.kernel_ms is not None and evaluation.reference_ms is not None
    return (
        f"time: {ms(evaluation.kernel_ms)} [{low:.4g}, {high:.4g}] against {ms(evaluation.reference_ms)} of "
        f"{evaluation.baseline}: {evaluation.speedup:.3g}x"
    )


def _floor(evaluation: Evaluation, brief: Brief) -> list[str]:
    fraction = roofline_fraction(evaluation, brief)
    if fraction is None:
        return []
    if brief.floor_ms is None:
        return [f"fraction of the roofline: {_share(fraction)}"]
    return [f"fraction of the roofline: {_share(fraction)}; the floor is {ms(brief.floor_ms)}"]


def _rates(evaluation: Evaluation, brief: Brief) -> list[str]:
    lines = []
    names = (("achieved_bytes_per_s", "bytes_per_s", "B/s"), ("achieved_flop_per_s", "flop_per_s", "FLOP/s"))
    for name, peak_name, unit in names:
        rate, peak = number(evaluation.features, name), brief.fact(peak_name)
        if rate:
            share = f", {_share(rate / peak)} of the measured peak" if peak else ""
            what = "least traffic over time" if unit == "B/s" else "arithmetic over time"
            lines.append(f"{what}: {scaled(rate, unit)}{share}")
    return lines


def _cpu_limits(evaluation: Evaluation, brief: Brief) -> list[str]:
    features, found = evaluation.features, []
    threads, cores = number(features, "threads"), brief.fact("cores")
    if threads is not None and cores is not None and threads < cores:
        found.append(f"{threads:.0f} of {cores:.0f} cores work")
    used, widest = number(features, "vector_bits"), brief.fact("vector_bits") or 256.0
    if used is not None and used < widest:
        found.append(f"its widest vectors have {used:.0f} bits where {widest:.0f} are possible: not vectorised fully")
    rate, peak = number(features, "achieved_bytes_per_s"), brief.fact("bytes_per_s")
    if rate and peak and rate < IDLE_SHARE * peak:
        found.append(f"main memory is {_share(1 - rate / peak)} idle: arithmetic, dependent chains or passes bound it")
    operators = number(features, "operators_per_call")
    if operators is not None and operators > 4:
        found.append(
            f"{operators:.0f} torch operators a call, each with its own pass and some microseconds of overhead"
        )
    return found


def _gpu_limits(evaluation: Evaluation, brief: Brief) -> list[str]:
    features, found = evaluation.features, []
    spilled, launches = number(features, "spill_bytes"), number(features, "launches_per_call")
    busy_us = number(features, "device_us_per_call")
    if spilled:
        found.append(f"{spilled:.0f} bytes are spilled per thread: too many live values")
    if busy_us and evaluation.kernel_ms and busy_us < 700 * evaluation.kernel_ms:
        whole_us = 1e3 * evaluation.kernel_ms
        found.append(f"the device is busy for {busy_us:.4g} of {whole_us:.4g} us: launches and host code take the rest")
    if launches is not None and launches > 1:
        found.append(f"{launches:.0f} launches a call: what lies between them goes through memory")
    memory, units = number(features, "dram_percent"), number(features, "sm_percent")
    if memory is not None and units is not None:
        found.append(_counted(memory, units))
    occupied = number(features, "occupancy")
    if occupied is not None and occupied < LOW_OCCUPANCY:
        found.append(f"occupancy of {_share(occupied)}: registers or shared memory leave few warps to hide latency")
    rate, peak = number(features, "achieved_bytes_per_s"), brief.fact("bytes_per_s")
    if memory is None and rate and peak and rate < IDLE_SHARE * peak:
        found.append(f"of the memory's bandwidth {_share(rate / peak)} is used: it is not what bounds it, or is wasted")
    return found


def _counted(memory: float, units: float) -> str:
    if memory >= BUSY_PERCENT and memory >= units:
        return f"memory is {memory:.0f}% busy: bound by memory"
    if units >= BUSY_PERCENT:
        return f"multiprocessors are {units:.0f}% busy: bound by instructions"
    return f"memory is {memory:.0f}% and multiprocessors are {units:.0f}% busy: bound by latency or too little work"
