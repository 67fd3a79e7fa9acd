"""`kb-evolve verify`: somebody's claim, judged again."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from kb_evolve.commands.shared import emit_json, json_option

if TYPE_CHECKING:
    from kb_evolve.export.opened import Bundle
    from kb_evolve.export.rejudge import Answer

EXIT_CODES = {True: 0, False: 1, None: 3}


@click.command(epilog="Example: kb-evolve verify rmsnorm-bundle")
@click.argument("bundle", metavar="BUNDLE")
@click.option("--device", metavar="D", help="Where the kernel runs: cpu, cuda or cuda:N. As for `eval` by default.")
@click.option("--arch", metavar="A", help="What GPU code is compiled for, such as sm_90; the device by default.")
@click.option("--sandbox", metavar="S", help="auto (default) refuses below level S2; none runs without one.")
@click.option(
    "--kernelbench",
    metavar="PATH",
    envvar="KERNELBENCH_ROOT",
    help="A KernelBench checkout: whether the bundle's problem is the one that its name stands for.",
)
@json_option
def verify(
    bundle: str, device: str | None, arch: str | None, sandbox: str | None, kernelbench: str | None, as_json: bool
) -> None:
    """Judge a bundle's kernel again on this machine: do verdict and speedup agree with what is claimed?

    BUNDLE is a folder that `kb-evolve export RUN --format bundle` wrote. Its checksums are checked; nothing in it runs
    outside the judge's sandbox. Exits with 0 where both agree, 1 where they differ, 2 when the bundle is damaged, 3
    when this machine cannot say, or is too noisy to tell. Speedups are compared on devices of the same name only.
    """
    from kb_evolve.export.opened import read_bundle
    from kb_evolve.export.rejudge import config_of, rejudge
    from kb_evolve.judging import open_workbench
    from kb_evolve.targets import notice, settle

    opened = read_bundle(bundle)
    config = settle(config_of(opened, device=device, arch=arch, sandbox=sandbox))
    if told := notice(config.run):
        click.echo(f"kb-evolve: {told}", err=True)
    with open_workbench(config) as bench:
        answer = rejudge(opened, bench, config, kernelbench)
    if as_json:
        emit_json(answer.to_json(opened))
    else:
        click.echo(answer_text(opened, answer))
    sys.exit(EXIT_CODES[answer.agrees])


def answer_text(bundle: Bundle, answer: Answer) -> str:
    """The answer in a word, what it is about, and what else differs, with nothing hidden in it."""
    from kb_evolve.report.text import one_line

    lines = [
        f"{answer.word}: {one_line(answer.reason, 600)}",
        f"problem      {one_line(bundle.problem.id)} ({bundle.problem.sha256[:12]})",
        f"candidate    {one_line(bundle.candidate_id)} of run {one_line(bundle.run_name)}",
        f"device       {one_line(answer.here.device_name) or 'unnamed'}",
        f"claimed on   {one_line(bundle.claim.device_name) or 'unnamed'}",
        *(f"note         {one_line(note, 400)}" for note in answer.notes),
    ]
    return "\n".join(lines)
