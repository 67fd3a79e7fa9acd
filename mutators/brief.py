"""Brief: what is the same for all prompts of a run, the problem and the device; and quantities as people read them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

PREFIXES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


@dataclass(frozen=True, slots=True)
class Brief:
    """The problem and the device, made once per run."""

    problem_id: str
    problem_source: str
    backend: str
    """What candidates are written in: the name of a page in mutators/prompts/backends/."""
    precision: str = "fp32"
    device_name: str = "cpu"
    facts: dict[str, float | str] = field(default_factory=dict)
    """Measured peaks and sizes; a name's end is its unit and decides how it is shown (see `quantity`).

    Those that the diagnosis in figures.py reads: `bytes_per_s` (main memory), `flop_per_s` (the run's precision),
    `cores` and `vector_bits` (the widest) of a CPU.
    """
    baselines: dict[str, float] = field(default_factory=dict)
    """Kind -> ms, such as `{"eager": 4.2, "compile": 3.1}`."""
    floor_ms: float | None = None
    """Least time by the roofline; None where the device's peaks or the problem's costs are not known."""
    floor_why: str = ""
    """Such as `33.6 MB at 63 GB/s`."""
    shapes: str = ""
    """The inputs in one line, such as `x (4096, 1024) fp32`."""

    def fact(self, name: str) -> float | None:
        """A fact that is a finite number above 0, else None."""
        return number(self.facts, name)


def number(values: Mapping[str, Any], name: str) -> float | None:
    """`values[name]` where it is a finite number not below 0, else None: features come from candidates' processes."""
    value = values.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
        return None
    return float(value)


def fact_lines(brief: Brief) -> list[str]:
    """One line per fact, in the order given."""
    return [f"{name.replace('_', ' ')}: {quantity(name, value)}" for name, value in _readable(brief).items()]


def _readable(brief: Brief) -> dict[str, float | str]:
    """Facts whose names tell the unit twice are named without it."""
    names = {"bytes_per_s": "memory_bandwidth_bytes_per_s", "flop_per_s": "arithmetic_flop_per_s"}
    return {names.get(name, name): value for name, value in brief.facts.items()}


def baseline_lines(brief: Brief) -> list[str]:
    """One line per baseline, the fastest first."""
    ordered = sorted(brief.baselines.items(), key=lambda item: item[1])
    return [f"the reference by {kind}: {ms(value)}" for kind, value in ordered]


def floor_line(brief: Brief) -> str:
    """The roofline's floor in one line; empty where it is not known."""
    if brief.floor_ms is None:
        return ""
    why = f" ({brief.floor_why})" if brief.floor_why else ""
    return f"roofline floor of this problem on this device: {ms(brief.floor_ms)}{why}; an estimate from peaks"


def quantity(name: str, value: float | str) -> str:
    """A value in the unit that its name ends in: `_bytes`, `bytes_per_s`, `flop_per_s`, `_hz`, `_ms`, `_us`, `_s`."""
    if isinstance(value, str):
        return value
    if name.endswith("bytes_per_s"):
        return scaled(value, "B/s")
    if name.endswith("flop_per_s"):
        return scaled(value, "FLOP/s")
    if name.endswith("_hz"):
        return scaled(value, "Hz")
    if name.endswith("bytes"):
        return binary(value)
    for end in ("ms", "us", "s"):
        if name.endswith(f"_{end}"):
            return f"{value:.4g} {end}"
    return f"{value:.6g}"


def scaled(value: float, unit: str) -> str:
    """`63.1 GB/s`."""
    for size, prefix in PREFIXES:
        if value >= size:
            return f"{value / size:.3g} {prefix}{unit}"
    return f"{value:.3g} {unit}"


def binary(value: float) -> str:
    """`228 KiB`."""
    for exponent, unit in ((30, "GiB"), (20, "MiB"), (10, "KiB")):
        if value >= 1 << exponent:
            return f"{value / (1 << exponent):.4g} {unit}"
    return f"{value:.0f} B"


def ms(value: float) -> str:
    """A time of milliseconds; in microseconds where it is short."""
    return f"{value:.4g} ms" if value >= 0.1 else f"{1e3 * value:.3g} us"
