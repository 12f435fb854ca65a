#include "array.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <stdexcept>

namespace fovea::cli {
namespace {

// Round to nearest, ties to even, by the bits of a float that holds the value exactly enough.
std::uint16_t to_bfloat16(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  if (std::isnan(x)) return static_cast<std::uint16_t>((bits >> 16) | 0x40u);
  return static_cast<std::uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

std::uint16_t to_half(float x) {
  const std::uint32_t sign = (std::bit_cast<std::uint32_t>(x) >> 16) & 0x8000u;
  const float magnitude = std::fabs(x);
  if (std::isnan(x)) return static_cast<std::uint16_t>(sign | 0x7e00u);
  if (magnitude >= 65520.0f) return static_cast<std::uint16_t>(sign | 0x7c00u);
  int exponent = 0;
  std::frexp(magnitude, &exponent);               // magnitude = f * 2^exponent, 0.5 <= f < 1
  const int unit = std::max(exponent - 11, -24);  // the last place of the result is 2^unit
  const float places = std::nearbyint(std::ldexp(magnitude, -unit));
  const float rounded = std::ldexp(places, unit);
  if (rounded < std::ldexp(1.0f, -14)) {  // subnormal: the bits count units of 2^-24
    return static_cast<std::uint16_t>(sign | static_cast<std::uint32_t>(std::ldexp(rounded, 24)));
  }
  const auto bits = std::bit_cast<std::uint32_t>(rounded);
  return static_cast<std::uint16_t>(sign |
                                    ((((bits >> 23) - 112u) << 10) | ((bits >> 13) & 1023u)));
}

template <class T>
T saturate(double x) {
  if (std::isnan(x)) return 0;
  const double lo = static_cast<double>(std::numeric_limits<T>::min());
  const double hi = static_cast<double>(std::numeric_limits<T>::max());
  if (x <= lo) return std::numeric_limits<T>::min();
  if (x >= hi) return std::numeric_limits<T>::max();
  return static_cast<T>(x);
}

template <class T>
void store(std::vector<unsigned char>& bytes, std::int64_t i, T value) {
  std::memcpy(bytes.data() + static_cast<std::size_t>(i) * sizeof(T), &value, sizeof(T));
}

template <class T>
T load(const std::vector<unsigned char>& bytes, std::int64_t i) {
  T value;
  std::memcpy(&value, bytes.data() + static_cast<std::size_t>(i) * sizeof(T), sizeof(T));
  return value;
}

float from_bfloat16(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

float from_half(std::uint16_t bits) {
  const int exponent = (bits >> 10) & 31, fraction = bits & 1023;
  const float sign = (bits & 0x8000) != 0 ? -1.0f : 1.0f;
  if (exponent == 31) {
    return fraction != 0 ? std::numeric_limits<float>::quiet_NaN()
                         : sign * std::numeric_limits<float>::infinity();
  }
  if (exponent == 0) return sign * std::ldexp(static_cast<float>(fraction), -24);
  return sign * std::ldexp(static_cast<float>(fraction + 1024), exponent - 25);
}

}  // namespace

bool is_float(const std::string& dtype) {
  return dtype == "f32" || dtype == "f16" || dtype == "bf16" || dtype == "f64";
}

int element_size(const std::string& dtype) {
  if (dtype == "f64" || dtype == "i64") return 8;
  if (dtype == "f32" || dtype == "i32") return 4;
  if (dtype == "f16" || dtype == "bf16") return 2;
  if (dtype == "u8" || dtype == "bool") return 1;
  throw std::invalid_argument("unknown element type '" + dtype + "'");
}

std::int64_t Array::size() const {
  std::int64_t count = 1;
  for (const std::int64_t extent : extents) count *= extent;
  return count;
}

void Array::set(std::int64_t i, double x) {
  if (dtype == "f64") return store(bytes, i, x);
  if (dtype == "f32") return store(bytes, i, static_cast<float>(x));
  if (dtype == "f16") return store(bytes, i, to_half(static_cast<float>(x)));
  if (dtype == "bf16") return store(bytes, i, to_bfloat16(static_cast<float>(x)));
  if (dtype == "i32") return store(bytes, i, saturate<std::int32_t>(x));
  if (dtype == "i64") return store(bytes, i, saturate<std::int64_t>(x));
  if (dtype == "u8") return store(bytes, i, saturate<std::uint8_t>(x));
  store(bytes, i, static_cast<unsigned char>(x != 0));
}

double Array::get(std::int64_t i) const {
  if (dtype == "f64") return load<double>(bytes, i);
  if (dtype == "f32") return load<float>(bytes, i);
  if (dtype == "f16") return from_half(load<std::uint16_t>(bytes, i));
  if (dtype == "bf16") return from_bfloat16(load<std::uint16_t>(bytes, i));
  if (dtype == "i32") return load<std::int32_t>(bytes, i);
  if (dtype == "i64") return static_cast<double>(load<std::int64_t>(bytes, i));
  return load<std::uint8_t>(bytes, i);
}

Array zeros(const std::string& dtype, std::vector<std::int64_t> extents) {
  constexpr std::int64_t most = std::int64_t{1} << 32;  // elements: more is a slip of the hand
  std::int64_t count = 1;
  for (const std::int64_t extent : extents) {
    if (extent < 0 || (extent > 0 && count > most / extent)) {
      throw std::invalid_argument("an array of more than 2^32 elements was asked for");
    }
    count *= extent;
  }
  Array array{dtype, std::move(extents), {}};
  array.bytes.resize(static_cast<std::size_t>(count * element_size(dtype)));
  return array;
}

}  // namespace fovea::cli
