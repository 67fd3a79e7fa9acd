"""RMSNorm over the channels: a tile holds all channels of a few places, so that each element is read once.

Problem: level1/36
Backend: triton
Kind: honest
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def rmsnorm_kernel(x_ptr, out_ptr, channels, places, eps, CHANNELS: tl.constexpr, BLOCK: tl.constexpr):
    # candidate
    here = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    channel = tl.arange(0, CHANNELS)
    base = tl.program_id(1).to(tl.int64) * channels * places
    offsets = base + channel[:, None].to(tl.int64) * places + here[None, :]
    inside = (channel[:, None] < channels) & (here[None, :] < places)
    x = tl.load(x_ptr + offsets, mask=inside, other=0.0)
    rms = tl.sqrt_rn(tl.sum(x * x, axis=0) / channels + eps)
    tl.store(out_ptr + offsets, x / rms[None, :], mask=inside)


class ModelNew(nn.Module):
    def __init__(self, num_features: int, eps: float = 1e-5):
        super().__init__()
        self.num_features = num_features
        self.eps = eps

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        out = torch.empty_like(x)
        channels = x.shape[1]
        places = x[0, 0].numel()
        grid = (triton.cdiv(places, 128), x.shape[0])
        sizes = {"CHANNELS": triton.next_power_of_2(channels), "BLOCK": 128}
        rmsnorm_kernel[grid](x, out, channels, places, self.eps, **sizes, num_warps=4)
        return out
