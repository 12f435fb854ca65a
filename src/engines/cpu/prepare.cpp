// From a Problem to what its plan runs: formulas compiled for strips, their derivatives derived.
#include <algorithm>
#include <vector>

#include "engines/cpu/backward.h"
#include "engines/cpu/blocks.h"
#include "engines/cpu/call.h"
#include "engines/cpu/stable.h"
#include "ir/build.h"
#include "ir/diff.h"
#include "ir/simplify.h"

namespace fovea::cpu {
namespace {

ir::Expr gradient_by_score(const ir::Program& program) {
  if (program.bprop()) return program.bprop();
  return ir::simplify(ir::differentiate(program.mod(), ir::leaf(ir::Op::Grad)).score);
}

bool is_constant_in_row(const ir::Expr& expr) {
  return !ir::any(expr->depends(), ir::Depends::K | ir::Depends::Score | ir::Depends::Grad);
}

// mod = rest + shift, with all that is constant in a row in the shift. Null: nothing is.
struct Shifted {
  ir::Expr rest, shift;
};
Shifted split_shift(const ir::Expr& mod) {
  Shifted out{mod, {}};
  for (;;) {
    const ir::Op op = out.rest->op();
    if (op != ir::Op::AddF && op != ir::Op::SubF) return out;
    const ir::Expr left = out.rest->arg(0), right = out.rest->arg(1);
    const bool add = op == ir::Op::AddF;
    if (is_constant_in_row(right) && !is_constant_in_row(left)) {
      const ir::Expr term = add ? right : -right;
      out = {left, out.shift ? out.shift + term : term};
    } else if (add && is_constant_in_row(left) && !is_constant_in_row(right)) {
      out = {right, out.shift ? out.shift + left : left};
    } else {
      return out;
    }
  }
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
  const Shifted shifted = split_shift(program.mod());
  if (shifted.shift) {
    shift.emplace(StripProgram::Roots{{&shifted.shift, 1}, 1, false}, kernels);
  }
  if (baked.direction == Direction::Forward) {
    if (shifted.rest->op() == ir::Op::Score) return;
    mod.emplace(StripProgram::Roots{{&shifted.rest, 1}, 1, true}, kernels);
    return;
  }
  std::vector<ir::Expr> roots{shifted.rest, gradient_by_score(program)};
  grad_passes = roots[gradient_root]->op() == ir::Op::Grad;
  for (const ir::Expr& root : captured.roots()) {
    roots.push_back(stable_gradient(program.mod(), root));
  }
  mod.emplace(StripProgram::Roots{roots, gradient_root, false}, kernels);
}

}  // namespace fovea::cpu
