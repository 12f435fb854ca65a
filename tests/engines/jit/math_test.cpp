// FunctionAccuracy of device/math.h that decide nothing, against the language's own: how far they
// are off, and that infinities and NaN go where they should.
#define FOVEA_HOST_PRIMITIVES "tests/engines/jit/host_numbers.h"
#include "engines/jit/device/math.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "ir/arith.h"
#include "tests/ir/random.h"

namespace fovea::test {
namespace {

using ir::Op;

struct Function {
  Op op;
  float (*precise)(float);
  float (*fast)(float);
};

#define FOVEA_FUNCTION(Name, name) \
  Function { Op::Name, device::precise::name, device::fast::name }
const Function functions[] = {
    FOVEA_FUNCTION(Exp, exp),           FOVEA_FUNCTION(Exp2, exp2),
    FOVEA_FUNCTION(Expm1, expm1),       FOVEA_FUNCTION(Log, log),
    FOVEA_FUNCTION(Log2, log2),         FOVEA_FUNCTION(Log1p, log1p),
    FOVEA_FUNCTION(Sqrt, sqrt),         FOVEA_FUNCTION(Rsqrt, rsqrt),
    FOVEA_FUNCTION(Tanh, tanh),         FOVEA_FUNCTION(Sigmoid, sigmoid),
    FOVEA_FUNCTION(Softplus, softplus), FOVEA_FUNCTION(Erf, erf),
    FOVEA_FUNCTION(Sin, sin),           FOVEA_FUNCTION(Cos, cos),
    FOVEA_FUNCTION(Tan, tan),
};
#undef FOVEA_FUNCTION

double wanted_of(Op op, float x) {
  const auto cell = ir::Cell<double>::real(static_cast<double>(x));
  return ir::apply<double>(op, &cell).f;
}

float argument(Random& random, int kind) {
  const float unit = static_cast<float>(random.below(1 << 24)) / 8388608.0f - 1.0f;  // -1 .. 1
  switch (kind % 5) {
    case 0: return unit * 3;
    case 1: return unit * 12;
    case 2: return unit * 80;
    case 3: return std::ldexp(unit, random.between(-60, 60));
    default: return 1 + unit * 0.01f;
  }
}

void check(const Function& f, float x) {
  const double wanted = wanted_of(f.op, x);
  const double precise = f.precise(x), fast = f.fast(x);
  const auto name = info(f.op).name;
  if (std::isnan(wanted)) {
    ASSERT_TRUE(std::isnan(precise) && std::isnan(fast)) << name << "(" << x << ")";
    return;
  }
  // What lies beyond f32, or below its normal numbers, is rounded to what it ends with.
  if (std::fabs(wanted) > 1e38) {
    ASSERT_GE(std::fabs(precise), 9e37) << name << "(" << x << ")";
    ASSERT_GE(std::fabs(fast), 9e37) << name << "(" << x << ")";
    return;
  }
  const double size = std::fabs(wanted), tiny = 1.2e-38;
  ASSERT_NEAR(precise, wanted, 5e-7 * size + tiny) << name << "(" << x << ")";
  ASSERT_NEAR(fast, wanted, 1e-5 * size + tiny) << name << "(" << x << ")";
}

TEST(DeviceMath, FunctionsAreClose) {
  const std::uint64_t seed = test_seed();
  SCOPED_TRACE(seed_text(seed, 0));
  Random random(seed);
  for (const Function& f : functions) {
    for (int i = 0; i < 20000; ++i) {
      check(f, argument(random, i));
      if (HasFatalFailure()) return;
    }
  }
}

TEST(DeviceMath, InfinitiesAndNaN) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  for (const Function& f : functions) {
    for (const float x : {infinity, -infinity, std::nanf(""), 0.0f, -0.0f, 1e30f, -1e30f}) {
      const bool waves = f.op == Op::Sin || f.op == Op::Cos || f.op == Op::Tan;
      if (waves && std::fabs(x) == 1e30f) continue;
      check(f, x);
      if (HasFatalFailure()) return;
    }
  }
}

// Dividing by a number that changes seldom is multiplying by this.
TEST(DeviceMath, Reciprocals) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  using device::precise::reciprocal;
  EXPECT_EQ(reciprocal(4.0f), 0.25f);
  EXPECT_EQ(reciprocal(infinity), 0.0f);
  EXPECT_EQ(reciprocal(0.0f), infinity);
  EXPECT_EQ(reciprocal(-0.0f), -infinity);
  EXPECT_EQ(0.0f * reciprocal(1e-42f), 0.0f);
  EXPECT_EQ(0.0f * reciprocal(-1e-42f), 0.0f);
  EXPECT_TRUE(std::isnan(reciprocal(std::nanf(""))));
}

}  // namespace
}  // namespace fovea::test
