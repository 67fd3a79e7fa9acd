"""C++ extensions in the styles that people and language models write for KernelBench, unmodified torch/extension.h.

Each entry is what a candidate passes to load_inline, and how its functions are called. `calls` are Python
expressions over the module `m` and the tensors x (6, 40), w (40, 24), b (24,), p (1, 3, 8, 8), d (fp64), i (int64).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Entry:
    """One extension of the corpus."""

    name: str
    source: str
    functions: tuple[str, ...] | None
    calls: tuple[str, ...]
    cflags: tuple[str, ...] = ("-O3",)


CORPUS = (
    Entry(
        "relu_pointer",
        """
torch::Tensor relu_forward(torch::Tensor x) {
    auto out = torch::empty_like(x);
    const float* in = x.data_ptr<float>();
    float* o = out.data_ptr<float>();
    for (int64_t i = 0; i < x.numel(); i++) o[i] = in[i] > 0 ? in[i] : 0;
    return out;
}
""",
        ("relu_forward",),
        ("m.relu_forward(x)", "m.relu_forward(d)", "m.relu_forward(3)", "m.relu_forward()", "m.relu_forward(x, x)"),
    ),
    Entry(
        "softmax_openmp",
        """
#include <torch/extension.h>
#include <vector>
#include <cmath>
#include <omp.h>

torch::Tensor softmax_rows(torch::Tensor input) {
    TORCH_CHECK(input.dim() == 2, "expected a 2D tensor, got ", input.dim(), "D");
    TORCH_CHECK(input.scalar_type() == torch::kFloat32, "Input must be float32");
    auto x = input.contiguous();
    const int64_t rows = x.size(0), cols = x.size(1);
    auto out = torch::empty({rows, cols}, x.options());
    const float* src = x.data_ptr<float>();
    float* dst = out.data_ptr<float>();
    #pragma omp parallel for
    for (int64_t r = 0; r < rows; ++r) {
        float top = -INFINITY, sum = 0.0f;
        for (int64_t c = 0; c < cols; ++c) top = std::max(top, src[r * cols + c]);
        for (int64_t c = 0; c < cols; ++c) {
            float e = std::exp(src[r * cols + c] - top);
            dst[r * cols + c] = e;
            sum += e;
        }
        for (int64_t c = 0; c < cols; ++c) dst[r * cols + c] /= sum;
    }
    return out;
}
""",
        ("softmax_rows",),
        ("m.softmax_rows(x)", "m.softmax_rows(p)", "m.softmax_rows(d)", "m.softmax_rows(x.t())"),
        ("-O3", "-march=native", "-fopenmp"),
    ),
    Entry(
        "zeros_scale",
        """
torch::Tensor scale_sum(torch::Tensor x, double scale, int64_t dim) {
    auto out = torch::zeros({x.size(0)}, x.options());
    auto o = out.data_ptr<float>();
    auto in = x.data_ptr<float>();
    for (int r = 0; r < x.size(0); ++r)
        for (int c = 0; c < x.size(1); ++c) o[r] += in[r * x.size(1) + c] * scale;
    return dim == 0 ? out.sum(0) : out;
}
""",
        ("scale_sum",),
        (
            "m.scale_sum(x, 0.5, 1)",
            "m.scale_sum(x, 2, True)",
            "m.scale_sum(x, 2.0, 1.0)",
            "m.scale_sum(x, '2', 1)",
            "m.scale_sum(x, i[3], i[1])",
            "m.scale_sum(x, 1.0, 1 << 70)",
        ),
    ),
    Entry(
        "dispatch_gelu",
        """
#include <torch/extension.h>

template <typename scalar_t>
void gelu_kernel(const scalar_t* in, scalar_t* out, int64_t n) {
    for (int64_t i = 0; i < n; ++i)
        out[i] = in[i] * scalar_t(0.5) * (scalar_t(1) + std::erf(in[i] * scalar_t(M_SQRT1_2)));
}

