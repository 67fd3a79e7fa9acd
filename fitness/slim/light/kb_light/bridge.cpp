// The other side of kb_light/bridge.h: compiled once per torch and compiler with torch's own tensors, and linked into
// every library that was compiled with the light headers.
#include <torch/extension.h>

#include <ATen/core/IListRef.h>
#include <ATen/ops/abs.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/full.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include "bridge.h"

namespace kb_bridge {

namespace {

static_assert(sizeof(at::Tensor) == sizeof(Handle) && alignof(at::Tensor) == alignof(Handle));

const at::Tensor& real(const Handle& handle) {
  return *reinterpret_cast<const at::Tensor*>(&handle);
}

Handle give(at::Tensor tensor) {
  return {tensor.unsafeReleaseTensorImpl()};
}

Pair give(std::tuple<at::Tensor, at::Tensor> pair) {
  return {give(std::move(std::get<0>(pair))), give(std::move(std::get<1>(pair)))};
}

at::Scalar scalar(const Number& number) {
  switch (number.kind) {
    case Number::real:
      return number.as_real;
    case Number::whole:
      return number.as_whole;
    default:
      return number.as_whole != 0;
  }
}

std::vector<at::Tensor> list(Handles handles) {
  std::vector<at::Tensor> tensors;
  for (const Handle& handle : handles) {
    tensors.push_back(real(handle));
  }
  return tensors;
}

} // namespace

Handle undefined() { return give(at::Tensor()); }
Handle copy(const Handle& tensor) { return give(real(tensor)); }
void drop(Handle& tensor) noexcept { reinterpret_cast<at::Tensor*>(&tensor)->~Tensor(); }

bool from_python(_object* object, Handle& tensor) {
  at::Tensor found;
  if (!kb_slim::Convert<at::Tensor>::load(object, found)) {
    return false;
  }
  tensor = give(std::move(found));
  return true;
}
_object* to_python(const Handle& tensor) { return kb_slim::Convert<at::Tensor>::cast(real(tensor)); }

bool defined(const Handle& tensor) { return real(tensor).defined(); }
int64_t dim(const Handle& tensor) { return real(tensor).dim(); }
int64_t numel(const Handle& tensor) { return real(tensor).numel(); }
int64_t size(const Handle& tensor, int64_t dim) { return real(tensor).size(dim); }
int64_t stride(const Handle& tensor, int64_t dim) { return real(tensor).stride(dim); }
int64_t storage_offset(const Handle& tensor) { return real(tensor).storage_offset(); }
size_t itemsize(const Handle& tensor) { return real(tensor).itemsize(); }
size_t nbytes(const Handle& tensor) { return real(tensor).nbytes(); }
int64_t reference_count(const Handle& tensor) { return static_cast<int64_t>(real(tensor).use_count()); }
Sizes sizes(const Handle& tensor) { return real(tensor).sizes(); }
Sizes strides(const Handle& tensor) { return real(tensor).strides(); }
c10::ScalarType scalar_type(const Handle& tensor) { return real(tensor).scalar_type(); }
caffe2::TypeMeta dtype(const Handle& tensor) { return real(tensor).dtype(); }
c10::Device device(const Handle& tensor) { return real(tensor).device(); }
c10::Layout layout(const Handle& tensor) { return real(tensor).layout(); }
c10::TensorOptions options(const Handle& tensor) { return real(tensor).options(); }
bool is_contiguous(const Handle& tensor, c10::MemoryFormat format) { return real(tensor).is_contiguous(format); }
bool is_non_overlapping_and_dense(const Handle& tensor) { return real(tensor).is_non_overlapping_and_dense(); }
bool requires_grad(const Handle& tensor) { return real(tensor).requires_grad(); }
bool is_sparse(const Handle& tensor) { return real(tensor).is_sparse(); }
bool equal_sizes(const Handle& left, const Handle& right) { return real(left).is_same_size(real(right)); }
std::string text(const Handle& tensor) {
  std::ostringstream stream;
  stream << real(tensor);
  return stream.str();
}
std::string type_text(const Handle& tensor) { return real(tensor).toString(); }

void* bytes(const Handle& tensor, Access access) {
  switch (access) {
    case Access::reading:
      return const_cast<void*>(real(tensor).const_data_ptr());
    case Access::writing:
      return real(tensor).mutable_data_ptr();
    default:
      return real(tensor).data_ptr();
  }
}

void* elements(const Handle& tensor, c10::ScalarType type, Access access) {
  switch (type) {
#define KB_LIGHT_CASE(ctype, name)                                              \
  case c10::ScalarType::name:                                                   \
    switch (access) {                                                           \
      case Access::reading:                                                     \
        return const_cast<ctype*>(real(tensor).const_data_ptr<ctype>());        \
      case Access::writing:                                                     \
        return real(tensor).mutable_data_ptr<ctype>();                          \
      default:                                                                  \
        return real(tensor).data_ptr<ctype>();                                  \
    }
    AT_FORALL_SCALAR_TYPES_AND3(Bool, Half, BFloat16, KB_LIGHT_CASE)
#undef KB_LIGHT_CASE
    default:
      TORCH_CHECK(false, "no typed pointer for ", type);
  }
}

Handle make(Fill fill, Sizes sizes, const c10::TensorOptions& options, Format format) {
  switch (fill) {
    case Fill::zeros:
      return give(at::zeros(sizes, options));
    case Fill::ones:
      return give(at::ones(sizes, options));
    default:
      return give(at::empty(sizes, options, format));
  }
}
Handle make_like(Fill fill, const Handle& tensor, const c10::TensorOptions& options, Format format) {
  switch (fill) {
    case Fill::zeros:
      return give(at::zeros_like(real(tensor), options, format));
    case Fill::ones:
      return give(at::ones_like(real(tensor), options, format));
    default:
      return give(at::empty_like(real(tensor), options, format));
  }
}
Handle make_new(Fill fill, const Handle& tensor, Sizes sizes, const c10::TensorOptions& options) {
  switch (fill) {
    case Fill::zeros:
      return give(real(tensor).new_zeros(sizes, options));
    case Fill::ones:
      return give(real(tensor).new_ones(sizes, options));
    default:
      return give(real(tensor).new_empty(sizes, options));
  }
}
Handle full(Sizes sizes, const Number& value, const c10::TensorOptions& options) {
  return give(at::full(sizes, scalar(value), options));
}
Handle full_like(const Handle& tensor, const Number& value, const c10::TensorOptions& options, Format format) {
  return give(at::full_like(real(tensor), scalar(value), options, format));
}
Handle empty_strided(Sizes sizes, Sizes strides, const c10::TensorOptions& options) {
  return give(at::empty_strided(sizes, strides, options));
}
Handle arange(const Number& start, const Number& end, const Number& step, const c10::TensorOptions& options) {
  return give(at::arange(scalar(start), scalar(end), scalar(step), options));
}

Handle contiguous(const Handle& tensor, c10::MemoryFormat format) { return give(real(tensor).contiguous(format)); }
Handle clone(const Handle& tensor, Format format) { return give(real(tensor).clone(format)); }
Handle detach(const Handle& tensor) { return give(real(tensor).detach()); }
Handle to_options(const Handle& tensor, const c10::TensorOptions& options, bool non_blocking, bool copy, Format format) {
  return give(real(tensor).to(options, non_blocking, copy, format));
}
Handle to_type(const Handle& tensor, c10::ScalarType type, bool non_blocking, bool copy, Format format) {
  return give(real(tensor).to(type, non_blocking, copy, format));
}
Handle to_device(
    const Handle& tensor, c10::Device device, c10::ScalarType type, bool non_blocking, bool copy, Format format) {
  return give(real(tensor).to(device, type, non_blocking, copy, format));
}
void copy_(const Handle& into, const Handle& from, bool non_blocking) { real(into).copy_(real(from), non_blocking); }
void fill_(const Handle& tensor, const Number& value) { real(tensor).fill_(scalar(value)); }
void zero_(const Handle& tensor) { real(tensor).zero_(); }
Number item(const Handle& tensor) {
  const at::Scalar value = real(tensor).item();
  TORCH_CHECK(!value.isComplex(), "a complex number needs torch's own headers");
  if (value.isBoolean()) {
    return {Number::truth, 0.0, value.toBool() ? 1 : 0};
  }
  return value.isFloatingPoint() ? Number{Number::real, value.toDouble(), 0} : Number{Number::whole, 0.0, value.toLong()};
}
void item_as(const Handle& tensor, c10::ScalarType type, void* into) {
  switch (type) {
#define KB_LIGHT_CASE(ctype, name)                        \
  case c10::ScalarType::name:                             \
    *static_cast<ctype*>(into) = real(tensor).item<ctype>(); \
    return;
    AT_FORALL_SCALAR_TYPES_AND3(Bool, Half, BFloat16, KB_LIGHT_CASE)
#undef KB_LIGHT_CASE
    default:
      TORCH_CHECK(false, "no number of type ", type);
  }
}

Handle view(const Handle& tensor, Sizes sizes) { return give(real(tensor).view(sizes)); }
Handle reshape(const Handle& tensor, Sizes sizes) { return give(real(tensor).reshape(sizes)); }
Handle expand(const Handle& tensor, Sizes sizes, bool implicit) { return give(real(tensor).expand(sizes, implicit)); }
Handle permute(const Handle& tensor, Sizes dims) { return give(real(tensor).permute(dims)); }
Handle transpose(const Handle& tensor, int64_t first, int64_t second) {
  return give(real(tensor).transpose(first, second));
}
Handle squeeze(const Handle& tensor) { return give(real(tensor).squeeze()); }
Handle squeeze_dim(const Handle& tensor, int64_t dim) { return give(real(tensor).squeeze(dim)); }
Handle unsqueeze(const Handle& tensor, int64_t dim) { return give(real(tensor).unsqueeze(dim)); }
Handle flatten(const Handle& tensor, int64_t first, int64_t last) { return give(real(tensor).flatten(first, last)); }
Handle select(const Handle& tensor, int64_t dim, int64_t index) { return give(real(tensor).select(dim, index)); }
Handle slice(
    const Handle& tensor, int64_t dim, std::optional<int64_t> start, std::optional<int64_t> end, int64_t step) {
  return give(real(tensor).slice(dim, start, end, step));
}
Handle narrow(const Handle& tensor, int64_t dim, int64_t start, int64_t length) {
  return give(real(tensor).narrow(dim, start, length));
}

Handle sum_dims(const Handle& tensor, std::optional<Sizes> dims, bool keepdim, Type type) {
  return give(real(tensor).sum(dims, keepdim, type));
}
Handle mean_dims(const Handle& tensor, std::optional<Sizes> dims, bool keepdim, Type type) {
  return give(real(tensor).mean(dims, keepdim, type));
}
Handle amax(const Handle& tensor, Sizes dims, bool keepdim) { return give(real(tensor).amax(dims, keepdim)); }
Handle amin(const Handle& tensor, Sizes dims, bool keepdim) { return give(real(tensor).amin(dims, keepdim)); }
Handle argmax(const Handle& tensor, std::optional<int64_t> dim, bool keepdim) {
  return give(real(tensor).argmax(dim, keepdim));
}
Handle argmin(const Handle& tensor, std::optional<int64_t> dim, bool keepdim) {
  return give(real(tensor).argmin(dim, keepdim));
}
Pair max_dim(const Handle& tensor, int64_t dim, bool keepdim) { return give(real(tensor).max(dim, keepdim)); }
Pair min_dim(const Handle& tensor, int64_t dim, bool keepdim) { return give(real(tensor).min(dim, keepdim)); }
Handle softmax(const Handle& tensor, int64_t dim, Type type) { return give(real(tensor).softmax(dim, type)); }
Handle log_softmax(const Handle& tensor, int64_t dim, Type type) { return give(real(tensor).log_softmax(dim, type)); }

Handle cat(Handles tensors, int64_t dim) { return give(at::cat(list(tensors), dim)); }
Handle stack(Handles tensors, int64_t dim) { return give(at::stack(list(tensors), dim)); }
Handle addmm(const Handle& bias, const Handle& left, const Handle& right, const Number& beta, const Number& alpha) {
  return give(at::addmm(real(bias), real(left), real(right), scalar(beta), scalar(alpha)));
}
Handle linear(const Handle& input, const Handle& weight, const Handle& bias) {
  std::optional<at::Tensor> given;
  if (real(bias).defined()) {
    given = real(bias);
  }
  return give(at::linear(real(input), real(weight), given));
}

#define KB_LIGHT_DEFINE_UNARY(name) \
  Handle name(const Handle& tensor) { return give(real(tensor).name()); }
#define KB_LIGHT_DEFINE_INPLACE(name) \
  void name(const Handle& tensor) { real(tensor).name(); }
#define KB_LIGHT_DEFINE_BINARY(name) \
  Handle name(const Handle& left, const Handle& right) { return give(real(left).name(real(right))); }
#define KB_LIGHT_DEFINE_NUMERIC(name) \
  Handle name(const Handle& left, const Number& right) { return give(real(left).name(scalar(right))); }
KB_LIGHT_UNARY(KB_LIGHT_DEFINE_UNARY)
KB_LIGHT_UNARY_INPLACE(KB_LIGHT_DEFINE_INPLACE)
KB_LIGHT_BINARY(KB_LIGHT_DEFINE_BINARY)
KB_LIGHT_NUMERIC(KB_LIGHT_DEFINE_NUMERIC)

Handle add(const Handle& left, const Handle& right, const Number& alpha) {
  return give(real(left).add(real(right), scalar(alpha)));
}
Handle add(const Handle& left, const Number& right, const Number& alpha) {
  return give(real(left).add(scalar(right), scalar(alpha)));
}
Handle sub(const Handle& left, const Handle& right, const Number& alpha) {
  return give(real(left).sub(real(right), scalar(alpha)));
}
Handle sub(const Handle& left, const Number& right, const Number& alpha) {
  return give(real(left).sub(scalar(right), scalar(alpha)));
}
Handle rsub(const Number& left, const Handle& right) { return give(scalar(left) - real(right)); }
Handle rdiv(const Number& left, const Handle& right) { return give(scalar(left) / real(right)); }
void add_(const Handle& left, const Handle& right, const Number& alpha) { real(left).add_(real(right), scalar(alpha)); }
void add_(const Handle& left, const Number& right, const Number& alpha) {
  real(left).add_(scalar(right), scalar(alpha));
}
void sub_(const Handle& left, const Handle& right, const Number& alpha) { real(left).sub_(real(right), scalar(alpha)); }
void sub_(const Handle& left, const Number& right, const Number& alpha) {
  real(left).sub_(scalar(right), scalar(alpha));
}
void mul_(const Handle& left, const Handle& right) { real(left).mul_(real(right)); }
void mul_(const Handle& left, const Number& right) { real(left).mul_(scalar(right)); }
void div_(const Handle& left, const Handle& right) { real(left).div_(real(right)); }
void div_(const Handle& left, const Number& right) { real(left).div_(scalar(right)); }

} // namespace kb_bridge
