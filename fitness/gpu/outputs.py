"""Where a runner's outputs lie: its memory, opened and read there, and overwritten before the next call.

An output is its caller's, who may write to it. So nothing that a candidate leaves in that memory may serve its next
call: neither what was right already, such as zeros beside a diagonal, nor what it had copied there between two calls,
which copy engines do while the process is stopped and no kernel of ours sees.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING

from fitness import wire
from fitness.evaluation import Verdict
from fitness.gpu import memory
from fitness.gpu.memory import DeviceError, MappedMemory
from fitness.process import CandidateFailed
from fitness.spans import Span, merged, new_share
from fitness.wire import Layout, Output

if TYPE_CHECKING:
    import torch

UNUSED_BYTES = 1 << 30
"""Mappings of outputs of this many bytes are kept although the last batch did not lie in them: opening one takes 0.1 ms
or, when it is large, a millisecond."""


class Outputs:
    """The outputs of one runner's last call, and the mappings through which they are seen."""

    def __init__(self, layouts: Sequence[Layout], device: str) -> None:
        self._layouts, self._device = layouts, device
        self._mapped: dict[bytes, MappedMemory] = {}
        self._views: dict[tuple[int, int], torch.Tensor] = {}
        self._spans: list[Span] = []
        self._rubbish: list[int] = []
        """What each of these stretches is overwritten with."""
        self.moved_share = 0.0
        """The part of the last call's outputs that lies where none of the call before lay: nobody overwrote that."""

    def place(self, claim: Output) -> int:
        """The claim's address in our own mapping of the runner's memory; 0 for an empty one."""
        if not claim.nbytes:
            return 0
        mapped = self._mapped.get(claim.handle)
        if mapped is None:
            try:
                mapped = self._mapped[claim.handle] = MappedMemory(claim.handle, self._device)
            except DeviceError as error:
                raise CandidateFailed(Verdict.CONTRACT, f"an output's memory cannot be opened ({error})") from error
        if claim.address + claim.nbytes > mapped.nbytes:
            raise CandidateFailed(Verdict.CONTRACT, "an output reaches beyond the memory that holds it")
        return mapped.address + claim.address

    def find(self, claims: Sequence[Output]) -> list[list[torch.Tensor]]:
        """All outputs of a call where they lie, call by call; mappings that none of them needs are let go."""
        _refuse_aliases(claims)
        places = [self.place(claim) for claim in claims]
        self._note(claims, places)
        self._unmap({claim.handle for claim in claims})
        width = len(self._layouts)
        tensors = [self._view(place, index % width) for index, place in enumerate(places)]
        return [tensors[index : index + width] for index in range(0, len(tensors), width)]

    def spoil(self) -> None:
        """Overwrites the last call's outputs, which were let go; ends when that is done."""
        for (start, end), value in zip(self._spans, self._rubbish, strict=True):
            memory.fill_async(start, value, end - start)
        memory.wait()

    def close(self) -> None:
        """Lets go of all that is mapped."""
        for mapped in self._mapped.values():
            mapped.close()
        self._mapped.clear()
        self._views.clear()
        self._spans.clear()

    def _note(self, claims: Sequence[Output], places: Sequence[int]) -> None:
        """What is to be overwritten before the next call, and how much of it was before this one."""
        alike: defaultdict[tuple[bytes, int], list[Span]] = defaultdict(list)
        for claim, place in zip(claims, places, strict=True):
            alike[claim.handle, wire.rubbish(claim.dtype)].append((place, place + claim.nbytes))
        found = sorted((span, value) for (_, value), spans in alike.items() for span in merged(spans))
        spans, self._rubbish = [span for span, _ in found], [value for _, value in found]
        self.moved_share = new_share(spans, self._spans)
        self._spans = spans

    def _unmap(self, used: set[bytes]) -> None:
        """Closes mappings of old: an open one holds memory that the runner may have given back."""
        unused = [handle for handle in self._mapped if handle not in used]  # in the order of their opening
        nbytes = sum(self._mapped[handle].nbytes for handle in unused)
        for handle in unused:
            if nbytes <= UNUSED_BYTES:
                return
            nbytes -= self._mapped[handle].nbytes
            self._mapped.pop(handle).close()
            self._views.clear()

    def _view(self, place: int, output: int) -> torch.Tensor:
        """The output at an address; runners put their outputs into the same places again and again."""
        if (place, output) not in self._views:
            self._views[place, output] = memory.tensor_at(place, self._layouts[output], self._device)
        return self._views[place, output]


def _refuse_aliases(claims: Sequence[Output]) -> None:
    spans = sorted((claim.handle, claim.address, claim.nbytes) for claim in claims if claim.nbytes)
    for (handle, address, nbytes), (other, following, _) in itertools.pairwise(spans):
        if handle == other and address + nbytes > following:
            raise CandidateFailed(Verdict.CONTRACT, "outputs share memory with one another (alias)")
