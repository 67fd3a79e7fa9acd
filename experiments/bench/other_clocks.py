"""Times one of our own kernels by the usual means, in this process: Triton's do_bench, CUDA-graph replay, CUPTI.

    python -m experiments.bench.other_clocks PROBLEM.py KERNEL.py

Prints one JSON document. All means use one set of inputs and clear the L2 cache before every call. The first two read
events around one call, so a microsecond or two of the events and of starting a graph are in their times. A graph of
many calls in a row less one without them has neither. CUPTI (torch's profiler) says how long the kernels ran.
"""

from __future__ import annotations

import importlib.util
import json
import statistics
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

MODEL_SEED = 42
FLUSH_BYTES = 256 << 20
"""do_bench's own size."""
PROFILED_CALLS = 50
CALLS_PER_GRAPH, GRAPH_PAIRS = 20, 15
BUDGET_MS = 500.0
"""Calls are repeated for about this long."""


def main(problem_path: str, kernel_path: str) -> None:
    import torch
    from triton.testing import do_bench

    torch.set_default_device("cuda")
    problem, kernel = _module(problem_path), _module(kernel_path)
    torch.manual_seed(MODEL_SEED)
    model = kernel.ModelNew(*problem.get_init_inputs())
    inputs = problem.get_inputs()
    with torch.no_grad():
        model(*inputs)
        do_bench_ms = do_bench(lambda: model(*inputs), warmup=100, rep=BUDGET_MS, return_mode="median")
        found = {"do_bench_ms": do_bench_ms, **graph_replay(lambda: model(*inputs), do_bench_ms)}
        found["row_ms"] = calls_in_a_row(lambda: model(*inputs))
        found["kernels_ms"] = kernels_ms(lambda: model(*inputs))
    print(json.dumps(found))


def graph_replay(call: Callable[[], Any], expected_ms: float) -> dict[str, float | int]:
    """Median time of replaying the captured call, by events around each replay, the L2 cache cleared before it."""
    graph = _captured(call)
    replays = max(10, min(1_000, round(BUDGET_MS / expected_ms)))
    return {"graph_ms": statistics.median(_replay_ms(graph, replays)), "graph_replays": replays}


def calls_in_a_row(call: Callable[[], Any]) -> float:
    """Median time of one more call in a graph of many, each after a clearing of the L2 cache.

    The difference of two graphs, of the clearings with and without the calls, replayed by turns.
    """
    import torch

    flush = torch.empty(FLUSH_BYTES // 4, dtype=torch.int32)

    def clearings() -> None:
        for _ in range(CALLS_PER_GRAPH):
            flush.zero_()

    def both() -> None:
        for _ in range(CALLS_PER_GRAPH):
            flush.zero_()
            call()

    without, with_calls = _captured(clearings), _captured(both)
    pairs = [_replay_ms(with_calls, 1)[0] - _replay_ms(without, 1)[0] for _ in range(GRAPH_PAIRS)]
    return statistics.median(pairs) / CALLS_PER_GRAPH


def _captured(call: Callable[[], Any]) -> Any:
    """A CUDA graph of one call, which is made three times before."""
    import torch

    aside = torch.cuda.Stream()
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):
        for _ in range(3):
            call()
    torch.cuda.current_stream().wait_stream(aside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    return graph


def _replay_ms(graph: Any, replays: int) -> list[float]:
    """Milliseconds of every replay, the L2 cache cleared before it."""
    import torch

    flush = torch.empty(FLUSH_BYTES // 4, dtype=torch.int32)
    pairs = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(replays)]
    for start, end in pairs:
        flush.zero_()
        start.record()
        graph.replay()
        end.record()
    torch.cuda.synchronize()
    return [start.elapsed_time(end) for start, end in pairs]


def kernels_ms(call: Callable[[], Any]) -> float:
    """Mean time per call that its kernels ran, by CUPTI: all kernels but the one that clears the L2 cache."""
    import torch

    flush = torch.empty(FLUSH_BYTES // 4, dtype=torch.int32)
    clearing = {name for name, _ in _kernels(flush.zero_, 3)}

    def both() -> None:
        flush.zero_()
        call()

    return sum(spent for name, spent in _kernels(both, PROFILED_CALLS) if name not in clearing) / PROFILED_CALLS


def _kernels(call: Callable[[], Any], count: int) -> list[tuple[str, float]]:
    """Name and milliseconds of every kernel of so many calls."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    call()
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        for _ in range(count):
            call()
        torch.cuda.synchronize()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(path))
        events = json.loads(path.read_text(errors="replace"))["traceEvents"]
    return [(event["name"], event["dur"] / 1e3) for event in events if event.get("cat") == "kernel"]


def _module(path: str) -> Any:
    spec = importlib.util.spec_from_file_location(Path(path).stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
