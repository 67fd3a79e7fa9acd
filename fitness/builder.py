"""Builds: a candidate's module is executed once in a sandboxed child, and what it compiles is kept by content hash."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import os
import shutil
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import version
from pathlib import Path

from fitness.children import Child, Zygote
from fitness.evaluation import Evaluation, Job, Verdict
from fitness.sandbox import ROOT, Policy, candidate_uid, state_dir

BUILD_MEMORY_BYTES = 6 << 30
BUILD_FILE_BYTES = 512 << 20
_ERROR_BYTES = 8_000
_KEPT_S = 14 * 86400
"""Builds not used for this long are removed when a builder starts."""

_counter = itertools.count()


@dataclass(frozen=True, slots=True)
class Artifact:
    """A built candidate, or why it could not be built."""

    folder: str
    compile_s: float
    routes: tuple[str, ...] = ()
    """How each extension was compiled: lean, slim, full (fitness/inline.py)."""
    features: dict[str, int] = field(default_factory=dict)
    """What its binaries are like: binary_bytes, vector_bits. Said by the build itself: for niches, not for scores."""
    failure: Evaluation | None = None


class Builder:
    """Builds candidates, several at once, from any thread."""

    def __init__(self, zygote: Zygote, *, fenced: bool) -> None:
        self._zygote, self._fenced = zygote, fenced
        self._root = state_dir() / "builds"
        self._root.mkdir(mode=0o711, exist_ok=True)
        self._keys: dict[str, threading.Lock] = {}
        self._guard = threading.Lock()
        self._running = threading.Event()
        self._running.set()
        self._paused_s = 0.0
        self._sweep()

    def build(self, job: Job) -> Artifact:
        """The artifact of a job's source, from the cache where it was built before."""
        key = self._key(job)
        with self._guard:
            lock = self._keys.setdefault(key, threading.Lock())
        with lock:
            folder = self._root / key
            if (folder / "complete").exists():
                os.utime(folder)
                return _artifact(folder, 0.0)
            self._running.wait()
            return self._build_new(job, folder)

    @contextlib.contextmanager
    def standing_still(self) -> Iterator[None]:
        """Stops every build in progress and lets none start: for the timed rounds on the same CPUs."""
        started = time.monotonic()
        self._running.clear()
        children = self._zygote.living()
        for child in children:
            child.freeze(0.2)
        try:
            yield
        finally:
            for child in children:
                child.thaw()
            self._paused_s += time.monotonic() - started
            self._running.set()

    def _build_new(self, job: Job, folder: Path) -> Artifact:
        work = self._root / f"{folder.name[:12]}.{os.getpid()}.{next(_counter)}.tmp"
        policy = self._prepare(work, job)
        spec = {
            "source_path": str(work / "candidate.py"),
            "problem_path": str(work / "problem.py"),
            "products_dir": str(work / "products"),
            "backend": job.backend,
            "arch": job.arch,
            "device": job.device,
        }
        started, paused = time.monotonic(), self._paused_s
        child = self._zygote.spawn("build", spec, policy)
        try:
            failure = self._supervise(child, job)
            child.kill()
            spent = time.monotonic() - started - (self._paused_s - paused)
            if failure is None:
                failure = self._failure(child, work)
            if failure is not None:
                verdict, reason = failure
                evaluation = Evaluation(
                    verdict, reason, job.problem, job.backend, job.source_sha256, compile_s=spent, log=child.log()
                )
                return Artifact("", spent, _routes(work / "products"), failure=evaluation)
            _take_over(work)
            (work / "complete").touch()
            with contextlib.suppress(OSError):  # another process built the same source meanwhile
                os.rename(work, folder)
            return _artifact(folder, spent)
        finally:
            child.discard()
            shutil.rmtree(work, ignore_errors=True)

    def _prepare(self, work: Path, job: Job) -> Policy:
        (work / "products").mkdir(parents=True)
        (work / "home").mkdir()
        (work / "candidate.py").write_text(job.source)
        (work / "problem.py").write_text(job.problem_source)
        uid = candidate_uid(next(_counter) + os.getpid() * 64) if self._fenced else None
        if uid is not None:
            for path in (work, work / "products", work / "home"):
                os.chown(path, uid, uid)
        return Policy(str(work), processes=True, uid=uid, file_bytes=BUILD_FILE_BYTES, fenced=self._fenced)

    def _supervise(self, child: Child, job: Job) -> tuple[Verdict, str] | None:
        started, paused = time.monotonic(), self._paused_s
        while not child.ended.wait(0.05):
            if not self._running.is_set():
                continue
            if time.monotonic() - started - (self._paused_s - paused) > job.build_timeout_s:
                return Verdict.TIMEOUT, f"the build took longer than {job.build_timeout_s:g} s"
            held = child.group_bytes()
            if held > BUILD_MEMORY_BYTES:
                allowed = BUILD_MEMORY_BYTES >> 20
                return Verdict.OUT_OF_MEMORY, f"the build held {held >> 20} MiB, allowed are {allowed} MiB"
        return None

    def _failure(self, child: Child, work: Path) -> tuple[Verdict, str] | None:
        message = _read_capped(work / "products" / "compile_error.txt")
        if child.status == 0:
            return None
        if message:
            return Verdict.COMPILE_ERROR, f"the compiler refuses it: {_first_error(message)}"
        lines = child.log().strip().splitlines()
        why = lines[-1] if lines else "it printed nothing"
        return Verdict.LOAD_ERROR, f"its module {child.death()} while it was executed for the build: {why}"

    def _key(self, job: Job) -> str:
        digest = hashlib.sha256()
        for part in (job.source, job.problem_source, version("torch"), os.environ.get("CXX", "g++"), build_rules()):
            digest.update(part.encode() + b"\0")
        return digest.hexdigest()

    def _sweep(self) -> None:
        """Removes what killed builders left behind, and builds that nobody used for two weeks."""
        for path in self._root.iterdir():
            parts = path.name.split(".")
            left_behind = len(parts) == 4 and parts[-1] == "tmp" and not _is_alive(int(parts[1]))
            with contextlib.suppress(OSError):
                if left_behind or time.time() - path.stat().st_mtime > _KEPT_S:
                    shutil.rmtree(path, ignore_errors=True)


