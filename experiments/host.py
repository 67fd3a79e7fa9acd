"""Attacks this machine with the host suite and writes what happened as a table.

    python -m experiments.host --device cpu --out experiments/results/host_cpu.json

Needs torch and click only. Exit code 1 when a strike was not refused or contained.
"""

from __future__ import annotations

import json
import os
import platform
import sys
from pathlib import Path

import click

from experiments.hostile.cases import BY_NAME, CASES, MODES
from experiments.hostile.host import Host, Outcome, to_json
from fitness.workbench import Workbench


@click.command()
@click.option("--device", default="cpu", help="cpu, or cuda:0.")
@click.option(
    "--only", multiple=True, type=click.Choice(sorted(BY_NAME)), help="A strike; may be given more than once."
)
@click.option("--mode", "modes", multiple=True, type=click.Choice(MODES), default=MODES, help="Default: both.")
@click.option("--out", type=click.Path(path_type=Path), help="Write the table here as JSON.")
def main(device: str, only: tuple[str, ...], modes: tuple[str, ...], out: Path | None) -> None:
    """Judges every hostile candidate and reports what it reached."""
    outcomes: list[Outcome] = []
    with Workbench(device=device) as workbench, Host(workbench, device, "cpp" if device == "cpu" else "cuda") as host:
        for case in [BY_NAME[name] for name in only] or CASES:
            for mode in modes:
                outcome = host.strike(case, mode)
                outcomes.append(outcome)
                click.echo(_line(outcome), err=True)
        document = {
            "device": device,
            "sandbox": workbench.sandbox_level,
            "kernel": platform.release(),
            "cpus": len(os.sched_getaffinity(0)),
            "root": os.geteuid() == 0,
            "strikes": to_json(outcomes),
            "findings": sum(len(outcome.findings) for outcome in outcomes),
        }
    if out is not None:
        out.write_text(json.dumps(document, indent=1) + "\n")
    click.echo(f"{len(outcomes)} strikes, {document['findings']} findings")
    sys.exit(1 if document["findings"] else 0)


def _line(outcome: Outcome) -> str:
    head = f"{outcome.strike:24s} {outcome.mode:6s} {outcome.verdict:14s} {outcome.wall_s:6.2f} s"
    findings = "; ".join(outcome.findings) or "refused or contained"
    return f"{head}  {outcome.memory_mib:6d} MiB  {outcome.disk_mib:6d} MiB disk  {findings} | {outcome.reason[:90]}"


if __name__ == "__main__":
    main()
