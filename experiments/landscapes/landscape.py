"""A landscape: every configuration of one kernel's tunables with the time that somebody measured."""

from __future__ import annotations

import gzip
import json
import math
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from mutators.tunables import find_tunables

NEAR = 1.05
"""A configuration is near the optimum when its time is at most this many times the optimum's."""

Values = dict[str, str]


class LandscapeError(Exception):
    """A file is no record of a tuning space that can be replayed."""


@dataclass(frozen=True)
class Landscape:
    """The recorded times of one kernel on one device."""

    name: str
    device: str
    choices: dict[str, tuple[str, ...]]
    """Tunable -> its values, at least two; their product is the space."""
    times: dict[tuple[str, ...], float]
    """Values in the order of `choices` -> measured time, in the record's own unit. What is not here failed."""
    failed: int = 0
    """Configurations that the record lists as failed to build or to run. All others that are not in `times` were left
    out by whoever recorded them, because they break a rule of the kernel (too many threads, a size that does not
    divide another); a search that does not know the rules pays for them all the same."""

    @property
    def size(self) -> int:
        """Configurations in the product of all choices."""
        return math.prod(len(one) for one in self.choices.values())

    @cached_property
    def optimum(self) -> float:
        """The least recorded time."""
        return min(self.times.values())

    @cached_property
    def near(self) -> int:
        """Configurations within 5% of the optimum."""
        return sum(time <= NEAR * self.optimum for time in self.times.values())

    def time(self, values: Values) -> float | None:
        """The recorded time of a configuration, None where it failed. KeyError when a tunable is missing."""
        return self.times.get(tuple(values[name] for name in self.choices))

    def source(self, values: Values) -> str:
        """A kernel's text that declares every tunable with its choices, set to `values`."""
        lines = (f"constexpr auto {name} = {values[name]};  // tune: {' '.join(self.choices[name])}" for name in values)
        return f"// {self.name}, recorded on {self.device}\n" + "\n".join(lines) + "\n"


def check(landscape: Landscape) -> Landscape:
    """The landscape itself. LandscapeError where our operators would not read its text as it is meant."""
    if not landscape.times:
        raise LandscapeError(f"{landscape.name}: expected at least one configuration with a time, found none")
    first = {name: choices[0] for name, choices in landscape.choices.items()}
    found = {one.name: one.choices for one in find_tunables(landscape.source(first))}
    if found != landscape.choices:
        wrong = sorted(name for name, choices in landscape.choices.items() if found.get(name) != choices)
        raise LandscapeError(f"{landscape.name}: tunables must be plain names with plain values; not so: {wrong}")
    return landscape


def read(path: Path) -> Landscape:
    """A landscape in our own form (`write`). LandscapeError for any other file."""
    document = read_json(path)
    if document.get("format") != "kb_evolve landscape 1":
        raise LandscapeError(f"{path}: expected a document with format 'kb_evolve landscape 1'")
    choices = {name: tuple(values) for name, values in document["choices"].items()}
    times = {tuple(row[:-1]): float(row[-1]) for row in document["times"]}
    return check(Landscape(document["name"], document["device"], choices, times, document["failed"]))


def write(landscape: Landscape, path: Path, about: dict[str, Any]) -> None:
    """One JSON document: choices, one row of values and time for each configuration, and how it was measured."""
    head = {"format": "kb_evolve landscape 1", "name": landscape.name, "device": landscape.device, "about": about}
    document = {**head, "choices": landscape.choices, "failed": landscape.failed}
    rows = ",\n  ".join(json.dumps([*values, time]) for values, time in landscape.times.items())
    path.write_text(json.dumps(document, indent=1)[:-2] + f',\n "times": [\n  {rows}\n ]\n}}\n', encoding="utf-8")


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object, packed by gzip or not. LandscapeError for what is none."""
    try:
        packed = path.read_bytes()
        document = json.loads(gzip.decompress(packed) if packed[:2] == b"\x1f\x8b" else packed)
    except (OSError, EOFError, ValueError) as error:
        raise LandscapeError(f"{path}: expected a JSON file, packed by gzip or not: {error}") from error
    if not isinstance(document, dict):
        raise LandscapeError(f"{path}: expected a JSON object, found {type(document).__name__}")
    return document
