// at::Tensor as light code sees it: one owned reference, every operation a call into kb_light/bridge.cpp.
//
// Not a class named at::Tensor, which would share symbols with torch's own; namespaces at and torch get an alias. What
// isn't here makes the compilation fail, which sends the source to torch's own headers. Nothing may be here that means
// something else than in torch.
#pragma once

#include <ATen/core/TensorAccessor.h>
#include <c10/core/ScalarTypeToTypeMeta.h>
#include <c10/util/Exception.h>
#include <c10/util/OptionalArrayRef.h>
#include <kb_light/scalar.h>

#include <tuple>
#include <utility>
#include <vector>

namespace kb_light {

using kb_bridge::Access;
using kb_bridge::Fill;
using kb_bridge::Format;
using kb_bridge::Handle;
using kb_bridge::Sizes;
using kb_bridge::Type;
using Dims = at::OptionalIntArrayRef;

inline std::optional<Sizes> plain(const Dims& dims) {
  return dims.has_value() ? std::optional<Sizes>(*dims) : std::nullopt;
}

class Tensor {
 public:
  Tensor() : handle_(kb_bridge::undefined()) {}
  // Takes over the reference.
  explicit Tensor(Handle handle) : handle_(handle) {}
  Tensor(const Tensor& other) : handle_(kb_bridge::copy(other.handle_)) {}
  Tensor(Tensor&& other) noexcept : handle_(std::exchange(other.handle_, kb_bridge::undefined())) {}
  ~Tensor() { kb_bridge::drop(handle_); }

  Tensor& operator=(const Tensor& other) & {
    Tensor fresh(other);
    std::swap(handle_, fresh.handle_);
    return *this;
  }
  Tensor& operator=(Tensor&& other) & noexcept {
    Tensor fresh(std::move(other));
    std::swap(handle_, fresh.handle_);
    return *this;
  }
  // An assignment to an expression (x[0] = y) writes into the tensor, as torch has it.
  Tensor& operator=(const Tensor& other) && { return copy_(other); }
  Tensor& operator=(Tensor&& other) && { return copy_(other); }
  Tensor& operator=(const Scalar& value) && { return fill_(value); }

  const Handle& handle() const { return handle_; }
  void reset() { *this = Tensor(); }

  bool defined() const { return kb_bridge::defined(handle_); }
  int64_t dim() const { return kb_bridge::dim(handle_); }
  int64_t ndimension() const { return dim(); }
  int64_t numel() const { return kb_bridge::numel(handle_); }
  int64_t size(int64_t dim) const { return kb_bridge::size(handle_, dim); }
  int64_t stride(int64_t dim) const { return kb_bridge::stride(handle_, dim); }
  int64_t storage_offset() const { return kb_bridge::storage_offset(handle_); }
  size_t itemsize() const { return kb_bridge::itemsize(handle_); }
  int64_t element_size() const { return static_cast<int64_t>(itemsize()); }
  size_t nbytes() const { return kb_bridge::nbytes(handle_); }
  size_t use_count() const { return static_cast<size_t>(kb_bridge::reference_count(handle_)); }
  Sizes sizes() const { return kb_bridge::sizes(handle_); }
  Sizes strides() const { return kb_bridge::strides(handle_); }
  c10::ScalarType scalar_type() const { return kb_bridge::scalar_type(handle_); }
  caffe2::TypeMeta dtype() const { return kb_bridge::dtype(handle_); }
  c10::Device device() const { return kb_bridge::device(handle_); }
  c10::DeviceIndex get_device() const { return device().index(); }
  c10::Layout layout() const { return kb_bridge::layout(handle_); }
  c10::TensorOptions options() const { return kb_bridge::options(handle_); }
  bool is_cuda() const { return defined() && device().is_cuda(); }
  bool is_cpu() const { return defined() && device().is_cpu(); }
  bool is_sparse() const { return kb_bridge::is_sparse(handle_); }
  bool is_floating_point() const { return c10::isFloatingType(scalar_type()); }
  bool is_complex() const { return c10::isComplexType(scalar_type()); }
  bool is_contiguous(c10::MemoryFormat format = c10::MemoryFormat::Contiguous) const {
    return kb_bridge::is_contiguous(handle_, format);
  }
  bool is_non_overlapping_and_dense() const { return kb_bridge::is_non_overlapping_and_dense(handle_); }
  bool is_same_size(const Tensor& other) const { return kb_bridge::equal_sizes(handle_, other.handle_); }
  bool requires_grad() const { return kb_bridge::requires_grad(handle_); }
  bool is_same(const Tensor& other) const { return handle_.impl == other.handle_.impl; }
  std::string toString() const { return kb_bridge::type_text(handle_); }

