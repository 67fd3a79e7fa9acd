// What <torch/types.h> gives to a typical CUDA source, at a tenth of the price: nvcc reads every header three times.
//
// Dtypes, devices, options, sizes, errors, accessors and dispatch macros are torch's own; the tensor is kb_light's.
// Which further headers a source needs (streams, std:: names) fitness/backends/cuda.py adds with -include.
#pragma once

#include <math.h>
#include <stdlib.h>

#include <algorithm>
#include <array>
#include <cfloat>
#include <climits>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <iostream>
#include <limits>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <ATen/Dispatch.h>
#include <kb_light/tensor.h>

namespace at {

using kb_light::Scalar;
using kb_light::Tensor;
using TensorList = c10::ArrayRef<Tensor>;

} // namespace at

namespace kb_light {

inline kb_bridge::Handles handles(at::TensorList tensors) {
  return {reinterpret_cast<const Handle*>(tensors.data()), tensors.size()};
}

// torch's functions. Namespaces at and torch see all of them; an unqualified call finds them by its tensor.
inline namespace functions {

using Options = c10::TensorOptions;

inline std::optional<c10::Device> device_of(const Tensor& tensor) {
  return tensor.defined() ? std::optional<c10::Device>(tensor.device()) : std::nullopt;
}

#define KB_LIGHT_MAKE(name, fill)                                                                           \
  inline Tensor name(Sizes sizes, Options options = {}, Format format = std::nullopt) {                     \
    return Tensor(kb_bridge::make(fill, sizes, options, format));                                           \
  }                                                                                                         \
  inline Tensor name##_like(const Tensor& tensor, Options options = {}, Format format = std::nullopt) {     \
    return Tensor(kb_bridge::make_like(fill, tensor.handle(), options, format));                            \
  }
KB_LIGHT_MAKE(empty, Fill::nothing)
#undef KB_LIGHT_MAKE
#define KB_LIGHT_MAKE(name, fill)                                                                           \
  inline Tensor name(Sizes sizes, Options options = {}) {                                                   \
    return Tensor(kb_bridge::make(fill, sizes, options, std::nullopt));                                     \
  }                                                                                                         \
  inline Tensor name##_like(const Tensor& tensor, Options options = {}, Format format = std::nullopt) {     \
    return Tensor(kb_bridge::make_like(fill, tensor.handle(), options, format));                            \
  }
KB_LIGHT_MAKE(zeros, Fill::zeros)
KB_LIGHT_MAKE(ones, Fill::ones)
#undef KB_LIGHT_MAKE

inline Tensor full(Sizes sizes, const Scalar& value, Options options = {}) {
  return Tensor(kb_bridge::full(sizes, value.number(), options));
}
inline Tensor full_like(const Tensor& tensor, const Scalar& value, Options options = {}, Format format = std::nullopt) {
  return Tensor(kb_bridge::full_like(tensor.handle(), value.number(), options, format));
}
inline Tensor empty_strided(Sizes sizes, Sizes strides, Options options = {}) {
  return Tensor(kb_bridge::empty_strided(sizes, strides, options));
}
inline Tensor arange(const Scalar& end, Options options = {}) {
  return Tensor(kb_bridge::arange(Scalar(0).number(), end.number(), Scalar(1).number(), options));
}
inline Tensor arange(const Scalar& start, const Scalar& end, Options options = {}) {
  return Tensor(kb_bridge::arange(start.number(), end.number(), Scalar(1).number(), options));
}
inline Tensor arange(const Scalar& start, const Scalar& end, const Scalar& step, Options options = {}) {
  return Tensor(kb_bridge::arange(start.number(), end.number(), step.number(), options));
}
inline Tensor cat(at::TensorList tensors, int64_t dim = 0) { return Tensor(kb_bridge::cat(handles(tensors), dim)); }
inline Tensor stack(at::TensorList tensors, int64_t dim = 0) { return Tensor(kb_bridge::stack(handles(tensors), dim)); }
inline Tensor addmm(
    const Tensor& bias, const Tensor& left, const Tensor& right, const Scalar& beta = 1, const Scalar& alpha = 1) {
  return Tensor(kb_bridge::addmm(bias.handle(), left.handle(), right.handle(), beta.number(), alpha.number()));
}
inline Tensor linear(const Tensor& input, const Tensor& weight, const std::optional<Tensor>& bias = {}) {
  const Tensor given = bias.value_or(Tensor());
  return Tensor(kb_bridge::linear(input.handle(), weight.handle(), given.handle()));
}

