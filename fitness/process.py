"""A process that holds one model, between calls: started, stopped, let go, waited for, and its end explained."""

from __future__ import annotations

import contextlib
import math
import os
import select
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from fitness import wire
from fitness.children import Child, Zygote
from fitness.evaluation import SEE_DOCTOR, JudgeError, Verdict
from fitness.quota import Quota, Watch
from fitness.runner import CONTRACT, LOAD_ERROR, OUT_OF_MEMORY, RUNTIME_ERROR
from fitness.sandbox import Policy
from fitness.wire import Reply

CALLS_WAITED = 20
"""A candidate whose calls take as long as one may is waited for this many times that long in all: it could hold the
device for hours otherwise, by sleeping wherever it is asked something."""
POLL_MS = 50
"""How often a running call's memory is looked at."""

PRIORITY = -15
"""Niceness of the judge and its runners."""

_VERDICTS = {
    LOAD_ERROR: Verdict.LOAD_ERROR,
    RUNTIME_ERROR: Verdict.RUNTIME_ERROR,
    OUT_OF_MEMORY: Verdict.OUT_OF_MEMORY,
    CONTRACT: Verdict.CONTRACT,
}


class CandidateFailed(Exception):
    """The candidate's own failure, on its way to becoming an Evaluation inside the judge."""

    def __init__(self, verdict: Verdict, reason: str, *, signal: int = 0) -> None:
        super().__init__(reason)
        self.verdict, self.reason, self.signal = verdict, reason, signal


@dataclass(slots=True)
class Patience:
    """How long the judge still waits for a candidate, in all its processes and calls together."""

    whole_s: float = math.inf
    spent_s: float = 0.0

    @property
    def left_s(self) -> float:
        return max(0.0, self.whole_s - self.spent_s)


@dataclass(frozen=True, slots=True)
class Limits:
    """What one call may take."""

    timeout_s: float
    memory_bytes: int
    device_bytes: int = 0
    """On a GPU."""
    patience: Patience = field(default_factory=Patience)


def raise_priority(pid: int) -> None:
    """Lets a process go before ordinary ones, where we may (root): less foreign load in the timed windows.

    Where the kernel groups tasks by session, niceness counts between groups only when set on the group (sched(7)).
    """
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, pid, PRIORITY)
        Path(f"/proc/{pid}/autogroup").write_text(str(PRIORITY))


