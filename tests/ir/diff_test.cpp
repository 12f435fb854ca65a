// Derivatives derived by hand, and PyTorch's conventions at ties and kinks.
#include "ir/diff.h"

#include <gtest/gtest.h>

#include <cmath>
#include <ctime>

#include "ir/build.h"
#include "ir/eval.h"
#include "ir/parse.h"
#include "ir/print.h"
#include "ir/range.h"
#include "ir/simplify.h"
#include "ir/tape.h"

namespace fovea::test {
namespace {

using namespace ir;

const Declarations& names() {
  static const auto* all = [] {
    auto* out = new Declarations;
    for (const char* text : {"slopes:f32[H]", "bias:f32[H,9]", "table:f32[8,H]", "doc:i32[Sq]"}) {
      declare(*out, parse_tensor(text));
    }
    for (const char* text : {"cap", "x", "y", "z", "n:i32"}) declare(*out, parse_scalar(text));
    return out;
  }();
  return *all;
}

Expr formula(const std::string& text) { return parse_formula(text, names()); }

// The derivative by score, simplified, as text.
std::string by_score(const std::string& text) {
  return print(simplify(differentiate(formula(text)).score), names());
}

// At scalars cap, x, y, z.
double value(const Expr& expr, float x, float y = 0, float z = 0, double score = 0) {
  const ScalarValue scalars[] = {{30, 0}, {x, 0}, {y, 0}, {z, 0}, {0, 3}};
  Point<double> point;
  point.score = score;
  point.scalars = scalars;
  return evaluate(expr, point).f;
}

// Gradient by the scalar x (1), y (2) or z (3).
double by(std::uint32_t slot, const std::string& text, float x, float y = 0, float z = 0) {
  for (const ScalarGradient& gradient : differentiate(formula(text)).scalars) {
    if (gradient.slot == slot) return value(gradient.gradient, x, y, z);
  }
  ADD_FAILURE() << "no gradient by scalar " << slot << " of " << text;
  return NAN;
}
double by_x(const std::string& text, float x, float y = 0, float z = 0) {
  return by(1, text, x, y, z);
}
double by_y(const std::string& text, float x, float y = 0, float z = 0) {
  return by(2, text, x, y, z);
}
double by_z(const std::string& text, float x, float y = 0, float z = 0) {
  return by(3, text, x, y, z);
}

TEST(Diff, StockFormulas) {
  EXPECT_EQ(by_score("score"), "1.0");
  EXPECT_EQ(by_score("score + bias[h, clamp(k - q, 0, 8)]"), "1.0");
  EXPECT_EQ(by_score("alibi"), "1.0");
  EXPECT_EQ(by_score("q >= k ? score : -inf"), "q >= k ? 1.0 : 0.0");
  EXPECT_EQ(by_score("3.0"), "0.0");
  EXPECT_EQ(by_score("q"), "0.0");
  const Gradients softcap = differentiate(formula("softcap(cap)"));
  const double t = std::tanh(2.0 / 30);
  EXPECT_NEAR(value(softcap.score, 0, 0, 0, 2), 1 - t * t, 1e-7);
  ASSERT_EQ(softcap.scalars.size(), 1u);
  EXPECT_NEAR(value(softcap.scalars[0].gradient, 0, 0, 0, 2), t - 2.0 / 30 * (1 - t * t), 1e-7);
}

TEST(Diff, Loads) {
  const Gradients alibi = differentiate(formula("score + slopes[h] * (k - q)"));
  ASSERT_EQ(alibi.loads.size(), 1u);
  EXPECT_EQ(print(alibi.loads[0].load, names()), "slopes[h]");
  EXPECT_EQ(alibi.loads[0].gradient, formula("f32(k - q)"));
  // A T5-like table: the bucket is an integer, no gradient flows through it.
  const Gradients t5 =
      differentiate(formula("let d = max(q - k, 0); let far = 4 + i32(log(f32(d) / 4.0) / 0.5);"
                            "score * table[d < 4 ? d : min(far, 7), h]"));
  ASSERT_EQ(t5.loads.size(), 1u);
  EXPECT_EQ(t5.loads[0].gradient, leaf(Op::Score));
  // Different indices are different loads, in the order of first use; integers have none.
  const Gradients two = differentiate(formula("bias[h, 0] * bias[h, 1] + f32(doc[q]) * score"));
  ASSERT_EQ(two.loads.size(), 2u);
  EXPECT_EQ(two.loads[0].gradient, two.loads[1].load);
  EXPECT_EQ(two.loads[1].gradient, two.loads[0].load);
  EXPECT_EQ(two.score, formula("f32(doc[q])"));
}

TEST(Diff, TiesShareTheGradient) {
  for (const char* text : {"max(x, y)", "min(x, y)"}) {
    EXPECT_EQ(by_x(text, 1, 1), 0.5) << text;
    EXPECT_EQ(by_y(text, 1, 1), 0.5) << text;
    EXPECT_EQ(by_x(text, 0.0f, -0.0f), 0.5) << text;
  }
  EXPECT_EQ(by_x("max(x, y)", 2, 1), 1);
  EXPECT_EQ(by_y("max(x, y)", 2, 1), 0);
  EXPECT_EQ(by_x("min(x, y)", 2, 1), 0);
  EXPECT_EQ(by_y("min(x, y)", 2, 1), 1);
  EXPECT_EQ(by_x("max(x, y)", NAN, 1), 1);  // both, as in PyTorch
  EXPECT_EQ(by_y("max(x, y)", NAN, 1), 1);
}

TEST(Diff, ClampBelongsToItsArgumentAtBothBounds) {
  for (const auto& [x, wanted] :
       {std::pair(0.0f, 0.0), {1.0f, 1.0}, {1.5f, 1.0}, {2.0f, 1.0}, {3.0f, 0.0}}) {
    EXPECT_EQ(by_x("clamp(x, 1.0, 2.0)", x), wanted) << x;
  }
  const char* const text = "clamp(x, y, z)";
  EXPECT_EQ(by_y(text, 0, 1, 2), 1);
  EXPECT_EQ(by_y(text, 1, 1, 2), 0);
  EXPECT_EQ(by_z(text, 3, 1, 2), 1);
  EXPECT_EQ(by_z(text, 2, 1, 2), 0);
  EXPECT_EQ(by_z(text, 1.5f, 2, 1), 1);  // bounds that cross: the upper one wins
  EXPECT_EQ(by_y(text, 1.5f, 2, 1), 0);
  EXPECT_EQ(by_x(text, 1.5f, 2, 1), 0);
  EXPECT_EQ(by_y(text, 0, 1, 1), 0);  // bounds that meet: PyTorch gives neither of them anything
  EXPECT_EQ(by_z(text, 0, 1, 1), 0);
  EXPECT_EQ(by_z(text, 2, 1, 1), 1);
}

TEST(Diff, Kinks) {
  EXPECT_EQ(by_x("abs(x)", 0), 0);
  EXPECT_EQ(by_x("abs(x)", -2), -1);
  EXPECT_EQ(by_score("floor(score) + ceil(score) + round(score) + sign(score)"), "0.0");
  EXPECT_EQ(by_score("f32(i32(score)) + f32(score > 0.0)"), "0.0");
  EXPECT_EQ(by_x("sqrt(x)", 0), INFINITY);
  EXPECT_EQ(by_x("max(x, 0.0) + min(x, 0.0)", 0), 1);
}

TEST(Diff, Powers) {
  EXPECT_EQ(by_x("pow(x, y)", 0, 0), 0);  // exponent 0: nothing
  EXPECT_EQ(by_y("pow(x, y)", 0, 0), 0);  // base 0, exponent >= 0: nothing
  EXPECT_EQ(by_y("pow(x, y)", 0, 2), 0);
  EXPECT_EQ(by_y("pow(x, y)", 0, -1), -INFINITY);
  EXPECT_EQ(by_x("pow(x, y)", 0, 1), 1);
  EXPECT_EQ(by_x("pow(x, y)", 0, 2), 0);
  EXPECT_NEAR(by_x("pow(x, y)", 2, 3), 12, 1e-6);
  EXPECT_NEAR(by_y("pow(x, y)", 2, 3), 8 * std::log(2.0), 1e-6);
  EXPECT_EQ(by_x("pow(x, y)", -2, 3), 12);
  EXPECT_TRUE(std::isnan(by_y("pow(x, y)", -2, 3)));
  EXPECT_EQ(by_x("pow(x, 2.0)", 3), 6);
}

// The value of the branch that is not taken must not reach the derivative, even if it is NaN.
TEST(Diff, SelectsGuardTheirBranches) {
  for (const char* text : {
           "x > 0.0 ? log(x) : 0.0",
           "let l = log(x); x > 0.0 ? l : 0.0",
           "x > 0.0 ? sqrt(x) * log(x) : 0.0",
           "x > 0.0 ? (y > 0.0 ? log(x) * log(y) : 1.0) : 0.0",
           "let s = rsqrt(x); x > 0.0 ? s * s : 0.0",
           "x <= 0.0 ? 0.0 : pow(x, 0.5) / x",
       }) {
    for (const float x : {0.0f, -0.0f, -1.0f, -INFINITY}) {
      EXPECT_EQ(by_x(text, x, 1), 0) << text << " at " << x;
    }
    EXPECT_TRUE(std::isfinite(by_x(text, 0.5f, 1))) << text;
  }
  EXPECT_EQ(by_x("x > 0.0 ? log(x) : x * 3.0", -1), 3);
  EXPECT_EQ(by_x("x > 0.0 ? log(x) : x * 3.0", 2), 0.5);
  // Both branches and what surrounds them use the same operand.
  EXPECT_EQ(by_x("x * x + (x > 0.0 ? log(x) : 5.0 * x) + x", -1), -2 + 5 + 1);
  EXPECT_EQ(by_x("(x > 0.0 ? x : y) * (x > 0.0 ? y : x)", -2, 7), 7);
  // Second derivatives neither.
  const Expr first = differentiate(formula("score > 0.0 ? log(score) : 0.0")).score;
  const Expr second = differentiate(first).score;
  EXPECT_EQ(value(second, 0, 0, 0, 0.0), 0);
  EXPECT_EQ(value(second, 0, 0, 0, -3.0), 0);
  EXPECT_EQ(value(second, 0, 0, 0, 2.0), -0.25);
}

TEST(Diff, SeedsAndGrad) {
  const Gradients bprop = differentiate(formula("score * score"), leaf(Op::Grad));
  EXPECT_EQ(bprop.score, parse_formula("grad * score + grad * score", {}));
  const Gradients again = differentiate(bprop.score);
  EXPECT_EQ(value(again.grad, 0, 0, 0, 3), 6);
  EXPECT_EQ(differentiate(formula("x")).grad, constant(0.0f));
}

// No measure of speed, but of growth: what copies shared parts would not end at all. Seconds of
// processor time: other programs do not count.
constexpr double most_seconds = 60;

// Everything that is done with a formula, in a time that shows that sharing is kept.
void expect_quick(const Expr& expr) {
  const std::clock_t start = std::clock();
  const Gradients gradients = differentiate(expr);
  const Expr again = parse_formula(print(expr, names()), names());
  EXPECT_EQ(again, expr);
  std::vector<Expr> roots{expr, gradients.score, simplify(gradients.score), simplify(expr)};
  lower(roots);
  bound(gradients.score, Box{});
  Evaluator<double> evaluator(roots);
  evaluator(Point<double>{});
  print_indented(gradients.score, names());
  const double seconds = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
  EXPECT_LT(seconds, most_seconds) << node_count(expr) << " nodes";
}

TEST(Diff, DeepWideAndShared) {
  std::string deep, wide = "score", squares = "let a0 = score; ";
  for (int i = 0; i < 3900; ++i) {
    deep += "let a" + std::to_string(i + 1) + " = " + (i % 2 == 0 ? "sin(" : "0.5 + (") +
            (i == 0 ? "score" : "a" + std::to_string(i)) + "); ";
    wide += " + score";
  }
  for (int i = 0; i < 60; ++i) {
    const std::string a = "a" + std::to_string(i);
    squares += "let a" + std::to_string(i + 1) + " = " + a + " * " + a + "; ";
  }
  // Nested choices nest in the text: by lets.
  std::string nested = "let c0 = score; ";
  for (int i = 0; i < 400; ++i) {
    nested += "let c" + std::to_string(i + 1) + " = score > " + std::to_string(i) + ".0 ? c" +
              std::to_string(i) + " * score : c" + std::to_string(i) + "; ";
  }
  expect_quick(formula(deep + "a3900"));
  expect_quick(formula(wide));
  expect_quick(formula(squares + "a60"));
  expect_quick(formula(nested + "c400"));
}

// What a condition says doubles at each level if it is followed without a bound.
TEST(Diff, RecurringConditions) {
  std::string text = "let c0 = score; ";
  for (int i = 0; i < 120; ++i) {
    const std::string last = "c" + std::to_string(i);
    text += "let c" + std::to_string(i + 1) + " = score > " + std::to_string(i % 30) + ".0 ? " +
            last + " + " + std::to_string(i) + ".5 : " + last + " * 1.5; ";
  }
  expect_quick(formula(text + "c120"));
  // Conjunctions too long to be kept as sets, shared by twos.
  std::string both = "let p0 = q > 0";
  for (int i = 1; i < 80; ++i) both += " && (q ^ " + std::to_string(i) + ") > " + std::to_string(i);
  both += "; ";
  for (int i = 0; i < 40; ++i) {
    const std::string last = "p" + std::to_string(i), n = std::to_string(i + 1000);
    both += "let l" + n + " = " + last + " && (k ^ " + n + ") > 1; let r" + n + " = " + last +
            " && (h ^ " + n + ") > 1; let p" + std::to_string(i + 1) + " = l" + n + " && r" + n +
            "; ";
  }
  expect_quick(formula(both + "p40 ? score * 2.0 : score"));
}

}  // namespace
}  // namespace fovea::test
