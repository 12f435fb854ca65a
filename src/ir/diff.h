// Derivatives of formulas: reverse mode, one rule per operation (diff.cpp), PyTorch's conventions
// at ties and kinks. The result is an expression again, so it can be differentiated again.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ir/program.h"

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

// `gradient`, one of the derivatives of `mod`, in a form that f32 can evaluate. The derivative of a
// soft cap c * tanh(x / c) by c is tanh(u) - u (1 - tanh(u)^2) with u = x / c: a difference of
// nearly equal numbers for small u. If `gradient` is that one, its series is used near u = 0. Every
// other gradient is returned unchanged.
Expr stable_gradient(const Expr& mod, const Expr& gradient);

// A hand-written bprop formula compared with the derived derivative at random points.
struct BpropCheck {
  std::uint64_t seed = 0;  // reproduces it
  int points = 0;          // compared
  double worst_error = 0;  // |hand - derived| / max(1, |derived|); infinite if only one is NaN
  double hand = 0, derived = 0;
  std::string worst_point;  // "score=... grad=... b=0 h=2 q=17 k=3 softcap=..."

  bool agrees() const { return worst_error <= 1e-6; }
};

// Evaluates both in double at `points` random points: scores and gradients around 0, positions
// below small sizes, captured values drawn anew at every point. The Program must have a bprop.
BpropCheck check_bprop(const Program& program, std::uint64_t seed, int points = 1000);

}  // namespace fovea::ir
