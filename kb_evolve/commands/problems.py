"""`kb-evolve problems`: what can be searched for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from kb_evolve.commands.shared import emit_json, json_option
from kb_evolve.commands.tables import fitted, screen_width, wrapped

if TYPE_CHECKING:
    from problems.anatomy import Anatomy, TensorForm
    from problems.problem import Problem


HINT = "what a faster kernel could exploit"


@click.group(epilog="Example: kb-evolve problems show rmsnorm")
def problems() -> None:
    """List the bundled problems, or look into one."""


@problems.command("list", epilog="Example: kb-evolve problems list --json")
@json_option
def list_problems(as_json: bool) -> None:
    """List the bundled problems.

    On a terminal what does not fit its width is cut: `kb-evolve problems show REF` prints it whole.
    """
    from problems.catalogue import bundled

    found = bundled()
    if as_json:
        emit_json({"problems": [_problem_json(problem) for problem in found]})
        return
    rows = [(problem.id, problem.level or "", problem.statement) for problem in found]
    click.echo(fitted(("problem", "level", HINT), rows, screen_width(), shrink={HINT: 16}))


@problems.command("show", epilog="Example: kb-evolve problems show level1/19 --kernelbench ~/KernelBench")
@click.argument("ref")
@click.option("--kernelbench", metavar="PATH", envvar="KERNELBENCH_ROOT", help="A KernelBench checkout or data set.")
@json_option
def show_problem(ref: str, kernelbench: str | None, as_json: bool) -> None:
    """Show what REF computes on, what it costs at least, and which answers pass without computing it.

    FLOP and bytes are counted without the hardware. The problem's code runs in a child process.
    """
    from problems.catalogue import load
    from problems.describe import describe

    problem = load(ref, kernelbench)
    anatomy = describe(problem)
    if as_json:
        emit_json({**_problem_json(problem), **anatomy.to_json(), "floor_ms": floors(anatomy)})
    else:
        click.echo(_problem_text(problem, anatomy))


def _problem_json(problem: Problem) -> dict[str, Any]:
    return {
        "id": problem.id,
        "name": problem.name,
        "level": problem.level,
        "sha256": problem.sha256,
        "statement": problem.statement,
        "has_seed": problem.seed is not None,
    }


def floors(anatomy: Anatomy) -> dict[str, float]:
    """Least time in fp32 by device [ms]: this machine's measured CPU and the GPUs of the data sheets."""
    from problems.roofline import PEAKS, floor_ms

    devices = {**({"this cpu": anatomy.cpu} if anatomy.cpu else {}), **PEAKS}
    return {name: floor_ms(anatomy, peaks) for name, peaks in devices.items()}


def _problem_text(problem: Problem, anatomy: Anatomy) -> str:
    floor = floors(anatomy)
    shown = [name for name in ("this cpu", "A100", "H100", "H200") if name in floor]
    lines = [
        f"{problem.id} ({problem.name}), sha256 {problem.sha256[:12]}",
        *([wrapped("", problem.statement, screen_width())] if problem.statement else []),
        *(f"input       {_form_text(form)}" for form in anatomy.inputs),
        *(f"argument    {argument}" for argument in anatomy.arguments),
        *(f"output      {_form_text(form)}" for form in anatomy.outputs),
        f"parameters  {anatomy.parameter_count:,} ({anatomy.parameter_bytes:,} B)",
        f"FLOP        {anatomy.flop:,} ({anatomy.matmul_flop:,} in matrix products and convolutions)",
        f"bytes       {anatomy.bytes_moved:,} at least; {anatomy.intensity:.3g} FLOP/B",
        f"floor       {', '.join(f'{name} {floor[name]:.3g} ms' for name in shown)} (roofline, fp32)",
        f"admission   {_admission_text(anatomy)}",
        f"seed        {'bundled (C++)' if problem.seed is not None else 'none: give a first kernel with --start'}",
        f"counted on  {anatomy.traced}",
    ]
    return "\n".join(lines)


def _admission_text(anatomy: Anatomy) -> str:
    """Which answers that compute nothing pass KernelBench's tolerance, by draw family."""
    if not anatomy.findings:
        return f"audit {anatomy.audit}"
    passed = [f"{found.trick} on {found.family} inputs" for found in anatomy.findings if found.passes]
    if not passed:
        return f"audit {anatomy.audit}: no answer that computes nothing passes"
    return f"audit {anatomy.audit}: passes KernelBench's tolerance without computing: {', '.join(passed)}"


def _form_text(form: TensorForm) -> str:
    shape = " x ".join(str(size) for size in form.shape) or "scalar"
    return f"{form.name}: {shape} {form.dtype}"
