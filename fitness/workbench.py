"""The workbench: what a controller holds. It builds candidates and has the judge measure them."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
import select
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Any

from fitness.backends.cuda import DEFAULT_ARCH
from fitness.builder import Artifact, Builder
from fitness.children import Zygote
from fitness.evaluation import Evaluation, Job, JudgeError, Verdict
from fitness.gpu import memory
from fitness.sandbox import ROOT, clean_environment, live_dir
from problems.problem import ProblemError

ANSWER_TIMEOUT_S = 1_800.0
"""Longest time for one measurement, baselines with torch.compile included."""
START_TIMEOUT_S = 180.0
STOPPED_TIMEOUT_S = 30.0
"""A judge that was stopped (SIGSTOP) for this long is given up."""
FENCED_LEVELS = ("S2", "S3")
_PASSIVE = {"OMP_WAIT_POLICY": "passive", "GOMP_SPINCOUNT": "0"}
"""The judge's own worker threads sleep at once after each operation; spinning, they would disturb the next window."""


def check_device(device: str) -> str:
    """What GPU code is compiled for by default. JudgeError for a device that cannot be had here; says what is."""
    if device == "cpu":
        return DEFAULT_ARCH
    import torch

    number = re.fullmatch(r"cuda:(\d+)", device)
    if number is None:
        raise JudgeError(f"device must be cpu or cuda:N, found {device!r}")
    if not torch.version.cuda:
        raise JudgeError(
            f"device {device} needs CUDA; torch {torch.__version__} is built without it: install its CUDA build"
        )
    count = torch.cuda.device_count()
    if int(number[1]) >= count:
        raise JudgeError(
            f"device {device} was asked for, this machine has {count} GPUs that torch can use; see `kb-evolve doctor`"
        )
    try:
        return memory.architecture(device)
    except memory.DeviceError as error:
        raise JudgeError(f"{device} cannot be used: {error}; see `kb-evolve doctor`") from error


def _only_built(job: Job, artifact: Artifact) -> Evaluation:
    """The answer on CUDA code where no GPU is."""
    done = f"built for {job.arch or DEFAULT_ARCH}" if artifact.routes else "nothing was compiled when it was loaded"
    return Evaluation(
        Verdict.NO_VERDICT,
        f"{done}; no GPU is here that could run it",
        job.problem,
        job.backend,
        job.source_sha256,
        compile_s=artifact.compile_s,
        features=_with_build({}, artifact),
    )


def _with_build(measured: dict[str, Any], artifact: Artifact) -> dict[str, Any]:
    """The features measured in the judge and those of the build. What nobody profiled, the compiler alone reported."""
    reported = {"profile_source": "compiler"} if "kernels" in artifact.features else {}
    return {**reported, **measured, **artifact.features}