torch::Tensor gelu(const torch::Tensor& x) {
    auto out = torch::empty_like(x);
    AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "gelu_cpu", ([&] {
        gelu_kernel<scalar_t>(x.data_ptr<scalar_t>(), out.data_ptr<scalar_t>(), x.numel());
    }));
    return out;
}
""",
        ("gelu",),
        ("m.gelu(x)", "m.gelu(d)", "m.gelu(i)"),
    ),
    Entry(
        "parallel_for_norm",
        """
#include <torch/extension.h>
#include <ATen/ATen.h>
#include <ATen/Parallel.h>

at::Tensor rms_norm(at::Tensor x, double eps) {
    x = x.contiguous();
    auto y = at::empty_like(x);
    int64_t cols = x.size(-1), rows = x.numel() / cols;
    const float* in = x.const_data_ptr<float>();
    float* out = y.mutable_data_ptr<float>();
    at::parallel_for(0, rows, 1, [&](int64_t begin, int64_t end) {
        for (int64_t r = begin; r < end; ++r) {
            float s = 0;
            for (int64_t c = 0; c < cols; ++c) s += in[r * cols + c] * in[r * cols + c];
            float k = 1.0f / std::sqrt(s / cols + static_cast<float>(eps));
            for (int64_t c = 0; c < cols; ++c) out[r * cols + c] = in[r * cols + c] * k;
        }
    });
    return y;
}
""",
        ("rms_norm",),
        ("m.rms_norm(x, 1e-5)", "m.rms_norm(p, 1e-6)"),
        ("-O3", "-fopenmp"),
    ),
    Entry(
        "accessor_transpose",
        """
torch::Tensor transpose2d(torch::Tensor x) {
    auto out = torch::empty({x.size(1), x.size(0)}, torch::TensorOptions().dtype(x.dtype()).device(x.device()));
    auto a = x.accessor<float, 2>();
    auto o = out.accessor<float, 2>();
    for (int i = 0; i < a.size(0); i++) for (int j = 0; j < a.size(1); j++) o[j][i] = a[i][j];
    return out;
}
""",
        ("transpose2d",),
        ("m.transpose2d(x)", "m.transpose2d(x.t())", "m.transpose2d(p)"),
    ),
    Entry(
        "packed_accessor_bias",
        """
torch::Tensor add_bias(torch::Tensor x, torch::Tensor bias) {
    auto out = torch::empty_like(x);
    auto xa = x.packed_accessor32<float, 2>();
    auto ba = bias.packed_accessor32<float, 1>();
    auto oa = out.packed_accessor32<float, 2>();
    for (int i = 0; i < xa.size(0); i++) for (int j = 0; j < xa.size(1); j++) oa[i][j] = xa[i][j] + ba[j];
    return out;
}
""",
        ("add_bias",),
        ("m.add_bias(x, w[:, 0].contiguous())", "m.add_bias(x, None)"),
    ),
    Entry(
        "vector_results",
        """
#include <vector>
#include <tuple>
std::vector<torch::Tensor> min_max(torch::Tensor x) { return {x.min(), x.max()}; }
std::tuple<torch::Tensor, torch::Tensor, double> moments(torch::Tensor x) {
    auto mean = x.mean();
    return std::make_tuple(mean, (x - mean).pow(2).mean(), 0.5);
}
torch::Tensor stack_all(std::vector<torch::Tensor> parts) { return torch::cat(parts, 0); }
std::vector<int64_t> shape(const torch::Tensor& x) { return x.sizes().vec(); }
""",
        ("min_max", "moments", "stack_all", "shape"),
        (
            "m.min_max(x)",
            "m.min_max(torch.nn.Parameter(x))",
            "m.moments(x)",
            "m.stack_all([x, x])",
            "m.stack_all((t for t in (x, x)))",
            "m.stack_all([x, 1])",
            "m.stack_all(x)",
            "m.stack_all('xx')",
            "m.stack_all([])",
            "m.shape(p)",
        ),
    ),
    Entry(
        "linear_addmm",
        """
