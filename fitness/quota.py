"""What an untrusted child takes of the machine, looked at from outside: memory, disk, files, tasks.

Resource limits bound one file or one process; only looking bounds their sum. All of this is polled: what grows faster
than the poll is bounded by the speed of the kernel, about 10 GiB of fresh memory per second and CPU core.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fitness.evaluation import JudgeError, Verdict

if TYPE_CHECKING:
    from fitness.children import Child

_DEEPEST = 64
"""Folders nested deeper than this are not looked into: they count as too many files."""
LEAST_MEMORY_BYTES = 512 << 20
LEAST_DISK_BYTES, LEAST_FILES = 64 << 20, 1_000
"""With less left on the machine nothing that fails is the candidate's fault."""


@dataclass(frozen=True, slots=True)
class Quota:
    """What one child and all that it starts may hold at once."""

    memory_bytes: int
    disk_bytes: int = 256 << 20
    files: int = 2_000
    tasks: int = 1_024
    """Processes and threads."""


BUILD_QUOTA = Quota(memory_bytes=6 << 30, disk_bytes=2 << 30, files=20_000, tasks=1_024)
"""One nvcc with torch's headers: about 3 GB of memory, 100 MB of files."""


@dataclass(frozen=True, slots=True)
class Usage:
    """What a child holds."""

    memory_bytes: int
    disk_bytes: int
    files: int
    tasks: int


class Watch:
    """One child and its quota, from its start on."""

    def __init__(self, child: Child, quota: Quota, *, whole_group: bool) -> None:
        """`whole_group` also counts the processes that it starts (builds)."""
        self._child, self._quota, self._whole_group = child, quota, whole_group
        self._shared_before = _shared_bytes()

    def excess(self) -> tuple[Verdict, str] | None:
        """What of its quota the child has overrun: a verdict and the rest of a sentence about it; None when nothing.

        When the machine's own memory runs short, which may be anybody's fault, the verdict is NO_VERDICT.
        """
        used, quota = self.usage(), self._quota
        if used.memory_bytes > quota.memory_bytes:
            words = f"held {used.memory_bytes >> 20} MiB, allowed are {quota.memory_bytes >> 20} MiB"
            return Verdict.OUT_OF_MEMORY, words
        if used.disk_bytes > quota.disk_bytes:
            words = f"wrote {used.disk_bytes >> 20} MiB to disk, allowed are {quota.disk_bytes >> 20} MiB"
            return Verdict.RUNTIME_ERROR, words
        if used.files > quota.files:
            return Verdict.RUNTIME_ERROR, f"made more than {quota.files} files, or folders too deep to look into"
        if used.tasks > quota.tasks:
            return Verdict.RUNTIME_ERROR, f"started {used.tasks} threads and processes, allowed are {quota.tasks}"
        return self._shortage()

    def usage(self) -> Usage:
        """What the child holds now. Files are counted up to just above the quota."""
        members = _group(self._child.pid) if self._whole_group else [self._child.pid]
        memory = written = tasks = 0
        for pid in members:
            fields = _fields(f"/proc/{pid}/status", ("VmRSS", "VmPTE", "Threads"))
            memory += (fields["VmRSS"] + fields["VmPTE"]) << 10
            tasks += fields["Threads"]
            dirtied = _fields(f"/proc/{pid}/io", ("write_bytes", "cancelled_write_bytes"))
            written += max(0, dirtied["write_bytes"] - dirtied["cancelled_write_bytes"])
        stored, files = tree(self._child.private_dir, self._quota.files)
        return Usage(memory, max(stored, written), files, tasks)

    def _shortage(self) -> tuple[Verdict, str] | None:
        shared = _shared_bytes() - self._shared_before
        if shared > self._quota.memory_bytes:
            words = f"was stopped after the machine's shared memory, perhaps by its doing, grew by {shared >> 20} MiB"
            return Verdict.NO_VERDICT, words
        left = memory_left_bytes()
        if left < LEAST_MEMORY_BYTES:
            return Verdict.NO_VERDICT, f"was stopped because the machine has only {left >> 20} MiB of memory left"
        return None


