// From a Problem to what its plan runs: formulas compiled for strips, their derivatives derived.
#include <algorithm>
#include <vector>

#include "engines/cpu/backward.h"
#include "engines/cpu/blocks.h"
#include "engines/cpu/call.h"
#include "ir/build.h"
#include "ir/diff.h"
#include "ir/simplify.h"

namespace fovea::cpu {
namespace {

ir::Expr gradient_by_score(const ir::Program& program) {
  if (program.bprop()) return program.bprop();
  return ir::simplify(ir::differentiate(program.mod(), ir::leaf(ir::Op::Grad)).score);
}

}  // namespace

Prepared::Prepared(const Problem& problem, const KernelTable& table, int threads)
    : baked(problem),
      kernels(table),
      workers(std::max(1, threads)),
      tiles(problem.program, tile_columns),
      captured(problem) {
  const ir::Program& program = baked.program;
  if (program.mask()) mask.emplace(StripProgram::Roots{{&program.mask(), 1}, 1, false}, kernels);
  if (!program.mod()) return;
  if (baked.direction == Direction::Forward) {
    mod.emplace(StripProgram::Roots{{&program.mod(), 1}, 1, true}, kernels);
    return;
  }
  std::vector<ir::Expr> roots{program.mod(), gradient_by_score(program)};
  grad_passes = roots[gradient_root]->op() == ir::Op::Grad;
  for (const ir::Expr& root : captured.roots()) roots.push_back(root);
  mod.emplace(StripProgram::Roots{roots, gradient_root, false}, kernels);
}

}  // namespace fovea::cpu
