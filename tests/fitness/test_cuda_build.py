"""CUDA builds: one architecture, lean and light routes, resources, errors. All of it without a GPU."""

from __future__ import annotations

import ctypes
import json
import shutil
from pathlib import Path

import pytest
import torch

from fitness import inline
from fitness.backends import cpp, cuda
from fitness.evaluation import Job, Verdict

needs_nvcc = pytest.mark.skipif(cuda.find_toolkit() is None, reason="no nvcc here")
PLAIN = {"functions": None, "no_implicit_headers": True, "is_python_module": False}

LEAN = """
template <int N> __global__ void scale(const float* x, float* y, int n) {
    __shared__ float tile[N];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    tile[threadIdx.x % N] = i < n ? x[i] : 0.0f;
    __syncthreads();
    if (i < n) y[i] = 2.0f * tile[threadIdx.x % N];
}
extern "C" int launch(const float* x, float* y, int n) {
    scale<64><<<(n + 63) / 64, 64>>>(x, y, n);
    scale<128><<<(n + 127) / 128, 128>>>(x, y, n);
    return 7;
}
"""

KERNELBENCH = """
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAGuard.h>

template <typename scalar_t>
__global__ void relu_kernel(const scalar_t* __restrict__ x, scalar_t* __restrict__ y, int64_t n) {
    int64_t i = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x;
    if (i < n) y[i] = x[i] > scalar_t(0) ? x[i] : scalar_t(0);
}
__global__ void rows(torch::PackedTensorAccessor32<float, 2, torch::RestrictPtrTraits> x) { x[blockIdx.x][0] = 1.0f; }

std::vector<torch::Tensor> relu_cuda(torch::Tensor x) {
    TORCH_CHECK(x.is_cuda(), "x must be a CUDA tensor");
    const at::cuda::OptionalCUDAGuard guard(device_of(x));
    auto y = torch::empty_like(x), z = torch::zeros({x.size(0), 4}, x.options().dtype(torch::kFloat32));
    AT_DISPATCH_FLOATING_TYPES_AND_HALF(x.scalar_type(), "relu", ([&] {
        relu_kernel<scalar_t><<<(x.numel() + 255) / 256, 256, 0, at::cuda::getCurrentCUDAStream()>>>(
            x.data_ptr<scalar_t>(), y.data_ptr<scalar_t>(), x.numel());
    }));
    rows<<<z.size(0), 1>>>(z.packed_accessor32<float, 2, torch::RestrictPtrTraits>());
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return {y, z.contiguous()};
}
"""

ON_CPU = """
#include <torch/extension.h>
using torch::Tensor;

std::vector<Tensor> views(Tensor x) {
    return {x.t(), x.view({-1}), x.reshape({2, -1}), x[1], x.transpose(0, 1).contiguous(), x.unsqueeze(0).squeeze(0),
            x.slice(1, 1, 3), x.select(1, 2), x.permute({1, 0}), x.flatten(), x.narrow(0, 0, 1), x.expand({2, 4, 6})};
}
std::vector<Tensor> sums(Tensor x) {
    return {x.sum(), x.sum(1), x.sum({0, 1}, true), x.mean(), x.mean(0), std::get<1>(x.max(1)), x.max(), x.amax({1}),
            x.argmax(1), torch::softmax(x, 1), at::sum(x, 0, true), x.prod()};
}
std::vector<Tensor> arithmetic(Tensor x, double k) {
    auto y = x.clone();
    y += 1; y *= x; y[0] = 3.0; y[1] = x[0]; y.add_(x, 2);
    return {x + y, x - 1, 2 - x, 1.0 / (x + 5), x * k, -x, x / y, torch::relu(x), x.exp().log(), y, exp(x),
            x.matmul(y.t()), torch::mm(x, y.t()), torch::addmm(x[0], x, y.t().mm(x), 0.5), at::linear(x, y),
            torch::cat({x, y}, 1), torch::stack({x, y}), pow(x, 2)};
}
std::vector<Tensor> fresh(Tensor x) {
    auto wide = torch::TensorOptions().dtype(torch::kFloat64).device(x.device());
    return {torch::ones({2, 3}), torch::zeros_like(x), torch::full({2}, 7, wide), torch::full_like(x, 2.5),
            x.to(torch::kHalf), x.to(wide), torch::arange(5), torch::ones({2}, torch::kInt32), x.new_zeros({3}),
            at::full({2}, true)};
}
Tensor doubled(Tensor x) {
    torch::NoGradGuard guard;
    auto out = torch::empty({x.size(0), x.size(1)}, x.options());
    auto from = x.accessor<float, 2>();
    auto to = out.packed_accessor32<float, 2>();
    for (int i = 0; i < from.size(0); ++i)
        for (int j = 0; j < from.size(1); ++j) out.data_ptr<float>()[i * to.size(1) + j] = 2 * from[i][j];
    return out;
}
std::tuple<int64_t, double, std::string> facts(Tensor x) {
    std::ostringstream text;
    text << x.sizes() << x.dtype() << x.device() << x.scalar_type() << x.is_contiguous() << x.dim() << x.nbytes()
         << x.stride(-1) << x.defined() << Tensor().defined() << (x.dtype() == torch::kFloat32) << x.element_size();
    return {x.numel(), x.sum().item<double>(), text.str()};
}
bool has(std::optional<Tensor> x) { return x.has_value(); }
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
    m.def("views", &views); m.def("sums", &sums); m.def("arithmetic", &arithmetic); m.def("fresh", &fresh);
    m.def("doubled", &doubled); m.def("facts", &facts); m.def("has", &has, py::arg("x") = py::none());
}
"""


