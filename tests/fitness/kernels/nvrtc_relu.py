"""ReLU compiled at load time by NVRTC, through cuda-core's public Program; no extension is built."""

import torch
from cuda.core import Device, LaunchConfig, Program, ProgramOptions, launch

SOURCE = """
extern "C" __global__ void relu(const float* x, float* y, long long n) {
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    long long step = (long long)gridDim.x * blockDim.x;
    for (; i < n; i += step) y[i] = x[i] > 0.0f ? x[i] : 0.0f;
}
"""


class CurrentStream:
    """torch's current stream, in the form that cuda-core takes."""

    def __cuda_stream__(self):
        return (0, torch.cuda.current_stream().cuda_stream)


class ModelNew(torch.nn.Module):
    def __init__(self, *_):
        super().__init__()
        self.kernel = None

    def compiled(self, x):
        if self.kernel is None:
            device = Device(x.device.index)
            device.set_current()
            arch = "sm_{}{}".format(*torch.cuda.get_device_capability(x.device))
            program = Program(SOURCE, code_type="c++", options=ProgramOptions(std="c++17", arch=arch))
            self.kernel = program.compile("cubin").get_kernel("relu")
            self.stream = device.create_stream(CurrentStream())
        return self.kernel

    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        kernel = self.compiled(x)
        config = LaunchConfig(grid=min((x.numel() + 255) // 256, 4096), block=256)
        launch(self.stream, config, kernel, x.data_ptr(), y.data_ptr(), x.numel())
        return y
