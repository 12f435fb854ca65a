// Every corner of the arithmetic that docs/language.md promises, through text and eval.
#include "ir/eval.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "ir/build.h"
#include "ir/parse.h"
#include "ir/print.h"
#include "tests/ir/random_point.h"

namespace fovea::test {
namespace {

using namespace ir;

constexpr std::int32_t int_min = std::numeric_limits<std::int32_t>::min();
constexpr std::int32_t int_max = std::numeric_limits<std::int32_t>::max();
constexpr float infinity = std::numeric_limits<float>::infinity();

// Two f32 scalars x, y and two i32 scalars m, n: values that the builder can't fold away.
const Declarations& scalars() {
  static const auto* all = [] {
    auto* out = new Declarations;
    for (const char* text : {"x", "y", "m:i32", "n:i32"}) declare(*out, parse_scalar(text));
    return out;
  }();
  return *all;
}

template <class Real>
Cell<Real> at(const char* text, float x, float y, std::int32_t m, std::int32_t n) {
  const ScalarValue values[] = {{x, 0}, {y, 0}, {0, m}, {0, n}};
  Point<Real> point;
  point.scalars = values;
  return evaluate(parse_formula(text, scalars()), point);
}

// At run time in both precisions, and folded: all must agree.
std::int32_t ints(const std::string& text, std::int32_t m, std::int32_t n = 0) {
  const std::int32_t value = at<float>(text.c_str(), 0, 0, m, n).i;
  EXPECT_EQ(at<double>(text.c_str(), 0, 0, m, n).i, value) << text;
  const std::string folded =
      "let m = " + std::to_string(m) + "; let n = " + std::to_string(n) + "; " + text;
  const Expr constant = parse_formula(folded, {});
  EXPECT_EQ(constant->op(), Op::ConstI) << folded;
  EXPECT_EQ(constant->int_value(), value) << folded;
  return value;
}

float reals(const std::string& text, float x, float y = 0) {
  const Cell<float> value = at<float>(text.c_str(), x, y, 0, 0);
  const Expr fx = constant(x), fy = constant(y);
  const std::string folded =
      "let x = " + print(fx, {}) + "; let y = " + print(fy, {}) + "; " + text;
  const Expr constant = parse_formula(folded, {});
  EXPECT_EQ(constant->op(), Op::ConstF) << folded;
  EXPECT_TRUE(same_value(Type::F32, Cell<float>::real(constant->float_value()), value)) << folded;
  // What double says that float would compute is what float computes.
  const float exact = at<double>(text.c_str(), x, y, 0, 0).exact;
  EXPECT_TRUE(same_value(Type::F32, Cell<float>::real(exact), value)) << folded;
  return value.f;
}

bool bools(const std::string& text, float x, float y = 0) {
  const bool value = at<float>(text.c_str(), x, y, 0, 0).b;
  EXPECT_EQ(at<double>(text.c_str(), x, y, 0, 0).b, value) << text;
  return value;
}

void expect_bits(float got, float wanted) {
  EXPECT_EQ(std::bit_cast<std::uint32_t>(got), std::bit_cast<std::uint32_t>(wanted))
      << got << " is not " << wanted;
}

TEST(Eval, IntegersWrap) {
  EXPECT_EQ(ints("m + n", int_max, 1), int_min);
  EXPECT_EQ(ints("m - n", int_min, 1), int_max);
  EXPECT_EQ(ints("m * n", int_max, 2), -2);
  EXPECT_EQ(ints("m * n", int_min, int_min), 0);
  EXPECT_EQ(ints("-m", int_min), int_min);
  EXPECT_EQ(ints("abs(m)", int_min), int_min);
  EXPECT_EQ(ints("abs(m)", -5), 5);
}

TEST(Eval, DivisionByZeroIsZero) {
  for (const char* text : {"m // n", "m % n", "div(m, n)", "rem(m, n)"}) {
    for (const std::int32_t m : {0, 1, -7, int_min, int_max})
      EXPECT_EQ(ints(text, m, 0), 0) << text;
  }
}

TEST(Eval, SmallestByMinusOne) {
  EXPECT_EQ(ints("m // n", int_min, -1), int_min);
  EXPECT_EQ(ints("div(m, n)", int_min, -1), int_min);
  EXPECT_EQ(ints("m % n", int_min, -1), 0);
  EXPECT_EQ(ints("rem(m, n)", int_min, -1), 0);
}

// Python's // and % floor, C's / and % truncate; both pairs give the dividend back.
TEST(Eval, DivisionsAgreeWithPythonAndC) {
  const auto floor_quotient = [](std::int64_t a, std::int64_t b) {
    return static_cast<std::int32_t>(std::floor(static_cast<double>(a) / static_cast<double>(b)));
  };
  const std::int32_t values[] = {-9, -8, -7, -3, -2, -1, 1, 2, 3, 7, 8, 9, int_max, int_min + 1};
  for (const std::int32_t m : values) {
    for (const std::int32_t n : values) {
      const std::int32_t quotient = ints("m // n", m, n), rest = ints("m % n", m, n);
      EXPECT_EQ(quotient, floor_quotient(m, n)) << m << " // " << n;
      EXPECT_EQ(std::int64_t{quotient} * n + rest, m) << m << " % " << n;
      EXPECT_TRUE(rest == 0 || (rest < 0) == (n < 0)) << m << " % " << n;
      EXPECT_EQ(ints("div(m, n)", m, n), m / n);
      EXPECT_EQ(ints("rem(m, n)", m, n), m % n);
    }
  }
  EXPECT_EQ(ints("m // n", -7, 2), -4);  // as Python prints them
  EXPECT_EQ(ints("m % n", -7, 2), 1);
  EXPECT_EQ(ints("m // n", 7, -2), -4);
  EXPECT_EQ(ints("m % n", 7, -2), -1);
}

TEST(Eval, ShiftsUseTheLowFiveBits) {
  EXPECT_EQ(ints("m << n", 1, 31), int_min);
  EXPECT_EQ(ints("m << n", 1, 32), 1);
  EXPECT_EQ(ints("m << n", 3, -1), int_min);
  EXPECT_EQ(ints("m >> n", -8, 1), -4);
  EXPECT_EQ(ints("m >> n", -8, 33), -4);
  EXPECT_EQ(ints("m >> n", int_min, 31), -1);
  EXPECT_EQ(ints("m & n", 12, 10), 8);
  EXPECT_EQ(ints("m | n", 12, 10), 14);
  EXPECT_EQ(ints("m ^ n", 12, 10), 6);
  EXPECT_EQ(ints("~m", 0), -1);
}

TEST(Eval, CastsSaturate) {
  const std::pair<float, std::int32_t> cases[] = {{NAN, 0},
                                                  {infinity, int_max},
                                                  {-infinity, int_min},
                                                  {2147483648.0f, int_max},
                                                  {-2147483648.0f, int_min},
                                                  {2147483520.0f, 2147483520},
                                                  {-2.9f, -2},
                                                  {2.9f, 2},
                                                  {-0.0f, 0},
                                                  {1e30f, int_max},
                                                  {-1e30f, int_min},
                                                  {1e-30f, 0}};
  for (const auto& [x, wanted] : cases) {
    EXPECT_EQ(at<float>("i32(x)", x, 0, 0, 0).i, wanted) << x;
    EXPECT_EQ(at<double>("i32(x)", x, 0, 0, 0).i, wanted) << x;
    EXPECT_EQ(make(Op::IntOfFloat, {constant(x)})->int_value(), wanted) << x;
  }
  EXPECT_TRUE(bools("bool(x)", NAN));
  EXPECT_FALSE(bools("bool(x)", -0.0f));
  EXPECT_EQ(at<float>("f32(m)", 0, 0, 16777217, 0).f, 16777216.0f);
  EXPECT_EQ(at<double>("f32(m)", 0, 0, 16777217, 0).f, 16777217.0);
}

TEST(Eval, MinimaAndMaxima) {
  for (const char* text : {"min(x, y)", "max(x, y)", "clamp(x, y, y)", "clamp(y, x, 1.0)"}) {
    EXPECT_TRUE(std::isnan(reals(text, NAN, 1))) << text;
    EXPECT_TRUE(std::isnan(reals(text, 1, NAN))) << text;
  }
  expect_bits(reals("min(x, y)", 0.0f, -0.0f), -0.0f);
  expect_bits(reals("min(x, y)", -0.0f, 0.0f), -0.0f);
  expect_bits(reals("max(x, y)", 0.0f, -0.0f), 0.0f);
  expect_bits(reals("max(x, y)", -0.0f, 0.0f), 0.0f);
  EXPECT_EQ(reals("clamp(x, 2.0, y)", 5, 1), 1);  // the upper bound wins, as in PyTorch
  EXPECT_EQ(ints("clamp(m, 2, n)", 5, 1), 1);
}

TEST(Eval, PowersThatPeopleWrite) {
  EXPECT_EQ(reals("pow(x, y)", 3, 2), 9);
  expect_bits(reals("pow(x, y)", 1.1f, 2), 1.1f * 1.1f);
  expect_bits(reals("pow(x, y)", 1.1f, -1), 1.0f / 1.1f);
  EXPECT_EQ(reals("pow(x, y)", NAN, 0), 1);
  EXPECT_EQ(reals("pow(x, y)", 0, 0), 1);
  EXPECT_TRUE(std::isnan(reals("pow(x, y)", NAN, 1)));
  EXPECT_TRUE(std::isnan(reals("pow(x, y)", -2, 0.5f)));
  EXPECT_EQ(reals("pow(x, y)", -2, 3), -8);
  expect_bits(reals("pow(x, y)", -0.0f, -1), -infinity);
  EXPECT_EQ(reals("pow(x, y)", infinity, -2), 0);
}

TEST(Eval, RoundsHalfToEven) {
  for (const auto& [x, wanted] : {std::pair(0.5f, 0.0f),
                                  {1.5f, 2.0f},
                                  {2.5f, 2.0f},
                                  {-0.5f, -0.0f},
                                  {-1.5f, -2.0f},
                                  {0.49999997f, 0.0f},
                                  {8388609.5f, 8388610.0f}}) {
    expect_bits(reals("round(x)", x), wanted);
  }
  expect_bits(reals("floor(x)", -0.5f), -1.0f);
  expect_bits(reals("ceil(x)", -0.5f), -0.0f);
  expect_bits(reals("sign(x)", -0.0f), -0.0f);
  EXPECT_EQ(reals("sign(x)", -3), -1);
  EXPECT_TRUE(std::isnan(reals("sign(x)", NAN)));
}

TEST(Eval, ComparisonsWithNaN) {
  for (const char* text : {"x < y", "x <= y", "x > y", "x >= y", "x == y"}) {
    EXPECT_FALSE(bools(text, NAN, 1)) << text;
    EXPECT_FALSE(bools(text, NAN, NAN)) << text;
    EXPECT_TRUE(bools("!(" + std::string(text) + ")", NAN, 1)) << text;
  }
  EXPECT_TRUE(bools("x != y", NAN, NAN));
  EXPECT_TRUE(bools("x == y", 0.0f, -0.0f));
}

TEST(Eval, Functions) {
  EXPECT_EQ(reals("sigmoid(x)", -infinity), 0);
  EXPECT_EQ(reals("sigmoid(x)", infinity), 1);
  EXPECT_EQ(reals("softplus(x)", 1000), 1000);
  EXPECT_EQ(reals("softplus(x)", -1000), 0);
  EXPECT_EQ(reals("log(x)", 0), -infinity);
  EXPECT_TRUE(std::isnan(reals("log(x)", -1)));
  EXPECT_EQ(reals("rsqrt(x)", 4), 0.5f);
  EXPECT_EQ(reals("rsqrt(x)", 0), infinity);
  EXPECT_EQ(reals("exp2(x)", -149), 0x1p-149f);
  EXPECT_EQ(reals("x / y", 1, 0), infinity);
  // A function is rounded once, from double.
  expect_bits(reals("exp(x)", 1.25f), static_cast<float>(std::exp(1.25)));
  expect_bits(reals("tanh(x)", 0.3f), static_cast<float>(std::tanh(static_cast<double>(0.3f))));
}

// Decisions are those of float, whatever the precision: see docs/semantics.md.
TEST(Eval, DoubleDecidesAsFloatDoes) {
  const std::uint64_t seed = test_seed();
  constexpr Type types[] = {Type::Bool, Type::I32};
  for (std::uint64_t i = 0; i < cases(30000); ++i) {
    Random random(seed, i);
    const Expr expr = build(draw(random, {.type = random.pick(types), .size = 25}));
    const RandomCaptured captured(random, random.chance(50) ? Values::Tame : Values::Any);
    Random here(seed, ~i), same(seed, ~i);
    const Cell<float> single = evaluate(expr, captured.point<float>(here));
    const Cell<double> twofold = evaluate(expr, captured.point<double>(same));
    ASSERT_EQ(single.i, twofold.i) << seed_text(seed, i) << print(expr, random_declarations());
    ASSERT_EQ(single.b, twofold.b) << seed_text(seed, i) << print(expr, random_declarations());
  }
}

}  // namespace
}  // namespace fovea::test
