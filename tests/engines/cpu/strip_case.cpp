#include "tests/engines/cpu/strip_case.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "attention/device.h"
#include "engines/cpu/call.h"
#include "tests/engines/cpu/guarded_memory.h"
#include "tests/ir/random_point.h"

namespace fovea::test {

using cpu::KernelTable;
using cpu::StripProgram;
using cpu::StripRun;
using cpu::StripValue;

std::vector<const KernelTable*> strip_isas() {
  std::vector<const KernelTable*> out;
  for (const std::string& isa : cpu_device().isa) {
    if (isa != "avx512_bf16") out.push_back(&cpu::kernels_named(isa));  // strips as avx512 has them
  }
  return out;
}

void check_cases(std::uint64_t count, void (*check)(const KernelTable&, Random&)) {
  const std::uint64_t seed = test_seed();
  for (const KernelTable* kernels : strip_isas()) {
    for (std::uint64_t i = 0; i < count; ++i) {
      SCOPED_TRACE(seed_text(seed, i) + ", lanes " + std::to_string(kernels->lanes));
      Random random(seed, i);
      check(*kernels, random);
      if (testing::Test::HasFatalFailure()) return;
    }
  }
}

template <class Real>
ir::Point<Real> StripBlock::point(int row, int column) const {
  ir::Point<Real> p;
  const auto at = static_cast<std::size_t>(row * columns + column);
  p.score = static_cast<Real>(score[at]);
  p.grad = static_cast<Real>(grad[at]);
  p.b = leaves.b, p.h = leaves.h;
  p.q = static_cast<std::int32_t>(std::int64_t{q_first} + row);
  p.k = static_cast<std::int32_t>(std::int64_t{k_first} + column);
  p.B = leaves.B, p.H = leaves.H, p.Hkv = leaves.Hkv, p.Sq = leaves.Sq, p.Skv = leaves.Skv;
  p.scalars = leaves.scalars;
  p.tensors = leaves.tensors;
  return p;
}
template ir::Point<float> StripBlock::point<float>(int, int) const;
template ir::Point<double> StripBlock::point<double>(int, int) const;

StripResult::StripResult(const StripProgram::Roots& roots, const KernelTable& kernels,
                         const StripBlock& block)
    : columns_(block.columns), words_((block.columns + 63) / 64) {
  const auto cells = static_cast<std::size_t>(block.rows * block.columns);
  for (const ir::Expr& root : roots.all) types_.push_back(root->type());
  bits_.assign(types_.size(), std::vector<std::uint32_t>(cells));
  keep_bits_.assign(types_.size(),
                    std::vector<std::uint64_t>(static_cast<std::size_t>(block.rows * words_)));
  score_.resize(cells);

  const StripProgram program(roots, kernels);
  const GuardedMemory state(program.state_bytes(block.rows + 2, block.columns));
  StripRun run(program, state.data(), block.rows + 2, block.columns);
  // Runs on another block first, of which nothing may be left.
  cpu::LeafValues other = block.leaves;
  other.h += 1;
  run.begin(other);
  run.rows(static_cast<std::int32_t>(std::int64_t{block.q_first} - 7), block.rows + 2);
  run.columns(0, 1);
  run.begin(block.leaves);
  run.rows(block.q_first, block.rows);
  run.columns(block.k_first, block.columns);
  const int width = kernels.panel_width;
  for (int row = 0; row < block.rows; row += kernels.strip_rows) {
    for (int column = 0; column < block.columns; column += width) {
      StripRun::Strip strip;
      strip.row = row, strip.rows = std::min(kernels.strip_rows, block.rows - row);
      strip.column = column, strip.columns = std::min(width, block.columns - column);
      const GuardedMemory score(static_cast<std::size_t>(strip.rows * width) * sizeof(float));
      const GuardedMemory grad(static_cast<std::size_t>(strip.rows * width) * sizeof(float));
      strip.score = static_cast<float*>(score.data());
      auto* const grads = static_cast<float*>(grad.data());
      for (int r = 0; r < strip.rows; ++r) {
        for (int c = 0; c < strip.columns; ++c) {
          const std::size_t at = place(row + r, column + c);
          strip.score[r * width + c] = block.score[at];
          grads[r * width + c] = block.grad[at];
        }
      }
      run.elements(0, strip);
      for (std::size_t i = 0; i < roots.second_phase; ++i) collect(run, strip, i);
      for (int r = 0; r < strip.rows; ++r) {
        for (int c = 0; c < strip.columns; ++c) {
          score_[place(row + r, column + c)] = strip.score[r * width + c];
        }
      }
      if (roots.second_phase < roots.all.size()) {
        if (roots.in_place) std::fill_n(strip.score, strip.rows * width, -7.77e33f);
        strip.grad = grads;
        run.elements(1, strip);
        for (std::size_t i = roots.second_phase; i < types_.size(); ++i) collect(run, strip, i);
      }
      intact_ = state.intact() && score.intact() && grad.intact();
      if (!intact_) return;
    }
  }
}

void StripResult::collect(const StripRun& run, const StripRun::Strip& strip, std::size_t root) {
  const StripValue value = run.value(root);
  for (int r = 0; r < strip.rows; ++r) {
    for (int c = 0; c < strip.columns; ++c) {
      bits_[root][place(strip.row + r, strip.column + c)] =
          std::bit_cast<std::uint32_t>(value.i32()[r * value.row_step + c * value.column_step]);
    }
  }
  if (types_[root] == ir::Type::Bool) {
    run.keep_bits(root, strip, keep_bits_[root].data() + strip.row * words_, words_);
  }
}

ir::Cell<float> StripResult::cell(std::size_t root, int row, int column) const {
  const std::uint32_t bits = bits_[root][place(row, column)];
  switch (types_[root]) {
    case ir::Type::F32: return ir::Cell<float>::real(std::bit_cast<float>(bits));
    case ir::Type::I32: return ir::Cell<float>::integer(std::bit_cast<std::int32_t>(bits));
    case ir::Type::Bool: break;
  }
  return ir::Cell<float>::boolean(bits == ~std::uint32_t{0});
}

bool StripResult::kept(std::size_t root, int row, int column) const {
  const std::uint64_t word = keep_bits_[root][static_cast<std::size_t>(row * words_ + column / 64)];
  return (word >> (column % 64) & 1) != 0;
}

void check_exact(const StripResult& result, std::span<const ir::Expr> roots,
                 const StripBlock& block, const std::string& what) {
  ASSERT_TRUE(result.intact());
  ir::Evaluator<float> eval(roots);
  for (int r = 0; r < block.rows; ++r) {
    for (int c = 0; c < block.columns; ++c) {
      const ir::Point<float> point = block.point<float>(r, c);
      eval(point);
      for (std::size_t i = 0; i < roots.size(); ++i) {
        const ir::Type type = roots[i]->type();
        const ir::Cell<float> got = result.cell(i, r, c), wanted = eval.value(i);
        ASSERT_TRUE(same_value(type, got, wanted))
            << "root " << i << " at " << r << ", " << c << " of " << block.rows << " x "
            << block.columns << ", " << point_text(point) << '\n'
            << value_text(type, got) << " but " << value_text(type, wanted) << '\n'
            << what;
        if (type == ir::Type::Bool) {
          ASSERT_EQ(result.kept(i, r, c), wanted.b);
        }
      }
    }
  }
}

}  // namespace fovea::test
