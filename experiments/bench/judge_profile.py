"""Where a judgement's time goes: the judge in this process, under cProfile.

    python -m experiments.bench.judge_profile KERNEL.py --problem PROBLEM.py [--device cuda:0 --backend cuda]

The first judgement makes the problem ready and is shown apart.
"""

from __future__ import annotations

import cProfile
import io
import pstats
from pathlib import Path

import click

from fitness.evaluation import Job
from fitness.judge import Judge
from fitness.workbench import Workbench

SHOWN = 45


@click.command()
@click.argument("kernel", type=click.Path(exists=True, path_type=Path))
@click.option("--problem", required=True, type=click.Path(exists=True, path_type=Path))
@click.option("--device", default="cpu", show_default=True)
@click.option("--backend", default="cpp", show_default=True)
@click.option("--precision", default="fp32", show_default=True)
@click.option("--times", default=3, show_default=True, help="Judgements after the first.")
def main(kernel: Path, problem: Path, device: str, backend: str, precision: str, times: int) -> None:
    """Prints the costliest functions by the time spent in and below them."""
    job = Job(problem.stem, problem.read_text(), kernel.read_text(), backend, device, precision=precision)
    with Workbench(device=device) as workbench:
        artifact = workbench.build(job)
    if artifact.failure is not None:
        raise click.ClickException(artifact.failure.reason)
    judge = Judge(device, "auto", lambda _: None)
    try:
        for name, count in (("the first judgement", 1), (f"{times} more", times)):
            profile = cProfile.Profile()
            profile.enable()
            found = [judge.measure(job, artifact.folder) for _ in range(count)]
            profile.disable()
            text = io.StringIO()
            pstats.Stats(profile, stream=text).sort_stats("cumulative").print_stats(SHOWN)
            click.echo(f"== {name}: {', '.join(f'{one.evaluate_s:.2f} s' for one in found)}; {found[-1].reason}")
            click.echo(text.getvalue())
    finally:
        judge.close()


if __name__ == "__main__":
    main()
