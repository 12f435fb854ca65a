#include "engines/cpu/prepare.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <vector>

#include "engines/cpu/backward.h"
#include "engines/cpu/blocks.h"
#include "ir/build.h"
#include "ir/diff.h"
#include "ir/modifier.h"
#include "ir/simplify.h"

namespace fovea::cpu {
namespace {

ir::Expr gradient_by_score(const ir::Program& program) {
  if (program.bprop()) return program.bprop();
  return ir::simplify(ir::differentiate(program.mod(), ir::leaf(ir::Op::Grad)).score);
}

// The modifier with its linear term, if it has one, relative to the scalar of slot `origin`:
// mod = relative + slope * (line at k = origin) + shift.
ir::Expr relative_to(const ir::RowShift& split, std::uint32_t origin) {
  if (!split.line.slope) return {};
  const ir::Expr k = ir::leaf(ir::Op::IndexK), from = ir::scalar(ir::Type::I32, origin);
  const ir::Expr steps = split.line.k > 0 ? k - from : from - k;
  return ir::plus_term(split.without_line, split.line.slope * ir::to_f32(steps), false);
}

// Whether all factors are stored as bf16 and the processor multiplies pairs of bf16.
bool multiplies_pairs(const Problem& problem, const KernelTable& kernels) {
  const bool backward = problem.direction == Direction::Backward;
  return kernels.pairs != nullptr && problem.precision == Precision::Default &&
         problem.q.dtype == DType::BF16 && problem.k.dtype == DType::BF16 &&
         problem.v.dtype == DType::BF16 && (!backward || problem.grad_o.dtype == DType::BF16);
}

}  // namespace

const KernelTable& kernels_named([[maybe_unused]] std::string_view isa) {
#if defined(__x86_64__)
  for (const KernelTable* one : {&avx512_bf16_kernels, &avx512_kernels, &avx2_kernels}) {
    if (one->isa == isa) return *one;
  }
#elif defined(__aarch64__)
  if (isa == neon_kernels.isa) return neon_kernels;
#endif
  return scalar_kernels;
}

Prepared::Prepared(const Problem& problem, const KernelTable& table, int threads)
    : baked(problem),
      kernels(table),
      workers(std::max(1, threads)),
      pairs(multiplies_pairs(problem, table)),
      tiles(problem.program, tile_columns),
      captured(problem) {
  const ir::Program& program = baked.program;
  if (program.mask()) mask.emplace(StripProgram::Roots{{&program.mask(), 1}, 1, false}, kernels);
  if (!program.mod()) return;
  const auto origin = static_cast<std::uint32_t>(program.scalars().size());
  const ir::RowShift shifted = ir::split_row_shift(program.mod());
  const ir::Expr near = relative_to(shifted, origin);
  const auto per_row = [&](std::optional<StripProgram>& into, const ir::Expr& value) {
    if (value) into.emplace(StripProgram::Roots{{&value, 1}, 1, false}, kernels);
  };
  per_row(shift, shifted.shift);
  per_row(slope, shifted.line.slope);
  slope_k = shifted.line.k;
  slope_q = shifted.line.q;
  compile_mod(mod, shifted.rest);
  if (near) compile_mod(relative, near);
}

std::size_t Prepared::mod_state_bytes() const {
  std::size_t bytes = 0;
  for (const auto* program : {&mod, &relative}) {
    if (*program) bytes = std::max(bytes, (*program)->state_bytes(block_rows, tile_columns));
  }
  return bytes;
}

std::size_t Prepared::row_state_bytes() const {
  std::size_t bytes = 0;
  for (const auto* program : {&shift, &slope}) {
    if (*program) bytes = std::max(bytes, (*program)->state_bytes(block_rows, tile_columns));
  }
  return bytes;
}

void Prepared::compile_mod(std::optional<StripProgram>& into, const ir::Expr& score) {
  const ir::Program& program = baked.program;
  if (baked.direction == Direction::Forward) {
    if (score->op() == ir::Op::Score) return;
    into.emplace(StripProgram::Roots{{&score, 1}, 1, true}, kernels);
    return;
  }
  std::vector<ir::Expr> roots{score, gradient_by_score(program)};
  grad_passes = roots[gradient_root]->op() == ir::Op::Grad;
  for (const ir::Expr& root : captured.roots()) {
    roots.push_back(ir::stable_gradient(program.mod(), root));
  }
  into.emplace(StripProgram::Roots{roots, gradient_root, false}, kernels);
}

}  // namespace fovea::cpu
