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

FILE_BYTES = 8_000
"""Of a file that a build wrote, so much is read."""

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
    said = read_json(products / "features.json")
    return {name: said[name] for name in _COUNTS if _is_count(said.get(name))} | _kernels(products)


def routes_of(products: Path) -> tuple[str, ...]:
    """How each extension of a build was compiled, as the build itself says."""
    routes = []
    for path in sorted(products.glob("*/build.json")):
        with contextlib.suppress(ValueError, KeyError, TypeError):
            routes.append(str(read_json(path)["route"])[:20])
    return tuple(routes)


def _kernels(products: Path) -> dict[str, Any]:
    """What the compiled kernels use, from the compiler's report as the build kept it; empty without kernels."""
    reports = [read_json(path).get("kernels") for path in sorted(products.glob("*/build.json"))]
    entries = [entry for report in reports if isinstance(report, list) for entry in report]
    rows = [[entry.get(name) for name in _RESOURCES] for entry in entries if isinstance(entry, dict)]
    rows = [row for row in rows if all(map(_is_count, row))]
    if not rows:
        return {}
    greatest = dict(zip(_RESOURCES, (max(column) for column in zip(*rows, strict=True)), strict=True))
    return {"kernels": len(rows), **greatest, "kernel_resources": rows[: cuda.KERNEL_LIMIT]}


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < 1 << 40


def read_json(path: Path) -> dict[str, Any]:
    """The object in a small file that untrusted code wrote; empty when there is none."""
    with contextlib.suppress(ValueError):
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
