"""load_inline replaced: routes, products, errors, and a module that behaves like pybind11's."""

from __future__ import annotations

import ctypes
import json
import threading
import warnings

import pytest
import torch
from torch.utils import cpp_extension

from fitness import inline
from fitness.backends import cpp

ADD_ONE = 'extern "C" int add_one(int x) { return x + 1; }'
PLAIN = {"functions": None, "no_implicit_headers": True, "is_python_module": False}

SLIM_SOURCE = """
#include <torch/extension.h>
#include <pybind11/stl.h>
#include <thread>

torch::Tensor relu(torch::Tensor x) {
    TORCH_CHECK(x.dim() == 2, "expected 2 dimensions, got ", x.dim());
    auto out = torch::zeros({x.size(0), x.size(1)}, x.options().requires_grad(false));
    AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "relu", [&] {
        const scalar_t* in = x.contiguous().data_ptr<scalar_t>();
        scalar_t* to = out.data_ptr<scalar_t>();
        at::parallel_for(0, x.numel(), 1024, [&](int64_t begin, int64_t end) {
            for (int64_t i = begin; i < end; ++i) to[i] = in[i] > 0 ? in[i] : scalar_t(0);
        });
    });
    return out;
}
std::vector<torch::Tensor> twice(std::vector<torch::Tensor> parts, double scale) {
    if (parts.empty()) throw std::invalid_argument("no parts");
    for (auto& part : parts) part = part * scale + 1.0;
    return parts;
}
int64_t whole(int64_t n) { return n; }
void warn() { TORCH_WARN("careful"); }
bool has(std::optional<torch::Tensor> x) { return x.has_value(); }

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
    m.doc() = "kernels";
    m.def("relu", torch::wrap_pybind_function(relu), "relu");
    m.def("warn", torch::wrap_pybind_function(warn));
    m.def("twice", &twice, "twice", py::arg("parts"), py::arg("scale") = 2.0);
    m.def("whole", &whole);
    m.def("has", &has, py::arg("x") = py::none());
}
"""


@pytest.fixture(scope="session")
def slim(tmp_path_factory):
    """The module of SLIM_SOURCE, and the folder that it was built in."""
    folder = tmp_path_factory.mktemp("slim")
    products = inline.Products("build", folder)
    return inline.load_inline(products, "slim_kernels", SLIM_SOURCE, extra_cflags=["-O1 -fopenmp"]), folder


@pytest.fixture
def products(tmp_path):
    return inline.Products("build", tmp_path / "products")


def reports(folder):
    return [json.loads(path.read_text()) for path in folder.glob("*/build.json")]


def test_a_source_without_torch_headers_is_built_lean_and_gives_the_path(products):
    path = inline.load_inline(products, "plain", ADD_ONE, **PLAIN)
    assert ctypes.CDLL(path).add_one(41) == 42
    (report,) = reports(products.folder)
    assert (report["route"], report["fallback_reason"]) == ("lean", "")


def test_the_reason_for_a_slower_route_is_short_enough_to_be_read_back(products):
    """A compiler's line can have thousands of characters; a report that long would be cut and lost."""
    extension = inline.cpp.Extension("plain", (("main.cpp", ADD_ONE),), (), (), (), False)
    inline._build(products, extension, products.folder / "plain", why_not_cheap="x" * 20_000)
    (report,) = reports(products.folder)
    assert (report["route"], report["fallback_reason"]) == ("full", "x" * 300)


def test_install_replaces_the_functions_that_a_candidate_imports(tmp_path, monkeypatch):
    for name in ("load_inline", "load"):
        monkeypatch.setattr(cpp_extension, name, getattr(cpp_extension, name))
    inline.install("build", str(tmp_path))
    assert ctypes.CDLL(cpp_extension.load_inline("plain", [ADD_ONE], **PLAIN)).add_one(1) == 2
    source = tmp_path / "two.cpp"
    source.write_text(ADD_ONE.replace("x + 1", "x + 2"))
    assert ctypes.CDLL(cpp_extension.load("files", [str(source)], is_python_module=False)).add_one(1) == 3


