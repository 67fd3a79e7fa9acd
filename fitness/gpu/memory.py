"""Device memory through the CUDA driver's own interface: allocated apart from torch's, shared with other processes.

An IPC handle opens a whole allocation, so what is exported must not come from torch's caching allocator, whose
blocks lie beside others of ours. Calls need a current context: torch makes its primary one current (`use`).
Source: CUDA driver API, https://docs.nvidia.com/cuda/cuda-driver-api/group__CUDA__MEM.html.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from fitness import wire
from fitness.wire import HANDLE_BYTES, Layout

if TYPE_CHECKING:
    import torch

_LAZY_ENABLE_PEER_ACCESS = 1
_BUFFER_ID = 7
_NOT_SUPPORTED = 801
"""CUDA_ERROR_NOT_SUPPORTED: cards before compute capability 8.0 reserve nothing."""
_CAPABILITY = (75, 76)
"""CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR and _MINOR."""


class DeviceError(RuntimeError):
    """The driver refused."""


class _Handle(ctypes.Structure):
    _fields_ = [("reserved", ctypes.c_byte * HANDLE_BYTES)]


@cache
def driver() -> Any:
    """libcuda, typed as far as it is used here; DeviceError where there is no driver."""
    try:
        cuda = ctypes.CDLL("libcuda.so.1", mode=ctypes.RTLD_GLOBAL)  # Triton's own library looks for its names
    except OSError as error:
        raise DeviceError(f"no NVIDIA driver here: {error}") from error
    pointer, size = ctypes.c_uint64, ctypes.c_size_t
    cuda.cuMemAlloc_v2.argtypes = [ctypes.POINTER(pointer), size]
    cuda.cuMemFree_v2.argtypes = [pointer]
    cuda.cuIpcGetMemHandle.argtypes = [ctypes.POINTER(_Handle), pointer]
    cuda.cuIpcOpenMemHandle_v2.argtypes = [ctypes.POINTER(pointer), _Handle, ctypes.c_uint]
    cuda.cuIpcCloseMemHandle.argtypes = [pointer]
    cuda.cuMemGetAddressRange_v2.argtypes = [ctypes.POINTER(pointer), ctypes.POINTER(size), pointer]
    cuda.cuPointerGetAttribute.argtypes = [ctypes.c_void_p, ctypes.c_int, pointer]
    cuda.cuMemcpyDtoDAsync_v2.argtypes = [pointer, pointer, size, ctypes.c_void_p]
    cuda.cuMemsetD8Async.argtypes = [pointer, ctypes.c_ubyte, size, ctypes.c_void_p]
    cuda.cuStreamSynchronize.argtypes = [ctypes.c_void_p]
    return cuda


def architecture(device: str) -> str:
    """`sm_90`, asked of the driver without making a context."""
    cuda, number, parts = driver(), ctypes.c_int(), []
    check(cuda.cuInit(0), "starting CUDA")
    check(cuda.cuDeviceGet(ctypes.byref(number), int(device.partition(":")[2])), "finding the device")
    for attribute in _CAPABILITY:
        value = ctypes.c_int()
        check(cuda.cuDeviceGetAttribute(ctypes.byref(value), attribute, number), "asking for its capability")
        parts.append(value.value)
    return f"sm_{parts[0]}{parts[1]}"


def use(device: str) -> None:
    """Makes a context on the device current in this thread; torch's errors pass."""
    import torch

    torch.cuda.set_device(device)
    torch.empty(1, device=device)


def export(address: int) -> bytes:
    """The handle under which another process can open the allocation that begins at `address`."""
    handle = _Handle()
    check(driver().cuIpcGetMemHandle(ctypes.byref(handle), address), "exporting device memory")
    return bytes(handle)


def allocation_of(address: int) -> tuple[int, int]:
    """(first address, bytes) of the allocation that `address` lies in."""
    base, size = ctypes.c_uint64(), ctypes.c_size_t()
    code = driver().cuMemGetAddressRange_v2(ctypes.byref(base), ctypes.byref(size), address)
    check(code, "looking up an allocation")
    return base.value, size.value


def identity_of(address: int) -> int:
    """A number that no other allocation of this process ever has (CU_POINTER_ATTRIBUTE_BUFFER_ID)."""
    number = ctypes.c_uint64()
    check(driver().cuPointerGetAttribute(ctypes.byref(number), _BUFFER_ID, address), "identifying an allocation")
    return number.value


