"""What can be seen in a candidate's source without running it: labels, shown and stored, never a verdict.

A label says what a reader would want to know about a kernel (it calls torch's own operators, it caches by
address), not that it is wrong: all of these have honest uses, and all can be hidden from a parser. The judge
decides by measuring. The source is parsed with `ast` and never executed; names are followed through imports,
so `import torch.nn.functional as F` hides nothing.

PyPI's kernelguard 0.3.2 (MIT; 180 regular expressions and syntax-tree rules for one competition's form of
submission) was read and tried instead: no label on the bundled seeds, 12 ms for each, but its time grows with
the square of the text and beyond (144 KB made of `if (x.shape[0] == `: 20 s) and 8 KB of text can end it with
MemoryError. This module's time is linear, since it runs in the process that holds the search.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from kb_evolve.native_labels import looks_native, native_labels
from problems.syntax import parse

LABELS = {
    "torch-ops": "calls torch's own operators",
    "vendor-library": "calls a vendor's library (cuBLAS, cuDNN, MKL, ...)",
    "torch-compile": "compiles with torch",
    "wraps-reference": "inherits from or calls the reference",
    "fallback": "goes on after an exception while computing",
    "fixed-shapes": "compares a shape with fixed numbers",
    "streams": "uses streams of its own",
    "events": "uses device events",
    "graphs": "uses device graphs",
    "threads": "starts threads or processes",
    "memo": "remembers addresses or identities of tensors",
    "low-precision": "computes in a lower precision",
    "patches": "changes attributes of torch or of other modules",
    "introspects": "looks at the interpreter, its frames or its modules",
    "above-roofline": "is faster than 90% of what the device's data sheet allows",
    "unparsed": "is not Python",
}
"""Every label, with what it says about a kernel."""

TEXT_LIMIT = 400_000
"""Characters of a source that are looked at; a longer one is `unparsed`."""

COMPUTE_NAMES = """
    matmul mm bmm mv dot addmm addcmul addcdiv addmv addbmm baddbmm einsum tensordot inner outer linear bilinear
    conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d
    softmax log_softmax relu gelu silu mish elu selu sigmoid tanh softplus leaky_relu
    exp log log2 log10 log1p sqrt rsqrt pow sin cos erf add sub mul div where clamp masked_fill
    sum mean prod var std norm amax amin logsumexp cumsum cumprod argmax argmin topk sort
    layer_norm group_norm batch_norm instance_norm rms_norm
