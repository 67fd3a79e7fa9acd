"""One owner per run: who holds it, whether they still live, and the heartbeat that says so."""

from __future__ import annotations

import logging
import os
import secrets
import socket
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from islands.database import StoreError

if TYPE_CHECKING:
    from islands.store import Store

log = logging.getLogger(__name__)

STALE_S = 120.0
"""A heartbeat older than this, from a machine whose processes we cannot see, is a dead owner's."""

BEAT_EVERY_S = 15.0


@dataclass(frozen=True, slots=True)
class Owner:
    """A process that holds a run."""

    pid: int
    process_started: int
    """Clock ticks since boot, field 22 of /proc/PID/stat: tells a process from a later one of its pid."""
    place: str
    """Boot and pid namespace: where `pid` means something."""
    host: str
    token: str
    """Random, one per lease: the same process may hold the same run again later."""
    beat_at: float
    """Seconds since the epoch."""

    def lives(self, now: float, place: str) -> bool:
        """Seen from `place` at `now`: is the process there, or else its heartbeat young enough?"""
        if self.place == place:
            return process_started(self.pid) == self.process_started
        return now - self.beat_at < STALE_S


def this_process() -> Owner:
    """This process as an owner, with a fresh token."""
    pid = os.getpid()
    started = process_started(pid)
    return Owner(pid, started or 0, this_place(), socket.gethostname(), secrets.token_hex(8), time.time())


def this_place() -> str:
    """Boot id and pid namespace of this process; only the host's name where /proc does not say."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return socket.gethostname()


def process_started(pid: int) -> int | None:
    """Start of process `pid` in clock ticks since boot; None when it is dead, a zombie included.

    Where there is no /proc: 0 when a process of that pid exists.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return None if Path("/proc/self/stat").exists() else _exists(pid)
    state, *fields = stat.rpartition(")")[2].split()  # the command may hold spaces and parentheses
    return None if state in "ZXx" else int(fields[18])


def _exists(pid: int) -> int | None:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except PermissionError:
        return 0
    return 0


def held(run_id: str, path: Path, holder: Owner) -> str:
    """Why the run cannot be leased."""
    return (
        f"run {run_id} in {path} is held by process {holder.pid} on {holder.host}, which lives. Wait for it "
        f"to end, end it there, or name another run with --run. A dead owner's run is free at once on its "
        f"own machine, and after {STALE_S:.0f} s on another."
    )


def lost(run_id: str, path: Path, holder: Owner | None) -> str:
    """Why a process that had the lease may no longer write."""
    by = f"process {holder.pid} on {holder.host}" if holder else "nobody"
    return (
        f"this process no longer owns run {run_id} in {path}: its heartbeat was silent for more than "
        f"{STALE_S:.0f} s, and the run is now held by {by}. Nothing was written; run the same command later."
    )


class Lease:
    """Holds a run inside a `with` block; a background thread keeps its heartbeat young.

    Entering raises StoreError that names pid and host when another live process holds the run.
    """

    def __init__(self, store: Store, run_id: str, beat_every_s: float = BEAT_EVERY_S) -> None:
        self._store = store
        self._run_id = run_id
        self._beat_every_s = beat_every_s
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._keep_beating, name=f"lease {run_id}", daemon=True)

    def __enter__(self) -> Self:
        self._store.take_lease(self._run_id, this_process())
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()
        try:
            self._store.release_lease(self._run_id)
        except StoreError as failure:  # must not hide the block's own exception; a dead owner's lease is free anyway
            log.warning("lease not released", extra={"run": self._run_id, "error": str(failure)})

    def beat(self) -> None:
        """Says that the owner lives. StoreError when another process has taken the run over."""
        self._store.beat_lease(self._run_id)

    def _keep_beating(self) -> None:
        while not self._stop.wait(self._beat_every_s):
            try:
                self.beat()
            except StoreError as error:
                log.warning("heartbeat failed", extra={"run": self._run_id, "error": str(error)})
