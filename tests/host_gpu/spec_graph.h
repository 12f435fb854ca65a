// A cuDNN graph run on the host, from its GraphSpec alone: what cuDNN is asked for, in textbook
// loops. Reads and writes memory by the strides of the GraphSpec, as cuDNN does, and leaves alone
// what cuDNN was seen to leave alone: empty sequences, and rows beyond the end of one.
#pragma once

#include <vector>

#include "engines/cudnn/graph.h"

namespace fovea::cudnn::on_host {

class SpecGraph : public Graph {
 public:
  explicit SpecGraph(GraphSpec spec);
  std::size_t workspace_bytes() const override { return 64; }
  void execute(void* handle, std::span<void*> pointers, void* workspace) const override;

 private:
  GraphSpec spec_;
  std::vector<std::size_t> by_uid_;  // places in spec_.tensors, as pointers come
};

}  // namespace fovea::cudnn::on_host
