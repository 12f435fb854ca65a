#include "engines/reference/rows.h"

#include <bit>
#include <cmath>

#include "base/error.h"

namespace fovea::reference {
namespace {

// Double to float by cutting off, with the last bit set where something was cut off ("round to
// odd"): rounding that once more to 16 bits gives what rounding the double at once would give.
float cut_to_odd(double value) {
  const auto nearest = static_cast<float>(value);
  if (static_cast<double>(nearest) == value || std::isnan(value)) return nearest;
  auto bits = std::bit_cast<std::uint32_t>(nearest);
  if (std::fabs(static_cast<double>(nearest)) > std::fabs(value)) --bits;  // towards zero
  return std::bit_cast<float>(bits | 1u);
}

}  // namespace

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
  throw InternalError("read_number: " + std::string(dtype_name(dtype)) + " is not a float type");
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
  throw InternalError("write_number: " + std::string(dtype_name(dtype)) + " is not a float type");
}

void Rows::read(std::int64_t b, std::int64_t h, std::int64_t row, std::span<double> into) const {
  std::int64_t at = address(b, h, row);
  for (double& number : into) {
    number = read_number(tensor_.data, dtype_, at);
    at += tensor_.strides.d;
  }
}

void Rows::write(std::int64_t b, std::int64_t h, std::int64_t row,
                 std::span<const double> from) const {
  std::int64_t at = address(b, h, row);
  for (const double number : from) {
    write_number(tensor_.data, dtype_, at, number);
    at += tensor_.strides.d;
  }
}

}  // namespace fovea::reference
