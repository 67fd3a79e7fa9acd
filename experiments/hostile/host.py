"""The machine around the judge, watched: what a hostile candidate reached, and what it left behind."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from experiments.hostile import cases
from experiments.hostile.cases import Case
from fitness import quota
from fitness.evaluation import Evaluation, Job
from fitness.sandbox import live_dir, state_dir
from fitness.workbench import Workbench

LEFTOVER_S = 1.0
"""After this time nothing of a judged candidate may be there any more."""
CAPS = {
    "memory_cap": 2 << 30,
    "disk_cap": 2 << 30,
    "file_cap": 100_000,
    "thread_cap": 4_000,
    "depth_cap": 1_200,
    "output_cap": 10 << 30,
}
BUILD_QUOTA = quota.Quota(memory_bytes=1 << 30, disk_bytes=1 << 28, files=2_000)
"""Smaller than usual, so that the suite does not need the whole machine."""
LIMITS: dict[str, Any] = {"timeout_s": 3.0, "build_timeout_s": 6.0, "memory_bytes": 1 << 29}
CERTAIN_MS = 1e-6
"""An incumbent this fast: honest candidates are judged by the checks and a first look alone."""


@dataclass(slots=True)
class Outcome:
    """One strike, judged."""

    strike: str
    mode: str
    verdict: str
    reason: str
    wall_s: float
    findings: list[str] = field(default_factory=list)
    """What was not refused, not contained, or left behind; empty: the strike failed."""
    memory_mib: int = 0
    """Most memory of the machine that was gone meanwhile, other programs' included."""
    disk_mib: int = 0
    honest_verdict: str = ""
    """What the next, harmless candidate got."""


class Host:
    """Bait and witnesses around one workbench. Use as a context manager."""

    def __init__(self, workbench: Workbench, device: str = "cpu", backend: str = "cpp") -> None:
        self._bench, self._where = workbench, {"device": device, "backend": backend}
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Host:
        folder = self._stack.enter_context(tempfile.TemporaryDirectory(prefix="bait-"))
        self._canary = Path(folder) / "secret"
        self._secret = secrets.token_hex(16)
        self._stack.callback(setattr, quota, "BUILD_QUOTA", quota.BUILD_QUOTA)
        quota.BUILD_QUOTA = BUILD_QUOTA
        self._canary.write_text(self._secret)
        self._canary.chmod(0o600)
        os.environ["KB_HOST_CANARY"] = self._secret
        self._stack.callback(os.environ.pop, "KB_HOST_CANARY")
        self._listeners = [self._stack.enter_context(one) for one in _listen(folder)]
        self._before = self._canary.stat()
        self.honest("warm")
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def honest(self, tag: str) -> Evaluation:
        """A harmless candidate, judged until the first look at its time."""
        return self._judge(cases.honest(f"{tag} {time.time_ns()}"))

    def strike(self, case: Case, mode: str) -> Outcome:
        """Judges the hostile candidate and looks at everything that it could have reached."""
        before, folders = _processes(), _private_folders()
        source = cases.source(case, mode, self._spec())
        with _watching(before) as seen:
            started = time.monotonic()
            found = self._judge(source)
            spent = time.monotonic() - started
        outcome = Outcome(case.strike, mode, str(found.verdict), found.reason, round(spent, 2))
        outcome.memory_mib, outcome.disk_mib = seen.memory_bytes >> 20, seen.disk_bytes >> 20
        if found.verdict not in case.verdicts(mode):
            outcome.findings.append(f"verdict {found.verdict}, expected {' or '.join(sorted(case.verdicts(mode)))}")
        if "BREACH" in found.reason + found.log:
            outcome.findings.append(found.reason)
        limit_s = LIMITS["timeout_s"] + LIMITS["build_timeout_s"] + 5
        if spent > limit_s:
            outcome.findings.append(f"the verdict took {spent:.1f} s, allowed are {limit_s:g} s")
        outcome.findings += self._damage(found) + _left_behind(seen.pids, folders)
        honest = self.honest("after")
        outcome.honest_verdict = str(honest.verdict)
        if not honest.is_correct:
            outcome.findings.append(f"the next candidate, a harmless one, is {honest.verdict}: {honest.reason}")
        return outcome

    def _judge(self, source: str) -> Evaluation:
        job = Job("tanh", cases.PROBLEM, source, incumbent_ms=CERTAIN_MS, **LIMITS, **self._where)
        for _ in range(3):  # as the search does: a machine may be busy for a while
            found = self._bench.evaluate(job)
            if found.verdict != "no_verdict" or "was stopped" in found.reason:
                break
        return found

    def _spec(self) -> dict[str, Any]:
        return {
            **CAPS,
            "canary": str(self._canary),
            "variable": self._secret,
            "home": str(Path.home()),
            "builds": str(state_dir() / "builds"),
            "others": [os.getpid(), *_trusted()],
            "port": self._listeners[0].getsockname()[1],
            "socket_path": self._listeners[1].getsockname(),
            "abstract": self._listeners[2].getsockname()[1:].decode(),
        }

    def _damage(self, found: Evaluation) -> list[str]:
        damage = []
        if self._secret in found.reason + found.log:
            damage.append("the secret stands in the candidate's own words")
        try:
            now = self._canary.stat()
            same = (now.st_mode, now.st_uid, now.st_mtime_ns) == (
                self._before.st_mode,
                self._before.st_uid,
                self._before.st_mtime_ns,
            )
            if not same or self._canary.read_text() != self._secret:
                damage.append("the user's file was changed")
        except FileNotFoundError:
            damage.append("the user's file is gone")
        for listener in self._listeners:
            with contextlib.suppress(BlockingIOError):
                (listener.accept if listener.type != socket.SOCK_DGRAM else lambda: listener.recv(1))()  # noqa: B023
                damage.append(f"something reached {listener.getsockname()!r}")
        folders = (Path.home(), Path("/tmp"), Path("/dev/shm"), Path("/var/tmp"), state_dir() / "builds")
        torch = sys.modules.get("torch")
        folders += (Path(torch.__file__).parent,) if torch is not None and torch.__file__ else ()
        damage += [f"{path} was left" for folder in folders for path in folder.glob("kb-hostile*")]
        return damage


