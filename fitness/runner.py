"""The untrusted side: what a forked, fenced child does. The only place that executes candidate code.

Nothing that is said here is evidence. A runner claims where its results lie; the judge freezes the
process and reads the bytes itself (fitness/judge.py).
"""

from __future__ import annotations

import contextlib
import glob
import json
import os
import shutil
import subprocess
import sys
import traceback
import types
from collections.abc import Callable, Sequence
from typing import Any, Literal

from fitness import wire
from fitness.wire import Layout, Output, Segment

LOAD_ERROR, RUNTIME_ERROR, OUT_OF_MEMORY, CONTRACT = 1, 2, 3, 4
WEIGHTS_COPIED = 1
"""READY's code: the reference's weights fitted by name and shape, and were copied."""

MODEL_SEED = 42
"""KernelBench seeds torch with 42 before it builds either model."""


class ContractBroken(Exception):
    """The candidate returned something that is not the reference's kind of result."""


def run(spec: dict[str, Any], descriptors: Sequence[int]) -> None:
    """Serves one model: builds it, then answers every RUN with where its outputs lie."""
    go, done, input_fd, state_fd = descriptors
    try:
        inputs = _input_slots(spec, Segment(descriptor=input_fd, writable=spec["writable_inputs"]))
        forward, code = _load_model(spec, state_fd)
    except BaseException as error:
        _fail(done, LOAD_ERROR, error)
        return
    os.write(done, wire.pack_reply(wire.READY, code))
    kept: list[Any] = []
    while message := _next(go):
        operation, count, _ = message
        if operation == wire.RELEASE:
            kept.clear()
            os.write(done, wire.pack_reply(wire.RELEASED))
            continue
        try:
            for slot in range(count):
                kept.append([tensor.contiguous() for tensor in _as_outputs(forward(*inputs[slot]))])
            outputs = [_describe_output(tensor) for call in kept for tensor in call]
        except BaseException as error:
            _fail(done, _error_code(error), error)
            return
        os.write(done, wire.pack_reply(wire.DONE, 0, outputs))


def build(spec: dict[str, Any], descriptors: Sequence[int]) -> None:
    """Executes a candidate's module and constructor once, so that everything it compiles is compiled."""
    del descriptors
    _install_backend("build", spec)
    init = _execute(spec["problem_path"], "problem")["get_init_inputs"]()
    _construct(_execute(spec["source_path"], "candidate"), "ModelNew", init)
    with open(os.path.join(spec["products_dir"], "features.json"), "w") as file:
        json.dump(_binary_features(spec["products_dir"]), file)


def oracle(spec: dict[str, Any], descriptors: Sequence[int]) -> None:
    """Serves one problem: its layouts, its weights, fresh inputs with their fp32 and fp64 results."""
    go, done, transfer_fd, facts_fd = descriptors
    try:
        bench = _Oracle(spec)
    except BaseException as error:
        _fail(done, LOAD_ERROR, error)
        return
    os.write(done, wire.pack_reply(wire.READY))
    while message := _next(go):
        operation, argument, seed = message
        try:
            if operation == wire.DESCRIBE:
                os.pwrite(facts_fd, json.dumps(bench.describe()).encode(), 0)
            elif operation == wire.STATE:
                bench.write_state(Segment(descriptor=transfer_fd))
            else:
                bench.draw(Segment(descriptor=transfer_fd), argument, int.from_bytes(seed, "little"))
        except BaseException as error:
            _fail(done, RUNTIME_ERROR, error)
            return
        os.write(done, wire.pack_reply(wire.DONE))


def attack(spec: dict[str, Any], descriptors: Sequence[int]) -> None:
    """Tries to break out, for the probe that measures the sandbox's level; prints what succeeded."""
    from fitness.probe import attack as try_everything

    del descriptors
    print(json.dumps(try_everything(spec)))


def _binary_features(products_dir: str) -> dict[str, int]:
    """Bytes of compiled code, and the widest vector registers that it uses [bits], by objdump where there is one."""
    libraries = glob.glob(os.path.join(products_dir, "*", "*.so"))
    found = {"binary_bytes": sum(os.path.getsize(path) for path in libraries)}
    if not libraries or shutil.which("objdump") is None:
        return found
    listing = subprocess.run(["objdump", "-d", "--no-show-raw-insn", *libraries], capture_output=True, text=True).stdout
    widths = {"%zmm": 512, "%ymm": 256, "%xmm": 128}
    return {**found, "vector_bits": max((bits for name, bits in widths.items() if name in listing), default=0)}


ENTRIES: dict[str, Callable[[dict[str, Any], Sequence[int]], None]] = {
    "run": run,
    "build": build,
    "oracle": oracle,
    "attack": attack,
}


