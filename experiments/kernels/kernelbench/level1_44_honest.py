"""Average pooling along the last dimension: each window is summed anew, its reads overlap in the cache.

Problem: level1/44
Backend: triton
Kind: honest
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def avgpool_kernel(x_ptr, out_ptr, length, out_length, stride, padding, WINDOW: tl.constexpr, BLOCK: tl.constexpr):
    # candidate
    row = tl.program_id(1).to(tl.int64)
    here = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK], tl.float32)
    for step in tl.static_range(WINDOW):
        place = here * stride - padding + step
        inside = (place >= 0) & (place < length) & (here < out_length)
        total += tl.load(x_ptr + row * length + place, mask=inside, other=0.0)
    tl.store(out_ptr + row * out_length + here, total / WINDOW, mask=here < out_length)


class ModelNew(nn.Module):
    def __init__(self, kernel_size: int, stride: int = 1, padding: int = 0):
        super().__init__()
        self.kernel_size, self.stride, self.padding = kernel_size, stride, padding

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        batch, channels, length = x.shape
        out_length = (length + 2 * self.padding - self.kernel_size) // self.stride + 1
        out = torch.empty(batch, channels, out_length, dtype=x.dtype, device=x.device)
        grid = (triton.cdiv(out_length, 1024), batch * channels)
        places = (length, out_length, self.stride, self.padding)
        avgpool_kernel[grid](x, out, *places, WINDOW=self.kernel_size, BLOCK=1024, num_warps=4)
        return out
