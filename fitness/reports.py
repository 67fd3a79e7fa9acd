"""What a build says of itself: routes, and what its kernels use. Written by the build child, so it may be made up.

It goes into features and prompts, bounded, and never decides.
"""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from typing import Any

from fitness.backends import cuda
from fitness.wire import printable

FILE_BYTES = 8_000
"""Of a file that a build wrote, so much is read."""
MOST_EXTENSIONS = 64
"""Extensions of one build whose reports are read."""
MOST_ROUTE, MOST_REASON = 20, 300
"""Characters of a route's name, and of why it was taken."""

_COUNTS = (
    "binary_bytes",
    "vector_bits",
    "kernels",
    "registers",
    "spill_bytes",
    "shared_bytes",
    "num_warps",
    "num_stages",
)
_RESOURCES = ("registers", "spill_bytes", "shared_bytes")


def features_of(products: Path) -> dict[str, Any]:
    """What a build's binaries are like, as Artifact.features names it."""
    said = _read_json(products / "features.json")
    counts = {name: said[name] for name in _COUNTS if _is_count(said.get(name))}
    return counts | _kernels(products) | how_built(products)


def how_built(products: Path) -> dict[str, Any]:
    """`build_routes`, and as `build_fallbacks` those that were taken for want of a quicker one with the reason, such as
    `full: uses torch::nn`; empty where nothing was compiled."""
    said = [(report.get("route"), report.get("fallback_reason")) for report in _reports(products)]
    fallbacks = [
        f"{printable(route, MOST_ROUTE)}: {printable(reason, MOST_REASON)}"
        for route, reason in said
        if isinstance(route, str) and isinstance(reason, str) and reason
    ]
    found = {"build_routes": list(routes_of(products)), "build_fallbacks": fallbacks}
    return {name: value for name, value in found.items() if value}


def routes_of(products: Path) -> tuple[str, ...]:
    """How each extension of a build was compiled, as the build itself says."""
    return tuple(printable(str(said["route"]), MOST_ROUTE) for said in _reports(products) if "route" in said)


def _kernels(products: Path) -> dict[str, Any]:
    """What the compiled kernels use, from the compiler's report as the build kept it; empty without kernels."""
    said = [report.get("kernels") for report in _reports(products)]
    entries = [entry for kernels in said if isinstance(kernels, list) for entry in kernels]
    rows = [[entry.get(name) for name in _RESOURCES] for entry in entries if isinstance(entry, dict)]
    rows = [row for row in rows if all(map(_is_count, row))]
    if not rows:
        return {}
    greatest = dict(zip(_RESOURCES, (max(column) for column in zip(*rows, strict=True)), strict=True))
    return {"kernels": len(rows), **greatest, "kernel_resources": rows[: cuda.KERNEL_LIMIT]}


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < 1 << 40


def _reports(products: Path) -> list[dict[str, Any]]:
    """What was said of each extension, in an order that stays."""
    return [_read_json(path) for path in sorted(products.glob("*/build.json"))[:MOST_EXTENSIONS]]


def _read_json(path: Path) -> dict[str, Any]:
    """The object in a small file that untrusted code wrote; empty when there is none."""
    with contextlib.suppress(ValueError, RecursionError):
        said = json.loads(read_capped(path))
        return said if isinstance(said, dict) else {}
    return {}


def read_capped(path: Path) -> str:
    """The beginning of a file that untrusted code wrote; empty when it is not a plain file."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return ""
    with open(descriptor, "rb") as file:
        return file.read(FILE_BYTES).decode(errors="replace")