class _Oracle:
    """The problem's own code: inputs by family and seed, results in fp32 and in fp64."""

    def __init__(self, spec: dict[str, Any]) -> None:
        import torch

        names = _execute(spec["problem_path"], "problem")
        self._get_inputs = names["get_inputs"]
        self._init = names["get_init_inputs"]()
        self._model_class = names["Model"]
        torch.manual_seed(0)
        self._specimen = list(self._get_inputs())
        seeded = self._build()
        self._state = {name: tensor.detach().clone() for name, tensor in seeded.state_dict().items()}
        self._varied = _vary(self._state)
        self._models = {False: seeded, True: self._build(self._varied)}
        self._exact: dict[bool, Any] = {}
        for is_copied, state in ((False, self._state), (True, self._varied)):
            with _double_by_default():
                model = self._build().double()
            model.load_state_dict({name: _widen(tensor) for name, tensor in state.items()})
            self._exact[is_copied] = model
        self._outputs = self._forward(self._models[False], self._specimen)

    def _build(self, state: dict[str, Any] | None = None) -> Any:
        import torch

        torch.manual_seed(MODEL_SEED)
        model = self._model_class(*self._init)
        if state is not None:
            model.load_state_dict(state)
        return model

    def _forward(self, model: Any, inputs: Sequence[Any]) -> list[Any]:
        import torch

        with torch.no_grad():
            return [tensor.detach() for tensor in _as_outputs(model(*inputs))]

    def describe(self) -> dict[str, Any]:
        """Layouts and plain values: all that the judge must know to lay out memory."""
        return {
            "init": _plain(self._init),
            "inputs": [_describe_input(value) for value in self._specimen],
            "outputs": [_contiguous_layout(tensor).to_json() for tensor in self._outputs],
            "state": [{"name": name, **Layout.of(tensor).to_json()} for name, tensor in self._state.items()],
        }

    def write_state(self, segment: Segment) -> None:
        """The varied weights, in the order of `describe`."""
        layouts = [Layout.of(tensor) for tensor in self._state.values()]
        for place, tensor in zip(segment.tensors(layouts), self._varied.values(), strict=True):
            place.copy_(tensor)

    def draw(self, segment: Segment, argument: int, seed: int) -> None:
        """Inputs, fp32 outputs and fp64 outputs of one draw, one after the other."""
        import torch

        from problems import inputs as families

        is_copied, family = bool(argument & wire.COPIED), families.FAMILIES[argument & 0xFF]
        torch.manual_seed(seed & (1 << 63) - 1)
        values = families.draw(list(self._get_inputs()), family, seed)
        tensors = [value for value in values if isinstance(value, torch.Tensor)]
        layouts = [Layout.of(tensor) for tensor in self._specimen if isinstance(tensor, torch.Tensor)]
        places = segment.tensors(layouts)
        for place, tensor in zip(places, tensors, strict=True):
            place.copy_(tensor)
        base = wire.offsets(layouts)[1]
        narrow = self._forward(self._models[is_copied], [_clone(value) for value in values])
        layouts = [_contiguous_layout(tensor) for tensor in self._outputs]
        for place, tensor in zip(segment.tensors(layouts, base), narrow, strict=True):
            place.copy_(tensor)
        base += wire.offsets(layouts)[1]
        with _double_by_default():
            wide = self._forward(self._exact[is_copied], [_widen(value) for value in values])
        layouts = [_contiguous_layout(_widen(tensor)) for tensor in self._outputs]
        for place, tensor in zip(segment.tensors(layouts, base), wide, strict=True):
            place.copy_(tensor)


def _vary(state: dict[str, Any]) -> dict[str, Any]:
    """The weights with constant ones made to differ, so that a dropped bias or scale shows.

    Only floating tensors whose elements are all equal change: zeros get small normal noise, other
    constants are scaled by 0.8 to 1.2 (a variance stays positive).
    """
    import torch

    generator = torch.Generator().manual_seed(int.from_bytes(os.urandom(7), "little"))
    varied = {}
    for name, tensor in state.items():
        varied[name] = tensor.clone()
        if not tensor.is_floating_point() or tensor.numel() == 0 or not bool((tensor == tensor.flatten()[0]).all()):
            continue
        noise = torch.rand(tensor.shape, generator=generator, dtype=torch.float64)
        value = float(tensor.flatten()[0])
        fresh = (noise - 0.5) * 0.4 if value == 0 else value * (0.8 + 0.4 * noise)
        varied[name] = fresh.to(tensor.dtype)
    return varied


@contextlib.contextmanager
def _double_by_default() -> Any:
    """torch.zeros and the like make float64 inside: for the oracle's forward pass."""
    import torch

    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)


def _widen(value: Any) -> Any:
    import torch

    return value.double() if isinstance(value, torch.Tensor) and value.is_floating_point() else _clone(value)


def _clone(value: Any) -> Any:
    import torch

    return value.clone() if isinstance(value, torch.Tensor) else value


def _contiguous_layout(tensor: Any) -> Layout:
    return Layout.of(tensor.contiguous())


def _describe_input(value: Any) -> dict[str, Any]:
    import torch

    return Layout.of(value).to_json() if isinstance(value, torch.Tensor) else {"value": _plain(value)}