"""
COMPUTES = frozenset(COMPUTE_NAMES.split())
"""Functions of torch and methods of tensors that compute what a kernel is asked for."""

LOWER_DTYPES = frozenset({"torch.half", "torch.float16", "torch.bfloat16", "torch.float8_e4m3fn", "torch.float8_e5m2"})
PASSIVE_MODULES = frozenset(
    {"Module", "Parameter", "ParameterList", "ParameterDict", "ModuleList", "ModuleDict", "Buffer"}
)
"""Classes of torch.nn that hold and do not compute."""

CALLED = {
    "torch.compile": "torch-compile",
    "torch.jit.": "torch-compile",
    "torch.cuda.Stream": "streams",
    "torch.cuda.stream": "streams",
    "torch.cuda.Event": "events",
    "torch.cuda.CUDAGraph": "graphs",
    "torch.cuda.graph": "graphs",
    "torch.cuda.make_graphed_callables": "graphs",
    "threading.": "threads",
    "multiprocessing.": "threads",
    "concurrent.futures.": "threads",
    "subprocess.": "threads",
    "asyncio.": "threads",
    "torch.autocast": "low-precision",
    "torch.amp.": "low-precision",
    "torch.cuda.amp.": "low-precision",
    "torch.set_float32_matmul_precision": "low-precision",
    "torch.nn.functional.": "torch-ops",
    "torch.ops.aten.": "torch-ops",
    "torch.linalg.": "torch-ops",
    "torch.fft.": "torch-ops",
    "gc.": "introspects",
    "inspect.": "introspects",
    "sys._getframe": "introspects",
    "ctypes.memmove": "introspects",
    "ctypes.memset": "introspects",
}
"""A called name, or with a dot at its end every name below it, and the label that it earns."""

OWN_MODULES = ("torch.", "time.", "builtins.", "sys.", "os.", "triton.")
"""What a candidate has no reason to change."""

VENDOR_FILES = ("libcublas", "libcudnn", "libcusparse", "libcusolver", "libmkl")


def labels_of(source: str, precision: str = "fp32") -> tuple[str, ...]:
    """The labels of a candidate's source, in LABELS' order. `low-precision` means lower than `precision`."""
    if len(source) > TEXT_LIMIT:
        return ("unparsed",)
    try:
        seen = _Reader(parse(source)).seen
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ("unparsed",)
    if "tf32" in seen and precision == "fp32":
        seen.add("low-precision")
    if precision in ("fp16", "bf16"):
        seen.discard("low-precision")
    return tuple(label for label in LABELS if label in seen)


class _Reader(ast.NodeVisitor):
    """Reads one module; `seen` gathers labels, and `tf32` where only a run in tf32 may do it."""

    def __init__(self, tree: ast.Module) -> None:
        self.seen: set[str] = set()
        self._imports = _imports(tree)
        self._layers = set(self._computing_layers(tree))
        """Attributes of self that hold computing layers of torch.nn."""
        self._tensors: frozenset[str] = frozenset()
        """Parameters of the functions around a node: only their methods are taken for tensors'."""
        self._keys: set[str] = set()
        """Local names that hold addresses."""
        self._depth = 0
        """Functions around a node."""
        self._constructs = False
        """Whether a node stands in __init__, where torch's operators make weights."""
        self.visit(tree)

    def _dotted(self, node: ast.AST) -> str:
        """`torch.nn.functional.relu` for `F.relu`; empty for what is not a name with attributes."""
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name):
            return ""
        return ".".join([self._imports.get(node.id, node.id), *reversed(parts)])

    def _computing_layers(self, tree: ast.Module) -> Iterator[str]:
        """Names X of every `self.X = nn.SomeLayer(...)`."""
        for node in ast.walk(tree):
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
                home, _, name = self._dotted(node.value.func).rpartition(".")
                if home in ("torch.nn", "torch.nn.modules") and name not in PASSIVE_MODULES:
                    yield from (target.attr for target in node.targets if isinstance(target, ast.Attribute))

    def _is_tensor(self, node: ast.AST) -> bool:
        """Whether a value comes from a parameter, perhaps through methods, attributes and indices."""
        while not isinstance(node, ast.Name):
            if isinstance(node, ast.Call):
                node = node.func
            elif isinstance(node, ast.Attribute | ast.Subscript):
                node = node.value
            else:
                return False
        return node.id in self._tensors

    def _has_address(self, node: ast.AST) -> bool:
        """Whether a value holds `x.data_ptr()`, `id(x)` or `x._version`, and not what is left of one by % or &."""
        if isinstance(node, ast.Attribute):
            return node.attr == "_version"
        if isinstance(node, ast.Name):
            return node.id in self._keys
        if isinstance(node, ast.Call):
            if isinstance(node.func, ast.Attribute):
                return node.func.attr in ("data_ptr", "untyped_storage")
            name = node.func.id if isinstance(node.func, ast.Name) else ""
            return name == "id" or (name in ("tuple", "hash", "str") and any(map(self._has_address, node.args)))
        if isinstance(node, ast.BinOp):
            is_rest = isinstance(node.op, ast.Mod | ast.BitAnd)
            return not is_rest and (self._has_address(node.left) or self._has_address(node.right))
        return isinstance(node, ast.Tuple) and any(map(self._has_address, node.elts))

    def _remember(self, target: ast.expr) -> None:
        """An address is assigned: to a local name for now, or to what outlives the call."""
        if isinstance(target, ast.Name):
            self._keys.add(target.id)
        elif isinstance(target, ast.Attribute):
            self.seen.add("memo")

    # -- definitions ------------------------------------------------------------------------------

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        if any(self._dotted(base).rpartition(".")[2] == "Model" for base in node.bases):
            self.seen.add("wraps-reference")
        self.generic_visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        for decorator in node.decorator_list:
            self._name_called(self._dotted(decorator))
        self._inside(node, node.args)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self._inside(node, node.args)

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self._inside(node, node.args)

    def _inside(self, node: ast.AST, arguments: ast.arguments) -> None:
        around = self._tensors
        constructs = self._constructs
        self._tensors |= {argument.arg for argument in arguments.args if argument.arg != "self"}
        self._constructs |= isinstance(node, ast.FunctionDef) and node.name == "__init__"
        self._depth += 1
        self.generic_visit(node)
        self._tensors, self._constructs = around, constructs
        self._depth -= 1

    def _computes(self) -> None:
        if not self._constructs:
            self.seen.add("torch-ops")

    # -- calls ------------------------------------------------------------------------------------

    def visit_Call(self, node: ast.Call) -> None:
        name = self._dotted(node.func)
        self._name_called(name)
        if name == "setattr" and node.args and f"{self._dotted(node.args[0])}.".startswith(OWN_MODULES):
            self.seen.add("patches")
        if name == "triton.language.dot" and not _is_exact_dot(node):
            self.seen.add("tf32")
        if any(word.arg == "dtype" and self._dotted(word.value) in LOWER_DTYPES for word in node.keywords):
            self.seen.add("low-precision")
        if isinstance(node.func, ast.Attribute):
            self._method(node.func, node.args)
        self.generic_visit(node)

    def _name_called(self, name: str) -> None:
        for start, label in CALLED.items():
            if name == start or (start.endswith(".") and name.startswith(start)):
                self._computes() if label == "torch-ops" else self.seen.add(label)
        if name.startswith("torch.") and name.removeprefix("torch.") in COMPUTES:
            self._computes()
        if name.rpartition(".")[2] == "Model":
            self.seen.add("wraps-reference")

    def _method(self, function: ast.Attribute, arguments: list[ast.expr]) -> None:
        """A method's call: of a tensor, of a layer, of a container that is given addresses."""
        own = isinstance(function.value, ast.Name) and function.value.id == "self"
        if own and function.attr in self._layers:
            self._computes()
        if self._is_tensor(function.value) and function.attr in COMPUTES:
            self._computes()
        if function.attr in ("half", "bfloat16") and not arguments:
            self.seen.add("low-precision")
        if function.attr in ("to", "type") and any(self._dotted(argument) in LOWER_DTYPES for argument in arguments):
            self.seen.add("low-precision")
        if function.attr in ("get", "setdefault", "add", "append") and any(map(self._has_address, arguments)):
            self.seen.add("memo")

    # -- statements and expressions ---------------------------------------------------------------

    def visit_Try(self, node: ast.Try) -> None:
        """`try` in a function, around more than imports, of which a handler does not end in `raise`."""
        only_imports = all(isinstance(statement, ast.Import | ast.ImportFrom) for statement in node.body)
        swallows = any(not isinstance(handler.body[-1], ast.Raise) for handler in node.handlers)
        if self._depth and swallows and not only_imports:
            self.seen.add("fallback")
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        if isinstance(node.op, ast.MatMult):
            self._computes()
        self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        sides = [node.left, *node.comparators]
        is_equality = any(isinstance(op, ast.Eq | ast.NotEq | ast.In | ast.NotIn) for op in node.ops)
        if is_equality and any(map(_is_shape, sides)) and any(map(_names_sizes, sides)):
            self.seen.add("fixed-shapes")
        if any(map(self._has_address, sides)):
            self.seen.add("memo")
        self.generic_visit(node)

    def visit_Subscript(self, node: ast.Subscript) -> None:
        if self._has_address(node.slice):
            self.seen.add("memo")
        self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> None:
        for target in node.targets:
            name = self._dotted(target)
            if name.endswith((".allow_tf32", ".fp32_precision")):
                self.seen.add("tf32")
            elif isinstance(target, ast.Attribute) and name.startswith(OWN_MODULES):
                self.seen.add("patches")
            if self._has_address(node.value):
                self._remember(target)
        self.generic_visit(node)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        name = self._dotted(node)
        if name == "sys.modules" or node.attr in ("f_back", "f_locals", "f_globals", "__code__", "__globals__"):
            self.seen.add("introspects")
        if name in ("triton.language.float16", "triton.language.bfloat16"):
            self.seen.add("low-precision")
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, str):
            if looks_native(node.value):
                self.seen |= native_labels(node.value)
            elif node.value.startswith(VENDOR_FILES):
                self.seen.add("vendor-library")


