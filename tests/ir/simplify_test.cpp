// Simplifying keeps every value that float computes, bit for bit, and never makes an expression
// larger. (In double, what becomes constant is that f32 from then on, as when building.)
#include "ir/simplify.h"

#include <gtest/gtest.h>

#include "ir/build.h"
#include "ir/diff.h"
#include "ir/parse.h"
#include "ir/print.h"
#include "tests/ir/random_point.h"

namespace fovea::test {
namespace {

using namespace ir;

// What float computes, taken from an evaluation in either precision.
template <class Real>
Cell<float> as_float(const Expr& expr, const Point<Real>& point) {
  const Cell<Real> value = evaluate(expr, point);
  return {value.exact, value.exact, value.i, value.b};
}

template <class Real>
void expect_same(const Expr& before, const Expr& after, const Point<Real>& point) {
  const Cell<float> wanted = as_float(before, point), got = as_float(after, point);
  ASSERT_TRUE(same_value(before->type(), wanted, got))
      << print(before, random_declarations()) << "\nbecomes\n"
      << print(after, random_declarations()) << "\nat " << point_text(point) << "\nwas "
      << value_text(before->type(), wanted) << ", is " << value_text(before->type(), got);
}

Expr random_formula(Random& random) {
  constexpr Type types[] = {Type::F32, Type::F32, Type::I32, Type::Bool};
  const Expr expr = build(draw(random, {.type = random.pick(types), .size = random.below(24)}));
  const bool derive = expr->type() == Type::F32 && random.chance(50);
  return derive ? differentiate(expr).score : expr;
}

TEST(Simplify, KeepsValuesAndNeverGrows) {
  const std::uint64_t seed = test_seed();
  long shrunk = 0;
  for (std::uint64_t i = 0; i < cases(20000); ++i) {
    SCOPED_TRACE(seed_text(seed, i));
    Random random(seed, i);
    const Expr before = random_formula(random);
    const Expr after = simplify(before);
    ASSERT_LE(node_count(after), node_count(before)) << print(before, random_declarations());
    shrunk += node_count(after) < node_count(before);
    if (after == before) continue;
    for (int j = 0; j < 6; ++j) {
      const RandomCaptured captured(random, random.chance(50) ? Values::Tame : Values::Any);
      ASSERT_NO_FATAL_FAILURE(expect_same(before, after, captured.point<float>(random)));
      ASSERT_NO_FATAL_FAILURE(expect_same(before, after, captured.point<double>(random)));
    }
  }
  EXPECT_GT(shrunk, static_cast<long>(cases(100)));
}

TEST(Simplify, UsesConditionsInTheirBranches) {
  const auto simplified = [](const char* text) {
    return print(simplify(parse_formula(text, {})), {});
  };
  EXPECT_EQ(simplified("q > k ? (q > k ? score : 1.0) * 2.0 : 0.0"), "q > k ? score * 2.0 : 0.0");
  EXPECT_EQ(simplified("q > k && h < 2 ? (h < 2 ? score : 1.0) * 2.0 : 0.0"),
            print(parse_formula("q > k && h < 2 ? score * 2.0 : 0.0", {}), {}));
  EXPECT_EQ(simplified("score < 1.0 ? 2.0 : (score < 1.0 ? 1.0 : score) * 2.0"),
            "score < 1.0 ? 2.0 : score * 2.0");
}

}  // namespace
}  // namespace fovea::test
