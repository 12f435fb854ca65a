// Gradients of captured tensors: sums in double, dense over each tensor's extents, one tensor after
// the other; written to where the caller wants them at the end of a backward.
#pragma once

#include <cstdint>
#include <span>

#include "attention/bindings.h"
#include "engines/reference/formulas.h"

namespace fovea::reference {

// Elements of all captured tensors whose gradient is wanted, by their declared extents.
std::int64_t captured_elements(const Problem& baked, const Sizes& sizes);

class CapturedSums {
 public:
  // Throws InvalidArgument if a wanted tensor is bound larger than it was declared: the workspace
  // was measured by the declaration.
  CapturedSums(const Problem& baked, const Bindings& bindings, std::span<double> sums);

  void add(const LoadTerm& term);  // the index is clamped as the load's own
  void write() const;

 private:
  const Bindings& bindings_;
  std::array<std::span<double>, ir::limits::captured> sums_;  // by slot; empty: not wanted
};

}  // namespace fovea::reference
