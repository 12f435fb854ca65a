#include "engines/reference/formulas.h"

#include <algorithm>

#include "ir/build.h"
#include "ir/diff.h"

namespace fovea::reference {

Formulas::Formulas(const Problem& baked) {
  const ir::WithLiterals scope(literals_of(baked.q.dtype));
  const ir::Program& program = baked.program;
  if (program.mask()) mask_.emplace(program.mask());
  if (program.mod()) mod_.emplace(program.mod());
  if (program.mod() && baked.direction == Direction::Backward) derive(baked);
}

void Formulas::derive(const Problem& baked) {
  const ir::Program& program = baked.program;
  const ir::Gradients derived = ir::differentiate(program.mod(), ir::leaf(ir::Op::Grad));
  std::vector<ir::Expr> roots{program.bprop() ? program.bprop() : derived.score};
  for (const ir::LoadGradient& load : derived.loads) {
    if (!wanted(baked.want_tensors, load.load->slot())) continue;
    const auto index = load.load->args();
    loads_.push_back({load.load->slot(), roots.size(), roots.size() + 1, index.size()});
    roots.push_back(load.gradient);
    roots.insert(roots.end(), index.begin(), index.end());
  }
  for (const ir::ScalarGradient& scalar : derived.scalars) {
    if (!wanted(baked.want_scalars, scalar.slot)) continue;
    scalars_.push_back({scalar.slot, roots.size()});
    roots.push_back(scalar.gradient);
  }
  gradients_.emplace(roots);
}

std::size_t Formulas::cell_count() const {
  std::size_t most = 0;
  for (const Evaluator* evaluator : {&mask_, &mod_, &gradients_}) {
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
  gradients_->run(point, cells);
  return gradients_->value(cells, 0).f;
}

LoadTerm Formulas::load_term(std::size_t i, Cells cells) const {
  const Load& load = loads_[i];
  LoadTerm term{load.slot, gradients_->value(cells, load.root).f, {}};
  for (std::size_t d = 0; d < load.rank; ++d) {
    term.index[d] = gradients_->value(cells, load.first_index + d).i;
  }
  return term;
}

double Formulas::scalar_term(std::size_t i, Cells cells) const {
  return gradients_->value(cells, scalars_[i].root).f;
}

}  // namespace fovea::reference
