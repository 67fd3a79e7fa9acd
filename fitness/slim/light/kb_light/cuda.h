// What kernels use of <ATen/cuda/CUDAContext.h> and <c10/cuda/CUDAGuard.h>; torch's own pull in cuBLAS, cuSPARSE,
// cuSOLVER, the caching allocator and IValue. A source that names a cuBLAS handle doesn't compile here.
#pragma once

#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>
#include <kb_light/torch.h>

// Exported by libtorch_cuda (ATen/cuda/CUDAContextLight.h, 2.11 and 2.13).
namespace at::cuda {
cudaDeviceProp* getCurrentDeviceProperties();
cudaDeviceProp* getDeviceProperties(c10::DeviceIndex device);
int warp_size();
} // namespace at::cuda

#ifndef AT_CUDA_CHECK
#define AT_CUDA_CHECK(expression) C10_CUDA_CHECK(expression)
#endif

namespace kb_light {

// Makes a device the current one for as long as it lives.
class CUDAGuard {
 public:
  explicit CUDAGuard(c10::DeviceIndex index) : original_(c10::cuda::ExchangeDevice(index)), current_(index) {}
  explicit CUDAGuard(c10::Device device) : CUDAGuard(checked(device)) {}
  CUDAGuard(const CUDAGuard&) = delete;
  CUDAGuard& operator=(const CUDAGuard&) = delete;
  ~CUDAGuard() { c10::cuda::MaybeSetDevice(original_); }

  void set_index(c10::DeviceIndex index) {
    c10::cuda::SetDevice(index);
    current_ = index;
  }
  void set_device(c10::Device device) { set_index(checked(device)); }
  c10::Device original_device() const { return {c10::DeviceType::CUDA, original_}; }
  c10::Device current_device() const { return {c10::DeviceType::CUDA, current_}; }

 private:
  static c10::DeviceIndex checked(c10::Device device) {
    TORCH_CHECK(device.is_cuda(), "expected a CUDA device, found ", device);
    return device.has_index() ? device.index() : c10::cuda::current_device();
  }

  c10::DeviceIndex original_;
  c10::DeviceIndex current_;
};

// A guard that does nothing without a device.
class OptionalCUDAGuard {
 public:
  OptionalCUDAGuard() = default;
  explicit OptionalCUDAGuard(std::optional<c10::Device> device) {
    if (device) {
      guard_.emplace(*device);
    }
  }

 private:
  std::optional<CUDAGuard> guard_;
};

} // namespace kb_light

namespace c10::cuda {
using kb_light::CUDAGuard;
using kb_light::OptionalCUDAGuard;
} // namespace c10::cuda
