"""The untrusted side on a GPU: what a fenced child does with a model or a problem. Nothing it says is evidence."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Sequence
from typing import Any

from fitness import wire
from fitness.gpu import memory
from fitness.gpu.memory import DeviceError, MappedMemory
from fitness.models import ContractBroken, as_outputs, input_slots, load
from fitness.oracle import ProblemBench, seeds
from fitness.runner import LOAD_ERROR, RUNTIME_ERROR, describe_output, error_code, fail, next_order
from fitness.wire import Layout, Output
from problems.inputs import FAMILIES

LARGE_BYTES = 2 << 30
"""The oracle gives cached device memory back after each operation of a problem with tensors this large."""

INDICES = struct.Struct("<8H")
"""WHERE's argument: calls of the batch whose outputs are asked for. LIST's is count | first << 16."""


def run(spec: dict[str, Any], descriptors: Sequence[int]) -> None:
    """Serves one model: RUN computes a batch, WHERE says where the outputs of some of its calls lie."""
    import torch

    go, done = descriptors[:2]
    try:
        memory.use(spec["device"])
        mapped = MappedMemory(bytes.fromhex(spec["input_handle"]), spec["device"])
        inputs = input_slots(spec, mapped.tensors, spec["slot_bytes"])
        forward, code = load(spec, _weights(spec))
    except BaseException as error:
        fail(done, LOAD_ERROR, error)
        return
    os.write(done, wire.pack_reply(wire.READY, code))
    kept: list[Any] = []
    exported: dict[int, bytes] = {}
    while message := next_order(go):
        operation, count, indices = message
        try:
            if operation == wire.RUN:
                results = [forward(*inputs[slot]) for slot in range(count)]
                for result in results:
                    kept.append([tensor.contiguous() for tensor in as_outputs(result, spec["device"])])
                del results
                torch.cuda.synchronize()
                reply = wire.pack_reply(wire.DONE)
            elif operation in (wire.WHERE, wire.LIST):
                first, length = count >> 16, count & 0xFFFF
                calls = kept[first : first + length]
                if operation == wire.WHERE:
                    calls = [kept[index] for index in INDICES.unpack(indices)[:count]]
                reply = wire.pack_reply(wire.DONE, 0, [_locate(tensor, exported) for call in calls for tensor in call])
            else:
                kept.clear()
                reply = wire.pack_reply(wire.RELEASED)
        except BaseException as error:
            fail(done, error_code(error), error)
            return
        os.write(done, reply)


def oracle(spec: dict[str, Any], descriptors: Sequence[int]) -> None:
    """Serves one problem: layouts, weights, batches of fresh inputs, and its own and fp64 results for given inputs."""
    go, done, facts_fd = descriptors[:3]
    try:
        memory.use(spec["device"])
        desk = _Desk(ProblemBench(spec["problem_path"], spec["device"], spec["precision"]), spec["device"], facts_fd)
    except BaseException as error:
        fail(done, LOAD_ERROR, error)
        return
    os.write(done, wire.pack_reply(wire.READY))
    while message := next_order(go):
        try:
            desk.serve(*message)
        except BaseException as error:
            fail(done, RUNTIME_ERROR, error)
            return
        os.write(done, wire.pack_reply(wire.DONE))


class _Desk:
    """A problem's bench with the judge's memory on it: `inputs` for batches, `results` for one draw's results."""

    def __init__(self, bench: ProblemBench, device: str, facts_fd: int) -> None:
        self._bench, self._device, self._facts_fd = bench, device, facts_fd
        facts = bench.describe()
        self._inputs = [Layout.from_json(entry) for entry in facts["inputs"] if "shape" in entry]
        self._slot_bytes = wire.offsets(self._inputs)[1]
        self._constants = [None if "shape" in entry else entry for entry in facts["inputs"]]
        self._has_whole_numbers = any("float" not in layout.dtype for layout in self._inputs)
        self._is_large = self._slot_bytes >= LARGE_BYTES
        self._mapped: dict[str, MappedMemory] = {}

    def serve(self, operation: int, argument: int, seed: bytes) -> None:
        """One order of the judge's; ends with the device idle."""
        import torch

        is_copied = bool(argument & wire.COPIED)
        if operation == wire.DESCRIBE:
            os.pwrite(self._facts_fd, json.dumps(self._bench.describe()).encode().ljust(1 << 16), 0)
        elif operation == wire.MAP:
            self._map()
        elif operation == wire.STATE:
            self._write("results", 0, self._bench.weights())
        elif operation == wire.INPUTS:
            self._draw(FAMILIES[argument & 0xFF], argument >> 17, int.from_bytes(seed, "little"))
        else:
            self._exact(argument >> 17, is_copied)
        torch.cuda.synchronize()
        if self._is_large:
            self._bench.let_go()

    def _map(self) -> None:
        """Opens the memories whose handles the judge has written, in place of earlier ones."""
        for name, handle in json.loads(os.pread(self._facts_fd, 1 << 16, 0).decode().rstrip("\0 ")).items():
            if name in self._mapped:
                self._mapped.pop(name).close()
            self._mapped[name] = MappedMemory(bytes.fromhex(handle), self._device)

    def _draw(self, family: str, count: int, seed: int) -> None:
        """A batch of inputs. Families that do not need the problem's own code are drawn for all slots at once."""
        import torch

        from problems import inputs as families

        for slot, one in enumerate(seeds(seed, count)):
            if slot and family != "own" and not self._has_whole_numbers:
                break
            tensors = [value for value in self._bench.inputs("own", one) if isinstance(value, torch.Tensor)]
            self._write("inputs", slot * self._slot_bytes, tensors)
            del tensors
        if family == "own":
            return
        starts, _ = wire.offsets(self._inputs)
        base = self._mapped["inputs"].address
        for index, (start, layout) in enumerate(zip(starts, self._inputs, strict=True)):
            if "float" in layout.dtype and layout.numel:
                rows = memory.rows_at(base + start, layout, self._slot_bytes, count, self._device)
                families.fill_rows(rows, family, families.tensor_seed(seed, family, index))

    def _exact(self, slot: int, is_copied: bool) -> None:
        """The problem's own results on the inputs of one slot, and then its fp64 results, in `results`."""
        places = iter(self._mapped["inputs"].tensors(self._inputs, slot * self._slot_bytes))
        values = [next(places) if entry is None else entry for entry in self._constants]
        values = [unplain_value(value) for value in values]
        narrow = self._bench.narrow(values, is_copied)
        base = self._write("results", 0, narrow, contiguous=True)
        del narrow
        self._write("results", base, self._bench.wide(values, is_copied), contiguous=True)

    def _write(self, name: str, base: int, tensors: Sequence[Any], *, contiguous: bool = False) -> int:
        layouts = [Layout.of(tensor.contiguous() if contiguous else tensor) for tensor in tensors]
        for place, tensor in zip(self._mapped[name].tensors(layouts, base), tensors, strict=True):
            place.copy_(tensor)
        return base + wire.offsets(layouts)[1]


def unplain_value(value: Any) -> Any:
    """A tensor as it is; a described plain value as the value itself."""
    from fitness.models import unplain

    return unplain(value["value"]) if isinstance(value, dict) else value


def _weights(spec: dict[str, Any]) -> list[Any]:
    if not spec["state"]:
        return []
    layouts = [Layout.from_json(entry) for entry in spec["state"]]
    return MappedMemory(bytes.fromhex(spec["state_handle"]), spec["device"]).tensors(layouts)


def _locate(tensor: Any, exported: dict[int, bytes]) -> Output:
    """A handle for the allocation that holds the tensor, and how far into it the tensor begins."""
    claim = describe_output(tensor)
    if claim.nbytes == 0:
        return claim
    base, _ = memory.allocation_of(claim.address)
    identity = memory.identity_of(claim.address)
    if identity not in exported:
        try:
            exported[identity] = memory.export(base)
        except DeviceError as error:
            raise ContractBroken("an output must lie in memory of its own, not in an input's") from error
    return Output(claim.address - base, claim.nbytes, claim.dtype, claim.shape, exported[identity])
