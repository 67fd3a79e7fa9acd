"""The noun of seeding: a program from elsewhere, and where it came from."""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from islands.candidate import Candidate
from problems.syntax import parse

ORIGIN = "seed"
"""Key of a candidate's details under which its origin is kept."""

SOURCE_LIMIT = 256 << 10
"""Longest source of a seed [B]; the longest of our own kernels has a twentieth of that."""

CLASS = "ModelNew"


@dataclass(frozen=True, slots=True)
class Seed:
    """A program that may become a first candidate; nobody has run it."""

    source: str
    origin: dict[str, Any]
    """JSON values: `kind` (run, similar, file, bundle, kernelbench or openevolve) and where it stood."""

    @property
    def sha256(self) -> str:
        """Hex digest of the exact source bytes."""
        return hashlib.sha256(self.source.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Gathered:
    """What was found, and what was left out, each with its reason in a sentence."""

    seeds: tuple[Seed, ...] = ()
    left_out: tuple[str, ...] = ()


def fault(source: str) -> str:
    """Why a text cannot be a candidate, as far as reading tells; empty where nothing speaks against judging it."""
    try:
        size = len(source.encode())
    except UnicodeEncodeError:
        return "it holds characters that are no valid Unicode"
    if size > SOURCE_LIMIT:
        return f"it has {size} bytes, allowed are {SOURCE_LIMIT}"
    try:
        tree = parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        return f"it is not Python: {error}"
    return "" if any(_defines(node) for node in tree.body) else f"it defines no {CLASS} at its top level"


def _defines(node: ast.stmt) -> bool:
    if isinstance(node, ast.Assign):
        return any(isinstance(target, ast.Name) and target.id == CLASS for target in node.targets)
    return isinstance(node, ast.ClassDef) and node.name == CLASS


def words(origin: dict[str, Any]) -> str:
    """Where a seed came from, in a few words."""
    match origin.get("kind"):
        case "run":
            return f"from {origin['candidate']} of run {origin['run']}"
        case "similar":
            return (
                f"from {origin['candidate']} of run {origin['run']}, whose problem {origin['problem']} shares "
                f"{origin['similarity']:.0%} of this one's operators"
            )
        case "bundle":
            return f"from {origin['candidate']} of run {origin['run']}, in the bundle {origin['path']}"
        case "kernelbench":
            return f"from KernelBench's {origin['path']}"
        case "openevolve":
            return f"from OpenEvolve's program {origin['program']} in {origin['path']}"
        case _:
            return f"from {origin.get('path', 'elsewhere')}"


def candidates(seeds: Sequence[Seed], run_id: str, backend: str, islands: int) -> list[Candidate]:
    """The seeds as candidates, numbered behind the `islands` first ones, dealt out to the islands in turn."""
    return [
        Candidate(
            f"{run_id}-{number:06d}",
            number,
            number % islands,
            generation=0,
            backend=backend,
            source=seed.source,
            rationale=words(seed.origin),
            details={ORIGIN: seed.origin},
        )
        for number, seed in enumerate(seeds, islands)
    ]
