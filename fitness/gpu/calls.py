"""One runner on a GPU seen from the judge.

The window of a batch begins when the runner is told to go and ends when a sample of the outputs, chosen after it
said "done", has been read. Inputs are fresh and are written while the process is stopped. All outputs are read
afterwards, where they lie in the runner's own memory: a copy into buffers of ours would double the time of a
memory-bound kernel. Work put off until after "done" shows as a sample that is not yet right.
"""

from __future__ import annotations

import os
import statistics
import time
from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any

from fitness import wire
from fitness.calls import SAMPLED_CALLS, Call
from fitness.children import Zygote
from fitness.evaluation import JudgeError, Verdict
from fitness.gpu import memory, sentinel
from fitness.gpu.memory import DeviceError, DeviceMemory
from fitness.gpu.outputs import Outputs
from fitness.gpu.runner import INDICES
from fitness.gpu.samples import Sampler, Stretch
from fitness.nvml import Gpu
from fitness.process import CandidateFailed, Limits, ModelProcess
from fitness.sandbox import Policy
from fitness.wire import Layout, Output

if TYPE_CHECKING:
    import torch

AWAKE_S = 0.05 if (os.cpu_count() or 1) >= 4 else 0.0
"""So long the judge waits for an answer without going to sleep: waking up takes as long as many a kernel."""
USUAL, TAILS = 0.9, 40
"""Taking samples takes no longer than a candidate's is believed to: this quantile of the reference's last so many."""


