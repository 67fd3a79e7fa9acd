"""Tensors that look like CUDA tensors where there is no GPU: for code that asks, not for code that cheats.

Triton candidates say `assert x.is_cuda` and `torch.empty(n, device="cuda")`. Under `Pretend("meta")` such code runs
without memory and without a device (to see what it would launch), under `Pretend("cpu")` on the CPU (to interpret it).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

_CUDA = torch.device("cuda", 0)
_BASE_ADDRESS = 1 << 30
"""Where the pretended tensors begin: PyTorch's CUDA allocator aligns to 512 bytes."""


class Pretend(TorchFunctionMode):
    """While active, tensors on the device `real` say that they are on cuda:0, and what asks for CUDA gets `real`."""

    def __init__(self, real: str) -> None:
        super().__init__()
        self.real = torch.device(real)

    def __torch_function__(
        self, func: Callable[..., Any], types: Sequence[type], args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        del types
        if args and isinstance(args[0], torch.Tensor) and args[0].device.type == self.real.type:
            answer = self._answer(func, args[0])
            if answer is not None:
                return answer
        if func is torch.Tensor.cuda:
            return args[0].to(self.real)
        if func is torch.Tensor.to:
            args = [self._place(value) for value in args]
        given = {name: self._place(value) if name == "device" else value for name, value in (kwargs or {}).items()}
        return func(*args, **given)

    def _answer(self, func: Callable[..., Any], tensor: torch.Tensor) -> Any:
        """What a CUDA tensor would say of itself; None: not such a question."""
        if func == torch.Tensor.device.__get__:  # type: ignore[attr-defined]
            return _CUDA
        if func in (torch.Tensor.is_cpu.__get__, torch.Tensor.is_meta.__get__):  # type: ignore[attr-defined]
            return False
        if func == torch.Tensor.is_cuda.__get__:  # type: ignore[attr-defined]
            return True
        if func is torch.Tensor.get_device:
            return 0
        if func is torch.Tensor.data_ptr and self.real.type == "meta":
            return _BASE_ADDRESS + tensor.storage_offset() * tensor.element_size()
        return None

    def _place(self, value: Any) -> Any:
        """`real` for whatever names a CUDA device."""
        if isinstance(value, str) and value.split(":")[0] == "cuda":
            return self.real
        return self.real if isinstance(value, torch.device) and value.type == "cuda" else value


def pretend_runtime(properties: dict[str, Any], *, available: bool) -> None:
    """Makes torch.cuda in this process answer for one GPU with these properties, and its waiting do nothing.

    `available`: what torch.cuda.is_available says.
    """
    stream = Quiet()
    answers: dict[str, Any] = {
        "is_available": available,
        "device_count": int(available),
        "current_device": 0,
        "get_device_capability": (properties["major"], properties["minor"]),
        "get_device_name": properties["name"],
        "get_device_properties": SimpleNamespace(**properties),
        "current_stream": stream,
        "default_stream": stream,
        "synchronize": None,
        "set_device": None,
        "empty_cache": None,
        "mem_get_info": (properties["total_memory"], properties["total_memory"]),
    }
    for name, answer in answers.items():
        setattr(torch.cuda, name, _saying(answer))
    for name in ("Stream", "Event", "CUDAGraph"):
        setattr(torch.cuda, name, type(name, (Quiet,), {}))
    for name in ("device", "device_of", "stream", "graph"):
        setattr(torch.cuda, name, lambda *_, **__: contextlib.nullcontext())


class Quiet:
    """In place of a stream, an event or a graph: every method does nothing."""

    cuda_stream = 0

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def __getattr__(self, name: str) -> Callable[..., None]:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *_, **__: None


def _saying(answer: Any) -> Callable[..., Any]:
    return lambda *_, **__: answer
