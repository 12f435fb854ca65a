// What loads read: every element type, clamped indices, empty tensors, strides.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "base/dtype.h"
#include "ir/eval.h"
#include "ir/parse.h"

namespace fovea::test {
namespace {

using namespace ir;

template <class T>
TensorView view(const std::vector<T>& data, DType dtype, std::vector<std::int64_t> extents) {
  return TensorView::dense(data.data(), dtype, extents);
}

Cell<float> read(const TensorView& tensor, std::vector<std::int32_t> index) {
  return read_element<float>(tensor, index);
}

TEST(Load, SixteenBitFormatsOfEveryPattern) {
  for (std::uint32_t pattern = 0; pattern < 65536; ++pattern) {
    const auto bits = static_cast<std::uint16_t>(pattern);
    // Independently: value = (-1)^s * m * 2^e, in double, which holds all of them.
    const double sign = (bits & 0x8000) != 0 ? -1 : 1;
    const int exponent = bits >> 10 & 31, fraction = bits & 1023;
    const float half = half_to_float(bits);
    if (exponent == 31) {
      EXPECT_TRUE(fraction != 0 ? std::isnan(half) : half == static_cast<float>(sign * HUGE_VAL));
    } else {
      const double magnitude =
          exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
      EXPECT_EQ(static_cast<double>(half), sign * magnitude) << pattern;
      EXPECT_EQ(std::signbit(half), sign < 0) << pattern;
    }
    const float brain = bfloat16_to_float(bits);
    EXPECT_EQ(std::bit_cast<std::uint32_t>(brain), pattern << 16);
#ifdef __FLT16_MANT_DIG__
    const auto compiler = static_cast<float>(std::bit_cast<_Float16>(bits));
    EXPECT_TRUE(half == compiler || (std::isnan(half) && std::isnan(compiler))) << pattern;
#endif
  }
}

TEST(Load, ElementTypes) {
  const std::vector<float> f32{1.5f, -0.0f};
  const std::vector<double> f64{0.1};
  const std::vector<std::int64_t> i64{std::int64_t{1} << 40, -(std::int64_t{1} << 40), -7,
                                      std::numeric_limits<std::int32_t>::max() + std::int64_t{1}};
  const std::vector<std::uint8_t> bytes{0, 1, 2, 255};
  EXPECT_EQ(read(view(f32, DType::F32, {2}), {0}).f, 1.5f);
  EXPECT_TRUE(std::signbit(read(view(f32, DType::F32, {2}), {1}).f));
  EXPECT_EQ(read(view(f64, DType::F64, {1}), {0}).f, 0.1f);
  EXPECT_EQ(read(view(i64, DType::I64, {4}), {0}).i, std::numeric_limits<std::int32_t>::max());
  EXPECT_EQ(read(view(i64, DType::I64, {4}), {1}).i, std::numeric_limits<std::int32_t>::min());
  EXPECT_EQ(read(view(i64, DType::I64, {4}), {2}).i, -7);
  EXPECT_EQ(read(view(i64, DType::I64, {4}), {3}).i, std::numeric_limits<std::int32_t>::max());
  EXPECT_EQ(read(view(bytes, DType::U8, {4}), {3}).i, 255);
  EXPECT_FALSE(read(view(bytes, DType::Bool, {4}), {0}).b);
  EXPECT_TRUE(read(view(bytes, DType::Bool, {4}), {2}).b);
}

TEST(Load, IndicesAreClamped) {
  const std::vector<std::int32_t> data{10, 11, 12, 20, 21, 22};
  const TensorView tensor = view(data, DType::I32, {2, 3});
  constexpr std::int32_t int_min = std::numeric_limits<std::int32_t>::min();
  constexpr std::int32_t int_max = std::numeric_limits<std::int32_t>::max();
  EXPECT_EQ(read(tensor, {1, 2}).i, 22);
  EXPECT_EQ(read(tensor, {-1, 1}).i, 11);
  EXPECT_EQ(read(tensor, {2, 3}).i, 22);
  EXPECT_EQ(read(tensor, {int_min, int_max}).i, 12);
  EXPECT_EQ(read(tensor, {int_max, int_min}).i, 20);
}

TEST(Load, EmptyTensorsReadAsZero) {
  const std::vector<float> data{5};
  EXPECT_EQ(read(view(data, DType::F32, {0}), {0}).f, 0);
  EXPECT_EQ(read(view(data, DType::F32, {3, 0}), {1, 7}).f, 0);
  EXPECT_EQ(read(TensorView{nullptr, DType::F32, 0, {}, {}}, {}).f, 0);
}

TEST(Load, RankZeroAndStrides) {
  const std::vector<float> data{1, 2, 3, 4, 5, 6};
  EXPECT_EQ(read(view(data, DType::F32, {}), {}).f, 1);
  TensorView transposed = view(data, DType::F32, {3, 2});
  transposed.extent = {2, 3}, transposed.stride = {1, 2};
  EXPECT_EQ(read(transposed, {1, 2}).f, 6);
  transposed.stride = {0, 1};  // broadcast
  EXPECT_EQ(read(transposed, {1, 2}).f, 3);
}

// The index of a load decides, so it is computed in f32 even if the values are double.
TEST(Load, IndicesAreThoseOfFloat) {
  Declarations declared;
  declare(declared, parse_tensor("t:f32[3]"));
  declare(declared, parse_scalar("x"));
  const std::vector<float> data{1, 2, 3};
  const TensorView tensors[] = {view(data, DType::F32, {3})};
  const ScalarValue scalars[] = {{0.1f, 0}};
  const Expr expr = parse_formula("t[i32(x * 10.0)]", declared);  // 1 in f32, 1.0000000149 in f64
  Point<double> point;
  point.tensors = tensors, point.scalars = scalars;
  EXPECT_EQ(evaluate(expr, point).f, 2);
}

}  // namespace
}  // namespace fovea::test
