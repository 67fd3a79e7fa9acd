"""Builds: a candidate's module is executed once in a sandboxed child, and what it compiles is kept by content hash."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import hashlib
import itertools
import json
import os
import re
import shutil
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

from fitness import builds, quota, reports
from fitness.backends import cuda
from fitness.builds import Pool
from fitness.children import Child, Zygote
from fitness.evaluation import SEE_DOCTOR, Evaluation, Job, JudgeError, Verdict
from fitness.sandbox import Policy, candidate_uid, state_dir

BUILD_FILE_BYTES = 512 << 20
EXPECTED_BYTES = {"cuda": 3 << 30, "cpp": 1 << 30, "triton": 1 << 30}
"""Memory that a build may come to need: nvcc with torch's own headers takes 3 GB."""

_LINE_CHARS = 400
_POLL_S = 0.1
_OWN_DISK_BYTES, _OWN_FILES = 512 << 20, 20_000
"""A build that wrote more than this may have filled the disk itself."""

_NOT_ITS_FAULT = re.compile(
    r"Killed|signal \d|terminated program|No space left|Cannot allocate|memory exhausted|out of memory|cannot fork"
    r"|Resource temporarily|Too many open files|File size limit|No such file or directory"
)
"""Said by compilers where this machine failed: such a failure is not kept for the next time."""

_PLACE = re.compile(r'candidate\.py", line (\d+)')
"""Where in a traceback the candidate's own line stands."""

_counter = itertools.count()


@dataclass(frozen=True, slots=True)
class Artifact:
    """A built candidate, or why it could not be built."""

    folder: str
    compile_s: float
    routes: tuple[str, ...] = ()
    """How each extension was compiled: lean, slim, full (fitness/inline.py); triton, triton-jit."""
    features: dict[str, Any] = field(default_factory=dict)
    """What its binaries are like, in whole numbers: binary_bytes, vector_bits; for GPU code kernels (how many), and the
    greatest registers, spill_bytes and shared_bytes of all; kernel_resources has these three of each of the first 16.
    How they came about: build_routes, and build_fallbacks where a quicker route could not build one. Said by the build
    itself: for niches and prompts, not for scores."""
    failure: Evaluation | None = None


NICENESS = 10
"""Of builds: what launches kernels on a GPU at the same time goes first."""
MEASURING_CORES = 4
"""Left free where builds go on during timed rounds: for the judge, two runners and the problem's process."""


