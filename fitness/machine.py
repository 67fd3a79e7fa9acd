"""The machine that the judge runs on: one lock per device, its caches, its name, the judge's own identity."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import platform
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from fitness.sandbox import ROOT, state_dir


@contextlib.contextmanager
def device_lock(device: str) -> Iterator[None]:
    """One measurement at a time per device, also across processes of this user."""
    descriptor = os.open(
        state_dir() / f"device-{device.replace(':', '-')}.lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600
    )
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def cache_bytes() -> int:
    """The last-level cache of CPU 0; 32 MiB where the kernel does not say."""
    sizes = [32 << 20]
    for path in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        text = path.read_text().strip()
        sizes.append(int(text[:-1]) << {"K": 10, "M": 20}.get(text[-1], 0))
    return max(sizes[1:], default=sizes[0])


@cache
def device_name(device: str = "cpu") -> str:
    """`AMD EPYC, 2 CPUs` or `NVIDIA H200`."""
    if device != "cpu":
        import torch

        return torch.cuda.get_device_name(device)
    with open("/proc/cpuinfo") as info:
        names = [line.split(":", 1)[1].strip() for line in info if line.startswith("model name")]
    return f"{names[0] if names else platform.machine()}, {len(os.sched_getaffinity(0))} CPUs"


@cache
def judge_sha256() -> str:
    """Hex digest over the sources of the judge itself: which judge said so."""
    digest = hashlib.sha256()
    for path in sorted((ROOT / "fitness").rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()
