"""The untrusted side on a GPU: what a fenced child does with a model or a problem. Nothing it says is evidence."""

from __future__ import annotations

import gc
import json
import os
import select
import struct
from collections.abc import Callable, Sequence
from typing import Any

from fitness import wire
from fitness.gpu import memory
from fitness.gpu.memory import DeviceError, MappedMemory
from fitness.models import ContractBroken, as_outputs, input_slots, load
from fitness.oracle import ProblemBench, seeds
from fitness.runner import LOAD_ERROR, RUNTIME_ERROR, describe_output, error_code, fail, is_prepared, next_order
from fitness.wire import Layout, Output
from problems.inputs import FAMILIES

LARGE_BYTES = 2 << 30
"""The oracle gives cached device memory back after each operation of a problem with tensors this large."""

WAKEFUL_LOOKS = 20_000
"""A look at the pipe takes a third of a microsecond."""

INDICES = struct.Struct("<8H")
"""WHERE's argument: calls of the batch whose outputs are asked for. LIST's is count | first << 16."""


def run(spec: dict[str, Any], descriptors: Sequence[int]) -> None:
    """Serves one model: RUN computes a batch, STEP one call of it, WHERE says where the outputs of some calls lie."""

    go, done = descriptors[:2]
    if not is_prepared(spec, done):
        return
    try:
        memory.use(spec["device"])
        mapped = MappedMemory(bytes.fromhex(spec["input_handle"]), spec["device"])
        inputs = input_slots(spec, mapped.tensors, spec["slot_bytes"])
        forward, code = load(spec, _weights(spec))
    except BaseException as error:
        fail(done, LOAD_ERROR, error)
        return
    os.write(done, wire.pack_reply(wire.READY, code))
    gc.collect()
    gc.freeze()
    gc.disable()  # a collection in a timed window would be noise; they come between calls
    desk = _ModelDesk(forward, inputs, spec["device"])
    while message := _next_order(go):
        try:
            reply = desk.serve(*message)
        except BaseException as error:
            fail(done, error_code(error), error)
            return
        os.write(done, reply)


class _ModelDesk:
    """A loaded model, and the results of its last batch. Nothing else may hold on to results: their memory is wanted
    again, at the same place, by the next batch."""

    def __init__(self, forward: Callable[..., Any], inputs: Sequence[Sequence[Any]], device: str) -> None:
        self._forward, self._inputs, self._device = forward, inputs, device
        self._kept: list[list[Any]] = []
        self._bases: dict[int, tuple[int, bytes]] = {}

    def serve(self, operation: int, argument: int, indices: bytes) -> bytes:
        """The reply to one order."""
        if operation in (wire.RUN, wire.STEP):
            self._compute(self._inputs[:argument] if operation == wire.RUN else [self._inputs[argument]])
            return wire.pack_reply(wire.DONE)
        if operation == wire.WHERE:
            return self._locate([self._kept[index] for index in INDICES.unpack(indices)[:argument]])
        if operation == wire.LIST:
            first = argument >> 16
            return self._locate(self._kept[first : first + (argument & 0xFFFF)])
        self._kept.clear()
        gc.collect()
        return wire.pack_reply(wire.RELEASED)

    def _compute(self, inputs: Sequence[Sequence[Any]]) -> None:
        import torch

        results = [self._forward(*values) for values in inputs]
        for result in results:
            self._kept.append([tensor.contiguous() for tensor in as_outputs(result, self._device)])
        torch.cuda.synchronize()

    def _locate(self, calls: Sequence[Sequence[Any]]) -> bytes:
        """For each tensor a handle for the allocation that holds it, and how far into it the tensor begins."""
        claims = [self._claim(describe_output(tensor)) for call in calls for tensor in call]
        return wire.pack_reply(wire.DONE, 0, claims)

    def _claim(self, output: Output) -> Output:
        if output.nbytes == 0:
            return output
        identity = memory.identity_of(output.address)
        if identity not in self._bases:
            base, _ = memory.allocation_of(output.address)
            try:
                self._bases[identity] = base, memory.export(base)
            except DeviceError as error:
                raise ContractBroken("an output must lie in memory of its own, not in an input's") from error
        base, handle = self._bases[identity]
        return Output(output.address - base, output.nbytes, output.dtype, output.shape, handle)


def _next_order(go: int) -> tuple[int, int, bytes] | None:
    """As fitness.runner.next_order, but awake for a few milliseconds, so that waking up does not count as work.

    Looks are counted, not timed: while the process is stopped, time goes by.
    """
    poller = select.poll()
    poller.register(go, select.POLLIN)
    for _ in range(WAKEFUL_LOOKS):
        if poller.poll(0):
            break
    return next_order(go)


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
        elif operation == wire.EXACT:
            self._exact(argument >> 17, is_copied)
        else:
            moved = self._bench.sensitivity(self._values(argument >> 17), is_copied)
            self._write("sensitivity", 0, moved, contiguous=True)
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
        values = self._values(slot)
        narrow = self._bench.narrow(values, is_copied)
        base = self._write("results", 0, narrow, contiguous=True)
        del narrow
        self._write("results", base, self._bench.wide(values, is_copied), contiguous=True)

    def _values(self, slot: int) -> list[Any]:
        places = iter(self._mapped["inputs"].tensors(self._inputs, slot * self._slot_bytes))
        return [unplain_value(next(places) if entry is None else entry) for entry in self._constants]

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