def test_load_mode_needs_no_compiler_for_what_was_built(products, monkeypatch):
    inline.load_inline(products, "plain", ADD_ONE, extra_cflags=["-march=native"], **PLAIN)
    monkeypatch.setenv("CXX", "no-such-compiler")
    runner = inline.Products("load", products.folder)
    path = inline.load_inline(runner, "plain", ADD_ONE, extra_cflags=["-march=native"], **PLAIN)
    assert ctypes.CDLL(path).add_one(1) == 2


def test_load_mode_refuses_what_was_not_built(products):
    inline.load_inline(products, "plain", ADD_ONE, **PLAIN)
    runner = inline.Products("load", products.folder)
    with pytest.raises(RuntimeError, match="not built in the build step: plain"):
        inline.load_inline(runner, "plain", ADD_ONE, extra_cflags=["-O2"], **PLAIN)


def test_a_compile_error_is_the_compilers_text_without_our_paths(products):
    with pytest.raises(RuntimeError) as caught:
        inline.load_inline(products, "broken", "int f() { return missing; }", **PLAIN)
    assert "main.cpp:1:18: error: 'missing' was not declared in this scope" in str(caught.value)
    assert str(products.folder) not in str(caught.value)
    assert (products.folder / "compile_error.txt").read_text() == str(caught.value)
    assert sorted(path.name for path in products.folder.iterdir()) == ["compile_error.txt", "toolchain.txt"]


def test_a_long_compile_error_is_cut(products):
    source = "\n".join(f"int f{i}() {{ return missing{i}; }}" for i in range(200))
    with pytest.raises(RuntimeError) as caught:
        inline.load_inline(products, "broken", source, **PLAIN)
    assert len(str(caught.value)) == cpp.ERROR_LIMIT


def test_a_missing_compiler_is_named(products, monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler -x")
    with pytest.raises(RuntimeError, match="expected 'no-such-compiler' on PATH"):
        inline.load_inline(products, "plain", ADD_ONE, **PLAIN)


def test_cuda_sources_are_refused_and_blank_ones_are_not(products):
    with pytest.raises(RuntimeError, match="the cpp backend has no CUDA"):
        inline.load_inline(products, "plain", ADD_ONE, cuda_sources="__global__ void k() {}", **PLAIN)
    assert inline.load_inline(products, "plain", ADD_ONE, cuda_sources=[""], **PLAIN).endswith("plain.so")


def test_flags_given_as_one_string_are_refused(products):
    with pytest.raises(TypeError, match="must be a list of strings, found the string '-O2'"):
        inline.load_inline(products, "plain", ADD_ONE, extra_cflags="-O2", **PLAIN)


def test_openmp_in_the_compile_flags_alone_is_enough(products):
    source = '#include <omp.h>\nextern "C" int most() { return omp_get_max_threads(); }'
    path = inline.load_inline(products, "threads", source, extra_cflags=["-fopenmp"], **PLAIN)
    assert ctypes.CDLL(path).most() >= 1


def test_fast_math_does_not_flush_denormals_in_the_process(products):
    inline.load_inline(products, "fast", ADD_ONE, extra_cflags=["-O3", "-ffast-math"], **PLAIN)
    assert float(torch.tensor([1e-40]).mul(0.5)) > 0


def test_every_argument_that_matters_gives_its_own_product(products):
    for text, flags in ((ADD_ONE, ["-O1"]), (ADD_ONE, ["-O2"]), (ADD_ONE.replace("+ 1", "+ 2"), ["-O1"])):
        inline.load_inline(products, "plain", text, extra_cflags=flags, **PLAIN)
        inline.load_inline(products, "plain", text, extra_cflags=flags, **PLAIN)
    assert len(reports(products.folder)) == 3


def test_builders_of_the_same_extension_at_once_all_get_it(products):
    paths: list[str] = []
    build = lambda: paths.append(inline.load_inline(products, "plain", ADD_ONE, **PLAIN))  # noqa: E731
    threads = [threading.Thread(target=build) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(paths) == 3 and len(set(paths)) == 1
    assert [path.name for path in products.folder.glob("build-*")] == []


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("auto y = torch::nn::functional::gelu(x);", "uses torch::nn"),
        ("auto y = torch::tensor({1.0});", "uses torch::tensor"),
        ("x.options().requires_grad(true)", "uses requires_grad"),
        ("torch::TensorOptions().requires_grad(false)", ""),
        ("auto y = torch::relu(x);", ""),
    ],
)
def test_what_means_something_else_in_the_slim_headers_goes_to_the_full_ones(text, why):
    assert cpp.why_not_slim(text) == why


