"""Timers, each watched by hundreds of epoll sets: when one expires, the kernel tells them all within its interrupt.

No thread runs and none is charged; the CPU is gone for the reference.

Problem: cpu_softsign_long
Mechanism: Measuring tools / interrupts for the reference
Twin: softsign_long
Expect: any
"""

import ctypes
import weakref

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <cmath>
#include <cstdint>
static inline float softsign(float t) { return t / (1 + std::fabs(t)); }
extern "C" void scaled_softsign(const float* x, const float* scale, const float* bias, float* out,
                                int64_t rows, int64_t columns) {
#pragma omp parallel for
    for (int64_t r = 0; r < rows; ++r)
        for (int64_t c = 0; c < columns; ++c)
            out[r * columns + c] = softsign(x[r * columns + c] * scale[c] + bias[c]);
}
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>
#include <ctime>
static int timers[240], sets[240];
static int64_t n_timers = 0, n_sets = 0, watches = 0;
extern "C" int64_t make() {
    for (; n_timers < 200; ++n_timers)
        if ((timers[n_timers] = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC)) < 0) break;
    for (; n_sets < 240; ++n_sets) {
        if ((sets[n_sets] = epoll_create1(EPOLL_CLOEXEC)) < 0) break;
        for (int64_t i = 0; i < n_timers; ++i) {
            epoll_event event{};
            event.events = EPOLLIN | EPOLLET;
            if (epoll_ctl(sets[n_sets], EPOLL_CTL_ADD, timers[i], &event) == 0) ++watches;
        }
    }
    return watches;
}
extern "C" void arm() {
    for (int64_t i = 0; i < n_timers; ++i) {
        itimerspec once{};
        once.it_value.tv_nsec = FIRST + i * STEP;
        timerfd_settime(timers[i], 0, &once, nullptr);
    }
}
extern "C" void disarm() {
    itimerspec never{};
    for (int64_t i = 0; i < n_timers; ++i) timerfd_settime(timers[i], 0, &never, nullptr);
}
"""
FIRST_NS, STEP_NS = 1500000, 60000
library = ctypes.CDLL(
    load_inline(
        "epoll_timers",
        SOURCE.replace("FIRST", str(FIRST_NS)).replace("STEP", str(STEP_NS)),
        functions=None,
        no_implicit_headers=True,
        is_python_module=False,
        extra_cflags=["-O3", "-fopenmp"],
        extra_ldflags=["-fopenmp"],
    )
)


def call(function, *arguments):
    return function(
        *[ctypes.c_void_p(a.data_ptr()) if isinstance(a, torch.Tensor) else ctypes.c_int64(a) for a in arguments]
    )


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(columns))
        self.bias = nn.Parameter(torch.zeros(columns))
        self.made = library.make()
        print("watches", self.made, flush=True)

    def forward(self, x):
        library.disarm()
        out = torch.empty_like(x)
        call(library.scaled_softsign, x, self.scale, self.bias, out, *x.shape)
        weakref.finalize(out, library.arm)  # while the output is let go: outside the window
        return out
