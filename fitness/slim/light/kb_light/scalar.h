// at::Scalar as light code sees it: a number that remembers whether it was real, whole or a truth value.
#pragma once

#include <kb_light/bridge.h>

namespace kb_light {

class Scalar {
 public:
  template <class T, class = std::enable_if_t<std::is_arithmetic_v<T>>>
  Scalar(T value) {
    if constexpr (std::is_same_v<T, bool>) {
      number_ = {kb_bridge::Number::truth, 0.0, value ? 1 : 0};
    } else if constexpr (std::is_floating_point_v<T>) {
      number_ = {kb_bridge::Number::real, static_cast<double>(value), 0};
    } else {
      number_ = {kb_bridge::Number::whole, 0.0, static_cast<int64_t>(value)};
    }
  }
  explicit Scalar(const kb_bridge::Number& number) : number_(number) {}

  double toDouble() const {
    return number_.kind == kb_bridge::Number::real ? number_.as_real : static_cast<double>(number_.as_whole);
  }
  bool isFloatingPoint() const { return number_.kind == kb_bridge::Number::real; }
  bool isBoolean() const { return number_.kind == kb_bridge::Number::truth; }
  const kb_bridge::Number& number() const { return number_; }

 private:
  kb_bridge::Number number_;
};

} // namespace kb_light
