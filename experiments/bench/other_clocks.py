"""Times one of our own kernels by the usual means, in this process: Triton's do_bench and CUDA-graph replay.

    python -m experiments.bench.other_clocks PROBLEM.py KERNEL.py

Prints one JSON document. Both means use one set of inputs and clear the L2 cache before every call.
"""

from __future__ import annotations

import importlib.util
import json
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

MODEL_SEED = 42
FLUSH_BYTES = 256 << 20
"""do_bench's own size."""
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
    print(json.dumps(found))


def graph_replay(call: Callable[[], Any], expected_ms: float) -> dict[str, float | int]:
    """Median time of replaying the captured call, by events around each replay, the L2 cache cleared before it."""
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
    flush = torch.empty(FLUSH_BYTES // 4, dtype=torch.int32)
    replays = max(10, min(1_000, round(BUDGET_MS / expected_ms)))
    pairs = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(replays)]
    for start, end in pairs:
        flush.zero_()
        start.record()
        graph.replay()
        end.record()
    torch.cuda.synchronize()
    return {"graph_ms": statistics.median(start.elapsed_time(end) for start, end in pairs), "graph_replays": replays}


def _module(path: str) -> Any:
    spec = importlib.util.spec_from_file_location(Path(path).stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
