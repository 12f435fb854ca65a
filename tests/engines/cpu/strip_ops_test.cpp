// Every operation on every mixture of operands (per score, per row, per column, per head), on every
// instruction set of this machine: exact ones bit for bit, the others within a few ulp.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdlib>
#include <limits>

#include "ir/build.h"
#include "tests/engines/cpu/strip_case.h"
#include "tests/ir/random.h"
#include "tests/ir/random_point.h"
#include "tests/ir/random_program.h"

namespace fovea::test {
namespace {

using namespace ir;

constexpr int rows = 19, columns = 83;  // neither fills its last strip

// Operands of each type that change with (q, k), with q, with k, and with nothing: three of each.
class Operands {
 public:
  Operands(Random& random, bool tame) {
    for (int n = 0; n < 3; ++n) {
      for (const Type type : {Type::F32, Type::I32, Type::Bool}) {
        add(random, tame, type, {rows, columns});
        add(random, tame, type, {rows});
        add(random, tame, type, {columns});
        add(random, tame, type, {});
      }
    }
  }
  // Kind 0: (q, k); 1: q; 2: k; 3: neither.
  Expr operand(Type type, std::uint32_t n, std::uint32_t kind) const {
    std::vector<Expr> at;
    if (kind == 0 || kind == 1) at.push_back(leaf(Op::IndexQ));
    if (kind == 0 || kind == 2) at.push_back(leaf(Op::IndexK));
    return load(type, n * 12 + static_cast<std::uint32_t>(type) * 4 + kind, at);
  }
  std::vector<TensorView> views() const {
    std::vector<TensorView> out;
    for (std::size_t i = 0; i < data_.size(); ++i) {
      out.push_back(TensorView::dense(data_[i].data(), types_[i], extents_[i]));
    }
    return out;
  }

 private:
  void add(Random& random, bool tame, Type type, std::vector<std::int64_t> extents) {
    std::int64_t count = 1;
    for (const std::int64_t extent : extents) count *= extent;
    std::vector<std::uint32_t> cells;
    for (std::int64_t i = 0; i < count; ++i) {
      const float any = random.chance(20) ? random.normal() * 100 : random_float(random);
      cells.push_back(type == Type::F32 ? std::bit_cast<std::uint32_t>(tame ? random.normal() : any)
                      : type == Type::I32 ? static_cast<std::uint32_t>(random_int(random))
                                          : random.below(2) * 0x01010101u);
    }
    // Bools are bytes: the four of a word are alike, and every fourth is read.
    data_.push_back(std::move(cells));
    types_.push_back(type == Type::F32 ? DType::F32 : type == Type::I32 ? DType::I32 : DType::Bool);
    extents_.push_back(std::move(extents));
  }