#define KB_LIGHT_FUNCTION(name) \
  inline Tensor name(const Tensor& tensor) { return tensor.name(); }
KB_LIGHT_UNARY(KB_LIGHT_FUNCTION)
#undef KB_LIGHT_FUNCTION
#define KB_LIGHT_FUNCTION(name) \
  inline Tensor name(const Tensor& left, const Tensor& right) { return left.name(right); }
KB_LIGHT_BINARY(KB_LIGHT_FUNCTION)
#undef KB_LIGHT_FUNCTION
#define KB_LIGHT_FUNCTION(name)                                                                          \
  inline Tensor name(const Tensor& left, const Tensor& right, const Scalar& alpha = 1) {                 \
    return left.name(right, alpha);                                                                      \
  }                                                                                                      \
  inline Tensor name(const Tensor& left, const Scalar& right, const Scalar& alpha = 1) {                 \
    return left.name(right, alpha);                                                                      \
  }
KB_LIGHT_FUNCTION(add)
KB_LIGHT_FUNCTION(sub)
#undef KB_LIGHT_FUNCTION
#define KB_LIGHT_FUNCTION(name) \
  inline Tensor name(const Tensor& left, const Scalar& right) { return left.name(right); }
KB_LIGHT_NUMERIC(KB_LIGHT_FUNCTION)
#undef KB_LIGHT_FUNCTION

inline Tensor sum(const Tensor& tensor, const Dims& dims, bool keepdim = false, Type type = std::nullopt) {
  return tensor.sum(dims, keepdim, type);
}
inline Tensor mean(const Tensor& tensor, const Dims& dims, bool keepdim = false, Type type = std::nullopt) {
  return tensor.mean(dims, keepdim, type);
}
inline std::tuple<Tensor, Tensor> max(const Tensor& tensor, int64_t dim, bool keepdim = false) {
  return tensor.max(dim, keepdim);
}
inline std::tuple<Tensor, Tensor> min(const Tensor& tensor, int64_t dim, bool keepdim = false) {
  return tensor.min(dim, keepdim);
}
inline Tensor softmax(const Tensor& tensor, int64_t dim, Type type = std::nullopt) { return tensor.softmax(dim, type); }
inline Tensor transpose(const Tensor& tensor, int64_t first, int64_t second) { return tensor.transpose(first, second); }
inline Tensor reshape(const Tensor& tensor, Sizes sizes) { return tensor.reshape(sizes); }

} // namespace functions

// Operators are found by the tensor's namespace.
#define KB_LIGHT_OPERATOR(symbol, name)                                                             \
  inline Tensor operator symbol(const Tensor& left, const Tensor& right) { return left.name(right); } \
  inline Tensor operator symbol(const Tensor& left, const Scalar& right) { return left.name(right); }
KB_LIGHT_OPERATOR(+, add)
KB_LIGHT_OPERATOR(-, sub)
KB_LIGHT_OPERATOR(*, mul)
KB_LIGHT_OPERATOR(/, div)
#undef KB_LIGHT_OPERATOR
inline Tensor operator+(const Scalar& left, const Tensor& right) { return right.add(left); }
inline Tensor operator*(const Scalar& left, const Tensor& right) { return right.mul(left); }
inline Tensor operator-(const Scalar& left, const Tensor& right) {
  return Tensor(kb_bridge::rsub(left.number(), right.handle()));
}
inline Tensor operator/(const Scalar& left, const Tensor& right) {
  return Tensor(kb_bridge::rdiv(left.number(), right.handle()));
}

} // namespace kb_light

namespace at {
using namespace kb_light::functions;
}

#include <kb_slim/dtypes.h>
