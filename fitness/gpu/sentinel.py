"""How much of the device other processes had, measured by a kernel of ours that does nothing but look at the time.

Contexts of different processes take turns on a device. While nobody else has work, the sentinel runs without a gap;
every stretch that somebody else gets is a jump of its clock, whatever the host is doing meanwhile.
"""

from __future__ import annotations

import ctypes
import time
from functools import cache

from fitness.gpu import memory

_DEVICE_MAPPED = 2
"""CU_MEMHOSTALLOC_DEVICEMAP."""

BUSY_MS, BUSY_TIMES = 0.15, 5
"""Right after another operation of ours the least one takes 0.02 to 0.05 ms on an H200. Where the device was another
process's meanwhile, a change between the two comes to it: 0.28 ms. On slow hosts: so many times what it takes there."""
TOUCHES, TRIES = 20, 20
"""To find out what the least operation takes; time slices of others' (2 ms each on an H200) before one gives up."""
GAP_NS = 30_000
"""A look at the flag takes one or two microseconds; a change between contexts some hundred."""
PTX = b"""
.version 6.0
.target sm_60
.address_size 64
.visible .entry sentinel(.param .u64 state, .param .u64 gap, .param .u64 longest) {
    .reg .pred %p<4>;
    .reg .u32 %flag;
    .reg .u64 %base, %gap, %longest, %start, %last, %now, %step, %lost;
    ld.param.u64 %base, [state];
    ld.param.u64 %gap, [gap];
    ld.param.u64 %longest, [longest];
    mov.u64 %lost, 0;
    mov.u64 %start, %globaltimer;
    mov.u64 %last, %start;
LOOK:
    mov.u64 %now, %globaltimer;
    sub.u64 %step, %now, %last;
    mov.u64 %last, %now;
    setp.gt.u64 %p0, %step, %gap;
    @%p0 add.u64 %lost, %lost, %step;
    sub.u64 %step, %now, %start;
    setp.gt.u64 %p1, %step, %longest;
    @%p1 bra DONE;
    ld.volatile.global.u32 %flag, [%base];
    setp.eq.u32 %p2, %flag, 0;
    @%p2 bra LOOK;
DONE:
    st.volatile.global.u64 [%base+8], %lost;
    ret;
}
\0"""


class _State(ctypes.Structure):
    """Memory of the host that the kernel looks at."""

    _fields_ = [("must_end", ctypes.c_uint64), ("lost_ns", ctypes.c_uint64)]


class Sentinel:
    """A kernel that can be started and ended; needs a current context (`memory.use`)."""

    def __init__(self) -> None:
        """DeviceError where the driver cannot load it."""
        cuda = memory.driver()
        module, self._function = ctypes.c_void_p(), ctypes.c_void_p()
        host, device = ctypes.POINTER(_State)(), ctypes.c_uint64()
        memory.check(cuda.cuModuleLoadData(ctypes.byref(module), PTX), "loading the sentinel")
        found = cuda.cuModuleGetFunction(ctypes.byref(self._function), module, b"sentinel")
        memory.check(found, "finding the sentinel")
        size = ctypes.c_size_t(ctypes.sizeof(_State))
        memory.check(cuda.cuMemHostAlloc(ctypes.byref(host), size, _DEVICE_MAPPED), "allocating the sentinel's flag")
        memory.check(cuda.cuMemHostGetDevicePointer_v2(ctypes.byref(device), host, 0), "mapping the sentinel's flag")
        self._state, self._longest = host.contents, ctypes.c_uint64()
        self._values = (device, ctypes.c_uint64(GAP_NS), self._longest)
        self._arguments = (ctypes.c_void_p * 3)(*map(ctypes.addressof, self._values))
        self._busy_ms = max(BUSY_MS, BUSY_TIMES * min(self.touch_ms() for _ in range(TOUCHES)))

    def begin(self, longest_s: float) -> None:
        """Starts it on the default stream, where nothing else of ours can run until `end`, which must come before
        `longest_s`: it ends by itself then."""
        self._state.must_end, self._longest.value = 0, int(longest_s * 1e9)
        launched = memory.driver().cuLaunchKernel(self._function, *(1,) * 6, 0, None, self._arguments, None)
        memory.check(launched, "starting the sentinel")

    def end(self) -> float:
        """Ends it; how long others had the device since it began [ms], changes between contexts included."""
        self._state.must_end = 1
        memory.wait()
        return self._state.lost_ns / 1e6

    def touch_ms(self) -> float:
        """What the least that the device can do takes just now [ms]: long when it has something else to do."""
        started = time.perf_counter_ns()
        self.begin(1)
        self.end()
        return (time.perf_counter_ns() - started) / 1e6

    def wait_until_idle(self) -> float | None:
        """How long the device works for others before it has nothing left to do [ms]; None when that does not end."""
        waited_ms = 0.0
        for _ in range(TRIES):
            took_ms = self.touch_ms()
            if took_ms < self._busy_ms:
                return waited_ms
            waited_ms += took_ms
        return None


@cache
def shared() -> Sentinel:
    """This process's: a judge works on one device."""
    return Sentinel()