@pytest.fixture(scope="session")
def bridge(tmp_path_factory):
    target = tmp_path_factory.mktemp("bridge") / cuda.BRIDGE
    cuda.compile_bridge(target)
    return target


@pytest.fixture
def products(tmp_path):
    return inline.Products("build", tmp_path / "products", "sm_90")


def report(products):
    (path,) = products.folder.glob("*/build.json")
    return json.loads(path.read_text())


def extension(text, *, flags=(), arch="sm_90", path="cuda.cu"):
    return cpp.Extension("e", ((path, text),), (), (), (), True, is_cuda=True, cuda_cflags=tuple(flags), arch=arch)


@pytest.mark.parametrize(
    ("arch", "flags", "text", "expected"),
    [
        ("sm_90", (), "", "sm_90"),
        ("", (), "", "sm_90"),
        ("sm_80", ("-arch=sm_90a",), "", "sm_80"),
        ("sm_90", ("-gencode=arch=compute_90a,code=sm_90a",), "", "sm_90a"),
        ("sm_90", (), 'asm volatile("wgmma.fence.sync.aligned;");', "sm_90a"),
        ("sm_90", (), "// wgmma would be nice", "sm_90"),
        ("sm_100", (), 'asm("setmaxnreg.inc.sync.aligned.u32 240;");', "sm_100a"),
    ],
)
def test_the_architecture_is_the_devices_and_its_dialect_is_the_sources_choice(arch, flags, text, expected):
    assert cuda.architecture(extension(text, flags=flags, arch=arch)) == expected


def test_a_malformed_architecture_is_refused():
    with pytest.raises(RuntimeError, match=r"arch must look like sm_90, found '9\.0'"):
        cuda.architecture(extension("", arch="9.0"))


def test_only_the_flags_that_choose_architectures_are_dropped():
    flags = [
        "-O3",
        "-arch",
        "sm_80",
        "-gencode=arch=compute_70,code=sm_70",
        "--use_fast_math",
        "-code=sm_80",
        "-lineinfo",
    ]
    assert cuda.own_flags(flags) == ["-O3", "--use_fast_math", "-lineinfo"]


def test_resources_are_read_from_ptxas():
    said = """
    ptxas info    : Compiling entry function '_Z1av' for 'sm_90'
    ptxas info    : Function properties for _Z1av
        16 bytes stack frame, 8 bytes spill stores, 12 bytes spill loads
    ptxas info    : Used 255 registers, used 1 barriers, 16 bytes cumulative stack size, 49152 bytes smem
    ptxas info    : Compiling entry function '_Z1bv' for 'sm_90'
        0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
    ptxas info    : Used 10 registers, used 0 barriers, 380 bytes cmem[0]
    """
    assert cuda.resources(said) == [
        {"name": "_Z1av", "registers": 255, "spill_bytes": 20, "shared_bytes": 49152},
        {"name": "_Z1bv", "registers": 10, "spill_bytes": 0, "shared_bytes": 0},
    ]
    assert cuda.resources("") == []


@needs_nvcc
@pytest.mark.parametrize(
    ("message", "is_certain"),
    [
        ('cuda.cu(2): error: identifier "kb_misspelt_thing" is undefined', True),
        ('cuda.cu(2): error: identifier "getCurrentCUDABlasHandle" is undefined', False),
        ('cuda.cu(2): error: identifier "kComplexHalf" is undefined', False),
        ('cuda.cu(2): error: expected a ";"', True),
        ('cuda.cu(3): error: expected a ";"', False),
        ('torch/types.h(2): error: expected a ";"', False),
        ('cuda.cu(2): error: class "kb_light::Tensor" has no member "cumsum"', False),
        ("main.cpp:1:5: error: 'kb_misspelt_thing' was not declared in this scope", False),
    ],
)
def test_only_errors_that_no_header_can_mend_spare_the_full_route(message, is_certain):
    assert cuda.is_certain(message, extension("int f()\n{ return 1 }\nSOME_MACRO x\n")) is is_certain


