// Formulas as pointwise steps of a cuDNN graph, one rule per operation. Conditions have no logic
// operators in cuDNN's fused attention: they become chains of selects.
#pragma once

#include <map>
#include <span>
#include <tuple>

#include "engines/cudnn/views.h"

namespace fovea::cudnn {

class FormulaLowering : public CapturedViews {
 public:
  FormulaLowering(const Problem& problem, std::int64_t batch, const Workarounds& avoid,
                  Lowered& lowered)
      : CapturedViews(problem, batch, avoid, lowered) {}

  Ref real(const ir::Expr& e) { return as_float(value(e)); }
  // `first` if the condition equals `holds`, else `second`.
  Ref select(const ir::Expr& condition, Ref first, Ref second, bool holds = true);
  Ref mask(Ref score, std::span<const ir::Expr> conditions);  // -inf if one does not hold

  Ref band(Ref score, const Band& band);  // the same for diagonals

  Ref within_sequences(Ref inner, float outer);
  Ref same(Ref score);  // as a modifier

  void finish();  // decisions that cuDNN's arithmetic could turn otherwise

 private:
  Ref value(const ir::Expr& e);  // f32 or i32
  Ref make(const ir::Expr& e);
  Ref whole_number(const ir::Expr& e);
  Ref real_number(const ir::Expr& e);
  Ref binary(Mode mode, const ir::Expr& e);
  Ref power(const ir::Expr& e);
  Ref floor_divide(const ir::Expr& e);
  Ref rounded(const ir::Expr& e);
  Ref compare(Mode mode, const ir::Expr& e);
  Ref compare_not(Mode mode, const ir::Expr& e);
  Ref unsupported(const ir::Expr& e);

  std::map<const ir::Node*, Ref> values_;
  std::map<std::tuple<const ir::Node*, int, std::uint32_t, int, std::uint32_t, bool>, Ref> selects_;
};

}  // namespace fovea::cudnn
