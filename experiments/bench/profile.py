"""What one kernel does on a device: the judge's own profile and, where permitted, Nsight Compute's counters.

python -m experiments.bench.profile KERNEL.py --problem PROBLEM.py --backend cuda --device cuda:0 --out profile.json

Counters are the only part that the judge has not (docs/decisions/0006): the kernel keeps a connection to ncu, which has
no fence. Take them of kernels that you would run yourself.
"""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path
from typing import Any

import click

from fitness import profile
from fitness.builder import Artifact, Builder
from fitness.children import Zygote
from fitness.counters import counters
from fitness.evaluation import Job


@click.command()
@click.argument("kernel", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--problem", type=click.Path(exists=True, dir_okay=False, path_type=Path), required=True)
@click.option("--backend", type=click.Choice(["cpp", "cuda", "triton"]), default="cuda", show_default=True)
@click.option("--device", default="cuda:0", show_default=True)
@click.option("--precision", type=click.Choice(["fp32", "tf32", "fp16", "bf16"]), default="fp32", show_default=True)
@click.option("--ncu", default="ncu", show_default=True, help="Nsight Compute's command.")
@click.option("--out", type=click.Path(path_type=Path), help="Also write the document to this file.")
def main(**options: Any) -> None:
    """Builds KERNEL, profiles it behind the fence and prints one JSON document."""
    kernel, problem = options["kernel"], options["problem"]
    job = Job(
        problem.stem,
        problem.read_text(),
        kernel.read_text(),
        backend=options["backend"],
        device=options["device"],
        precision=options["precision"],
    )
    zygote = Zygote(1, job.device)
    try:
        artifact = Builder(zygote, fenced=True).build(job)
        if artifact.failure is not None:
            raise click.ClickException(f"{kernel} does not build: {artifact.failure.reason}")
        document = _profiles(zygote, job, artifact, options["ncu"])
    finally:
        zygote.close()
    text = json.dumps(document, indent=1)
    if options["out"] is not None:
        options["out"].write_text(text + "\n")
    click.echo(text)


def _profiles(zygote: Zygote, job: Job, artifact: Artifact, ncu: str) -> dict[str, Any]:
    """Both profiles with what each cost [s], beside what the build said."""
    started = time.monotonic()
    document: dict[str, Any] = {"build": artifact.features}
    document["profile"] = profile.take(zygote, job, artifact.folder, fenced=True)
    document["profile_s"] = round(time.monotonic() - started, 2)
    if job.device != "cpu":
        started = time.monotonic()
        policy = profile.policy_for(job, artifact.folder, fenced=True)
        try:
            document["counters"] = counters(profile.spec_for(job, artifact.folder), policy, ncu=ncu)
        finally:
            shutil.rmtree(policy.private_dir, ignore_errors=True)
        document["counters_s"] = round(time.monotonic() - started, 2)
    return document


if __name__ == "__main__":
    main()
