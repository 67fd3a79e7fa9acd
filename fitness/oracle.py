"""A problem's own code in a child of its own: fresh inputs, results in the run's precision and in fp64.

Runs inside the fence, since a problem is a program that somebody wrote; it never sees a candidate.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

from fitness.models import MODEL_SEED, as_outputs, dtype_of, execute, plain, use_precision
from fitness.roundoff import rounding_of
from fitness.wire import Layout

SEED_STEP = 0x9E3779B97F4A7C15
"""Odd, so that the draws of one batch get different seeds."""
SHAKES = 8
"""With 4, an LSTM-like recurrence had honest errors of 73 D; with 8 of 5.2, with 16 of 3.3 (80 draws each)."""


class ProblemBench:
    """The problem's models and inputs on one device, in one precision."""

    def __init__(self, problem_path: str, device: str, precision: str) -> None:
        import os

        import torch

        use_precision(precision)
        self._device, self._dtype = device, dtype_of(precision)
        self._rounding = rounding_of(self._dtype, precision)
        names = execute(problem_path, "problem")
        self._get_inputs, self._model_class = names["get_inputs"], names["Model"]
        self._init = names["get_init_inputs"]()
        torch.manual_seed(0)
        self._specimen_layouts = [_describe_input(value) for value in self._fresh()]
        seeded = self._build()
        self._state = {name: tensor.detach().clone() for name, tensor in seeded.state_dict().items()}
        self._varied = vary(self._state, int.from_bytes(os.urandom(7), "little"))
        self._models = {False: seeded, True: self._build(self._varied) if self._state else seeded}
        self._exact: dict[bool, Any] = {}
        torch.manual_seed(0)
        self._outputs = [Layout.of(tensor.contiguous()) for tensor in self._forward(self._models[False], self._fresh())]
        self.let_go()

    def describe(self) -> dict[str, Any]:
        """Layouts and plain values: all that the judge must know to lay out memory."""
        return {
            "init": plain(self._init),
            "inputs": self._specimen_layouts,
            "outputs": [layout.to_json() for layout in self._outputs],
            "state": [{"name": name, **Layout.of(tensor).to_json()} for name, tensor in self._state.items()],
            "constant": [name for name, tensor in self._state.items() if _is_constant(tensor)],
        }

    def weights(self) -> list[Any]:
        """The varied weights, in the order of `describe`."""
        return list(self._varied.values())

    def inputs(self, family: str, seed: int) -> list[Any]:
        """Fresh arguments of one draw: the same for the same seed on the same kind of device."""
        import torch

        from problems import inputs as families

        torch.manual_seed(seed & (1 << 63) - 1)
        return families.draw(self._fresh(), family, seed)

    def narrow(self, values: Sequence[Any], is_copied: bool) -> list[Any]:
        """The reference's own result in the run's precision."""
        return self._forward(self._models[is_copied], [_clone(value) for value in values])

    def wide(self, values: Sequence[Any], is_copied: bool) -> list[Any]:
        """The same computed in fp64 from the same inputs and weights."""
        with double_by_default():
            return self._forward(self._exact_model(is_copied), [widen(value) for value in values])

    def sensitivity(self, values: Sequence[Any], is_copied: bool) -> list[Any]:
        """The rms change of the fp64 results when each element of inputs and weights is off by one rounding."""
        import torch

        model, generator = self._exact_model(is_copied), torch.Generator(self._device).manual_seed(SEED_STEP >> 1)
        state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
        exact = self.wide(values, is_copied)
        squares = [torch.zeros_like(result) for result in exact]
        for _ in range(SHAKES):
            model.load_state_dict({name: self._shaken(tensor, generator) for name, tensor in state.items()})
            with double_by_default():
                results = self._forward(model, [self._shaken(widen(value), generator) for value in values])
            for total, result, right in zip(squares, results, exact, strict=True):
                total += (result - right).square_() if result.is_floating_point() else 0
        model.load_state_dict(state)
        return [total.div_(SHAKES).sqrt_() if total.is_floating_point() else total for total in squares]

    def _shaken(self, value: Any, generator: Any) -> Any:
        import torch

        if not isinstance(value, torch.Tensor) or not value.is_floating_point():
            return value
        signs = torch.randint(0, 2, value.shape, generator=generator, device=value.device, dtype=torch.int8)
        return value * (1 + self._rounding * (2 * signs - 1).double())

    def let_go(self) -> None:
        """Gives cached device memory back: on a card it is shared with the runners."""
        import torch

        if self._device != "cpu":
            torch.cuda.empty_cache()

    def _exact_model(self, is_copied: bool) -> Any:
        """Made when it is first needed: a judge that only draws inputs need not pay for it."""
        import torch

        if is_copied not in self._exact:
            with double_by_default():
                torch.manual_seed(MODEL_SEED)
                model = self._model_class(*self._init).double()
            model.load_state_dict({n: widen(t) for n, t in (self._varied if is_copied else self._state).items()})
            self._exact[is_copied] = model.to(self._device)
        return self._exact[is_copied]

    def _fresh(self) -> list[Any]:
        """get_inputs() on the device itself where its code allows that: 1.6e9 numbers take 9.5 s on a CPU core, 3 ms
        on an H200."""
        import torch

        if self._device == "cpu":
            values = self._get_inputs()
        else:
            with torch.device(self._device):
                values = self._get_inputs()
        return [self._place(value) for value in values]

    def _place(self, value: Any) -> Any:
        import torch

        if not isinstance(value, torch.Tensor):
            return value
        return value.to(device=self._device, dtype=self._dtype if value.is_floating_point() else None)

    def _build(self, state: dict[str, Any] | None = None) -> Any:
        import torch

        torch.manual_seed(MODEL_SEED)
        model = self._model_class(*self._init).to(device=self._device, dtype=self._dtype)
        if state is not None:
            model.load_state_dict(state)
        return model

    def _forward(self, model: Any, inputs: Sequence[Any]) -> list[Any]:
        import torch

        with torch.no_grad():
            return [tensor.detach() for tensor in as_outputs(model(*inputs), self._device)]


