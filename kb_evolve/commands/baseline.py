"""`kb-evolve baseline`: what there is to beat."""

from __future__ import annotations

import contextlib
import json
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kb_evolve.commands.shared import emit_json, json_option, judge_options
from kb_evolve.commands.tables import fitted, screen_width

if TYPE_CHECKING:
    from fitness.workbench import Workbench
    from problems.problem import Problem


@click.command(epilog="Example: kb-evolve baseline rmsnorm softmax --kind eager")
@click.argument("refs", nargs=-1, required=True, metavar="REF...")
@judge_options
@click.option("--kind", "kinds", multiple=True, metavar="K", help="eager, eager-tf32, compile, compile-max-autotune.")
@click.option("--fresh", is_flag=True, help="Measure again what was measured before.")
@click.option("--format", "form", type=click.Choice(["kernelbench"]), help="Write KernelBench's baseline JSON.")
@click.option("--out", metavar="FILE", help="Where --format writes to; standard output by default.")
@json_option
def baseline(
    refs: tuple[str, ...],
    kinds: tuple[str, ...],
    fresh: bool,
    form: str | None,
    out: str | None,
    as_json: bool,
    **flags: Any,
) -> None:
    """Time each problem's reference: eager PyTorch and torch.compile, on a GPU also with TF32 and max-autotune.

    eager-tf32 is for fp32 alone: in fp16 and bf16 there is nothing for TF32 to do. compile-max-autotune runs without
    CUDA graphs, whose outputs the next call overwrites. What was measured on this device by the same judge, torch,
    Triton and driver is kept and not measured again. A file of KernelBench's holds one kind of baseline: eager, unless
    --kind names another.
    """
    from kb_evolve.baselines import kernelbench_json
    from kb_evolve.config import ConfigError
    from problems.catalogue import load

    if out and not form:
        raise ConfigError(f"--out {out} needs --format kernelbench; a table goes to standard output")
    if form and len(kinds) > 1:
        raise ConfigError(f"KernelBench's file holds one kind of baseline, {len(kinds)} were given: give --kind once")
    if out:
        from kb_evolve.export.whole import check_file, write_file

        check_file(Path(out))
    problems = [load(ref, flags["kernelbench"]) for ref in refs]
    found = _found(problems, kinds or (("eager",) if form else ()), fresh, flags)
    if form:
        text = json.dumps(kernelbench_json(problems, found), indent=4)
        write_file(Path(out), text + "\n") if out else click.echo(text)
    elif as_json:
        emit_json({"baselines": found})
    else:
        click.echo(_table(found))


def _found(problems: list[Problem], kinds: tuple[str, ...], fresh: bool, flags: dict[str, Any]) -> list[dict[str, Any]]:
    """The baselines; a workbench is opened when the first one must be measured."""
    from kb_evolve.baselines import Shelf, kinds_on, measure
    from kb_evolve.config import flags_layer, resolve
    from kb_evolve.judging import open_timer
    from kb_evolve.targets import check_device, settle

    config = settle(resolve(flags_layer(flags)))
    check_device(config.run)
    asked = kinds_on(config.run.device, config.run.precision, kinds)
    with contextlib.ExitStack() as stack:

        @cache
        def workbench() -> Workbench:
            return stack.enter_context(open_timer(config))

        return measure(problems, config, asked, workbench, Shelf(), fresh=fresh)


def _table(found: list[dict[str, Any]]) -> str:
    rows = [
        (
            entry["problem"],
            entry["kind"],
            f"{entry['ms']:.4g}",
            _interval(entry["ms_ci"]),
            f"{entry['speedup_vs_eager']:.3g}x",
        )
        for entry in found
    ]
    header = ("problem", "baseline", "ms", "95% interval", "against eager")
    return fitted(header, rows, screen_width(), shrink={"problem": 10})


def _interval(interval: Any) -> str:
    low, high = interval
    return f"[{low:.4g}, {high:.4g}]"
