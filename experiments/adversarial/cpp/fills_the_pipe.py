"""Opens the judge's end of its own order pipe and fills it: an order that waits for room would wait for ever.

Where candidates have a user of their own the pipe cannot be opened, and the kernel is honest.

Problem: cpu_softsign
Mechanism: Host / order pipe filled
Twin: softsign
Expect: any
"""

import fcntl
import os
import sys

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(columns))
        self.bias = nn.Parameter(torch.zeros(columns))
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        if self.calls == 3:
            try:
                fd = os.open("/proc/self/fd/3", os.O_WRONLY | os.O_NONBLOCK)
                fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, 4096)
                while True:
                    os.write(fd, bytes(8))
            except BlockingIOError:
                print("full", flush=True)
                runner, wire = sys.modules["fitness.runner"], sys.modules["fitness.wire"]

                outs = [runner.describe_output(nn.functional.softsign(x * self.scale + self.bias))]
                os.write(4, wire.pack_reply(wire.DONE, 0, outs))
                import time

                time.sleep(1e6)
            except OSError as error:
                print("refused", error, flush=True)
        return nn.functional.softsign(x * self.scale + self.bias)