def test_a_missing_nvcc_is_named_with_what_to_install(products, monkeypatch):
    monkeypatch.setattr(cuda, "find_toolkit", lambda: None)
    with pytest.raises(RuntimeError, match=r"no nvcc: expected .*CUDA_HOME.*pip install nvidia-cuda-nvcc=="):
        inline.load_inline(products, "lean", "", LEAN, **PLAIN)


@needs_nvcc
def test_the_toolkit_is_cuda_homes_before_the_one_on_path(tmp_path, monkeypatch):
    (tmp_path / "bin").mkdir()
    shutil.copy("/bin/true", tmp_path / "bin" / "nvcc")
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    assert cuda.toolkit().root == tmp_path.resolve()
    monkeypatch.delenv("CUDA_HOME")
    assert cuda.toolkit().root != tmp_path.resolve()


@needs_nvcc
def test_nvcc_gets_one_architecture_and_torchs_half_rules(monkeypatch):
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", "7.0;8.0+PTX")
    flags = cuda.nvcc_flags(extension(LEAN, flags=["-arch=sm_75", "-O2", "-std=c++17"]), "full")
    assert [flag for flag in flags if "arch" in flag] == ["-gencode=arch=compute_90,code=sm_90"]
    assert {"-O2", "-D__CUDA_NO_HALF_OPERATORS__", "--expt-relaxed-constexpr", "-DTORCH_EXTENSION_NAME=e"} <= set(flags)
    assert [flag for flag in flags if flag.startswith("-std=")] == ["-std=c++17"]


@needs_nvcc
def test_a_cuda_source_without_torch_is_built_lean_with_its_resources(products):
    path = inline.load_inline(products, "lean", "", LEAN, extra_cuda_cflags=["-O3"], **PLAIN)
    assert ctypes.CDLL(path).launch(None, None, 0) == 7
    found = report(products)
    assert (found["route"], found["fallback_reason"]) == ("lean", "")
    assert sorted(kernel["shared_bytes"] for kernel in found["kernels"]) == [256, 512]
    assert all(0 < kernel["registers"] < 64 and kernel["spill_bytes"] == 0 for kernel in found["kernels"])


@needs_nvcc
def test_what_is_only_built_carries_the_compilers_report_and_its_route(workbench):
    candidate = f"""
import torch
from torch.utils.cpp_extension import load_inline
load_inline("lean", "", {LEAN!r}, functions=None, no_implicit_headers=True, is_python_module=False)
class ModelNew(torch.nn.Module):
    def forward(self, x): return x
"""
    problem = candidate[: candidate.index("from")] + (
        "class Model(torch.nn.Module):\n    def forward(self, x): return x\n"
        "def get_inputs(): return [torch.rand(8)]\ndef get_init_inputs(): return []\n"
    )
    found = workbench.evaluate(Job("copy", problem, candidate, backend="cuda", arch="sm_90", profile=True))
    assert found.verdict is Verdict.NO_VERDICT and "built for sm_90" in found.reason
    assert (found.features["profile_source"], found.features["build_routes"]) == ("compiler", ["lean"])
    assert (found.features["shared_bytes"], found.features["spill_bytes"]) == (512, 0)


@needs_nvcc
def test_load_mode_needs_no_nvcc_and_takes_the_arch_of_the_build(tmp_path, monkeypatch):
    for name in ("load_inline", "load"):
        monkeypatch.setattr(torch.utils.cpp_extension, name, getattr(torch.utils.cpp_extension, name))
    inline.install("build", str(tmp_path), "sm_80")
    path = torch.utils.cpp_extension.load_inline("lean", "", LEAN, **PLAIN)
    assert b"sm_80" in Path(path).read_bytes() and b"sm_90" not in Path(path).read_bytes()
    monkeypatch.setattr(cuda, "find_toolkit", lambda: None)
    inline.install("load", str(tmp_path))
    assert torch.utils.cpp_extension.load_inline("lean", "", LEAN, **PLAIN) == path


@needs_nvcc
def test_a_kernelbench_candidate_takes_the_slim_route(products, bridge):
    products.folder.mkdir()
    shutil.copy(bridge, products.folder / cuda.BRIDGE)
    declaration = "std::vector<torch::Tensor> relu_cuda(torch::Tensor x);"
    module = inline.load_inline(products, "kernels", declaration, KERNELBENCH, functions=["relu_cuda"])
    found = report(products)
    assert (found["route"], found["fallback_reason"]) == ("slim", "")
    assert len(found["kernels"]) == 4
    says = "built for sm_90" if torch.version.cuda is None else "x must be a CUDA tensor"
    with pytest.raises(RuntimeError, match=says):
        module.relu_cuda(torch.ones(2, 2))