class Workbench:
    """Builds and measures. Safe to use from several threads; use as a context manager.

    `sandbox`: "auto" refuses to work (JudgeError) below level S2; "none" runs candidates with resource
    limits only.
    """

    def __init__(self, device: str = "cpu", sandbox: str = "auto") -> None:
        arch = check_device(device)
        if sandbox not in ("auto", "none"):
            raise JudgeError(f"sandbox must be auto or none, found {sandbox!r}")
        self._device, self._sandbox = device, sandbox
        self._measuring = threading.Lock()
        self._channel: socket.socket | None = None
        self._guard, self._arch = threading.Lock(), arch
        self._start_builder()
        self.sandbox_level = ""
        """Measured by attack when the judge starts; empty before the first measurement."""

    def build(self, job: Job) -> Artifact:
        """The built candidate, or an artifact with its failure. Several threads may build at once.

        Raises JudgeError when the sandbox, which is attacked before the first build, does not hold.
        """
        if not self.sandbox_level:
            with self._measuring:
                if self._channel is None:
                    self._start_judge()
        with self._guard:
            if self._zygote.is_dead:
                self._zygote.close()
                self._start_builder()
            builder = self._builder
        return builder.build(job)

    def _start_builder(self) -> None:
        self._zygote = Zygote(1, self._device)
        is_cpu = self._device == "cpu"
        self._builder = Builder(self._zygote, fenced=self._sandbox != "none", stands_still=is_cpu, arch=self._arch)

    def measure(self, job: Job, artifact: Artifact) -> Evaluation:
        """The judge's evaluation of a built candidate; one at a time per device.

        Raises JudgeError when the judge or its device fails (the next call then starts a new judge), and ProblemError
        when the problem's own code does: never for the candidate's faults.
        """
        if artifact.failure is not None:
            return artifact.failure
        if job.backend == "cuda" and self._device == "cpu":
            return _only_built(job, artifact)
        answer = self._ask({"op": "measure", "job": dataclasses.asdict(job), "artifact_dir": artifact.folder})
        evaluation = Evaluation.from_json(answer["evaluation"])
        features = _with_build(evaluation.features, artifact)
        return dataclasses.replace(evaluation, compile_s=artifact.compile_s, features=features)

    def evaluate(self, job: Job) -> Evaluation:
        """Build and measure."""
        return self.measure(job, self.build(job))

    def baseline(self, job: Job, kind: str) -> dict[str, Any]:
        """Times the problem itself: kind `eager` (against itself) or `compile` (torch.compile against eager)."""
        return self._ask({"op": "baseline", "job": dataclasses.asdict(job), "kind": kind})["baseline"]

    def close(self) -> None:
        """Ends the judge, the builds and everything that they started."""
        self._drop_judge()
        self._zygote.close()

    def __enter__(self) -> Workbench:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        with self._measuring:
            if self._channel is not None and self._judge.poll() is not None:
                self._drop_judge()  # it died between two measurements
            if self._channel is None:
                self._start_judge()
            assert self._channel is not None
            try:
                self._channel.sendall(json.dumps(request).encode() + b"\n")
                answer = self._listen(ANSWER_TIMEOUT_S)
            except OSError as error:
                self._drop_judge()
                raise JudgeError(f"the judge process died ({error}); the next measurement starts a new one") from error
            except JudgeError:
                self._drop_judge()
                raise
            if answer.get("is_last"):
                self._drop_judge()
        if "error" in answer:
            raise (ProblemError if answer.get("problem") else JudgeError)(answer["error"])
        return answer

    def _listen(self, timeout_s: float) -> dict[str, Any]:
        """The judge's answer; in between builds stand still for as long as it asks for quiet."""
        while True:
            message = self._read(timeout_s)
            if "quiet" not in message:
                return message
            with self._builder.standing_still():
                self._acknowledge()
                message = self._read(timeout_s)
            if message.get("quiet") is not False:
                return message
            self._acknowledge()

    def _acknowledge(self) -> None:
        assert self._channel is not None
        self._channel.sendall(b'{"ack": true}\n')

    def _read(self, timeout_s: float) -> dict[str, Any]:
        assert self._channel is not None
        readable = self._wait(timeout_s)
        line = ""
        if readable:
            with contextlib.suppress(ValueError, OSError):  # closed by another thread
                line = self._lines.readline()
        if not line:
            raise JudgeError(
                f"the judge process {'died' if readable else f'stood still or was silent for {timeout_s:.0f} s'}; "
                "nothing was recorded for this candidate, and the next measurement starts a new judge"
            )
        return json.loads(line)

    def _wait(self, timeout_s: float) -> bool:
        """Whether the judge says something in time; gives up early on one that somebody stopped and left so."""
        assert self._channel is not None
        deadline = time.monotonic() + timeout_s
        running_at = time.monotonic()
        while (now := time.monotonic()) < deadline and now < running_at + STOPPED_TIMEOUT_S:
            if select.select([self._channel], [], [], 1.0)[0]:
                return True
            with contextlib.suppress(OSError):
                stat = Path(f"/proc/{self._judge.pid}/stat").read_text()
                if stat[stat.rindex(")") + 2] not in "Tt":
                    running_at = time.monotonic()
        return False

    def _start_judge(self) -> None:
        self._home = tempfile.TemporaryDirectory(prefix="judge-", dir=live_dir())
        ours, theirs = socket.socketpair()
        cpus = len(os.sched_getaffinity(0))
        environment = clean_environment(self._home.name, cpus, bind_threads=self._device == "cpu")
        self._judge = subprocess.Popen(
            [sys.executable, "-P", "-m", "fitness.judge", str(theirs.fileno()), self._device, self._sandbox],
            pass_fds=[theirs.fileno()],
            env={**environment, **_PASSIVE, "TMPDIR": tempfile.gettempdir(), "PYTHONPATH": str(ROOT)},
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        theirs.close()
        self._lines = ours.makefile("r", encoding="utf-8")
        self._channel = ours  # last: whoever finds a channel finds a judge
        try:
            ready = self._read(START_TIMEOUT_S)
        except JudgeError:
            self._drop_judge()
            raise
        if "error" in ready:
            self._drop_judge()
            raise JudgeError(ready["error"])
        self.sandbox_level = ready["sandbox"]
        if self._sandbox != "none" and self.sandbox_level not in FENCED_LEVELS:
            self._drop_judge()
            raise JudgeError(
                f"the sandbox reaches only level {self.sandbox_level} here, S2 is needed; `kb-evolve doctor` says "
                "what is missing, and --sandbox none runs candidates unprotected (scores are then marked S0)"
            )

    def _drop_judge(self) -> None:
        if self._channel is None:
            return
        with contextlib.suppress(OSError):
            self._channel.shutdown(socket.SHUT_RDWR)  # wakes a thread that waits for an answer
        self._channel.close()
        self._channel = None
        try:
            self._judge.wait(10)
        except subprocess.TimeoutExpired:
            self._judge.kill()
            self._judge.wait()
        self._home.cleanup()
