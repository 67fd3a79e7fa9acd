"""The process that runs the problem's own code, seen from the judge: it asks, and checks how the process fares."""

from __future__ import annotations

import json
import os
import secrets
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from fitness import wire
from fitness.children import Child, Zygote
from fitness.evaluation import JudgeError
from fitness.process import Limits
from fitness.sandbox import Policy
from fitness.wire import Layout, Segment
from problems.inputs import FAMILIES
from problems.problem import ProblemError

if TYPE_CHECKING:
    import torch

FACTS_BYTES = 1 << 20
"""Room for what a problem says about its inputs and weights."""


class ProblemProcess:
    """What both kinds, on the CPU and on a GPU, share."""

    def __init__(
        self,
        zygote: Zygote,
        entry: str,
        spec: dict[str, Any],
        policy: Policy,
        limits: Limits,
        descriptors: Sequence[int] = (),
    ) -> None:
        self._limits = limits
        self._facts_fd = os.memfd_create("kb-facts", os.MFD_CLOEXEC)
        os.ftruncate(self._facts_fd, FACTS_BYTES)
        go_read, self._go = os.pipe2(os.O_CLOEXEC)
        self._done, done_write = os.pipe2(os.O_CLOEXEC)
        passed = [go_read, done_write, *descriptors, self._facts_fd]
        self._child: Child = zygote.spawn(entry, spec, policy, passed)
        os.close(go_read)
        os.close(done_write)

    def describe(self) -> dict[str, Any]:
        """Layouts of inputs, outputs and weights, and the plain values: the first question."""
        self._await("loading the problem")
        self.ask(wire.DESCRIBE, 0, "describing its inputs")
        return json.loads(os.pread(self._facts_fd, FACTS_BYTES, 0).decode().rstrip("\0 "))

    def ask(self, operation: int, argument: int, doing: str) -> None:
        """One order, and its end. ProblemError when the problem's code fails, JudgeError when the card is too small."""
        try:
            os.write(self._go, wire.GO.pack(operation, argument, secrets.token_bytes(16)))
        except BrokenPipeError:
            pass  # the wait says how it ended
        self._await(doing)

    def close(self) -> None:
        """Ends it."""
        self._child.discard()
        for descriptor in (self._go, self._done, self._facts_fd):
            os.close(descriptor)

    def _await(self, doing: str) -> None:
        body = wire.read_exactly(self._done, wire.REPLY_BYTES, time.monotonic() + self._limits.timeout_s)
        if body is None:
            self._child.kill()
            raise ProblemError(f"the problem took longer than {self._limits.timeout_s:g} s at {doing}")
        if not body:
            self._child.ended.wait(5)
            lines = self._child.log().strip().splitlines() or ["it printed nothing"]
            raise ProblemError(f"the problem's process {self._child.death()} at {doing}: {lines[-1]}")
        reply = wire.unpack_reply(body)
        if reply.kind != wire.FAILED:
            return
        if "out of memory" in reply.text.lower():
            raise JudgeError(f"the device is too small for the problem's own code at {doing}: {reply.text}")
        raise ProblemError(f"the problem failed at {doing}: {reply.text}")


class OracleClient(ProblemProcess):
    """On the CPU: draws come through shared memory."""

    def __init__(self, zygote: Zygote, problem_path: str, precision: str, policy: Policy, limits: Limits) -> None:
        self._transfer_fd = os.memfd_create("kb-transfer", os.MFD_CLOEXEC)
        spec = {"problem_path": problem_path, "precision": precision}
        super().__init__(zygote, "oracle", spec, policy, limits, [self._transfer_fd])
        self.facts = self.describe()
        self._segment: Segment | None = None

    def state(self, layouts: Sequence[Layout]) -> list[torch.Tensor]:
        """The varied weights; valid until the next request."""
        segment = self._room(wire.offsets(layouts)[1])
        self.ask(wire.STATE, 0, "giving its weights")
        return segment.tensors(layouts)

    def draw(
        self, family: str, is_copied: bool, inputs: Sequence[Layout], outputs: Sequence[Layout]
    ) -> tuple[list[torch.Tensor], list[torch.Tensor], list[torch.Tensor]]:
        """Fresh inputs, their fp32 and their fp64 results; valid until the next request."""
        wide = [widened(layout) for layout in outputs]
        after_inputs = wire.offsets(inputs)[1]
        after_narrow = after_inputs + wire.offsets(outputs)[1]
        segment = self._room(after_narrow + wire.offsets(wide)[1])
        argument = FAMILIES.index(family) | (wire.COPIED if is_copied else 0)
        self.ask(wire.DRAW, argument, f"computing a draw of family {family}")
        return segment.tensors(inputs), segment.tensors(outputs, after_inputs), segment.tensors(wide, after_narrow)

    def sensitivity(self, is_copied: bool, inputs: Sequence[Layout], outputs: Sequence[Layout]) -> list[torch.Tensor]:
        """How rounding of inputs and weights moves the last draw's fp64 results, which stay where they are."""
        wide = [widened(layout) for layout in outputs]
        place = wire.offsets(inputs)[1] + wire.offsets(outputs)[1] + wire.offsets(wide)[1]
        segment = self._room(place + wire.offsets(wide)[1])
        self.ask(wire.SENSITIVITY, wire.COPIED if is_copied else 0, "measuring how its results amplify rounding")
        return segment.tensors(wide, place)

    def close(self) -> None:
        """Ends it and lets go of the shared memory."""
        super().close()
        os.close(self._transfer_fd)

    def _room(self, nbytes: int) -> Segment:
        if self._segment is None or self._segment.nbytes < nbytes:
            os.ftruncate(self._transfer_fd, nbytes)
            self._segment = Segment(descriptor=self._transfer_fd)
        return self._segment


def widened(layout: Layout) -> Layout:
    """The layout of the fp64 result."""
    return Layout(layout.shape, layout.stride, "float64" if "float" in layout.dtype else layout.dtype)
