"""The Anatomy noun: what a problem is made of, as found by a child process that ran it."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from problems.roofline import Peaks


@dataclass(frozen=True, slots=True)
class TensorForm:
    """One tensor without its values."""

    name: str
    """Forward's argument name for inputs; `output`, or `output.0`, `output.1`, ... for outputs."""
    shape: tuple[int, ...]
    dtype: str
    """As torch writes it, without the prefix: `float32`."""
    nbytes: int
    contiguous: bool = True


@dataclass(frozen=True, slots=True)
class Finding:
    """Whether one trick that computes nothing passes KernelBench's own rule on one draw family."""

    trick: str
    """`zeros`, `constant`, `identity`, `other_draw` or `weights_only`: see problems/admission.py."""
    family: str
    """One of problems.inputs.FAMILIES."""
    passes: bool
    worst_abs_err: float
    """Largest |reference - answer| over the judged draws; inf where one of them is not finite."""


@dataclass(frozen=True, slots=True)
class Anatomy:
    """What a problem computes on, what it costs at least, and which tricks would pass for it.

    All of it was measured in a process that ran the problem's own code, so it is as trustworthy as
    the problem file: right for an honest one, and never evidence about a candidate.
    """

    traced: str
    """What the counts were taken on: `real tensors`, `fake tensors` (no memory is allocated), or
    `fake inputs, real weights` where Model cannot be built from fake tensors."""
    inputs: tuple[TensorForm, ...]
    arguments: tuple[str, ...]
    """Inputs that are not tensors, as `name=value`."""
    outputs: tuple[TensorForm, ...]
    parameter_count: int
    parameter_bytes: int
    """All parameters and buffers, read or not [B]."""
    matmul_flop: int
    """Matrix products, convolutions and attention, by torch's formulas (2 per multiply-add) [FLOP]."""
    pointwise_ops: int
    """Everything else that does arithmetic: see problems/census.py for what counts as one."""
    bytes_moved: int
    """Compulsory traffic: inputs and weights read once, outputs written once [B]."""
    reduction_length: int
    """Largest number of terms that one operator sums into one element; 1 if nothing is summed."""
    operators: dict[str, int]
    """How often each ATen operator that does arithmetic is called."""
    cpu: Peaks | None = None
    """Peaks of this machine's CPU, measured in the same child."""
    findings: tuple[Finding, ...] = ()
    audit: str = "not done"
    """`done`, or why the admission audit was skipped or ended early."""

    @property
    def flop(self) -> int:
        """All arithmetic: products and pointwise operations together [FLOP]."""
        return self.matmul_flop + self.pointwise_ops

    @property
    def intensity(self) -> float:
        """Arithmetic intensity [FLOP/B]."""
        return self.flop / self.bytes_moved if self.bytes_moved else math.inf

    @property
    def input_bytes(self) -> int:
        return sum(form.nbytes for form in self.inputs)

    @property
    def output_bytes(self) -> int:
        return sum(form.nbytes for form in self.outputs)

    def passing(self, family: str = "own") -> tuple[str, ...]:
        """Tricks that pass KernelBench's rule on a draw family: not empty means degenerate."""
        return tuple(found.trick for found in self.findings if found.passes and found.family == family)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values, with the derived `flop` and `intensity` (null where no byte moves)."""
        document = dataclasses.asdict(self)
        document["flop"] = self.flop
        document["intensity"] = self.intensity if self.bytes_moved else None
        document["findings"] = self.findings_to_json(self.findings)
        return document

    @staticmethod
    def findings_to_json(findings: Iterable[Finding]) -> list[dict[str, Any]]:
        """Plain JSON values; an error that is not finite becomes null."""
        documents = [dataclasses.asdict(found) for found in findings]
        for found in documents:
            if not math.isfinite(found["worst_abs_err"]):
                found["worst_abs_err"] = None
        return documents


def anatomy_from_json(document: Any) -> Anatomy:
    """The Anatomy that a child described; raises ValueError on anything of another form.

    The child ran untrusted code, so every field is checked, not believed.
    """
    fields = _checked(document, dict)
    return Anatomy(
        traced=_checked(fields.get("traced"), str),
        inputs=tuple(_form(entry) for entry in _checked(fields.get("inputs"), list)),
        arguments=tuple(_checked(entry, str) for entry in _checked(fields.get("arguments"), list)),
        outputs=tuple(_form(entry) for entry in _checked(fields.get("outputs"), list)),
        parameter_count=_count(fields.get("parameter_count")),
        parameter_bytes=_count(fields.get("parameter_bytes")),
        matmul_flop=_count(fields.get("matmul_flop")),
        pointwise_ops=_count(fields.get("pointwise_ops")),
        bytes_moved=_count(fields.get("bytes_moved")),
        reduction_length=_count(fields.get("reduction_length")),
        operators={_checked(k, str): _count(v) for k, v in _checked(fields.get("operators"), dict).items()},
    )


def finding_from_json(document: Any) -> Finding:
    """The Finding that a child reported; raises ValueError on anything of another form."""
    fields = _checked(document, dict)
    worst = fields.get("worst_abs_err")
    return Finding(
        trick=_checked(fields.get("trick"), str),
        family=_checked(fields.get("family"), str),
        passes=_checked(fields.get("passes"), bool),
        worst_abs_err=math.inf if worst is None else float(_checked(worst, (int, float))),
    )


def peaks_from_json(document: Any) -> Peaks:
    """The Peaks that a child measured; raises ValueError on anything of another form."""
    fields = _checked(document, dict)
    rates = _checked(fields.get("flop_per_s"), dict)
    return Peaks(
        name=_checked(fields.get("name"), str),
        bytes_per_s=float(_checked(fields.get("bytes_per_s"), (int, float))),
        flop_per_s={_checked(k, str): float(_checked(v, (int, float))) for k, v in rates.items()},
    )


def _form(entry: Any) -> TensorForm:
    fields = _checked(entry, dict)
    return TensorForm(
        name=_checked(fields.get("name"), str),
        shape=tuple(_count(size) for size in _checked(fields.get("shape"), list)),
        dtype=_checked(fields.get("dtype"), str),
        nbytes=_count(fields.get("nbytes")),
        contiguous=_checked(fields.get("contiguous"), bool),
    )


def _count(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(f"expected a whole number of at least 0, found {value!r:.80}")
    return value


def _checked(value: Any, kind: type | tuple[type, ...]) -> Any:
    if not isinstance(value, kind):
        raise ValueError(f"expected {kind}, found {value!r:.80}")
    return value
