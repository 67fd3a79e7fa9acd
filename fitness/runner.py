"""The untrusted side: what a forked, fenced child does. The only place that executes candidate code.

Nothing that is said here is evidence. A runner claims where its results lie; the judge freezes the
process and reads the bytes itself (fitness/judge.py).
"""

from __future__ import annotations

import contextlib
import glob
import json
import os
import shutil
import subprocess
import sys
import traceback
from collections.abc import Callable, Sequence
from typing import Any

from fitness import wire
from fitness.models import (
    ContractBroken,
    as_outputs,
    construct,
    execute,
    input_slots,
    install_extensions,
    load,
    prepare,
)
from fitness.oracle import ProblemBench
from fitness.wire import Layout, Output, Segment
from problems.inputs import FAMILIES

LOAD_ERROR, RUNTIME_ERROR, OUT_OF_MEMORY, CONTRACT = 1, 2, 3, 4
_NO_MEMORY = ("can't allocate memory", "bad_alloc", "CUDA out of memory", "CUDACachingAllocator.cpp")
"""The last: torch's allocator fails inside the fence when it asks NVML for the figures of its message."""


def run(spec: dict[str, Any], descriptors: Sequence[int]) -> None:
    """Serves one model: builds it, then answers every RUN with where its outputs lie."""
    go, done, input_fd, state_fd = descriptors
    if not is_prepared(spec, done):
        return
    try:
        segment = Segment(descriptor=input_fd, writable=spec["writable_inputs"])
        inputs = input_slots(spec, segment.tensors, segment.nbytes // spec["slots"])
        forward, code = load(spec, _weights(spec, state_fd))
    except BaseException as error:
        fail(done, LOAD_ERROR, error)
        return
    os.write(done, wire.pack_reply(wire.READY, code))
    kept: list[Any] = []
    while message := next_order(go):
        operation, count, _ = message
        if operation == wire.RELEASE:
            kept.clear()
            os.write(done, wire.pack_reply(wire.RELEASED))
            continue
        try:
            for slot in range(count):
                kept.append([tensor.contiguous() for tensor in as_outputs(forward(*inputs[slot]), "cpu")])
            outputs = [describe_output(tensor) for call in kept for tensor in call]
        except BaseException as error:
            fail(done, error_code(error), error)
            return
        os.write(done, wire.pack_reply(wire.DONE, 0, outputs))


def is_prepared(spec: dict[str, Any], done: int) -> bool:
    """Whether this process is ready for the candidate's code; says so, or why not."""
    try:
        prepare("load", spec)
    except BaseException as error:
        fail(done, LOAD_ERROR, error)
        return False
    os.write(done, wire.pack_reply(wire.PREPARED))
    return True


def build(spec: dict[str, Any], descriptors: Sequence[int]) -> None:
    """Executes a candidate's module and constructor once, so that everything it compiles is compiled."""
    (begun,) = descriptors
    prepare("build", spec)
    install_extensions("build", spec)
    os.write(begun, b"+")  # whatever fails from here on is the candidate's fault
    os.close(begun)
    problem = execute(spec["problem_path"], "problem")
    model = construct(execute(spec["source_path"], "candidate"), "ModelNew", problem["get_init_inputs"]())
    features = _binary_features(spec["products_dir"])
    if spec["backend"] == "triton":
        from fitness.backends import triton

        triton.precompile(model, problem["get_inputs"], spec)
        features |= triton.resources(spec["products_dir"])
    with open(os.path.join(spec["products_dir"], "features.json"), "w") as file:
        json.dump(features, file)


def oracle(spec: dict[str, Any], descriptors: Sequence[int]) -> None:
    """Serves one problem on the CPU: its layouts, its weights, fresh inputs with their own and their fp64 results."""
    go, done, transfer_fd, facts_fd = descriptors
    try:
        bench = ProblemBench(spec["problem_path"], "cpu", spec["precision"])
    except BaseException as error:
        fail(done, LOAD_ERROR, error)
        return
    os.write(done, wire.pack_reply(wire.READY))
    values: list[Any] = []
    end = 0
    while message := next_order(go):
        operation, argument, seed = message
        is_copied = bool(argument & wire.COPIED)
        try:
            if operation == wire.DESCRIBE:
                os.pwrite(facts_fd, json.dumps(bench.describe()).encode(), 0)
            elif operation == wire.STATE:
                _write(Segment(descriptor=transfer_fd), 0, bench.weights())
            elif operation == wire.DRAW:
                values = bench.inputs(FAMILIES[argument & 0xFF], int.from_bytes(seed, "little"))
                end = _write_draw(bench, Segment(descriptor=transfer_fd), values, is_copied=is_copied)
            else:
                _write(Segment(descriptor=transfer_fd), end, bench.sensitivity(values, is_copied), contiguous=True)
        except BaseException as error:
            fail(done, RUNTIME_ERROR, error)
            return
        os.write(done, wire.pack_reply(wire.DONE))


def _write_draw(bench: ProblemBench, segment: Segment, values: Sequence[Any], *, is_copied: bool) -> int:
    """Inputs, results and fp64 results of one draw, one after the other; returns where they end."""
    import torch

    base = _write(segment, 0, [value for value in values if isinstance(value, torch.Tensor)])
    base = _write(segment, base, bench.narrow(values, is_copied), contiguous=True)
    return _write(segment, base, bench.wide(values, is_copied), contiguous=True)


def _write(segment: Segment, base: int, tensors: Sequence[Any], *, contiguous: bool = False) -> int:
    """Copies the tensors into the segment from byte `base` on; returns where the next may begin."""
    layouts = [Layout.of(tensor.contiguous() if contiguous else tensor) for tensor in tensors]
    for place, tensor in zip(segment.tensors(layouts, base), tensors, strict=True):
        place.copy_(tensor)
    return base + wire.offsets(layouts)[1]


def attack(spec: dict[str, Any], descriptors: Sequence[int]) -> None:
    """Tries to break out, for the probe that measures the sandbox's level; prints what succeeded."""
    from fitness.probe import attack as try_everything

    del descriptors
    print(json.dumps(try_everything(spec)))


def _binary_features(products_dir: str) -> dict[str, int]:
    """Bytes of compiled code, and the widest vector registers that it uses [bits], by objdump where there is one."""
    libraries = glob.glob(os.path.join(products_dir, "*", "*.so"))
    found = {"binary_bytes": sum(os.path.getsize(path) for path in libraries)}
    if not libraries or shutil.which("objdump") is None:
        return found
    listing = subprocess.run(["objdump", "-d", "--no-show-raw-insn", *libraries], capture_output=True, text=True).stdout
    widths = {"%zmm": 512, "%ymm": 256, "%xmm": 128}
    return {**found, "vector_bits": max((bits for name, bits in widths.items() if name in listing), default=0)}


def gpu_run(spec: dict[str, Any], descriptors: Sequence[int]) -> None:
    """`run` for a GPU."""
    from fitness.gpu import runner

    runner.run(spec, descriptors)


def gpu_oracle(spec: dict[str, Any], descriptors: Sequence[int]) -> None:
    """`oracle` for a GPU."""
    from fitness.gpu import runner

    runner.oracle(spec, descriptors)


def profile(spec: dict[str, Any], descriptors: Sequence[int]) -> None:
    """Loads a candidate and writes what it does on its device (fitness/profile.py)."""
    from fitness.profile import serve

    serve(spec, descriptors)


def health(spec: dict[str, Any], descriptors: Sequence[int]) -> None:
    """A kernel whose answer is known, on the device; prints whether it came out right (fitness/health.py)."""
    from fitness.health import known_answers

    del descriptors
    print(known_answers(spec["device"]))


ENTRIES: dict[str, Callable[[dict[str, Any], Sequence[int]], None]] = {
    "run": run,
    "build": build,
    "oracle": oracle,
    "attack": attack,
    "gpu_run": gpu_run,
    "gpu_oracle": gpu_oracle,
    "profile": profile,
    "health": health,
}


def _weights(spec: dict[str, Any], state_fd: int) -> list[Any]:
    if not spec["state"]:
        return []
    layouts = [Layout.from_json(entry) for entry in spec["state"]]
    return Segment(descriptor=state_fd, writable=False).tensors(layouts)


def describe_output(tensor: Any) -> Output:
    dtype = str(tensor.dtype).removeprefix("torch.")
    if dtype not in wire.DTYPES or tensor.dim() > wire.MAX_DIMS:
        raise ContractBroken(f"an output of dtype {dtype} with {tensor.dim()} dimensions cannot be checked")
    return Output(tensor.data_ptr(), tensor.numel() * tensor.element_size(), dtype, tuple(tensor.shape))


def error_code(error: BaseException) -> int:
    if isinstance(error, ContractBroken):
        return CONTRACT
    text = str(error)
    if isinstance(error, MemoryError) or any(sign in text for sign in _NO_MEMORY):
        return OUT_OF_MEMORY
    return RUNTIME_ERROR


def fail(done: int, code: int, error: BaseException) -> None:
    with contextlib.suppress(OSError):  # the captured output may be full
        traceback.print_exception(error)
        sys.stderr.flush()
    summary = "".join(traceback.format_exception_only(error)).strip()
    os.write(done, wire.pack_reply(wire.FAILED, code, text=summary))


def next_order(go: int) -> tuple[int, int, bytes] | None:
    message = b""
    while len(message) < wire.GO.size:
        part = os.read(go, wire.GO.size - len(message))
        if not part:
            return None
        message += part
    operation, argument, seed = wire.GO.unpack(message)
    return operation, argument, seed
