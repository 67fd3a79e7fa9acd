"""Attacks this machine with the host suite and writes what happened as a table.

    python -m experiments.host --device cpu --out experiments/results/host_cpu.json

The same command goes on where a stopped one was, unless the judge has changed. Needs torch and click only. Exit code 1
when a strike was not refused or contained, 2 when --limit-s came before the end.
"""

from __future__ import annotations

import os
import platform
import sys
import time
from pathlib import Path
from typing import Any

import click

from experiments.bench import records
from experiments.hostile.cases import BY_NAME, CASES, MODES
from experiments.hostile.host import Host, Outcome, to_json
from fitness.machine import judge_sha256
from fitness.workbench import Workbench


@click.command()
@click.option("--device", default="cpu", help="cpu, or cuda:0.")
@click.option(
    "--only", multiple=True, type=click.Choice(sorted(BY_NAME)), help="A strike; may be given more than once."
)
@click.option("--mode", "modes", multiple=True, type=click.Choice(MODES), default=MODES, help="Default: both.")
@click.option("--out", type=click.Path(path_type=Path), help="Write the table here as JSON, strike by strike.")
@click.option("--limit-s", type=float, default=float("inf"), help="Begin no strike after so many seconds.")
def main(device: str, only: tuple[str, ...], modes: tuple[str, ...], out: Path | None, limit_s: float) -> None:
    """Judges every hostile candidate and reports what it reached."""
    started = time.monotonic()
    chosen = [(case, mode) for case in ([BY_NAME[name] for name in only] or CASES) for mode in modes]
    outcomes = _earlier(out)
    done = {(outcome.strike, outcome.mode) for outcome in outcomes}
    with Workbench(device=device) as workbench, Host(workbench, device, "cpp" if device == "cpu" else "cuda") as host:
        for case, mode in chosen:
            if (case.strike, mode) in done:
                continue
            if time.monotonic() - started > limit_s:
                break
            outcomes.append(host.strike(case, mode))
            click.echo(_line(outcomes[-1]), err=True)
            if out is not None:
                records.set_fields(out, **_document(device, workbench.sandbox_level, outcomes))
    findings = sum(len(outcome.findings) for outcome in outcomes)
    seen = {(outcome.strike, outcome.mode) for outcome in outcomes}
    missing = sum((case.strike, mode) not in seen for case, mode in chosen)
    click.echo(f"{len(outcomes)} strikes, {findings} findings" + (f"; {missing} strikes are left" if missing else ""))
    sys.exit(1 if findings else 2 if missing else 0)


def _document(device: str, level: str, outcomes: list[Outcome]) -> dict[str, Any]:
    return {
        "device": device,
        "sandbox": level,
        "kernel": platform.release(),
        "cpus": len(os.sched_getaffinity(0)),
        "root": os.geteuid() == 0,
        "judge_sha256": judge_sha256(),
        "strikes": to_json(outcomes),
        "findings": sum(len(outcome.findings) for outcome in outcomes),
    }


def _earlier(out: Path | None) -> list[Outcome]:
    """What an earlier call with this judge saw."""
    document = records.read(out) if out is not None else {}
    if document.get("judge_sha256") != judge_sha256():
        return []
    return [Outcome(**row) for row in document["strikes"]]


def _line(outcome: Outcome) -> str:
    head = f"{outcome.strike:24s} {outcome.mode:6s} {outcome.verdict:14s} {outcome.wall_s:6.2f} s"
    findings = "; ".join(outcome.findings) or "refused or contained"
    return f"{head}  {outcome.memory_mib:6d} MiB  {outcome.disk_mib:6d} MiB disk  {findings} | {outcome.reason[:90]}"


if __name__ == "__main__":
    main()
