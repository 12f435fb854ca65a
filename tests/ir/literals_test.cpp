// Programs whose literals are doubles: what is written is kept, the f32 side of every value is what
// the f32 program computes, and the text reads back.
#include <gtest/gtest.h>

#include <numbers>

#include "ir/build.h"
#include "ir/diff.h"
#include "ir/eval.h"
#include "ir/parse.h"
#include "ir/print.h"
#include "tests/ir/random_point.h"

namespace fovea::test {
namespace {

using namespace ir;

Program in_double(const std::string& mod) {
  return parse_program("mod=\"" + mod + "\" scalar=x=0.1", Literals::F64);
}

double value(const Expr& expr, double score = 0) {
  Point<double> point;
  point.score = score;
  return evaluate(expr, point).f;
}

TEST(Literals, DoublesAreKeptAsTheyAreWritten) {
  EXPECT_EQ(value(in_double("score * 0.1").mod(), 1), 0.1);
  EXPECT_EQ(value(in_double("1 / 3 + score").mod()), 1.0 / 3);
  EXPECT_EQ(value(in_double("score - 0.30151134457776363").mod()), -0.30151134457776363);
  EXPECT_EQ(value(in_double("sqrt(2) * score").mod(), 1), std::numbers::sqrt2);
  EXPECT_EQ(value(in_double("score + 0.1 * 0.3 * 0.7").mod()), 0.1 * 0.3 * 0.7);
  EXPECT_EQ(in_double("score * x").scalars()[0].value, 0.1);
  EXPECT_EQ(parse_program("mod=\"score * x\" scalar=x=0.1").scalars()[0].value,
            static_cast<double>(0.1f));
}

TEST(Literals, IdentitiesSeeTheWholeNumber) {
  const double near_one = 1 + 1e-12;
  EXPECT_EQ(value(in_double("score * 1.000000000001").mod(), 1), near_one);
  EXPECT_EQ(value(in_double("pow(score, 2.0000000001)").mod(), 3), std::pow(3, 2.0000000001));
  EXPECT_EQ(in_double("score * 1.0").mod(), leaf(Op::Score));
}

TEST(Literals, DerivativesHaveTheConstantsInDouble) {
  const WithLiterals scope(Literals::F64);
  EXPECT_EQ(value(differentiate(in_double("exp2(score)").mod()).score), std::numbers::ln2);
  EXPECT_EQ(value(differentiate(in_double("erf(score)").mod()).score),
            2 * std::numbers::inv_sqrtpi);
}

TEST(Literals, TextReadsBackAsTheSameProgram) {
  for (const std::string mod :
       {"score * 0.1", "score + 1 / 3", "score + 0.1 * 0.3 * 0.7", "score * 0.10000000149011612",
        "score * 1e-40 + x", "sqrt(2) / 3 * score - -0.7"}) {
    const Program program = in_double(mod);
    const std::string text = print(program, Literals::F64);
    const Program again = parse_program(text, Literals::F64);
    EXPECT_TRUE(program == again) << text;
    EXPECT_EQ(text, print(again, Literals::F64));
  }
}

TEST(Literals, OfAnF32ProgramAreWhatTheyWere) {
  EXPECT_EQ(parse_program("mod=\"score * 0.1\"").mod(), leaf(Op::Score) * constant(0.1f));
  EXPECT_EQ(parse_program("mod=\"score + 0.1 * 0.3\"").mod(),
            leaf(Op::Score) + constant(0.1f * 0.3f));
  EXPECT_NE(in_double("score * 0.1").mod(), leaf(Op::Score) * constant(0.1f));
}

// So a decision in double is the one in f32, whatever was folded in either.
TEST(Literals, TheF32SideIsWhatTheF32ProgramComputes) {
  const std::uint64_t seed = test_seed();
  const Declarations& names = random_declarations();
  for (std::uint64_t i = 0; i < cases(4000); ++i) {
    SCOPED_TRACE(seed_text(seed, i));
    Random random(seed, i);
    const RawGraph graph = draw(random, {.size = 1 + random.below(30)});
    const Expr single = build(graph);
    const WithLiterals scope(Literals::F64);
    const Expr wide = build(graph);
    const std::string text = print(wide, names, Literals::F64);
    ASSERT_EQ(wide, parse_formula(text, names)) << text;
    const RandomCaptured captured(random, Values::Any);
    const Point<float> point = captured.point<float>(random);
    Point<double> same{point.score, point.grad,    point.b,      point.h,   point.q,
                       point.k,     point.B,       point.H,      point.Hkv, point.Sq,
                       point.Skv,   point.scalars, point.tensors};
    const float in_f32 = evaluate(single, point).f, beside = evaluate(wide, same).exact;
    ASSERT_TRUE(in_f32 == beside || (std::isnan(in_f32) && std::isnan(beside)))
        << text << "\n"
        << in_f32 << " and " << beside;
  }
}

}  // namespace
}  // namespace fovea::test
