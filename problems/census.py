"""Counting what a forward call does, operator by operator. Runs in the child process only.

Three numbers come from one pass over the ATen operators that a call dispatches, on real or fake tensors:

- matmul_flop: matrix products, convolutions and attention by torch's own flop formulas (the table behind
  torch.utils.flop_counter.FlopCounterMode, 2 FLOP per multiply-add) and, for what that table lacks (mv,
  dot, addmv, the CPU's fused attention and oneDNN's recurrent layers), by the same rule. Causal masks are
  not discounted.
- pointwise_ops: an operator that torch tags as pointwise counts 1 per output element whatever it computes
  (exp or add); one tagged as a reduction 1 per input element; fused operators (softmax, norms, losses,
  pooling) the steps of their textbook formula, PER_ELEMENT below. Copies, views, gathers, fills, random
  numbers, comparisons of sort and custom operators count 0.
- bytes read: the distinct views of each input and weight that some operator consumes, added up and at most
  the tensor's size; a gather (embedding, index) reads as many elements as it returns. A tensor that is
  never consumed costs nothing.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

PER_ELEMENT = {
    "_softmax": 5,  # maximum, subtract, exp, sum, divide
    "_safe_softmax": 5,
    "_log_softmax": 5,
    "logsumexp": 4,
    "logcumsumexp": 4,
    "native_layer_norm": 8,  # mean 1, variance 3, normalise 2, scale and shift 2
    "native_group_norm": 8,
    "native_batch_norm": 8,
    "_native_batch_norm_legit": 8,
    "_native_batch_norm_legit_no_training": 4,
    "_fused_rms_norm": 4,  # square, sum, multiply, scale
    "var": 4,
    "var_mean": 4,
    "std": 4,
    "std_mean": 4,
    "linalg_vector_norm": 2,
    "norm": 2,
    "cumsum": 1,
    "cumprod": 1,
    "cummax": 1,
    "cummin": 1,
    "mse_loss": 3,  # subtract, square, sum
    "smooth_l1_loss": 5,
    "huber_loss": 5,
    "binary_cross_entropy": 6,
    "native_dropout": 2,
    "_adaptive_avg_pool2d": 1,
    "_adaptive_avg_pool3d": 1,
    "adaptive_max_pool2d": 1,
    "adaptive_max_pool3d": 1,
}
"""Operations per element of the largest tensor argument."""

WINDOWS = {"avg_pool2d", "avg_pool3d", "max_pool2d_with_indices", "max_pool3d_with_indices"}
"""Operators that do one operation per output element and position of the window (their argument 1)."""

SELECTIONS = {"amax", "amin", "aminmax", "max", "min", "argmax", "argmin", "any", "all", "median", "mode"}
"""Reductions that pick an element: they do not round, so they have no reduction length."""

GATHERS = {"embedding", "index_select", "index", "gather", "take", "_embedding_bag"}
TRANSPARENT = {"_unsafe_view", "_reshape_alias", "detach", "alias", "lift_fresh", "empty_like"}
COPIES = {"clone", "contiguous", "fill", "zero", "copy", "_to_copy"}


class Census(TorchDispatchMode):
    """Counts every operator dispatched inside `with`; see the module for what each number means.

    `externals` are the tensors whose reads are counted: inputs, parameters and buffers.
    """

    def __init__(self, externals: Iterable[torch.Tensor]) -> None:
        super().__init__()
        self.matmul_flop = 0
        self.pointwise_ops = 0
        self.reduction_length = 1
        self.operators: Counter[str] = Counter()
        self._capacity = {_storage(tensor): _capacity(tensor) for tensor in externals}
        self._reads: dict[int, dict[tuple, int]] = {key: {} for key in self._capacity}

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """False: torch 2.13 otherwise imports torch._dynamo (2 s) to hide this mode from torch.compile."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        output = func(*args, **kwargs)
        name = func._schema.name.split("::")[-1]
        self._note(func, name if name.endswith("__") else name.removesuffix("_"), args, kwargs, output)
        return output

    @property
    def bytes_read(self) -> int:
        """Compulsory reads of all externals [B]."""
        return sum(min(self._capacity[key], sum(views.values())) for key, views in self._reads.items())

    def _note(self, func: Any, name: str, args: tuple, kwargs: dict, output: Any) -> None:
        tensors = [value for value in _flatten((args, kwargs)) if isinstance(value, torch.Tensor)]
        if func.is_view or name in TRANSPARENT or name.startswith("new_") or name.endswith("_like"):
            return
        self._note_reads(name, tensors, output)
        flop = _matmul_flop(func, name, args, kwargs, output)
        ops = 0 if flop else _pointwise_ops(func, name, args, tensors, output)
        if name in RECURRENT:  # fused products and gates: both numbers
            ops = RECURRENT_OPS * _numel(output)
        if name in ATTENTION:
            ops = PER_ELEMENT["_softmax"] * math.prod(args[0].shape[:-1]) * args[1].shape[-2]
        if flop or ops:
            self.operators[name] += 1
        self.matmul_flop += flop
        self.pointwise_ops += ops
        self.reduction_length = max(self.reduction_length, reduction_length(func, name, args, output))

    def _note_reads(self, name: str, tensors: list[torch.Tensor], output: Any) -> None:
        for position, tensor in enumerate(tensors):
            views = self._reads.get(_storage(tensor))
            if views is None:
                continue
            sizes = zip(tensor.shape, tensor.stride(), strict=True)
            elements = math.prod(size for size, stride in sizes if stride)
            if name in GATHERS and position == 0:
                elements = min(elements, _numel(output))
            seen = (tensor.storage_offset(), tuple(tensor.shape), tensor.stride())
            views[seen] = max(views.get(seen, 0), elements * tensor.element_size())


