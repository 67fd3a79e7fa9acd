"""What a candidate does on its device beyond its time: kernels, launches, occupancy, and hardware counters on demand.

All of it is told by the candidate's own process and could be made up: it goes into the archive's features and the
prompts, validated and bounded, and never decides. `profile_source` says what gave it:

ncu       Nsight Compute's counters (fitness/counters.py): by hand only, docs/decisions/0006; needs the right to count
cupti     torch's profiler on a GPU: each kernel with its time, registers, shared memory and block size
torch     torch's profiler on the CPU: operators and their times
compiler  not asked for, or it failed: there is only what the build said about its binaries
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import os
import stat
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fitness.children import Child, Zygote
from fitness.evaluation import Job
from fitness.quota import Quota, Watch
from fitness.sandbox import Policy
from fitness.session import private_policy
from fitness.wire import printable

FILE = "profile.json"
"""Written by the child into its private folder, read by the judge when the child is dead."""
MOST_BYTES = 64 << 10
CALLS, WARM_CALLS, TOP = 3, 2, 5
TIMEOUT_S, POLL_S = 60.0, 0.05
MOST_TRACE_BYTES = 48 << 20
"""A trace of about 100,000 launches; below the sandbox's limit for one file."""
_MOST_TEXT, _MOST_ITEMS, _MOST_NUMBER = 160, 16, 1e15

SOURCES = ("ncu", "cupti", "torch", "compiler")
NUMBERS = (
    "kernels_per_call",
    "launches_per_call",
    "copies_per_call",
    "device_us_per_call",
    "occupancy",
    "operators_per_call",
    "operator_us_per_call",
    "dram_read_bytes",
    "dram_write_bytes",
    "sm_percent",
    "dram_percent",
    "achieved_occupancy_percent",
    "l2_hit_percent",
    "counted_us",
    "counted_kernels",
)
NUMBER_LISTS = (
    "kernel_us",
    "kernel_registers",
    "kernel_shared_bytes",
    "kernel_threads",
    "kernel_blocks",
    "kernel_occupancy",
    "operator_us",
)
TEXT_LISTS = ("kernel_names", "operator_names")
"""The five that took longest, the longest first; lists of one kind belong together item by item."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What one multiprocessor of an architecture holds."""

    warps: int
    blocks: int
    shared_bytes: int


ARCHITECTURES = {
    "sm_75": Limits(32, 16, 64 << 10),
    "sm_80": Limits(64, 32, 164 << 10),
    "sm_86": Limits(48, 16, 100 << 10),
    "sm_87": Limits(48, 16, 164 << 10),
    "sm_89": Limits(48, 24, 100 << 10),
    "sm_90": Limits(64, 32, 228 << 10),
    "sm_100": Limits(64, 32, 228 << 10),
    "sm_120": Limits(48, 24, 100 << 10),
}
"""CUDA C++ Programming Guide, appendix Compute Capabilities, table Technical Specifications per Compute Capability."""
_REGISTERS, _PARTITIONS, _REGISTER_UNIT, _SHARED_UNIT, _WARP = 65_536, 4, 256, 128, 32
"""32-bit registers of a multiprocessor, which lie in four partitions; how both memories are handed out: the limits of
cuda_occupancy.h, which ships with the CUDA toolkit, for compute capability 7.5 and up."""
_RESERVED = 1 << 10
"""Shared memory that the system keeps of each block from compute capability 8.0 on (same guide)."""


