// What people write as modifiers, with all their derivatives, and what they capture: for tests of
// engines that compile formulas.
#pragma once

#include <vector>

#include "ir/build.h"
#include "ir/diff.h"
#include "ir/lift.h"
#include "ir/program.h"
#include "ir/simplify.h"
#include "tests/ir/random.h"

namespace fovea::test {

// With operations that engines make of several.
constexpr const char* usual_formulas[] = {
    "mod=\"softcap(30)\"",
    "mod=\"softcap(-3)\"",
    "mod=\"tanh(score / cap[q]) * cap[q]\" tensor=\"cap:f32[Sq]\"",
    "mod=\"softcap(0.0001)\"",
    "mod=\"softcap(1e12)\"",
    "mod=\"tanh(score / 1e-42)\"",
    "mod=\"tanh(score) + tanh(score / 5) * s\" scalar=s=2",
    "mod=\"alibi\"",
    "mod=\"slope[h] * (q - k) + score\" tensor=\"slope:f32[H]\"",
    "mod=\"score - slope[q] * f32(2 * q + 5 - k - k)\" tensor=\"slope:f32[Sq]\"",
    "mod=\"score - 0.1 * abs(q - k)\"",
    "mod=\"score * 2.5 + slope[h] * abs(k - q - 7)\" tensor=\"slope:f32[H]\"",
    "mod=\"softcap(20) + slope[h] * (k - q)\" tensor=\"slope:f32[H]\"",
    "mod=\"q >= k ? score : -inf\"",
    "mod=\"q == k ? score * 3 : s\" scalar=s=2",
    "mod=\"q != k ? 1.5 : score\"",
    "mod=\"k < q ? slope[k] : score\" tensor=\"slope:f32[Skv]\"",
    "mod=\"score + bias[h, q, k]\" tensor=\"bias:f32[H,Sq,Skv]\"",
    "mod=\"score * slope[k] - slope[q] * score + 0.5\" tensor=\"slope:f32[Sq]\"",
    "mod=\"score * sigmoid(1.702 * score) / 3\"",
    "mod=\"0.5 * score * (1 + erf(score / 1.41421356))\"",
    "mod=\"score - strength[h] * tanh(abs(q - k) / 32)\" tensor=\"strength:f32[H]\"",
    "mod=\"score - log1p(0.3 * abs(q - k))\"",
    "mod=\"score / (1 + exp(-score)) - softplus(score) + 3 / (2 + cos(score))\"",
    "mod=\"score + table[h, clamp(k - q + 20, 0, 40)]\" tensor=\"table:f32[H,41]\"",
    "mod=\"min(score, 4) + max(score, -2) * relu\" scalar=relu=0.5",
};

// A formula that decides on the value, so that the value must be exact.
inline ir::Expr decision(const ir::Expr& value) {
  return value->type() == ir::Type::F32 ? value < ir::constant(0.25f) : value;
}

// Its literals are lifted, as engines do it. Captured tensors are f32 of extents [3, 41, 150] or
// the last of these.
struct UsualFormula {
  explicit UsualFormula(const char* text) {
    const ir::Lifted lifted = ir::lift_literals(ir::parse_program(text));
    program = lifted.program;
    for (const ir::ScalarDecl& scalar : program.scalars()) {
      scalars.push_back({static_cast<float>(scalar.value.value_or(0)), 0});
    }
    for (std::size_t i = 0; i < lifted.literals.size(); ++i) {
      scalars[scalars.size() - lifted.literals.size() + i].f = lifted.literals[i];
    }
    static const std::vector<float> data = [] {
      Random random(test_seed());
      std::vector<float> numbers(3 * 41 * 150);
      for (float& x : numbers) x = random.normal() + 3;
      return numbers;
    }();
    for (const ir::TensorDecl& tensor : program.tensors()) {
      constexpr std::int64_t extents[] = {3, 41, 150};
      tensors.push_back(ir::TensorView::dense(data.data(), DType::F32,
                                              std::span(extents).last(tensor.extents.size())));
    }
    const ir::Gradients gradients = ir::differentiate(program.mod(), ir::leaf(ir::Op::Grad));
    roots = {program.mod(), ir::simplify(gradients.score)};
    for (const auto& load : gradients.loads) roots.push_back(ir::simplify(load.gradient));
    for (const auto& scalar : gradients.scalars) roots.push_back(ir::simplify(scalar.gradient));
  }

  ir::Program program;
  std::vector<ir::Expr> roots;  // the modified score, then its derivatives, that by the score first
  std::vector<ir::ScalarValue> scalars;
  std::vector<ir::TensorView> tensors;
};

}  // namespace fovea::test