torch::Tensor linear_relu(torch::Tensor x, torch::Tensor w, c10::optional<torch::Tensor> bias) {
    auto y = bias.has_value() ? at::addmm(*bias, x, w) : torch::matmul(x, w);
    return torch::relu(y);
}
""",
        ("linear_relu",),
        ("m.linear_relu(x, w, b)", "m.linear_relu(x, w, None)", "m.linear_relu(w, x, None)"),
    ),
    Entry(
        "operators_swish",
        """
torch::Tensor swish(torch::Tensor x) {
    auto y = 1.0 / (1.0 + (-x).exp());
    return (x * y).clamp(-2.0, 2.0) + torch::sigmoid(x) - 0.5 * torch::ones_like(x);
}
""",
        ("swish",),
        ("m.swish(x)", "m.swish(d)"),
        ("-O2",),
    ),
    Entry(
        "own_module",
        """
#include <torch/extension.h>
#include <pybind11/pybind11.h>
namespace py = pybind11;

torch::Tensor forward(torch::Tensor x, float alpha, bool inplace) {
    if (x.numel() == 0) throw std::invalid_argument("empty input");
    TORCH_CHECK(x.is_contiguous(), "x must be contiguous");
    auto out = inplace ? x : x.clone();
    float* p = out.data_ptr<float>();
    for (int64_t i = 0; i < out.numel(); ++i) p[i] = p[i] > 0 ? p[i] : alpha * p[i];
    return out;
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
    m.doc() = "leaky relu";
    m.def("forward", &forward, "Leaky ReLU forward (CPU)",
          py::arg("x"), py::arg("alpha") = 0.01f, py::arg("inplace") = false);
    m.def("version", []() { return std::string("1.0"); });
}
""",
        None,
        (
            "m.forward(x)",
            "m.forward(x, alpha=0.2)",
            "m.forward(x.clone(), 0.2, inplace=True)",
            "m.forward(x, beta=1)",
            "m.forward(x, 0.1, x=x)",
            "m.forward(x[:0])",
            "m.forward(x.t())",
            "m.version()",
            "m.__doc__",
            "m.forward.__doc__",
        ),
    ),
    Entry(
        "own_module_torch_header",
        """
#include <torch/torch.h>
#include <torch/extension.h>
#include <iostream>

void scale_(torch::Tensor& x, const double factor) { x.mul_(factor); }
int64_t count(const at::Tensor x) { return x.numel(); }

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  m.def("scale_", &scale_, "scale in place");
  m.def("count", &count, "elements");
}
""",
        None,
        ("m.scale_(x.clone(), 2.0)", "m.count(p)", "m.count(x, 1)", "m.count([1])"),
    ),
    Entry(
        "conv_window",
        """
#include <torch/extension.h>
torch::Tensor maxpool2(torch::Tensor x, int k, int stride) {
    int64_t n = x.size(0), c = x.size(1), h = (x.size(2) - k) / stride + 1, w = (x.size(3) - k) / stride + 1;
    auto out = torch::full({n, c, h, w}, -std::numeric_limits<float>::infinity(), x.options());
    auto xa = x.accessor<float, 4>();
    auto oa = out.accessor<float, 4>();
    for (int64_t i = 0; i < n; ++i) for (int64_t j = 0; j < c; ++j)
        for (int64_t y = 0; y < h; ++y) for (int64_t z = 0; z < w; ++z)
            for (int u = 0; u < k; ++u) for (int v = 0; v < k; ++v)
                oa[i][j][y][z] = std::max(oa[i][j][y][z], xa[i][j][y * stride + u][z * stride + v]);
    return out;
}
""",
        ("maxpool2",),
        ("m.maxpool2(p, 2, 2)", "m.maxpool2(p, 2.5, 2)", "m.maxpool2(p, 1 << 40, 2)"),
    ),
    Entry(
        "threads_simd",
        """
