// Element types of tensors and captured tensors, and their gradients' types, strides and extents.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/dtype.h"
#include "base/error.h"
#include "tests/engines/reference/example.h"

namespace fovea::test {
namespace {

TEST(Types, OutputsAreRoundedOnce) {
  for (const DType type : {DType::F32, DType::F16, DType::BF16}) {
    Problem problem = make_problem(small_sizes(5, 6), "mod=\"softcap(3)\"");
    for (TensorSpec* spec : {&problem.q, &problem.k, &problem.v, &problem.o, &problem.grad_o,
                             &problem.grad_q, &problem.grad_k, &problem.grad_v}) {
      spec->dtype = type;
    }
    Example narrow = filled(problem);
    Example wide = filled(make_problem(small_sizes(5, 6), "mod=\"softcap(3)\""));
    wide.q.assign(narrow.q.numbers());
    wide.k.assign(narrow.k.numbers());
    wide.v.assign(narrow.v.numbers());
    wide.grad_o.assign(narrow.grad_o.numbers());
    narrow.forward();
    wide.forward();
    const auto rounded = [&](const Array& exact) {
      Array out = Array::dense(type, {static_cast<std::int64_t>(exact.count())});
      out.assign(exact.numbers());
      return out.numbers();
    };
    EXPECT_EQ(narrow.o.numbers(), rounded(wide.o)) << dtype_name(type);
    wide.o.assign(narrow.o.numbers());  // the backward starts from what is given
    wide.lse.assign(narrow.lse.numbers());
    narrow.backward();
    wide.backward();
    EXPECT_EQ(narrow.grad_q.numbers(), rounded(wide.grad_q)) << dtype_name(type);
    EXPECT_EQ(narrow.grad_k.numbers(), rounded(wide.grad_k)) << dtype_name(type);
    EXPECT_EQ(narrow.grad_v.numbers(), rounded(wide.grad_v)) << dtype_name(type);
  }
}

TEST(Types, DoublesAreNotRoundedTwice) {
  std::uint16_t bits = 0;
  write_number(&bits, DType::F16, 0, 1 + std::ldexp(1.0, -11) + std::ldexp(1.0, -40));
  EXPECT_EQ(bits, 0x3c01);
  write_number(&bits, DType::F16, 0, 1 + 3 * std::ldexp(1.0, -11) - std::ldexp(1.0, -40));
  EXPECT_EQ(bits, 0x3c01);
  write_number(&bits, DType::BF16, 0, -1 - std::ldexp(1.0, -8) - std::ldexp(1.0, -40));
  EXPECT_EQ(bits, 0xbf81);
  write_number(&bits, DType::F16, 0, 1e300);
  EXPECT_EQ(bits, 0x7c00);
  write_number(&bits, DType::F16, 0, -1e-300);
  EXPECT_EQ(bits, 0x8000);
  write_number(&bits, DType::BF16, 0, std::numeric_limits<double>::quiet_NaN());
  EXPECT_TRUE(std::isnan(bfloat16_to_float(bits)));
}

TEST(Captured, TensorsOfEveryType) {
  Example example = filled(make_problem(
      small_sizes(1, 1),
      R"p(mod="t0[k] + t1[k] + t2[k] + t3[k] + t4[k] + t5[k] + (t6[k] ? 0.5 : 0.25)" )p"
      R"p(tensor="t0:f32[1]" tensor="t1:f16[1]" tensor="t2:bf16[1]" tensor="t3:i32[1]" )p"
      R"p(tensor="t4:i64[1]" tensor="t5:u8[1]" tensor="t6:bool[1]")p"));
  const char* names[] = {"t0", "t1", "t2", "t3", "t4", "t5", "t6"};
  const double values[] = {1, 20, 304, 4000, 50000, 200, 1};
  for (std::size_t i = 0; i < 7; ++i) example.tensor(names[i]).value.put(0, values[i]);
  example.problem.grad_lse = true;
  example.grad_lse.fill(3);
  example.forward_and_backward();
  EXPECT_EQ(example.lse.number(0), 1 + 20 + 304 + 4000 + 50000 + 200 + 0.5);
  for (const char* name : {"t0", "t1", "t2"}) EXPECT_EQ(example.tensor(name).gradient.number(0), 3);
}

TEST(Captured, GradientsInTheirOwnTypeAndStrides) {
  Problem problem =
      make_problem(small_sizes(3, 4), R"p(mod="score + t[q, k]" tensor="t:f32[Sq,Skv]")p");
  Example dense = filled(problem), other = filled(problem);
  other.tensor("t").gradient = Array(DType::BF16, {3, 4}, {2, 7});
  dense.forward_and_backward();
  other.forward_and_backward();
  Array rounded = Array::dense(DType::BF16, {3, 4});
  rounded.assign(dense.tensor("t").gradient.numbers());
  EXPECT_EQ(other.tensor("t").gradient.numbers(), rounded.numbers());
}

TEST(Captured, ATensorLargerThanDeclaredIsRefusedWhereItsGradientIsWanted) {
  Example example =
      filled(make_problem(small_sizes(2, 3), R"p(mod="score + t[k]" tensor="t:f32[Skv]")p"));
  example.forward();
  example.tensor("t") = {Array::dense(DType::F64, {4}), Array::dense(DType::F64, {4})};
  try {
    example.backward();
    FAIL() << "was accepted";
  } catch (const InvalidArgument& error) {
    EXPECT_STREQ(error.what(),
                 "tensor 't' is bound with 4 elements, but its declared extents have 3; "
                 "where its gradient is wanted, declare it as large as it is");
  }
}

}  // namespace
}  // namespace fovea::test