@needs_nvcc
def test_a_misspelt_name_is_refused_without_the_full_headers(products, bridge):
    products.folder.mkdir()
    shutil.copy(bridge, products.folder / cuda.BRIDGE)
    source = "torch::Tensor f(torch::Tensor x) { return kb_misspelt_thing(x); }"
    with pytest.raises(cpp.CompileError, match=r'cuda\.cu.*identifier "kb_misspelt_thing" is undefined'):
        inline.load_inline(products, "e", "", source, functions=None)
    assert not list(products.folder.glob("*/build.json"))


@pytest.fixture(scope="session")
def light(tmp_path_factory, bridge):
    """A module whose C++ was compiled with the light headers and linked with the bridge, called on CPU tensors."""
    work = tmp_path_factory.mktemp("light")
    (work / "main.cpp").write_text(ON_CPU)
    request = cpp.Extension("light", (("main.cpp", ON_CPU),), ("-O0",), (), (), True)
    assert cuda.compile_by_cheapest_route(request, work, "", bridge) == ("slim", "", [])
    return inline._import_library(request, work / "light.so")


def same(found, expected):
    assert len(found) == len(expected)
    for index, (one, other) in enumerate(zip(found, expected, strict=True)):
        assert one.dtype == other.dtype and one.shape == other.shape, index
        assert one.stride() == other.stride() and torch.equal(one, other), index


@needs_nvcc
def test_light_views_and_reductions_are_torchs(light):
    x = torch.arange(24.0).reshape(4, 6).sin()
    views = [x.t(), x.view(-1), x.reshape(2, -1), x[1], x.t().contiguous(), x, x[:, 1:3], x[:, 2], x.permute(1, 0)]
    same(light.views(x), [*views, x.flatten(), x[:1], x.expand(2, 4, 6)])
    sums = [x.sum(), x.sum(1), x.sum((0, 1), True), x.mean(), x.mean(0), x.max(1)[1], x.max(), x.amax(1), x.argmax(1)]
    same(light.sums(x), [*sums, x.softmax(1), x.sum(0, True), x.prod()])


@needs_nvcc
def test_light_arithmetic_and_writes_into_views_are_torchs(light):
    x = torch.arange(16.0).reshape(4, 4).cos()
    y = x.clone()
    y += 1
    y *= x
    y[0] = 3.0
    y[1] = x[0]
    y.add_(x, alpha=2)
    expected = [x + y, x - 1, 2 - x, 1.0 / (x + 5), x * 1.5, -x, x / y, x.relu(), x.exp().log(), y, x.exp(), x @ y.t()]
    expected += [x @ y.t(), torch.addmm(x[0], x, y.t().mm(x), beta=0.5), torch.nn.functional.linear(x, y)]
    same(light.arithmetic(x, 1.5), [*expected, torch.cat([x, y], 1), torch.stack([x, y]), x.pow(2)])


@needs_nvcc
def test_light_factories_have_torchs_dtypes(light):
    x = torch.ones(2, 3)
    wide = torch.float64
    expected = [torch.ones(2, 3), x * 0, torch.full((2,), 7, dtype=wide), torch.full_like(x, 2.5), x.half(), x.double()]
    expected += [torch.arange(5), torch.ones(2, dtype=torch.int32), x.new_zeros(3), torch.full((2,), True)]
    same(light.fresh(x), expected)


@needs_nvcc
def test_light_accessors_and_facts_are_torchs(light):
    x = torch.arange(6.0).reshape(3, 2).t()
    assert torch.equal(light.doubled(x), 2 * x)
    assert light.facts(x) == (6, 15.0, "[2, 3]floatcpuFloat02242101" + "4")
    assert (light.has(), light.has(x)) == (False, True)


@needs_nvcc
def test_light_errors_are_torchs(light):
    with pytest.raises(RuntimeError, match="expected scalar type Float but found Double"):
        light.doubled(torch.ones(2, 2, dtype=torch.float64))
    with pytest.raises(RuntimeError, match="TensorAccessor expected 2 dims but tensor has 3"):
        light.doubled(torch.ones(2, 2, 2))
    with pytest.raises(TypeError, match="incompatible function arguments"):
        light.views(3)


@needs_nvcc
@pytest.mark.slow
def test_what_the_light_headers_lack_is_built_with_torchs_own(products):
    source = """
    __global__ void half(float* x) { x[threadIdx.x] /= 2; }
    torch::Tensor f(torch::Tensor x) { auto y = x.cumsum(0); half<<<1, 1>>>(y.data_ptr<float>()); return y; }
    """
    inline.load_inline(products, "cumulative", "torch::Tensor f(torch::Tensor x);", source, functions=["f"])
    found = report(products)
    assert found["route"] == "full" and "cumsum" in found["fallback_reason"]
    assert len(found["kernels"]) == 1
