#include "engines/reference/formulas.h"

#include <algorithm>

#include "ir/build.h"

namespace fovea::reference {
namespace {

// The derivative by one load or scalar, or 0 if the formula does not have it.
ir::Expr by_load(const ir::Gradients& gradients, const ir::Expr& load) {
  const auto at = std::ranges::find(gradients.loads, load, &ir::LoadGradient::load);
  return at == gradients.loads.end() ? ir::constant(0.0f) : at->gradient;
}
ir::Expr by_scalar(const ir::Gradients& gradients, std::uint32_t slot) {
  const auto at = std::ranges::find(gradients.scalars, slot, &ir::ScalarGradient::slot);
  return at == gradients.scalars.end() ? ir::constant(0.0f) : at->gradient;
}

}  // namespace

Derivatives::Derivatives(const Problem& baked, std::vector<ir::Expr> roots,
                         std::span<const ir::Gradients> by) {
  for (const ir::LoadGradient& one : by[0].loads) {
    if (!wanted(baked.want_tensors, one.load->slot())) continue;
    const auto index = one.load->args();
    captured_.push_back(
        {true, one.load->slot(), roots.size(), roots.size() + by.size(), index.size()});
    for (const ir::Gradients& of : by) roots.push_back(by_load(of, one.load));
    roots.insert(roots.end(), index.begin(), index.end());
  }
  for (const ir::ScalarGradient& one : by[0].scalars) {
    if (!wanted(baked.want_scalars, one.slot)) continue;
    captured_.push_back({false, one.slot, roots.size(), 0, 0});
    for (const ir::Gradients& of : by) roots.push_back(by_scalar(of, one.slot));
  }
  evaluator_.emplace(roots);
}

Indices Derivatives::indices(const Captured& load, Cells cells) const {
  Indices out{};
  for (std::size_t d = 0; d < load.rank; ++d) {
    out[d] = evaluator_->value(cells, load.first_index + d).i;
  }
  return out;
}

Formulas::Formulas(const Problem& baked) {
  const ir::WithLiterals scope(literals_of(baked.q.dtype));
  const ir::Program& program = baked.program;
  if (program.mask()) mask_.emplace(program.mask());
  if (program.mod()) mod_.emplace(program.mod());
  if (!program.mod() || baked.direction != Direction::Backward) return;
  const ir::Gradients derived = ir::differentiate(program.mod(), ir::leaf(ir::Op::Grad));
  gradients_ =
      Derivatives(baked, {program.bprop() ? program.bprop() : derived.score}, {&derived, 1});
}

std::size_t Formulas::cell_count() const {
  std::size_t most = gradients_.cell_count();
  for (const auto* evaluator : {&mask_, &mod_}) {
    if (*evaluator) most = std::max(most, (*evaluator)->value_count());
  }
  return most;
}

bool Formulas::keeps(const Point& point, Cells cells) const {
  if (!mask_) return true;
  mask_->run(point, cells);
  return mask_->value(cells, 0).b;
}

double Formulas::modified_score(const Point& point, Cells cells) const {
  if (!mod_) return point.score;
  mod_->run(point, cells);
  return mod_->value(cells, 0).f;
}

double Formulas::differentiate(const Point& point, Cells cells) const {
  if (!gradients_) return point.grad;
  gradients_.run(point, cells);
  return gradients_.root(0, cells);
}

}  // namespace fovea::reference
