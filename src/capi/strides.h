// Strides as C callers write them: all zero means "not given", so a tensor whose strides are all
// zero says FOVEA_ZERO_STRIDE in one of them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "fovea/fovea.h"

namespace fovea::capi {

// False where none are given; `out` is left alone then.
inline bool read_strides(std::span<const std::int64_t> given, std::span<std::int64_t> out) {
  const auto is_zero = [](std::int64_t stride) { return stride == 0; };
  if (std::ranges::all_of(given, is_zero)) return false;
  std::ranges::replace_copy(given, out.begin(), FOVEA_ZERO_STRIDE, std::int64_t{0});
  return true;
}

inline void write_strides(std::span<const std::int64_t> strides, std::span<std::int64_t> out) {
  std::ranges::copy(strides, out.begin());
  const auto is_zero = [](std::int64_t stride) { return stride == 0; };
  if (std::ranges::all_of(strides, is_zero)) out.front() = FOVEA_ZERO_STRIDE;
}

}  // namespace fovea::capi