def _plain(value: Any) -> Any:
    """JSON for numbers, strings, None and nested lists or tuples of them; TypeError for the rest."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple):
        return {"tuple" if isinstance(value, tuple) else "list": [_plain(item) for item in value]}
    raise TypeError(f"an argument must be a tensor, number, string, None, list or tuple, found {type(value).__name__}")


def unplain(document: Any) -> Any:
    """The value that `_plain` described."""
    if not isinstance(document, dict):
        return document
    kind, items = next(iter(document.items()))
    values = [unplain(item) for item in items]
    return tuple(values) if kind == "tuple" else values


def _input_slots(spec: dict[str, Any], segment: Segment) -> list[list[Any]]:
    """The arguments of each call of a batch; tensors are views of the judge's memory."""
    layouts = [Layout.from_json(entry) for entry in spec["inputs"] if "shape" in entry]
    size = wire.offsets(layouts)[1]
    slots = []
    for slot in range(spec["slots"]):
        tensors = iter(segment.tensors(layouts, slot * size))
        slots.append([next(tensors) if "shape" in entry else unplain(entry["value"]) for entry in spec["inputs"]])
    return slots


def _load_model(spec: dict[str, Any], state_fd: int) -> tuple[Callable[..., Any], int]:
    import torch

    if spec["products_dir"] is not None:
        _install_backend("load", spec)
    torch.set_grad_enabled(False)
    model = _construct(_execute(spec["source_path"], "candidate"), spec["class_name"], unplain(spec["init"]))
    code = 0
    if spec["state"]:
        layouts = [Layout.from_json(entry) for entry in spec["state"]]
        tensors = Segment(descriptor=state_fd, writable=False).tensors(layouts)
        code = _copy_weights(model, dict(zip([entry["name"] for entry in spec["state"]], tensors, strict=True)))
    return (torch.compile(model) if spec["compile"] else model), code


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


def _construct(names: dict[str, Any], class_name: str, init: Sequence[Any]) -> Any:
    import torch

    if class_name not in names:
        raise NameError(f"the module must define class {class_name}, found {_defined(names)}")
    torch.manual_seed(MODEL_SEED)
    return names[class_name](*init)


def _defined(names: dict[str, Any]) -> str:
    return ", ".join(name for name, value in names.items() if isinstance(value, type)) or "no class"


def _execute(path: str, name: str) -> dict[str, Any]:
    """Runs a source file as a module of its own and returns its names."""
    with open(path, encoding="utf-8") as file:
        code = compile(file.read(), path, "exec")
    module = types.ModuleType(name)
    module.__file__ = path
    sys.modules[name] = module
    exec(code, module.__dict__)
    return module.__dict__


def _install_backend(mode: Literal["build", "load"], spec: dict[str, Any]) -> None:
    """Puts our own compilation in place of torch's and Triton's, in this process."""
    from fitness import inline

    inline.install(mode, spec["products_dir"])
    if spec["backend"] == "triton":
        from fitness.backends import triton

        triton.install(mode, spec)


def _as_outputs(result: Any) -> list[Any]:
    """The result as a list of tensors of exactly torch's own class."""
    import torch

    items = list(result) if isinstance(result, tuple | list) else [result]
    for item in items:
        if type(item) not in (torch.Tensor, torch.nn.Parameter):
            raise ContractBroken(f"forward must return a tensor or a tuple of tensors, found {type(item).__name__}")
        if item.device.type != "cpu" or item.layout is not torch.strided:
            raise ContractBroken(f"outputs must be dense tensors on the CPU, found {item.layout} on {item.device}")
    return items


def _describe_output(tensor: Any) -> Output:
    dtype = str(tensor.dtype).removeprefix("torch.")
    if dtype not in wire.DTYPES or tensor.dim() > wire.MAX_DIMS:
        raise ContractBroken(f"an output of dtype {dtype} with {tensor.dim()} dimensions cannot be checked")
    return Output(tensor.data_ptr(), tensor.numel() * tensor.element_size(), dtype, tuple(tensor.shape))


def _error_code(error: BaseException) -> int:
    if isinstance(error, ContractBroken):
        return CONTRACT
    if isinstance(error, MemoryError) or "can't allocate memory" in str(error) or "bad_alloc" in str(error):
        return OUT_OF_MEMORY
    return RUNTIME_ERROR


def _fail(done: int, code: int, error: BaseException) -> None:
    with contextlib.suppress(OSError):  # the captured output may be full
        traceback.print_exception(error)
        sys.stderr.flush()
    summary = "".join(traceback.format_exception_only(error)).strip()
    os.write(done, wire.pack_reply(wire.FAILED, code, text=summary))


def _next(go: int) -> tuple[int, int, bytes] | None:
    message = b""
    while len(message) < wire.GO.size:
        part = os.read(go, wire.GO.size - len(message))
        if not part:
            return None
        message += part
    operation, argument, seed = wire.GO.unpack(message)
    return operation, argument, seed
