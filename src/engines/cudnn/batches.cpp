// How a batch is cut into graphs that other batches share.
#include <algorithm>
#include <bit>

#include "engines/cudnn/judge.h"

namespace fovea::cudnn {

std::vector<std::int64_t> batches(const Problem& baked) {
  const bool sums_over_batch =
      baked.direction == Direction::Backward &&
      (baked.want_sink || std::ranges::count(baked.want_tensors, true) != 0);
  // cuDNN draws dropout by the place in the batch.
  if (sums_over_batch || baked.dropout > 0) return {baked.sizes.b};
  // Packed, further sequences may be empty and cost next to nothing: one graph of the next power of
  // two does it. Not where something is read for each sequence, which would be read beyond its end.
  const bool bound_per_sequence =
      !baked.program.tensors().empty() || baked.has_q_offsets || baked.has_k_offsets;
  if (baked.layout == Layout::Thd && !bound_per_sequence) {
    return {static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(baked.sizes.b)))};
  }
  std::vector<std::int64_t> out;
  for (std::int64_t size = std::int64_t{1} << 40; size > 0; size /= 2) {
    if ((baked.sizes.b & size) != 0) out.push_back(size);
  }
  return out.empty() ? std::vector<std::int64_t>{baked.sizes.b} : out;
}

}  // namespace fovea::cudnn
