// Canonical text reads back as the same object, and Programs are equal by structure alone.
#include "ir/print.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <fstream>
#include <iomanip>
#include <numbers>
#include <sstream>

#include "ir/build.h"
#include "ir/diff.h"
#include "ir/eval.h"
#include "ir/parse.h"
#include "tests/ir/random_point.h"
#include "tests/ir/random_program.h"

namespace fovea::test {
namespace {

using namespace ir;

void expect_reads_back(const Expr& expr) {
  const Declarations& names = random_declarations();
  const std::string text = print(expr, names);
  const Expr again = parse_formula(text, names);
  ASSERT_EQ(expr.get(), again.get()) << text << "\nreads back as\n" << print(again, names);
  ASSERT_EQ(text, print(again, names));
  ASSERT_EQ(text.find('\n'), std::string::npos);
  const std::string indented = print_indented(expr, names);
  ASSERT_EQ(expr.get(), parse_formula(indented, names).get()) << indented;
}

TEST(Print, FormulasReadBackAsTheSameObject) {
  const std::uint64_t seed = test_seed();
  constexpr Type types[] = {Type::F32, Type::I32, Type::Bool};
  for (std::uint64_t i = 0; i < cases(20000); ++i) {
    SCOPED_TRACE(seed_text(seed, i));
    Random random(seed, i);
    const std::uint32_t size = i % 10 == 0 ? 200 : 30;  // some larger
    const Expr expr = build(
        draw(random, {.type = random.pick(types), .size = 1 + random.below(size), .grad = true}));
    ASSERT_NO_FATAL_FAILURE(expect_reads_back(expr));
  }
}

TEST(Print, DerivativesReadBackAsTheSameObject) {
  const std::uint64_t seed = test_seed();
  for (std::uint64_t i = 0; i < cases(3000); ++i) {
    SCOPED_TRACE(seed_text(seed, i));
    Random random(seed, i);
    const Gradients gradients = differentiate(build(draw(random, {.size = random.below(12)})));
    ASSERT_NO_FATAL_FAILURE(expect_reads_back(gradients.score));
    for (const LoadGradient& by : gradients.loads) {
      ASSERT_NO_FATAL_FAILURE(expect_reads_back(by.gradient));
    }
  }
}

TEST(Print, ProgramsReadBackEqual) {
  const std::uint64_t seed = test_seed();
  for (std::uint64_t i = 0; i < cases(20000); ++i) {
    Random random(seed, i);
    const Program program = random_program(random, 30);
    const std::string line = print(program);
    const Program again = parse_program(line);
    ASSERT_TRUE(program == again) << seed_text(seed, i) << "\n"
                                  << line << "\nreads back as\n"
                                  << print(again);
    ASSERT_EQ(program.hash(), again.hash()) << seed_text(seed, i) << "\n" << line;
    ASSERT_EQ(line, print(again)) << seed_text(seed, i);
  }
}

// Slots moved to a random order, every name changed.
Program disguised(const Program& program, Random& random) {
  const auto shuffled = [&](std::size_t count) {
    std::vector<std::uint32_t> slots(count);
    for (std::uint32_t i = 0; i < count; ++i) slots[i] = i;
    for (std::uint32_t i = static_cast<std::uint32_t>(count); i > 1; --i) {
      std::swap(slots[i - 1], slots[random.below(i)]);
    }
    return slots;
  };
  const auto tensors = shuffled(program.tensors().size());
  const auto scalars = shuffled(program.scalars().size());
  Declarations moved = program.declarations();
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    moved.tensors[tensors[i]] = program.tensors()[i];
    moved.tensors[tensors[i]].name = "captured" + std::to_string(tensors[i]);
  }
  for (std::size_t i = 0; i < scalars.size(); ++i) {
    moved.scalars[scalars[i]] = program.scalars()[i];
    moved.scalars[scalars[i]].name = "number" + std::to_string(scalars[i]);
  }
  const auto formula = [&](const Expr& e) { return e ? renumber(e, tensors, scalars) : e; };
  return {moved, formula(program.mod()), formula(program.mask()), formula(program.bprop())};
}

TEST(Print, ProgramsAreEqualWhateverTheirNamesAndOrder) {
  const std::uint64_t seed = test_seed();
  for (std::uint64_t i = 0; i < cases(20000); ++i) {
    Random random(seed, i);
    const Program program = random_program(random, 40);
    const Program other = disguised(program, random);
    ASSERT_TRUE(program == other) << seed_text(seed, i) << "\n"
                                  << print(program) << "\nis not, with names and slots moved,\n"
                                  << print(other);
    ASSERT_EQ(program.hash(), other.hash()) << seed_text(seed, i);
    ASSERT_TRUE(other == parse_program(print(other))) << seed_text(seed, i) << print(other);
  }
}

TEST(Print, SymmetricProgramsAreEqualWhateverTheirOrder) {
  const char* const pairs[][2] = {
      {"mod=\"(a[h]+c[h])-exp(c[h])\"", "mod=\"(a[h]+c[h])-exp(a[h])\""},
      {"mod=\"c[h]/((a[h]-e[h])*(c[h]-d[h]))\"", "mod=\"d[h]/((a[h]-c[h])*(d[h]-e[h]))\""},
      {"mod=\"a[h]*c[h]+c[h]*d[h]+d[h]*e[h]+e[h]*a[h]\"",
       "mod=\"a[h]*d[h]+d[h]*c[h]+c[h]*e[h]+e[h]*a[h]\""},
      {"mask=\"a[h]<0 && c[h]<0 && d[h]<0 || c[h]==0\"",
       "mask=\"e[h]<0 && a[h]<0 && c[h]<0 || e[h]==0\""},
      {"mod=\"-a[h] + -c[h] - exp(c[h])\"", "mod=\"-c[h] + -a[h] - exp(a[h])\""},
  };
  const std::string captured = " tensor=a:f32[H] tensor=c:f32[H] tensor=d:f32[H] tensor=e:f32[H]";
  for (const auto& [one, other] : pairs) {
    const Program first = parse_program(one + captured), second = parse_program(other + captured);
    EXPECT_TRUE(first == second) << print(first) << "\n" << print(second);
    EXPECT_EQ(first.hash(), second.hash());
  }
  // Not everything is alike.
  EXPECT_FALSE(parse_program("mod=\"a[h]-a[h]*c[h]\"" + captured) ==
               parse_program("mod=\"a[h]-c[h]*d[h]\"" + captured));
}

TEST(Print, LiteralsReadBackBitForBit) {
  const std::uint64_t seed = test_seed();
  Random random(seed);
  for (std::uint64_t i = 0; i < cases(300000); ++i) {
    const float value = std::bit_cast<float>(random.bits());
    const Expr literal = constant(value);
    const std::string text = print(literal, {});
    ASSERT_EQ(literal, parse_formula(text, {})) << "seed " << seed << ": " << text;
    if (std::isfinite(value)) {
      ASSERT_EQ(parse_formula(text, {})->payload(), std::bit_cast<std::uint32_t>(value)) << text;
    }
    const Expr integer = constant(std::bit_cast<std::int32_t>(random.bits()));
    ASSERT_EQ(integer, parse_formula(print(integer, {}), {})) << print(integer, {});
  }
  for (std::uint32_t exponent = 0; exponent < 256; ++exponent) {  // every power of two, and beside
    for (const std::uint32_t bits : {exponent << 23, (exponent << 23) + 1, (exponent << 23) - 1}) {
      const Expr literal = constant(std::bit_cast<float>(bits));
      ASSERT_EQ(literal, parse_formula(print(literal, {}), {})) << print(literal, {});
    }
  }
}

TEST(Print, LiteralsLookAsPeopleWriteThem) {
  EXPECT_EQ(print(constant(30.0f), {}), "30.0");
  EXPECT_EQ(print(constant(0.1f), {}), "0.1");
  EXPECT_EQ(print(constant(-0.0f), {}), "-0.0");
  EXPECT_EQ(print(constant(1e20f), {}), "1e+20");
  EXPECT_EQ(print(constant(-INFINITY), {}), "-inf");
  EXPECT_EQ(print(constant(NAN), {}), "nan");
  EXPECT_EQ(print(constant(-7), {}), "-7");
  EXPECT_EQ(print(constant(true), {}), "true");
}

// Texts and hashes are the same in every process and on every machine: caches on disk and listings
// outlive both. A line that changes here changes for users too: say so in CHANGELOG.md.
TEST(Print, CanonicalTextsAndHashesAreFixed) {
  std::ifstream file(FOVEA_SOURCE_DIR "/tests/ir/canonical_programs.txt");
  ASSERT_TRUE(file) << "no canonical_programs.txt";
  int programs = 0;
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line[0] == '#') continue;
    const std::string text = line.substr(line.find(' ') + 1);
    const Program program = parse_program(text);
    EXPECT_EQ(print(program), text);
    std::ostringstream hash;
    hash << std::hex << std::setw(16) << std::setfill('0') << program.hash();
    EXPECT_EQ(hash.str(), line.substr(0, line.find(' '))) << text;
    ++programs;
  }
  EXPECT_GE(programs, 12);
}

// Names that collide with what the printer itself makes up, and with functions.
TEST(Print, KeepsClearOfCapturedNames) {
  Declarations names;
  declare(names, parse_tensor("t0:f32[H]"));
  declare(names, parse_tensor("exp:f32[H]"));
  declare(names, parse_scalar("t1"));
  declare(names, parse_scalar("max"));
  declare(names, parse_scalar("causal:i32"));
  const std::string text =
      "let u = exp(score * t1) + exp[h] * max; max(u * u, t0[h]) * u + f32(causal)";
  const Expr expr = parse_formula(text, names);
  EXPECT_EQ(expr, parse_formula(print(expr, names), names)) << print(expr, names);
}

// Programs whose literals are doubles: what is written is kept, the f32 side of every value is what
// the f32 program computes, and the text reads back.

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
