"""One runner seen from the judge: reveal inputs, start the clock, wait, freeze, stop the clock, read the bytes.

Soundness rests on the freeze. While all threads of the runner are stopped the judge writes fresh inputs into the
sealed memory; the clock starts before the runner is let go and stops when the kernel shows every thread stopped
again; then the outputs are read straight out of the frozen process. Work outside the window has nothing to work on
before it and no way to reach the result after it.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import itertools
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fitness import wire
from fitness.children import Zygote
from fitness.evaluation import JudgeError, Verdict
from fitness.process import CandidateFailed, Limits, ModelProcess
from fitness.sandbox import Policy
from fitness.spans import Span, merged, new_share
from fitness.wire import Layout, Output, Segment

if TYPE_CHECKING:
    import torch

SETTLE_S = 0.02

SAMPLED_CALLS = 8
"""On a GPU, calls of a batch whose outputs are sampled when the clock stops: work put off for a share x of the calls
stays unseen in n windows with probability (1 - x)^(8 n)."""

_BLOCK_BYTES = 256 << 10
_BLOCKS = {value: ctypes.create_string_buffer(bytes([value]) * _BLOCK_BYTES, _BLOCK_BYTES) for value in (0xFF, 0xA5)}
_IOV_MAX = 1024
"""Stretches of memory in one call of process_vm_writev, at most."""


@dataclass(frozen=True, slots=True)
class Sample:
    """A stretch of one output as it was at the end of the window."""

    call: int
    output: int
    start: int
    """First element, counted in the contiguous output."""
    values: torch.Tensor


@dataclass(frozen=True, slots=True)
class Call:
    """One timed window."""

    window_ms: float
    outputs: list[list[torch.Tensor]]
    """Per input of the batch, the output tensors, in memory of our own."""
    waited_share: float = 0.0
    """How much of the window the runner's threads stood in the kernel's run queue, per CPU: foreign load."""
    samples: tuple[Sample, ...] = ()
    """On a GPU: what stood in the outputs when the clock was stopped."""
    reveal_ms: float = 0.0
    """On a GPU: how long it took to write the inputs while the process was stopped."""
    release_ms: float = 0.0
    """After the window, until the outputs were let go: how long that took (CPU), or kept the device busy (GPU)."""
    tail_ms: float = 0.0
    """On a GPU: the part of the window after the model's last call, in which samples were taken."""
    moved_share: float = 0.0
    """The part of the outputs that lies in memory which the judge did not overwrite before: after the last call (on a
    GPU, where copy engines work while the process is stopped) or after any (CPU)."""


class _IoVec(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]


_libc = ctypes.CDLL(None, use_errno=True)