class ModelProcess:
    """A process that holds one model and answers orders: what runners on the CPU and on a GPU share."""

    def __init__(
        self,
        zygote: Zygote,
        entry: str,
        spec: dict[str, Any],
        policy: Policy,
        limits: Limits,
        descriptors: Sequence[int] = (),
    ) -> None:
        self._limits, self.is_closed, self._has_begun = limits, False, False
        self._at_rest: dict[str, int] = {}
        self._bound_to: dict[str, set[int]] = {}
        go_read, self._go = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self._go, False)
        self._done, done_write = os.pipe2(os.O_CLOEXEC)
        self.child: Child = zygote.spawn(entry, spec, policy, [go_read, done_write, *descriptors])
        os.close(go_read)
        os.close(done_write)
        raise_priority(self.child.pid)
        files = 20_000 if policy.processes else 2_000
        quota = Quota(limits.memory_bytes, disk_bytes=4 * policy.file_bytes, files=files)
        self._watch = Watch(self.child, quota, whole_group=policy.processes)

    def close(self) -> None:
        """Ends the process; its log stays readable until `discard`. Again it does nothing."""
        if self.is_closed:
            return
        self.is_closed = True
        self.child.kill()
        for descriptor in (self._go, self._done):
            os.close(descriptor)
        self._free()

    def _free(self) -> None:
        """Lets go of the memory that was shared with the process."""

    def _order(self, operation: int, argument: int, extra: bytes = b"") -> None:
        with contextlib.suppress(BrokenPipeError):  # the next wait reports how it ended
            self._write(wire.GO.pack(operation, argument, extra))

    def _write(self, message: bytes) -> None:
        """An order, which always has room in its pipe unless somebody else writes to it."""
        try:
            os.write(self._go, message)
        except BlockingIOError:
            raise CandidateFailed(Verdict.CONTRACT, "it filled the pipe of its orders") from None

    def _freeze(self) -> None:
        if not self.child.freeze():
            if self.child.ended.wait(0.5):
                raise self._death("between two calls")
            raise CandidateFailed(Verdict.CONTRACT, "the process could not be stopped within 1 s of its answer")

    def _put_to_rest(self) -> None:
        """Stops it and notes how its threads stand: not while the clock runs, since that takes a while."""
        self._freeze()
        self._note_rest()

    def _note_rest(self) -> None:
        self._at_rest, self._bound_to = self._ran(), self._bindings()

    def _ran(self) -> dict[str, int]:
        """Per thread: how often it was given a CPU. A thread shows as stopped a moment before it leaves its CPU, and
        its computing time is booked when it leaves: only the count stands still from the first moment on."""
        return {task: slices for task, (_, _, slices) in self._thread_ns().items()}

    def _check_rest(self) -> None:
        """CandidateFailed when a thread has run since the process was stopped, which a signal to itself would bring
        about."""
        if self._ran() != self._at_rest:
            self._refuse("it ran while it was stopped: it must not wake itself up")

    def _check_bindings(self) -> None:
        """CandidateFailed when a thread of the stopped process was bound to other CPUs, which a candidate could do to
        the reference under the same user."""
        if self._bindings() != self._bound_to:
            self._refuse("threads of a stopped process were bound to other CPUs")

    def _refuse(self, reason: str) -> NoReturn:
        """A stopped process is not as it was: because somebody killed it, or for a reason of its own."""
        if self.child.ended.wait(0.2):
            raise self._death("between two calls")
        raise CandidateFailed(Verdict.CONTRACT, reason)

    def _bindings(self) -> dict[str, set[int]]:
        """The CPUs that each thread may use."""
        found: dict[str, set[int]] = {}
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            for task in os.listdir(f"/proc/{self.child.pid}/task"):
                found[task] = os.sched_getaffinity(int(task))
        return found

    def _thread_ns(self) -> dict[str, tuple[int, int, int]]:
        """Per thread: how long it computed and waited in the run queue [ns], and how often it ran (schedstat)."""
        folder, found = f"/proc/{self.child.pid}/task", {}
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            for task in os.listdir(folder):
                with open(f"{folder}/{task}/schedstat", "rb") as file:
                    computed, waited, slices = file.read().split()
                found[task] = int(computed), int(waited), int(slices)
        return found

    def _await(self, kind: int, doing: str, awake_s: float = 0.0) -> Reply:
        """The runner's next message, which must be of `kind`; the first `awake_s` without going to sleep.

        Raises CandidateFailed, and JudgeError for a failure before the candidate's code.
        """
        started, patience = time.monotonic(), self._limits.patience
        deadline = started + min(self._limits.timeout_s, patience.left_s)
        poller = select.poll()
        poller.register(self._done, select.POLLIN)
        while awake_s and not poller.poll(0) and time.monotonic() < started + awake_s:
            pass
        while not poller.poll(POLL_MS):
            if time.monotonic() > deadline:
                raise self._too_slow(doing)
            self._check_quota(doing)
        # a second more: a judge that was stopped meanwhile finds the deadline gone and the answer there
        body = wire.read_exactly(self._done, wire.REPLY_BYTES, max(deadline, time.monotonic() + 1))
        patience.spent_s += time.monotonic() - started
        if body is None:
            raise CandidateFailed(Verdict.CONTRACT, f"{doing} answered with part of a message")
        if not body:
            raise self._death(doing)
        if kind != wire.DONE:  # not while the clock runs; READY and RELEASED come after or before each call
            self._check_quota(doing)
        try:
            reply = wire.unpack_reply(body)
        except ValueError as error:
            raise CandidateFailed(Verdict.CONTRACT, f"{doing} answered with {error}: a broken message") from error
        if reply.kind == wire.PREPARED and not self._has_begun:
            self._has_begun = True
            return self._await(kind, doing, awake_s)
        if reply.kind == wire.FAILED:
            if not self._has_begun:  # the pipe keeps the order, whatever the candidate writes into it later
                raise self._not_begun(doing, reply.text)
            verdict = _VERDICTS.get(reply.code, Verdict.RUNTIME_ERROR)
            raise CandidateFailed(verdict, f"{doing} failed: {reply.text}")
        if reply.kind != kind:
            raise CandidateFailed(Verdict.CONTRACT, f"{doing} answered out of turn (message kind {reply.kind})")
        return reply

    def _check_quota(self, doing: str) -> None:
        if excess := self._watch.excess():
            raise CandidateFailed(excess[0], f"{doing} {excess[1]}")

    def _too_slow(self, doing: str) -> CandidateFailed | JudgeError:
        if not self._has_begun:
            return self._not_begun(doing, f"it took longer than {self._limits.timeout_s:g} s")
        reason = f"{doing} took longer than {self._limits.timeout_s:g} s"
        if self._limits.patience.left_s < self._limits.timeout_s:
            reason = f"loading it and all its calls took longer than {self._limits.patience.whole_s:g} s together"
        return CandidateFailed(Verdict.TIMEOUT, reason)

    def _not_begun(self, doing: str, reason: str) -> JudgeError:
        return JudgeError(f"{doing} failed before it came to the candidate's code: {reason}; {SEE_DOCTOR}")

    def _death(self, doing: str) -> CandidateFailed | JudgeError:
        self.child.ended.wait(5)
        if not self._has_begun:
            return self._not_begun(doing, f"the process {self.child.death()}")
        status = self.child.status
        number = os.WTERMSIG(status) if status is not None and os.WIFSIGNALED(status) else 0
        return CandidateFailed(
            Verdict.RUNTIME_ERROR, f"the process {self.child.death()} during {doing}, before it answered", signal=number
        )