  void* data_ptr() const { return kb_bridge::bytes(handle_, Access::either); }
  void* mutable_data_ptr() const { return kb_bridge::bytes(handle_, Access::writing); }
  const void* const_data_ptr() const { return kb_bridge::bytes(handle_, Access::reading); }
  template <class T>
  T* data_ptr() const {
    return elements<T>(Access::either);
  }
  template <class T>
  T* mutable_data_ptr() const {
    return elements<T>(Access::writing);
  }
  template <class T>
  const T* const_data_ptr() const {
    return elements<std::remove_const_t<T>>(Access::reading);
  }
  template <class T>
  T* data() const {
    return data_ptr<T>();
  }

  template <class T, size_t N>
  at::TensorAccessor<T, N> accessor() const& {
    static_assert(N > 0, "an accessor needs at least one dimension");
    TORCH_CHECK(dim() == N, "TensorAccessor expected ", N, " dims but tensor has ", dim());
    return at::TensorAccessor<T, N>(data_of<T>(), sizes().data(), strides().data());
  }
  template <class T, size_t N>
  at::TensorAccessor<T, N> accessor() && = delete;
  template <
      class T, size_t N, template <class U> class PtrTraits = at::DefaultPtrTraits, class index_t = int64_t>
  at::GenericPackedTensorAccessor<T, N, PtrTraits, index_t> generic_packed_accessor() const& {
    static_assert(N > 0, "an accessor needs at least one dimension");
    TORCH_CHECK(dim() == N, "TensorAccessor expected ", N, " dims but tensor has ", dim());
    auto* first = static_cast<typename PtrTraits<T>::PtrType>(data_of<T>());
    return at::GenericPackedTensorAccessor<T, N, PtrTraits, index_t>(first, sizes().data(), strides().data());
  }
  template <
      class T, size_t N, template <class U> class PtrTraits = at::DefaultPtrTraits, class index_t = int64_t>
  at::GenericPackedTensorAccessor<T, N, PtrTraits, index_t> packed_accessor() const& {
    return generic_packed_accessor<T, N, PtrTraits, index_t>();
  }
  template <class T, size_t N, template <class U> class PtrTraits = at::DefaultPtrTraits>
  at::PackedTensorAccessor32<T, N, PtrTraits> packed_accessor32() const& {
    TORCH_CHECK(
        numel() <= static_cast<int64_t>(std::numeric_limits<int32_t>::max()),
        "numel needs to be smaller than int32_t max; otherwise, please use packed_accessor64");
    return generic_packed_accessor<T, N, PtrTraits, int32_t>();
  }
  template <class T, size_t N, template <class U> class PtrTraits = at::DefaultPtrTraits>
  at::PackedTensorAccessor32<T, N, PtrTraits> packed_accessor32() && = delete;
  template <class T, size_t N, template <class U> class PtrTraits = at::DefaultPtrTraits>
  at::PackedTensorAccessor64<T, N, PtrTraits> packed_accessor64() const& {
    return generic_packed_accessor<T, N, PtrTraits, int64_t>();
  }
  template <class T, size_t N, template <class U> class PtrTraits = at::DefaultPtrTraits>
  at::PackedTensorAccessor64<T, N, PtrTraits> packed_accessor64() && = delete;

  Scalar item() const { return Scalar(kb_bridge::item(handle_)); }
  template <class T>
  T item() const {
    T value;
    kb_bridge::item_as(handle_, c10::CppTypeToScalarType<T>::value, &value);
    return value;
  }

