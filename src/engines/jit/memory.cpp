#include "engines/jit/memory.h"

#include <algorithm>

#include "attention/extents.h"
#include "engines/jit/backward_kernels.h"
#include "engines/jit/captured_run.h"
#include "engines/jit/device/distance_layout.h"
#include "engines/jit/device/shared_layout.h"
#include "engines/jit/hopper.h"
#include "engines/jit/hopper_backward.h"
#include "engines/jit/splits.h"

namespace fovea::jit {

Memory::Memory(Arena& arena, const Prepared& prepared, const Sizes& sizes) {
  const Problem& baked = prepared.baked;
  const std::int64_t rows = row_count(sizes, baked.layout);
  const PreparedKernel* const mapped = prepared.mapped_kernel();
  if (baked.direction == Direction::Backward) {
    delta = arena.take<float>(rows).data();
    if (baked.want_q && (mapped != nullptr || !baked.deterministic)) {
      grad_q_sum = arena.take<float>(grad_q_sum_floats(prepared, sizes)).data();
    }
    if (mapped != nullptr) {
      row_terms = arena.take<float>(row_term_floats(prepared, sizes)).data();
      key_nans = arena.take<unsigned>(key_nan_words(sizes, mapped->shape)).data();
      tile_counter = arena.take<unsigned>(1).data();
      const std::int64_t words = baked.deterministic ? query_turn_words(prepared, sizes) : 0;
      if (words > 0) query_turns = arena.take<unsigned>(words).data();
    }
    captured = arena.take<std::byte>(captured_sum_bytes(prepared, sizes)).data();
  } else {
    if (baked.max_logit && !baked.row_max) row_max = arena.take<float>(rows).data();
    split_keys = jit::split_keys(baked, sizes, prepared.multiprocessors);
    const std::int64_t partial =
        split_slots(baked, sizes, split_keys) * sizes.hkv * device::decode_group_rows;
    if (split_keys > 0) {
      partial_o = arena.take<float>(partial, sizes.dv).data();
      partial_rows = arena.take<double>(partial, 2).data();
    }
  }
  for (std::size_t i = 0; i < std::min(prepared.formula.summaries.size(), most_summaries); ++i) {
    const Summary& summary = prepared.formula.summaries[i];
    const ResolvedExtents extents =
        resolved_extents(baked.program.tensors()[summary.slot], sizes, baked.h_global);
    summaries[i] = arena.take<std::byte>(summary_bytes(summary, extents)).data();
  }
  if (mapped != nullptr && baked.direction == Direction::Forward) {
    taken_words = 1 + query_tiles(sizes, mapped->shape);
    taken_tiles = arena.take<unsigned>(taken_words).data();
  }
  if (mapped != nullptr && prepared.formula.diagonal_words > 0) {
    const std::int64_t words =
        prepared.formula.diagonal_words *
        device::distance_stride(static_cast<int>(sizes.sq), static_cast<int>(sizes.skv));
    distances = arena.take<unsigned>(sizes.b * sizes.h, words).data();
  }
}

}  // namespace fovea::jit
