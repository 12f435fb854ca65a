// Captured tensors, and functions of h, as inputs that broadcast: the strides of a load, which
// strides cuDNN reads correctly, and the one tensor whose gradient cuDNN gives, the bias.
#pragma once

#include <map>
#include <string>

#include "engines/cudnn/steps.h"

namespace fovea::cudnn {

class CapturedViews : public GraphSteps {
 public:
  bool add_bias(const ir::Expr& load);  // false if its indices are not positions themselves
  static int count_loads(const ir::Program& program, std::uint32_t slot);

 protected:
  using GraphSteps::GraphSteps;
  ~CapturedViews() = default;

  Ref load(const ir::Expr& e);
  Ref table(const ir::Expr& e);

 private:
  bool view_of(const ir::Expr& load, View& view, GraphTensor& tensor);
  void refuse_moved_on_device(const std::string& tensor, char position);

  std::map<const ir::Node*, Ref> loads_, tables_;
};

}  // namespace fovea::cudnn