@cache
def build_rules() -> str:
    """Hex digest over how extensions are compiled: builds made by other rules are not reused."""
    digest = hashlib.sha256()
    for path in sorted([ROOT / "fitness" / "inline.py", *(ROOT / "fitness" / "slim").rglob("*")]):
        if path.is_file():
            digest.update(path.read_bytes())
    return digest.hexdigest()


def _is_alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def _take_over(work: Path) -> None:
    """What the candidate's user wrote becomes ours and read-only to it; links and pipes are dropped."""
    for folder, _, names in os.walk(work):
        os.chown(folder, os.getuid(), os.getgid(), follow_symlinks=False)
        os.chmod(folder, 0o755)
        for name in names:
            path = Path(folder) / name
            if path.is_symlink() or not path.is_file():
                path.unlink()
                continue
            os.chown(path, os.getuid(), os.getgid(), follow_symlinks=False)
            os.chmod(path, 0o755)


def _artifact(folder: Path, compile_s: float) -> Artifact:
    products = folder / "products"
    features: dict[str, int] = {}
    with contextlib.suppress(ValueError, AttributeError):
        said = json.loads(_read_capped(products / "features.json"))
        features = {name: said[name] for name in ("binary_bytes", "vector_bits") if type(said.get(name)) is int}
    return Artifact(str(folder), compile_s, _routes(products), features)


def _routes(products: Path) -> tuple[str, ...]:
    routes = []
    for path in sorted(products.glob("*/build.json")):
        with contextlib.suppress(ValueError, KeyError, TypeError):
            routes.append(str(json.loads(_read_capped(path))["route"])[:20])
    return tuple(routes)


def _read_capped(path: Path) -> str:
    """The beginning of a file that untrusted code wrote; empty when it is not a plain file."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return ""
    with open(descriptor, "rb") as file:
        return file.read(_ERROR_BYTES).decode(errors="replace")


def _first_error(message: str) -> str:
    """The compiler's first line that says error, else its first line."""
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    return next((line for line in lines if "error" in line.lower()), lines[0] if lines else "no message")[:300]
