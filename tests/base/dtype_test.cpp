// Element types. That 16-bit formats convert exactly is tested with loads, in tests/ir.
#include "base/dtype.h"

#include <gtest/gtest.h>

#include <cmath>

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

TEST(DType, SixteenBits) {
  EXPECT_EQ(half_to_float(0x3c00), 1.0f);
  EXPECT_EQ(half_to_float(0xc000), -2.0f);
  EXPECT_EQ(half_to_float(0x7bff), 65504.0f);
  EXPECT_EQ(half_to_float(0x0001), 0x1p-24f);
  EXPECT_EQ(half_to_float(0x7c00), INFINITY);
  EXPECT_TRUE(std::isnan(half_to_float(0x7e00)));
  EXPECT_TRUE(std::signbit(half_to_float(0x8000)));
  EXPECT_EQ(bfloat16_to_float(0x3f80), 1.0f);
  EXPECT_EQ(bfloat16_to_float(0xff80), -INFINITY);
}

}  // namespace
}  // namespace fovea
