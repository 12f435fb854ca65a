#include "engines/reference/tangent_formulas.h"

#include "ir/build.h"
#include "ir/diff.h"

namespace fovea::reference {
namespace {

// The derivative by one load or scalar, or 0 if the formula does not have it.
ir::Expr by_load(const ir::Gradients& gradients, const ir::Expr& load) {
  for (const ir::LoadGradient& one : gradients.loads) {
    if (one.load == load) return one.gradient;
  }
  return ir::constant(0.0f);
}
ir::Expr by_scalar(const ir::Gradients& gradients, std::uint32_t slot) {
  for (const ir::ScalarGradient& one : gradients.scalars) {
    if (one.slot == slot) return one.gradient;
  }
  return ir::constant(0.0f);
}

// The sum over captured things of the derivative by each times its tangent. Literals that were
// lifted behind the declared scalars have none.
ir::Expr change_by_captured(const ir::Gradients& first, const Problem& baked) {
  const auto tensors = static_cast<std::uint32_t>(baked.program.tensors().size());
  const auto scalars = static_cast<std::uint32_t>(baked.program.scalars().size());
  ir::Expr sum;
  const auto add = [&](const ir::Expr& term) { sum = sum ? sum + term : term; };
  for (const ir::LoadGradient& one : first.loads) {
    add(one.gradient * ir::load(ir::Type::F32, one.load->slot() + tensors, one.load->args()));
  }
  for (const ir::ScalarGradient& one : first.scalars) {
    if (one.slot >= baked.want_scalars.size()) continue;
    add(one.gradient * ir::scalar(ir::Type::F32, one.slot + scalars));
  }
  return sum ? sum : ir::constant(0.0f);
}

}  // namespace

TangentFormulas::TangentFormulas(const Problem& baked) {
  if (baked.direction != Direction::Tangent || !baked.program.mod()) return;
  const ir::WithLiterals scope(literals_of(baked.q.dtype));
  const ir::Gradients first = ir::differentiate(baked.program.mod());
  const ir::Gradients second = ir::differentiate(first.score);
  const ir::Expr change = change_by_captured(first, baked);
  const ir::Gradients of_change = ir::differentiate(change);

  std::vector<ir::Expr> roots{baked.program.mod(), first.score, change, second.score,
                              of_change.score};
  for (const ir::LoadGradient& one : first.loads) {
    if (!wanted(baked.want_tensors, one.load->slot())) continue;
    const auto index = one.load->args();
    loads_.push_back({one.load->slot(), roots.size(), index.size()});
    roots.insert(roots.end(),
                 {one.gradient, by_load(second, one.load), by_load(of_change, one.load)});
    roots.insert(roots.end(), index.begin(), index.end());
  }
  for (const ir::ScalarGradient& one : first.scalars) {
    if (!wanted(baked.want_scalars, one.slot)) continue;
    scalars_.push_back({one.slot, roots.size(), 0});
    roots.insert(roots.end(),
                 {one.gradient, by_scalar(second, one.slot), by_scalar(of_change, one.slot)});
  }
  slopes_.emplace(roots);
}

Slopes TangentFormulas::at(const Point& point, Cells cells) const {
  if (!slopes_) return {point.score};
  slopes_->run(point, cells);
  const auto root = [&](std::size_t i) { return slopes_->value(cells, i).f; };
  return {root(0), root(1), root(2), root(3), root(4)};
}

double TangentFormulas::change_of(const Captured& captured, const ScoreChange& change,
                                  Cells cells) const {
  const auto root = [&](std::size_t i) { return slopes_->value(cells, captured.first_root + i).f; };
  return change.grad_change * root(0) + change.grad * (root(1) * change.s0_change + root(2));
}

LoadTerm TangentFormulas::load_change(std::size_t i, const ScoreChange& change, Cells cells) const {
  const Captured& load = loads_[i];
  LoadTerm term{load.slot, change_of(load, change, cells), {}};
  for (std::size_t d = 0; d < load.rank; ++d) {
    term.index[d] = slopes_->value(cells, load.first_root + 3 + d).i;
  }
  return term;
}

double TangentFormulas::scalar_change(std::size_t i, const ScoreChange& change, Cells cells) const {
  return change_of(scalars_[i], change, cells);
}

}  // namespace fovea::reference
