// Gradients of captured tensors and scalars. Each wanted one is a sum over scores; who sums what is
// fixed by shapes alone, so that the result is the same for any number of threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "attention/bindings.h"
#include "attention/problem.h"
#include "engines/cpu/captured/captured_lanes.h"
#include "engines/cpu/captured/captured_target.h"
#include "engines/cpu/captured/row_balance.h"
#include "engines/cpu/strips/strip.h"
#include "ir/diff.h"
#include "ir/expr.h"

namespace fovea::cpu {

// What the Problem wants of its Program's derivative, made ready at plan time. Immutable.
class CapturedGradients {
 public:
  explicit CapturedGradients(const Problem& baked);  // nothing in a forward

  bool any() const { return !tensors_.empty() || !scalars_.empty(); }
  // Gradients and index expressions: roots of the strip program's second phase, from number
  // `first_root` on. May be empty although gradients are wanted: zeros are written then.
  const std::vector<ir::Expr>& roots() const { return roots_; }

  // How many gradients have elements that whole rows share: the terms of BalanceSums.
  std::size_t row_terms() const { return row_terms_.size(); }

  std::size_t workspace_bytes(const Sizes& sizes,
                              const ChunkCounts& counts) const;  // aligned to 64

 private:
  friend class CapturedRun;
  // One load of a wanted tensor: its gradient is roots_[root], its indices follow.
  struct WantedLoad {
    ir::Expr load;
    std::size_t tensor, root;
    std::vector<std::optional<std::int32_t>> slopes;  // of each index
  };
  struct WantedScalar {
    std::uint32_t slot;
    std::optional<std::size_t> root;  // none: no formula uses it
  };
  // No index changes along k; roots_[weight] is the derivative that multiplies dS.
  struct RowGradient {
    bool is_scalar;
    std::size_t number;  // in loads_ or scalars_
    std::size_t weight;
  };
  // Where everything of a call's sums lies.
  struct SumLayout {
    LanePlan plan;
    std::span<CapturedTarget> targets;  // of each wanted tensor
    double* sums = nullptr;             // [lanes][lane_step]: private copies, then scalars
    std::int64_t lane_step = 0;
    std::int64_t scalar_sums = 0;  // where the scalars of a lane begin
    std::size_t bytes = 0;
  };
  void add_row_terms(const ir::Expr& mod);
  void add_load(std::size_t tensor, const ir::LoadGradient& of);
  SumLayout lay_out(const Sizes& sizes, const ChunkCounts& counts, void* memory) const;

  Problem baked_;
  std::vector<ir::Expr> roots_;
  std::vector<CapturedTensor> tensors_;  // wanted ones
  std::vector<WantedLoad> loads_;
  std::vector<WantedScalar> scalars_;
  std::vector<RowGradient> row_terms_;
};

}  // namespace fovea::cpu
