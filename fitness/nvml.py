"""NVIDIA's management library, by ctypes alone: what the GPU is doing, and which timed rounds something disturbed.

Names, numbers and structures are those of nvml.h (NVML API Reference Guide). A library, function or right that is
missing makes a reading None, never an error: the judge then watches with what is left.
"""

from __future__ import annotations

import ctypes
import logging
import re
import statistics
import time
from collections import Counter, deque
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

from fitness.evaluation import JudgeError

log = logging.getLogger(__name__)

NVML, DRIVER = "libnvidia-ml.so.1", "libcuda.so.1"

THROTTLE_REASONS = {
    0x1: "gpu_idle",
    0x2: "applications_clocks_setting",
    0x4: "sw_power_cap",
    0x8: "hw_slowdown",
    0x10: "sync_boost",
    0x20: "sw_thermal_slowdown",
    0x40: "hw_thermal_slowdown",
    0x80: "hw_power_brake_slowdown",
    0x100: "display_clock_setting",
}
"""Bits of nvmlDeviceGetCurrentClocksEventReasons (until driver 535: ...ThrottleReasons)."""

SLOWDOWNS = frozenset({"hw_slowdown", "sw_thermal_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown"})
"""Reasons that spoil a round by themselves. `sw_power_cap` does not: a large matrix product runs at the power limit
from its first second to its last, and both sides of the round with it; when the cap moves, the clock shows it."""

SLOW_CLOCK = 0.9
"""A round below this share of the usual SM clock is dropped (judge's protocol)."""
FEWEST_CLOCKS = 5
"""Readings before there is a usual clock."""
KEPT_CLOCKS = 500
LEAVING_S = 10.0
"""A process of ours that was killed may hold its context this long, while the driver frees its memory."""

_SM_CLOCK, _GPU_SENSOR = 1, 0
_MORE_SPACE, _ABSENT = 7, -1
_FOR_EVER = (_ABSENT, 3, 4, 13)
"""Answers that will not change: no such function here, not supported, no permission, not in this driver."""
_NOT_AVAILABLE = (1 << 64) - 1
_MOST_PROCESSES = 4_096


