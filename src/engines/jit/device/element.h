// The types that tensors are stored in, as kernels see them: a tag and its storage.
#pragma once

#include "primitives.h"

namespace fovea::device {

struct F32 {};  // beside F16 and BF16 of primitives.h

template <class Element>
struct Stored {
  using Type = unsigned short;
};
template <>
struct Stored<F32> {
  using Type = float;
};
template <class Element>
inline constexpr int bytes_of = sizeof(typename Stored<Element>::Type);

template <class A, class B>
inline constexpr bool is_same_element = false;
template <class A>
inline constexpr bool is_same_element<A, A> = true;

FOVEA_DEVICE float to_float(F32, float x) { return x; }

template <class Element>
FOVEA_DEVICE typename Stored<Element>::Type from_float(float x) {
  if constexpr (bytes_of<Element> == 4) {
    return x;
  } else {
    return static_cast<unsigned short>(pack(Element{}, x, 0.0f));
  }
}

template <class Element>
FOVEA_DEVICE float read_element(const void* data, long long at) {
  return to_float(Element{}, static_cast<const typename Stored<Element>::Type*>(data)[at]);
}
template <class Element>
FOVEA_DEVICE void write_element(void* data, long long at, float x) {
  static_cast<typename Stored<Element>::Type*>(data)[at] = from_float<Element>(x);
}

// Two neighbours in one store if they lie so.
template <class Element>
FOVEA_DEVICE void write_pair(void* data, long long at, float x, float y) {
  auto* const to = static_cast<typename Stored<Element>::Type*>(data) + at;
  if constexpr (bytes_of<Element> == 4) {
    *reinterpret_cast<Words2*>(to) = {bits_of(x), bits_of(y)};
  } else {
    *reinterpret_cast<unsigned*>(to) = pack(Element{}, x, y);
  }
}

}  // namespace fovea::device
