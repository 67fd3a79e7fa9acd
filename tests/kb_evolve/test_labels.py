"""Labels: what a source shows without being run, and nothing on the kernels that we bundle."""

from __future__ import annotations

import time

import pytest

from kb_evolve.labels import LABELS, labels_of
from problems.catalogue import bundled

HEAD = """
import ctypes, threading
import torch, triton
import torch.nn as nn
import torch.nn.functional as F
import triton.language as tl
from torch.utils.cpp_extension import load_inline
"""


def forward(body: str, outside: str = "") -> str:
    lines = "\n".join(f"        {line}" for line in body.splitlines())
    return f"{HEAD}\n{outside}\nclass ModelNew(nn.Module):\n    def forward(self, x, y):\n{lines}\n"


@pytest.mark.parametrize(
    ("label", "body"),
    [
        ("torch-ops", "return torch.matmul(x, y)"),
        ("torch-ops", "return x @ y"),
        ("torch-ops", "return F.gelu(x)"),
        ("torch-ops", "return x.contiguous().softmax(-1)"),
        ("torch-ops", "return torch.ops.aten.mm.default(x, y)"),
        ("torch-compile", "return torch.compile(self.run)(x)"),
        ("wraps-reference", "return Model()(x)"),
        ("fallback", "try:\n    return run(x)\nexcept Exception:\n    return x"),
        ("fixed-shapes", "if x.shape == (4096, 4096):\n    return run(x)"),
        ("fixed-shapes", "assert x.size(0) == 4096\nreturn run(x)"),
        ("fixed-shapes", "if tuple(x.shape) in [(16, 32), (64, 64)]:\n    return run(x)"),
        ("streams", "side = torch.cuda.Stream()\nreturn run(x)"),
        ("events", "torch.cuda.Event(enable_timing=True).record()\nreturn run(x)"),
        ("graphs", "with torch.cuda.graph(self.g):\n    return run(x)"),
        ("threads", "threading.Thread(target=run, args=(x,)).start()\nreturn y"),
        ("memo", "if x.data_ptr() in self.seen:\n    return self.out"),
        ("memo", "return self.outs[id(x)]"),
        ("memo", "key = (x.data_ptr(), x._version)\nif (x.data_ptr(), x._version) == self.key:\n    return self.out"),
        (
            "memo",
            "key = x.data_ptr(), 1\nif key not in self.outs:\n    self.outs[key] = run(x)\nreturn self.outs[key]",
        ),
        ("memo", "self.last = x.data_ptr()\nreturn run(x)"),
        ("low-precision", "return run(x.half(), y.half())"),
        ("low-precision", "return run(x.to(torch.bfloat16))"),
        ("low-precision", "return self.compute(x).half()"),
        ("low-precision", "torch.backends.cuda.matmul.allow_tf32 = True\nreturn run(x)"),
        ("patches", "torch.cuda.synchronize = print\nreturn run(x)"),
        ("patches", "setattr(torch, 'allclose', print)\nreturn run(x)"),
        ("introspects", "import gc\nreturn max(gc.get_objects(), key=id)"),
        ("introspects", "import sys\nreturn sys._getframe(1).f_locals['expected']"),
    ],
)
def test_a_body_that_does_it_gets_the_label(label: str, body: str) -> None:
    assert label in labels_of(forward(body))


@pytest.mark.parametrize(
    "body",
    [
        "return library.softmax(ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(y.data_ptr()))",
        "assert x.data_ptr() % 16 == 0\nreturn run(x)",
        "if x.shape[0] == 1 or x.shape != y.shape or x.dim() == 2:\n    raise ValueError(x.shape)\nreturn run(x)",
        "out = torch.empty_like(x.contiguous().view(-1))\nrun[(x.numel() + 255) // 256](x, out)\nreturn out",
        "try:\n    return run(x)\nexcept RuntimeError as error:\n    raise ValueError('no kernel') from error",
        "try:\n    import triton\nexcept ImportError:\n    triton = None\nreturn run(x)",
        "raise ValueError('neither cublasSgemm nor std::thread is used')",
    ],
)
def test_what_honest_kernels_need_gets_no_label(body: str) -> None:
    assert labels_of(forward(body)) == ()


