#include "engines/jit/memory.h"

#include "attention/extents.h"

namespace fovea::jit {

Memory::Memory(Arena& arena, const Prepared& prepared, const Sizes& sizes) {
  const Problem& baked = prepared.baked;
  const std::int64_t rows = row_count(sizes, baked.layout);
  if (baked.direction == Direction::Backward) {
    delta = arena.take<float>(rows).data();
    if (baked.want_q && !baked.deterministic) {
      grad_q_sum = arena.take<float>(rows, baked.sizes.d).data();
    }
  } else {
    if (baked.max_logit && !baked.row_max) row_max = arena.take<float>(rows).data();
    const int splits = most_splits(sizes, baked.layout, prepared.multiprocessors);
    if (splits > 1) {
      partial_o = arena.take<float>(splits * rows, sizes.dv).data();
      partial_lse = arena.take<float>(splits * rows).data();
    }
  }
  for (std::size_t i = 0; i < prepared.formula.summaries.size(); ++i) {
    const Summary& summary = prepared.formula.summaries[i];
    const ResolvedExtents extents =
        resolved_extents(baked.program.tensors()[summary.slot], sizes, baked.h_global);
    summaries[i] = arena.take<std::byte>(summary_bytes(summary, extents)).data();
  }
}

}  // namespace fovea::jit