  std::vector<std::vector<std::uint32_t>> data_;
  std::vector<DType> types_;
  std::vector<std::vector<std::int64_t>> extents_;
};

StripBlock make_block(Random& random, std::span<const TensorView> tensors) {
  StripBlock block;
  block.rows = rows, block.columns = columns;
  block.leaves.Sq = rows, block.leaves.Skv = columns;
  block.leaves.tensors = tensors;
  for (int i = 0; i < rows * columns; ++i) {
    block.score.push_back(random.chance(50) ? random.normal() * 20 : random_float(random));
    block.grad.push_back(random.normal());
  }
  return block;
}

double ulps(float got, double wanted) {
  if (std::isnan(got) && std::isnan(wanted)) return 0;
  const float nearest = static_cast<float>(wanted);
  if (got == nearest) return 0;
  if (!std::isfinite(got) || !std::isfinite(nearest)) {
    // An overflow counts as right if rounding alone would have caused it.
    return std::fabs(wanted) > 3.40282e38 && std::fabs(got) > 3.40282e38f ? 1 : 1e30;
  }
  const float size = std::max(std::fabs(nearest), std::numeric_limits<float>::min());
  const float ulp = std::nextafter(size, std::numeric_limits<float>::infinity()) - size;
  return std::fabs(static_cast<double>(got) - wanted) / static_cast<double>(ulp);
}

// One operation with operands of the given kinds; `exact` asks for the bits of ir/eval.
void check_op(const cpu::KernelTable& kernels, Random& random, const OpInfo& row,
              std::uint32_t kinds, bool exact) {
  const Operands operands(random, false);
  std::vector<Expr> args;
  for (std::uint32_t i = 0; i < row.arity(); ++i) {
    args.push_back(operands.operand(row.argument(i), i, kinds >> (2 * i) & 3));
  }
  const Expr value = make(row.op, args);
  std::vector<Expr> roots{value};
  // A comparison decides, so its operands must be exact.
  if (exact && value->type() == Type::F32) roots.push_back(value < constant(0.5f));
  const std::vector<TensorView> tensors = operands.views();
  const StripBlock block = make_block(random, tensors);
  const StripResult result({roots, roots.size(), false}, kernels, block);
  ASSERT_TRUE(result.intact());
  Evaluator<float> single(roots);
  Evaluator<double> twice(roots);
  for (int r = 0; r < rows; ++r) {
    for (int c = 0; c < columns; ++c) {
      single(block.point<float>(r, c));
      const Cell<float> got = result.cell(0, r, c);
      if (exact || value->type() != Type::F32) {
        ASSERT_TRUE(same_value(value->type(), got, single.value(0)))
            << row.name << " kinds " << kinds << " at " << r << ", " << c << ": "
            << value_text(value->type(), got) << " but "
            << value_text(value->type(), single.value(0));
      } else {
        twice(block.point<double>(r, c));
        const double error = ulps(got.f, twice.value(0).f);
        const double rounded = ulps(got.f, static_cast<double>(single.value(0).f));
        ASSERT_LE(std::min(error, rounded), 4.0)
            << row.name << " kinds " << kinds << " at " << r << ", " << c << ": "
            << value_text(value->type(), got) << " but " << twice.value(0).f << " of " << [&] {
                 std::string text;
                 for (const Expr& arg : args) {
                   text += value_text(arg->type(), evaluate<float>(arg, block.point<float>(r, c))) +
                           " ";
                 }
                 return text;
               }();
      }
      if (roots.size() > 1) {
        ASSERT_EQ(result.cell(1, r, c).b, single.value(1).b);
      }
      if (value->type() == Type::Bool) {
        ASSERT_EQ(result.kept(0, r, c), single.value(0).b);
      }
    }
  }
}

TEST(StripOps, EveryOperationOnEveryMixtureOfOperands) {
  const std::uint64_t seed = test_seed();
  for (const cpu::KernelTable* kernels : strip_isas()) {
    SCOPED_TRACE("lanes " + std::to_string(kernels->lanes));
    std::uint64_t number = 0;
    for (const OpInfo& row : all_ops) {
      if (row.arity() == 0) continue;
      const std::uint32_t mixtures = 1u << (2 * row.arity());
      for (std::uint32_t kinds = 0; kinds < mixtures; ++kinds) {
        for (const bool exact : {true, false}) {
          SCOPED_TRACE(seed_text(seed, number));
          Random random(seed, number++);
          check_op(*kernels, random, row, kinds, exact);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

// Arguments where functions bend, end or cancel: everyday sizes, all magnitudes, near 1, near
// multiples of pi/2. One kind for a row: some functions take another way for large lanes.
float argument(Random& random, int kind) {
  const float unit = static_cast<float>(random.below(1 << 24)) / 8388608.0f - 1.0f;  // -1 .. 1
  switch (kind % 6) {
    case 0: return unit * 3;
    case 1: return unit * 12;
    case 2: return unit * 110;
    case 3: return std::ldexp(unit, random.between(-140, 127));
    case 4: return 1 + unit * 0.01f;
    default: return static_cast<float>(random.between(-5000, 5000)) * 1.57079637f + unit * 0.001f;
  }
}

TEST(StripOps, FunctionsAreWithinAFewUlp) {
  const std::uint64_t seed = test_seed();
  SCOPED_TRACE(seed_text(seed, 0));
  const Expr score = leaf(Op::Score);
  for (const OpInfo& row : all_ops) {
    if (row.signature != "f>f") continue;
    for (const cpu::KernelTable* kernels : strip_isas()) {
      Random random(seed);
      const std::vector<Expr> roots{make(row.op, {score})};
      StripBlock block;
      block.rows = 256, block.columns = 192;
      for (int i = 0; i < block.rows * block.columns; ++i) {
        block.score.push_back(argument(random, i / block.columns / 2));
      }
      block.grad.resize(block.score.size());
      const StripResult result({roots, 1, false}, *kernels, block);
      double worst = 0;
      float where = 0;
      Evaluator<double> eval(roots);
      for (int r = 0; r < block.rows; ++r) {
        for (int c = 0; c < block.columns; ++c) {
          eval(block.point<double>(r, c));
          const double wanted = eval.value(0).f;
          const float got = result.cell(0, r, c).f;
          // Just below a power of two an ulp is half of what it is above.
          if (std::fabs(static_cast<double>(got) - wanted) <= 3e-7 * std::fabs(wanted)) continue;
          const double error = ulps(got, wanted);
          if (error > worst) worst = error, where = block.at(block.score, r, c);
        }
      }
      EXPECT_LE(worst, 4.0) << row.name << "(" << where << "), lanes " << kernels->lanes;
    }
  }
}

// A hidden score may be anything: what lies beside it keeps its bits.
TEST(StripOps, NoScoreDependsOnThoseBesideIt) {
  Random random(test_seed());
  StripBlock tame;
  tame.rows = 32, tame.columns = 64;
  for (int i = 0; i < tame.rows * tame.columns; ++i) {
    tame.score.push_back(argument(random, i / tame.columns));
  }
  tame.grad.resize(tame.score.size());
  StripBlock wild = tame;
  const float beside[] = {std::nanf(""), 1e30f, -HUGE_VALF, 1e-40f};
  for (std::size_t i = 0; i < wild.score.size(); i += 3) wild.score[i] = beside[i % 4];
  for (const OpInfo& row : all_ops) {
    if (row.signature != "f>f") continue;
    const std::vector<Expr> roots{make(row.op, {leaf(Op::Score)})};
    for (const cpu::KernelTable* kernels : strip_isas()) {
      const StripResult one({roots, 1, false}, *kernels, tame),
          other({roots, 1, false}, *kernels, wild);
      for (int i = 0; i < tame.rows * tame.columns; ++i) {
        if (i % 3 == 0) continue;
        const Cell<float> a = one.cell(0, i / tame.columns, i % tame.columns);
        const Cell<float> b = other.cell(0, i / tame.columns, i % tame.columns);
        ASSERT_TRUE(same_value(Type::F32, a, b)) << row.name << ", lanes " << kernels->lanes;
      }
    }
  }
}

}  // namespace
}  // namespace fovea::test
