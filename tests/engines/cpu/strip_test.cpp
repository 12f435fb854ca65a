// Whole formulas in strips against ir/eval: random programs over blocks of several strips, both
// phases, scores overwritten in place, and where loads may and may not read.
#include "engines/cpu/strip.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "ir/build.h"
#include "ir/print.h"
#include "tests/engines/cpu/strip_case.h"
#include "tests/ir/random.h"
#include "tests/ir/random_point.h"
#include "tests/ir/random_program.h"

namespace fovea::test {
namespace {

using namespace ir;

// Scores, gradients and positions for a block; now and then where positions wrap.
StripBlock random_block(Random& random, const Captured& captured, Values kind) {
  StripBlock block;
  block.rows = random.between(1, 45), block.columns = random.between(1, 150);
  const auto somewhere = [&] {
    if (kind == Values::Tame || random.chance(50)) return std::int32_t{0};
    return random.chance(50) ? random.between(-40, 40) : random_int(random);
  };
  block.q_first = somewhere(), block.k_first = somewhere();
  block.place.b = 1, block.place.h = 2;
  block.place.B = 2, block.place.H = 3, block.place.Hkv = 1, block.place.Sq = 5;
  block.place.Skv = 4;
  block.place.tensors = captured.tensors();
  block.place.scalars = captured.scalars();
  for (int i = 0; i < block.rows * block.columns; ++i) {
    const bool tame = kind == Values::Tame;
    block.score.push_back(tame ? random.normal() : random_float(random));
    block.grad.push_back(tame ? random.normal() : random_float(random));
  }
  return block;
}

// A formula that decides on the value, so that the value must be exact.
Expr decision(const Expr& value) {
  return value->type() == Type::F32 ? value < constant(0.25f) : value;
}

// Every root is decided on: all bits are those of ir/eval.
void check_exact(const cpu::KernelTable& kernels, Random& random) {
  const Captured captured(random, Values::Any);
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
  ASSERT_TRUE(result.intact());
  Evaluator<float> eval(roots);
  for (int r = 0; r < block.rows; ++r) {
    for (int c = 0; c < block.columns; ++c) {
      const Point<float> point = block.point<float>(r, c);
      eval(point);
      for (std::size_t i = 0; i < roots.size(); ++i) {
        const Type type = roots[i]->type();
        ASSERT_TRUE(same_value(type, result.cell(i, r, c), eval.value(i)))
            << "root " << i << " at " << r << ", " << c << " of " << block.rows << " x "
            << block.columns << ", " << point_text(point) << '\n'
            << value_text(type, result.cell(i, r, c)) << " but " << value_text(type, eval.value(i))
            << '\n'
            << print(roots[i], random_declarations());
        if (type == Type::Bool) {
          ASSERT_EQ(result.kept(i, r, c), eval.value(i).b);
        }
      }
      if (in_place) {
        ASSERT_TRUE(same_value(Type::F32, Cell<float>::real(result.score(r, c)), eval.value(0)));
      }
    }
  }
}

TEST(Strip, RandomFormulasThatDecideAreExact) {
  const std::uint64_t seed = test_seed();
  for (const cpu::KernelTable* kernels : strip_isas()) {
    for (std::uint64_t i = 0; i < cases(300); ++i) {
      SCOPED_TRACE(seed_text(seed, i) + ", lanes " + std::to_string(kernels->lanes));
      Random random(seed, i);
      check_exact(*kernels, random);
      if (HasFatalFailure()) return;
    }
  }
}

}  // namespace
}  // namespace fovea::test
