// The longest side of the part is searched in a loop that the compiler turns into vector code if
// elements lie side by side; the other sides are counted through.
#include "ir/extremes.h"

#include <algorithm>
#include <limits>

namespace fovea::ir {
namespace {

// Grows by one element after the other. Independent sums side by side, so that none waits for the
// one before.
template <class T>
struct Ends {
  static constexpr std::int64_t lanes = 16;
  T lo = std::numeric_limits<T>::has_infinity ? std::numeric_limits<T>::infinity()
                                              : std::numeric_limits<T>::max();
  T hi = std::numeric_limits<T>::has_infinity ? -std::numeric_limits<T>::infinity()
                                              : std::numeric_limits<T>::min();
  bool nan = false;

  void add(T x) {
    lo = x < lo ? x : lo;  // false for NaN
    hi = hi < x ? x : hi;
    nan = nan || x != x;
  }

  void add(const T* data, std::int64_t count) {
    std::int64_t i = 0;
    if (count >= 2 * lanes) i = add_blocks(data, count / lanes) * lanes;
    for (; i < count; ++i) add(data[i]);
  }

 private:
  std::int64_t add_blocks(const T* data, std::int64_t blocks) {
    std::array<T, lanes> los, his;
    std::array<int, lanes> nans{};
    los.fill(lo), his.fill(hi);
    for (std::int64_t block = 0; block < blocks; ++block) {
      const T* const x = data + block * lanes;
      for (std::size_t i = 0; i < lanes; ++i) los[i] = x[i] < los[i] ? x[i] : los[i];
      for (std::size_t i = 0; i < lanes; ++i) his[i] = his[i] < x[i] ? x[i] : his[i];
      for (std::size_t i = 0; i < lanes; ++i) nans[i] |= x[i] != x[i] ? 1 : 0;
    }
    for (std::size_t i = 0; i < lanes; ++i) {
      lo = std::min(lo, los[i]);
      hi = std::max(hi, his[i]);
      nan = nan || nans[i] != 0;
    }
    return blocks;
  }
};

// Runs of elements of one stored type, as numbers of type T.
template <class T, class Stored, class Convert>
Ends<T> search(const TensorView& tensor, const Part& part, Convert convert) {
  const auto rank = static_cast<std::size_t>(tensor.rank);
  std::size_t longest = 0;
  std::int64_t at = 0;
  for (std::size_t i = 0; i < rank; ++i) {
    at += part.first[i] * tensor.stride[i];
    if (part.last[i] - part.first[i] > part.last[longest] - part.first[longest]) longest = i;
  }
  const std::int64_t count = rank == 0 ? 1 : part.last[longest] - part.first[longest] + 1;
  const std::int64_t step = rank == 0 ? 1 : tensor.stride[longest];
  std::array<std::int64_t, limits::rank> index = part.first;
  Ends<T> ends;
  for (;;) {
    const Stored* const run = static_cast<const Stored*>(tensor.data) + at;
    if constexpr (std::is_same_v<T, Stored>) {
      if (step == 1) ends.add(run, count);
    }
    if (!std::is_same_v<T, Stored> || step != 1) {
      for (std::int64_t i = 0; i < count; ++i) ends.add(convert(run[i * step]));
    }
    std::size_t i = rank;
    for (; i > 0; --i) {  // to the next run
      const std::size_t side = i - 1;
      if (side == longest) continue;
      if (index[side] < part.last[side]) break;
      at -= (part.last[side] - part.first[side]) * tensor.stride[side];
      index[side] = part.first[side];
    }
    if (i == 0) return ends;
    ++index[i - 1];
    at += tensor.stride[i - 1];
  }
}

Range of(const Ends<float>& ends) { return {{}, {ends.lo, ends.hi, ends.nan}, {}}; }

template <class T>
Range of(const Ends<T>& ends) {
  return {{ends.lo, ends.hi}, {}, {}};
}

template <class T>
T same(T x) {
  return x;
}
float narrow(double x) { return static_cast<float>(x); }

bool has_nothing(const TensorView& tensor) {
  if (tensor.data == nullptr) return true;
  const auto extents = std::span(tensor.extent).first(static_cast<std::size_t>(tensor.rank));
  return std::ranges::any_of(extents, [](std::int64_t extent) { return extent <= 0; });
}

}  // namespace

Range extremes(const TensorView& tensor, const Part& part) {
  if (has_nothing(tensor)) return {IntInterval::of(0), RealInterval::of(0), BoolSet::of(false)};
  using u8 = std::uint8_t;
  using u16 = std::uint16_t;
  switch (tensor.dtype) {
    case DType::F32: return of(search<float, float>(tensor, part, same<float>));
    case DType::F16: return of(search<float, u16>(tensor, part, half_to_float));
    case DType::BF16: return of(search<float, u16>(tensor, part, bfloat16_to_float));
    case DType::F64: return of(search<float, double>(tensor, part, narrow));
    case DType::I32: return of(search<std::int32_t, std::int32_t>(tensor, part, same<int>));
    case DType::I64: return of(search<std::int32_t, std::int64_t>(tensor, part, saturate));
    case DType::U8: return of(search<u8, u8>(tensor, part, same<u8>));
    case DType::Bool: {
      const Ends<u8> bytes = search<u8, u8>(tensor, part, same<u8>);
      return {{}, {}, {bytes.lo == 0, bytes.hi != 0}};
    }
  }
  return {};
}

}  // namespace fovea::ir
