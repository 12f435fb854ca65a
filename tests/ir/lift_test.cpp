// Literals lifted out of formulas: the value stays, and formulas that differ in a number become
// one Program.
#include "ir/lift.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "ir/eval.h"
#include "ir/print.h"
#include "ir/program.h"
#include "ir/topology.h"
#include "tests/ir/random.h"

namespace fovea::ir {
namespace {

std::string with_number(const std::string& pattern, const std::vector<float>& numbers) {
  std::string out;
  std::size_t next = 0;
  for (const char c : pattern) {
    if (c != '#') {
      out += c;
      continue;
    }
    char text[48];
    std::snprintf(text, sizeof(text), "%.9g", static_cast<double>(numbers.at(next++)));
    out += std::string("(") + text + ")";
  }
  return out;
}

// '#' is a float literal.
const std::vector<std::string> patterns{
    R"~(mod="# * tanh(score / #)")~",
    R"~(mod="score + # * f32(k - q)")~",
    R"~(mod="# * score + # * f32(k)")~",
    R"~(mod="# * score + # * f32(k) + # * f32(q) + # * f32(h)")~",
    R"~(mod="(score + #) * (f32(k) + #)")~",
    R"~(mod="x * # + y * #" scalar=x scalar=y)~",
    R"~(mod="score * # + slopes[h] * # + other[h] * #" tensor=slopes:f32[H] tensor=other:f32[H])~",
    R"~(mod="score > # ? score * # : exp(score * #)" mask="f32(q) * # < f32(k) + #")~",
    R"~(mod="score * score * #" bprop="grad * # * score")~",
    R"~(mod="(score > # ? f32(q) : f32(k)) + (score > # ? f32(k) : f32(b))")~",
    R"~(mod="let t = score - #; t * t + exp(t) * f32(k - q)" mask="f32(q) - # < f32(k)")~",
    R"~(mod="max(score * #, min(f32(q) * #, f32(k) * #)) + x" scalar=x)~",
};

class Numbers {
 public:
  explicit Numbers(std::uint64_t seed) : random_(seed) {}
  // Distinct, so that no two literals are one node, and none that stays.
  std::vector<float> draw() {
    std::vector<float> out;
    for (int i = 0; i < 8; ++i) {
      const float size = 3.0f + 7.0f * static_cast<float>(i) +
                         std::uniform_real_distribution<float>(0.1f, 6.0f)(random_);
      out.push_back(random_() % 2 == 0 ? size : -size);
    }
    std::ranges::shuffle(out, random_);
    return out;
  }

 private:
  std::mt19937_64 random_;
};

std::vector<ScalarValue> bound_scalars(const Lifted& lifted, std::size_t declared) {
  std::vector<ScalarValue> values(declared);
  for (std::size_t i = 0; i < declared; ++i) values[i].f = 0.25f + static_cast<float>(i);
  for (const float literal : lifted.literals) values.push_back({literal, 0});
  return values;
}

void expect_same_values(const Expr& original, const Expr& lifted,
                        std::span<const ScalarValue> scalars, std::uint64_t seed) {
  ASSERT_EQ(static_cast<bool>(original), static_cast<bool>(lifted));
  if (!original) return;
  const float table[] = {0.5f, -1.5f, 2.25f, 3.0f};
  const std::int64_t extent[] = {4};
  const TensorView view = TensorView::dense(table, DType::F32, extent);
  const TensorView tensors[] = {view, view};
  std::mt19937_64 random(seed);
  for (int i = 0; i < 50; ++i) {
    Point<float> at;
    at.score = std::normal_distribution<float>(0, 4)(random);
    at.grad = std::normal_distribution<float>(0, 1)(random);
    at.h = static_cast<std::int32_t>(random() % 4);
    at.q = static_cast<std::int32_t>(random() % 100);
    at.k = static_cast<std::int32_t>(random() % 100);
    at.H = 4;
    at.scalars = scalars;
    at.tensors = tensors;
    const Cell<float> want = evaluate(original, at), got = evaluate(lifted, at);
    if (original->type() == Type::Bool) {
      EXPECT_EQ(want.b, got.b);
    } else {
      // Bit for bit: lifting swaps operands of sums and products, never more.
      EXPECT_TRUE(want.f == got.f || (std::isnan(want.f) && std::isnan(got.f)))
          << want.f << " " << got.f;
    }
  }
}

TEST(Lift, KeepsEveryValue) {
  const std::uint64_t seed = test::printed_seed();
  Numbers numbers(seed);
  for (const std::string& pattern : patterns) {
    SCOPED_TRACE(pattern);
    const Program program = parse_program(with_number(pattern, numbers.draw()));
    const Lifted lifted = lift_literals(program);
    const auto scalars = bound_scalars(lifted, program.scalars().size());
    ASSERT_EQ(lifted.program.scalars().size(), scalars.size());
    expect_same_values(program.mod(), lifted.program.mod(), scalars, seed);
    expect_same_values(program.mask(), lifted.program.mask(), scalars, seed);
    expect_same_values(program.bprop(), lifted.program.bprop(), scalars, seed);
  }
}

TEST(Lift, FormulasThatDifferInNumbersBecomeOneProgram) {
  Numbers numbers(test::printed_seed());
  for (const std::string& pattern : patterns) {
    const Lifted first = lift_literals(parse_program(with_number(pattern, numbers.draw())));
    for (int i = 0; i < 200; ++i) {
      const std::vector<float> drawn = numbers.draw();
      const Lifted other = lift_literals(parse_program(with_number(pattern, drawn)));
      ASSERT_TRUE(first.program == other.program) << with_number(pattern, drawn) << "\n"
                                                  << print(first.program) << "\n"
                                                  << print(other.program);
      ASSERT_EQ(first.program.hash(), other.program.hash());
      ASSERT_EQ(first.literals.size(), other.literals.size());
    }
  }
}

TEST(Lift, LeavesNoLiteralButThoseThatStay) {
  const Lifted lifted = lift_literals(
      parse_program(R"~(mod="30.0 * tanh(score / 30.0) + 0.5 * score" mask="f32(k) < 7.5")~"));
  EXPECT_EQ(lifted.literals, (std::vector<float>{30.0f, 7.5f}));
  for (const Expr* formula : {&lifted.program.mod(), &lifted.program.mask()}) {
    for (const Node* node : operands_first({formula, 1}).nodes) {
      EXPECT_TRUE(node->op() != Op::ConstF || node->float_value() == 0.5f);
    }
  }
}

void expect_nothing_lifted(const std::string& line, Shifts shifts = Shifts::Stay) {
  const Program program = parse_program(line);
  const Lifted lifted = lift_literals(program, Depends::None, shifts);
  EXPECT_TRUE(lifted.program == program) << line;
  EXPECT_TRUE(lifted.literals.empty()) << line;
}

TEST(Lift, NumbersThatEnginesNeedToKnowStay) {
  for (const char* number : {"0.0", "1.0", "-1.0", "2.0", "0.5", "inf", "-inf", "nan"}) {
    expect_nothing_lifted("mod=\"max(score, " + std::string(number) + ") * f32(k)\"");
  }
  expect_nothing_lifted("");
}

// The same number under both signs is two scalars.
TEST(Lift, SubtractedNumbersAreAddedWithTheirSign) {
  const Lifted lifted = lift_literals(parse_program(R"~(mod="(score - 3.25) * 3.25")~"));
  std::vector<float> literals = lifted.literals;
  std::ranges::sort(literals);
  EXPECT_EQ(literals, (std::vector<float>{-3.25f, 3.25f}));
  Point<float> at;
  at.score = 7.5f;
  const auto scalars = bound_scalars(lifted, 0);
  at.scalars = scalars;
  EXPECT_EQ(evaluate(lifted.program.mod(), at).f, (7.5f - 3.25f) * 3.25f);
}

TEST(Lift, AFormulaMayBeOneNumber) {
  const Lifted lifted = lift_literals(parse_program("mod=3.25"));
  EXPECT_EQ(lifted.literals, std::vector<float>{3.25f});
  EXPECT_EQ(lifted.program.mod()->op(), Op::ScalarF);
}

// '#' is an integer that shifts a position.
const std::vector<std::string> shifts{
    "mask=\"k <= q + #\"",
    "mask=\"k <= # + q\"",
    "mask=\"q - # < k && k + # <= q + #\"",
    "mask=\"k <= # - q\"",
    "mask=\"q + # - k < 32\"",
    "mask=\"(q + #) % 64 == k % 64 && abs(k + #) >= 0\"",
    "mod=\"score + t[k + #] * f32(k - (q + #))\" mask=\"q + # >= k\" tensor=t:f32[H]",
};

std::string with_integers(const std::string& pattern, std::mt19937_64& random) {
  std::string out;
  int next = 0;
  for (const char c : pattern) {
    // Distinct, and no zero: that is simplified.
    out += c != '#' ? std::string(1, c) : std::to_string(100 * ++next + random() % 90 + 1);
  }
  return out;
}

TEST(Lift, ShiftsOfPositionsAreLiftedIfThatIsAskedFor) {
  const std::uint64_t seed = test::printed_seed();
  std::mt19937_64 random(seed);
  const auto lift = [](const Program& program) {
    return lift_literals(program, Depends::None, Shifts::Lift);
  };
  for (const std::string& pattern : shifts) {
    const Lifted first = lift(parse_program(with_integers(pattern, random)));
    for (int i = 0; i < 50; ++i) {
      const Program program = parse_program(with_integers(pattern, random));
      const Lifted lifted = lift(program);
      ASSERT_TRUE(lifted.program == first.program) << print(lifted.program);
      std::vector<ScalarValue> scalars;
      for (const float literal : lifted.literals) {
        scalars.push_back({literal, static_cast<std::int32_t>(literal)});
      }
      ASSERT_EQ(scalars.size(), lifted.program.scalars().size());
      ASSERT_GE(std::ssize(scalars), std::ranges::count(pattern, '#')) << print(lifted.program);
      expect_same_values(program.mod(), lifted.program.mod(), scalars, seed);
      expect_same_values(program.mask(), lifted.program.mask(), scalars, seed);
    }
    EXPECT_TRUE(lift_literals(first.program).literals.empty());
  }
}

TEST(Lift, IntegersThatShiftNoPositionStay) {
  expect_nothing_lifted("mask=\"q - k < 1024 && k <= q + 3\"");
  for (const char* const line :
       {"mask=\"q - k < 1024 && q >= k\"", "mask=\"k < 128 || q // 64 == k // 64\"",
        "mod=\"score + t[k - q + 127]\" tensor=t:f32[255]", "mask=\"k <= q + 100000000\""}) {
    expect_nothing_lifted(line, Shifts::Lift);
  }
}

TEST(Lift, DeclaredThingsKeepTheirSlots) {
  const Program program = parse_program(
      R"~(mod="score * a + b2 * 3.25 + t[h]" scalar=a=1 scalar=b2=2 scalar=n:i32=3 tensor=t:f32[H])~");
  const Lifted lifted = lift_literals(program);
  ASSERT_EQ(lifted.program.scalars().size(), program.scalars().size() + 1);
  for (std::size_t i = 0; i < program.scalars().size(); ++i) {
    EXPECT_EQ(lifted.program.scalars()[i].name, program.scalars()[i].name);
    EXPECT_EQ(lifted.program.scalars()[i].type, program.scalars()[i].type);
  }
  EXPECT_EQ(lifted.program.tensors()[0].name, "t");
  EXPECT_EQ(lifted.literals, std::vector<float>{3.25f});
}

}  // namespace
}  // namespace fovea::ir
