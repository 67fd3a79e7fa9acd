"""Tracing a loaded problem: its forms and counts, on real or fake tensors. Runs in the child process only."""

from __future__ import annotations

import contextlib
import inspect
import traceback
from collections.abc import Callable
from typing import Any

import torch

from problems import admission
from problems.anatomy import Anatomy, Finding, TensorForm
from problems.census import Census
from problems.examine import NotAProblem, Program, StageFailed
from problems.roofline import Peaks, floor_ms

REAL_BYTES = 64 << 20
"""Up to this size inputs and weights are traced on real tensors: a forward call is then cheaper than the
2 s that torch 2.13 takes to import what fake tensors need."""
AUDIT_BYTES = 256 << 20
"""Largest inputs, and largest outputs, of a problem that is audited."""
AUDIT_WEIGHT_BYTES = 2 << 30
MODEL_SEED = 42
"""KernelBench seeds every Model with 42 (src/kernelbench/eval.py)."""


def inputs_of(program: Program) -> list[Any]:
    """What get_inputs() returns; raises StageFailed."""
    with program.stage("get_inputs()"):
        inputs = program.module.get_inputs()
        if not isinstance(inputs, (list, tuple)):
            raise NotAProblem(f"expected a list of forward's arguments, found {type(inputs).__name__}")
        if not any(isinstance(value, torch.Tensor) for value in inputs):
            raise NotAProblem(f"expected at least one tensor among forward's arguments, found {inputs!r:.200}")
    return list(inputs)


def model_of(program: Program) -> torch.nn.Module:
    """`Model(*get_init_inputs())`, seeded as KernelBench seeds it; raises StageFailed."""
    torch.manual_seed(MODEL_SEED)
    with program.stage("get_init_inputs()"):
        arguments = program.module.get_init_inputs()
    with program.stage("Model(...)"):
        model = program.module.Model(*arguments)
        if not isinstance(model, torch.nn.Module):
            raise NotAProblem(f"expected Model to be a torch.nn.Module, found {type(model).__name__}")
    return model


def trace(program: Program) -> Anatomy:
    """The anatomy, from the first way of running the problem that works and fits in memory.

    Raises StageFailed with what the problem's code raised, on real tensors if it was run on them.
    """
    failures: dict[Callable[[Program], Anatomy], StageFailed] = {}
    for way in _ways(program):
        try:
            return way(program)
        except StageFailed as failed:
            failures[way] = failed
            if not failed.may_be_ours:
                raise
    raise failures.get(_trace_real) or failures.popitem()[1]


def _ways(program: Program) -> tuple[Callable[[Program], Anatomy], ...]:
    """How to run a problem, best first, by the bytes of its inputs and weights.

    They are found on torch's meta device, which needs no memory and not the imports of fake tensors.
    Real tensors come last where the problem does not run there for a reason that may be ours.
    """
    try:
        with torch.device("meta"):
            tensors = [*_tensors(inputs_of(program)), *_weights(model_of(program))]
    except StageFailed as failed:
        return (_trace_fake, _trace_mixed, _trace_real) if failed.may_be_ours else (_trace_real,)
    if sum(tensor.numel() * tensor.element_size() for tensor in tensors) > REAL_BYTES:
        return (_trace_fake, _trace_mixed)
    return (_trace_real, _trace_fake)


def _trace_real(program: Program) -> Anatomy:
    return _trace("real tensors", program, model_of(program), inputs_of(program))


def _trace_fake(program: Program) -> Anatomy:
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode(allow_non_fake_inputs=True):
        return _trace("fake tensors", program, model_of(program), inputs_of(program))