def release_cache() -> None:
    """Makes lines of the L2 cache that somebody reserved ordinary ones again, which others can evict."""
    code = driver().cuCtxResetPersistingL2Cache()
    if code != _NOT_SUPPORTED:
        check(code, "releasing reserved cache")


def copy_async(target: int, address: int, nbytes: int) -> None:
    """Starts a copy within the device, on the default stream."""
    check(driver().cuMemcpyDtoDAsync_v2(target, address, nbytes, None), "taking a sample")


def fill_async(address: int, value: int, nbytes: int) -> None:
    """Starts to set every byte, on the default stream, by a kernel."""
    check(driver().cuMemsetD8Async(address, value, nbytes, None), "overwriting device memory")


def wait() -> None:
    """Until the default stream is idle."""
    check(driver().cuStreamSynchronize(None), "waiting for the device")


class DeviceMemory:
    """An allocation of its own."""

    def __init__(self, nbytes: int, device: str) -> None:
        """DeviceError when the card has no room."""
        self.nbytes, self._device = max(nbytes, wire.ALIGNMENT), device
        address = ctypes.c_uint64()
        check(driver().cuMemAlloc_v2(ctypes.byref(address), self.nbytes), f"allocating {self.nbytes >> 20} MiB")
        self.address = address.value
        self.handle = export(self.address)

    def tensors(self, layouts: Sequence[Layout], base: int = 0) -> list[torch.Tensor]:
        """Tensors over this memory, in order, from byte `base` on; they must not be used after `close`."""
        starts, _ = wire.offsets(layouts)
        return [
            tensor_at(self.address + base + start, layout, self._device)
            for start, layout in zip(starts, layouts, strict=True)
        ]

    def close(self) -> None:
        """Gives it back; another process's mapping keeps the memory until it closes."""
        driver().cuMemFree_v2(self.address)


class MappedMemory:
    """Another process's allocation, opened by its handle."""

    def __init__(self, handle: bytes, device: str) -> None:
        """DeviceError for a handle that opens nothing."""
        self._device = device
        address = ctypes.c_uint64()
        opened = driver().cuIpcOpenMemHandle_v2(
            ctypes.byref(address), _Handle.from_buffer_copy(handle), _LAZY_ENABLE_PEER_ACCESS
        )
        check(opened, "opening another process's memory")
        self.address = address.value
        self.nbytes = allocation_of(self.address)[1]

    def tensors(self, layouts: Sequence[Layout], base: int = 0) -> list[torch.Tensor]:
        """As DeviceMemory.tensors."""
        starts, _ = wire.offsets(layouts)
        return [
            tensor_at(self.address + base + start, layout, self._device)
            for start, layout in zip(starts, layouts, strict=True)
        ]

    def close(self) -> None:
        """Lets go of it."""
        driver().cuIpcCloseMemHandle(self.address)


def rows_at(address: int, layout: Layout, pitch: int, count: int, device: str) -> torch.Tensor:
    """The same tensor of `count` slots that lie `pitch` bytes apart, as (count, elements)."""
    import torch

    flat = torch.as_tensor(_Span(address, (count - 1) * pitch + layout.nbytes), device=device)
    item = wire.item_bytes(layout.dtype)
    return flat.view(getattr(torch, layout.dtype)).as_strided((count, layout.numel), (pitch // item, 1))


class _Span:
    """Raw bytes on the device, in the form that torch.as_tensor understands."""

    def __init__(self, address: int, nbytes: int) -> None:
        self.__cuda_array_interface__ = {
            "shape": (nbytes,),
            "typestr": "|u1",
            "data": (address, False),
            "version": 3,
        }


def tensor_at(address: int, layout: Layout, device: str) -> torch.Tensor:
    """A tensor over device memory; its owner must outlive it."""
    import torch

    dtype = getattr(torch, layout.dtype)
    if layout.numel == 0:
        return torch.empty(layout.shape, dtype=dtype, device=device)
    flat = torch.as_tensor(_Span(address, layout.nbytes), device=device).view(dtype)
    return flat.as_strided(layout.shape, layout.stride)


def check(code: int, doing: str) -> None:
    if code == 0:
        return
    message = ctypes.c_char_p()
    driver().cuGetErrorString(code, ctypes.byref(message))
    raise DeviceError(f"{doing}: {(message.value or b'unknown error').decode()} (CUDA error {code})")