#include <torch/extension.h>
#include <immintrin.h>
#include <thread>
torch::Tensor add_simd(torch::Tensor a, torch::Tensor b) {
    TORCH_CHECK(a.sizes() == b.sizes(), "shape mismatch: ", a.sizes(), " vs ", b.sizes());
    auto out = torch::empty_like(a);
    const float* pa = a.data_ptr<float>(); const float* pb = b.data_ptr<float>(); float* po = out.data_ptr<float>();
    int64_t n = a.numel();
    std::vector<std::thread> workers;
    for (int t = 0; t < 2; ++t) workers.emplace_back([=] {
        int64_t i = n * t / 2, end = n * (t + 1) / 2;
        for (; i + 8 <= end; i += 8) {
            __m256 sum = _mm256_add_ps(_mm256_loadu_ps(pa + i), _mm256_loadu_ps(pb + i));
            _mm256_storeu_ps(po + i, sum);
        }
        for (; i < end; ++i) po[i] = pa[i] + pb[i];
    });
    for (auto& worker : workers) worker.join();
    return out;
}
""",
        ("add_simd",),
        ("m.add_simd(x, x)", "m.add_simd(x, w)"),
        ("-O3", "-mavx2"),
    ),
    Entry(
        "warning_and_print",
        """
torch::Tensor noisy(torch::Tensor x) {
    TORCH_WARN("slow path for ", x.sizes());
    TORCH_CHECK_VALUE(x.dim() < 4, "too many dimensions");
    if (x.dim() == 3) throw std::runtime_error("three");
    torch::NoGradGuard guard;
    std::vector<float> host(x.data_ptr<float>(), x.data_ptr<float>() + x.numel());
    std::sort(host.begin(), host.end());
    return torch::from_blob(host.data(), {(int64_t)host.size()}, torch::kFloat32).clone();
}
""",
        ("noisy",),
        ("m.noisy(x)", "m.noisy(p)", "m.noisy(p[0])"),
        ("-O1",),
    ),
    Entry(
        "abs_without_std",
        """
torch::Tensor l1(torch::Tensor x) {
    auto out = torch::zeros({}, x.options());
    float s = 0; const float* p = x.data_ptr<float>();
    for (int64_t i = 0; i < x.numel(); ++i) s += abs(p[i]) + pow(p[i], 2) + round(p[i]);
    out.fill_(s);
    return out;
}
""",
        ("l1",),
        ("m.l1(x)",),
        (),
    ),
    Entry(
        "using_namespace",
        """
#include <torch/extension.h>
using namespace at;
Tensor logsumexp_rows(Tensor x) { return log(sum(exp(x - std::get<0>(max(x, 1, true))), 1)); }
""",
        ("logsumexp_rows",),
        ("m.logsumexp_rows(x)",),
        (),
    ),
    Entry(
        "tensor_literal",
        "torch::Tensor half() { return torch::tensor({0.5, 0.25}); }",
        ("half",),
        ("m.half()", "m.half().dtype"),
        (),
    ),
    Entry(
        "functional",
        """
torch::Tensor gelu_linear(torch::Tensor x, torch::Tensor w) {
    namespace F = torch::nn::functional;
    return F::gelu(F::linear(x, w.t()));
}
""",
        ("gelu_linear",),
        ("m.gelu_linear(x, w)",),
        (),
    ),
    Entry(
        "slices",
        """
torch::Tensor halves(torch::Tensor x) {
    using namespace torch::indexing;
    return x.index({Slice(), Slice(None, x.size(1) / 2)}) + x.index({Slice(), Slice(x.size(1) / 2, None)});
}
""",
        ("halves",),
        ("m.halves(x)",),
        (),
    ),
    Entry(
        "unknown_type",
        "torch::Tensor cast(torch::Tensor x, torch::ScalarType t) { return x.to(t); }",
        ("cast",),
        ("m.cast(x, torch.float64).dtype",),
        (),
    ),
    Entry(
        "overloads",
        """
torch::Tensor one(torch::Tensor x) { return x; }
torch::Tensor two(torch::Tensor x, torch::Tensor y) { return x + y; }
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("f", &one); m.def("f", &two); }
""",
        None,
        ("m.f(x)", "m.f(x, x)"),
        (),
    ),
)
