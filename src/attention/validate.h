// The rules about arguments. Errors name the argument, its value and the rule. Problems are checked
// when they are made, Bindings before a plan runs them; engines check nothing of this again.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "attention/bindings.h"
#include "attention/problem.h"

namespace fovea {

class Plan;

// Throws InvalidArgument.
void validate(const Problem& problem);
// The same for a valid Problem with other sizes, and dense tensors.
void validate(const Problem& problem, const Sizes& sizes);

// The rules of a valid Problem's calls, with all that follows from it alone derived once.
class CallRules {
 public:
  explicit CallRules(const Problem& problem);  // which must outlive it

  // Pointers, sizes, strides, lengths and starts (host values only), overlap of outputs, workspace.
  // `device_memory`: pointers are the device's and not looked behind. Throws InvalidArgument.
  void check(const Bindings& bindings, const Plan& plan, bool device_memory) const;

  const Problem& problem() const { return problem_; }

  // One of the eight tensors in calls of the Problem's own sizes, in the order of named_tensors().
  struct OwnTensor {
    bool takes_part = false, written = false;
    std::int64_t element_bytes = 0;
    Strides strides;           // given with the Problem, or dense
    std::uintptr_t bytes = 0;  // by those strides, from the first to behind the last; 0: empty
  };
  const OwnTensor& tensor(std::size_t i) const { return tensors_[i]; }

  // An index of a captured tensor that is a position itself: its extent must cover all of them.
  struct ExactIndex {
    std::uint32_t slot = 0, index = 0;
    bool is_k = false;
  };
  const std::vector<ExactIndex>& exact_indices() const { return exact_indices_; }

 private:
  void find_exact_indices();

  const Problem& problem_;
  std::array<OwnTensor, 8> tensors_;
  std::vector<ExactIndex> exact_indices_;
};

}  // namespace fovea
