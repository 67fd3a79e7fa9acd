"""One problem on a GPU's bench: its oracle, the memory for its inputs, its reference.

Timed inputs are made while the rounds go on, so no process ever sees one twice. Their outputs are compared with the
reference's of the same round; what is not near enough to that is decided by the fp64 oracle on the same inputs.
"""

from __future__ import annotations

import dataclasses
import random
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fitness import nearness, verify, wire
from fitness.calls import Call
from fitness.children import Zygote
from fitness.draws import VERIFICATION, Draw, too_late, too_unstable, wrong
from fitness.evaluation import Job, JudgeError
from fitness.gpu import room, windows
from fitness.gpu.calls import GpuRunner, new_runner
from fitness.gpu.memory import DeviceError, DeviceMemory
from fitness.gpu.oracle import GpuOracle, Stream
from fitness.nearness import Nearness
from fitness.process import CALLS_WAITED, Limits, Patience
from fitness.questions import widened
from fitness.reports import routes_of
from fitness.rounds import Plan
from fitness.sandbox import live_dir
from fitness.session import BASELINES, COMPILE_FILE_BYTES, private_policy
from fitness.wire import Layout

if TYPE_CHECKING:
    import torch

PACED_CALLS, PACED_ROUNDS = 16, 6
HOST_MS = {"cuda": 0.02, "triton": 0.06}
"""How much longer than eager's launching may take: Python and a C function; Triton's own launcher, in Python."""
SURPRISES_CHECKED = 2
"""Calls of a batch of a family that is not timed that the oracle looks at."""
TOGETHER_BYTES = 256 << 20
"""Outputs of this many bytes are compared at once."""
CACHED_SHARE = 0.15
"""Verification draws of a problem are kept from candidate to candidate up to this share of the card's memory."""
LOOKS, PRECISION = (8, 12, 16, 20, 30, 40, 80, 160), 0.006
"""As in fitness/timing.py; finer, so that judgements of one kernel lie within 2% of each other."""


