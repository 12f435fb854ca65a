// From a Problem to what its plan runs: formulas compiled for strips, their derivatives derived.
#include <algorithm>
#include <optional>
#include <vector>

#include "engines/cpu/backward.h"
#include "engines/cpu/blocks.h"
#include "engines/cpu/call.h"
#include "ir/build.h"
#include "ir/diff.h"
#include "ir/simplify.h"
#include "ir/stable.h"

namespace fovea::cpu {
namespace {

ir::Expr gradient_by_score(const ir::Program& program) {
  if (program.bprop()) return program.bprop();
  return ir::simplify(ir::differentiate(program.mod(), ir::leaf(ir::Op::Grad)).score);
}

bool is_constant_in_row(const ir::Expr& expr) {
  return !ir::any(expr->depends(), ir::Depends::K | ir::Depends::Score | ir::Depends::Grad);
}

// The terms of a sum.
struct Term {
  ir::Expr value;
  bool negative = false;
};
void collect_terms(const Term& sum, std::vector<Term>& out) {
  const ir::Op op = sum.value->op();
  if (op != ir::Op::AddF && op != ir::Op::SubF) {
    out.push_back(sum);
    return;
  }
  collect_terms({sum.value->arg(0), sum.negative}, out);
  collect_terms({sum.value->arg(1), sum.negative != (op == ir::Op::SubF)}, out);
}

ir::Expr plus(const ir::Expr& sum, const Term& term) {
  if (!sum) return term.negative ? -term.value : term.value;
  return term.negative ? sum - term.value : sum + term.value;
}

// slope * f32(k - q), slope * f32(q - k) or slope * f32(k), the slope constant in a row.
struct Line {
  ir::Expr slope;
  int k = 0, q = 0;
};
std::optional<Line> as_line(const ir::Expr& term) {
  const auto position = [](const ir::Expr& expr, ir::Op op) { return expr->op() == op; };
  const auto counted = [&](const ir::Expr& expr) -> std::optional<Line> {
    if (expr->op() != ir::Op::FloatOfInt) return std::nullopt;
    const ir::Expr& x = expr->arg(0);
    if (position(x, ir::Op::IndexK)) return Line{ir::constant(1.0f), 1, 0};
    if (x->op() != ir::Op::SubI) return std::nullopt;
    const bool k_first = position(x->arg(0), ir::Op::IndexK);
    if (k_first && position(x->arg(1), ir::Op::IndexQ)) return Line{ir::constant(1.0f), 1, -1};
    const bool q_first = position(x->arg(0), ir::Op::IndexQ);
    if (q_first && position(x->arg(1), ir::Op::IndexK)) return Line{ir::constant(1.0f), -1, 1};
    return std::nullopt;
  };
  if (auto line = counted(term)) return line;
  if (term->op() != ir::Op::MulF) return std::nullopt;
  for (std::size_t i = 0; i < 2; ++i) {
    auto line = counted(term->arg(i));
    if (!line || !is_constant_in_row(term->arg(1 - i))) continue;
    line->slope = term->arg(1 - i);
    return line;
  }
  return std::nullopt;
}

// mod = rest + shift, with all that is constant in a row in the shift; and, where mod has a line,
// mod = relative + slope * (line at k = origin) + shift, with `origin` the scalar of that slot.
struct Shifted {
  ir::Expr rest, relative, shift;  // null: nothing is left out
  Line line;
};
Shifted split_shift(const ir::Expr& mod, std::uint32_t origin) {
  std::vector<Term> terms;
  collect_terms({mod, false}, terms);
  Shifted out;
  ir::Expr without_line;
  for (const Term& term : terms) {
    if (is_constant_in_row(term.value)) {
      out.shift = plus(out.shift, term);
      continue;
    }
    out.rest = plus(out.rest, term);
    const auto line = out.line.slope ? std::nullopt : as_line(term.value);
    if (!line) {
      without_line = plus(without_line, term);
      continue;
    }
    out.line = *line;
    if (term.negative) out.line.slope = -line->slope;
  }
  if (!out.rest) out.rest = ir::constant(0.0f);  // constant in every row
  if (!out.shift) out.rest = mod;                // as it was written
  if (out.line.slope) {
    const ir::Expr k = ir::leaf(ir::Op::IndexK), from = ir::scalar(ir::Type::I32, origin);
    const ir::Expr steps = out.line.k > 0 ? k - from : from - k;
    out.relative = plus(without_line, {out.line.slope * ir::to_f32(steps), false});
  }
  return out;
}

// Whether all that is multiplied is stored as bf16, and the machine multiplies that.
bool multiplies_pairs(const Problem& problem, const KernelTable& kernels) {
  const bool backward = problem.direction == Direction::Backward;
  return kernels.pairs != nullptr && problem.precision == Precision::Default &&
         problem.q.dtype == DType::BF16 && problem.k.dtype == DType::BF16 &&
         problem.v.dtype == DType::BF16 && (!backward || problem.grad_o.dtype == DType::BF16);
}

}  // namespace

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
  const Shifted shifted = split_shift(program.mod(), origin);
  const auto per_row = [&](std::optional<StripProgram>& into, const ir::Expr& value) {
    if (value) into.emplace(StripProgram::Roots{{&value, 1}, 1, false}, kernels);
  };
  per_row(shift, shifted.shift);
  per_row(slope, shifted.line.slope);
  slope_k = shifted.line.k;
  slope_q = shifted.line.q;
  compile_mod(mod, shifted.rest);
  if (shifted.relative) compile_mod(relative, shifted.relative);
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
