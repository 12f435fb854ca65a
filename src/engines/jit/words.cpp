#include "engines/jit/words.h"

#include <algorithm>

#include "ir/topology.h"

namespace fovea::jit {
namespace {

// Hands out words one after the other.
int take(WordLayout& layout, int words) {
  const int first = layout.count;
  layout.count += words;
  return first;
}

int tensor_words(const ir::TensorDecl& tensor) {
  return 1 + 2 * static_cast<int>(tensor.extents.size());
}

}  // namespace

std::int64_t summary_bytes(const Summary& summary, std::span<const std::int64_t> extents) {
  std::int64_t blocks = 1;
  for (std::size_t i = 0; i < extents.size(); ++i) {
    const bool cut = i == static_cast<std::size_t>(summary.index);
    blocks *= cut ? (extents[i] + summary_block - 1) / summary_block : extents[i];
  }
  return blocks * 2 * std::int64_t{sizeof(std::int32_t)};
}

WordLayout lay_out_words(const Problem& baked, std::span<const ir::Expr> roots) {
  const auto& tensors = baked.program.tensors();
  const auto& scalars = baked.program.scalars();
  WordLayout layout;
  layout.tensors.assign(tensors.size(), -1);
  layout.tensor_gradients.assign(tensors.size(), -1);
  layout.scalars.assign(scalars.size(), -1);
  layout.scalar_gradients.assign(scalars.size(), -1);
  std::vector<bool> loaded(tensors.size()), read(scalars.size());
  for (const ir::Node* node : ir::operands_first(roots).nodes) {
    if (info(node->op()).form == ir::Form::Load) loaded[node->slot()] = true;
    if (info(node->op()).form == ir::Form::Scalar) read[node->slot()] = true;
  }
  for (std::size_t slot = 0; slot < tensors.size(); ++slot) {
    if (loaded[slot]) layout.tensors[slot] = take(layout, tensor_words(tensors[slot]));
  }
  for (std::size_t slot = 0; slot < scalars.size(); ++slot) {
    if (read[slot]) layout.scalars[slot] = take(layout, 2);
  }
  for (std::size_t slot = 0; slot < baked.want_tensors.size(); ++slot) {
    if (baked.want_tensors[slot]) {
      layout.tensor_gradients[slot] = take(layout, tensor_words(tensors[slot]));
    }
  }
  for (std::size_t slot = 0; slot < baked.want_scalars.size(); ++slot) {
    if (baked.want_scalars[slot]) layout.scalar_gradients[slot] = take(layout, 1);
  }
  return layout;
}

}  // namespace fovea::jit
