// Memory that attention reads or writes: a pointer, an element type, sizes and strides. Owns
// nothing, copies nothing. Made by fovea::Tensor::bhsd and its like (fovea/trace.hpp).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <ranges>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>

#include "fovea/fovea.h"

namespace fovea {

// Sizes and strides are by batch, head, position and feature, whatever the order in memory.
struct View {
  void* data = nullptr;
  bool is_const = false;
  fovea_dtype dtype = FOVEA_DTYPE_DEFAULT;
  std::array<std::int64_t, 4> size{};    // b, h, s, d
  std::array<std::int64_t, 4> stride{};  // in elements
  fovea_layout layout = FOVEA_BHSD;      // the layout in which the strides are dense, if `dense`
  bool dense = true;

  std::int64_t b() const { return size[0]; }
  std::int64_t h() const { return size[1]; }
  std::int64_t s() const { return size[2]; }
  std::int64_t d() const { return size[3]; }
};

namespace memory {

using Extents = std::array<std::int64_t, 4>;

// FOVEA_DTYPE_DEFAULT: by the type of the elements.
template <fovea_dtype named, class T>
constexpr fovea_dtype dtype_of() {
  if constexpr (named != FOVEA_DTYPE_DEFAULT) {
    return named;
  } else {
    using Element = std::remove_cv_t<T>;
    static_assert(std::is_same_v<Element, float> || std::is_same_v<Element, double>,
                  "fovea: name the element type: Tensor::bhsd<FOVEA_BF16>(data, b, h, s, d)");
    return std::is_same_v<Element, float> ? FOVEA_F32 : FOVEA_F64;
  }
}

// Where a pointer points, or the beginning of a span, vector or array that is large enough.
template <class Data>
auto* beginning(Data& data, const Extents& sizes) {
  if constexpr (std::is_pointer_v<std::remove_cv_t<Data>>) {
    return data;
  } else {
    const std::int64_t elements = sizes[0] * sizes[1] * sizes[2] * sizes[3];
    if (std::cmp_less(std::ranges::size(data), elements)) {
      throw std::invalid_argument("fovea: a tensor of " + std::to_string(elements) +
                                  " elements in memory for " +
                                  std::to_string(std::ranges::size(data)));
    }
    return std::ranges::data(data);
  }
}

constexpr Extents dense_strides(fovea_layout layout, const Extents& n) {
  const auto [b, h, s, d] = n;
  switch (layout) {
    case FOVEA_BHSD: return {h * s * d, s * d, d, 1};
    case FOVEA_BSHD: return {s * h * d, d, h * d, 1};
    case FOVEA_SBHD: return {h * d, d, b * h * d, 1};
    case FOVEA_THD: return {0, d, h * d, 1};
  }
  return {};
}

// Pointers, spans, and containers that outlive the call.
template <class Data>
concept Memory = std::is_pointer_v<std::remove_cvref_t<Data>> ||
                 (std::ranges::contiguous_range<Data> && std::ranges::borrowed_range<Data>);

}  // namespace memory

// The ways to describe memory, as static functions of fovea::Tensor. The element type follows from
// float or double; others are named: bhsd<FOVEA_BF16>(data, ...). The order of the sizes is that of
// the layout.
class Views {
 public:
  template <fovea_dtype type = FOVEA_DTYPE_DEFAULT, memory::Memory Data>
  static View bhsd(Data&& data, std::int64_t b, std::int64_t h, std::int64_t s, std::int64_t d) {
    return dense<type>(data, FOVEA_BHSD, {b, h, s, d});
  }
  template <fovea_dtype type = FOVEA_DTYPE_DEFAULT, memory::Memory Data>
  static View bshd(Data&& data, std::int64_t b, std::int64_t s, std::int64_t h, std::int64_t d) {
    return dense<type>(data, FOVEA_BSHD, {b, h, s, d});
  }
  template <fovea_dtype type = FOVEA_DTYPE_DEFAULT, memory::Memory Data>
  static View sbhd(Data&& data, std::int64_t s, std::int64_t b, std::int64_t h, std::int64_t d) {
    return dense<type>(data, FOVEA_SBHD, {b, h, s, d});
  }
  // Packed: t rows of all sequences; where each begins is an option of the attention.
  template <fovea_dtype type = FOVEA_DTYPE_DEFAULT, memory::Memory Data>
  static View thd(Data&& data, std::int64_t t, std::int64_t h, std::int64_t d) {
    return dense<type>(data, FOVEA_THD, {1, h, t, d});
  }
  // Sizes and strides by batch, head, position, feature, in elements.
  template <fovea_dtype type = FOVEA_DTYPE_DEFAULT, class T>
  static View strided(T* data, const memory::Extents& sizes, const memory::Extents& strides) {
    View view = dense<type>(data, FOVEA_BHSD, sizes);
    view.dense = view.stride == strides;
    view.stride = strides;
    return view;
  }

 private:
  template <fovea_dtype type, class Data>
  static View dense(Data& data, fovea_layout layout, const memory::Extents& sizes) {
    auto* const first = memory::beginning(data, sizes);
    using T = std::remove_pointer_t<decltype(memory::beginning(data, sizes))>;
    View view;
    view.data = const_cast<std::remove_const_t<T>*>(first);
    view.is_const = std::is_const_v<T>;
    view.dtype = memory::dtype_of<type, T>();
    view.size = sizes;
    view.stride = memory::dense_strides(layout, sizes);
    view.layout = layout;
    return view;
  }
};

}  // namespace fovea
