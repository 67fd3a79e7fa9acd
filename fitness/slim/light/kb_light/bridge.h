// What light code (kb_light/tensor.h) and the one file that sees torch's tensors (kb_light/bridge.cpp) say to each other.
//
// Both sides are linked into the same library. Everything that crosses is plain, or a small value type of c10 whose
// header is cheap; a tensor crosses as the bytes of an at::Tensor, which is one pointer with one owned reference.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/MemoryFormat.h>
#include <c10/core/ScalarType.h>
#include <c10/core/TensorOptions.h>
#include <c10/util/ArrayRef.h>

#include <optional>
#include <string>

struct _object; // PyObject

namespace kb_bridge {

// The bytes of an at::Tensor. Copying a Handle copies no reference.
struct Handle {
  void* impl;
};

// An at::Scalar.
struct Number {
  enum Kind : int { real, whole, truth } kind;
  double as_real;
  int64_t as_whole;
};

struct Pair {
  Handle first;
  Handle second;
};

enum class Access : int { reading, writing, either };

using Sizes = c10::IntArrayRef;
using Handles = c10::ArrayRef<Handle>;
using Format = std::optional<c10::MemoryFormat>;
using Type = std::optional<c10::ScalarType>;

// References.
Handle undefined();
Handle copy(const Handle& tensor);
void drop(Handle& tensor) noexcept;

// Python.
bool from_python(_object* object, Handle& tensor);
_object* to_python(const Handle& tensor);

// What a tensor says about itself.
bool defined(const Handle& tensor);
int64_t dim(const Handle& tensor);
int64_t numel(const Handle& tensor);
int64_t size(const Handle& tensor, int64_t dim);
int64_t stride(const Handle& tensor, int64_t dim);
int64_t storage_offset(const Handle& tensor);
size_t itemsize(const Handle& tensor);
size_t nbytes(const Handle& tensor);
int64_t reference_count(const Handle& tensor);
Sizes sizes(const Handle& tensor);
Sizes strides(const Handle& tensor);
c10::ScalarType scalar_type(const Handle& tensor);
caffe2::TypeMeta dtype(const Handle& tensor);
c10::Device device(const Handle& tensor);
c10::Layout layout(const Handle& tensor);
c10::TensorOptions options(const Handle& tensor);
bool is_contiguous(const Handle& tensor, c10::MemoryFormat format);
bool is_non_overlapping_and_dense(const Handle& tensor);
bool requires_grad(const Handle& tensor);
bool is_sparse(const Handle& tensor);
bool equal_sizes(const Handle& left, const Handle& right);
std::string text(const Handle& tensor);
std::string type_text(const Handle& tensor);
void* bytes(const Handle& tensor, Access access);
// The typed pointers: they check the dtype as torch does.
void* elements(const Handle& tensor, c10::ScalarType type, Access access);

// New tensors.
enum class Fill : int { nothing, zeros, ones };
Handle make(Fill fill, Sizes sizes, const c10::TensorOptions& options, Format format);
Handle make_like(Fill fill, const Handle& tensor, const c10::TensorOptions& options, Format format);
Handle make_new(Fill fill, const Handle& tensor, Sizes sizes, const c10::TensorOptions& options);
Handle full(Sizes sizes, const Number& value, const c10::TensorOptions& options);
Handle full_like(const Handle& tensor, const Number& value, const c10::TensorOptions& options, Format format);
Handle empty_strided(Sizes sizes, Sizes strides, const c10::TensorOptions& options);
Handle arange(const Number& start, const Number& end, const Number& step, const c10::TensorOptions& options);

// The same values elsewhere, or otherwise.
Handle contiguous(const Handle& tensor, c10::MemoryFormat format);
Handle clone(const Handle& tensor, Format format);
Handle detach(const Handle& tensor);
Handle to_options(const Handle& tensor, const c10::TensorOptions& options, bool non_blocking, bool copy, Format format);
Handle to_type(const Handle& tensor, c10::ScalarType type, bool non_blocking, bool copy, Format format);
Handle to_device(
    const Handle& tensor, c10::Device device, c10::ScalarType type, bool non_blocking, bool copy, Format format);
void copy_(const Handle& into, const Handle& from, bool non_blocking);
void fill_(const Handle& tensor, const Number& value);
void zero_(const Handle& tensor);
Number item(const Handle& tensor);
// Writes item<T>() for the T that `type` names.
void item_as(const Handle& tensor, c10::ScalarType type, void* into);

// Views.
Handle view(const Handle& tensor, Sizes sizes);
Handle reshape(const Handle& tensor, Sizes sizes);
Handle expand(const Handle& tensor, Sizes sizes, bool implicit);
Handle permute(const Handle& tensor, Sizes dims);
Handle transpose(const Handle& tensor, int64_t first, int64_t second);
Handle squeeze(const Handle& tensor);
Handle squeeze_dim(const Handle& tensor, int64_t dim);
Handle unsqueeze(const Handle& tensor, int64_t dim);
Handle flatten(const Handle& tensor, int64_t first, int64_t last);
Handle select(const Handle& tensor, int64_t dim, int64_t index);
Handle slice(
    const Handle& tensor, int64_t dim, std::optional<int64_t> start, std::optional<int64_t> end, int64_t step);
Handle narrow(const Handle& tensor, int64_t dim, int64_t start, int64_t length);

// Reductions.
Handle sum_dims(const Handle& tensor, std::optional<Sizes> dims, bool keepdim, Type type);
Handle mean_dims(const Handle& tensor, std::optional<Sizes> dims, bool keepdim, Type type);
Handle amax(const Handle& tensor, Sizes dims, bool keepdim);
Handle amin(const Handle& tensor, Sizes dims, bool keepdim);
Handle argmax(const Handle& tensor, std::optional<int64_t> dim, bool keepdim);
Handle argmin(const Handle& tensor, std::optional<int64_t> dim, bool keepdim);
Pair max_dim(const Handle& tensor, int64_t dim, bool keepdim);
Pair min_dim(const Handle& tensor, int64_t dim, bool keepdim);
Handle softmax(const Handle& tensor, int64_t dim, Type type);
Handle log_softmax(const Handle& tensor, int64_t dim, Type type);

// Several tensors.
Handle cat(Handles tensors, int64_t dim);
Handle stack(Handles tensors, int64_t dim);
Handle addmm(const Handle& bias, const Handle& left, const Handle& right, const Number& beta, const Number& alpha);
Handle linear(const Handle& input, const Handle& weight, const Handle& bias);

// One tensor in, one out: f(tensor), and tensor.f().
#define KB_LIGHT_UNARY(row) \
  row(abs) row(exp) row(log) row(sqrt) row(rsqrt) row(sigmoid) row(tanh) row(relu) row(neg) row(sin) row(cos) \
  row(erf) row(floor) row(ceil) row(round) row(square) row(reciprocal) row(log1p) row(expm1) row(t) row(sum) \
  row(mean) row(max) row(min) row(prod)

// In place: tensor.f_().
#define KB_LIGHT_UNARY_INPLACE(row) row(abs_) row(exp_) row(sqrt_) row(sigmoid_) row(tanh_) row(relu_) row(neg_)

// Two tensors in, one out.
#define KB_LIGHT_BINARY(row) \
  row(mul) row(div) row(matmul) row(mm) row(bmm) row(mv) row(dot) row(maximum) row(minimum) row(pow)

// The second one is a number.
#define KB_LIGHT_NUMERIC(row) row(mul) row(div) row(pow)

#define KB_LIGHT_DECLARE_UNARY(name) Handle name(const Handle& tensor);
#define KB_LIGHT_DECLARE_INPLACE(name) void name(const Handle& tensor);
#define KB_LIGHT_DECLARE_BINARY(name) Handle name(const Handle& left, const Handle& right);
#define KB_LIGHT_DECLARE_NUMERIC(name) Handle name(const Handle& left, const Number& right);
KB_LIGHT_UNARY(KB_LIGHT_DECLARE_UNARY)
KB_LIGHT_UNARY_INPLACE(KB_LIGHT_DECLARE_INPLACE)
KB_LIGHT_BINARY(KB_LIGHT_DECLARE_BINARY)
KB_LIGHT_NUMERIC(KB_LIGHT_DECLARE_NUMERIC)
#undef KB_LIGHT_DECLARE_UNARY
#undef KB_LIGHT_DECLARE_INPLACE
#undef KB_LIGHT_DECLARE_BINARY
#undef KB_LIGHT_DECLARE_NUMERIC

Handle add(const Handle& left, const Handle& right, const Number& alpha);
Handle add(const Handle& left, const Number& right, const Number& alpha);
Handle sub(const Handle& left, const Handle& right, const Number& alpha);
Handle sub(const Handle& left, const Number& right, const Number& alpha);
// number - tensor, number / tensor
Handle rsub(const Number& left, const Handle& right);
Handle rdiv(const Number& left, const Handle& right);
void add_(const Handle& left, const Handle& right, const Number& alpha);
void add_(const Handle& left, const Number& right, const Number& alpha);
void sub_(const Handle& left, const Handle& right, const Number& alpha);
void sub_(const Handle& left, const Number& right, const Number& alpha);
void mul_(const Handle& left, const Handle& right);
void mul_(const Handle& left, const Number& right);
void div_(const Handle& left, const Handle& right);
void div_(const Handle& left, const Number& right);

} // namespace kb_bridge
