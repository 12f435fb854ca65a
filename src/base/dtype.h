// Element types of tensors in memory, as opposed to ir::Type, the types that formulas compute with.
#pragma once

#include <cmath>
#include <cstdint>
#include <optional>
#include <string_view>

namespace fovea {

enum class DType : std::uint8_t { F32, F16, BF16, F64, I32, I64, U8, Bool };

std::string_view dtype_name(DType type);                      // "f32", "bf16", ...
std::optional<DType> dtype_from_name(std::string_view name);  // the inverse
std::int64_t dtype_size(DType type);                          // bytes of one element

// Storage formats of 16 bits to float, exactly, and back: to nearest, ties to even, too large to
// infinity; a NaN stays a NaN, made quiet.
float half_to_float(std::uint16_t bits);
float bfloat16_to_float(std::uint16_t bits);
std::uint16_t float_to_half(float value);
std::uint16_t float_to_bfloat16(float value);

// Element `at` of memory of a float type. Reading is exact, writing rounds once, to nearest even.
double read_number(const void* data, DType dtype, std::int64_t at);
void write_number(void* data, DType dtype, std::int64_t at, double value);

// A double as the f32 nearest to it, and the difference. Formulas are f32 except for the reference
// engine with f64 tensors, so numbers are kept as f32 with a rest that is 0 for all other engines.
struct SplitDouble {
  float f = 0;
  double rest = 0;
};

// Beyond the range of f32 there is no rest: the number is infinite.
inline SplitDouble split_double(double value) {
  const auto f = static_cast<float>(value);
  return {f, std::isfinite(f) ? value - static_cast<double>(f) : 0};
}

// Exact, and -0 stays -0.
inline double joined_double(float f, double rest) {
  return rest == 0 ? static_cast<double>(f) : static_cast<double>(f) + rest;
}

}  // namespace fovea
