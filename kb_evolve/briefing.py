"""What prompts of a run say about its problem and its device."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from islands.run import Run
from kb_evolve import devices
from kb_evolve.baselines import GPU_KINDS, Shelf, baseline_key, device_name
from kb_evolve.config import Config
from mutators.brief import Brief
from problems.problem import Problem
from problems.roofline import Costs, Peaks, arithmetic_ms, find_peaks, floor_ms, in_precision, memory_ms

VECTOR_BITS = {"avx512f": 512, "avx2": 256, "sse2": 128}


def brief_of(run: Run, problem: Problem, config: Config) -> Brief:
    """The brief of a run; what is not known here is left out of it."""
    device = config.run.device
    name = device_name(device)
    peaks = find_peaks(name) if device != "cpu" else _cpu_peaks(run)
    floor, why = _floor(run, peaks, run.precision)
    return Brief(
        problem_id=problem.id,
        problem_source=problem.source,
        backend=run.backend,
        precision=run.precision,
        device_name=name,
        facts={**_peak_facts(peaks, run.precision), **(cpu_facts() if device == "cpu" else _gpu_facts(device))},
        baselines=_baselines(problem, config),
        floor_ms=floor,
        floor_why=why,
        shapes=run.config.get("shapes", ""),
    )


def _cpu_peaks(run: Run) -> Peaks | None:
    measured = run.config.get("cpu")
    return Peaks(**measured) if measured else None


def _peak_facts(peaks: Peaks | None, precision: str) -> dict[str, float | str]:
    if peaks is None:
        return {}
    return {
        "bytes_per_s": peaks.bytes_per_s,
        "flop_per_s": peaks.flop_per_s.get(precision, peaks.flop_per_s["fp32"]),
        "peaks_from": peaks.source or "measured on this machine",
    }


def cpu_facts() -> dict[str, float | str]:
    """Cores, caches and vector width of this machine's CPU; what the kernel does not tell is left out."""
    facts: dict[str, float | str] = {"cores": float(len(os.sched_getaffinity(0)))}
    for index in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        try:
            level, kind = (index / "level").read_text().strip(), (index / "type").read_text().strip()
            size = (index / "size").read_text().strip()
        except OSError:
            continue
        if kind != "Instruction" and size.endswith("K"):
            facts[f"l{level}_cache_bytes"] = float(size[:-1]) * 1024
    flags = _cpu_flags()
    widths = [bits for flag, bits in VECTOR_BITS.items() if flag in flags]
    return {**facts, "vector_bits": float(max(widths))} if widths else facts


def _cpu_flags() -> set[str]:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return set()
    return next((set(line.split(":", 1)[1].split()) for line in text.splitlines() if line.startswith("flags")), set())


def _gpu_facts(device: str) -> dict[str, float | str]:
    gpu = devices.gpus()[int(device.removeprefix("cuda:"))]
    return {"architecture": gpu.arch, "device_memory_bytes": float(gpu.memory_bytes), **gpu.limits}


def _floor(run: Run, peaks: Peaks | None, precision: str) -> tuple[float | None, str]:
    stored: dict[str, Any] | None = run.config.get("costs")
    if stored is None or peaks is None:
        return None, ""
    costs = in_precision(Costs(**stored), precision)
    memory, arithmetic = memory_ms(costs, peaks), arithmetic_ms(costs, peaks, precision)
    why = f"{costs.bytes_moved / 1e6:.4g} MB to move"
    if arithmetic > memory:
        why = f"{costs.flop / 1e9:.4g} GFLOP to compute"
    return floor_ms(costs, peaks, precision), why


def _baselines(problem: Problem, config: Config) -> dict[str, float]:
    """Those that were measured before (`kb-evolve baseline`)."""
    shelf = Shelf()
    found = {kind: shelf.find(baseline_key(problem, config, kind)) for kind in GPU_KINDS}
    return {kind: float(one["ms"]) for kind, one in found.items() if one is not None}
