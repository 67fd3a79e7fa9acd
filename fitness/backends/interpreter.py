"""Triton's interpreter made fit to verify candidates: kernels run as numpy on CPU tensors, one program after another.

Written against Triton 3.6, whose interpreter by itself lets stores past a tensor corrupt the heap, computes every dot
exactly where the GPU takes TF32, adds bfloat16 as integers, cannot tune, has no libdevice, and patches triton.language
anew for every program. What is still unlike a GPU: programs never race, and shared memory has no limit.
"""

from __future__ import annotations

import inspect
import os
import sys
import types
from collections.abc import Callable
from typing import Any

import torch

Patch = Callable[..., Any]


class OutOfBounds(Exception):
    """A kernel wrote outside of every tensor that it was given."""


def enable() -> None:
    """Switches this process to the interpreter; candidates' kernels must be decorated afterwards.

    Works also after Triton was imported for compiling: triton.language's own functions are decorated at import, so
    all of Triton but its extension module is imported anew.
    """
    os.environ["TRITON_INTERPRET"] = "1"
    for name in [name for name in sys.modules if name == "triton" or name.startswith("triton.")]:
        if not name.startswith("triton._C"):
            del sys.modules[name]
    import numpy as np
    from triton.runtime import interpreter
    from triton.runtime.autotuner import Autotuner

    np.seterr(all="ignore")  # a GPU does not warn of overflow either
    Autotuner._bench = lambda *_, **__: [0.0, 0.0, 0.0]  # equal times: the first configuration is taken
    _patch_language_once(interpreter)
    _guard_memory(interpreter)
    _round_dots(interpreter)
    _widen_bfloat16(interpreter)
    _give_libdevice(interpreter)


def _patch_language_once(interpreter: Any) -> None:
    """The interpreter's language in place for good, instead of anew at each launch and each call of a helper."""
    import triton.language as tl

    names = {"tl": tl, "core": tl.core}
    interpreter._patch_lang(types.FunctionType((lambda: None).__code__, names))
    tl.tensor.__index__ = lambda self: int(self.handle.data.item())  # NumPy 2.4 refuses int() of one-element arrays
    done = types.SimpleNamespace(restore=lambda: None)
    interpreter._patch_lang = lambda fn: done


def _guard_memory(interpreter: Any) -> None:
    """Stores and atomics outside of the launch's own tensors raise OutOfBounds instead of corrupting the heap.

    Kernels that make pointers of integers are not checked: their tensors are not among the arguments.
    """
    import numpy as np

    builder, executor = interpreter.InterpreterBuilder, interpreter.GridExecutor
    extents: list[tuple[int, int]] = []
    to_host, store, to_pointer = executor._init_args_hst, builder.create_masked_store, builder.create_int_to_ptr

    def note_extents(self: Any, args: Any, kwargs: Any) -> Any:
        host = to_host(self, args, kwargs)
        extents[:] = sorted({_extent(tensor) for tensor in _tensors([*host[0], *host[1].values()])})
        return host

    def check(pointers: Any, mask: Any) -> None:
        active = np.broadcast_to(pointers.data, np.broadcast_shapes(pointers.data.shape, mask.data.shape))
        active = active[np.broadcast_to(mask.data, active.shape).astype(bool)]
        outside = np.ones(active.shape, bool)
        for begin, end in extents:
            outside &= (active < begin) | (active >= end)
        if extents and outside.any():
            raise OutOfBounds(_describe(int(active[outside][0]), int(outside.sum()), extents))

    def checked_store(self: Any, pointers: Any, value: Any, mask: Any, *options: Any) -> Any:
        check(pointers, mask)
        return store(self, pointers, value, mask, *options)

    def checked(operation: Patch, mask_at: int | None) -> Patch:
        def run(self: Any, *args: Any) -> Any:
            pointers = args[0] if mask_at is None else args[1]
            everywhere = types.SimpleNamespace(data=np.ones(1, bool))
            check(pointers, everywhere if mask_at is None else args[mask_at])
            return operation(self, *args)

        return run

    def int_to_pointer(self: Any, *args: Any) -> Any:
        extents.clear()
        return to_pointer(self, *args)

    executor._init_args_hst = note_extents
    executor._restore_args_dev = lambda *_: None  # the tensors are on the CPU, so nothing was copied
    builder.create_masked_store = checked_store
    builder.create_atomic_rmw = checked(builder.create_atomic_rmw, 3)
    builder.create_atomic_cas = checked(builder.create_atomic_cas, None)
    builder.create_int_to_ptr = int_to_pointer


