// Which parts of a mask are diagonals that cuDNN knows, and for which it skips tiles: causal from
// the top left or the bottom right, sliding windows. Decided on the canonical formula by what its
// comparisons say about q and k, never by names.
#pragma once

#include <vector>

#include "engines/cudnn/graph_spec.h"
#include "ir/expr.h"

namespace fovea::cudnn {

struct MatchedMask {
  Band band;
  std::vector<ir::Expr> rest;  // all must hold too
};

// What is known of the sizes when the mask is matched.
struct MaskSizes {
  std::int64_t sq = 1, skv = 1;
  bool lengths = false;  // Sq and Skv differ from sequence to sequence
};

// `mask` in terms of positions that count from 0.
MatchedMask match_mask(const ir::Expr& mask, const MaskSizes& sizes);

// The band as a formula: what match_mask() took out of the mask. For tests and debug builds.
ir::Expr formula_of(const Band& band);

}  // namespace fovea::cudnn
