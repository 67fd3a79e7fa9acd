"""Measures every configuration of a tunable kernel of ours and writes the landscape.

    python -m experiments.landscapes.measure NAME OUT.json     NAME of a bundled problem with a C++ first kernel

The judge runs in a sandbox as in a search; a configuration that is not correct is a failure. The least of two
times on a machine with other work is rough: the file says on what machine, and when.
"""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import click

from experiments.bench import records
from experiments.landscapes.landscape import Landscape, write
from fitness.evaluation import Job, JudgeError, Verdict
from fitness.workbench import Workbench
from mutators.tunables import find_tunables, set_values

LOOKS, MOST_LOOKS = 2, 10
"""Times of each configuration, of which the least counts; attempts to get them."""
BUNDLED = Path(__file__).parents[2] / "problems" / "bundled"


@click.command()
@click.argument("name")
@click.argument("out", type=click.Path(path_type=Path))
def main(name: str, out: Path) -> None:
    """One line for each configuration while it works."""
    problem = next(iter(sorted(BUNDLED.glob(f"level*/{name}.py"))), None)
    kernel = BUNDLED / "seeds" / f"{name}.py"
    if problem is None or not kernel.exists():
        raise click.ClickException(f"no bundled problem {name!r} with a first kernel {kernel}")
    about: dict[str, Any] = {
        **records.about("cpu"),
        "rough": f"the least of {LOOKS} times of each configuration; the machine had other work",
    }
    with Workbench(device="cpu") as workbench:
        landscape = measure(workbench, name, problem.read_text(), kernel.read_text(), about["cpu"])
    write(landscape, out, about)


def measure(workbench: Workbench, name: str, problem: str, kernel: str, device: str) -> Landscape:
    """The landscape of a kernel that declares tunables, times in ms."""
    tunables = find_tunables(kernel)
    choices = {one.name: one.choices for one in tunables}
    times, failed = {}, 0
    for row in itertools.product(*choices.values()):
        values = dict(zip(choices, row, strict=True))
        kernel_ms = look(workbench, Job(name, problem, set_values(kernel, values)))
        click.echo(f"{values} {kernel_ms}")
        if kernel_ms is None:
            failed += 1
        else:
            times[row] = kernel_ms
    return Landscape(f"own/{name}", device, choices, times, failed)


def look(workbench: Workbench, job: Job) -> float | None:
    """The least of LOOKS times, None where the kernel is not correct. JudgeError while the machine is too noisy."""
    times: list[float] = []
    for _ in range(MOST_LOOKS):
        found = workbench.evaluate(job)
        if found.kernel_ms is not None:
            times.append(found.kernel_ms)
        elif found.verdict is not Verdict.NO_VERDICT:
            return None
        if len(times) == LOOKS:
            return min(times)
    raise JudgeError(f"expected {LOOKS} times in {MOST_LOOKS} looks, found {len(times)}; measure on a quieter machine")


if __name__ == "__main__":
    main()