def reduction_length(func: Any, name: str, args: tuple, output: Any) -> int:
    """How many terms an operator sums, multiplies or averages into one output element; 1 if none.

    An upper estimate for transposed convolutions (stride is not considered).
    """
    if name in LENGTHS:
        return max(1, int(LENGTHS[name](args)))
    is_reduction = torch.Tag.reduction in func.tags or name in {"mse_loss", "smooth_l1_loss", "huber_loss"}
    if name in SELECTIONS or not is_reduction or not args:
        return 1
    return max(1, _numel(args[0]) // max(1, _numel(output)))


def _dim_length(args: tuple) -> int:
    return args[0].shape[args[1]] if args[0].dim() else 1


def _convolution_length(args: tuple) -> int:
    weight, transposed, groups = args[1], args[6], args[8]
    terms = weight.shape[0] // groups if transposed else weight.shape[1]
    return terms * math.prod(weight.shape[2:])


def _window(args: tuple) -> int:
    dimensions = args[0].dim() - 2
    kernel = list(args[1])
    return math.prod(kernel if len(kernel) == dimensions else kernel * dimensions)


LENGTHS: dict[str, Callable[[tuple], int]] = {
    "mm": lambda args: args[0].shape[-1],
    "bmm": lambda args: args[0].shape[-1],
    "mv": lambda args: args[0].shape[-1],
    "dot": lambda args: args[0].shape[-1],
    "addmm": lambda args: args[1].shape[-1],
    "addmv": lambda args: args[1].shape[-1],
    "baddbmm": lambda args: args[1].shape[-1],
    "convolution": _convolution_length,
    "mkldnn_rnn_layer": lambda args: max(args[1].shape[-1], args[2].shape[-1]),
    "_scaled_dot_product_flash_attention_for_cpu": lambda args: max(args[0].shape[-1], args[1].shape[-2]),
    "_softmax": _dim_length,
    "_safe_softmax": _dim_length,
    "_log_softmax": _dim_length,
    "cumsum": _dim_length,
    "cumprod": _dim_length,
    "logcumsumexp": _dim_length,
    "native_layer_norm": lambda args: math.prod(args[1]),
    "_fused_rms_norm": lambda args: math.prod(args[1]),
    "native_group_norm": lambda args: args[4] * args[5] // args[6],
    "native_batch_norm": lambda args: args[0].numel() // max(1, args[0].shape[1]),
    "_native_batch_norm_legit": lambda args: args[0].numel() // max(1, args[0].shape[1]),
    "avg_pool2d": _window,
    "avg_pool3d": _window,
    "_adaptive_avg_pool2d": lambda args: math.prod(args[0].shape[-2:]) // math.prod(args[1]),
    "_adaptive_avg_pool3d": lambda args: math.prod(args[0].shape[-3:]) // math.prod(args[1]),
}
RECURRENT = {"mkldnn_rnn_layer"}
RECURRENT_OPS = 13
"""An LSTM step's arithmetic per hidden element: 4 adds into the gates, 5 activations, 3 multiplies, 1 add."""
ATTENTION = {"_scaled_dot_product_flash_attention_for_cpu"}


def _matmul_flop(func: Any, name: str, args: tuple, kwargs: dict, output: Any) -> int:
    formula = flop_registry.get(func._overloadpacket)
    if formula is not None:
        return int(formula(*args, **kwargs, out_val=output))
    if name in ("mv", "dot"):
        return 2 * args[0].numel()
    if name == "addmv":
        return 2 * args[1].numel()
    if name in RECURRENT:
        steps = math.prod(args[0].shape[:-1])
        return 2 * steps * (args[1].numel() + args[2].numel())
    if name in ATTENTION:
        query, key, value = args[:3]
        return 2 * math.prod(query.shape[:-1]) * key.shape[-2] * (query.shape[-1] + value.shape[-1])
    return 0


def _pointwise_ops(func: Any, name: str, args: tuple, tensors: list[torch.Tensor], output: Any) -> int:
    if name in COPIES or not tensors:
        return 0
    largest = max(tensor.numel() for tensor in tensors)
    if name in PER_ELEMENT:
        return PER_ELEMENT[name] * largest
    if name in WINDOWS:
        return _numel(output) * _window(args)
    if torch.Tag.reduction in func.tags:
        return largest
    if torch.Tag.pointwise in func.tags:
        return _numel(output)
    return 0


def _flatten(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        value = tuple(value.values())
    if isinstance(value, (list, tuple)):
        for entry in value:
            yield from _flatten(entry)
    else:
        yield value


def _numel(output: Any) -> int:
    """Elements of the first tensor in an operator's output; 0 if there is none."""
    return next((entry.numel() for entry in _flatten(output) if isinstance(entry, torch.Tensor)), 0)


def _capacity(tensor: torch.Tensor) -> int:
    try:
        return tensor.untyped_storage().nbytes()
    except (NotImplementedError, RuntimeError):
        return tensor.numel() * tensor.element_size()


def _storage(tensor: torch.Tensor) -> int:
    try:
        return tensor.untyped_storage()._cdata
    except (NotImplementedError, RuntimeError):  # sparse and opaque tensors have no storage
        return -id(tensor)
