"""Pareto fronts of a whole database: one for each problem, device and precision, over all of its runs.

Like every other plot, a front is a fold over what was told, in the order told; nothing of it is stored.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from islands.archive import Objectives, covers, numbers
from islands.codec import decode
from islands.database import connect, translated
from islands.hypervolume import Point, exclusive

ROOM = 4.0
"""How much more memory, and energy, than the first correct kernel's a kernel may take before it gains nothing."""
GRAIN_BYTES = 1 << 20
"""Memory is told apart no finer than this: a process grows by pages and pools, and may grow by none at all."""
WORST_ERROR_RATIO = 16.0
"""An error of 16 times the reference's own: four bits worse, and the least error that gains nothing."""
LEAST_ERROR_RATIO = 1 / 16
"""Four bits better than the reference; what is nearer to the truth gains no more, exact results included."""

LEAST_ENERGY_MJ = 1e-6
"""What a meter shows as nothing counts as so much."""

FAST_MATH = "fast-math"
"""Part of the rules that an evaluation was made under (its column `precision`), where the judge allowed it."""

MEASURED = """
    SELECT evaluations.id, tellings.candidate_id, runs.name AS run, coalesce(:problem, runs.problem_id) AS problem,
        evaluations.problem_sha256, evaluations.device, runs.precision, evaluations.precision AS rules,
        evaluations.protocol, candidates.backend, candidates.mutator, tellings.told_at, evaluations.speedup,
        json_extract(document, '$.device_name') AS device_name,
        json_extract(document, '$.kernel_ms') AS kernel_ms, json_extract(document, '$.reference_ms') AS reference_ms,
        json_extract(document, '$.peak_mem_bytes') AS peak_mem_bytes,
        json_extract(document, '$.error_ratio') AS error_ratio,
        json_extract(document, '$.features.energy_mj') AS energy_mj,
        json_extract(document, '$.speedup_ci') AS speedup_ci
    FROM tellings JOIN evaluations ON evaluations.id = tellings.evaluation_id
    JOIN candidates ON candidates.id = tellings.candidate_id JOIN runs ON runs.id = tellings.run_id
    WHERE evaluations.speedup IS NOT NULL
      AND (:problem IS NULL
        OR evaluations.problem_sha256 IN (SELECT problem_sha256 FROM runs WHERE problem_id = :problem))
    ORDER BY tellings.told_at, tellings.candidate_id
"""


@dataclass(frozen=True, slots=True)
class Place:
    """Where figures may be compared with each other."""

    problem_sha256: str
    device: str
    device_name: str
    """What the device is; a database that was merged holds several machines' `cpu`."""
    precision: str
    """`fp32`, or `fp32+fast-math` where the judge let candidates use it; kernels of all backends meet."""
    protocol: str


@dataclass(frozen=True, slots=True)
class Measured:
    """A correct candidate's figures, without its source."""

    candidate_id: str
    run: str
    problem: str
    place: Place
    backend: str
    mutator: str
    told_at: str
    objectives: Objectives
    reference_ms: float
    speedup: float
    speedup_ci: tuple[float, float]


@dataclass(frozen=True, slots=True)
class Reference:
    """The fixed point that gains are measured from: one for each place, set by the first correct kernel told there.

    Eager PyTorch's time as measured beside that kernel, and ROOM times the memory that this kernel took: the judge
    measures no memory of eager's, and a first kernel is a plain one, whose outputs weigh most in both.
    """

    kernel_ms: float
    peak_mem_bytes: float
    error_ratio: float = WORST_ERROR_RATIO
    energy_mj: float | None = None
    """None where the first kernel's energy was not measured: there is no such axis then."""

    def gains(self, objectives: Objectives) -> Point:
        """How often each objective is halved from here (log2 of ratios), 0 for what is no better; larger is better."""
        kernel_ms, memory, error, energy = objectives
        ratios = [
            self.kernel_ms / kernel_ms,
            (self.peak_mem_bytes + GRAIN_BYTES) / (memory + GRAIN_BYTES),
            self.error_ratio / max(error, LEAST_ERROR_RATIO),
        ]
        if self.energy_mj is not None:
            ratios.append(self.energy_mj / max(energy, LEAST_ENERGY_MJ))
        return tuple(math.log2(ratio) if ratio > 1 else 0.0 for ratio in ratios)


def reference_of(first: Measured) -> Reference:
    """The reference point of a place whose first correct kernel this is."""
    _, memory, _, energy = first.objectives
    known = memory if math.isfinite(memory) else 0.0
    return Reference(first.reference_ms, ROOM * known, energy_mj=ROOM * energy if math.isfinite(energy) else None)


@dataclass(slots=True)
class Front:
    """The front of one place while kernels are told; `add` is its only way to change."""

    reference: Reference
    told: int = 0
    """Correct kernels told, members or not."""
    members: list[Measured] = field(default_factory=list)
    """Kernels that no other one beats or equals in every objective."""
    volume: float = 0.0
    """Hypervolume over the reference, in halvings of each axis multiplied."""
    over_time: list[tuple[str, int, float]] = field(default_factory=list)
    """(told_at, told, volume) at each change of the front."""

    def add(self, new: Measured) -> bool:
        """Takes a kernel in unless a member is at least as good in everything; says if it did."""
        self.told += 1
        if any(covers(member.objectives, new.objectives) for member in self.members):
            return False
        self.volume += exclusive(
            self.reference.gains(new.objectives), [self.reference.gains(member.objectives) for member in self.members]
        )
        self.members = [member for member in self.members if not covers(new.objectives, member.objectives)] + [new]
        self.over_time.append((new.told_at, self.told, self.volume))
        return True

    def fastest_first(self) -> list[Measured]:
        """The members by kernel time, the fastest first."""
        return sorted(self.members, key=lambda member: member.objectives)


def fold(measured: Iterable[Measured]) -> dict[Place, Front]:
    """The front of every place, after all that was measured, in the order given."""
    fronts: dict[Place, Front] = {}
    for one in measured:
        if one.place not in fronts:
            fronts[one.place] = Front(reference_of(one))
        fronts[one.place].add(one)
    return fronts


def measured_in(path: Path, problem: str | None = None) -> Iterator[Measured]:
    """Every correct kernel told in the database file, each evaluation once, the oldest first, over all runs.

    With `problem` those of that problem's source, under whatever name a run knew it. StoreError for a file that
    cannot be read.
    """
    with closing(connect(path, read_only=True)) as db, translated(path):
        cursor = db.execute(MEASURED, {"problem": problem})
        names = [column[0] for column in cursor.description]
        seen: set[int] = set()
        for values in cursor:
            row = dict(zip(names, values, strict=True))
            if row["id"] not in seen:
                seen.add(row["id"])
                yield _measured(row)


def _measured(row: Mapping[str, Any]) -> Measured:
    is_fast = FAST_MATH in row["rules"].split("+")
    place = {name: row[name] or "" for name in ("problem_sha256", "device", "device_name", "protocol")}
    low, high = decode(row["speedup_ci"])
    return Measured(
        **{name: row[name] for name in ("candidate_id", "run", "problem", "backend", "mutator", "told_at")},
        place=Place(**place, precision=f"{row['precision']}+{FAST_MATH}" if is_fast else row["precision"]),
        objectives=numbers(row["kernel_ms"], row["peak_mem_bytes"], row["error_ratio"], row["energy_mj"]),
        reference_ms=row["reference_ms"],
        speedup=row["speedup"],
        speedup_ci=(low, high),
    )