def _listen(folder: str) -> list[socket.socket]:
    """Sockets of the user's that nothing in a sandbox may reach; none blocks."""
    made = []
    for family, kind, address in (
        (socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", 0)),
        (socket.AF_UNIX, socket.SOCK_STREAM, f"{folder}/socket"),
        (socket.AF_UNIX, socket.SOCK_STREAM, b"\0kb-" + secrets.token_hex(8).encode()),
        (socket.AF_UNIX, socket.SOCK_DGRAM, f"{folder}/socket.dgram"),
    ):
        one = socket.socket(family, kind)
        one.bind(address)
        if kind == socket.SOCK_STREAM:
            one.listen()
        one.setblocking(False)
        made.append(one)
    os.chmod(folder, 0o711)
    for name in ("socket", "socket.dgram"):
        os.chmod(f"{folder}/{name}", 0o777)
    return made


@dataclass(slots=True)
class _Seen:
    pids: set[int] = field(default_factory=set)
    memory_bytes: int = 0
    disk_bytes: int = 0


@contextlib.contextmanager
def _watching(before: dict[int, tuple[int, int, str]]) -> Iterator[_Seen]:
    """Notes every child of our zygotes, and how much of the machine goes."""
    seen, done = _Seen(), threading.Event()
    memory, disk = _available(), os.statvfs(live_dir())

    def watch() -> None:
        while not done.wait(0.02):
            now = _processes()
            zygotes = set(_trusted(now))
            seen.pids |= {pid for pid, (parent, _, _) in now.items() if parent in zygotes and pid not in before}
            seen.pids -= zygotes
            left = os.statvfs(live_dir())
            seen.memory_bytes = max(seen.memory_bytes, memory - _available())
            seen.disk_bytes = max(seen.disk_bytes, (disk.f_bavail - left.f_bavail) * disk.f_frsize)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield seen
    finally:
        done.set()
        thread.join()


def _left_behind(pids: set[int], folders: set[Path]) -> list[str]:
    """What still runs, or lies unreaped, LEFTOVER_S after the verdict; returns as soon as nothing does."""
    deadline = time.monotonic() + LEFTOVER_S
    while True:
        left = [
            f"process {pid} ({state}) is still there"
            for pid, (_, session, state) in _processes().items()
            if pid in pids or session in pids
        ]
        left += [f"{path} is still there" for path in _private_folders() - folders]
        segments = Path("/proc/sysvipc/shm").read_text().splitlines()[1:]
        left += ["a shared memory segment is still there" for line in segments if int(line.split()[4]) in pids]
        if not left or time.monotonic() > deadline:
            return left
        time.sleep(0.02)


def _private_folders() -> set[Path]:
    """What our judge's and our own children write in."""
    ours = [os.getpid(), *_trusted()]
    found = {path for pid in ours for path in state_dir().glob(f"live-{pid}/run-*")}
    return found | set((state_dir() / "builds").glob(f"*.{os.getpid()}.*.tmp"))


def _processes() -> dict[int, tuple[int, int, str]]:
    """pid: (parent, session, state), proc(5)."""
    found = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError):
                stat = Path("/proc", name, "stat").read_text()
                state, parent, _, session = stat[stat.rindex(")") + 2 :].split()[:4]
                found[int(name)] = (int(parent), int(session), state)
    return found


def _trusted(processes: dict[int, tuple[int, int, str]] | None = None) -> list[int]:
    """Our judge and the zygotes below us: programs of fitness whose parent is us or our judge."""
    now = processes or _processes()
    ours = [os.getpid()]
    for wanted in ("fitness.judge", "fitness.zygote"):
        for pid, (parent, _, _) in now.items():
            if parent in ours and pid not in ours:
                with contextlib.suppress(OSError):
                    words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
                    if wanted.encode() in words and not _is_child_of_zygote(parent):
                        ours.append(pid)
    return ours[1:]


def _is_child_of_zygote(parent: int) -> bool:
    with contextlib.suppress(OSError):
        return b"fitness.zygote" in Path(f"/proc/{parent}/cmdline").read_bytes().split(b"\0")
    return False


def _available() -> int:
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable"):
            return int(line.split()[1]) << 10
    return 0


def to_json(outcomes: list[Outcome]) -> list[dict[str, Any]]:
    """Plain values, one row per strike."""
    return json.loads(json.dumps([{name: getattr(o, name) for name in Outcome.__slots__} for o in outcomes]))
