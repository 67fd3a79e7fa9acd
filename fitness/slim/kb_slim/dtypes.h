// The names of torch/types.h: everything of at::, and dtypes by their width.
#pragma once

#include <optional>

namespace torch {

using namespace at;
using std::nullopt;
using std::optional;
using Dtype = at::ScalarType;

#define KB_SLIM_DTYPE(long_name, short_name, source) \
  constexpr auto long_name = at::source;             \
  constexpr auto short_name = at::source;

KB_SLIM_DTYPE(kUInt8, kU8, kByte)
KB_SLIM_DTYPE(kInt8, kI8, kChar)
KB_SLIM_DTYPE(kInt16, kI16, kShort)
KB_SLIM_DTYPE(kInt32, kI32, kInt)
KB_SLIM_DTYPE(kInt64, kI64, kLong)
KB_SLIM_DTYPE(kFloat16, kF16, kHalf)
KB_SLIM_DTYPE(kFloat32, kF32, kFloat)
KB_SLIM_DTYPE(kFloat64, kF64, kDouble)

#undef KB_SLIM_DTYPE

} // namespace torch