def occupancy(arch: str, threads: int, registers: int, shared_bytes: int) -> float | None:
    """Theoretical occupancy in [0, 1]: resident warps over the most that a multiprocessor can hold.

    `threads` and `shared_bytes` (static and dynamic) per block, `registers` per thread. 0 for a kernel that cannot be
    launched at all, None for an architecture that is not in ARCHITECTURES.
    """
    limits = ARCHITECTURES.get(arch.rstrip("af"))
    if limits is None or threads < 1:
        return None
    warps = -(-threads // _WARP)
    per_warp = _round_up(registers * _WARP, _REGISTER_UNIT)
    if per_warp * _round_up(warps, _PARTITIONS) > _REGISTERS or threads > 1024 or registers > 255:
        return 0.0
    shared = _round_up(shared_bytes + (_RESERVED if arch != "sm_75" else 0), _SHARED_UNIT)
    blocks = min(
        limits.blocks,
        limits.warps // warps,
        limits.shared_bytes // shared if shared else limits.blocks,
        _REGISTERS // _PARTITIONS // per_warp * _PARTITIONS // warps if per_warp else limits.blocks,
    )
    return blocks * warps / limits.warps


def _round_up(value: int, unit: int) -> int:
    return -(-value // unit) * unit


def take(zygote: Zygote, job: Job, artifact_dir: str, *, fenced: bool, timeout_s: float = TIMEOUT_S) -> dict[str, Any]:
    """The validated profile of a built candidate, from a process of its own; costs some seconds of the device."""
    policy = policy_for(job, artifact_dir, fenced=fenced)
    child = zygote.spawn("profile", spec_for(job, artifact_dir), policy)
    try:
        stopped = _supervise(child, job.memory_bytes, timeout_s)
        child.kill()
        found = collect(policy.private_dir)
        if found == {"profile_source": "compiler"}:
            found["profile_note"] = stopped or child.death()
        return found
    finally:
        child.discard()


def _supervise(child: Child, memory_bytes: int, timeout_s: float) -> str:
    """Waits for its end; why it must be stopped before that, else empty."""
    watch = Watch(child, Quota(memory_bytes), whole_group=False)
    deadline = time.monotonic() + timeout_s
    while not child.ended.wait(POLL_S):
        if excess := watch.excess():
            return f"no profile: it {excess[1]}"
        if time.monotonic() > deadline:
            return f"no profile within {timeout_s:g} s"
    return ""


def spec_for(job: Job, artifact_dir: str) -> dict[str, Any]:
    """What `serve` needs of a built candidate."""
    return {
        "source_path": f"{artifact_dir}/candidate.py",
        "problem_path": f"{artifact_dir}/problem.py",
        "products_dir": f"{artifact_dir}/products",
        "backend": job.backend,
        "arch": job.arch,
        "device": job.device,
        "precision": job.precision,
        "threads": 1,
    }


def policy_for(job: Job, artifact_dir: str, *, fenced: bool) -> Policy:
    """The fence of a candidate's run, with a new private folder."""
    return dataclasses.replace(private_policy((artifact_dir,), fenced=fenced), gpu=job.device != "cpu")


def serve(spec: dict[str, Any], descriptors: Sequence[int]) -> None:
    """The runner's entry: loads the candidate, profiles it and writes FILE into the private working directory.

    Needs what `models.load` needs except init, weights and compile, and problem_path, whose own inputs are used.
    """
    from fitness import models
    from fitness.gpu import memory

    del descriptors
    models.prepare("load", spec)
    if spec["device"] != "cpu":
        memory.use(spec["device"])
        memory.driver()  # its names, which Triton's own library looks for
    problem = models.execute(spec["problem_path"], "problem")
    init = models.plain(problem["get_init_inputs"]())
    forward, _ = models.load({**spec, "class_name": "ModelNew", "init": init, "state": [], "compile": ""}, ())
    inputs = _inputs(problem["get_inputs"], spec["device"], models.dtype_of(spec["precision"]))
    if spec.get("counters"):
        call_between_marks(forward, inputs, spec["device"])
        return
    Path(FILE).write_text(json.dumps(profile_in_child(forward, inputs, spec["device"])))


def _inputs(get_inputs: Callable[[], Any], device: str, dtype: Any) -> list[Any]:
    import torch

    with torch.device(device):
        values = get_inputs()
    return [
        value.to(device=device, dtype=dtype if value.is_floating_point() else None)
        if isinstance(value, torch.Tensor)
        else value
        for value in values
    ]


def profile_in_child(forward: Callable[..., Any], inputs: Sequence[Any], device: str) -> dict[str, Any]:
    """The profile of a few calls; where profiling fails only `profile_source` "compiler" and why.

    Runs inside the fence, in a process that nothing else is measured in.
    """
    try:
        for _ in range(WARM_CALLS):
            forward(*inputs)
        events = _traced(forward, inputs, device)
        if device == "cpu":
            return {"profile_source": "torch", **operator_facts(events, CALLS)}
        return {"profile_source": "cupti", **kernel_facts(events, CALLS, _arch(device))}
    except Exception as error:
        return {"profile_source": "compiler", "profile_note": f"{type(error).__name__}: {error}"[:_MOST_TEXT]}


def _traced(forward: Callable[..., Any], inputs: Sequence[Any], device: str) -> list[dict[str, Any]]:
    """The trace of CALLS calls in Chrome's format; on a GPU one known kernel of our own comes first."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    on_gpu = device != "cpu"
    _wait(device)
    with profile(activities=[ProfilerActivity.CUDA if on_gpu else ProfilerActivity.CPU]) as profiler:
        if on_gpu:
            torch.full((1,), 3.0, device=device)
            _wait(device)
        for _ in range(CALLS):
            forward(*inputs)
        _wait(device)
    handle, path = tempfile.mkstemp(suffix=".json", dir=".")
    os.close(handle)
    try:
        profiler.export_chrome_trace(path)
        if os.path.getsize(path) > MOST_TRACE_BYTES:
            raise ValueError(f"the trace has {os.path.getsize(path)} bytes, most are {MOST_TRACE_BYTES}")
        return json.loads(Path(path).read_text(errors="replace"))["traceEvents"]
    finally:
        os.unlink(path)


def call_between_marks(forward: Callable[..., Any], inputs: Sequence[Any], device: str) -> None:
    """One call between cudaProfilerStart and cudaProfilerStop: what `ncu --profile-from-start off` looks at."""
    import torch

    for _ in range(WARM_CALLS):
        forward(*inputs)
    _wait(device)
    with contextlib.nullcontext() if device == "cpu" else torch.cuda.profiler.profile():
        forward(*inputs)
        _wait(device)


def _wait(device: str) -> None:
    import torch

    if device != "cpu":
        torch.cuda.synchronize(device)


def _arch(device: str) -> str:
    import torch

    major, minor = torch.cuda.get_device_capability(device)
    return f"sm_{major}{minor}"


def kernel_facts(events: Sequence[dict[str, Any]], calls: int, arch: str) -> dict[str, Any]:
    """Kernels, launches and copies per call; the kernels that take longest with what limits them.

    The first kernel in the trace is our own (`_traced`). Raises ValueError when there is none: CUPTI is blind then.
    A replayed CUDA graph is one launch of many kernels: they share its correlation number.
    """
    kernels = sorted(_of(events, "kernel"), key=lambda event: event["ts"])
    if not kernels:
        raise ValueError("CUPTI recorded no kernel, not even a known one")
    own, *kernels = kernels
    copies = [event for event in _of(events, "gpu_memcpy", "gpu_memset") if event["ts"] > own["ts"]]
    launches = {event["args"].get("correlation", index) for index, event in enumerate(kernels)}
    longest = _longest(kernels)
    return {
        "kernels_per_call": len(kernels) / calls,
        "launches_per_call": len(launches) / calls,
        "copies_per_call": len(copies) / calls,
        "device_us_per_call": _spent(kernels) / calls,
        "kernel_names": [group[0]["name"] for group in longest],
        "kernel_us": [_spent(group) / calls for group in longest],
        **_shapes(longest, arch),
    }


def _shapes(groups: Sequence[Sequence[dict[str, Any]]], arch: str) -> dict[str, Any]:
    """What each kernel asks for at its longest launch, and the occupancy that this allows, each and over all."""
    shown = [max(group, key=lambda event: event["dur"])["args"] for group in groups]
    threads = [math.prod(a.get("block", [0])) for a in shown]
    registers = [a.get("registers per thread", 0) for a in shown]
    shared = [a.get("shared memory", 0) for a in shown]
    facts: dict[str, Any] = {
        "kernel_threads": threads,
        "kernel_registers": registers,
        "kernel_shared_bytes": shared,
        "kernel_blocks": [math.prod(a.get("grid", [0])) for a in shown],
    }
    found = [occupancy(arch, *size) for size in zip(threads, registers, shared, strict=True)]
    known = [value for value in found if value is not None]
    total = sum(_spent(group) for group in groups)
    if total and len(known) == len(found):
        weighted = sum(_spent(group) * value for group, value in zip(groups, known, strict=True))
        facts |= {"kernel_occupancy": known, "occupancy": weighted / total}
    return facts


def operator_facts(events: Sequence[dict[str, Any]], calls: int) -> dict[str, Any]:
    """Operators per call that the program itself calls, not those inside them; those that take longest."""
    outermost: list[dict[str, Any]] = []
    ends: dict[Any, float] = {}
    for event in sorted(_of(events, "cpu_op"), key=lambda event: (event["ts"], -event["dur"])):
        if event["ts"] >= ends.get(event["tid"], -math.inf):
            ends[event["tid"]] = event["ts"] + event["dur"]
            outermost.append(event)
    longest = _longest(outermost)
    return {
        "operators_per_call": len(outermost) / calls,
        "operator_us_per_call": _spent(outermost) / calls,
        "operator_names": [group[0]["name"] for group in longest],
        "operator_us": [_spent(group) / calls for group in longest],
    }


def _longest(events: Sequence[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """The events of each of the TOP names that took longest together."""
    groups = defaultdict(list)
    for event in events:
        groups[event["name"]].append(event)
    return sorted(groups.values(), key=_spent, reverse=True)[:TOP]


def _of(events: Sequence[dict[str, Any]], *kinds: str) -> list[dict[str, Any]]:
    return [event for event in events if event.get("ph") == "X" and event.get("cat") in kinds]


def _spent(events: Sequence[dict[str, Any]]) -> float:
    return float(sum(event["dur"] for event in events))


def collect(private_dir: str) -> dict[str, Any]:
    """The validated profile that a dead child left in its private folder; it cannot have counted ("ncu")."""
    found = read_profile(_read_plain_file(Path(private_dir) / FILE))
    return found if found["profile_source"] != "ncu" else {"profile_source": "compiler"}


def read_profile(text: str) -> dict[str, Any]:
    """What an untrusted child says, with everything dropped that is not a known name with a value of its kind.

    Numbers are finite, not negative and bounded, texts short and printable, lists short.
    """
    said: Any = None
    if len(text) <= MOST_BYTES:
        with contextlib.suppress(ValueError, RecursionError):
            said = json.loads(text)
    if not isinstance(said, dict) or said.get("profile_source") not in SOURCES:
        return {"profile_source": "compiler"}
    found: dict[str, Any] = {"profile_source": said["profile_source"]}
    if isinstance(said.get("profile_note"), str):
        found["profile_note"] = printable(said["profile_note"], _MOST_TEXT)
    found |= {name: said[name] for name in NUMBERS if _is_number(said.get(name))}
    for names, is_right in ((NUMBER_LISTS, _is_number), (TEXT_LISTS, lambda value: isinstance(value, str))):
        for name in names:
            items = said.get(name)
            if isinstance(items, list) and len(items) <= _MOST_ITEMS and all(map(is_right, items)):
                found[name] = [printable(item, _MOST_TEXT) if isinstance(item, str) else item for item in items]
    return found


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and 0 <= value <= _MOST_NUMBER


def _read_plain_file(path: Path) -> str:
    """At most one byte more than MOST_BYTES of a file that untrusted code wrote; empty for links, pipes and nothing."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return ""
    with open(descriptor, "rb") as file:
        return file.read(MOST_BYTES + 1).decode(errors="replace") if stat.S_ISREG(os.fstat(descriptor).st_mode) else ""
