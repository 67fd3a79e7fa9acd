// What <torch/extension.h> gives to a typical kernel, without the parts that take 20 s to parse.
//
// Must be included before any other torch header: it selects torch's per-operator headers, so that a
// source pays only for the operators that it names (fitness/inline.py adds them with -include).
// Left out on purpose: torch::nn, autograd functions, jit, the dispatcher's registration, Context and
// DeviceGuard (they pull in IValue, 1.7 s), and torch::tensor (at::tensor differs: other default dtype).
// A source that needs any of these doesn't compile here and is compiled with torch's own headers.
#pragma once

#ifndef AT_PER_OPERATOR_HEADERS
#define AT_PER_OPERATOR_HEADERS
#endif

#include <math.h>
#include <stdlib.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <iostream>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <tuple>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Formatting.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/TensorAccessor.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/TensorOptions.h>
#include <c10/util/Exception.h>
#include <c10/util/irange.h>

#include <kb_slim/dtypes.h>
