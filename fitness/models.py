"""Executing a source, building its model, taking its results: what untrusted children do, inside the fence."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal

from fitness.wire import Layout

if TYPE_CHECKING:
    import torch

WEIGHTS_COPIED = 1
"""READY's code: the reference's weights fitted by name and shape, and were copied."""

MODEL_SEED = 42
"""KernelBench seeds torch with 42 before it builds either model."""

_DTYPES = {"fp32": "float32", "tf32": "float32", "fp16": "float16", "bf16": "bfloat16"}


class ContractBroken(Exception):
    """The candidate returned something that is not the reference's kind of result."""


def use_precision(precision: str) -> None:
    """torch's own matrix products and convolutions in IEEE arithmetic, or in TF32 where the precision allows it."""
    import torch

    torch.set_grad_enabled(False)
    torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
    torch.backends.cudnn.allow_tf32 = precision == "tf32"


def dtype_of(precision: str) -> torch.dtype:
    """The floating type of inputs and weights under a precision policy."""
    import torch

    return getattr(torch, _DTYPES[precision])


def execute(path: str, name: str) -> dict[str, Any]:
    """Runs a source file as a module of its own and returns its names."""
    with open(path, encoding="utf-8") as file:
        code = compile(file.read(), path, "exec")
    module = types.ModuleType(name)
    module.__file__ = path
    sys.modules[name] = module
    exec(code, module.__dict__)
    return module.__dict__


def construct(names: dict[str, Any], class_name: str, init: Sequence[Any]) -> Any:
    """The model, built after KernelBench's seed; NameError when the module does not define it."""
    import torch

    if class_name not in names:
        raise NameError(f"the module must define class {class_name}, found {_defined(names)}")
    torch.manual_seed(MODEL_SEED)
    return names[class_name](*init)


def load(spec: dict[str, Any], weights: Sequence[torch.Tensor]) -> tuple[Callable[..., Any], int]:
    """The spec's model on its device, and WEIGHTS_COPIED when `weights` fitted by name, shape and dtype.

    `prepare` must come first.
    """
    import torch

    if spec["products_dir"] is not None:
        install_extensions("load", spec)
    use_precision(spec["precision"])
    model = construct(execute(spec["source_path"], "candidate"), spec["class_name"], unplain(spec["init"]))
    if isinstance(model, torch.nn.Module):
        model.to(device=spec["device"], dtype=dtype_of(spec["precision"]))
    code = 0
    if weights:
        code = _copy_weights(model, dict(zip([entry["name"] for entry in spec["state"]], weights, strict=True)))
    mode = spec["compile"]
    return (torch.compile(model, mode=None if mode == "default" else mode) if mode else model), code


def prepare(mode: Literal["build", "load"], spec: dict[str, Any]) -> None:
    """Puts our own compilation in place of Triton's, in this process.

    Comes before any of the candidate's code: what fails here is this machine's fault.
    """
    if spec["products_dir"] is not None and spec["backend"] == "triton":
        from fitness.backends import triton

        triton.install(mode, spec)


def install_extensions(mode: Literal["build", "load"], spec: dict[str, Any]) -> None:
    """Puts our own compilation of extensions in place of torch's, in this process."""
    from fitness import inline

    inline.install(mode, spec["products_dir"], "" if spec["backend"] == "cpp" else spec.get("arch", ""))


def as_outputs(result: Any, device: str) -> list[Any]:
    """The result as a list of tensors of exactly torch's own class on the device's kind."""
    import torch

    items = list(result) if isinstance(result, tuple | list) else [result]
    kind = device.partition(":")[0]
    for item in items:
        if type(item) not in (torch.Tensor, torch.nn.Parameter):
            raise ContractBroken(f"forward must return a tensor or a tuple of tensors, found {type(item).__name__}")
        if item.device.type != kind or item.layout is not torch.strided:
            where = "the CPU" if kind == "cpu" else kind
            raise ContractBroken(f"outputs must be dense tensors on {where}, found {item.layout} on {item.device}")
    return items


def input_slots(spec: dict[str, Any], tensors: Callable[[list[Layout], int], list[Any]], size: int) -> list[list[Any]]:
    """The arguments of each call of a batch; `tensors(layouts, base)` are views of the judge's memory."""
    layouts = [Layout.from_json(entry) for entry in spec["inputs"] if "shape" in entry]
    slots = []
    for slot in range(spec["slots"]):
        places = iter(tensors(layouts, slot * size))
        slots.append([next(places) if "shape" in entry else unplain(entry["value"]) for entry in spec["inputs"]])
    return slots


def plain(value: Any) -> Any:
    """JSON for numbers, strings, None and nested lists or tuples of them; TypeError for the rest."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple):
        return {"tuple" if isinstance(value, tuple) else "list": [plain(item) for item in value]}
    raise TypeError(f"an argument must be a tensor, number, string, None, list or tuple, found {type(value).__name__}")


def unplain(document: Any) -> Any:
    """The value that `plain` described."""
    if not isinstance(document, dict):
        return document
    kind, items = next(iter(document.items()))
    values = [unplain(item) for item in items]
    return tuple(values) if kind == "tuple" else values


def _copy_weights(model: Any, weights: dict[str, Any]) -> int:
    """Copies all weights when every name, shape and dtype fits; otherwise none."""
    own = model.state_dict()
    fits = all(
        name in own and own[name].shape == tensor.shape and own[name].dtype == tensor.dtype
        for name, tensor in weights.items()
    )
    if not fits:
        return 0
    for name, tensor in weights.items():
        own[name].copy_(tensor)
    return WEIGHTS_COPIED


def _defined(names: dict[str, Any]) -> str:
    return ", ".join(name for name, value in names.items() if isinstance(value, type)) or "no class"