  Tensor contiguous(c10::MemoryFormat format = c10::MemoryFormat::Contiguous) const {
    return Tensor(kb_bridge::contiguous(handle_, format));
  }
  Tensor clone(Format format = std::nullopt) const { return Tensor(kb_bridge::clone(handle_, format)); }
  Tensor detach() const { return Tensor(kb_bridge::detach(handle_)); }
  Tensor to(
      c10::TensorOptions options = {}, bool non_blocking = false, bool copy = false, Format format = std::nullopt) const {
    return Tensor(kb_bridge::to_options(handle_, options, non_blocking, copy, format));
  }
  Tensor to(c10::ScalarType type, bool non_blocking = false, bool copy = false, Format format = std::nullopt) const {
    return Tensor(kb_bridge::to_type(handle_, type, non_blocking, copy, format));
  }
  Tensor to(
      c10::Device device, c10::ScalarType type, bool non_blocking = false, bool copy = false,
      Format format = std::nullopt) const {
    return Tensor(kb_bridge::to_device(handle_, device, type, non_blocking, copy, format));
  }
  Tensor to(caffe2::TypeMeta type, bool non_blocking = false, bool copy = false) const {
    return to(c10::typeMetaToScalarType(type), non_blocking, copy);
  }
  Tensor toType(c10::ScalarType type) const { return to(type); }
  Tensor cpu() const { return to(options().device(c10::DeviceType::CPU)); }
  Tensor cuda() const { return to(options().device(c10::DeviceType::CUDA)); }
  Tensor& copy_(const Tensor& from, bool non_blocking = false) const {
    kb_bridge::copy_(handle_, from.handle_, non_blocking);
    return self();
  }
  Tensor& fill_(const Scalar& value) const {
    kb_bridge::fill_(handle_, value.number());
    return self();
  }
  Tensor& zero_() const {
    kb_bridge::zero_(handle_);
    return self();
  }
  Tensor new_empty(Sizes sizes, c10::TensorOptions options = {}) const {
    return Tensor(kb_bridge::make_new(Fill::nothing, handle_, sizes, options));
  }
  Tensor new_zeros(Sizes sizes, c10::TensorOptions options = {}) const {
    return Tensor(kb_bridge::make_new(Fill::zeros, handle_, sizes, options));
  }
  Tensor new_ones(Sizes sizes, c10::TensorOptions options = {}) const {
    return Tensor(kb_bridge::make_new(Fill::ones, handle_, sizes, options));
  }

  Tensor view(Sizes sizes) const { return Tensor(kb_bridge::view(handle_, sizes)); }
  Tensor reshape(Sizes sizes) const { return Tensor(kb_bridge::reshape(handle_, sizes)); }
  Tensor view_as(const Tensor& other) const { return view(other.sizes()); }
  Tensor reshape_as(const Tensor& other) const { return reshape(other.sizes()); }
  Tensor expand(Sizes sizes, bool implicit = false) const { return Tensor(kb_bridge::expand(handle_, sizes, implicit)); }
  Tensor expand_as(const Tensor& other) const { return expand(other.sizes()); }
  Tensor permute(Sizes dims) const { return Tensor(kb_bridge::permute(handle_, dims)); }
  Tensor transpose(int64_t first, int64_t second) const {
    return Tensor(kb_bridge::transpose(handle_, first, second));
  }
  Tensor squeeze() const { return Tensor(kb_bridge::squeeze(handle_)); }
  Tensor squeeze(int64_t dim) const { return Tensor(kb_bridge::squeeze_dim(handle_, dim)); }
  Tensor unsqueeze(int64_t dim) const { return Tensor(kb_bridge::unsqueeze(handle_, dim)); }
  Tensor flatten(int64_t first = 0, int64_t last = -1) const {
    return Tensor(kb_bridge::flatten(handle_, first, last));
  }
  Tensor select(int64_t dim, int64_t index) const { return Tensor(kb_bridge::select(handle_, dim, index)); }
  Tensor slice(
      int64_t dim = 0, std::optional<int64_t> start = std::nullopt, std::optional<int64_t> end = std::nullopt,
      int64_t step = 1) const {
    return Tensor(kb_bridge::slice(handle_, dim, start, end, step));
  }
  Tensor narrow(int64_t dim, int64_t start, int64_t length) const {
    return Tensor(kb_bridge::narrow(handle_, dim, start, length));
  }
  Tensor operator[](int64_t index) const { return select(0, index); }

#define KB_LIGHT_METHOD(name) \
  Tensor name() const { return Tensor(kb_bridge::name(handle_)); }
  KB_LIGHT_UNARY(KB_LIGHT_METHOD)
#undef KB_LIGHT_METHOD
#define KB_LIGHT_METHOD(name)       \
  Tensor& name() const {            \
    kb_bridge::name(handle_);       \
    return self();                  \
  }
  KB_LIGHT_UNARY_INPLACE(KB_LIGHT_METHOD)
#undef KB_LIGHT_METHOD
#define KB_LIGHT_METHOD(name) \
  Tensor name(const Tensor& other) const { return Tensor(kb_bridge::name(handle_, other.handle_)); }
  KB_LIGHT_BINARY(KB_LIGHT_METHOD)
#undef KB_LIGHT_METHOD
#define KB_LIGHT_METHOD(name) \
  Tensor name(const Scalar& other) const { return Tensor(kb_bridge::name(handle_, other.number())); }
  KB_LIGHT_NUMERIC(KB_LIGHT_METHOD)
#undef KB_LIGHT_METHOD
#define KB_LIGHT_METHOD(name)                                                    \
  Tensor name(const Tensor& other, const Scalar& alpha = 1) const {              \
    return Tensor(kb_bridge::name(handle_, other.handle_, alpha.number()));      \
  }                                                                              \
  Tensor name(const Scalar& other, const Scalar& alpha = 1) const {              \
    return Tensor(kb_bridge::name(handle_, other.number(), alpha.number()));     \
  }                                                                              \
  Tensor& name##_(const Tensor& other, const Scalar& alpha = 1) const {          \
    kb_bridge::name##_(handle_, other.handle_, alpha.number());                  \
    return self();                                                               \
  }                                                                              \
  Tensor& name##_(const Scalar& other, const Scalar& alpha = 1) const {          \
    kb_bridge::name##_(handle_, other.number(), alpha.number());                 \
    return self();                                                               \
  }
  KB_LIGHT_METHOD(add)
  KB_LIGHT_METHOD(sub)
