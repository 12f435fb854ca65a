#include "base/dtype.h"

#include <array>
#include <bit>
#include <cmath>
#include <string>

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

// Double to float by cutting off, with the last bit set if something was cut off ("round to
// odd"): rounding that once more to 16 bits gives what rounding the double at once would give.
float cut_to_odd(double value) {
  const auto nearest = static_cast<float>(value);
  if (static_cast<double>(nearest) == value || std::isnan(value)) return nearest;
  auto bits = std::bit_cast<std::uint32_t>(nearest);
  if (std::fabs(static_cast<double>(nearest)) > std::fabs(value)) --bits;  // towards zero
  return std::bit_cast<float>(bits | 1u);
}

[[noreturn]] void refuse_whole(DType type) {
  throw InternalError(std::string(dtype_name(type)) + " is not a float type");
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

double read_number(const void* data, DType dtype, std::int64_t at) {
  switch (dtype) {
    case DType::F32: return static_cast<double>(static_cast<const float*>(data)[at]);
    case DType::F64: return static_cast<const double*>(data)[at];
    case DType::F16:
      return static_cast<double>(half_to_float(static_cast<const std::uint16_t*>(data)[at]));
    case DType::BF16:
      return static_cast<double>(bfloat16_to_float(static_cast<const std::uint16_t*>(data)[at]));
    case DType::I32:
    case DType::I64:
    case DType::U8:
    case DType::Bool: break;
  }
  refuse_whole(dtype);
}

void write_number(void* data, DType dtype, std::int64_t at, double value) {
  switch (dtype) {
    case DType::F32: static_cast<float*>(data)[at] = static_cast<float>(value); return;
    case DType::F64: static_cast<double*>(data)[at] = value; return;
    case DType::F16:
      static_cast<std::uint16_t*>(data)[at] = float_to_half(cut_to_odd(value));
      return;
    case DType::BF16:
      static_cast<std::uint16_t*>(data)[at] = float_to_bfloat16(cut_to_odd(value));
      return;
    case DType::I32:
    case DType::I64:
    case DType::U8:
    case DType::Bool: break;
  }
  refuse_whole(dtype);
}

}  // namespace fovea
