"""How unlike two programs are, by their tokens; cheap enough for every pair of an island's members."""

from __future__ import annotations

import functools
import math
import re
import zlib
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from heapq import nsmallest
from itertools import combinations

TOKEN = re.compile(r"//[^\n]*|/\*.*?\*/|\w+|[^\w\s]", re.DOTALL)
SHINGLE = 3
"""Tokens in a row that count as one feature of a program."""
KEPT = 128
"""Hashes that a sketch keeps; a distance is off by 0.04 or so, standard deviation, and by less near 0 and 1."""
COMPARED = 32
"""Most members whose pairs are measured for an island's diversity: 496 pairs, about three milliseconds."""


@dataclass(frozen=True, slots=True)
class Sketch:
    """The smallest hashes of what a program consists of."""

    hashes: frozenset[int]
    ascending: tuple[int, ...]

    @property
    def reach(self) -> float:
        """Up to here it holds every hash of its program."""
        return self.ascending[-1] if len(self.ascending) == KEPT else math.inf


@functools.lru_cache(maxsize=1024)
def sketch(source: str) -> Sketch:
    """The smallest hashes of the runs of three tokens in a source; comments of C++ are left out.

    Broder, On the resemblance and containment of documents (1997), section 3.
    """
    tokens = [token for token in TOKEN.findall(source) if not token.startswith(("//", "/*"))]
    runs = {" ".join(tokens[start : start + SHINGLE]) for start in range(max(1, len(tokens) - SHINGLE + 1))}
    ascending = nsmallest(KEPT, {zlib.crc32(run.encode("utf-8", "surrogatepass")) for run in runs})
    return Sketch(frozenset(ascending), tuple(ascending))


def distance(one: Sketch, other: Sketch) -> float:
    """Estimated share of runs of tokens that only one of two programs has: 0 for the same, 1 for nothing in common.

    Counted where both sketches are complete: what both hold always lies there.
    """
    reach = min(one.reach, other.reach)
    common = len(one.hashes & other.hashes)
    total = bisect_right(one.ascending, reach) + bisect_right(other.ascending, reach) - common
    return 1.0 - common / total


@dataclass(frozen=True, slots=True)
class Diversity:
    """How varied a set of programs is."""

    cells: int
    """Occupied cells."""
    distance: float
    """Mean token distance over pairs of its different programs, in [0, 1]; 0 for fewer than two."""


def mean_distance(sources: Iterable[str]) -> float:
    """Mean distance over all pairs of the different sources; of more than COMPARED, over evenly spaced ones."""
    distinct = list(dict.fromkeys(sources))
    step = max(1.0, len(distinct) / COMPARED)
    chosen = [distinct[int(place * step)] for place in range(min(COMPARED, len(distinct)))]
    found = [distance(one, other) for one, other in combinations([sketch(source) for source in chosen], 2)]
    return sum(found) / len(found) if found else 0.0
