"""What crosses the line between the judge and a runner: tensor layouts, memory segments, fixed-size messages."""

from __future__ import annotations

import contextlib
import fcntl
import math
import mmap
import os
import select
import struct
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

ALIGNMENT = 512
"""torch's own allocators align to 64 bytes on the CPU and to 512 on CUDA."""

_F_SEAL_FUTURE_WRITE = 0x10
MAX_DIMS, TEXT_BYTES = 8, 1024

GO = struct.Struct("<II16s")
"""Judge to runner: operation, its argument, a seed."""
RUN, RELEASE, DESCRIBE, STATE, DRAW, WHERE, LIST, MAP, INPUTS, EXACT, STEP, SENSITIVITY = range(1, 13)

COPIED = 1 << 16
"""Flag on DRAW's argument: with the varied weights that STATE gives, instead of the seeded ones."""

READY, DONE, RELEASED, FAILED, PREPARED = 1, 2, 3, 4, 5
"""PREPARED: the candidate's code comes next; a failure before it is ours."""
_HEAD = struct.Struct("<IIq")
HANDLE_BYTES = 64
"""A CUDA IPC memory handle (CU_IPC_HANDLE_SIZE)."""
_OUTPUT = struct.Struct(f"<QQII{MAX_DIMS}q{HANDLE_BYTES}s")
MAX_REPLY_OUTPUTS = 64
"""Outputs of all calls of one batch together."""
REPLY_BYTES = _HEAD.size + MAX_REPLY_OUTPUTS * _OUTPUT.size + TEXT_BYTES
"""Every reply has this size, whatever it says: kind, code, number of outputs, outputs, text."""

DTYPES = (
    "float32",
    "float64",
    "float16",
    "bfloat16",
    "int64",
    "int32",
    "int16",
    "int8",
    "uint8",
    "bool",
)


