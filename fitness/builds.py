"""Kept builds: folders named by content hash, sealed with a manifest, one builder per key over all processes."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import threading
import time
from collections import deque
from collections.abc import Iterator
from functools import cache
from importlib.metadata import version
from pathlib import Path

from fitness import quota
from fitness.backends import cuda
from fitness.sandbox import ROOT

SEAL = "complete"
DAY_S = 86_400
_KEPT_S = 14 * DAY_S
"""Builds not used for this long are removed when a builder starts."""
MOST_BYTES = 4 << 30
"""All builds together, about 50,000 small ones: beyond it those go that were used longest ago."""
IN_USE_S = 3600
"""A build that was used so lately may be about to be measured, in this process or another, and stays."""
TRIM_EVERY = 1_000
"""New builds of one builder after which it looks at the size of all."""


class Pool:
    """Places for builds: as many at once as there are cores, and as their expected memory allows. First come, first."""

    def __init__(self, cores: int, memory_bytes: int) -> None:
        self._cores, self._memory_bytes = max(cores, 1), memory_bytes
        self._running: list[int] = []
        self._waiting: deque[object] = deque()
        self._changed = threading.Condition()

    @contextlib.contextmanager
    def place(self, memory_bytes: int) -> Iterator[None]:
        """Holds a place for a build that may need so much memory; a single build always gets one."""
        ticket = object()
        with self._changed:
            self._waiting.append(ticket)
            self._changed.wait_for(lambda: self._waiting[0] is ticket and self._fits(memory_bytes))
            self._waiting.popleft()
            self._running.append(memory_bytes)
            self._changed.notify_all()
        try:
            yield
        finally:
            with self._changed:
                self._running.remove(memory_bytes)
                self._changed.notify_all()

    def _fits(self, memory_bytes: int) -> bool:
        if not self._running:
            return True
        return len(self._running) < self._cores and sum(self._running) + memory_bytes <= self._memory_bytes


@contextlib.contextmanager
def lock(root: Path, key: str) -> Iterator[None]:
    """One builder per key, also across processes; the kernel drops the lock of a process that dies."""
    folder = root / "locks"
    folder.mkdir(mode=0o700, exist_ok=True)
    descriptor = os.open(folder / key, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def seal(folder: Path) -> None:
    """Writes down what the folder holds; from then on `is_whole` says whether it still does."""
    manifest = {str(path.relative_to(folder)): _digest(path) for path in sorted(folder.rglob("*")) if path.is_file()}
    (folder / SEAL).write_text(json.dumps(manifest))


def is_whole(folder: Path) -> bool:
    """Whether a sealed folder holds every file as it was sealed. A folder without a seal is not whole."""
    try:
        manifest = json.loads((folder / SEAL).read_text())
        return all(_digest(folder / name) == digest for name, digest in manifest.items())
    except (OSError, ValueError, AttributeError):
        return False


def sweep(root: Path) -> None:
    """Removes what killed builders left behind, and builds that nobody used for two weeks."""
    for path in [*root.iterdir(), *(root / "locks").glob("*")]:
        parts = path.name.split(".")
        left_behind = len(parts) == 4 and parts[-1] == "tmp" and not Path("/proc", parts[1]).exists()
        with contextlib.suppress(OSError):
            old = path.name != "locks" and time.time() - path.stat().st_mtime > _KEPT_S
            if left_behind or old:
                path.unlink() if path.is_file() else quota.remove(path)


def trim_daily(root: Path) -> None:
    """`trim`, unless somebody has done it within a day: looking at 50,000 builds takes a second."""
    mark = root / "trimmed"
    if not mark.exists() or time.time() - mark.stat().st_mtime > DAY_S:
        trim(root)


def trim(root: Path, most_bytes: int = MOST_BYTES) -> None:
    """Removes the builds used longest ago until the others take no more than `most_bytes` on the disk."""
    (root / "trimmed").touch()
    used: dict[Path, float] = {}
    for seal_path in root.glob(f"*/{SEAL}"):
        with contextlib.suppress(FileNotFoundError):  # another process trims too
            used[seal_path.parent] = seal_path.parent.stat().st_mtime
    total = 0
    for folder in sorted(used, key=lambda path: -used[path]):
        with contextlib.suppress(FileNotFoundError):
            total += _disk_bytes(folder)
            if total > most_bytes and time.time() - used[folder] > IN_USE_S:
                _remove_unless_used(root, folder, used[folder])


def _remove_unless_used(root: Path, folder: Path, since: float) -> None:
    with lock(root, folder.name):
        if folder.stat().st_mtime == since:
            quota.remove(folder)


def _disk_bytes(folder: Path) -> int:
    return sum(path.lstat().st_blocks * 512 for path in (folder, *folder.rglob("*")))


def compilers(backend: str) -> list[str]:
    """Which compilers a build would use: where they lie and which build of them that is."""
    found = [os.environ.get("CXX", ""), os.environ.get("CC", ""), _identity(shutil.which("g++"))]
    if backend == "cuda":
        kit = cuda.find_toolkit()
        found.append(_identity(kit.nvcc) if kit is not None else "no nvcc")
    return found


def _identity(program: str | Path | None) -> str:
    if program is None:
        return "none"
    found = Path(program).resolve().stat()
    return f"{program} {found.st_size} {found.st_mtime_ns}"


def installed(package: str) -> str:
    """A package's version, or "none"."""
    with contextlib.suppress(ImportError):
        return version(package)
    return "none"


@cache
def rules() -> str:
    """Hex digest over how extensions are compiled: builds made by other rules are not reused."""
    digest = hashlib.sha256()
    folder = ROOT / "fitness"
    for path in sorted(
        [
            folder / "builder.py",
            folder / "inline.py",
            *(folder / "backends").glob("*.py"),
            *(folder / "slim").rglob("*"),
        ]
    ):
        if path.is_file():
            digest.update(path.read_bytes())
    return digest.hexdigest()


def _digest(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
