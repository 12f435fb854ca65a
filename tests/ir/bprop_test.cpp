// Hand-written derivatives against the derived ones.
#include "ir/diff.h"

#include <gtest/gtest.h>

#include <cmath>
#include <sstream>

#include "base/error.h"
#include "ir/build.h"
#include "ir/eval.h"
#include "ir/program.h"

namespace fovea::test {
namespace {

using namespace ir;

BpropCheck check(const std::string& line, std::uint64_t seed = 7) {
  return check_bprop(parse_program(line), seed);
}

TEST(Bprop, AcceptsWhatIsRight) {
  for (
      const char* line : {
          R"~(mod="score * score" bprop="2.0 * score * grad")~",
          R"~(mod="c * tanh(score / c)" bprop="let t = tanh(score / c); grad * (1.0 - t * t)" scalar="c=30")~",
          R"~(mod="score + s[h] * (k - q)" bprop="grad" tensor="s:f32[H]")~",
          R"~(mod="score * w[h, q]" bprop="grad * w[h, q]" tensor="w:bf16[H,Sq]")~",
          R"~(mod="q >= k ? score : -inf" bprop="q >= k ? grad : 0.0")~",
          R"~(mod="max(score, 0.0)" bprop="score > 0.0 ? grad : 0.0")~",
          R"~(mod="on[b, h] ? exp(score) : score" bprop="on[b, h] ? grad * exp(score) : grad" tensor="on:bool[B,H]")~",
          R"~(mod="3.0" bprop="0.0")~",
          R"~(mod="score * f32(n)" bprop="grad * f32(n)" scalar="n:i32=5")~",
      }) {
    const BpropCheck result = check(line);
    EXPECT_TRUE(result.agrees()) << line << "\n"
                                 << result.worst_error << " at " << result.worst_point;
    EXPECT_EQ(result.points, 1000);
  }
}

TEST(Bprop, FindsWhatIsWrong) {
  for (
      const char* line : {
          R"~(mod="score * score" bprop="score * grad")~",
          R"~(mod="score * score" bprop="2.0 * score")~",  // forgets grad
          R"~(mod="tanh(score)" bprop="grad * (1.0 + tanh(score))")~",
          R"~(mod="q >= k ? score : -inf" bprop="grad")~",
          R"~(mod="q == 3 && k == 2 && h == 1 ? score : 0.5 * score" bprop="0.5 * grad")~",  // rare
          R"~(mod="score + s[h]" bprop="grad * s[h]" tensor="s:f32[H]")~",
          R"~(mod="score" bprop="grad + 0.001 * score")~",
          R"~(mod="log(score)" bprop="score > 0.0 ? grad / score : nan")~",
      }) {
    EXPECT_FALSE(check(line).agrees()) << line;
  }
  EXPECT_TRUE(std::isinf(check(R"~(mod="score" bprop="nan")~").worst_error));
}

TEST(Bprop, TheWorstPointCanBeRepeated) {
  const std::string line =
      R"~(mod="c * tanh(score / c) + n * h" bprop="grad * sigmoid(score) * h" scalar="c=2" scalar="n:i32=2")~";
  const BpropCheck first = check(line, 11), again = check(line, 11), other = check(line, 12);
  EXPECT_EQ(first.seed, 11u);
  EXPECT_EQ(first.worst_point, again.worst_point);
  EXPECT_EQ(first.worst_error, again.worst_error);
  EXPECT_NE(first.worst_point, other.worst_point);
  // The text names everything that the formulas depend on: evaluating there gives the same error.
  const Program program = parse_program(line);
  std::istringstream words(first.worst_point);
  Point<double> point;
  std::vector<ScalarValue> scalars(program.scalars().size());
  for (std::string word; words >> word;) {
    const std::string name = word.substr(0, word.find('='));
    const double value = std::stod(word.substr(word.find('=') + 1));
    if (name == "score") point.score = value;
    if (name == "grad") point.grad = value;
    if (name == "h") point.h = static_cast<std::int32_t>(value);
    for (std::size_t slot = 0; slot < scalars.size(); ++slot) {
      if (name == program.scalars()[slot].name) {
        scalars[slot] = {static_cast<float>(value), static_cast<std::int32_t>(value)};
      }
    }
  }
  point.scalars = scalars;
  const double hand = evaluate(program.bprop(), point).f;
  const Expr derived = differentiate(program.mod(), leaf(Op::Grad)).score;
  EXPECT_NEAR(hand, first.hand, 1e-6 * std::fabs(first.hand));
  EXPECT_NEAR(evaluate(derived, point).f, first.derived, 1e-6 * std::fabs(first.derived) + 1e-9);
}

// Defaults and extents of any size are drawn without trouble.
TEST(Bprop, TakesExtremeDeclarations) {
  for (const char* line : {
           R"~(mod="score * x" bprop="grad * x" scalar="x=1e30")~",
           R"~(mod="score + f32(n)" bprop="grad" scalar="n:i32=2147483647")~",
           R"~(mod="score + f32(n)" bprop="grad" scalar="n:i32=-2147483648")~",
           R"~(mod="score + x" bprop="grad" scalar="x=inf")~",
           R"~(mod="score + x" bprop="grad" scalar="x=nan")~",
           R"~(mod="score + t[h, q]" bprop="grad" tensor="t:f32[0,4]")~",
           R"~(mod="score + t[h, q]" bprop="grad" tensor="t:f32[9223372036854775807,1000000]")~",
           R"~(mod="score + t[q, h]" bprop="grad" tensor="t:u8[3,9223372036854775807]")~",
       }) {
    EXPECT_TRUE(check(line).agrees()) << line;
  }
}

TEST(Bprop, NeedsABprop) { EXPECT_THROW(check("mod=score"), InvalidArgument); }

}  // namespace
}  // namespace fovea::test
