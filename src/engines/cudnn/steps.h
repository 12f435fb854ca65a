// Makes the steps of a graph: numbers, positions and values of a call as operands, in the forms
// that cuDNN takes. The first operand of every step has the shape of the score. Integers are i32 as
// long as they are only added and compared; beyond that they become f32, if ir/range proves that
// they stay below 2^24 and so are exact.
#pragma once

#include <map>
#include <string>
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

  // The operation that makes a decision inexact, in words ("logarithm"); "" if none does.
  const std::string& inexact() const { return inexact_; }
  // Whether a decision depends on this node: its value must be that of f32, operation by operation.
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

class GraphSteps {
 protected:
  GraphSteps(const Problem& problem, std::int64_t batch, const Workarounds& avoid,
             Lowered& lowered);
  ~GraphSteps() = default;

  Ref step(Mode mode, std::initializer_list<Ref> operands, Type type = Type::F32);
  Ref number(float value);
  Ref whole(std::int32_t value);
  Ref as_float(Ref ref);
  Ref tensor(const GraphTensor& tensor);  // the one of this role, slot and view, added if it is new
  Ref full(Ref ref, bool as_real = false);  // in the shape of the score
  Type type_of(const Ref& ref) const;

  Ref index(int axis);        // a position as formulas see it
  Ref plain_index(int axis);  // counted from 0 in the tensors of this call
  Ref size(ir::Op op);
  Ref per_sequence(TensorRole role);
  Ref per_call(TensorRole role, std::uint32_t slot, Type type);
  Ref uniform(const ir::Expr& e);  // of scalars alone
  bool is_uniform(const ir::Expr& e) const;
  void spread_over_rows(GraphTensor& tensor) const;

  ir::IntInterval range(const ir::Expr& e) const;
  void need_exact(const ir::Expr& e);
  void refuse(const char* code, const std::string& limit, const std::string& got,
              const std::string& advice);

  const Problem& problem_;
  std::int64_t batch_;
  Workarounds avoid_;
  Lowered& lowered_;
  GraphSpec& spec_;
  Decisions decisions_;
  ir::Box box_;
  std::vector<ir::Expr> kept_;  // keeps the nodes of maps alive

 private:
  std::map<const ir::Node*, Ref> uniforms_;
  std::optional<Ref> zero_, whole_zero_;  // full
  std::array<std::optional<Ref>, 4> indices_, plain_indices_;
};

}  // namespace fovea::cudnn
