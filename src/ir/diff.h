// Derivatives of formulas: reverse mode, one rule per operation (diff.cpp), PyTorch's conventions
// at ties and kinks. The result is an expression again, so it can be differentiated again.
#pragma once

#include <vector>

#include "ir/expr.h"

namespace fovea::ir {

// The derivative of a formula by one load: the engine scatters `gradient` into slot load->slot()
// at the load's index expressions, its operands.
struct LoadGradient {
  Expr load;
  Expr gradient;
};

struct ScalarGradient {
  std::uint32_t slot = 0;
  Expr gradient;
};

// Every f32 input that the formula has, in the order of first use; integer inputs have none.
struct Gradients {
  Expr score;  // 0 if the formula does not use it
  std::vector<LoadGradient> loads;
  std::vector<ScalarGradient> scalars;
  Expr grad;  // by the leaf `grad`, for derivatives of derivatives; 0 if it is not used
};

// `seed` is the incoming gradient: 1 by default; the leaf `grad` gives a bprop formula.
Gradients differentiate(const Expr& formula, const Expr& seed);
Gradients differentiate(const Expr& formula);

}  // namespace fovea::ir
