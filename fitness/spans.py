"""Stretches of memory, each as its first address and the one after its last."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

Span = tuple[int, int]


def merged(spans: Iterable[Span]) -> list[Span]:
    """In order, without overlaps, neighbours joined, empty ones left out."""
    found: list[Span] = []
    for start, end in sorted(spans):
        if start == end:
            continue
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((start, end))
    return found


def common_bytes(left: Sequence[Span], right: Sequence[Span]) -> int:
    """How many bytes lie in both; each as `merged` gives it."""
    total = mine = other = 0
    while mine < len(left) and other < len(right):
        (start, end), (first, last) = left[mine], right[other]
        total += max(0, min(end, last) - max(start, first))
        if end < last:
            mine += 1
        else:
            other += 1
    return total


def new_share(spans: Sequence[Span], earlier: Sequence[Span]) -> float:
    """The part of the first that does not lie in the second; each as `merged` gives it. 0 for nothing."""
    nbytes = sum(end - start for start, end in spans)
    return 1 - common_bytes(spans, earlier) / nbytes if nbytes else 0.0
