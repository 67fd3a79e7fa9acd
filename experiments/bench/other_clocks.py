"""Times one of our own kernels by the usual means, in this process: Triton's do_bench and CUDA-graph replay.

    python -m experiments.bench.other_clocks PROBLEM.py KERNEL.py

Prints one JSON document. Neither means finds its inputs in the L2 cache: do_bench clears it before every call, the
graph holds calls on many copies of the inputs. do_bench's figure holds the events around the call, a microsecond or so.
"""

from __future__ import annotations

import importlib.util
import json
import statistics
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

MODEL_SEED = 42
ROTATED_BYTES, MOST_COPIES = 1 << 30, 64
"""All copies of a kernel's inputs for the graph."""
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
        found = {"do_bench_ms": do_bench_ms, **graph_replay(model, inputs, do_bench_ms)}
    print(json.dumps(found))


def graph_replay(call: Callable[..., Any], inputs: Sequence[Any], expected_ms: float) -> dict[str, float | int]:
    """Median time per call of replaying one graph of calls on inputs in turn, by events around each replay.

    The copies of the inputs are larger than the L2 cache together, so none of them is found there.
    """
    import torch

    nbytes = sum(tensor.numel() * tensor.element_size() for tensor in inputs)
    copies = [[tensor.clone() for tensor in inputs] for _ in range(max(2, min(MOST_COPIES, ROTATED_BYTES // nbytes)))]
    aside = torch.cuda.Stream()
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):
        for _ in range(3):
            call(*inputs)
    torch.cuda.current_stream().wait_stream(aside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for copy in copies:
            call(*copy)
    replays = max(10, min(1_000, round(BUDGET_MS / expected_ms / len(copies))))
    pairs = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(replays)]
    for start, end in pairs:
        start.record()
        graph.replay()
        end.record()
    torch.cuda.synchronize()
    middle = statistics.median(start.elapsed_time(end) for start, end in pairs)
    return {"graph_ms": middle / len(copies), "graph_calls": len(copies), "graph_replays": replays}


def _module(path: str) -> Any:
    spec = importlib.util.spec_from_file_location(Path(path).stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
