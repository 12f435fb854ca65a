// Lays out an engine's workspace: takes pieces of the caller's memory one after the other, each
// aligned. Without memory it only measures, so that one function says both how much is needed and
// where everything lies.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/error.h"

namespace fovea {

inline constexpr std::size_t workspace_alignment = 64;

class Arena {
 public:
  Arena(const char* engine, void* memory)
      : engine_(engine), memory_(static_cast<std::byte*>(memory)) {}

  // Not initialised.
  template <class T>
  std::span<T> take(std::int64_t rows, std::int64_t columns = 1) {
    std::size_t count = 0, bytes = 0, padded = 0;
    const std::size_t start = used_;
    if (__builtin_mul_overflow(rows, columns, &count) ||
        __builtin_mul_overflow(count, sizeof(T), &bytes) ||
        __builtin_add_overflow(bytes, workspace_alignment - 1, &padded) ||
        __builtin_add_overflow(used_, padded / workspace_alignment * workspace_alignment, &used_)) {
      throw InvalidArgument("sizes: the workspace of engine " + std::string(engine_) +
                            " would exceed 2^64 bytes");
    }
    if (memory_ == nullptr || count == 0) return {};
    return {reinterpret_cast<T*>(memory_ + start), count};
  }

  template <class T>
  std::span<T> take_zeros(std::int64_t rows, std::int64_t columns = 1) {
    const std::span<T> piece = take<T>(rows, columns);
    std::uninitialized_value_construct_n(piece.data(), piece.size());
    return piece;
  }

  bool measuring() const { return memory_ == nullptr; }
  std::size_t used() const { return used_; }

 private:
  const char* engine_;
  std::byte* memory_;
  std::size_t used_ = 0;
};

}  // namespace fovea