#undef KB_LIGHT_METHOD
#define KB_LIGHT_METHOD(name)                          \
  Tensor& name(const Tensor& other) const {            \
    kb_bridge::name(handle_, other.handle_);           \
    return self();                                     \
  }                                                    \
  Tensor& name(const Scalar& other) const {            \
    kb_bridge::name(handle_, other.number());          \
    return self();                                     \
  }
  KB_LIGHT_METHOD(mul_)
  KB_LIGHT_METHOD(div_)
#undef KB_LIGHT_METHOD
  Tensor& operator+=(const Tensor& other) { return add_(other); }
  Tensor& operator+=(const Scalar& other) { return add_(other); }
  Tensor& operator-=(const Tensor& other) { return sub_(other); }
  Tensor& operator-=(const Scalar& other) { return sub_(other); }
  Tensor& operator*=(const Tensor& other) { return mul_(other); }
  Tensor& operator*=(const Scalar& other) { return mul_(other); }
  Tensor& operator/=(const Tensor& other) { return div_(other); }
  Tensor& operator/=(const Scalar& other) { return div_(other); }
  Tensor operator-() const { return neg(); }

  Tensor sum(c10::ScalarType type) const { return Tensor(kb_bridge::sum_dims(handle_, std::nullopt, false, type)); }
  Tensor sum(const Dims& dims, bool keepdim = false, Type type = std::nullopt) const {
    return Tensor(kb_bridge::sum_dims(handle_, plain(dims), keepdim, type));
  }
  Tensor mean(c10::ScalarType type) const { return Tensor(kb_bridge::mean_dims(handle_, std::nullopt, false, type)); }
  Tensor mean(const Dims& dims, bool keepdim = false, Type type = std::nullopt) const {
    return Tensor(kb_bridge::mean_dims(handle_, plain(dims), keepdim, type));
  }
  Tensor amax(Sizes dims = {}, bool keepdim = false) const { return Tensor(kb_bridge::amax(handle_, dims, keepdim)); }
  Tensor amin(Sizes dims = {}, bool keepdim = false) const { return Tensor(kb_bridge::amin(handle_, dims, keepdim)); }
  Tensor argmax(std::optional<int64_t> dim = std::nullopt, bool keepdim = false) const {
    return Tensor(kb_bridge::argmax(handle_, dim, keepdim));
  }
  Tensor argmin(std::optional<int64_t> dim = std::nullopt, bool keepdim = false) const {
    return Tensor(kb_bridge::argmin(handle_, dim, keepdim));
  }
  std::tuple<Tensor, Tensor> max(int64_t dim, bool keepdim = false) const {
    return both(kb_bridge::max_dim(handle_, dim, keepdim));
  }
  std::tuple<Tensor, Tensor> min(int64_t dim, bool keepdim = false) const {
    return both(kb_bridge::min_dim(handle_, dim, keepdim));
  }
  Tensor softmax(int64_t dim, Type type = std::nullopt) const {
    return Tensor(kb_bridge::softmax(handle_, dim, type));
  }
  Tensor log_softmax(int64_t dim, Type type = std::nullopt) const {
    return Tensor(kb_bridge::log_softmax(handle_, dim, type));
  }

 private:
  Tensor& self() const { return const_cast<Tensor&>(*this); }
  static std::tuple<Tensor, Tensor> both(const kb_bridge::Pair& pair) {
    return {Tensor(pair.first), Tensor(pair.second)};
  }
  template <class T>
  T* elements(Access access) const {
    return static_cast<T*>(kb_bridge::elements(handle_, c10::CppTypeToScalarType<T>::value, access));
  }
  template <class T>
  T* data_of() const {
    if constexpr (std::is_const_v<T>) {
      return const_data_ptr<T>();
    } else {
      return mutable_data_ptr<T>();
    }
  }

  Handle handle_;
};

static_assert(sizeof(Tensor) == sizeof(Handle));

inline std::ostream& operator<<(std::ostream& stream, const Tensor& tensor) {
  return stream << kb_bridge::text(tensor.handle());
}

} // namespace kb_light