NATIVE = {
    "vendor-library": "cublasSgemm(handle, m, n);",
    "torch-ops": "auto y = at::matmul(a, b);",
    "streams": "cudaStreamCreate(&s);",
    "events": "cudaEventRecord(e);",
    "graphs": "cudaGraphLaunch(g, s);",
    "threads": "std::thread worker(run);",
    "low-precision": "__half h = __float2half(x);",
}


@pytest.mark.parametrize(("label", "line"), NATIVE.items())
def test_a_label_of_native_code_comes_from_its_identifiers_and_not_from_comments_or_messages(
    label: str, line: str
) -> None:
    code = f'load_inline("k", r"""\nvoid run() {{ {line} }}\n""")\n'
    hidden = (
        f'load_inline("k", r"""\nvoid run() {{ int x; }} // {line}\n/* {line} */ void g() {{ puts("{line}"); }}\n""")\n'
    )
    assert labels_of(HEAD + code) == (label,)
    assert labels_of(HEAD + hidden) == ()


def test_a_layer_of_torch_that_holds_weights_is_no_call_and_one_that_is_called_is() -> None:
    layer = f"{HEAD}\nclass ModelNew(nn.Module):\n    def __init__(self):\n        self.conv = nn.Conv2d(3, 4, 5)\n"
    assert labels_of(layer + "    def forward(self, x):\n        return run(x, self.conv.weight)\n") == ()
    assert labels_of(layer + "    def forward(self, x):\n        return self.conv(x)\n") == ("torch-ops",)


def test_a_tensor_core_product_in_tf32_is_lower_than_fp32_and_not_than_tf32() -> None:
    kernel = "@triton.jit\ndef k(a, b, c):\n    {}\n"
    rounds, exact = (
        forward("return run(x)", kernel.format(f"tl.store(c, tl.dot(tl.load(a), tl.load(b){how}))"))
        for how in ("", ", input_precision='ieee'")
    )
    assert labels_of(rounds) == ("low-precision",) and labels_of(exact) == ()
    assert labels_of(rounds, "tf32") == labels_of(rounds, "bf16") == ()


def test_a_reference_that_is_inherited_is_seen() -> None:
    assert labels_of("class ModelNew(Model):\n    pass\n") == ("wraps-reference",)
    assert labels_of("import reference\nclass ModelNew(reference.Model):\n    pass\n") == ("wraps-reference",)


def test_no_bundled_seed_is_labelled() -> None:
    found = {problem.name: labels_of(problem.seed) for problem in bundled() if problem.seed is not None}
    assert found and not {name: labels for name, labels in found.items() if labels}


@pytest.mark.parametrize(
    "source",
    ["def f(:", "x = " + "-" * 100_000 + "1", "if (x.shape[0] == " * 8_000, "f(" * 3_000, "\x00", "int " * 100_000],
)
def test_what_is_not_python_is_said_to_be_unparsed(source: str) -> None:
    assert labels_of(source) == ("unparsed",)


@pytest.mark.parametrize("piece", ["/* ", "at :: ", '\\" ', "cublas { ; ", "'"])
def test_the_time_grows_as_the_text_does(piece: str) -> None:
    def spent_s(count: int) -> float:
        source = "x = r'''{;" + piece.replace("'", "` ") * count + "'''"
        started = time.process_time()
        labels_of(source)
        return time.process_time() - started

    short = min(spent_s(4_000) for _ in range(3))
    assert min(spent_s(32_000) for _ in range(3)) < 8 * 4 * max(short, 1e-3)


def test_labels_come_in_one_order_and_each_is_explained() -> None:
    found = labels_of(forward("try:\n    return torch.mm(x, y)\nexcept Exception:\n    return x.half()"))
    assert found == ("torch-ops", "fallback", "low-precision")
    assert all(LABELS.values())