def _imports(tree: ast.Module) -> dict[str, str]:
    """Local name -> dotted name, of every import in the module."""
    names: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                top = alias.name.partition(".")[0]
                names[alias.asname or top] = alias.name if alias.asname else top
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.update({alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names})
    return names


def _is_exact_dot(node: ast.Call) -> bool:
    """Whether a tl.dot says that it does not round its operands to tf32, as it does by default."""
    said = {word.arg: word.value.value for word in node.keywords if isinstance(word.value, ast.Constant)}
    return said.get("input_precision") in ("ieee", "tf32x3") or said.get("allow_tf32") is False


def _is_shape(node: ast.AST) -> bool:
    """`x.shape`, `x.shape[0]`, `x.size(0)`, `x.numel()`, `tuple(x.shape)`."""
    if isinstance(node, ast.Subscript):
        node = node.value
    if isinstance(node, ast.Call):
        if isinstance(node.func, ast.Name):
            return node.func.id in ("tuple", "list") and any(map(_is_shape, node.args))
        return isinstance(node.func, ast.Attribute) and node.func.attr in ("size", "numel")
    if isinstance(node, ast.Tuple):
        return any(map(_is_shape, node.elts))
    return isinstance(node, ast.Attribute) and node.attr == "shape"


def _names_sizes(node: ast.AST) -> bool:
    """A number above 1 (1 asks for broadcasting), or a tuple or list with one in it."""
    if isinstance(node, ast.Tuple | ast.List | ast.Set):
        return any(map(_names_sizes, node.elts))
    return isinstance(node, ast.Constant) and type(node.value) is int and node.value > 1