@dataclass(frozen=True, slots=True)
class Layout:
    """Shape, strides (in elements) and dtype name of one dense tensor."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: str

    @classmethod
    def of(cls, tensor: torch.Tensor) -> Layout:
        """The layout of a tensor that overlaps itself nowhere and has no holes; else its contiguous one."""
        dtype = str(tensor.dtype).removeprefix("torch.")
        if dtype not in DTYPES:
            raise TypeError(f"tensors must be of {', '.join(DTYPES)}, found {dtype}")
        if not _is_dense(tensor):
            tensor = tensor.contiguous()
        return cls(tuple(tensor.shape), tuple(tensor.stride()), dtype)

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> Layout:
        return cls(tuple(document["shape"]), tuple(document["stride"]), document["dtype"])

    def to_json(self) -> dict[str, Any]:
        return {"shape": list(self.shape), "stride": list(self.stride), "dtype": self.dtype}

    @property
    def numel(self) -> int:
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.numel * item_bytes(self.dtype)


def rubbish(dtype: str) -> int:
    """The byte that outputs are overwritten with: NaN in floating types, and an unlikely number in others."""
    return 0xFF if "float" in dtype else 0xA5


def item_bytes(dtype: str) -> int:
    """Bytes of one element."""
    return {"float64": 8, "int64": 8, "float32": 4, "int32": 4, "float16": 2, "bfloat16": 2, "int16": 2}.get(dtype, 1)


def _is_dense(tensor: torch.Tensor) -> bool:
    expected = 1
    for size, stride in sorted(zip(tensor.shape, tensor.stride(), strict=True), key=lambda pair: pair[1]):
        if size == 1:
            continue
        if stride != expected:
            return False
        expected *= size
    return True


def offsets(layouts: Sequence[Layout]) -> tuple[list[int], int]:
    """Where each tensor begins in one segment, and the segment's size [B]."""
    starts, end = [], 0
    for layout in layouts:
        starts.append(end)
        end += -(-layout.nbytes // ALIGNMENT) * ALIGNMENT
    return starts, max(end, ALIGNMENT)


class Segment:
    """Anonymous shared memory: gone with the last process that holds it, never a name in /dev/shm."""

    def __init__(self, nbytes: int = 0, *, descriptor: int | None = None, writable: bool = True) -> None:
        if descriptor is None:
            descriptor = os.memfd_create("kb", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
            os.ftruncate(descriptor, nbytes)
        self.fd = descriptor
        self.nbytes = os.fstat(self.fd).st_size
        protection = mmap.PROT_READ | (mmap.PROT_WRITE if writable else 0)
        self.memory = mmap.mmap(self.fd, self.nbytes, mmap.MAP_SHARED, protection)

    def seal(self) -> None:
        """From now on nobody can map it writable or change its size; our own mapping stays writable."""
        seals = _F_SEAL_FUTURE_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL
        fcntl.fcntl(self.fd, fcntl.F_ADD_SEALS, seals)

    @contextlib.contextmanager
    def opened_anew(self) -> Iterator[int]:
        """A descriptor to read by, of an open file of its own: locks on it end with the process that it is given to."""
        descriptor = os.open(f"/proc/self/fd/{self.fd}", os.O_RDONLY | os.O_CLOEXEC)
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    def tensors(self, layouts: Sequence[Layout], base: int = 0) -> list[torch.Tensor]:
        """Tensors over this memory, in order, from byte `base` on."""
        starts, _ = offsets(layouts)
        return [tensor_over(self.memory, base + start, layout) for start, layout in zip(starts, layouts, strict=True)]

    def close(self) -> None:
        """Lets go of the descriptor; the memory goes when the last tensor over it does."""
        os.close(self.fd)


def tensor_over(memory: Any, start: int, layout: Layout) -> torch.Tensor:
    """A tensor that shares `memory` from byte `start` on."""
    import warnings

    import torch

    dtype = getattr(torch, layout.dtype)
    if layout.numel == 0:
        return torch.empty(layout.shape, dtype=dtype)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns that read-only memory should not be written to
        flat = torch.frombuffer(memory, dtype=dtype, count=layout.numel, offset=start)
    return flat.as_strided(layout.shape, layout.stride)


@dataclass(frozen=True, slots=True)
class Output:
    """Where a runner says that one result lies in its own memory. A claim: only the bytes count."""

    address: int
    """Where in the process's memory; on a GPU, how far into the allocation that `handle` names."""
    nbytes: int
    dtype: str
    shape: tuple[int, ...]
    handle: bytes = b""


@dataclass(frozen=True, slots=True)
class Reply:
    """A runner's fixed-size message, taken apart."""

    kind: int
    code: int
    outputs: tuple[Output, ...] = ()
    text: str = ""


def pack_reply(kind: int, code: int = 0, outputs: Sequence[Output] = (), text: str = "") -> bytes:
    """The bytes of one reply, always REPLY_BYTES long. ValueError for more than MAX_REPLY_OUTPUTS outputs."""
    if len(outputs) > MAX_REPLY_OUTPUTS:
        raise ValueError(f"forward must return at most {MAX_REPLY_OUTPUTS} tensors, found {len(outputs)}")
    body = bytearray(REPLY_BYTES)
    _HEAD.pack_into(body, 0, kind, code, len(outputs))
    for index, output in enumerate(outputs):
        dims = [*output.shape, *[0] * (MAX_DIMS - len(output.shape))]
        place = _HEAD.size + index * _OUTPUT.size
        dtype = DTYPES.index(output.dtype)
        _OUTPUT.pack_into(body, place, output.address, output.nbytes, dtype, len(output.shape), *dims, output.handle)
    encoded = text.encode(errors="replace")[:TEXT_BYTES]
    body[REPLY_BYTES - TEXT_BYTES : REPLY_BYTES - TEXT_BYTES + len(encoded)] = encoded
    return bytes(body)


def unpack_reply(body: bytes) -> Reply:
    """The reply in `body`; ValueError when it is not of our making."""
    kind, code, count = _HEAD.unpack_from(body, 0)
    if kind not in (READY, DONE, RELEASED, FAILED, PREPARED) or not 0 <= count <= MAX_REPLY_OUTPUTS:
        raise ValueError(f"a reply of kind {kind} with {count} outputs")
    outputs = []
    for index in range(count):
        place = _HEAD.size + index * _OUTPUT.size
        address, nbytes, dtype, ndim, *dims, handle = _OUTPUT.unpack_from(body, place)
        if dtype >= len(DTYPES) or ndim > MAX_DIMS:
            raise ValueError(f"an output of dtype {dtype} with {ndim} dimensions")
        outputs.append(Output(address, nbytes, DTYPES[dtype], tuple(dims[:ndim]), handle))
    text = bytes(body[REPLY_BYTES - TEXT_BYTES :]).rstrip(b"\0").decode(errors="replace")
    return Reply(kind, code, tuple(outputs), one_line(text))


def one_line(text: str) -> str:
    """What untrusted code said, on one line, with a question mark for what no screen should be sent."""
    return printable(" ".join(text.split()), TEXT_BYTES)


def printable(text: str, most: int) -> str:
    """The first `most` characters of what untrusted code said, with a question mark for what no screen shows."""
    return "".join(character if character.isprintable() else "?" for character in text[:most])


def read_exactly(descriptor: int, nbytes: int, deadline: float) -> bytes | None:
    """`nbytes` bytes by `deadline` (time.monotonic); None when time runs out; b"" at the end of the pipe."""
    poller = select.poll()
    poller.register(descriptor, select.POLLIN)
    parts = b""
    while len(parts) < nbytes:
        left_ms = (deadline - time.monotonic()) * 1e3
        if left_ms <= 0 or not poller.poll(left_ms):
            return None
        part = os.read(descriptor, nbytes - len(parts))
        if not part:
            return b""
        parts += part
    return parts
