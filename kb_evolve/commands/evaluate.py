"""`kb-evolve eval`: judge one kernel."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kb_evolve.commands.shared import emit_json, json_option, judge_options

if TYPE_CHECKING:
    from fitness.evaluation import Evaluation


@click.command("eval", epilog="Example: kb-evolve eval kernel.py --problem rmsnorm --json")
@click.argument("kernel", metavar="KERNEL.py")
@click.option("--problem", required=True, metavar="REF", help="What the kernel must compute.")
@judge_options
@click.option("--allow-fast-math", is_flag=True, default=None, help="Accept a kernel built with -ffast-math.")
@json_option
def evaluate(kernel: str, problem: str, as_json: bool, **flags: Any) -> None:
    """Judge one kernel: is it correct, and how fast is it against eager PyTorch?

    KERNEL.py defines a class ModelNew with the constructor and the forward of the problem's Model. Exits with
    1 when it is not correct.
    """
    from kb_evolve.judging import evaluate as judge

    evaluation = judge(Path(kernel), problem, **flags)
    if as_json:
        emit_json(evaluation.to_json())
    else:
        click.echo(evaluation_text(evaluation))
    if not evaluation.is_correct:
        sys.exit(1)


def evaluation_text(evaluation: Evaluation) -> str:
    """The verdict and every figure that exists, one a line."""
    lines = [f"{evaluation.verdict}: {evaluation.reason}"]
    if evaluation.speedup is not None and evaluation.speedup_ci and evaluation.kernel_ms_ci:
        low, high = evaluation.speedup_ci
        kernel_low, kernel_high = evaluation.kernel_ms_ci
        lines += [
            f"speedup      {evaluation.speedup:.3g}x [{low:.3g}, {high:.3g}] against {evaluation.baseline}",
            f"kernel       {evaluation.kernel_ms:.4g} ms [{kernel_low:.4g}, {kernel_high:.4g}]",
            f"reference    {evaluation.reference_ms:.4g} ms",
        ]
    figures = {
        "error": _ratio(evaluation.error_ratio),
        "max error": None if evaluation.max_abs_err is None else f"{evaluation.max_abs_err:.3g}",
        "memory": None if evaluation.peak_mem_bytes is None else f"{evaluation.peak_mem_bytes / 2**20:.4g} MiB at peak",
        "build": None if evaluation.compile_s is None else f"{evaluation.compile_s:.3g} s",
        "labels": ", ".join(evaluation.labels),
        "device": evaluation.device_name,
        "sandbox": evaluation.sandbox,
    }
    lines += [f"{name:12} {value}" for name, value in figures.items() if value]
    if evaluation.log and not evaluation.is_correct:
        lines.append(evaluation.log.rstrip())
    return "\n".join(lines)


def _ratio(error_ratio: float | None) -> str | None:
    return None if error_ratio is None else f"{error_ratio:.3g} times the reference's own, both against fp64"
