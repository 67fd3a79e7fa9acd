"""Measures every configuration of a tunable kernel of ours once and writes the landscape.

    python -m experiments.landscapes.measure NAME OUT.json     NAME of a bundled problem with a C++ first kernel

The judge runs in a sandbox as in a search; a configuration that is not correct is a failure. One look at each
configuration on a machine with other work is rough: the file says on what machine, and when.
"""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import click

from experiments.bench import records
from experiments.landscapes.landscape import Landscape, write
from fitness.evaluation import Job
from fitness.workbench import Workbench
from mutators.tunables import find_tunables, set_values

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
    about: dict[str, Any] = {**records.about("cpu"), "rough": "each configuration measured once, machine not idle"}
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
        found = workbench.evaluate(Job(name, problem, set_values(kernel, values)))
        click.echo(f"{values} {found.verdict} {found.kernel_ms}")
        if found.kernel_ms is None:
            failed += 1
        else:
            times[row] = found.kernel_ms
    return Landscape(f"own/{name}", device, choices, times, failed)


if __name__ == "__main__":
    main()
