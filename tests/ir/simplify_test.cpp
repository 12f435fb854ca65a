// Simplifying keeps every value that float computes, bit for bit, and never makes an expression
// larger. (In double, what becomes constant is that f32 from then on, as when building.)
#include "ir/simplify.h"

#include <gtest/gtest.h>

#include "ir/build.h"
#include "ir/diff.h"
#include "ir/parse.h"
#include "ir/print.h"
#include "ir/range.h"
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

TEST(Simplify, KeepsValuesInsideTheBox) {
  const std::uint64_t seed = test_seed();
  long shrunk = 0;
  for (std::uint64_t i = 0; i < cases(20000); ++i) {
    SCOPED_TRACE(seed_text(seed, i));
    Random random(seed, i);
    const Expr before = random_formula(random);
    const Sizes sizes;
    const RandomCaptured captured(random, Values::Tame, sizes);
    Box box = captured.box();
    box.b = {0, sizes.B - 1}, box.h = {0, sizes.H - 1};
    box.q = {random.between(0, 3), sizes.Sq - 1}, box.k = {0, random.between(0, sizes.Skv - 1)};
    const std::vector<Range> scalars = captured.scalar_ranges();
    if (random.chance(50)) box.scalars = scalars;
    const Expr after = simplify(before, box);
    ASSERT_LE(node_count(after), node_count(before)) << print(before, random_declarations()) << "\n"
                                                     << print(after, random_declarations());
    shrunk += node_count(after) < node_count(before);
    if (after == before) continue;
    for (int j = 0; j < 6; ++j) {
      Point<float> point = captured.point<float>(random);
      point.q =
          random.between(static_cast<std::int32_t>(box.q.lo), static_cast<std::int32_t>(box.q.hi));
      point.k = random.between(0, static_cast<std::int32_t>(box.k.hi));
      ASSERT_NO_FATAL_FAILURE(expect_same(before, after, point));
    }
  }
  EXPECT_GT(shrunk, static_cast<long>(cases(5000)));
}

// The order of terms in a && chain changes when one of them does, and what was shared is not.
TEST(Simplify, DoesNotGrowWhenChainsAreReordered) {
  const Expr before = parse_formula(
      "let c = (b < q) == (h < 3); let both = (k - q) % 7 == 1 && (c || q < 100);"
      "(both && k < 5 ? score : 1.0) + (both && k < 6 ? score * 2.0 : 1.0)",
      {});
  Box box;
  box.b = {0, 0}, box.q = {1, 50}, box.h = {0, 5}, box.k = {0, 50};
  EXPECT_LE(node_count(simplify(before, box)), node_count(before));
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

// A front end whose language wraps negative indices prints the wrap; if it can't happen it goes.
TEST(Simplify, RemovesTheWrapOfAnIndex) {
  Declarations declared;
  declare(declared, parse_tensor("t:f32[H]"));
  const Expr wrapped = parse_formula("let i = h; score + t[i < 0 ? i + H : i]", declared);
  Box box;
  box.h = {0, 7}, box.H = {8, 8};
  EXPECT_EQ(simplify(wrapped, box), parse_formula("score + t[h]", declared));
  box.h = {-1, 7};
  EXPECT_EQ(simplify(wrapped, box), parse_formula("score + t[h < 0 ? h + 8 : h]", declared));
  const Expr relative =
      parse_formula("let i = q - k + Skv - 1; score + t[i < 0 ? i + H : i]", declared);
  box.q = {0, 15}, box.k = {0, 15}, box.Skv = {16, 16};
  EXPECT_EQ(simplify(relative, box), parse_formula("score + t[q - k + 15]", declared));
}

TEST(Simplify, ReplacesWhatIsDecidedOverTheBox) {
  Box box;
  box.q = {64, 127}, box.k = {0, 63};
  EXPECT_EQ(simplify(parse_formula("q >= k ? score : -inf", {}), box), leaf(Op::Score));
  EXPECT_EQ(simplify(parse_formula("q < k", {}), box), constant(false));
  box.k = {0, 64};
  EXPECT_EQ(simplify(parse_formula("q >= k", {}), box), constant(true));
  EXPECT_NE(simplify(parse_formula("q > k", {}), box), constant(true));
}

}  // namespace
}  // namespace fovea::test
