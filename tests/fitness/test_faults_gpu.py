"""The fault list on a real GPU: device memory comes back, contexts die alone, endless kernels end."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator

import psutil
import pytest

from experiments.hostile.attacks import VICTIM, attacker, is_victim, program
from experiments.hostile.cases import PROBLEM
from fitness.evaluation import Evaluation, Job, Verdict
from fitness.workbench import Workbench

pytestmark = pytest.mark.gpu
TIMEOUT_S = 3.0

GPU_PROBLEM = PROBLEM.replace("torch.rand(16, 256)", "torch.rand(1024, 1024)")
TRITON = """
import ctypes, os, time
import torch
import triton
import triton.language as tl

@triton.jit
def work(x, out, count, limit, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, mask=at < count)
    {in_kernel}
    tl.store(out + at, 2 * tl.sigmoid(2 * value) - 1, mask=at < count)

class ModelNew(torch.nn.Module):
    calls = 0

    def forward(self, x):
        self.calls += 1
        {in_forward}
        out = torch.empty_like(x)
        work[(triton.cdiv(x.numel(), 1024),)](x, out, x.numel(), 1, BLOCK=1024)
        return out
"""
SPIN = "tl.store(out + at, 0 * value)\n    while tl.atomic_add(out, 0.0) < 2.0:\n        tl.debug_barrier()"
STRAY = "tl.store(out + (at.to(tl.int64) << 40) + (1 << 44), value)"
DEVICE_MEMORY_S = 5.0


@pytest.fixture(scope="module")
def gpu_bench() -> Iterator[Workbench]:
    with Workbench(device="cuda:0") as running:
        assert _judge_on_gpu(running).verdict is Verdict.CORRECT
        yield running


def _judge_on_gpu(bench: Workbench, in_kernel: str = "pass", in_forward: str = "pass", **options: object) -> Evaluation:
    source = TRITON.format(in_kernel=in_kernel, in_forward=in_forward) + f"# {time.time_ns()}\n"
    values = {"device": "cuda:0", "backend": "triton", "timeout_s": TIMEOUT_S, "incumbent_ms": 1e-6, **options}
    job = Job("tanh", GPU_PROBLEM, source, **values)  # type: ignore[arg-type]
    for _ in range(3):
        found = bench.evaluate(job)
        if found.verdict is not Verdict.NO_VERDICT:
            break
    return found


def _next_is_fine_on_gpu(bench: Workbench) -> None:
    found = _judge_on_gpu(bench)
    assert found.verdict is Verdict.CORRECT, found.reason


def _device_bytes() -> int:
    """Memory in use on the first GPU, as the driver counts it."""
    command = ["nvidia-smi", "-i", "0", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
    return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout) << 20


def test_device_memory_of_a_killed_runner_is_back_within_five_seconds(gpu_bench):
    before = _device_bytes()
    hog = (
        f"if self.calls > 3: say_name = ctypes.CDLL(None).prctl; self.hog = torch.ones(1 << 32, device=x.device); "
        f"torch.cuda.synchronize(); say_name(15, b{VICTIM!r}, 0, 0, 0); time.sleep(60)"
    )
    held: list[int] = []

    def note_and_kill(process: psutil.Process) -> None:
        held.append(_device_bytes() - before)
        process.kill()

    with attacker(note_and_kill, is_victim):
        found = _judge_on_gpu(gpu_bench, in_forward=hog, timeout_s=30.0)
    ended = time.monotonic()
    assert held[0] >= 16 << 30
    while _device_bytes() > before + (1 << 30):
        assert time.monotonic() - ended < DEVICE_MEMORY_S, f"{_device_bytes() - before} bytes are still held"
        time.sleep(0.1)
    assert found.verdict is Verdict.RUNTIME_ERROR and "SIGKILL" in found.reason
    _next_is_fine_on_gpu(gpu_bench)


def test_an_illegal_access_is_a_runtime_error_and_the_device_works_on(gpu_bench):
    found = _judge_on_gpu(gpu_bench, in_kernel=STRAY)
    assert found.verdict is Verdict.RUNTIME_ERROR, (found.reason, found.log[-500:])
    assert "illegal" in found.reason + found.log
    _next_is_fine_on_gpu(gpu_bench)


def test_an_endless_kernel_is_dead_five_seconds_after_its_time(gpu_bench):
    _judge_on_gpu(gpu_bench)  # so that what follows is the candidate's own time
    started = time.monotonic()
    found = _judge_on_gpu(gpu_bench, in_kernel=SPIN, build_timeout_s=60.0)
    spent = time.monotonic() - started - (found.compile_s or 0.0)
    assert found.verdict is Verdict.TIMEOUT, found.reason
    assert spent < TIMEOUT_S + 5.0
    _next_is_fine_on_gpu(gpu_bench)


def test_more_device_memory_than_there_is_is_out_of_memory(gpu_bench):
    hog = "self.hog = [torch.empty(1 << 32, device=x.device) for _ in range(64)]"
    found = _judge_on_gpu(gpu_bench, in_forward=hog)
    assert found.verdict is Verdict.OUT_OF_MEMORY, found.reason
    _next_is_fine_on_gpu(gpu_bench)


def test_a_runner_on_a_gpu_that_stops_itself_is_a_timeout(gpu_bench):
    found = _judge_on_gpu(gpu_bench, in_forward="self.calls > 3 and os.kill(os.getpid(), 19)")  # not while it is built
    assert found.verdict is Verdict.TIMEOUT, found.reason
    _next_is_fine_on_gpu(gpu_bench)


def test_a_judge_killed_on_a_gpu_leaves_no_device_memory_behind(gpu_bench):
    judge = program("fitness.judge")
    with_judge = _device_bytes()
    judge.kill()
    judge.wait(5)
    deadline = time.monotonic() + DEVICE_MEMORY_S
    while _device_bytes() >= with_judge and time.monotonic() < deadline:
        time.sleep(0.1)
    assert _device_bytes() < with_judge
    _next_is_fine_on_gpu(gpu_bench)