def _tensors(values: list[Any]) -> list[torch.Tensor]:
    found = []
    for value in values:
        if isinstance(value, tuple | list):
            found += _tensors(list(value))
        else:
            value = getattr(value, "base", None) if not isinstance(value, torch.Tensor) else value
            found += [value] if isinstance(value, torch.Tensor) else []
    return found


def _extent(tensor: torch.Tensor) -> tuple[int, int]:
    storage = tensor.untyped_storage()
    return storage.data_ptr(), storage.data_ptr() + storage.nbytes()


def _describe(address: int, count: int, extents: list[tuple[int, int]]) -> str:
    begin, end = min(extents, key=lambda extent: min(abs(address - extent[0]), abs(address - extent[1])))
    where = f"{address - end} bytes behind the end" if address >= end else f"{begin - address} bytes before the begin"
    return (
        f"{count} of the kernel's stores fall outside of its tensors, the first {where} of one of {end - begin} bytes; "
        "mask the store with the tensor's size"
    )


def _round_dots(interpreter: Any) -> None:
    """A dot of fp32 operands takes TF32 (10 bits of fraction) where the kernel asks for it or does not say."""
    import numpy as np
    from triton._C.libtriton import ir

    dot = interpreter.InterpreterBuilder.create_dot

    def rounded(handle: Any) -> Any:
        if handle.data.dtype != np.float32:
            return handle
        bits = (handle.data.view(np.uint32) + np.uint32(1 << 12)) & np.uint32(0xFFFFE000)
        finite = np.isfinite(handle.data)
        return interpreter.TensorHandle(np.where(finite, bits.view(np.float32), handle.data), handle.dtype)

    def create_dot(self: Any, a: Any, b: Any, d: Any, precision: Any, imprecise: Any) -> Any:
        if precision == ir.INPUT_PRECISION.TF32:
            a, b = rounded(a), rounded(b)
        a, b = _wide(interpreter, a), _wide(interpreter, b)
        if d.data.dtype not in (np.float32, np.float16) or a.data.dtype.kind != "f":
            return dot(self, a, b, d, precision, imprecise)
        product = np.matmul(a.data.astype(np.float32), b.data.astype(np.float32))  # by BLAS, which has no fp16
        return interpreter.TensorHandle((product + d.data).astype(d.data.dtype), d.dtype.scalar)

    interpreter.InterpreterBuilder.create_dot = create_dot


def _wide(interpreter: Any, handle: Any) -> Any:
    """A bfloat16 handle (held as 16-bit integers) as fp32; others unchanged."""
    import numpy as np
    import triton.language as tl

    if not isinstance(handle, interpreter.TensorHandle) or handle.dtype.scalar != tl.bfloat16:
        return handle
    data = (handle.data.astype(np.uint32) << np.uint32(16)).view(np.float32)
    return interpreter.TensorHandle(data, tl.float32)


def _narrow(interpreter: Any, data: Any) -> Any:
    """fp32 values as a bfloat16 handle, rounded to nearest even as the GPU does."""
    import numpy as np
    import triton.language as tl

    data = np.asarray(data, dtype=np.float32)
    bits = data.view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
    quiet = np.where(np.isnan(data), np.uint32(0x7FC0), rounded)
    return interpreter.TensorHandle(quiet.astype(np.uint16), tl.bfloat16)


def _widen_bfloat16(interpreter: Any) -> None:
    """Arithmetic, casts and sums of bfloat16 by way of fp32."""
    import numpy as np
    import triton.language as tl

    builder = interpreter.InterpreterBuilder
    cast_impl = builder.cast_impl

    def by_fp32(operation: Patch) -> Patch:
        def run(self: Any, *args: Any) -> Any:
            wide = [_wide(interpreter, arg) for arg in args]
            result = operation(self, *wide)
            was_narrow = any(new is not old for new, old in zip(wide, args, strict=True))
            return _narrow(interpreter, result.data) if was_narrow and result.data.dtype == np.float32 else result

        return run

    def cast(self: Any, source: Any, target: Any) -> Any:
        if target.scalar == tl.bfloat16:
            return _narrow(interpreter, _wide(interpreter, source).data)
        return cast_impl(self, _wide(interpreter, source), target)

    def total(self: Any, value: Any) -> Any:
        data = np.sum(_wide(interpreter, value.handle).data, axis=self.axis, keepdims=self.keep_dims)
        return self.to_tensor(_narrow(interpreter, data).data if value.dtype == tl.bfloat16 else data, value.dtype)

    def running(self: Any, value: Any) -> Any:
        data = np.cumsum(_wide(interpreter, value.handle).data, axis=self.axis)
        data = _narrow(interpreter, data).data if value.dtype == tl.bfloat16 else data
        return [self.to_tensor(data, dtype=value.dtype)]

    builder.cast_impl = cast
    for name in ("binary_op", "ternary_op", "unary_op", "create_fma", "create_erf", "create_rsqrt"):
        setattr(builder, name, by_fp32(getattr(builder, name)))
    interpreter.ReduceOps.sum = total
    interpreter.ScanOps.cumsum = running


