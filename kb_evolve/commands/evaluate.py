"""`kb-evolve eval`: judge one kernel."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kb_evolve.commands.shared import emit_json, json_option, judge_options
from kb_evolve.commands.tables import exact_or_spelled, screen_width, wrapped

if TYPE_CHECKING:
    from fitness.evaluation import Evaluation

EXIT_CODES = {"correct": 0, "verified": 0, "no_verdict": 3}
"""Exit code by verdict; 1 for every other."""


@click.command("eval", epilog="Example: kb-evolve eval kernel.py --problem rmsnorm --json")
@click.argument("kernel", metavar="KERNEL.py")
@click.option("--problem", required=True, metavar="REF", help="What the kernel must compute.")
@judge_options
@click.option("--allow-fast-math", is_flag=True, default=None, help="Accept a kernel built with -ffast-math.")
@click.option("--profile/--no-profile", default=True, help="Also profile a correct kernel, some seconds (default).")
@json_option
def evaluate(kernel: str, problem: str, profile: bool, as_json: bool, **flags: Any) -> None:
    """Judge one kernel: is it correct, and how fast is it against eager PyTorch?

    KERNEL.py defines a class ModelNew with the constructor and the forward of the problem's Model. Without a GPU
    a Triton kernel is verified and not timed, and a CUDA kernel is only built. Of a GPU kernel it also says what
    its kernels use and who told that: cupti (a profile) or the compiler. Exits with 1 when the kernel is not
    correct, and with 3 when this machine cannot say.
    """
    from kb_evolve.config import flags_layer, resolve
    from kb_evolve.judging import evaluate as judge
    from kb_evolve.targets import notice, settle

    if told := notice(settle(resolve(flags_layer(flags))).run):
        click.echo(f"kb-evolve: {told}", err=True)
    evaluation = judge(Path(kernel), problem, profile=profile, **flags)
    if as_json:
        emit_json(evaluation.to_json())
    else:
        click.echo(
            exact_or_spelled(evaluation_text(evaluation, screen_width())), color=True
        )  # else click takes escapes out
    sys.exit(EXIT_CODES.get(evaluation.verdict, 1))


def evaluation_text(evaluation: Evaluation, width: int | None) -> str:
    """The verdict and every figure that exists, one a line; wrapped where a terminal has `width` columns."""
    lines = [wrapped("", f"{evaluation.verdict}: {evaluation.reason}", width)]
    if evaluation.verdict == "verified" and "not timed" not in evaluation.reason:
        lines.append("verified, not timed: no GPU where it was judged")
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
        "KernelBench": kernelbench_text(evaluation),
        "build": None if evaluation.compile_s is None else f"{evaluation.compile_s:.3g} s",
        "kernels": None if evaluation.backend == "cpp" else kernels_text(evaluation.features),
        "reached": reached_text(evaluation.features),
        "labels": label_text(evaluation.labels),
        "device": evaluation.device_name,
        "sandbox": evaluation.sandbox,
    }
    lines += [wrapped(f"{name:12} ", value, width) for name, value in figures.items() if value]
    if evaluation.log and evaluation.verdict not in ("correct", "verified"):
        lines.append(evaluation.log.rstrip())
    return "\n".join(lines)


def kernelbench_text(evaluation: Evaluation) -> str | None:
    """What KernelBench's own rule says beside our verdict; None where it was not read."""
    if evaluation.kernelbench_correct is None:
        return None
    if evaluation.kernelbench_correct:
        return "its own rule accepts (within its tolerance on the problem's own inputs)"
    return "its own rule refuses (beyond its tolerance on the problem's own inputs)"


def label_text(labels: tuple[str, ...]) -> str:
    """Every label with what it says about the kernel."""
    from kb_evolve.labels import LABELS

    return "; ".join(f"{label} ({LABELS[label]})" if label in LABELS else label for label in labels)


def reached_text(features: dict[str, Any]) -> str | None:
    """`3.9 TB/s, 0.97 TFLOP/s, 81% of the roofline`; None where nothing was measured."""
    moved, computed = features.get("achieved_bytes_per_s"), features.get("achieved_flop_per_s")
    if moved is None or computed is None:
        return None
    share = features.get("roofline_fraction")
    limit = "" if share is None else f", {share:.0%} of the roofline"
    return f"{moved / 1e9:,.3g} GB/s, {computed / 1e9:,.3g} GFLOP/s{limit}"


def kernels_text(features: dict[str, Any]) -> str | None:
    """`registers 40, spilled 0 B, shared 512 B, occupancy 50%, launches per call 1 (cupti); built by full: uses ...`.

    Of what is not known nothing is said; None where that is all. Registers, spills and shared memory are the most of
    any kernel, per thread and per block; occupancy is the theoretical one.
    """
    shown = [text.format(value) for name, text in _KERNELS if (value := _number(features, name)) is not None]
    source, note = features.get("profile_source"), features.get("profile_note")
    why = f": {note}" if note else ""
    used = f"{', '.join(shown)} ({source}{why})" if source else ", ".join(shown)
    routes = features.get("build_fallbacks") or features.get("build_routes")
    built = f"built by {', '.join(map(str, routes))}" if isinstance(routes, list) and routes else ""
    return "; ".join(filter(None, (used.strip(), built))) or None


_KERNELS = (
    ("registers", "registers {:,.0f}"),
    ("spill_bytes", "spilled {:,.0f} B"),
    ("shared_bytes", "shared {:,.0f} B"),
    ("occupancy", "occupancy {:.0%}"),
    ("launches_per_call", "launches per call {:,.4g}"),
)
"""What a GPU's kernels use: the feature and how it is written."""
MOST = 1e15
"""What is greater is no such figure."""


def _number(features: dict[str, Any], name: str) -> float | None:
    """A feature, which a candidate's own process or a stranger's database may have made up; None if it is no number."""
    value = features.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if 0 <= value <= MOST else None


def _ratio(error_ratio: float | None) -> str | None:
    return None if error_ratio is None else f"{error_ratio:.3g} times the reference's own, both against fp64"
