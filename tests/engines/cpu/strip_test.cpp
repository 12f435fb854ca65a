// Whole formulas in strips against ir/eval: random programs over blocks of several strips, both
// phases, scores overwritten in place, and where loads may and may not read.
#include "engines/cpu/strips/strip.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "ir/build.h"
#include "ir/parse.h"
#include "ir/print.h"
#include "tests/engines/cpu/strip_case.h"
#include "tests/ir/random.h"
#include "tests/ir/random_point.h"
#include "tests/ir/random_program.h"
#include "tests/ir/usual_formulas.h"

namespace fovea::test {
namespace {

using namespace ir;

// Scores, gradients and positions for a block; now and then where positions wrap.
StripBlock random_block(Random& random, const RandomCaptured& captured, Values kind) {
  StripBlock block;
  block.rows = random.between(1, 45), block.columns = random.between(1, 150);
  const auto somewhere = [&] {
    if (kind == Values::Tame || random.chance(50)) return std::int32_t{0};
    return random.chance(50) ? random.between(-40, 40) : random_int(random);
  };
  block.q_first = somewhere(), block.k_first = somewhere();
  block.leaves.b = 1, block.leaves.h = 2;
  block.leaves.B = 2, block.leaves.H = 3, block.leaves.Hkv = 1, block.leaves.Sq = 5;
  block.leaves.Skv = 4;
  block.leaves.tensors = captured.tensors();
  block.leaves.scalars = captured.scalars();
  for (int i = 0; i < block.rows * block.columns; ++i) {
    const bool tame = kind == Values::Tame;
    block.score.push_back(tame ? random.normal() : random_float(random));
    block.grad.push_back(tame ? random.normal() : random_float(random));
  }
  return block;
}

// Every root is decided on: all bits are those of ir/eval.
void check_decisions(const cpu::KernelTable& kernels, Random& random) {
  const RandomCaptured captured(random, Values::Any);
  const auto draw_one = [&](Type type, bool grad) {
    return build(draw(random, {.type = type, .size = random.below(24), .grad = grad}));
  };
  std::vector<Expr> roots{draw_one(Type::F32, false), draw_one(Type::Bool, false)};
  roots.push_back(decision(roots[0]));
  const std::size_t second_phase = roots.size();
  for (std::uint32_t i = random.below(3); i > 0; --i) {
    roots.push_back(draw_one(random.chance(50) ? Type::F32 : Type::I32, true));
    roots.push_back(decision(roots.back()));
  }
  const bool in_place = random.chance(50);
  const StripBlock block = random_block(random, captured, Values::Any);
  const StripResult result({roots, second_phase, in_place}, kernels, block);
  std::string what;
  for (const Expr& root : roots) what += print(root, random_declarations()) + '\n';
  check_exact(result, roots, block, what);
  if (!in_place) return;
  for (int r = 0; r < block.rows; ++r) {
    for (int c = 0; c < block.columns; ++c) {
      const Cell<float> score = Cell<float>::real(result.score(r, c));
      ASSERT_TRUE(same_value(Type::F32, score, result.cell(0, r, c)));
    }
  }
}

TEST(Strip, RandomFormulasThatDecideAreExact) { check_cases(cases(300), check_decisions); }

// The largest number that occurs in computing `roots`, which rounding errors are measured by.
double largest(const Evaluator<double>& eval, std::span<const Cell<double>> values) {
  double most = 0;
  for (std::size_t i = 0; i < eval.value_count(); ++i)
    most = std::max(most, std::fabs(values[i].f));
  return most;
}

// Formulas that decide nothing may be computed in any way that is close.
void check_close(const cpu::KernelTable& kernels, Random& random) {
  const RandomCaptured captured(random, Values::Tame);
  const auto draw_one = [&](bool grad) {
    return build(draw(random, {.size = random.below(10), .grad = grad, .smooth = true}));
  };
  const std::vector<Expr> roots{draw_one(false), draw_one(false), draw_one(true), draw_one(true)};
  const StripBlock block = random_block(random, captured, Values::Tame);
  const StripResult result({roots, 2, random.chance(50)}, kernels, block);
  ASSERT_TRUE(result.intact());
  Evaluator<float> single(roots);
  Evaluator<double> twice(roots);
  std::vector<Cell<double>> values(twice.value_count());
  for (int r = 0; r < block.rows; ++r) {
    for (int c = 0; c < block.columns; ++c) {
      single(block.point<float>(r, c));
      twice.run(block.point<double>(r, c), values);
      for (std::size_t i = 0; i < roots.size(); ++i) {
        const double wanted = twice.value(values, i).f;
        const double rounded = static_cast<double>(single.value(i).f);
        const double got = static_cast<double>(result.cell(i, r, c).f);
        if (std::isnan(wanted) && std::isnan(got)) continue;
        if (std::isnan(wanted) || std::isnan(rounded) || std::fabs(wanted) > 1e37) continue;
        // If f32 itself is far off, so may we be.
        const double noise = std::fabs(rounded - wanted);
        if (noise > 1e-4 * std::fabs(wanted) + 1e-6) continue;
        ASSERT_NEAR(got, wanted,
                    50 * noise + 1e-5 * std::fabs(wanted) + 1e-6 * largest(twice, values))
            << "root " << i << " at " << r << ", " << c << ", f32 gives " << rounded << '\n'
            << print(roots[i], random_declarations());
      }
    }
  }
}

TEST(Strip, RandomSmoothFormulasAreClose) { check_cases(cases(400), check_close); }

void check_usual(const cpu::KernelTable& kernels, const char* text, std::int32_t q_first,
                 std::int32_t k_first) {
  Random random(test_seed());
  const UsualFormula formula(text);
  const std::vector<Expr>& roots = formula.roots;
  StripBlock block;
  block.rows = 41, block.columns = 150, block.q_first = q_first, block.k_first = k_first;
  block.leaves.h = 1, block.leaves.H = 8;
  block.leaves.scalars = formula.scalars, block.leaves.tensors = formula.tensors;
  for (int i = 0; i < block.rows * block.columns; ++i) {
    block.score.push_back(random.normal() * (random.chance(50) ? 20 : 0.01f));
    block.grad.push_back(random.normal());
  }
  const StripResult result({roots, 1, true}, kernels, block);
  ASSERT_TRUE(result.intact());
  Evaluator<double> eval(roots);
  std::vector<Cell<double>> values(eval.value_count());
  for (int r = 0; r < block.rows; ++r) {
    for (int c = 0; c < block.columns; ++c) {
      eval.run(block.point<double>(r, c), values);
      for (std::size_t i = 0; i < roots.size(); ++i) {
        const double wanted = eval.value(values, i).f;
        const double got = static_cast<double>(result.cell(i, r, c).f);
        if (got == static_cast<double>(static_cast<float>(wanted))) continue;
        if (std::isnan(got) && std::isnan(evaluate<float>(roots[i], block.point<float>(r, c)).f)) {
          continue;  // 0 * inf: double has more room
        }
        const double most = std::isinf(largest(eval, values)) ? 0 : largest(eval, values);
        const double within = i == 0 ? 5e-7 : 5e-6;  // 1 - t t loses digits
        ASSERT_NEAR(got, wanted, within * std::max(std::fabs(wanted), std::min(most, 1e6)))
            << "root " << i << " at " << r << ", " << c << " of " << text;
      }
    }
  }
}

TEST(Strip, UsualFormulasAndTheirDerivatives) {
  for (const cpu::KernelTable* kernels : strip_isas()) {
    for (const char* text : usual_formulas) {
      SCOPED_TRACE(std::string(text) + ", lanes " + std::to_string(kernels->lanes));
      check_usual(*kernels, text, 0, 0);
      check_usual(*kernels, text, 65500, 65530);
      if (HasFatalFailure()) return;
    }
  }
}

// A bias by distance costs no digits however far the positions are, and is right when it wraps.
TEST(Strip, DistancesAreExactAnywhere) {
  struct Case {
    std::int32_t q, k;
  };
  constexpr Case cases_of_positions[] = {{0, 0},
                                         {65500, 65530},
                                         {1 << 30, (1 << 30) + 3},
                                         {(1 << 24) - 70, 0},
                                         {0, (1 << 24) - 80},
                                         {0, 1 << 30},
                                         {2147483647 - 20, 5},
                                         {2147483647 - 20, -2147483647},
                                         {-2147483647, 2147483647 - 60}};
  const Declarations names = parse_program("mod=\"score * s\" scalar=s=0.25").declarations();
  const std::vector<Expr> roots{
      parse_formula("score + s * (k - q)", names), parse_formula("f32(k - q)", names),
      parse_formula("score - s * abs(q - k + 3)", names), parse_formula("f32(abs(q - k))", names)};
  const ScalarValue scalars[] = {{0.25f, 0}};
  for (const cpu::KernelTable* kernels : strip_isas()) {
    for (const Case& at : cases_of_positions) {
      StripBlock block;
      block.rows = 37, block.columns = 131, block.q_first = at.q, block.k_first = at.k;
      block.leaves.scalars = scalars;
      block.score.assign(static_cast<std::size_t>(block.rows * block.columns), 0.375f);
      block.grad = block.score;
      const StripResult result({roots, roots.size(), false}, *kernels, block);
      // Products with 0.25 and 0.375 are exact below 2^24.
      check_exact(result, roots, block,
                  "q from " + std::to_string(at.q) + ", k from " + std::to_string(at.k));
      if (HasFatalFailure()) return;
    }
  }
}

// Nothing that runs per call takes memory from the heap.
TEST(Strip, StateIsAllThatARunNeeds) {
  const Declarations names =
      parse_program("mod=\"score * x[q] + y[k]\" tensor=\"x:f32[Sq]\" tensor=\"y:f32[Skv]\"")
          .declarations();
  const std::vector<Expr> roots{parse_formula("score * x[q] + y[k]", names)};
  for (const cpu::KernelTable* kernels : strip_isas()) {
    const cpu::StripProgram program({roots, 1, true}, *kernels);
    EXPECT_GT(program.memory_bytes(), sizeof(cpu::StripProgram));
    EXPECT_LT(program.memory_bytes(), 16384u);
    EXPECT_GT(program.state_bytes(1, 1), 0u);
    EXPECT_LT(program.state_bytes(64, 64), program.state_bytes(128, 64));
    EXPECT_LT(program.state_bytes(64, 64), program.state_bytes(64, 512));
  }
}

}  // namespace
}  // namespace fovea::test