def _libdevice() -> dict[str, Callable[..., Any]]:
    """libdevice's functions as functions of arrays: those of real arguments that numpy or torch has."""
    import numpy as np

    def of_torch(function: Patch) -> Patch:
        return lambda *arrays: function(*[torch.from_numpy(np.ascontiguousarray(array)) for array in arrays]).numpy()

    same = "abs floor ceil trunc rint sqrt exp exp2 expm1 log log2 log10 log1p sin cos tan sinh cosh tanh cbrt"
    same += " hypot fmod copysign nextafter isnan isinf signbit"
    found: dict[str, Patch] = {name: getattr(np, name) for name in same.split()}
    for name in ("erf", "erfc", "erfinv", "lgamma"):
        found[name] = of_torch(getattr(torch, name))
    for name in ("sin", "cos", "tan", "asin", "acos", "atan", "asinh", "acosh", "atanh"):
        found[name] = getattr(np, name.replace("a", "arc", 1) if name.startswith("a") else name)
    found |= {"atan2": np.arctan2, "pow": np.power, "remainder": np.remainder, "nearbyint": np.rint}
    found |= {"rsqrt": lambda x: 1 / np.sqrt(x), "rcbrt": lambda x: 1 / np.cbrt(x), "exp10": lambda x: 10**x}
    found |= {"round": lambda x: np.copysign(np.floor(np.abs(x) + 0.5), x), "normcdf": of_torch(torch.special.ndtr)}
    found |= {"fma": lambda x, y, z: x * y + z, "fdim": lambda x, y: np.maximum(x - y, 0)}
    found |= {"finitef": np.isfinite, "isfinited": np.isfinite, "saturatef": lambda x: np.clip(x, 0, 1)}
    found |= {"rcp_rn": lambda x: 1 / x, "sqrt_rn": np.sqrt, "div_rn": np.divide, "fma_rn": found["fma"]}
    found |= {"add_rn": np.add, "sub_rn": np.subtract, "mul_rn": np.multiply, "rsqrt_rn": found["rsqrt"]}
    fast = {"sin": "sin", "cos": "cos", "tan": "tan", "log": "log", "log2": "log2", "log10": "log10", "exp": "exp"}
    found |= {f"fast_{name}f": found[full] for name, full in {**fast, "exp10": "exp10", "pow": "pow"}.items()}
    return found | {"fast_dividef": np.divide, "fast_tanhf": np.tanh, "llrint": np.rint, "llround": found["round"]}


def _give_libdevice(interpreter: Any) -> None:
    """libdevice in both of its places; a function without an equivalent here says so when it is called."""
    from triton.language.extra import libdevice as generic
    from triton.language.extra.cuda import libdevice as cuda

    equivalents = _libdevice()
    for name, function in inspect.getmembers(cuda, inspect.isfunction):
        replacement = _elementwise(interpreter, equivalents[name]) if name in equivalents else _missing(name)
        if function.__module__ == cuda.__name__:
            setattr(cuda, name, replacement)
            setattr(generic, name, replacement)


def _elementwise(interpreter: Any, function: Patch) -> Patch:
    import numpy as np
    import triton.language as tl

    def run(*args: Any, **_: Any) -> Any:
        tensors = [interpreter.interpreter_semantic.to_tensor(arg) for arg in args]
        first = next((tensor for tensor in tensors if tensor.type.is_block()), tensors[0])
        data = function(*[tensor.handle.data for tensor in tensors])
        scalar = first.dtype if data.dtype.kind == "f" else tl.int32
        data = data.astype(interpreter._get_np_dtype(scalar))
        kind = tl.block_type(scalar, list(np.shape(data))) if first.type.is_block() else scalar
        return tl.tensor(interpreter.TensorHandle(data, scalar), kind)

    return run


def _missing(name: str) -> Patch:
    def run(*_: Any, **__: Any) -> Any:
        raise RuntimeError(f"libdevice.{name} has no equivalent in the interpreter; it can be judged on a GPU only")

    return run
