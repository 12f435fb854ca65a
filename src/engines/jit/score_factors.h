// Factors around a modified score: of `cap * tanh(score / cap)` the outer one joins the exponent of
// the softmax, the inner one the scale, so that neither is multiplied for each score.
#pragma once

#include "ir/expr.h"

namespace fovea::jit {

// mod = outer * inner(score * scale), with outer and scale the same for a whole head.
struct ScoreFactors {
  ir::Expr outer, scale, inner;
};

// `inner` is empty if there is nothing to gain, or if the score decides something and must be
// rounded as it is written.
ScoreFactors split_factors(const ir::Expr& mod);

}  // namespace fovea::jit
