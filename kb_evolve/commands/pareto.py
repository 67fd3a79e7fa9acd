"""Pareto fronts as text and as JSON: what `kb-evolve top --pareto` prints."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from islands.fronts import Front, Measured, Place
from kb_evolve.commands.tables import fitted, screen_width, wrapped

BLOCKS = " ▁▂▃▄▅▆▇█"
"""Heights of a sparkline, in eighths of a line."""
WIDTH = 40
"""Columns of a sparkline."""
BAR = 10
"""Columns of the longest bar beside a time."""


def fronts_json(fronts: Mapping[Place, Front], limit: int | None = None) -> list[dict[str, Any]]:
    """One document for each front; `hypervolume_over_time` holds [time, correct kernels told, hypervolume]."""
    return [
        {
            "problem": front.members[0].problem,
            "device": place.device,
            "device_name": place.device_name,
            "precision": place.precision,
            "protocol": place.protocol,
            "correct": front.told,
            "members": len(front.members),
            "hypervolume": front.volume,
            "reference": {
                "kernel_ms": front.reference.kernel_ms,
                "peak_mem_bytes": front.reference.peak_mem_bytes,
                "error_ratio": front.reference.error_ratio,
                "energy_mj": front.reference.energy_mj,
            },
            "hypervolume_over_time": [list(step) for step in front.over_time],
            "front": [_member_json(member, front) for member in front.fastest_first()[:limit]],
        }
        for place, front in _in_order(fronts)
    ]


def _member_json(member: Measured, front: Front) -> dict[str, Any]:
    kernel_ms, memory, error, energy = member.objectives
    return {
        "id": member.candidate_id,
        "run": member.run,
        "backend": member.backend,
        "mutator": member.mutator,
        "speedup": member.speedup,
        "speedup_ci": list(member.speedup_ci),
        "kernel_ms": kernel_ms,
        "peak_mem_bytes": memory,
        "error_ratio": error,
        "energy_mj": energy,
        "gains": list(front.reference.gains(member.objectives)),
        "told_at": member.told_at,
    }


def fronts_text(fronts: Mapping[Place, Front], limit: int) -> str:
    """A heading, the hypervolume over time and a table for each front; at most `limit` kernels of each."""
    return "\n\n".join(_front_text(place, front, limit) for place, front in _in_order(fronts))


def _in_order(fronts: Mapping[Place, Front]) -> list[tuple[Place, Front]]:
    return sorted(fronts.items(), key=lambda item: (item[1].members[0].problem, item[0].device_name, str(item[0])))


def _front_text(place: Place, front: Front, limit: int) -> str:
    reference, shown = front.reference, front.fastest_first()[:limit]
    where = f"{place.device} ({place.device_name})" if place.device_name else place.device
    bounds = [
        f"{reference.kernel_ms:.4g} ms",
        memory_text(reference.peak_mem_bytes),
        f"error {reference.error_ratio:.3g}",
        *([f"{reference.energy_mj:.3g} mJ"] if reference.energy_mj is not None else []),
    ]
    rest = len(front.members) - len(shown)
    head = f"{front.members[0].problem} on {where}, {place.precision}: "
    lines = [
        wrapped("", f"{head}{len(front.members)} of {front.told} correct kernels are beaten by none", screen_width()),
        f"hypervolume {front.volume:.4g} under {', '.join(bounds)}  {sparkline(front)}".rstrip(),
        fitted(*_table(front, shown), screen_width(), shrink={"mutator": 8, "run": 8}, drop=("run", "", "backend")),
    ]
    return "\n".join(lines + ([f"and {rest} more: --limit {len(front.members)} shows all"] if rest else []))


def _table(front: Front, shown: Sequence[Measured]) -> tuple[list[str], list[list[str]]]:
    has_energy = any(math.isfinite(member.objectives[3]) for member in shown)
    header = ["id", "", "speedup", "kernel ms", "memory", "error", *(["mJ"] if has_energy else [])]
    slowest_ms = max(member.objectives[0] for member in shown)
    rows = []
    for member in shown:
        kernel_ms, memory, error, energy = member.objectives
        bar = "█" * max(1, round(BAR * kernel_ms / slowest_ms))
        low, high = member.speedup_ci
        row = [member.candidate_id, bar, f"{member.speedup:.3g}x [{low:.3g}, {high:.3g}]", f"{kernel_ms:.4g}"]
        row += [memory_text(memory), number_text(error), *([number_text(energy)] if has_energy else [])]
        rows.append([*row, member.backend, member.mutator, member.run])
    return [*header, "backend", "mutator", "run"], rows


def sparkline(front: Front) -> str:
    """The hypervolume over the correct kernels told, oldest first, as a row of blocks; full height is the last."""
    if front.volume <= 0:
        return ""
    width = min(WIDTH, front.told)
    heights = []
    for column in range(1, width + 1):
        until = front.told * column / width
        volume = max((volume for _, told, volume in front.over_time if told <= until), default=0.0)
        heights.append(round(volume / front.volume * (len(BLOCKS) - 1)))
    return "".join(BLOCKS[height] for height in heights)


def memory_text(size: float) -> str:
    """`24.6 MiB`; `?` where it was not measured."""
    return f"{size / 2**20:.4g} MiB" if math.isfinite(size) else "?"


def number_text(value: float) -> str:
    """Three digits; `?` where it was not measured."""
    return f"{value:.3g}" if math.isfinite(value) else "?"
