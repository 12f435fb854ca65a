// Formulas as pointwise steps of a cuDNN graph, one rule per operation.  Conditions have no logic
// operators in cuDNN's fused attention: they become chains of selects. Whole numbers are i32 while
// they are only added and compared, and f32 beyond, if ir/range proves that they stay below
// 2^24, exact.
#pragma once

#include <map>
#include <span>
#include <string>
#include <tuple>
#include <unordered_set>

#include "engines/cudnn/lower.h"
#include "ir/program.h"
#include "ir/range.h"

namespace fovea::cudnn {

// Whether what a program decides (masks, selects, whole numbers, floor) comes out the same in
// cuDNN's arithmetic as in everyone else's.
class Decisions {
 public:
  explicit Decisions(const ir::Program& program);

  // What makes a decision inexact, in words ("logarithm"); "" if nothing does.
  const std::string& inexact() const { return inexact_; }
  // Its value must be what f32 gives, operation by operation.
  bool depend_on(const ir::Node& node) const { return nodes_.contains(&node); }

 private:
  std::string inexact_;
  std::unordered_set<const ir::Node*> nodes_;
};

// Whole numbers below this are exact in f32.
inline constexpr std::int64_t exact_in_f32 = std::int64_t{1} << 24;

// In the shape of the score.
inline bool is_full(const Ref& ref) {
  return ref.kind != Ref::Kind::Tensor && ref.kind != Ref::Kind::Constant;
}

class FormulaLowering {
 public:
  FormulaLowering(const Problem& problem, std::int64_t batch, const Avoid& avoid, Lowered& lowered);

  Ref real(const ir::Expr& e) { return as_float(value(e)); }
  // `first` if the condition equals `holds`, else `second`.
  Ref select(const ir::Expr& condition, Ref first, Ref second, bool holds = true);
  Ref mask(Ref score, std::span<const ir::Expr> conditions);  // -inf if one does not hold

  Ref band(Ref score, const Band& band);  // the same for diagonals

  Ref within_sequences(Ref inner, float outer);
  Ref same(Ref score);  // as a modifier

  bool add_bias(const ir::Expr& load);  // false if its indices are not positions themselves
  static int count_loads(const ir::Program& program, std::uint32_t slot);

  void finish();  // decisions that cuDNN's arithmetic could turn otherwise

 private:
  Ref step(Mode mode, std::initializer_list<Ref> operands, Type type = Type::F32);
  Ref number(float value);
  Ref whole(std::int32_t value);
  Ref as_float(Ref ref);
  Ref full(Ref ref, bool as_real = false);  // in the shape of the score
  Ref uniform(const ir::Expr& e);
  bool is_uniform(const ir::Expr& e) const;
  Type type_of(const Ref& ref) const;

  Ref value(const ir::Expr& e);  // f32 or i32
  Ref make(const ir::Expr& e);
  Ref whole_number(const ir::Expr& e);
  Ref real_number(const ir::Expr& e);
  Ref binary(Mode mode, const ir::Expr& e);
  Ref index(int axis);
  Ref plain_index(int axis);
  Ref per_sequence(Role role);
  void spread_over_rows(Tensor& tensor) const;
  Ref per_call(Role role, std::uint32_t slot, Type type);
  Ref load(const ir::Expr& e);
  Ref table(const ir::Expr& e);
  Ref power(const ir::Expr& e);
  Ref floor_divide(const ir::Expr& e);
  Ref rounded(const ir::Expr& e);
  Ref compare(Mode mode, const ir::Expr& e);
  Ref compare_not(Mode mode, const ir::Expr& e);
  Ref size(ir::Op op);
  Ref unsupported(const ir::Expr& e);
  bool view_of(const ir::Expr& load, View& view, Tensor& tensor);
  void refuse_moved_on_device(const std::string& tensor, char position);
  ir::IntInterval range(const ir::Expr& e) const;
  void need_exact(const ir::Expr& e);
  void refuse(const char* code, const std::string& limit, const std::string& got,
              const std::string& advice);

  const Problem& problem_;
  std::int64_t batch_;
  Avoid avoid_;
  Lowered& lowered_;
  Spec& spec_;
  Decisions decisions_;
  ir::Box box_;
  std::map<const ir::Node*, Ref> values_;
  std::map<std::tuple<const ir::Node*, int, std::uint32_t, int, std::uint32_t, bool>, Ref> selects_;
  std::map<const ir::Node*, Ref> loads_, tables_, uniforms_;
  std::optional<Ref> zero_, whole_zero_;  // full
  std::vector<ir::Expr> kept_;            // keeps the nodes of the maps alive
  std::array<std::optional<Ref>, 4> indices_, plain_indices_;
};

}  // namespace fovea::cudnn