class Runner(ModelProcess):
    """A frozen process on the CPU that holds one model, between calls."""

    def __init__(
        self,
        zygote: Zygote,
        spec: dict[str, Any],
        policy: Policy,
        outputs: Sequence[Layout],
        limits: Limits,
        state: Segment | None,
    ) -> None:
        """Starts it, loads the model and freezes it. Raises CandidateFailed when that fails."""
        self._layouts = list(outputs)
        self._places: list[Span] = []
        """Where outputs lay so far."""
        self._cpus = sorted(os.sched_getaffinity(0))
        self._is_bound, self._is_trusted = not spec["own_threads"], spec["is_trusted"]
        self._input_layouts = [Layout.from_json(entry) for entry in spec["inputs"] if "shape" in entry]
        self._slot_bytes = wire.offsets(self._input_layouts)[1]
        self._segment = Segment(self._slot_bytes * spec["slots"])
        if not spec["writable_inputs"]:
            self._segment.seal()
        self._slots = [self._segment.tensors(self._input_layouts, s * self._slot_bytes) for s in range(spec["slots"])]
        shared = state if state is not None else self._segment
        with shared.opened_anew() as state_fd:
            super().__init__(zygote, "run", spec, policy, limits, [self._segment.fd, state_fd])
        self._destination = bytearray(max(1, sum(layout.nbytes for layout in self._layouts) * spec["slots"]))
        try:
            ready = self._await(wire.READY, "loading the module")
            self.code = ready.code
            self._forget_peak()
            self.resident_when_ready = self.child.resident_bytes()
            self._put_to_rest()
        except BaseException:
            self.close()
            raise

    def is_warm(self, calls: int) -> bool:
        """Never known here: each candidate's rounds have a reference of their own."""
        del calls
        return False

    def usual_tail_ms(self, calls: int) -> float:
        """Nothing follows the model's last call here."""
        del calls
        return 0.0

    def call(self, batch: Sequence[Sequence[torch.Tensor]], flush: torch.Tensor | None = None) -> Call:
        """Reveals the batch, lets the runner compute it and returns what it computed.

        Raises CandidateFailed for every way in which the candidate can fail.
        """
        for slot, values in zip(self._slots, batch, strict=False):
            for place, value in zip(slot, values, strict=True):
                place.copy_(value)
        if flush is not None:
            flush.add_(1)
        waited = self._run_queue_ns()
        self._check_bindings()
        self._check_rest()
        started = time.perf_counter_ns()
        self._tell(wire.RUN, len(batch))
        reply = self._await(wire.DONE, "a forward call")
        self._freeze()
        window_ns = time.perf_counter_ns() - started
        self._note_rest()
        waited = self._run_queue_ns() - waited
        self._hide_inputs()
        outputs = self._fetch(reply.outputs, len(batch))
        moved_share = 0.0 if self._is_trusted else self._spoil(reply.outputs, len(batch))
        self._check_bindings()
        self._check_rest()
        release_started = time.perf_counter_ns()
        self._tell(wire.RELEASE, 0)
        self._await(wire.RELEASED, "letting go of the outputs")
        release_ns = time.perf_counter_ns() - release_started
        self._settle()
        self._put_to_rest()
        share = waited / (window_ns * (os.cpu_count() or 1))
        return Call(window_ns / 1e6, outputs, share, release_ms=release_ns / 1e6, moved_share=moved_share)

    def let_go(self) -> float:
        """Nothing is left to let go after a call here."""
        return 0.0

    def peak_extra_bytes(self) -> int:
        """Most memory held since it was ready, beyond what it held then and its inputs."""
        return max(0, self.child.resident_bytes(peak=True) - self.resident_when_ready - self._slot_bytes)

    def threads_used(self) -> int:
        """Threads that have computed for a millisecond or more."""
        return max(1, sum(spent > 1_000_000 for spent, *_ in self._thread_ns().values()))

    def changed_input(self, inputs: Sequence[torch.Tensor]) -> str:
        """Where the last call wrote to its inputs (a runner with writable ones); empty when nowhere."""
        for index, (now, before) in enumerate(zip(self._slots[0], inputs, strict=True)):
            changed = int((now != before).sum())
            if changed:
                return f"forward wrote to its input {index}: {changed} of {before.numel()} elements changed"
        return ""

    def _free(self) -> None:
        self._segment.close()

    def _tell(self, operation: int, argument: int) -> None:
        """Writes the message and then lets the process go, in this order.

        The main thread starts on the first CPU, where no OpenMP worker is bound (sandbox._OPENMP). It stays there, as
        OMP_PROC_BIND says, unless the program starts threads of its own, which would inherit the binding. Left to
        itself a virtual machine's kernel wakes all threads on one CPU, since it takes a halted virtual CPU for one
        that is busy elsewhere: times then double, and jump.
        """
        with contextlib.suppress(BrokenPipeError, ProcessLookupError):  # the next wait reports how it ended
            os.sched_setaffinity(self.child.pid, self._cpus[:1])
            self._write(wire.GO.pack(operation, argument, b""))
            self.child.thaw()
            if not self._is_bound:
                os.sched_setaffinity(self.child.pid, self._cpus)

    def _settle(self) -> None:
        """Waits until every thread sleeps: one frozen while it spins for work would spin on in the next window."""
        deadline = time.monotonic() + SETTLE_S
        while time.monotonic() < deadline and not self.child.is_asleep():
            time.sleep(0.0002)

    def _hide_inputs(self) -> None:
        """Overwrites the inputs before outputs are read: an output that is a mapping of an input's memory shows so."""
        for slot in self._slots:
            for place, layout in zip(slot, self._input_layouts, strict=True):
                ctypes.memset(place.data_ptr(), wire.rubbish(layout.dtype), layout.nbytes)

    def _fetch(self, claims: Sequence[Output], calls: int) -> list[list[torch.Tensor]]:
        """The outputs' bytes, out of the frozen process."""
        expected = self._layouts * calls
        if len(claims) != len(expected):
            reason = f"forward must return {len(self._layouts)} tensors, found {len(claims) / calls:g}"
            raise CandidateFailed(Verdict.CONTRACT, reason)
        for claim, layout in zip(claims, expected, strict=True):
            if claim.shape != layout.shape or claim.dtype != layout.dtype:
                reason = f"an output must be {layout.dtype} {layout.shape}, found {claim.dtype} {claim.shape}"
                raise CandidateFailed(Verdict.CONTRACT, reason)
        sizes = [layout.nbytes for layout in expected]  # what a claim says of its own size is not believed
        spans = sorted((claim.address, nbytes) for claim, nbytes in zip(claims, sizes, strict=True) if nbytes)
        for (address, nbytes), (following, _) in itertools.pairwise(spans):
            if address + nbytes > following:
                raise CandidateFailed(Verdict.CONTRACT, "outputs share memory with one another (alias)")
        place, starts = 0, []
        for claim, layout in zip(claims, expected, strict=True):
            starts.append(place)
            self._copy_out(claim.address, place, layout.nbytes)
            place += layout.nbytes
        tensors = [wire.tensor_over(self._destination, s, e) for s, e in zip(starts, expected, strict=True)]
        per_call = len(self._layouts)
        return [tensors[index : index + per_call] for index in range(0, len(tensors), per_call)]

    def _copy_out(self, address: int, place: int, nbytes: int) -> None:
        if nbytes == 0:
            return
        target = (ctypes.c_char * nbytes).from_buffer(self._destination, place)
        local, remote = _IoVec(ctypes.addressof(target), nbytes), _IoVec(address, nbytes)
        copied = _libc.process_vm_readv(self.child.pid, ctypes.byref(local), 1, ctypes.byref(remote), 1, 0)
        if copied != nbytes:
            raise self._no_access("read")

    def _spoil(self, claims: Sequence[Output], calls: int) -> float:
        """Overwrites the outputs where they lie: they are their caller's, who may write to them, so what a candidate
        leaves there may not serve its next call. The part of them that lies where no output lay before.

        (Not only in the last call: glibc's malloc gives now these, now those of a few places.)
        """
        for claim, layout in zip(claims, self._layouts * calls, strict=True):
            block = _IoVec(ctypes.addressof(_BLOCKS[wire.rubbish(layout.dtype)]), _BLOCK_BYTES)
            for start in range(0, layout.nbytes, _IOV_MAX * _BLOCK_BYTES):
                nbytes = min(layout.nbytes - start, _IOV_MAX * _BLOCK_BYTES)
                count = -(-nbytes // _BLOCK_BYTES)
                local, remote = (_IoVec * count)(*[block] * count), _IoVec(claim.address + start, nbytes)
                local[-1].length = nbytes - (count - 1) * _BLOCK_BYTES
                written = _libc.process_vm_writev(self.child.pid, local, count, ctypes.byref(remote), 1, 0)
                if written != nbytes:
                    raise self._no_access("overwritten")
        ends = [claim.address + layout.nbytes for claim, layout in zip(claims, self._layouts * calls, strict=True)]
        places = merged((claim.address, end) for claim, end in zip(claims, ends, strict=True))
        moved_share = new_share(places, self._places)
        self._places = merged(self._places + places)
        return moved_share

    def _no_access(self, what: str) -> CandidateFailed | JudgeError:
        """Why the last attempt at an output's memory failed."""
        number = ctypes.get_errno()
        if number == errno.EPERM:
            return JudgeError(
                "the kernel refuses to let the judge read its own child's memory (process_vm_readv: not permitted); "
                "set kernel.yama.ptrace_scope to 1 or less, or allow ptrace in the container"
            )
        if number == errno.ESRCH and self.child.ended.wait(0.5):  # somebody killed it while it was frozen
            return self._death("between two calls")
        return CandidateFailed(Verdict.CONTRACT, f"an output's memory cannot be {what} ({os.strerror(number)})")

    def _run_queue_ns(self) -> int:
        """Nanoseconds that the threads were ready to run but had no CPU."""
        return sum(waited for _, waited, _ in self._thread_ns().values())

    def _forget_peak(self) -> None:
        try:
            with open(f"/proc/{self.child.pid}/clear_refs", "w") as file:
                file.write("5")  # resets VmHWM, proc(5)
        except OSError:
            pass  # the peak then includes loading