def memory_left_bytes() -> int:
    """Memory that the machine, or the cgroup v2 that we are in, can still give."""
    left = _fields("/proc/meminfo", ("MemAvailable",))["MemAvailable"] << 10
    with contextlib.suppress(OSError, ValueError):
        own = next(line for line in Path("/proc/self/cgroup").read_text().splitlines() if line.startswith("0::"))
        folder = Path("/sys/fs/cgroup") / own.removeprefix("0::").strip("/")
        if folder.joinpath("memory.max").exists() and (limit := folder.joinpath("memory.max").read_text()) != "max\n":
            cached = _fields(str(folder / "memory.stat"), ("inactive_file",))["inactive_file"]
            left = min(left, int(limit) - int(folder.joinpath("memory.current").read_text()) + cached)
    return left


def require_disk(folder: str | Path) -> None:
    """Raises JudgeError when the disk that holds `folder` is full: what fails there now is nobody's verdict."""
    left = os.statvfs(folder)
    free = left.f_bavail * left.f_frsize
    if free < LEAST_DISK_BYTES or (left.f_files and left.f_favail < LEAST_FILES):
        raise JudgeError(
            f"the disk under {folder} has only {free >> 20} MiB and {left.f_favail} files left; "
            "make room there, or set TMPDIR to a larger disk, and run the same command again"
        )


def remove(folder: str | Path) -> None:
    """Removes a folder that untrusted code wrote, however deep, long-named or unreadable what lies in it is.

    Every folder inside is first moved up to the top, so that no path becomes long. Missing is fine.
    """
    with contextlib.suppress(OSError, RecursionError):
        shutil.rmtree(folder)
        return
    with contextlib.suppress(FileNotFoundError):
        number = 0
        while inner := [entry.path for entry in os.scandir(folder) if entry.is_dir(follow_symlinks=False)]:
            for path in inner:
                number = _empty(path, str(folder), number)
        for entry in os.scandir(folder):
            os.unlink(entry.path)
        os.rmdir(folder)


def _empty(path: str, top: str, number: int) -> int:
    os.chmod(path, 0o700)
    for entry in os.scandir(path):
        if entry.is_dir(follow_symlinks=False):
            os.rename(entry.path, f"{top}/.kb-{os.getpid()}-{number}")
            number += 1
        else:
            os.unlink(entry.path)
    os.rmdir(path)
    return number


def _shared_bytes() -> int:
    """Shared memory of the whole machine: some kinds of it are resident in no process."""
    return _fields("/proc/meminfo", ("Shmem",))["Shmem"] << 10


def _group(pid: int) -> list[int]:
    """The processes of a process group."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(ProcessLookupError):
                if os.getpgid(int(name)) == pid:
                    found.append(int(name))
    return found


def _fields(path: str, names: tuple[str, ...]) -> dict[str, int]:
    """Numbers of a file of `name: number` or `name number` lines; 0 for what is not there."""
    found = dict.fromkeys(names, 0)
    with contextlib.suppress(OSError), open(path, "rb") as file:
        for line in file:
            name, *rest = line.decode(errors="replace").replace(":", " ").split()
            if name in found and rest:
                found[name] = int(rest[0])
    return found


def tree(folder: str, most_files: int) -> tuple[int, int]:
    """Bytes, holes included, and number of entries under a folder, the latter counted up to just above `most_files`."""
    stored = files = 0
    stack = [(folder, 0)]
    while stack and files <= most_files:
        path, depth = stack.pop()
        try:
            with os.scandir(path) as entries:
                for entry in entries:
                    files += 1
                    if files > most_files:
                        break
                    with contextlib.suppress(FileNotFoundError):
                        found = entry.stat(follow_symlinks=False)
                        stored += max(found.st_blocks * 512, found.st_size)  # holes too: whoever reads it reads them
                    if entry.is_dir(follow_symlinks=False):
                        stack.append((entry.path, depth + 1))
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError:  # unreadable, or its path is too long
            return stored, most_files + 1
        if depth > _DEEPEST:
            return stored, most_files + 1
    return stored, files