class GpuSession:
    """A problem made ready: all that is expensive and the same for each of its candidates."""

    looks, precision = LOOKS, PRECISION
    timed_s = 1.5
    """As on the CPU (fitness/session.py); a round takes about a tenth of a second, most of it drawing and comparing."""
    rounds_per_process = 4
    """Where its memory lies makes a process some 0.5% faster or slower than the next, as much as eight rounds leave
    open."""
    usual = None
    """A GPU's references are kept from candidate to candidate, and are alike."""
    put_off_share = 0.01
    """After a window the device does nothing for an honest runner, and a change between two processes takes 0.3 ms: so
    nearly everything counts."""
    warm_rounds = 2
    """Untimed rounds: memory for the outputs of a whole batch is taken in the first, and how many calls a window holds
    follows from the second."""
    warm_again = 1
    """The same of a candidate's later processes."""

    def __init__(self, zygote: Zygote, job: Job, flush: torch.Tensor, *, fenced: bool) -> None:
        """Loads the problem and times the reference roughly.

        Raises ProblemError when the problem's own code fails or cannot judge, JudgeError when the card is too small.
        """
        import torch

        self._zygote, self.job, self._flush, self._fenced = zygote, job, flush, fenced
        self._device = job.device
        self._card_bytes = torch.cuda.mem_get_info(self._device)[1]
        self.limits = Limits(max(job.timeout_s, 60.0), 2 * job.memory_bytes, self._card_bytes)
        self._dir = Path(tempfile.mkdtemp(prefix="problem-", dir=live_dir()))
        self._dir.chmod(0o711)
        self._source = self._dir / "problem.py"
        self._source.write_text(job.problem_source)
        self._source.chmod(0o644)
        self._memories: dict[str, DeviceMemory] = {}
        self._slots: list[list[torch.Tensor]] = []
        """Views of the memory for inputs, slot by slot: a batch has up to a thousand."""
        self._references: dict[bool, GpuRunner] = {}
        self._verification: dict[bool, list[Draw]] = {}
        self._oracle = GpuOracle(zygote, str(self._source), job, self._policy((str(self._dir),)), self.limits)
        try:
            self._make_ready()
        except BaseException:
            self.close()
            raise

    def _make_ready(self) -> None:
        self.facts = self._oracle.describe()
        self.inputs = [Layout.from_json(entry) for entry in self.facts["inputs"] if "shape" in entry]
        self.outputs = [Layout.from_json(entry) for entry in self.facts["outputs"]]
        self.state_layouts = [Layout.from_json(entry) for entry in self.facts["state"]]
        self._slot_bytes = wire.offsets(self.inputs)[1]
        self._output_bytes = wire.offsets(self.outputs)[1]
        shapes = [layout.shape for layout in (*self.inputs, *self.state_layouts)]
        self._terms = verify.longest_sum(shapes, [layout.shape for layout in self.outputs])
        room.check(self.job, self._slot_bytes, self._output_bytes, wire.offsets(self.state_layouts)[1])
        self.calls = self.capacity = 1
        self._give("inputs", self._slot_bytes)
        self._state = self._varied_weights()
        self._nearness: dict[bool, list[Nearness]] = {}
        self._families: dict[bool, list[str]] = {}
        self._others: dict[bool, list[str]] = {}
        self.unusable: dict[str, float] = {}
        self.pilot_ms = self._pilot()
        self.calls, self.capacity = room.window_calls(self.pilot_ms, self._fitting_calls(), self._slot_bytes)
        self._give("inputs", self._slot_bytes * self.capacity)
        self.fixed_ms = 0.0
        if self.calls > 1:
            is_copied = self._state is not None
            runner, family = self.timed_reference(is_copied), self.timed_families(is_copied)[0]
            self.fixed_ms = windows.fixed_ms(runner, lambda n: self.new_batch(family, n), self.calls, self._flush)

    def verification(self, is_copied: bool) -> Iterable[Draw]:
        """The draws of the first check, with their oracles. Large ones are made anew for each candidate, one at a time:
        each is valid until the next."""
        if is_copied in self._verification:
            return self._verification[is_copied]
        draws = self._draws(is_copied)
        if not self._is_small:
            return draws
        self._verification[is_copied] = list(draws)
        return self._verification[is_copied]

    def feed(self, is_copied: bool, plan_calls: int, *, fresh: bool) -> Stream:
        """Where the timed rounds get their inputs: always fresh."""
        import torch

        del fresh
        if not self._is_small:
            torch.cuda.empty_cache()  # verification leaves several GiB
        return Stream(self, is_copied, plan_calls)

    def compare(self, theirs: Call, ours: Call | None, batch: Sequence[Draw], is_copied: bool) -> None:
        """Raises CandidateFailed unless every output of the candidate's call is right and was so in time. Only batches
        of families that are not timed can do without the reference's."""
        import torch

        if batch[0].family not in self.timed_families(is_copied):
            for slot in random.SystemRandom().sample(range(len(batch)), min(SURPRISES_CHECKED, len(batch))):
                self._ask_oracle(theirs.outputs[slot], slot, batch[slot], is_copied)
            return
        assert ours is not None
        near = self._nearness[is_copied]
        together = max(1, TOGETHER_BYTES // max(1, self._output_bytes))
        for first in range(0, len(batch), together):
            group = range(first, min(first + together, len(batch)))
            pairs = [(theirs.outputs[slot], ours.outputs[slot]) for slot in group]
            if not nearness.are_near(pairs, near):
                for slot, pair in zip(group, pairs, strict=True):
                    if not nearness.are_near([pair], near):
                        self._ask_oracle(theirs.outputs[slot], slot, batch[slot], is_copied)
        for sample in theirs.samples:
            final = theirs.outputs[sample.call][sample.output].reshape(-1)
            final = final[sample.start : sample.start + sample.values.numel()].cpu()
            if not torch.equal(final.view(torch.uint8), sample.values.view(torch.uint8)):
                raise too_late(batch[sample.call])

    def reference(self, is_copied: bool, kind: str = "eager") -> GpuRunner:
        """A clean process with the reference in it; `kind` is one of BASELINES. Raises CandidateFailed if it fails."""
        mode, precision = BASELINES[kind]
        policy = self._policy((str(self._dir),), processes=bool(mode))
        limits = self.limits
        if mode:
            policy = dataclasses.replace(policy, file_bytes=COMPILE_FILE_BYTES)
            limits = dataclasses.replace(limits, timeout_s=600.0, memory_bytes=4 * limits.memory_bytes)
        spec = self._spec(str(self._source), "Model", is_copied, mode=mode)
        spec |= {"precision": precision or spec["precision"], "is_trusted": True}
        return new_runner(self._zygote, spec, policy, self.outputs, limits)

    def timed_reference(self, is_copied: bool) -> GpuRunner:
        """The reference of the timed rounds, kept from candidate to candidate."""
        if is_copied in self._references and self._references[is_copied].is_closed:
            self._references.pop(is_copied).child.discard()
        if is_copied not in self._references:
            self._references[is_copied] = self.reference(is_copied)
        return self._references[is_copied]

    def give_back(self, reference: Any) -> None:
        """After timed rounds: nothing ends here."""
        del reference

    def candidate(
        self, artifact_dir: str, limits: Limits, *, own_threads: bool, writable_inputs: bool = False
    ) -> GpuRunner:
        """A fresh process with the candidate in it. Raises CandidateFailed if it cannot be loaded."""
        del own_threads, writable_inputs
        folder = Path(artifact_dir)
        spec = self._spec(str(folder / "candidate.py"), "ModelNew", True, products=str(folder / "products"))
        is_jit = "triton-jit" in routes_of(folder / "products")  # Triton then starts its compiler at the first call
        policy = self._policy((artifact_dir,), processes=is_jit)
        return new_runner(self._zygote, spec, policy, self.outputs, limits)

    def candidate_limits(self, job: Job) -> Limits:
        """What one call of a candidate may take: all of the card that the judge itself does not need."""
        import torch

        torch.cuda.empty_cache()
        own = (2 * self._slot_bytes + self._output_bytes) * self.capacity
        if not self._is_small:
            own += 3 * self._output_bytes  # the bounds of one draw
        free = torch.cuda.mem_get_info(self._device)[0]
        device_bytes = max(1 << 30, free - own - room.CONTEXTS_BYTES)
        return Limits(job.timeout_s, job.memory_bytes, device_bytes, Patience(CALLS_WAITED * job.timeout_s))

    def single_slack_ms(self, batched_ms: float) -> float:
        """How much longer than one call of a batch a single call may take before its own time becomes the score.

        A batch hides what the host does for a call behind the device's work; but the host's part of an honest kernel
        takes no longer than one call of the batch, and seldom more than HOST_MS.
        """
        return min(batched_ms, HOST_MS[self.job.backend])

    @property
    def single_plan(self) -> Plan:
        """How single calls are timed: one by one within a window."""
        calls = min(self.calls, PACED_CALLS, max(1, wire.MAX_REPLY_OUTPUTS // len(self.outputs)))
        return Plan(calls, most_rounds=PACED_ROUNDS, is_whole=True, is_paced=True, keep_process=True, has_exam=False)

    def close(self) -> None:
        """Ends oracle and reference, gives the memory back and removes the problem's folder."""
        import torch

        for runner in self._references.values():
            runner.close()
            runner.child.discard()
        self._references.clear()
        self._verification.clear()
        torch.cuda.empty_cache()
        self._oracle.close()
        self._slots.clear()
        for held in self._memories.values():
            held.close()
        self._memories.clear()
        shutil.rmtree(self._dir, ignore_errors=True)

    def new_batch(self, family: str, calls: int) -> list[Draw]:
        """Fresh inputs of one family; valid until the next batch."""
        self._oracle.inputs(family, calls)
        memory = self._memories["inputs"]
        for slot in range(len(self._slots), calls):
            self._slots.append(memory.tensors(self.inputs, slot * self._slot_bytes))
        return [Draw(family, tensors, []) for tensors in self._slots[:calls]]

    def timed_families(self, is_copied: bool) -> list[str]:
        """Own and signed inputs in turn; without those that the reference cannot do or that never change."""
        if is_copied not in self._families:
            self._survey(is_copied)
        return self._families[is_copied]

    def other_families(self, is_copied: bool) -> list[str]:
        """The usable families that are not timed."""
        self.timed_families(is_copied)
        return self._others[is_copied]

    def _survey(self, is_copied: bool) -> None:
        """What the timed rounds must know: how near outputs come to the reference's, and which families serve."""
        import torch

        bounds: list[list[Nearness]] = []
        first_own: list[torch.Tensor] = []
        own_changes, seen = True, set()
        for draw in self.verification(is_copied):
            seen.add(draw.family)
            if draw.family in ("own", "normal"):
                bounds.append([Nearness.of([one]) for one in draw.expected])
            if draw.family == "own" and first_own:
                own_changes = any(not torch.equal(a, b) for a, b in zip(first_own, draw.inputs, strict=True))
            elif draw.family == "own":
                first_own = [tensor.clone() for tensor in draw.inputs]
            del draw  # a large one must go before the next is made
        has_normal = "normal" in seen
        self._others[is_copied] = sorted(seen - {"own", "normal"})
        self._families[is_copied] = (["own"] if own_changes or not has_normal else []) + ["normal"] * has_normal
        self._nearness[is_copied] = [Nearness.of(draws) for draws in zip(*bounds, strict=True)]

    def _draws(self, is_copied: bool) -> Iterator[Draw]:
        has_own = False
        for family in VERIFICATION:
            if family != "own" and not any("float" in layout.dtype for layout in self.inputs):
                continue
            draw = self._exact_draw(family, is_copied)
            share = max((one.unusable_share for one in draw.expected), default=0.0)
            if all(one.is_usable for one in draw.expected):
                has_own = has_own or family == "own"
                yield draw
            else:
                self.unusable[family] = share
            del draw
        if not has_own:
            raise too_unstable(self.job, self.unusable.get("own", 1.0))

    def _exact_draw(self, family: str, is_copied: bool) -> Draw:
        import torch

        [draw] = self.new_batch(family, 1)
        if not self._is_small:
            torch.cuda.empty_cache()
        inputs = [tensor.clone() for tensor in draw.inputs] if self._is_small else draw.inputs
        return Draw(family, inputs, self._expected(0, is_copied, clone=self._is_small))

    def _expected(self, slot: int, is_copied: bool, *, clone: bool) -> list[verify.Expected]:
        """What the oracle says about the inputs in one slot."""
        wide_layouts = [widened(layout) for layout in self.outputs]
        self._give("results", self._output_bytes + wire.offsets(wide_layouts)[1])
        self._oracle.exact(slot, is_copied)
        results = self._memories["results"]
        narrow, wide = results.tensors(self.outputs), results.tensors(wide_layouts, self._output_bytes)
        pairs = [(r.clone(), y.clone()) if clone else (r, y) for r, y in zip(narrow, wide, strict=True)]

        def moved() -> list[torch.Tensor]:
            self._give("sensitivity", wire.offsets(wide_layouts)[1])
            self._oracle.sensitivity(slot, is_copied)
            return self._memories["sensitivity"].tensors(wide_layouts)

        asked = moved if self._is_small else None  # it takes a dozen fp64 results
        return verify.expect_all(pairs, self._terms, asked, precision=self.job.precision, keep=True)

    def _ask_oracle(self, outputs: Sequence[torch.Tensor], slot: int, draw: Draw, is_copied: bool) -> None:
        """Decides on outputs that lie too far from the reference's own to be waved through."""
        expected = self._expected(slot, is_copied, clone=False)
        for index, (actual, bounds) in enumerate(zip(outputs, expected, strict=True)):
            if not verify.is_right(actual, bounds):
                raise wrong(draw, index, verify.complaint(actual, bounds), len(outputs))

    @property
    def _is_small(self) -> bool:
        """Whether inputs, results, fp64 results and bounds of all verification draws can be kept."""
        kept = len(VERIFICATION) * (self._slot_bytes + 6 * self._output_bytes)
        return kept <= CACHED_SHARE * self._card_bytes

    def _fitting_calls(self) -> int:
        return room.fitting_calls(self._device, self._slot_bytes, self._output_bytes)

    def _pilot(self) -> float:
        """The reference's time of one call [ms], roughly."""
        is_copied = self._state is not None
        family = self.timed_families(is_copied)[0]
        self.calls = max(1, min(windows.PILOT_CALLS, self._fitting_calls()))
        self._give("inputs", self._slot_bytes * self.calls)
        runner = self.reference(is_copied)
        try:
            return windows.call_ms(runner, lambda calls: self.new_batch(family, calls), self.calls)
        finally:
            runner.close()
            runner.child.discard()

    def _varied_weights(self) -> DeviceMemory | None:
        if not self.state_layouts:
            return None
        nbytes = wire.offsets(self.state_layouts)[1]
        self._give("results", nbytes)
        self._oracle.ask(wire.STATE, 0, "giving its weights")
        state = self._memories["state"] = self._allocate(nbytes)
        weights = self._memories["results"].tensors(self.state_layouts)
        for place, tensor in zip(state.tensors(self.state_layouts), weights, strict=True):
            place.copy_(tensor)
        return state

    def _give(self, name: str, nbytes: int) -> None:
        """Makes sure that the oracle has memory of this name and at least this size."""
        held = self._memories.get(name)
        if held is not None and held.nbytes >= nbytes:
            return
        fresh = self._allocate(nbytes)
        self._oracle.map({name: fresh.handle})
        if held is not None:
            held.close()
        self._memories[name] = fresh
        if name == "inputs":
            self._slots.clear()

    def _allocate(self, nbytes: int) -> DeviceMemory:
        try:
            return DeviceMemory(nbytes, self._device)
        except DeviceError as error:
            raise JudgeError(
                f"problem {self.job.problem} on {self._device}: {error}; end other programs there"
            ) from error

    def _spec(
        self, source: str, name: str, is_copied: bool, *, products: str | None = None, mode: str = ""
    ) -> dict[str, Any]:
        state = self._state if is_copied else None
        return {
            "source_path": source,
            "class_name": name,
            "products_dir": products,
            "compile": mode,
            "device": self._device,
            "backend": self.job.backend,
            "arch": self.job.arch,
            "precision": self.job.precision,
            "init": self.facts["init"],
            "inputs": self.facts["inputs"],
            "state": self.facts["state"] if state is not None else [],
            "state_handle": state.handle.hex() if state is not None else "",
            "slots": max(self.calls, self.capacity, 2 if self._is_small else 1),
            "slot_bytes": self._slot_bytes,
            "is_trusted": False,
        }

    def _policy(self, read: tuple[str, ...], *, processes: bool = False) -> Any:
        policy = private_policy(read, processes=processes, fenced=self._fenced)
        return dataclasses.replace(policy, gpu=True)
