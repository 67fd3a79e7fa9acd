"""What KernelBench's own rule says of a candidate: a reading beside the verdict, never a part of it.

KernelBench (its src/kernelbench/eval.py) draws the problem's own inputs, five times in its scripts, and accepts a
candidate when each output has the reference's shape and lies within one tolerance, absolute and relative, of what the
reference computed in the same precision. Here it is read from the draws of the family `own` in the first check: two
instead of five, equally random. Outputs have the reference's shape and dtype by then: all others are refused unread.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fitness.roundoff import parts

if TYPE_CHECKING:
    import torch

    from fitness.verify import Expected

TOLERANCES = {"fp32": 1e-4, "tf32": 1e-4, "fp16": 1e-2, "bf16": 1e-2}
"""Absolute and relative, by the run's precision; KernelBench has no TF32, whose tensors are its fp32's."""


def accepts(outputs: Sequence[torch.Tensor], expected: Sequence[Expected], precision: str) -> bool:
    """Whether KernelBench takes the outputs of one call for right; needs `expected` made with `keep=True`.

    The relative part is of the candidate's value, and NaN equals nothing, as there.
    """
    import torch

    tolerance = TOLERANCES[precision]
    for actual, bounds in zip(outputs, expected, strict=True):
        assert bounds.reference is not None
        flat, reference = actual.reshape(-1), bounds.reference.reshape(-1)
        for part in parts(flat):
            if not torch.allclose(reference[part], flat[part], rtol=tolerance, atol=tolerance):
                return False
    return True
