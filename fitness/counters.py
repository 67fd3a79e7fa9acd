"""Hardware counters of one candidate by Nsight Compute: by hand (experiments/bench/profile.py), outside the judge.

ncu must start the process that it looks at, talk to it over sockets and replay its kernels: too much for each candidate
and for the sandbox of a run. So the process starts under ncu with code of ours only, makes its CUDA context (ncu's
connection stands then), and fences itself like every other child before it executes the candidate. That connection
stays in the candidate's hands, and ncu has no fence: no search and no judgement reads counters (docs/decisions/0006).
"""

from __future__ import annotations

import contextlib
import csv
import dataclasses
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fitness.profile import read_profile, serve
from fitness.sandbox import ROOT, Policy, clean_environment, confine, live_dir

METRICS = {
    "gpu__time_duration.sum": "counted_us",
    "dram__bytes_read.sum": "dram_read_bytes",
    "dram__bytes_write.sum": "dram_write_bytes",
    "sm__throughput.avg.pct_of_peak_sustained_elapsed": "sm_percent",
    "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed": "dram_percent",
    "sm__warps_active.avg.pct_of_peak_sustained_active": "achieved_occupancy_percent",
    "lts__t_sector_hit_rate.pct": "l2_hit_percent",
}
"""Nsight Compute's metric -> our feature; Nsight Compute documentation, Profiling Guide, Metrics Reference."""
_SUMMED = ("counted_us", "dram_read_bytes", "dram_write_bytes")
MOST_KERNELS = 200
_MOST_LOG = 4 << 20


def ncu_command(target: Sequence[str], log: str, *, ncu: str = "ncu") -> list[str]:
    """The command that runs `target` under Nsight Compute and writes its counters, as CSV, to the file `log`.

    Counts between the target's cudaProfilerStart and Stop. Clocks stay as they are: setting them needs more rights, and
    the candidate was timed at those clocks too.
    """
    options = ["--csv", "--print-units", "base", "--clock-control", "none", "--profile-from-start", "off"]
    options += ["--launch-count", str(MOST_KERNELS), "--metrics", ",".join(METRICS), "--log-file", log]
    return [ncu, *options, *target]


def counters(spec: dict[str, Any], policy: Policy, *, ncu: str = "ncu", timeout_s: float = 120.0) -> dict[str, Any]:
    """Features from the counters of one call, `profile_source` "ncu"; where that fails "compiler" and why.

    `spec` as `profile.serve` needs it. Start it on a device that nothing is measured on meanwhile.
    """
    if shutil.which(ncu) is None:
        return _without(f"{ncu} is not installed; it comes with the CUDA toolkit")
    with tempfile.TemporaryDirectory(prefix="counters-", dir=live_dir()) as kept:  # the candidate must not reach it
        folder = Path(kept)
        (folder / "plan").write_text(json.dumps({"spec": spec, "policy": dataclasses.asdict(policy)}))
        target = [sys.executable, "-P", "-m", "fitness.counters", str(folder / "plan")]
        environment = {**clean_environment(policy.private_dir, spec["threads"]), "PYTHONPATH": str(ROOT)}
        is_over = _run(ncu_command(target, str(folder / "log"), ncu=ncu), environment, folder / "printed", timeout_s)
        log, printed = _text(folder / "log"), _text(folder / "printed")
    found = read_counters(log)
    return found or _without(_complaint(log + printed) if is_over else f"ncu did not end within {timeout_s:g} s")


def read_counters(text: str) -> dict[str, Any]:
    """Features from ncu's CSV: times and bytes summed over the kernels, percentages weighted by time.

    Empty when it holds no kernel. Reads one row per metric (ncu's default) and one column per metric (--page raw).
    """
    rows = list(csv.reader(line for line in text.splitlines() if line.startswith('"')))
    if len(rows) < 2:
        return {}
    kernels: dict[str, dict[str, float]] = {}
    for row in rows[1:]:
        cells = dict(zip(rows[0], row, strict=False))
        pairs = [(cells["Metric Name"], cells.get("Metric Value", ""))] if "Metric Name" in cells else cells.items()
        for metric, value in pairs:
            number = value.replace(",", "")
            if metric in METRICS and re.fullmatch(r"\d+(\.\d+)?(e[+-]?\d+)?", number):
                kernels.setdefault(cells.get("ID", ""), {})[METRICS[metric]] = float(number)
    return _summed(list(kernels.values()))


def _summed(kernels: list[dict[str, float]]) -> dict[str, Any]:
    times = [kernel.get("counted_us", 0.0) for kernel in kernels]  # [ns] in ncu's base units
    if not sum(times):
        return {}
    found: dict[str, Any] = {"profile_source": "ncu", "counted_kernels": len(kernels)}
    for name in METRICS.values():
        if all(name in kernel for kernel in kernels):
            values = [kernel[name] for kernel in kernels]
            mean = sum(value * time for value, time in zip(values, times, strict=True)) / sum(times)
            found[name] = sum(values) if name in _SUMMED else mean
    found["counted_us"] /= 1000
    return read_profile(json.dumps(found))


def _run(command: list[str], environment: dict[str, str], printed: Path, timeout_s: float) -> bool:
    """Whether it ended in time; it and all that it started are dead afterwards."""
    with open(printed, "wb") as file:
        process = subprocess.Popen(
            command,
            env=environment,
            cwd=environment["HOME"],
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            start_new_session=True,
        )
    try:
        process.wait(timeout_s)
        return True
    except subprocess.TimeoutExpired:
        return False
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _text(path: Path) -> str:
    with contextlib.suppress(OSError), open(path, "rb") as file:
        return file.read(_MOST_LOG).decode(errors="replace")
    return ""


def _complaint(text: str) -> str:
    """ncu's own error, else the last line."""
    if "ERR_NVGPUCTRPERM" in text:
        return (
            "this user may not read the GPU's counters (ERR_NVGPUCTRPERM): needs NVreg_RestrictProfilingToAdminUsers=0"
        )
    lines = [line for line in text.splitlines() if line.strip()]
    return next((line for line in lines if "==ERROR==" in line), lines[-1] if lines else "ncu said nothing")


def _without(why: str) -> dict[str, Any]:
    return read_profile(json.dumps({"profile_source": "compiler", "profile_note": why}))


def main(plan: str) -> None:
    """The process under ncu: a context by code of ours, then the fence, then the candidate."""
    import torch

    document = json.loads(Path(plan).read_text())
    spec, policy = document["spec"], document["policy"]
    if spec["device"] != "cpu":
        torch.full((1,), 3.0, device=spec["device"])
        torch.cuda.synchronize(spec["device"])
    confine(Policy(**{**policy, "read": tuple(policy["read"])}))
    serve({**spec, "counters": True}, ())


if __name__ == "__main__":
    main(sys.argv[1])
