#include "attention/extents.h"
#include "engines/cpu/forward.h"

namespace fovea::cpu {

ForwardWorker::ForwardWorker(Arena& arena, const Prepared& plan, const Sizes& sizes)
    : q(take_panels(arena, plan.kernels, block_rows, plan.cells(sizes.d))),
      scores(take_panels(arena, plan.kernels, block_rows, tile_columns)),
      o(take_panels(arena, plan.kernels, block_rows, sizes.dv)),
      row_max(arena.take<float>(block_rows)),
      reference(arena.take<float>(block_rows)),
      row_sum(arena.take<float>(block_rows)),
      rescale(arena.take<float>(block_rows)),
      shifted_max(arena.take<double>(block_rows)),
      shifted_reference(arena.take<double>(block_rows)),
      keep{arena.take<std::uint64_t>(block_rows, keep_words)},
      shifts(arena, plan) {
  const auto bytes = [&](std::size_t count) {
    return arena.take<std::byte>(static_cast<std::int64_t>(count));
  };
  if (plan.pairs) p_pairs = take_panels(arena, plan.kernels, block_rows, tile_columns / 2);
  if (plan.mask) mask_state = bytes(plan.mask->state_bytes(block_rows, tile_columns));
  mod_state = bytes(plan.mod_state_bytes());
  own_tile = KeyTiles(arena, plan, sizes, 1);
}

namespace {

// Whether some sequence may have fewer rows than the longest.
bool lengths_vary(const Problem& baked) {
  return baked.has_q_lengths || baked.layout == Layout::Thd;
}

Parts take_parts(Arena& arena, const Prepared& plan, const Sizes& sizes, std::int64_t wave) {
  const std::int64_t heads = sizes.hkv == 0 ? 0 : sizes.h / sizes.hkv;
  Parts parts;
  if (sizes.sq > block_rows && !lengths_vary(plan.baked)) return parts;
  const std::int64_t longest = std::min<std::int64_t>(sizes.sq, block_rows);
  const std::int64_t shortest = lengths_vary(plan.baked) ? 1 : longest;
  parts.splits = splits_at_most(shortest, sizes.skv);
  if (parts.splits == 1) return parts;
  parts.rows = heads * longest;
  const std::int64_t rows = wave * parts.splits * parts.rows;
  parts.row_max = arena.take<double>(rows);
  parts.reference = arena.take<double>(rows);
  parts.row_sum = arena.take<float>(rows);
  parts.shift = arena.take<float>(rows);
  parts.o = take_panels(arena, plan.kernels, rows, sizes.dv);
  parts.done = arena.take<std::uint32_t>(wave);
  return parts;
}

// If no head has more than one block of queries, workers pack its keys as they go.
bool shares_keys(const Sizes& sizes) {
  return block_count(sizes.sq, sizes.hkv == 0 ? 0 : sizes.h / sizes.hkv) > 1;
}

}  // namespace

ForwardMemory::ForwardMemory(Arena& arena, const Prepared& plan, const Sizes& sizes)
    : scalars(arena.take<ir::ScalarValue>(
          static_cast<std::int64_t>(plan.baked.program.scalars().size()))),
      keys(arena, plan, sizes, shares_keys(sizes)),
      parts(take_parts(arena, plan, sizes, keys.heads)) {
  if (plan.baked.max_logit && !plan.baked.row_max) {
    row_max = arena.take<float>(row_count(sizes, plan.baked.layout));
  }
  Arena measure("cpu", nullptr);
  ForwardWorker(measure, plan, sizes);
  worker_bytes = measure.used();
  workers = arena.take<std::byte>(static_cast<std::int64_t>(worker_bytes), plan.workers);
}

}  // namespace fovea::cpu