def _trace_mixed(program: Program) -> Anatomy:
    """For models whose constructor reads values, as `torch.linspace(...).tolist()`."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    model = model_of(program)
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        for module in model.modules():
            tables: tuple[dict[str, Any], ...] = (module._parameters, module._buffers)
            for table in tables:
                table.update({name: mode.from_tensor(t) for name, t in table.items() if t is not None})
        return _trace("fake inputs, real weights", program, model, inputs_of(program))


def _trace(traced: str, program: Program, model: torch.nn.Module, inputs: list[Any]) -> Anatomy:
    weights = _weights(model)
    census = Census([*_tensors(inputs), *weights])
    with program.stage("Model.forward"):
        with census:
            outputs = _tensors(model(*inputs))
        if not outputs:
            raise NotAProblem("expected forward to return a tensor or a tuple of tensors, found none")
    named = list(zip(_argument_names(model, len(inputs)), inputs, strict=True))
    output_forms = [_form("output" if len(outputs) == 1 else f"output.{i}", t) for i, t in enumerate(outputs)]
    return Anatomy(
        traced=traced,
        inputs=tuple(_form(name, tensor) for name, value in named for tensor in _tensors(value)),
        arguments=tuple(f"{name}={value!r:.80}" for name, value in named if not _tensors(value)),
        outputs=tuple(output_forms),
        parameter_count=sum(parameter.numel() for parameter in model.parameters()),
        parameter_bytes=sum(weight.numel() * weight.element_size() for weight in weights),
        matmul_flop=census.matmul_flop,
        pointwise_ops=census.pointwise_ops,
        bytes_moved=census.bytes_read + sum(form.nbytes for form in output_forms),
        reduction_length=census.reduction_length,
        operators=dict(census.operators),
    )


def audit(program: Program, anatomy: Anatomy, cpu: Peaks, budget_s: float) -> tuple[list[Finding], str]:
    """(findings, `done` or why there are none)."""
    for what, nbytes, most in (
        ("inputs", anatomy.input_bytes, AUDIT_BYTES),
        ("outputs", anatomy.output_bytes, AUDIT_BYTES),
        ("weights", anatomy.parameter_bytes, AUDIT_WEIGHT_BYTES),
    ):
        if nbytes > most:
            return [], f"skipped: {what} are {nbytes >> 20} MiB, more than {most >> 20} MiB"
    least_s = admission.RUNS * floor_ms(anatomy, cpu) / 1e3
    if least_s > budget_s:
        return [], f"skipped: it would take at least {least_s:.0f} s on this CPU, more than {budget_s:.0f} s"
    try:
        model = model_of(program)

        def forward(*inputs: Any) -> list[torch.Tensor]:
            outputs = _tensors(model(*inputs))
            return [torch.view_as_real(t) if t.is_complex() else t for t in outputs]

        findings = admission.audit(program.module.get_inputs, forward, budget_s)
    except admission.AuditSkipped as skipped:
        return [], str(skipped)
    except BaseException as error:  # the problem's own code: sys.exit included
        return [], f"ended early: {traceback.format_exception_only(error)[-1].strip():.300}"
    return findings, "done"


def _argument_names(model: torch.nn.Module, count: int) -> list[str]:
    with contextlib.suppress(TypeError, ValueError):
        parameters = inspect.signature(model.forward).parameters.values()
        names = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
        return [names[i] if i < len(names) else f"input{i}" for i in range(count)]
    return [f"input{i}" for i in range(count)]


def _form(name: str, tensor: torch.Tensor) -> TensorForm:
    dtype = str(tensor.dtype).removeprefix("torch.")
    nbytes = tensor.numel() * tensor.element_size()
    return TensorForm(name, tuple(tensor.shape), dtype, nbytes, tensor.is_contiguous())


def _weights(model: torch.nn.Module) -> list[torch.Tensor]:
    return [*model.parameters(), *model.buffers()]


def _tensors(value: Any) -> list[torch.Tensor]:
    """The tensors in a value, its lists, tuples and dicts, in order."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    return [tensor for entry in value for tensor in _tensors(entry)] if isinstance(value, (list, tuple)) else []
