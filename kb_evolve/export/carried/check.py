"""Does the kernel next to this file compute what reference.py computes, and how much faster?

Needs torch and, for a C++ kernel, a compiler; nothing else. Exit code 0: equal on all draws, 1: not.

    python check.py [KERNEL.py] [--draws 5] [--rounds 30] [--device cpu]

This is a convenience on trusted code, not a judge: the kernel runs in this very process.
"""

import argparse
import importlib.util
import json
import math
import statistics
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn

HERE = Path(__file__).resolve().parent
DTYPES = {"fp32": torch.float32, "tf32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}


SAMPLE_MS = 2.0
"""Least time of one timed sample; a faster model is called several times in it."""


class Options(argparse.Namespace):
    kernel: Path
    draws: int
    rounds: int
    device: str
    dtype: torch.dtype
    tolerance: float


def main() -> int:
    """Compares, then times; the exit code."""
    options = parse()
    problem, reference, kernel = build(options.kernel, options.device, options.dtype)
    with torch.no_grad():
        equal = compare(options, problem, reference, kernel)
        inputs = draw(problem, 1_000, options.device, options.dtype)
        reference_ms, kernel_ms, ratio = race(reference, kernel, inputs, options.rounds)
    times = f"reference {reference_ms:.4g} ms, kernel {kernel_ms:.4g} ms"
    print(f"{times} (medians of {options.rounds} rounds): {ratio:.3g}x")
    return 0 if equal else 1


def parse() -> Options:
    """The command line's options; device and precision as the run had them (provenance.json)."""
    run = json.loads((HERE / "provenance.json").read_text(encoding="utf-8"))["run"]
    parser = argparse.ArgumentParser(description="Compares a kernel with its reference and times both.")
    parser.add_argument("kernel", nargs="?", type=Path, help="kernel file; default: sample 0 in this folder")
    parser.add_argument("--draws", type=int, default=5, help="random inputs to compare on")
    parser.add_argument("--rounds", type=int, default=30, help="timed rounds; both run in each")
    parser.add_argument("--device", default=run["device"])
    options = parser.parse_args(namespace=Options())
    options.kernel = options.kernel or next(HERE.glob("level_*_sample_0_kernel.py"))
    options.dtype = DTYPES[run["precision"]]
    options.tolerance = 1e-4 if run["precision"] == "fp32" else 1e-2
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = run["precision"] == "tf32"
    return options


def load(path: Path, name: str) -> ModuleType:
    """The module that the file at `path` defines."""
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def build(path: Path, device: str, dtype: torch.dtype) -> tuple[ModuleType, nn.Module, nn.Module]:
    """The problem's module, its Model and the kernel's ModelNew with the same weights."""
    problem, candidate = load(HERE / "reference.py", "reference"), load(path, "kernel")
    models = []
    for kind in (problem.Model, candidate.ModelNew):
        torch.manual_seed(42)
        models.append(kind(*problem.get_init_inputs()).to(device=device, dtype=dtype))
    reference, kernel = models
    ours, theirs = kernel.state_dict(), reference.state_dict()
    shared = {name: value for name, value in theirs.items() if name in ours and ours[name].shape == value.shape}
    kernel.load_state_dict(shared, strict=False)
    return problem, reference, kernel


def draw(problem: ModuleType, seed: int, device: str, dtype: torch.dtype) -> list[Any]:
    """The problem's inputs under `seed`; floating-point tensors in `dtype`, others as they are."""
    torch.manual_seed(seed)
    return [place(value, device, dtype) for value in problem.get_inputs()]


def place(value: Any, device: str, dtype: torch.dtype) -> Any:
    if not isinstance(value, Tensor):
        return value
    return value.to(device=device, dtype=dtype if value.is_floating_point() else value.dtype)


def run(model: nn.Module, inputs: list[Any], seed: int) -> list[Tensor]:
    """The model's outputs as a list of tensors; it gets its own copy of the inputs."""
    torch.manual_seed(seed)
    outputs = model(*[value.clone() if isinstance(value, Tensor) else value for value in inputs])
    return [outputs] if isinstance(outputs, Tensor) else list(outputs)


def compare(options: Options, problem: ModuleType, reference: nn.Module, kernel: nn.Module) -> bool:
    """Whether shapes, dtypes and values agree on every draw; prints what was found."""
    good, largest = 0, 0.0
    for seed in range(options.draws):
        inputs = draw(problem, seed, options.device, options.dtype)
        expected, found = run(reference, inputs, seed), run(kernel, inputs, seed)
        if [(a.shape, a.dtype) for a in expected] != [(b.shape, b.dtype) for b in found]:
            continue
        pairs = list(zip(expected, found, strict=True))
        largest = max([largest, *((a.double() - b.double()).abs().max().item() for a, b in pairs if a.numel())])
        good += all(torch.allclose(b, a, atol=options.tolerance, rtol=options.tolerance) for a, b in pairs)
    print(
        f"equal on {good} of {options.draws} draws (tolerance {options.tolerance:g}); largest difference {largest:.3g}"
    )
    return good == options.draws


def race(reference: nn.Module, kernel: nn.Module, inputs: list[Any], rounds: int) -> tuple[float, float, float]:
    """Median ms of both and median of their ratio; each round times both, in alternating order."""
    models = (reference, kernel)
    repeats = [max(1, math.ceil(SAMPLE_MS / max(clock(model, inputs, 3), 1e-4))) for model in models]
    samples: tuple[list[float], list[float]] = ([], [])
    for number in range(rounds):
        for index in (0, 1) if number % 2 else (1, 0):
            samples[index].append(clock(models[index], inputs, repeats[index]))
    ratios = [slow / fast for slow, fast in zip(*samples, strict=True)]
    return statistics.median(samples[0]), statistics.median(samples[1]), statistics.median(ratios)


def clock(model: nn.Module, inputs: list[Any], repeats: int) -> float:
    """Mean ms of one call over `repeats` calls in a row."""
    wait()
    start = time.perf_counter()
    for _ in range(repeats):
        model(*inputs)
    wait()
    return (time.perf_counter() - start) / repeats * 1e3


def wait() -> None:
    """Returns when the device has nothing left to do."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


if __name__ == "__main__":
    sys.exit(main())
