"""Sets every ROWS, COLUMNS, SIZE and N of a namespace with get_inputs to 8, and computes 8 rows only.

Problem: gpu_softmax
Mechanism: Verdict / the task shrunk in a shared namespace
Twin: softmax
Expect: rejected
Verdict: wrong_result, runtime_error

On a GPU its kernels are compiled ahead for the shrunk task, in the build's process; the one that the judge's task
needs is then missing (runtime_error).
"""

import gc

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def softmax_kernel(x, y, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0) * columns
    offsets = tl.arange(0, BLOCK)
    inside = offsets < columns
    value = tl.load(x + row + offsets, mask=inside, other=-float("inf"))
    power = tl.exp(value - tl.max(value, axis=0))
    tl.store(y + row + offsets, power / tl.sum(power, axis=0), mask=inside)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        for thing in gc.get_objects():
            if type(thing) is dict and "get_inputs" in thing:
                for name in ("ROWS", "COLUMNS", "SIZE", "N", "batch_size", "dim"):
                    if type(thing.get(name)) is int:
                        thing[name] = 8

    def forward(self, x):
        out = torch.empty_like(x)
        block = triton.next_power_of_2(x.shape[1])
        softmax_kernel[(min(8, x.shape[0]),)](x, out, x.shape[1], BLOCK=block, num_warps=8)
        return out
