// A captured tensor in host memory as formulas read it: pointer, element type, extents, strides.
// Reading clamps every index, so that no formula can read outside.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <span>

#include "base/dtype.h"
#include "ir/arith.h"
#include "ir/program.h"

namespace fovea::ir {

struct TensorView {
  const void* data = nullptr;
  DType dtype = DType::F32;
  int rank = 0;
  std::array<std::int64_t, limits::rank> extent{};
  std::array<std::int64_t, limits::rank> stride{};  // in elements

  // Contiguous, last index fastest.
  static TensorView dense(const void* data, DType dtype, std::span<const std::int64_t> extents);
};

// i clamped to [0, extent).
constexpr std::int64_t clamp_index(std::int64_t i, std::int64_t extent) {
  return i < 0 || extent <= 0 ? 0 : i < extent ? i : extent - 1;
}

// What a load of an i64 gives.
inline std::int32_t saturate(std::int64_t x) {
  using Limits = std::numeric_limits<std::int32_t>;
  return static_cast<std::int32_t>(std::clamp<std::int64_t>(x, Limits::min(), Limits::max()));
}

// The element at `index` (clamped), as the type that formulas compute with: i64 saturates to i32.
// A tensor with nothing in it reads as 0.
template <class Real>
Cell<Real> read_element(const TensorView& tensor, std::span<const std::int32_t> index);

}  // namespace fovea::ir
