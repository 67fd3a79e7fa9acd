"""`kb-evolve baseline`: what there is to beat."""

from __future__ import annotations

from typing import Any

import click

from kb_evolve.commands.shared import columns, emit_json, json_option, judge_options

KINDS = ("eager", "compile")


@click.command(epilog="Example: kb-evolve baseline rmsnorm softmax")
@click.argument("refs", nargs=-1, required=True, metavar="REF...")
@judge_options
@json_option
def baseline(refs: tuple[str, ...], as_json: bool, **flags: Any) -> None:
    """Time each problem's reference: eager PyTorch and torch.compile."""
    from kb_evolve.config import flags_layer, resolve
    from kb_evolve.judging import make_job, open_workbench
    from problems.catalogue import load

    config = resolve(flags_layer(flags))
    problems = [load(ref, config.run.kernelbench or None) for ref in refs]
    found: list[dict[str, Any]] = []
    with open_workbench(config) as workbench:
        for problem in problems:
            job = make_job(problem, problem.source, config)
            found += [{"problem": problem.id, **workbench.baseline(job, kind)} for kind in KINDS]
    if as_json:
        emit_json({"baselines": found})
        return
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
    click.echo(columns(("problem", "baseline", "ms", "95% interval", "against eager"), rows))


def _interval(interval: Any) -> str:
    low, high = interval
    return f"[{low:.4g}, {high:.4g}]"
