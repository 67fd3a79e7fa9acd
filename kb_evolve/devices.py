"""What kernels can be built for, verified and timed on here: GPUs, compilers, packages. Nothing here makes a context.

GPUs are counted by the driver itself (libcuda, by ctypes): it knows what CUDA_VISIBLE_DEVICES leaves, needs no
torch, and a process that only asked holds no memory on the device.
"""

from __future__ import annotations

import ctypes
import importlib.util
import re
from dataclasses import dataclass, field
from functools import cache
from importlib import metadata
from pathlib import Path

DEVICE = re.compile(r"cpu|cuda:(\d{1,3})")
ARCH = re.compile(r"sm_(\d+)a?")

_CAPABILITY_MAJOR, _CAPABILITY_MINOR = 75, 76
"""CUdevice_attribute numbers of cuda.h: CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR and _MINOR."""
ATTRIBUTES = {
    "multiprocessors": 16,
    "l2_cache_bytes": 38,
    "shared_memory_per_multiprocessor_bytes": 81,
    "shared_memory_per_block_bytes": 97,
    "registers_per_multiprocessor": 82,
    "threads_per_multiprocessor": 39,
}
"""The same for ..._MULTIPROCESSOR_COUNT, L2_CACHE_SIZE, MAX_SHARED_MEMORY_PER_MULTIPROCESSOR,
MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, MAX_REGISTERS_PER_MULTIPROCESSOR, MAX_THREADS_PER_MULTIPROCESSOR."""


@dataclass(frozen=True, slots=True)
class Gpu:
    """One CUDA device as the driver describes it."""

    index: int
    name: str
    memory_bytes: int
    capability: tuple[int, int]
    """Compute capability: (9, 0)."""
    limits: dict[str, float] = field(default_factory=dict)
    """What a kernel may use, by the names of ATTRIBUTES."""

    @property
    def arch(self) -> str:
        """`sm_90`."""
        return f"sm_{self.capability[0]}{self.capability[1]}"


@cache
def gpus(driver: str = "libcuda.so.1") -> tuple[Gpu, ...]:
    """The visible CUDA devices in CUDA's order; none where there is no working driver."""
    try:
        library = ctypes.CDLL(driver)
    except OSError:
        return ()
    count = ctypes.c_int()
    if library.cuInit(0) != 0 or library.cuDeviceGetCount(ctypes.byref(count)) != 0:
        return ()
    return tuple(_gpu(library, index) for index in range(count.value))


def _gpu(library: ctypes.CDLL, index: int) -> Gpu:
    device, name = ctypes.c_int(), ctypes.create_string_buffer(128)
    memory, major, minor = ctypes.c_size_t(), ctypes.c_int(), ctypes.c_int()
    library.cuDeviceGet(ctypes.byref(device), index)
    library.cuDeviceGetName(name, len(name), device)
    library.cuDeviceTotalMem_v2(ctypes.byref(memory), device)
    library.cuDeviceGetAttribute(ctypes.byref(major), _CAPABILITY_MAJOR, device)
    library.cuDeviceGetAttribute(ctypes.byref(minor), _CAPABILITY_MINOR, device)
    limits = {}
    for label, number in ATTRIBUTES.items():
        value = ctypes.c_int()
        if library.cuDeviceGetAttribute(ctypes.byref(value), number, device) == 0:
            limits[label] = float(value.value)
    return Gpu(index, name.value.decode(errors="replace"), memory.value, (major.value, minor.value), limits)


def driver_version(path: str = "/proc/driver/nvidia/version") -> str:
    """`580.65.06`; empty where the driver does not say."""
    try:
        found = re.search(r"\s(\d+\.\d+(?:\.\d+)?)\s", Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError):
        return ""
    return found[1] if found else ""


def counters_are_permitted(path: str = "/proc/driver/nvidia/params") -> bool | None:
    """Whether Nsight Compute may read performance counters here; None where the driver does not say.

    `RmProfilingAdminOnly: 1` leaves them to root, and in a container even root needs CAP_SYS_ADMIN: see
    https://developer.nvidia.com/ERR_NVGPUCTRPERM.
    """
    try:
        found = re.search(r"RmProfilingAdminOnly:\s*(\d)", Path(path).read_text(encoding="utf-8"))
        effective = re.search(r"CapEff:\s*([0-9a-f]+)", Path("/proc/self/status").read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError):
        return None
    if found is None or effective is None:
        return None
    return found[1] == "0" or bool(int(effective[1], 16) >> 21 & 1)


@cache
def torch_cuda() -> str | None:
    """The CUDA version that torch was built for, read from its version.py; None without torch or without CUDA."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return None
    try:
        text = (Path(spec.origin).parent / "version.py").read_text(encoding="utf-8")
    except OSError:
        return None
    found = re.search(r"^cuda\b[^=\n]*=\s*['\"]([\d.]+)['\"]", text, re.MULTILINE)
    return found[1] if found else None


def has_package(name: str) -> bool:
    """Whether a package can be imported, without importing it."""
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False


def has_nvrtc() -> bool:
    """Whether kernels can use NVRTC through cuda-core, which is of no use without cuda-bindings."""
    return has_package("cuda.core") and has_package("cuda.bindings")


def triton_doubt() -> str:
    """That the installed Triton is not one that is known to work; empty where it is, or where there is none."""
    from fitness.backends import TRITONS

    try:
        found = metadata.version("triton")
    except metadata.PackageNotFoundError:
        return ""
    if ".".join(found.split(".")[:2]) in TRITONS:
        return ""
    return f"Triton {found} was never tried here; known to work: {', '.join(TRITONS)}"


def nvcc_path() -> str | None:
    """The nvcc that the builder uses; None where it finds none."""
    from fitness.backends.cuda import find_toolkit

    found = find_toolkit()
    return str(found.nvcc) if found else None