class GpuRunner(ModelProcess):
    """A stopped process with a model on the device, between calls."""

    def __init__(
        self, zygote: Zygote, spec: dict[str, Any], policy: Policy, outputs: Sequence[Layout], limits: Limits
    ) -> None:
        """Starts it, loads the model and stops it. Raises CandidateFailed when that fails."""
        self._device, self._layouts = spec["device"], list(outputs)
        self._input_layouts = [Layout.from_json(entry) for entry in spec["inputs"] if "shape" in entry]
        self._slot_bytes, self._is_trusted = spec["slot_bytes"], spec["is_trusted"]
        self._inputs = DeviceMemory(self._slot_bytes * spec["slots"], self._device)
        self._slots = [self._inputs.tensors(self._input_layouts, s * self._slot_bytes) for s in range(spec["slots"])]
        everything = Layout((self._slot_bytes * spec["slots"],), (1,), "uint8")
        self._everything = memory.tensor_at(self._inputs.address, everything, self._device)
        self._outputs = Outputs(self._layouts, self._device)
        self._holds_outputs = False
        self._sampler = Sampler(self._layouts, self._device)
        self._tails_ms: defaultdict[int, deque[float]] = defaultdict(lambda: deque(maxlen=TAILS))
        """By number of sampled calls."""
        self._largest = [0, 0]
        """Calls of the two largest batches so far."""
        self._sentinel = sentinel.shared()
        self._others_ms = 0.0
        """How long the device worked for the runner since the last window."""
        spec = {**spec, "input_handle": self._inputs.handle.hex()}
        super().__init__(zygote, "gpu_run", spec, policy, limits)
        try:
            self.code = self._await(wire.READY, "loading the module").code
            self._held_when_ready = self._most_held = self._held_bytes()
            self._put_to_rest()
        except BaseException:
            self.close()
            raise

    def is_warm(self, calls: int) -> bool:
        """Whether it has computed two batches of so many calls: memory for the outputs is taken in the first."""
        return self._largest[0] >= calls

    def usual_tail_ms(self, calls: int) -> float:
        """The longest tail that is taken off a candidate's window of so many calls, when this is the reference. The
        candidate's own, where that is shorter: tails differ from window to window by a tenth, which would be noise of
        the kernel's time. Nothing before its first window of as many samples."""
        tails = self._tails_ms[min(calls, SAMPLED_CALLS)]
        return usual(tails) if tails else 0.0

    def call(self, batch: Sequence[Sequence[torch.Tensor]], flush: torch.Tensor | None = None) -> Call:
        """Reveals the batch, lets the runner compute it, reads a sample and finds all outputs.

        They lie in the runner's memory and are valid until the next call. Raises CandidateFailed for every way in
        which the candidate can fail.
        """
        self.let_go()
        self._spoil_outputs()
        chosen = self._sampler.choose_among(len(batch))
        self._check_bindings()
        self._wait_until_idle()
        revealing = time.perf_counter_ns()
        self._reveal(batch, flush)
        self._check_rest()
        self._sentinel.touch_ms()
        started = time.perf_counter_ns()
        self.child.thaw()
        self._order(wire.RUN, len(batch))
        self._await(wire.DONE, "a forward call", awake_s=AWAKE_S)
        done = time.perf_counter_ns()
        self._take(chosen)
        ended = time.perf_counter_ns()
        self._tails_ms[min(len(batch), SAMPLED_CALLS)].append((ended - done) / 1e6)
        self._largest = sorted([*self._largest, len(batch)])[1:]
        times = {"reveal_ms": (started - revealing) / 1e6, "tail_ms": (ended - done) / 1e6}
        return self._finish(batch, chosen, (ended - started) / 1e6, **times)

    def paced(self, batch: Sequence[Sequence[torch.Tensor]], flush: torch.Tensor | None = None) -> Call:
        """As `call`, but an input is revealed only when the output before it is there: nothing can be done for several
        calls at once. The window is the median step for each of them: a step holds the reveal and the messages, which
        take the same for every model, and some steps are disturbed.
        """
        self.let_go()
        self._spoil_outputs()
        chosen = [self._sampler.choose([number]) for number in range(len(batch))]
        self._check_bindings()
        self._wait_until_idle()
        self._reveal([], flush)
        self._check_rest()
        self.child.thaw()
        steps_ns = []
        for number, values in enumerate(batch):
            started = time.perf_counter_ns()
            self._reveal([values], None, number)
            self._order(wire.STEP, number)
            self._await(wire.DONE, "a forward call", awake_s=AWAKE_S)
            self._take(chosen[number], number * len(self._layouts))
            steps_ns.append(time.perf_counter_ns() - started)
        window_ms = statistics.median(steps_ns) * len(steps_ns) / 1e6
        return self._finish(batch, [stretch for each in chosen for stretch in each], window_ms)

    def _finish(
        self, batch: Sequence[Sequence[torch.Tensor]], chosen: Sequence[Stretch], window_ms: float, **times: float
    ) -> Call:
        """After the clock: finds all outputs, stops the process and looks at what it did to its inputs."""
        with self._watched():
            claims = self._list(len(batch))
        self._holds_outputs = True
        samples = self._sampler.read(chosen)
        outputs = self._outputs.find(claims)
        if not self._is_trusted:
            self._examine(batch)
        moved = self._outputs.moved_share
        return Call(window_ms, outputs, samples=samples, release_ms=self._others_ms, moved_share=moved, **times)

    def let_go(self) -> float:
        """Makes the runner drop its last outputs, if any, and stops it again; how long it kept the device busy [ms]."""
        if not self._holds_outputs:
            return 0.0
        self._holds_outputs = False
        with self._watched():
            self.child.thaw()
            self._order(wire.RELEASE, 0)
            self._await(wire.RELEASED, "letting go of the outputs")
        return self._others_ms

    def peak_extra_bytes(self) -> int:
        """Most device memory taken since it was ready, as the card counts it."""
        return max(0, self._most_held - self._held_when_ready)

    def threads_used(self) -> int:
        """Host threads do not compute here."""
        return 1

    def _changed_input(self, inputs: Sequence[Sequence[torch.Tensor]]) -> str:
        """Where the last call wrote to its inputs, given what was revealed; empty when nowhere."""
        import torch

        source = self._in_one_piece(inputs)
        if source is not None and not _any_differ(self._everything[: source.numel()], source):
            return ""
        pairs = [
            (index, now, before)
            for slot, values in zip(self._slots, inputs, strict=False)
            for index, (now, before) in enumerate(zip(slot, values, strict=True))
        ]
        if not pairs or not bool(torch.stack([_differ(now, before).any() for _, now, before in pairs]).any()):
            return ""
        index, now, before = next(pair for pair in pairs if bool(_differ(pair[1], pair[2]).any()))
        changed = int(_differ(now, before).sum())
        return f"forward wrote to its input {index}: {changed} of {before.numel()} elements changed"

    def _free(self) -> None:
        self._outputs.close()
        self._slots.clear()
        self._inputs.close()

    @contextmanager
    def _watched(self) -> Iterator[None]:
        """Stops the process afterwards; counts how long it keeps the device busy until nothing is left to do, for which
        no clock runs."""
        self._sentinel.begin(self._limits.timeout_s + 10)
        try:
            yield
            self._put_to_rest()
        finally:
            self._others_ms = self._sentinel.end()
        self._others_ms += self._wait_until_idle()

    def _spoil_outputs(self) -> None:
        """What the last call left where its outputs lay may not serve the next one."""
        if not self._is_trusted:
            self._outputs.spoil()

    def _reveal(self, batch: Sequence[Sequence[torch.Tensor]], flush: torch.Tensor | None, first_slot: int = 0) -> None:
        """Writes inputs into the slots from `first_slot` on, and overwrites the cache.

        By kernels, not by copy engines, beside which work of the runner's could go on: so it would take longer.
        """
        import torch

        source = self._in_one_piece(batch)
        if source is not None:
            start = first_slot * self._slot_bytes
            target = self._everything[start : start + source.numel()]
            for ours, given in zip(_words(target), _words(source), strict=True):
                torch.bitwise_or(given, 0, out=ours)
        elif batch:
            places = [place for slot in self._slots[first_slot : first_slot + len(batch)] for place in slot]
            torch._foreach_copy_(places, [value for values in batch for value in values])
        if flush is not None:
            memory.release_cache()
            flush.add_(1)
        torch.cuda.synchronize(self._device)

    def _in_one_piece(self, batch: Sequence[Sequence[torch.Tensor]]) -> torch.Tensor | None:
        """The bytes of a batch that lies in memory just as our own slots do, such as a freshly drawn one."""
        starts, _ = wire.offsets(self._input_layouts)
        if not starts or not batch:
            return None
        base = batch[0][0].data_ptr()
        for slot, values in enumerate(batch):
            for start, value in zip(starts, values, strict=True):
                if value.data_ptr() != base + slot * self._slot_bytes + start:
                    return None
        nbytes = (len(batch) - 1) * self._slot_bytes + starts[-1] + self._input_layouts[-1].nbytes
        return memory.tensor_at(base, Layout((nbytes,), (1,), "uint8"), self._device)

    def _wait_until_idle(self) -> float:
        """How long the stopped process's work keeps the device busy [ms]; CandidateFailed when it does not end, perhaps
        since it waits for the next inputs."""
        waited_ms = self._sentinel.wait_until_idle()
        if waited_ms is None:
            raise CandidateFailed(Verdict.CONTRACT, "work of its own was still running on the device between two calls")
        return waited_ms

    def _where(self, calls: Sequence[int]) -> tuple[Output, ...]:
        self._order(wire.WHERE, len(calls), INDICES.pack(*calls, *[0] * (SAMPLED_CALLS - len(calls))))
        return self._claims(len(calls))

    def _claims(self, calls: int) -> tuple[Output, ...]:
        """What the runner says about the outputs of so many calls; their form must be right."""
        claims = self._await(wire.DONE, "saying where its outputs are", awake_s=AWAKE_S).outputs
        expected = self._layouts * calls
        if len(claims) != len(expected):
            found = len(claims) / calls
            raise CandidateFailed(
                Verdict.CONTRACT, f"forward must return {len(self._layouts)} tensors, found {found:g}"
            )
        for claim, layout in zip(claims, expected, strict=True):
            if claim.shape != layout.shape or claim.dtype != layout.dtype or claim.nbytes != layout.nbytes:
                reason = f"an output must be {layout.dtype} {layout.shape}, found {claim.dtype} {claim.shape}"
                raise CandidateFailed(Verdict.CONTRACT, reason)
        return claims

    def _take(self, chosen: Sequence[Stretch], first: int = 0) -> None:
        """Asks where the chosen outputs lie and samples them, as stretch number `first` and following."""
        claims = self._where([stretch.call for stretch in chosen[:: len(self._layouts)]])
        self._sampler.take(chosen, [self._outputs.place(claim) for claim in claims], first)

    def _list(self, calls: int) -> list[Output]:
        """What the runner says about all outputs."""
        per_order = max(1, wire.MAX_REPLY_OUTPUTS // max(1, len(self._layouts)))
        claims: list[Output] = []
        for first in range(0, calls, per_order):
            count = min(per_order, calls - first)
            self._order(wire.LIST, count | first << 16)
            claims += self._claims(count)
        return claims

    def _held_bytes(self) -> int:
        """Device memory of the process, as the driver counts it; of all processes where it does not tell them apart."""
        import torch

        gpu = _gpu(self._device)
        for process in (gpu.processes() if gpu is not None else None) or []:
            if process.pid == self.child.pid:
                return process.used_bytes
        free, total = torch.cuda.mem_get_info(self._device)
        return total - free

    def _examine(self, batch: Sequence[Sequence[torch.Tensor]]) -> None:
        """Raises CandidateFailed for inputs written to and for too much memory held; keeps the footprint."""
        changed = self._changed_input(batch)
        if changed:
            raise CandidateFailed(Verdict.CONTRACT, changed)

        self._most_held = max(self._most_held, self._held_bytes())
        held = self.peak_extra_bytes()
        if held > self._limits.device_bytes:
            allowed = self._limits.device_bytes >> 20
            raise CandidateFailed(
                Verdict.OUT_OF_MEMORY, f"it holds {held >> 20} MiB of device memory, allowed are {allowed} MiB"
            )


def usual(tails_ms: Sequence[float]) -> float:
    """The quantile USUAL of one tail or more."""
    return sorted(tails_ms)[int(USUAL * (len(tails_ms) - 1))]


def new_runner(
    zygote: Zygote, spec: dict[str, Any], policy: Policy, outputs: Sequence[Layout], limits: Limits
) -> GpuRunner:
    """A GpuRunner; JudgeError when the card has no room for its inputs."""
    try:
        return GpuRunner(zygote, spec, policy, outputs, limits)
    except DeviceError as error:
        raise JudgeError(f"the device cannot hold the inputs: {error}; free device memory and try again") from error


@cache
def _gpu(device: str) -> Gpu | None:
    """NVML's view of the device; None where there is none."""
    try:
        return Gpu(int(device.partition(":")[2] or 0))
    except JudgeError:
        return None


def _any_differ(left: torch.Tensor, right: torch.Tensor) -> bool:
    """Whether any byte differs; by words, and by parts that leave room."""
    (words, rest), (others, other_rest) = _words(left), _words(right)
    parts = zip((rest, *words.split(1 << 27)), (other_rest, *others.split(1 << 27)), strict=True)
    return any(bool((a != b).any()) for a, b in parts)


def _words(data: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Bytes as words of 8, and the bytes that are left."""
    import torch

    whole = data.numel() // 8 * 8
    return data[:whole].view(torch.int64), data[whole:]


def _differ(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Elements with different bits, without waiting for the device."""
    import torch

    same_bits = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[left.element_size()]
    return left.view(same_bits) != right.view(same_bits)
