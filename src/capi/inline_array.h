// An array of a size known when it is made, in place where it is small: so that a call with a few
// captured things allocates nothing.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <vector>

namespace fovea::capi {

template <class T, std::size_t in_place>
class InlineArray {
 public:
  explicit InlineArray(std::size_t size) : size_(size) {
    if (size > in_place) large_.resize(size);
  }
  InlineArray(const InlineArray&) = delete;  // spans of it are handed out
  InlineArray& operator=(const InlineArray&) = delete;

  T& operator[](std::size_t i) { return data()[i]; }
  std::span<const T> span() const {
    return {large_.empty() ? small_.data() : large_.data(), size_};
  }

 private:
  T* data() { return large_.empty() ? small_.data() : large_.data(); }

  std::size_t size_;
  std::array<T, in_place> small_{};
  std::vector<T> large_;
};

}  // namespace fovea::capi
