#include "engines/cpu/backward.h"

#include <algorithm>

namespace fovea::cpu {
namespace {

std::int64_t group_heads(const Sizes& sizes) { return sizes.hkv == 0 ? 0 : sizes.h / sizes.hkv; }

std::span<std::byte> take_bytes(Arena& arena, std::size_t count, std::int64_t times = 1) {
  return arena.take<std::byte>(static_cast<std::int64_t>(count), times);
}

}  // namespace

KeySums::KeySums(Arena& arena, const Prepared& plan, const Sizes& sizes) {
  const std::int64_t keys = chunk_tiles(sizes.skv) * tile_columns;
  const auto columns = [&](bool wanted, std::int64_t count) {
    return wanted ? round_up(count, plan.kernels.panel_width) : 0;
  };
  const std::int64_t of_k = columns(plan.baked.want_k, sizes.d);
  const std::int64_t of_v = columns(plan.baked.want_v, sizes.dv);
  all = arena.take<float>(keys, of_k + of_v);
  if (of_k > 0) k = {all.data(), keys};
  if (of_v > 0) v = {all.data() + keys * of_k, keys};
}

BackwardWorker::BackwardWorker(Arena& arena, const Prepared& plan, const Sizes& sizes)
    : scores(take_panels(arena, plan.kernels, block_rows, tile_columns)),
      grad_p(take_panels(arena, plan.kernels, block_rows, tile_columns)),
      sums(arena, plan, sizes),
      part(arena, plan, sizes),
      shifts(arena, plan),
      lse(arena.take<double>(block_rows)) {
  const KernelTable& kernels = plan.kernels;
  o = take_panels(arena, kernels, block_rows, sizes.dv);
  if (plan.pairs) {
    q = take_panels(arena, kernels, block_rows, sizes.d);
    grad_o = take_panels(arena, kernels, block_rows, sizes.dv);
    p_rows = take_panels(arena, kernels, block_rows / 2, tile_columns);
    grad_scores_rows = take_panels(arena, kernels, block_rows / 2, tile_columns);
    grad_scores_columns = take_panels(arena, kernels, block_rows, tile_columns / 2);
  }
  const std::int64_t strip = kernels.strip_rows * kernels.panel_width;
  score_strip = arena.take<float>(strip);
  grad_strip = arena.take<float>(strip);
  live = arena.take<std::uint64_t>(kernels.strip_rows);
  keep = {arena.take<std::uint64_t>(block_rows, keep_words)};
  drop = {arena.take<std::uint64_t>(block_rows, keep_words)};
  if (plan.mask) mask_state = take_bytes(arena, plan.mask->state_bytes(block_rows, tile_columns));
  mod_state = take_bytes(arena, plan.mod_state_bytes());
  const std::size_t terms = plan.captured.row_terms();
  if (terms != 0) row_sums = BalanceSums(arena, terms, block_rows, kernels.lanes);
}

BackwardMemory::BackwardMemory(Arena& arena, const Prepared& plan, const Sizes& sizes)
    : scalars(arena.take<ir::ScalarValue>(
          static_cast<std::int64_t>(plan.baked.program.scalars().size()))),
      keys(arena, plan, sizes, /*packed=*/true),
      chunks(chunk_count(sizes.skv)),
      counts{sizes.b, sizes.hkv, chunks} {
  queries.blocks = block_count(sizes.sq, group_heads(sizes));
  const std::int64_t blocks = keys.heads * queries.blocks, rows = blocks * block_rows;
  queries.q = take_panels(arena, plan.kernels, rows, plan.cells(sizes.d));
  queries.grad_o = take_panels(arena, plan.kernels, rows, plan.cells(sizes.dv));
  if (plan.pairs) {
    queries.q_rows = take_panels(arena, plan.kernels, rows / 2, sizes.d);
    queries.grad_o_rows = take_panels(arena, plan.kernels, rows / 2, sizes.dv);
  }
  queries.lse = arena.take<double>(rows);
  queries.row_term = arena.take<float>(rows);
  queries.facts = arena.take<QueryBlocks::Facts>(blocks);
  if (plan.baked.want_q) {  // also without keys: it is where zeros are written from
    const std::int64_t copies = std::max<std::int64_t>(1, chunks);
    grad_q = take_panels(arena, plan.kernels, rows * copies, sizes.d);
    has_grad_q = arena.take<bool>(blocks, copies);
  }
  if (plan.baked.want_sink) {
    sink_rows = arena.take<double>(rows);
    sink = arena.take<double>(sizes.h);
  }
  if (plan.captured.any()) {
    captured = take_bytes(arena, plan.captured.workspace_bytes(sizes, counts));
    const auto terms = static_cast<std::int64_t>(plan.captured.row_terms());
    if (terms != 0) row_totals = arena.take<RowTotals>(rows, chunks);
    row_terms = arena.take<RowTerm>(rows * chunks, terms);
  }
  // Chunks are shared if there are few of them for so many workers. Lanes of captured gradients
  // have an order of their own.
  const std::int64_t chunks_of_wave = keys.heads * chunks;
  if (!plan.captured.any() && chunks_of_wave <= 2 * plan.workers && queries.blocks >= row_parts) {
    Arena measure("cpu", nullptr);
    KeySums(measure, plan, sizes);
    part_bytes = measure.used();
    parts_done = arena.take<std::uint32_t>(chunks_of_wave);
    parts = take_bytes(arena, part_bytes, chunks_of_wave * row_parts);
  }
  Arena measure("cpu", nullptr);
  BackwardWorker(measure, plan, sizes);
  worker_bytes = measure.used();
  workers = take_bytes(arena, worker_bytes, plan.workers);
}

Panels block_of(const Panels& all, const KernelTable& kernels, std::int64_t number,
                std::int64_t columns, std::int64_t rows) {
  if (all.data == nullptr) return {};
  return {all.data + number * rows * round_up(columns, kernels.panel_width), rows};
}

KeySums part_of(const Call& call, const BackwardMemory& memory, std::int64_t chunk, int part) {
  const auto at = static_cast<std::size_t>(chunk * row_parts + part);
  Arena arena("cpu", memory.parts.data() + at * memory.part_bytes);
  return {arena, call.plan, call.sizes};
}

BackwardWorker worker_of(const Call& call, const BackwardMemory& memory, int worker) {
  Arena arena("cpu",
              memory.workers.data() + static_cast<std::size_t>(worker) * memory.worker_bytes);
  return {arena, call.plan, call.sizes};
}

}  // namespace fovea::cpu
