"""What one kernel does on a device: the judge's own profile and, where permitted, Nsight Compute's counters.

python -m experiments.bench.profile KERNEL.py --problem PROBLEM.py --backend cuda --device cuda:0 --out profile.json
"""

from __future__ import annotations

import dataclasses
import json
import time
from pathlib import Path
from typing import Any

import click

from fitness import profile
from fitness.builder import Artifact, Builder
from fitness.children import Zygote
from fitness.counters import counters
from fitness.evaluation import Job
from fitness.sandbox import Policy
from fitness.session import private_policy

PROFILE_TIMEOUT_S = 120.0


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
    spec = {
        "source_path": f"{artifact.folder}/candidate.py",
        "problem_path": f"{artifact.folder}/problem.py",
        "products_dir": f"{artifact.folder}/products",
        "backend": job.backend,
        "arch": job.arch,
        "device": job.device,
        "precision": job.precision,
        "threads": 1,
    }
    document: dict[str, Any] = {"build": artifact.features}
    started = time.monotonic()
    policy = _policy(artifact, job)
    child = zygote.spawn("profile", spec, policy)
    child.ended.wait(PROFILE_TIMEOUT_S)
    child.kill()
    document["profile"] = profile.collect(policy.private_dir)
    child.discard()
    document["profile_s"] = round(time.monotonic() - started, 2)
    if job.device == "cpu":
        return document
    started = time.monotonic()
    document["counters"] = counters(spec, _policy(artifact, job), ncu=ncu)
    document["counters_s"] = round(time.monotonic() - started, 2)
    return document


def _policy(artifact: Artifact, job: Job) -> Policy:
    return dataclasses.replace(private_policy((artifact.folder,)), gpu=job.device != "cpu")


if __name__ == "__main__":
    main()
