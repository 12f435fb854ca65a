// Formula::classify: the steps of ir/range as device code, over device/interval.h. For the same
// ranges of captured tensors, a tile is then empty, full or mixed exactly as on the host.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "engines/jit/words.h"
#include "ir/op.h"
#include "ir/program.h"

namespace fovea::jit {

class Classifier {
 public:
  explicit Classifier(const ir::Program& program);

  // What is seen (the mask, less what the modifier always makes -inf), then the parts of the mask.
  // A tile is empty by the first, full if all of the others always hold in it.
  std::span<const ir::Expr> formulas() const { return formulas_; }
  std::span<const ir::Expr> mask_parts() const { return formulas().subspan(1); }
  bool classifies() const;  // false: every tile is full

  // Adds words for the summaries that it reads to the layout.
  std::string text(WordLayout& layout, std::vector<Summary>& summaries) const;

 private:
  const ir::Program& program_;
  std::vector<ir::Expr> formulas_;
};

// What one operation makes of sets of values, as an expression over device/interval.h, by the rules
// of ir/interval. `args` names the operands' sets. Leaves, loads and constants have no rule here.
std::string interval_text(ir::Op op, std::span<const std::string> args);

}  // namespace fovea::jit
