#include "base/dtype.h"

#include <array>
#include <bit>
#include <cmath>

#include "base/error.h"

namespace fovea {
namespace {

struct Row {
  DType type;
  std::string_view name;
  std::int64_t size;
};

constexpr std::array<Row, 8> rows{{
    {DType::F32, "f32", 4},
    {DType::F16, "f16", 2},
    {DType::BF16, "bf16", 2},
    {DType::F64, "f64", 8},
    {DType::I32, "i32", 4},
    {DType::I64, "i64", 8},
    {DType::U8, "u8", 1},
    {DType::Bool, "bool", 1},
}};

const Row& row_of(DType type) {
  for (const Row& row : rows) {
    if (row.type == type) return row;
  }
  throw InternalError("unknown element type " + std::to_string(static_cast<int>(type)));
}

}  // namespace

std::string_view dtype_name(DType type) { return row_of(type).name; }

std::int64_t dtype_size(DType type) { return row_of(type).size; }

std::optional<DType> dtype_from_name(std::string_view name) {
  for (const Row& row : rows) {
    if (row.name == name) return row.type;
  }
  return std::nullopt;
}

float half_to_float(std::uint16_t bits) {
  const std::uint32_t sign = static_cast<std::uint32_t>(bits >> 15) << 31;
  const std::uint32_t exponent = (bits >> 10) & 31u;
  const std::uint32_t fraction = bits & 1023u;
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7f800000u | (fraction << 13));
  if (exponent == 0) {  // zero or subnormal: fraction * 2^-24, exact in float
    const float magnitude = std::ldexp(static_cast<float>(fraction), -24);
    return sign != 0 ? -magnitude : magnitude;
  }
  return std::bit_cast<float>(sign | ((exponent + 112u) << 23) | (fraction << 13));
}

float bfloat16_to_float(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

std::uint16_t float_to_half(float value) {
  constexpr std::uint32_t infinity = 0x7f800000u;
  constexpr std::uint32_t overflow = 0x477ff000u;         // 65520: rounds to infinity
  constexpr std::uint32_t smallest_normal = 0x38800000u;  // 2^-14
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (bits >> 16) & 0x8000u;
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  std::uint32_t half = 0;
  if (magnitude > infinity) {
    half = 0x7e00u | ((magnitude >> 13) & 0x3ffu);
  } else if (magnitude >= overflow) {
    half = 0x7c00u;
  } else if (magnitude < smallest_normal) {
    // Numbers from 0.5 to 1 are 2^-24 apart, as subnormal halves are: the addition rounds.
    half = std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - 0x3f000000u;
  } else {
    const std::uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
    half = (rounded - (112u << 23)) >> 13;  // the exponents' biases are 127 and 15
  }
  return static_cast<std::uint16_t>(sign | half);
}

std::uint16_t float_to_bfloat16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<std::uint16_t>((bits >> 16) | 0x40u);
  return static_cast<std::uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

}  // namespace fovea
