"""Plots as SVG text for our own pages: numbers in, no library, no script; colours come from the style sheet.

Everything that is not a number is made visible and escaped.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

from kb_evolve.report.series import Point
from kb_evolve.report.text import one_line

WIDTH, HEIGHT = 760, 300
LEFT, RIGHT, TOP, BOTTOM = 52, 14, 14, 34
DOTS = 800
"""Dots that one plot draws at most; of more, each column keeps its extremes."""
SANE = (1e-30, 1e30)
"""Speedups that a logarithmic scale has room for; a database from elsewhere may hold any."""
LABEL = 1000
"""Characters of what a plot says to who cannot see it."""
CURVES = 6
"""Curves with colours of their own, as the style sheet has."""


@dataclass(frozen=True, slots=True)
class Curve:
    """A best-so-far curve: it keeps each point's speedup until the next one."""

    name: str
    points: Sequence[Point]
    style: str


@dataclass(frozen=True, slots=True)
class Frame:
    """Where numbers stand in the picture: evaluations from left to right, speedups on a logarithm upwards."""

    last: int
    low: float
    high: float
    width: int = WIDTH
    height: int = HEIGHT

    def x(self, number: float) -> float:
        return round(LEFT + (self.width - LEFT - RIGHT) * (number / max(self.last, 1)), 1)

    def y(self, speedup: float) -> float:
        share = (math.log(speedup) - math.log(self.low)) / (math.log(self.high) - math.log(self.low))
        return round(self.height - BOTTOM - (self.height - TOP - BOTTOM) * min(max(share, 0.0), 1.0), 1)


def progress(label: str, dots: Sequence[Point], curves: Sequence[Curve], told: int) -> Markup:
    """Dots for correct candidates, curves for the best so far; `label` says it all to who cannot see it."""
    frame = frame_of([*dots, *(point for curve in curves for point in curve.points)], told)
    parts = [
        _axes(frame),
        *(_dot(frame, point) for point in thinned(dots)),
        *(_band(frame, curve, told) for curve in curves if curve.style == "best"),
        *(_line(frame, curve, told) for curve in curves),
    ]
    return _picture(label, frame.width, frame.height, "plot", parts)


def spark(label: str, corners: Sequence[Point], told: int) -> Markup:
    """The best-so-far curve alone, small."""
    if not corners:
        return Markup()
    low, high = corners[0].speedup / 1.05, max(point.speedup for point in corners) * 1.05
    frame = Frame(told, low, high)
    places = [(frame.x(point.number), frame.y(point.speedup)) for point in corners]
    drawn = Markup('<path class="curve best" vector-effect="non-scaling-stroke" d="{}"/>').format(
        _steps(places, frame.x(told))
    )
    box = f"{LEFT} {TOP} {WIDTH - LEFT - RIGHT} {HEIGHT - TOP - BOTTOM}"
    return Markup(
        '<svg class="spark" viewBox="{}" preserveAspectRatio="none" role="img" aria-label="{}">{}</svg>'
    ).format(box, one_line(label, LABEL), drawn)


def frame_of(points: Iterable[Point], told: int) -> Frame:
    """A frame that holds the line of 1x and all the points within SANE; others stand at its edge."""
    speedups = [min(max(point.speedup, SANE[0]), SANE[1]) for point in points] or [1.0]
    low, high = min([*speedups, 1.0]), max([*speedups, 1.0])
    margin = max((high / low) ** 0.06, 1.04)
    return Frame(max(told, 1), low / margin, high * margin)


def thinned(points: Sequence[Point], limit: int = DOTS) -> list[Point]:
    """At most about `limit` of the points: of every stretch the fastest and the slowest."""
    if len(points) <= limit:
        return list(points)
    size = math.ceil(2 * len(points) / limit)
    kept: list[Point] = []
    for first in range(0, len(points), size):
        stretch = points[first : first + size]
        ends = {min(stretch, key=_speedup), max(stretch, key=_speedup)}
        kept += sorted(ends, key=lambda point: point.number)
    return kept