def seeds(seed: int, count: int) -> list[int]:
    """The seeds of a batch's draws, from the one that the judge gave."""
    return [(seed + index * SEED_STEP) % (1 << 128) for index in range(count)]


def vary(state: dict[str, Any], seed: int) -> dict[str, Any]:
    """The weights with constant ones made to differ, so that a dropped bias or scale shows.

    Only floating tensors whose elements are all equal change: zeros get small noise, other
    constants are scaled by 0.8 to 1.2 (a variance stays positive).
    """
    import torch

    generator = torch.Generator().manual_seed(seed)
    varied = {}
    for name, tensor in state.items():
        varied[name] = tensor.clone()
        if not _is_constant(tensor):
            continue
        noise = torch.rand(tensor.shape, generator=generator, dtype=torch.float64)
        value = float(tensor.flatten()[0])
        fresh = (noise - 0.5) * 0.4 if value == 0 else value * (0.8 + 0.4 * noise)
        varied[name] = fresh.to(device=tensor.device, dtype=tensor.dtype)
    return varied


def _is_constant(tensor: Any) -> bool:
    return tensor.is_floating_point() and tensor.numel() > 0 and bool((tensor == tensor.flatten()[0]).all())


def widen(value: Any) -> Any:
    """A floating tensor in fp64; a copy of any other."""
    import torch

    return value.double() if isinstance(value, torch.Tensor) and value.is_floating_point() else _clone(value)


@contextlib.contextmanager
def double_by_default() -> Iterator[None]:
    """torch.zeros and the like make float64 inside: for the oracle's forward pass."""
    import torch

    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def _clone(value: Any) -> Any:
    import torch

    return value.clone() if isinstance(value, torch.Tensor) else value


def _describe_input(value: Any) -> dict[str, Any]:
    import torch

    return Layout.of(value).to_json() if isinstance(value, torch.Tensor) else {"value": plain(value)}