def test_a_comment_does_not_choose_the_route():
    files = (("main.cpp", "// like torch::nn::Linear\n/* requires_grad */ torch::Tensor f(torch::Tensor x);"),)
    assert cpp.why_not_slim(cpp.Extension("e", files, (), (), (), True).text) == ""


def test_torch_extension_h_takes_the_slim_route(slim):
    module, folder = slim
    assert [report["route"] for report in reports(folder)] == ["slim"]
    assert module.__doc__ == "kernels"
    for dtype in (torch.float32, torch.float64):
        x = torch.randn(5, 7, dtype=dtype)
        assert torch.equal(module.relu(x), x.relu())


def test_a_failed_torch_check_is_a_runtime_error_with_its_message_alone(slim):
    with pytest.raises(RuntimeError) as caught:
        slim[0].relu(torch.ones(3))
    assert str(caught.value) == "expected 2 dimensions, got 1"


def test_standard_exceptions_become_pythons(slim):
    with pytest.raises(ValueError, match=r"^no parts$"):
        slim[0].twice([])


def test_wrong_arguments_get_pybinds_message(slim):
    with pytest.raises(TypeError) as caught:
        slim[0].relu(3.0, y=1)
    assert str(caught.value) == (
        "relu(): incompatible function arguments. The following argument types are supported:\n"
        "    1. (arg0: torch.Tensor) -> torch.Tensor\n\nInvoked with: 3.0; kwargs: y=1"
    )


def test_names_defaults_and_docs_of_arguments_work(slim):
    x = torch.ones(2)
    assert torch.equal(slim[0].twice(scale=3, parts=(x,))[0], 3 * x + 1)
    assert slim[0].twice.__doc__ == (
        "twice(parts: collections.abc.Sequence[torch.Tensor], scale: typing.SupportsFloat | typing.SupportsIndex = 2.0)"
        " -> list[torch.Tensor]\n\ntwice\n"
    )
    assert (slim[0].has(), slim[0].has(x), slim[0].has(None)) == (False, True, False)


@pytest.mark.parametrize("value", [2.0, "2", None, 1 << 64, [1], torch.ones(2)])
def test_what_is_no_integer_is_refused(slim, value):
    with pytest.raises(TypeError, match="incompatible function arguments"):
        slim[0].whole(value)


@pytest.mark.parametrize("value", [-3, True, torch.tensor(7), torch.tensor(7.5)])
def test_what_converts_to_an_integer_is_taken(slim, value):
    assert slim[0].whole(value) == int(value)


def test_torch_warnings_become_pythons(slim):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        slim[0].warn()
    assert [str(item.message).split(" (")[0] for item in caught] == ["careful"]


@pytest.mark.slow
def test_a_source_that_the_slim_headers_cannot_bind_is_built_with_the_full_ones(products):
    source = "torch::Tensor to(torch::Tensor x, torch::ScalarType t) { return x.to(t); }"
    module = inline.load_inline(products, "cast", source, functions=["to"], extra_cflags=["-O0"])
    assert module.to(torch.ones(1), torch.float64).dtype == torch.float64
    (report,) = reports(products.folder)
    assert report["route"] == "full" and "did not compile" in report["fallback_reason"]


@pytest.mark.slow
def test_a_module_that_loads_only_with_the_full_headers_is_rebuilt(products):
    source = """
    int one(int x) { return x; }
    int two(int x, int y) { return x + y; }
    PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("f", &one); m.def("f", &two); }
    """
    module = inline.load_inline(products, "overloads", source, extra_cflags=["-O0"])
    assert (module.f(1), module.f(1, 2)) == (1, 3)
    again = inline.load_inline(inline.Products("load", products.folder), "overloads", source, extra_cflags=["-O0"])
    assert again.f(1, 2) == 3


@pytest.mark.slow
def test_the_error_shown_is_the_full_routes(products):
    with pytest.raises(RuntimeError) as caught:
        inline.load_inline(products, "broken", "torch::Tensor f(torch::Tensor x) { return y; }", functions="f")
    assert "main.cpp:2:43: error: 'y' was not declared in this scope" in str(caught.value)
    assert "kb_slim" not in str(caught.value)