def island_curves(islands: Mapping[int, Sequence[Point]]) -> list[Curve]:
    """Curves of islands, each in its colour while there are enough."""
    if len(islands) < 2:
        return []
    return [Curve(f"island {island}", corners, f"c{island % CURVES}") for island, corners in islands.items()]


def ticks(low: float, high: float) -> list[float]:
    """Round values between the two, at least two where a round one fits: 1, 2, 5 of each power of ten, or steps."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    found = [digit * 10.0**power for power in powers for digit in (1, 2, 5)]
    inside = [value for value in found if low <= value <= high]
    if len(inside) > 8:
        return [value for value in inside if str(f"{value:e}")[0] == "1"]
    return inside if len(inside) > 2 else linear_ticks(low, high)


def linear_ticks(low: float, high: float, wanted: int = 5) -> list[float]:
    """About `wanted` multiples of 1, 2 or 5 times a power of ten between the two."""
    rough = (high - low) / wanted
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough)
    first = math.ceil(low / step)
    return [round(index * step, 10) for index in range(first, math.floor(high / step) + 1)]


def _axes(frame: Frame) -> Markup:
    parts = []
    for value in ticks(frame.low, frame.high):
        y, style = frame.y(value), "one" if value == 1 else "grid"
        parts.append(
            Markup('<line class="{}" x1="{}" x2="{}" y1="{}" y2="{}"/><text class="y" x="{}" y="{}">{}x</text>').format(
                style, LEFT, frame.width - RIGHT, y, y, LEFT - 7, y + 4, f"{value:g}"
            )
        )
    for value in linear_ticks(0, frame.last, 6) if frame.last > 1 else [0, 1]:
        if value == int(value):
            parts.append(
                Markup('<text class="x" x="{}" y="{}">{}</text>').format(
                    frame.x(value), frame.height - 14, f"{int(value):,}"
                )
            )
    return Markup().join(parts)


def _dot(frame: Frame, point: Point) -> Markup:
    """One of many: put together without Markup's own formatting, which takes 20 times as long."""
    name = escape(one_line(point.candidate_id))
    title = f"{name}: {point.speedup:.3g}x, evaluation {point.number}, island {point.island}"
    place = f'cx="{frame.x(point.number)}" cy="{frame.y(point.speedup)}"'
    return Markup(f'<circle class="dot" data-id="{name}" {place} r="3"><title>{title}</title></circle>')


def _line(frame: Frame, curve: Curve, told: int) -> Markup:
    if not curve.points:
        return Markup()
    places = [(frame.x(point.number), frame.y(point.speedup)) for point in curve.points]
    return Markup('<path class="curve {}" d="{}"><title>{}</title></path>').format(
        curve.style, _steps(places, frame.x(told)), one_line(curve.name)
    )


def _band(frame: Frame, curve: Curve, told: int) -> Markup:
    """The 95% interval of the best so far."""
    if not curve.points:
        return Markup()
    ends = [*(frame.x(point.number) for point in curve.points[1:]), frame.x(told)]
    boxes = [
        Markup('<rect class="band" x="{}" y="{}" width="{}" height="{}"/>').format(
            frame.x(point.number),
            frame.y(point.high),
            round(end - frame.x(point.number), 1),
            round(max(frame.y(point.low) - frame.y(point.high), 0.5), 1),
        )
        for point, end in zip(curve.points, ends, strict=True)
        if end > frame.x(point.number)
    ]
    return Markup().join(boxes)


def _steps(places: Sequence[tuple[float, float]], end: float) -> str:
    """A path that goes right at each height, then up to the next."""
    first, *rest = places
    return f"M{first[0]} {first[1]}" + "".join(f"H{x}V{y}" for x, y in rest) + f"H{end}"


def _picture(label: str, width: int, height: int, style: str, parts: Iterable[Markup]) -> Markup:
    drawn = Markup().join(parts)
    return Markup('<svg class="{}" viewBox="0 0 {} {}" role="img" aria-label="{}">{}</svg>').format(
        style, width, height, one_line(label, LABEL), drawn
    )


def _speedup(point: Point) -> float:
    return point.speedup
