// Complex numbers as values that can be stored: torch's own header reads thrust and <complex> (2.5 s of nvcc for each
// source). A source that computes with them doesn't compile here.
#pragma once

#include <torch/headeronly/macros/Macros.h>
#include <torch/headeronly/util/Half.h>

#include <sstream>

namespace c10 {

template <typename T>
struct alignas(sizeof(T) * 2) complex {
  using value_type = T;
  T real_;
  T imag_;
};

} // namespace c10

HIDDEN_NAMESPACE_BEGIN(torch, headeronly)
using c10::complex;
HIDDEN_NAMESPACE_END(torch, headeronly)