class Builder:
    """Builds candidates, several at once, from any thread."""

    def __init__(
        self, zygote: Zygote, *, fenced: bool, stands_still: bool = True, arch: str = cuda.DEFAULT_ARCH
    ) -> None:
        """`stands_still`: builds stop during timed rounds, which is right where both use the same CPUs.
        `arch`: what GPU code is compiled for where a job doesn't say.
        """
        self._zygote, self._fenced, self._stands_still, self._arch = zygote, fenced, stands_still, arch
        self._root = state_dir() / "builds"
        self._root.mkdir(mode=0o711, exist_ok=True)
        cores = len(os.sched_getaffinity(0))
        self._pool = Pool(cores if stands_still else max(1, cores - MEASURING_CORES), quota.memory_left_bytes())
        self._running = threading.Event()
        self._running.set()
        self._paused_s = 0.0
        self._built = itertools.count(1)
        builds.sweep(self._root)
        builds.trim_daily(self._root)

    def build(self, job: Job) -> Artifact:
        """The artifact of a job's source, from the cache where it was built, or failed to compile, before.

        Raises JudgeError when the disk is full.
        """
        try:
            folder = self._root / self._key(job)
            with builds.lock(self._root, folder.name):
                if builds.is_whole(folder):
                    os.utime(folder)
                    return _artifact(folder, 0.0, job)
                quota.remove(folder)
                bridge = self._bridge() if job.backend == "cuda" else None
                with self._pool.place(EXPECTED_BYTES.get(job.backend, 1 << 30)):
                    self._running.wait()
                    artifact = self._build_new(job, folder, bridge)
            if next(self._built) % builds.TRIM_EVERY == 0:
                builds.trim(self._root)
            return artifact
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                quota.require_disk(self._root)
                raise JudgeError(f"the disk under {self._root} is full ({error}); make room or set TMPDIR") from error
            raise

    @contextlib.contextmanager
    def standing_still(self) -> Iterator[None]:
        """Stops every build in progress and lets none start: for the timed rounds on the same CPUs."""
        if not self._stands_still:
            yield
            return
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

    def _build_new(self, job: Job, folder: Path, bridge: Path | None) -> Artifact:
        """Builds without the GPU, so that no build waits for it or disturbs it; a module that asks for the device while
        it is executed, such as for the number of its multiprocessors, is executed again with it."""
        artifact = self._attempt(job, folder, bridge, gpu=False)
        if job.device == "cpu" or artifact.failure is None or artifact.failure.verdict is not Verdict.LOAD_ERROR:
            return artifact
        return self._attempt(job, folder, bridge, gpu=True)

    def _attempt(self, job: Job, folder: Path, bridge: Path | None, *, gpu: bool) -> Artifact:
        work = self._root / f"{folder.name[:12]}.{os.getpid()}.{next(_counter)}.tmp"
        try:
            policy = dataclasses.replace(self._prepare(work, job, bridge), gpu=gpu)
            child, begun = self._start(work, job, policy)
            with contextlib.suppress(OSError):
                os.setpriority(os.PRIO_PROCESS, child.pid, NICENESS)
            try:
                spent, failure = self._supervise(child, job)
                failure = failure or self._failure(child, work, has_begun=bool(os.read(begun, 1)))
                log = child.log()
            finally:
                _end(child)
                os.close(begun)
            if failure is not None and not _is_certain(*failure, log):
                self._require_disk(work)
                return _failed(job, *failure, log, spent, work / "products")
            _keep(work, folder, job, failure, log)
            return _artifact(folder, spent, job)
        finally:
            quota.remove(work)

    def _start(self, work: Path, job: Job, policy: Policy) -> tuple[Child, int]:
        """The build's process, and a pipe in which a byte lies once it has come to the candidate's own code."""
        begun, theirs = os.pipe2(os.O_CLOEXEC)
        try:
            return self._zygote.spawn("build", self._spec(work, job), policy, [theirs]), begun
        except BaseException:
            os.close(begun)
            raise
        finally:
            os.close(theirs)

    def _require_disk(self, work: Path) -> None:
        """Raises JudgeError when the disk is full and this build's own files are not what fills it."""
        stored, files = quota.tree(str(work), _OWN_FILES)
        if stored > _OWN_DISK_BYTES or files > _OWN_FILES:  # many, or so deep that they cannot be counted
            quota.remove(work)
        quota.require_disk(self._root)

    def _spec(self, work: Path, job: Job) -> dict[str, Any]:
        return {
            "source_path": str(work / "candidate.py"),
            "problem_path": str(work / "problem.py"),
            "products_dir": str(work / "products"),
            "backend": job.backend,
            "arch": job.arch or self._arch,
            "device": job.device,
            "precision": job.precision,
        }

    def _prepare(self, work: Path, job: Job, bridge: Path | None) -> Policy:
        (work / "products").mkdir(parents=True)
        (work / "home").mkdir()
        _write_sources(work, job)
        if bridge is not None:
            shutil.copyfile(bridge, work / "products" / cuda.BRIDGE)
        uid = candidate_uid(next(_counter) + os.getpid() * 64) if self._fenced else None
        if uid is not None:
            for path in (work, work / "products", work / "home"):
                os.chown(path, uid, uid)
        kit = cuda.find_toolkit() if job.backend == "cuda" else None
        read = (str(kit.root),) if kit is not None else ()
        return Policy(str(work), read, processes=True, uid=uid, file_bytes=BUILD_FILE_BYTES, fenced=self._fenced)

    def _bridge(self) -> Path | None:
        """The object that CUDA candidates are linked with; compiled, by us, once per torch, compiler and rules."""
        digest = hashlib.sha256("\0".join([version("torch"), *builds.compilers("cuda"), builds.rules()]).encode())
        folder = self._root / f"bridge-{digest.hexdigest()}"
        with builds.lock(self._root, folder.name):
            if not builds.is_whole(folder):
                quota.remove(folder)
                folder.mkdir()
                try:
                    cuda.compile_bridge(folder / cuda.BRIDGE)
                except RuntimeError:  # no compiler, or a torch that the slim headers don't know: the build says why
                    return None
                builds.seal(folder)
            os.utime(folder)
        return folder / cuda.BRIDGE

    def _supervise(self, child: Child, job: Job) -> tuple[float, tuple[Verdict, str] | None]:
        """Seconds that the build ran, and what stopped it before its end."""
        started, paused = time.monotonic(), self._paused_s
        watch = quota.Watch(child, quota.BUILD_QUOTA, whole_group=True)
        failure = None
        while failure is None and not child.ended.wait(_POLL_S):
            if not self._running.is_set():
                continue
            if time.monotonic() - started - (self._paused_s - paused) > job.build_timeout_s:
                failure = Verdict.TIMEOUT, f"the build took longer than {job.build_timeout_s:g} s"
            elif excess := watch.excess():
                failure = excess[0], f"the build {excess[1]}"
        child.kill()
        if failure is None and (excess := watch.excess()):  # what it had time to write between two looks
            failure = excess[0], f"the build {excess[1]}"
        return time.monotonic() - started - (self._paused_s - paused), failure

    def _failure(self, child: Child, work: Path, *, has_begun: bool) -> tuple[Verdict, str] | None:
        """Why a build that has ended is not usable. JudgeError when it failed before the candidate's own code."""
        products = work / "products"
        if products.is_symlink() or not products.is_dir() or (products / cuda.BRIDGE).is_dir():
            return Verdict.LOAD_ERROR, "its build replaced the folder of its products"
        message = reports.read_capped(products / "compile_error.txt")
        if child.status == 0:
            return None
        if message:
            return Verdict.COMPILE_ERROR, f"the compiler refuses it: {_first_error(message)}"
        log = child.log().strip()
        lines, places = log.splitlines(), _PLACE.findall(log)
        why = lines[-1][:_LINE_CHARS] if lines else "it printed nothing"
        if not has_begun:
            why = next((line for line in lines if "error:" in line), why)  # a C compiler's own words
            raise JudgeError(f"a build {child.death()} before it came to the candidate's code: {why}; {SEE_DOCTOR}")
        where = f" at its line {places[-1]}" if places else ""
        return Verdict.LOAD_ERROR, f"its module {child.death()} while it was executed for the build{where}: {why}"

    def _key(self, job: Job) -> str:
        arch = "" if job.backend == "cpp" else job.arch or self._arch
        parts = [job.source, job.problem_source, job.backend, arch, version("torch"), builds.rules()]
        if job.backend == "triton":
            parts += [job.device.partition(":")[0], job.precision, builds.installed("triton")]
        digest = hashlib.sha256("\0".join([*parts, *builds.compilers(job.backend)]).encode())
        return digest.hexdigest()


