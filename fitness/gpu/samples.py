"""Stretches of outputs as they were when the clock stopped, taken where nobody can foresee."""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Sequence
from dataclasses import dataclass

from fitness import wire
from fitness.calls import SAMPLED_CALLS, Sample
from fitness.gpu import memory
from fitness.wire import Layout

SAMPLE_BYTES = 4096


@dataclass(frozen=True, slots=True)
class Stretch:
    """Some elements of one output of a batch."""

    call: int
    output: int
    start: int
    length: int


class Sampler:
    """Device memory of ours alone, for as many stretches as one reply can name outputs."""

    def __init__(self, layouts: Sequence[Layout], device: str) -> None:
        import torch

        self._layouts = layouts
        self._most_calls = min(SAMPLED_CALLS, max(1, wire.MAX_REPLY_OUTPUTS // max(1, len(layouts))))
        self._taken = torch.empty(wire.MAX_REPLY_OUTPUTS * SAMPLE_BYTES, dtype=torch.uint8, device=device)

    def choose_among(self, calls: int) -> list[Stretch]:
        """Stretches of all outputs of up to SAMPLED_CALLS of so many calls, at random, without repetition."""
        return self.choose(secrets.SystemRandom().sample(range(calls), min(calls, self._most_calls)))

    def choose(self, calls: Sequence[int]) -> list[Stretch]:
        """A stretch of each output of these calls."""
        chosen = []
        for call, (output, layout) in itertools.product(calls, enumerate(self._layouts)):
            length = min(layout.numel, SAMPLE_BYTES // wire.item_bytes(layout.dtype))
            chosen.append(Stretch(call, output, secrets.randbelow(layout.numel - length + 1), length))
        return chosen

    def take(self, chosen: Sequence[Stretch], places: Sequence[int], first: int) -> None:
        """Copies the stretches of outputs at these addresses, as number `first` and following; ends when it is done."""
        target = self._taken.data_ptr() + first * SAMPLE_BYTES
        for stretch, place in zip(chosen, places, strict=True):
            if stretch.length:
                item = wire.item_bytes(self._layouts[stretch.output].dtype)
                memory.copy_async(target, place + stretch.start * item, stretch.length * item)
            target += SAMPLE_BYTES
        memory.wait()

    def read(self, chosen: Sequence[Stretch]) -> tuple[Sample, ...]:
        """What was taken, from number 0 on."""
        import torch

        taken, samples = self._taken[: len(chosen) * SAMPLE_BYTES].cpu(), []
        for stretch, values in zip(chosen, taken.split(SAMPLE_BYTES), strict=True):
            dtype = getattr(torch, self._layouts[stretch.output].dtype)
            samples.append(Sample(stretch.call, stretch.output, stretch.start, values.view(dtype)[: stretch.length]))
        return tuple(samples)
