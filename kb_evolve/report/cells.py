"""The map of elites as a picture: its two axes that tell most apart, and the best elite of each square."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from islands.candidate import Evaluated
from islands.features import AXES, BACKENDS, UNKNOWN, Coordinates
from kb_evolve.report.record import Replayed

UNITS = {
    "threads": "threads",
    "vector": "bit",
    "size": "lines",
    "binary": "bytes",
    "memory": "bytes",
    "registers": "registers",
    "shared": "bytes",
    "launches": "launches",
    "memory_roofline": "share",
    "compute_roofline": "share",
}


@dataclass(frozen=True, slots=True)
class HeatMap:
    """Rows from the lowest bin up; `speedup[row][column]` is None where no elite is."""

    x_axis: str
    y_axis: str
    """Empty where all elites differ in one axis at most: the map then has one row."""
    x_labels: tuple[str, ...]
    y_labels: tuple[str, ...]
    speedup: tuple[tuple[float | None, ...], ...]
    """Of the best elite in the square, over all islands and all other axes."""
    count: tuple[tuple[int, ...], ...]
    """Cells that lie in the square."""
    other_axes: tuple[str, ...]
    """Axes in which the elites differ too, and which the picture leaves out."""


def heat_map(replayed: Replayed) -> HeatMap | None:
    """The map of the elites that a run ended with; None where no cell is occupied or there are no axes."""
    cells = [(place, elite) for (_, place), elite in replayed.cells.items()]
    if not cells or not replayed.axes:
        return None
    spread = {name: len({place[index] for place, _ in cells}) for index, name in enumerate(replayed.axes)}
    ranked = sorted(replayed.axes, key=lambda name: -spread[name])  # of equals the one configured first
    x_axis, y_axis = ranked[0], ranked[1] if len(ranked) > 1 and spread[ranked[1]] > 1 else ""
    columns, rows = (_bins(cells, replayed.axes, name) for name in (x_axis, y_axis))
    squares: dict[tuple[int, int], list[float]] = {}
    for place, elite in cells:
        square = (_at(place, replayed.axes, y_axis), _at(place, replayed.axes, x_axis))
        squares.setdefault(square, []).append(elite.evaluation.speedup or 0.0)
    found = [[squares.get((row, column), []) for column in columns] for row in rows]
    backends = {elite.candidate.backend for _, elite in cells}
    backend = backends.pop() if len(backends) == 1 else ""
    return HeatMap(
        x_axis,
        y_axis,
        tuple(bin_label(x_axis, number, replayed.edges, backend) for number in columns),
        tuple(bin_label(y_axis, number, replayed.edges, backend) for number in rows) if y_axis else ("",),
        tuple(tuple(max(several, default=None) for several in row) for row in found),
        tuple(tuple(len(several) for several in row) for row in found),
        tuple(name for name in ranked if spread[name] > 1 and name not in (x_axis, y_axis)),
    )


def bin_label(axis: str, number: int, edges: Mapping[str, Sequence[float]], backend: str = "") -> str:
    """What a bin of an axis holds: `128-256`, `< 16 K`, `>= 64 K`; `?` where the axis says nothing."""
    if number == UNKNOWN:
        return "?"
    if axis == "backend":
        return BACKENDS[number] if number < len(BACKENDS) else str(number)
    own = AXES[axis].own_edges.get(backend, AXES[axis].edges)
    limits = edges.get(f"{axis}@{backend}", edges.get(axis, own))
    if number <= 0:
        return f"< {_short(limits[0])}" if limits else "all"
    if number >= len(limits):
        return f"≥ {_short(limits[-1])}"
    return f"{_short(limits[number - 1])}–{_short(limits[number])}"


def axis_title(axis: str) -> str:
    """The axis with its unit."""
    name = axis.replace("_", " ")
    unit = UNITS.get(axis, "")
    return f"{name} ({unit})" if unit and unit != name else name


def _bins(cells: Sequence[tuple[Coordinates, Evaluated]], axes: Sequence[str], name: str) -> list[int]:
    """The bin numbers to draw: from the lowest to the highest that is occupied; UNKNOWN only where it is."""
    seen = {_at(place, axes, name) for place, _ in cells}
    known = [number for number in seen if number != UNKNOWN]
    drawn = list(range(min(known), max(known) + 1)) if known else []
    return [UNKNOWN, *drawn] if UNKNOWN in seen else drawn


def _at(place: Coordinates, axes: Sequence[str], name: str) -> int:
    return place[list(axes).index(name)] if name else 0


def _short(value: float) -> str:
    """1024 as 1 K, 1048576 as 1 M."""
    for unit, size in (("G", 1 << 30), ("M", 1 << 20), ("K", 1 << 10)):
        if value >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value:g}"