def _end(child: Child) -> None:
    """Kills it and closes its log; what it wrote stays."""
    child.kill()
    os.close(child.log_fd)


def _failed(job: Job, verdict: Verdict, reason: str, log: str, compile_s: float, products: Path) -> Artifact:
    evaluation = Evaluation(
        verdict,
        reason,
        job.problem,
        job.backend,
        job.source_sha256,
        compile_s=compile_s,
        features=reports.how_built(products),
        log=log,
    )
    return Artifact("", compile_s, reports.routes_of(products), failure=evaluation)


def _is_certain(verdict: Verdict, reason: str, log: str) -> bool:
    """Whether a build would fail in the same way the next time."""
    return verdict is Verdict.COMPILE_ERROR and not _NOT_ITS_FAULT.search(reason + log)


def _keep(work: Path, folder: Path, job: Job, failure: tuple[Verdict, str] | None, log: str) -> None:
    """Makes a build, or a compile error, the kept one of its key. Of what the build left only its products are kept."""
    _take_over(work)
    for path in work.iterdir():
        if path.name != "products":  # nor anything under a name of ours: a failure, a seal, another source
            quota.remove(path) if path.is_dir() else path.unlink()
    _write_sources(work, job)
    (work / "products" / cuda.BRIDGE).unlink(missing_ok=True)
    if failure is not None:
        (work / "failure.json").write_text(json.dumps({"verdict": failure[0], "reason": failure[1], "log": log}))
    builds.seal(work)
    os.rename(work, folder)


def _write_sources(work: Path, job: Job) -> None:
    for name, source in (("candidate.py", job.source), ("problem.py", job.problem_source)):
        path = work / name
        if path.is_dir():
            quota.remove(path)
        path.write_text(source)
        path.chmod(0o755)


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


def _artifact(folder: Path, compile_s: float, job: Job) -> Artifact:
    products = folder / "products"
    if (folder / "failure.json").exists():
        said = json.loads((folder / "failure.json").read_text())
        return _failed(job, Verdict(said["verdict"]), said["reason"], said["log"], compile_s, products)
    return Artifact(str(folder), compile_s, reports.routes_of(products), reports.features_of(products))


def _first_error(message: str) -> str:
    """The compiler's first line that says error, else its first line."""
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    return next((line for line in lines if "error" in line.lower()), lines[0] if lines else "no message")[:300]
