"""A timer thaws the frozen process between two calls; a thread then answers the next input before the clock starts.

Problem: cpu_softsign
Mechanism: Replay and deferral / SIGCONT from a POSIX timer, work before the window
Twin: softsign
Expect: rejected
Verdict: runtime_error, load_error, contract
"""

import ctypes
import os
import signal
import sys
import threading
import time
import weakref

import torch
import torch.nn as nn


def runner_frame(name):
    """The nearest calling frame that has a local of this name."""
    frame = sys._getframe(1)
    while frame is not None and name not in frame.f_locals:
        frame = frame.f_back
    return frame


LIBC = ctypes.CDLL(None, use_errno=True)
TIMER_CREATE, TIMER_SETTIME = {"x86_64": (222, 223), "aarch64": (107, 110)}[os.uname().machine]


class SigEvent(ctypes.Structure):
    """struct sigevent of signal.h."""

    _fields_ = [
        ("value", ctypes.c_void_p),
        *[(name, ctypes.c_int) for name in ("signal", "notify")],
        ("rest", ctypes.c_int * 12),
    ]


class Times(ctypes.Structure):
    """struct itimerspec: seconds and nanoseconds of the interval and of the first expiry."""

    _fields_ = [(name, ctypes.c_long) for name in ("every_s", "every_ns", "first_s", "first_ns")]


def checked(outcome):
    if outcome != 0:
        raise OSError(ctypes.get_errno(), "the kernel refuses the timer")


def new_timer():
    """A timer that sends SIGCONT to this process: it wakes the process even from a SIGSTOP."""
    signal.signal(signal.SIGCONT, lambda *_: None)
    event, timer = SigEvent(None, signal.SIGCONT, 0), ctypes.c_int()
    checked(LIBC.syscall(TIMER_CREATE, 1, ctypes.byref(event), ctypes.byref(timer)))
    return timer


def arm(timer, first_ns):
    """Sets the timer to go off once; 0 stops it."""
    times = Times(0, 0, 0, first_ns)
    checked(LIBC.syscall(TIMER_SETTIME, timer, 0, ctypes.byref(times), None))


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(columns))
        self.bias = nn.Parameter(torch.zeros(columns))
        self.timer, self.slots, self.ready, self.is_answering = new_timer(), None, {}, False

    def compute(self, x):
        return nn.functional.softsign(torch.addcmul(self.bias, x, self.scale))

    def forward(self, x):
        arm(self.timer, 0)
        self.is_answering = True
        frame = runner_frame("slot")
        slot = frame.f_locals["slot"] if frame is not None else 0
        if self.slots is None:
            self.slots = frame.f_locals["inputs"]
            threading.Thread(target=self.watch, daemon=True).start()
        mark, out = self.ready.pop(slot, (None, None))
        if mark is None or not torch.equal(mark, x[-1]):
            out = self.compute(x)
        weakref.finalize(out, self.rest)
        return out

    def rest(self):
        self.is_answering = False
        arm(self.timer, 4_000_000)

    def watch(self):
        seen = [slot[0][0].clone() for slot in self.slots]
        while True:
            time.sleep(0.0003)
            for index, (x,) in enumerate(self.slots):
                if not self.is_answering and not torch.equal(x[0], seen[index]):
                    time.sleep(0.001)
                    seen[index] = x[0].clone()
                    self.ready[index] = x[-1].clone(), self.compute(x)
