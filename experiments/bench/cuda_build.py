"""How long KernelBench-form CUDA extensions take to build by each route, and whether the routes agree.

    python -m experiments.bench.cuda_build --out experiments/bench/results/cuda_build.json

Every entry of the corpus is built by the route that fitness/inline.py picks and again with torch's own headers (the
full route), each in a fresh process. On a machine with a GPU all calls are made on both modules: results must be
equal bit for bit, exceptions in type and message. Several entries are built at once, so CPU seconds stand beside wall
ones.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import click

from experiments.bench.cuda_corpus import CORPUS, LEAN, Entry
from fitness.backends import cuda


@click.command()
@click.option("--out", type=click.Path(path_type=Path), help="Write the report here as JSON.")
@click.option("--only", multiple=True, help="Names of entries; all when left out.")
@click.option("--arch", default=cuda.DEFAULT_ARCH, show_default=True)
@click.option("--at-once", default=0, help="Builds at the same time; five of eight cores when left out.")
@click.option("--full/--no-full", default=True, help="Whether to build each entry with torch's own headers as well.")
@click.option("--child", hidden=True)
@click.option("--route", type=click.Choice(["picked", "full"]), hidden=True)
@click.option("--bridge", type=click.Path(path_type=Path), hidden=True)
def main(
    out: Path | None, only: tuple[str, ...], arch: str, at_once: int, full: bool, child: str, route: str, bridge: Path
) -> None:
    """Seconds by route, agreement of the routes' results, and the rate of fallbacks."""
    if child:
        print(json.dumps(build_one(child, route, arch, bridge)))
        return
    started = time.perf_counter()
    entries = [entry for entry in (LEAN, *CORPUS) if not only or entry.name in only]
    with tempfile.TemporaryDirectory() as folder:
        bridge = Path(folder) / cuda.BRIDGE
        before = time.perf_counter()
        cuda.compile_bridge(bridge)
        bridge_s = round(time.perf_counter() - before, 2)
        rows = measure(entries, arch, at_once or max((os.cpu_count() or 1) * 5 // 8, 1), full, bridge)
    report = {**machine(), "bridge_s": bridge_s, **summary(rows), "total_s": round(time.perf_counter() - started, 1)}
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(json.dumps({**report, "rows": rows}, indent=1) + "\n")
    print(json.dumps(report, indent=1))
    sys.exit(0 if all(row["differences"] == [] and not row["error"] for row in rows) else 1)


def measure(entries: list[Entry], arch: str, at_once: int, full: bool, bridge: Path) -> list[dict[str, Any]]:
    """One row per entry: its build by the picked route, and then, if that was slim, by the full one."""

    def both(entry: Entry) -> dict[str, Any]:
        picked = in_child(entry, "picked", arch, bridge)
        again = full and picked.get("route") == "slim"
        return compare(entry, picked, in_child(entry, "full", arch, bridge) if again else picked)

    with ThreadPoolExecutor(at_once) as pool:
        return list(pool.map(both, entries))


def compare(entry: Entry, picked: dict[str, Any], full: dict[str, Any]) -> dict[str, Any]:
    """The seconds of both routes, and the calls on which they differ."""
    pairs = zip(entry.calls, picked.get("outcomes", []), full.get("outcomes", []), strict=False)
    was_full = full.get("route") == "full"
    row: dict[str, Any] = {
        "name": entry.name,
        "route": picked.get("route"),
        "fallback_reason": picked.get("fallback_reason"),
        "wall_s": picked.get("wall_s"),
        "cpu_s": picked.get("cpu_s"),
        "full_wall_s": full.get("wall_s") if was_full else None,
        "full_cpu_s": full.get("cpu_s") if was_full else None,
        "kernels": picked.get("kernels"),
        "calls": len(picked.get("outcomes", [])),
        "differences": [{"call": call, "picked": one, "full": two} for call, one, two in pairs if one != two],
        "same_kernels": picked.get("kernels") == full.get("kernels"),
        "error": picked.get("error") or full.get("error"),
    }
    click.echo(json.dumps({**row, "kernels": len(row["kernels"] or [])}), err=True)
    return row


def in_child(entry: Entry, route: str, arch: str, bridge: Path) -> dict[str, Any]:
    command = [sys.executable, "-m", "experiments.bench.cuda_build", "--child", entry.name, "--route", route]
    command += ["--arch", arch, "--bridge", str(bridge)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        return {"error": (done.stderr.strip().splitlines() or [f"ended with status {done.returncode}"])[-1]}
    return json.loads(done.stdout.splitlines()[-1])


def build_one(name: str, route: str, arch: str, bridge: Path) -> dict[str, Any]:
    """In a child process: build one entry, call it, and say how long the compiler took and what came out."""
    from fitness import inline
    from fitness.backends import cpp

    entry = next(entry for entry in (LEAN, *CORPUS) if entry.name == name)
    if route == "full":
        vars(cpp)["SLIM_TORCH"] = ("withheld",)
    with tempfile.TemporaryDirectory() as folder:
        products = inline.Products("build", Path(folder), arch)
        (Path(folder) / cuda.BRIDGE).symlink_to(bridge)
        module = inline.load_inline(
            products,
            entry.name,
            entry.declarations,
            entry.kernels,
            functions=list(entry.functions) or None,
            extra_cuda_cflags=list(entry.flags),
            no_implicit_headers=entry is LEAN,
            is_python_module=entry is not LEAN,
        )
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        report = json.loads(next(Path(folder).glob("*/build.json")).read_text())
        outcomes = [outcome(module, call) for call in entry.calls] if has_gpu() else []
    kernels = sorted(
        [kernel["registers"], kernel["spill_bytes"], kernel["shared_bytes"]] for kernel in report["kernels"]
    )
    return {
        "route": report["route"],
        "fallback_reason": report["fallback_reason"],
        "wall_s": report["compile_s"],
        "cpu_s": round(used.ru_utime + used.ru_stime, 2),
        "kernels": kernels,
        "outcomes": outcomes,
    }


def has_gpu() -> bool:
    import torch

    return torch.cuda.is_available()


def outcome(module: Any, call: str) -> str:
    """What a call gives, as text that is equal exactly when the results are: values or exception."""
    import torch

    try:
        text = describe(eval(call, {"m": module, **tensors()}))
        torch.cuda.synchronize()
    except Exception as error:
        text = f"{type(error).__name__}: {str(error).split('Exception raised from')[0]}"
    return re.sub(r"0x[0-9a-f]+", "0x", text)


def tensors() -> dict[str, Any]:
    import torch

    torch.manual_seed(0)
    drawn = {name: torch.randn(size).cuda() for name, size in {"x": (64, 96), "w": (96, 80), "b": (96,)}.items()}
    return {**drawn, "d": torch.randn(5, 7, dtype=torch.float64).cuda(), "h": torch.randn(64, 96).cuda().half()}


def describe(value: Any) -> str:
    import torch

    if isinstance(value, torch.Tensor):
        bits = value.detach().contiguous().cpu().view(torch.uint8) if value.dim() else value.detach().cpu().reshape(1)
        digest = hashlib.sha256(bits.numpy().tobytes()).hexdigest()[:16]
        return f"tensor({value.dtype}, {tuple(value.shape)}, {value.stride()}, {value.device.type}, {digest})"
    if isinstance(value, list | tuple):
        return f"{type(value).__name__}[{', '.join(describe(item) for item in value)}]"
    return repr(value)


def machine() -> dict[str, Any]:
    import torch

    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return {
        "cpu": next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), ""),
        "cores": os.cpu_count(),
        "load_average": [round(value, 1) for value in os.getloadavg()],
        "torch": torch.__version__,
        "nvcc": cuda.toolchain(Path.cwd()),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
    }


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Rates and medians over the corpus."""
    with_torch = [row for row in rows if row["route"] in ("slim", "full")]
    slim = [row for row in rows if row["route"] == "slim"]
    fallbacks = [row["name"] for row in with_torch if row["route"] == "full"]
    medians = {}
    for name in ("wall_s", "cpu_s", "full_wall_s", "full_cpu_s"):
        values = [row[name] for row in slim if row[name] is not None]
        medians[f"slim_{name}_median"] = statistics.median(values) if values else None
    return {
        "lean_wall_s": next((row["wall_s"] for row in rows if row["route"] == "lean"), None),
        "entries": len(with_torch),
        "fallbacks": fallbacks,
        "fallback_rate": round(len(fallbacks) / len(with_torch), 3) if with_torch else None,
        "calls_compared": sum(row["calls"] for row in rows),
        "calls_that_differ": sum(len(row["differences"]) for row in rows),
        "entries_with_other_kernels": [row["name"] for row in rows if not row["same_kernels"]],
        "errors": {row["name"]: row["error"] for row in rows if row["error"]},
        **medians,
    }


if __name__ == "__main__":
    main()
