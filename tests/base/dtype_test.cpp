// Element types, and the 16-bit formats against their definition.
#include "base/dtype.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>

#include "base/error.h"

namespace fovea {
namespace {

TEST(DType, NamesAndSizes) {
  const struct {
    DType type;
    const char* name;
    std::int64_t size;
  } rows[] = {{DType::F32, "f32", 4}, {DType::F16, "f16", 2},  {DType::BF16, "bf16", 2},
              {DType::F64, "f64", 8}, {DType::I32, "i32", 4},  {DType::I64, "i64", 8},
              {DType::U8, "u8", 1},   {DType::Bool, "bool", 1}};
  for (const auto& row : rows) {
    EXPECT_EQ(dtype_name(row.type), row.name);
    EXPECT_EQ(dtype_size(row.type), row.size) << row.name;
    EXPECT_EQ(dtype_from_name(row.name), row.type);
  }
  EXPECT_EQ(dtype_from_name("float"), std::nullopt);
  EXPECT_EQ(dtype_from_name(""), std::nullopt);
  EXPECT_EQ(dtype_from_name("F32"), std::nullopt);
  EXPECT_THROW(dtype_name(static_cast<DType>(200)), InternalError);
}

// The 16-bit formats, against the definition: every pattern there and back, and every rounding.
struct Format {
  const char* name;
  float (*widen)(std::uint16_t);
  std::uint16_t (*narrow)(float);
  std::uint16_t infinity;  // its pattern: the largest finite number is one less
};
constexpr Format formats[] = {{"f16", half_to_float, float_to_half, 0x7c00},
                              {"bf16", bfloat16_to_float, float_to_bfloat16, 0x7f80}};

float negated(float x) { return -x; }

TEST(Half, EveryPatternIsWhatItsFormatSays) {
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

TEST(Half, EveryPatternComesBack) {
  for (const Format& format : formats) {
    for (std::uint32_t bits = 0; bits <= 0xffff; ++bits) {
      const auto pattern = static_cast<std::uint16_t>(bits);
      const float wide = format.widen(pattern);
      const std::uint16_t back = format.narrow(wide);
      if (!std::isnan(wide)) {
        ASSERT_EQ(back, pattern) << format.name;
      } else {
        ASSERT_TRUE(std::isnan(format.widen(back))) << format.name << ' ' << pattern;
        ASSERT_EQ(back >> 15, pattern >> 15) << format.name;
      }
    }
  }
}

// Between every two neighbours: the middle goes to the even one, beside it to the nearer one.
TEST(Half, EveryTieGoesToEven) {
  for (const Format& format : formats) {
    for (std::uint16_t low = 0; low + 1 < format.infinity; ++low) {
      const auto high = static_cast<std::uint16_t>(low + 1);
      const double middle =
          (static_cast<double>(format.widen(low)) + static_cast<double>(format.widen(high))) / 2;
      const auto tie = static_cast<float>(middle);
      ASSERT_EQ(static_cast<double>(tie), middle);  // exact: float has bits to spare
      const std::uint16_t even = low % 2 == 0 ? low : high;
      ASSERT_EQ(format.narrow(tie), even) << format.name << ' ' << low;
      ASSERT_EQ(format.narrow(std::nextafter(tie, 0.0f)), low) << format.name << ' ' << low;
      ASSERT_EQ(format.narrow(std::nextafter(tie, INFINITY)), high) << format.name << ' ' << low;
      ASSERT_EQ(format.narrow(negated(tie)), even | 0x8000) << format.name << ' ' << low;
    }
  }
}

TEST(Half, TooLargeBecomesInfinity) {
  EXPECT_EQ(float_to_half(65504.0f), 0x7bff);
  EXPECT_EQ(float_to_half(std::nextafter(65520.0f, 0.0f)), 0x7bff);
  EXPECT_EQ(float_to_half(65520.0f), 0x7c00);
  EXPECT_EQ(float_to_half(-1e30f), 0xfc00);
  EXPECT_EQ(float_to_half(-INFINITY), 0xfc00);
  EXPECT_EQ(float_to_bfloat16(std::numeric_limits<float>::max()), 0x7f80);
  EXPECT_EQ(float_to_bfloat16(std::bit_cast<float>(0x7f7f7fffu)), 0x7f7f);
  EXPECT_EQ(float_to_bfloat16(INFINITY), 0x7f80);
}

TEST(Half, TheSmallestNumbers) {
  EXPECT_EQ(float_to_half(0.0f), 0);
  EXPECT_EQ(float_to_half(-0.0f), 0x8000);
  EXPECT_EQ(float_to_half(std::ldexp(1.0f, -24)), 1);
  EXPECT_EQ(float_to_half(std::ldexp(1.0f, -25)), 0);  // a tie: to even
  EXPECT_EQ(float_to_half(std::nextafter(std::ldexp(1.0f, -25), 1.0f)), 1);
  EXPECT_EQ(float_to_half(std::numeric_limits<float>::denorm_min()), 0);
  EXPECT_EQ(float_to_bfloat16(std::bit_cast<float>(0x00008000u)), 0);
  EXPECT_EQ(float_to_bfloat16(std::bit_cast<float>(0x00018000u)), 2);
}

TEST(Half, AnyNaNStaysOne) {
  for (const std::uint32_t bits : {0x7f800001u, 0x7fffffffu, 0xff800001u, 0x7fc00000u}) {
    const float nan = std::bit_cast<float>(bits);
    EXPECT_TRUE(std::isnan(half_to_float(float_to_half(nan)))) << bits;
    EXPECT_TRUE(std::isnan(bfloat16_to_float(float_to_bfloat16(nan)))) << bits;
  }
}

// Random floats: the result is never further away than its neighbours.
TEST(Half, RandomFloatsGoToTheNearest) {
  std::mt19937 random(7);
  for (int i = 0; i < 1000000; ++i) {
    const float x = std::bit_cast<float>(static_cast<std::uint32_t>(random()));
    if (!std::isfinite(x)) continue;
    for (const Format& format : formats) {
      const std::uint16_t got = format.narrow(x);
      const auto distance = [&](int pattern) {
        const float there = format.widen(static_cast<std::uint16_t>(pattern));
        return std::isnan(there) ? std::numeric_limits<double>::infinity()
                                 : std::fabs(static_cast<double>(there) - static_cast<double>(x));
      };
      if ((got & 0x7fff) == format.infinity) continue;
      ASSERT_LE(distance(got), distance(got + 1)) << format.name << ' ' << x;
      if ((got & 0x7fff) != 0) {
        ASSERT_LE(distance(got), distance(got - 1)) << format.name << ' ' << x;
      }
    }
  }
}

}  // namespace
}  // namespace fovea