class _Process(ctypes.Structure):  # nvmlProcessInfo_t, version 2
    _fields_ = [
        ("pid", ctypes.c_uint),
        ("used", ctypes.c_ulonglong),
        ("gpu_instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    ]


class _Memory(ctypes.Structure):  # nvmlMemory_t
    _fields_ = [("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong)]


class _Utilization(ctypes.Structure):  # nvmlUtilization_t
    _fields_ = [("gpu", ctypes.c_uint), ("memory", ctypes.c_uint)]


@dataclass(frozen=True, slots=True)
class Process:
    """A process with a compute context on the GPU. `pid` may be of another namespace, or 0, in a container."""

    pid: int
    used_bytes: int


class Gpu:
    """One GPU as NVML sees it; each reading takes microseconds and is None where the driver does not give it."""

    def __init__(self, index: int, *, nvml: str = NVML, driver: str = DRIVER) -> None:
        """The GPU that CUDA calls `index` in this process, whatever CUDA_VISIBLE_DEVICES says.

        Raises JudgeError when there is no NVML or no such GPU.
        """
        try:
            self._library = ctypes.CDLL(nvml)
        except OSError as error:
            raise JudgeError(f"NVML cannot be loaded ({error}); install the NVIDIA driver's {NVML}") from error
        self.missing: set[str] = set()
        """Functions that the library lacks or refuses."""
        status = self._status("nvmlInit_v2")
        if status != 0:
            raise JudgeError(f"NVML does not start (error {status}); does `nvidia-smi` work on this machine?")
        self.uuid = device_uuid(index, driver=driver)
        self._part, self._handle = self._find()
        self._processes = (_Process * 64)()
        has_new = hasattr(self._library, "nvmlDeviceGetCurrentClocksEventReasons")
        self._reasons = f"nvmlDeviceGetCurrentClocks{'Event' if has_new else 'Throttle'}Reasons"

    def _find(self) -> tuple[ctypes.c_void_p, ctypes.c_void_p]:
        """Handles of what CUDA sees and of the whole GPU: two when that is a slice of it (MIG), else one.

        Memory and processes belong to the slice; clocks, heat and power only the whole GPU has.
        """
        part, whole = ctypes.c_void_p(), ctypes.c_void_p()
        find, found = "nvmlDeviceGetHandleByUUID", ctypes.byref(part)
        if self._status(find, self.uuid.encode(), found) == 0:
            return part, part
        of_slice, parent = self.uuid.replace("GPU-", "MIG-"), "nvmlDeviceGetDeviceHandleFromMigDeviceHandle"
        is_slice = self._status(find, of_slice.encode(), found) == 0
        if is_slice and self._status(parent, part, ctypes.byref(whole)) == 0:
            return part, whole
        raise JudgeError(f"NVML knows no GPU with CUDA's UUID {self.uuid}; driver and NVML are of different versions?")

    @property
    def name(self) -> str:
        """`NVIDIA H200`; empty where unknown."""
        text = ctypes.create_string_buffer(96)
        return text.value.decode(errors="replace") if self._ask("nvmlDeviceGetName", text, 96) else ""

    def memory(self) -> tuple[int, int] | None:
        """(used, total) [B], the driver's own share counted as used."""
        found = _Memory()
        place = ctypes.byref(found)
        return (found.used, found.total) if self._ask("nvmlDeviceGetMemoryInfo", place, of=self._part) else None

    def sm_mhz(self) -> int | None:
        """SM clock now [MHz]."""
        return self._number("nvmlDeviceGetClockInfo", _SM_CLOCK)

    def max_sm_mhz(self) -> int | None:
        """Highest SM clock that the card has [MHz]."""
        return self._number("nvmlDeviceGetMaxClockInfo", _SM_CLOCK)

    def temperature_c(self) -> int | None:
        return self._number("nvmlDeviceGetTemperature", _GPU_SENSOR)

    def power_w(self) -> float | None:
        milliwatts = self._number("nvmlDeviceGetPowerUsage")
        return None if milliwatts is None else milliwatts / 1000

    def busy_percent(self) -> int | None:
        """Share of the last sampling period in which a kernel ran."""
        found = _Utilization()
        return found.gpu if self._ask("nvmlDeviceGetUtilizationRates", ctypes.byref(found)) else None

    def throttle_reasons(self) -> tuple[str, ...] | None:
        """Names from THROTTLE_REASONS of what holds the clock down now; empty when nothing does."""
        bits = ctypes.c_ulonglong()
        if not self._ask(self._reasons, ctypes.byref(bits)):
            return None
        return tuple(name for bit, name in THROTTLE_REASONS.items() if bits.value & bit) if bits.value else ()

    def processes(self) -> list[Process] | None:
        """Processes with a compute context on the GPU, ours included."""
        status, function = _MORE_SPACE, "nvmlDeviceGetComputeRunningProcesses_v3"
        while status == _MORE_SPACE and len(self._processes) < _MOST_PROCESSES:
            count = ctypes.c_uint(len(self._processes))
            status = self._status(function, self._part, ctypes.byref(count), self._processes)
            if status == _MORE_SPACE:
                self._processes = (_Process * (2 * len(self._processes)))()
        if status in _FOR_EVER:
            self.missing.add(function)
        if status != 0:
            return None
        entries = self._processes[: count.value]
        return [Process(entry.pid, 0 if entry.used == _NOT_AVAILABLE else entry.used) for entry in entries]

    def _number(self, function: str, *arguments: int) -> int | None:
        value = ctypes.c_uint()
        return value.value if self._ask(function, *arguments, ctypes.byref(value)) else None

    def _ask(self, function: str, *arguments: Any, of: ctypes.c_void_p | None = None) -> bool:
        """Whether the driver answered; a function that it does not have is asked for once."""
        if function in self.missing:
            return False
        status = self._status(function, of or self._handle, *arguments)
        if status in _FOR_EVER:
            self.missing.add(function)
        return status == 0

    def _status(self, function: str, *arguments: Any) -> int:
        try:
            return getattr(self._library, function)(*arguments)
        except AttributeError:
            return _ABSENT


def device_uuid(index: int, *, driver: str = DRIVER) -> str:
    """`GPU-...` of the device that CUDA calls `index` here; makes no context on it.

    The driver itself is asked, since CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER change the numbers and only it knows
    how. Raises JudgeError when there is no driver or no such device.
    """
    try:
        library = ctypes.CDLL(driver)
    except OSError as error:
        raise JudgeError(f"the NVIDIA driver cannot be loaded ({error}); is a GPU in this machine?") from error
    status, count = library.cuInit(0), ctypes.c_int()
    if status == 0:
        status = library.cuDeviceGetCount(ctypes.byref(count))
    if status != 0:
        raise JudgeError(f"the NVIDIA driver does not start (error {status}); does `nvidia-smi` work on this machine?")
    device, identity = ctypes.c_int(), (ctypes.c_ubyte * 16)()
    if library.cuDeviceGet(ctypes.byref(device), index) != 0:
        raise JudgeError(f"cuda:{index} must be one of {count.value} visible GPUs; see CUDA_VISIBLE_DEVICES")
    name = getattr(library, "cuDeviceGetUuid_v2", None) or library.cuDeviceGetUuid  # v2 also knows slices (MIG)
    if name(ctypes.byref(identity), device) != 0:
        raise JudgeError(f"the NVIDIA driver does not name cuda:{index} (cuDeviceGetUuid failed)")
    text = bytes(identity).hex()
    return "GPU-" + "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))


class Watch:
    """Says of each timed round whether it must be dropped. Blind where NVML is missing: it then drops nothing."""

    def __init__(self, gpu: Gpu | None, ours: Callable[[], Collection[int]] = tuple, why_blind: str = "") -> None:
        """`ours()`: pids of our own that may hold a context on the device, asked again when a stranger shows up."""
        self._gpu, self._ours, self._why_blind = gpu, ours, why_blind
        self._session: deque[int] = deque(maxlen=KEPT_CLOCKS)
        self._left: dict[int, float] = {}
        self._known: frozenset[int] = frozenset()
        self.begin()

    @classmethod
    def over(cls, device: str, ours: Callable[[], Collection[int]] = tuple, *, nvml: str = NVML) -> Watch:
        """The watch of `cuda:0`; blind, with one warning in the log, where NVML does not work. `cpu`: blind."""
        number = re.fullmatch(r"cuda(?::(\d+))?", device)
        if number is None:
            return cls(None)
        try:
            return cls(Gpu(int(number[1] or 0), nvml=nvml), ours)
        except JudgeError as error:
            log.warning("gpu is not watched: %s", error)
            return cls(None, why_blind=str(error))

    def begin(self) -> None:
        """Starts a series of rounds, at a moment when our own processes have their contexts and nobody else has."""
        self._series: list[int] = []
        self._dropped: Counter[str] = Counter()
        self._rounds = self._capped = 0
        self._take_census(frozenset(self._ours()))

    def _take_census(self, known: frozenset[int]) -> None:
        now = time.monotonic()
        self._left |= {pid: now for pid in self._known - known}
        self._known = known
        pids = [process.pid for process in self._processes()]
        self._sees_our_pids = not known.isdisjoint(pids)
        self._census = Counter(pids)

    def round(self) -> str:
        """Why the round that has just ended must be dropped; empty when it may stay."""
        if self._gpu is None:
            return ""
        self._rounds += 1
        kind, reason = self._disturbance(self._gpu)
        if kind:
            self._dropped[kind] += 1
        return reason

    def summary(self) -> dict[str, int | float | str]:
        """Features of the series: clock, heat, power, and what was dropped and why."""
        if self._gpu is None:
            return {"nvml": self._why_blind} if self._why_blind else {}
        found: dict[str, int | float | str | None] = {
            "gpu_sm_mhz": statistics.median(self._series) if self._series else None,
            "gpu_max_sm_mhz": self._gpu.max_sm_mhz(),
            "gpu_temperature_c": self._gpu.temperature_c(),
            "gpu_power_w": self._gpu.power_w(),
            "gpu_power_capped_share": round(self._capped / self._rounds, 3) if self._rounds else None,
            "nvml": "lacks " + ", ".join(sorted(self._gpu.missing)) if self._gpu.missing else None,
        }
        found |= {f"gpu_dropped_{kind}": count for kind, count in self._dropped.items()}
        return {name: value for name, value in found.items() if value is not None}

    def _disturbance(self, gpu: Gpu) -> tuple[str, str]:
        reasons, clock = gpu.throttle_reasons() or (), gpu.sm_mhz()
        usual = self._usual(reasons)
        if clock is not None and "gpu_idle" not in reasons:  # an idle GPU's clock says nothing about the round
            self._series.append(clock)
            self._session.append(clock)
        self._capped += "sw_power_cap" in reasons
        slowdowns = sorted(SLOWDOWNS.intersection(reasons))
        if slowdowns:
            return "throttled", f"the GPU throttles itself ({', '.join(slowdowns)}, {gpu.temperature_c()} C)"
        if clock is not None and usual and "gpu_idle" not in reasons and clock < SLOW_CLOCK * usual:
            return "slow_clock", f"the SM clock was {clock} MHz, usual are {usual:.0f} MHz"
        foreign = self._foreign()
        return ("foreign", foreign) if foreign else ("", "")

    def _usual(self, reasons: Collection[str]) -> float:
        """The median clock: of this series where its own load makes the power cap hold, else of the session."""
        clocks = self._series if "sw_power_cap" in reasons else self._session
        return statistics.median(clocks) if len(clocks) >= FEWEST_CLOCKS else 0.0

    def _foreign(self) -> str:
        """Which process besides ours holds a context, in words; empty when none does.

        Where any of our own pids is in the list every other pid is foreign. Where none is (another pid namespace, or
        zeros) pids cannot be told apart: then it is foreign only if it came after the census, or if there are
        more contexts than we have processes.
        """
        found, others, leaving = self._strangers()
        if others and (known := frozenset(self._ours())) != self._known:  # a runner was replaced
            self._take_census(known)
            found, others, leaving = self._strangers()
        if self._sees_our_pids:
            if not others:
                return ""
            used = sum(process.used_bytes for process in others) >> 20
            return f"process {', '.join(str(other.pid) for other in others)} also uses the GPU ({used} MiB)"
        new = Counter(process.pid for process in others) - self._census
        more = len(found) - len(self._known) - leaving if self._known else 0
        count = max(new.total(), more)
        return f"somebody else uses the GPU ({count} contexts too many; pids do not show here)" if count > 0 else ""

    def _strangers(self) -> tuple[list[Process], list[Process], int]:
        """(all processes, those whose pid is not ours, how many of ours may still be dying)."""
        leaving = {pid for pid, left in self._left.items() if time.monotonic() - left < LEAVING_S}
        found = self._processes()
        return found, [process for process in found if process.pid not in self._known | leaving], len(leaving)

    def _processes(self) -> list[Process]:
        return (self._gpu.processes() if self._gpu is not None else None) or []
