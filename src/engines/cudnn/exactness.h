// Whether what a program decides (masks, selects, whole numbers, floor) comes out the same in
// cuDNN's arithmetic as in everyone else's.
#pragma once

#include <string>
#include <unordered_set>

#include "ir/program.h"

namespace fovea::cudnn {

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

}  // namespace fovea::cudnn
