#include "engines/cpu/backward.h"

#include <algorithm>
#include <optional>

#include "engines/cpu/gaps.h"
#include "engines/cpu/key_chunk.h"
#include "engines/cpu/queries.h"

namespace fovea::cpu {

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
      has_sums(arena.take<bool>(chunk_tiles(sizes.skv), tile_columns / plan.kernels.panel_width)),
      formulas(arena, plan),
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
  drop = {arena.take<std::uint64_t>(block_rows, keep_words)};
  const std::size_t terms = plan.captured.row_terms();
  if (terms != 0) row_sums = BalanceSums(arena, terms, block_rows, kernels.lanes);
}

BackwardMemory::BackwardMemory(Arena& arena, const Prepared& plan, const Sizes& sizes)
    : scalars(arena.take<ir::ScalarValue>(
          static_cast<std::int64_t>(plan.baked.program.scalars().size()))),
      keys(arena, plan, sizes, /*packed=*/true),
      chunks(chunk_count(sizes.skv)),
      counts{sizes.b, sizes.hkv, chunks} {
  queries.blocks = block_count(sizes.sq, heads_per_group(sizes));
  const std::int64_t blocks = keys.heads * queries.blocks, rows = blocks * block_rows;
  queries.q = take_panels(arena, plan.kernels, rows, plan.cells(sizes.d));
  queries.grad_o = take_panels(arena, plan.kernels, rows, plan.cells(sizes.dv));
  if (plan.pairs) {
    queries.q_rows = take_panels(arena, plan.kernels, rows / 2, sizes.d);
    queries.grad_o_rows = take_panels(arena, plan.kernels, rows / 2, sizes.dv);
  }
  queries.lse = arena.take<double>(rows);
  queries.row_term = arena.take<float>(rows);
  queries.flags = arena.take<QueryBlocks::BlockFlags>(blocks);
  queries.row_work = arena.take<std::uint32_t>(blocks, most_chunks);
  if (plan.baked.want_q) {  // also if there are no keys: zeros are then written from it
    const std::int64_t copies = std::max<std::int64_t>(1, chunks);
    grad_q = take_panels(arena, plan.kernels, rows * copies, sizes.d);
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
  // Several workers share a chunk if there are few chunks for so many workers, but not with
  // captured gradients, whose lanes fix the order of chunks.
  const std::int64_t chunks_of_wave = keys.heads * chunks;
  if (!plan.captured.any() && chunks_of_wave <= 2 * plan.workers && queries.blocks >= row_parts) {
    parts_done = arena.take<std::uint32_t>(chunks_of_wave);
    parts = Copies<KeySums>(arena, plan, sizes, chunks_of_wave * row_parts);
  }
  workers = Copies<BackwardWorker>(arena, plan, sizes, plan.workers);
}

Panels block_of(const Panels& all, const KernelTable& kernels, std::int64_t number,
                std::int64_t columns, std::int64_t rows) {
  if (all.data == nullptr) return {};
  return {all.data + number * rows * round_up(columns, kernels.panel_width), rows};
}

namespace {

constexpr double flops_per_number = 20;  // this many take as long as reading or writing a number

double wave_flops(const Call& call, const Wave& wave) {
  return 5 * static_cast<double>(wave.count) * static_cast<double>(call.heads_per_group()) *
         static_cast<double>(call.sizes.sq) * static_cast<double>(call.sizes.skv) *
         static_cast<double>(call.sizes.d + call.sizes.dv);
}

// Packs the wave's keys and reads its queries, in one region of tasks.
void read_wave(const Call& call, const BackwardMemory& memory, const Wave& wave) {
  const WaveSchedule all_shared({wave.count, 1, 1, false}, 1, 1);
  const KeyPacking packing(call, memory.keys, wave, all_shared, /*least_blocks=*/1);
  const std::int64_t blocks = wave.count * memory.queries.blocks;
  call.parallel(blocks + packing.tasks(), packing.flops() + flops_of_queries(call, wave),
                [&](std::int64_t task, int worker) {
                  if (task < blocks) return read_query_block(call, memory, wave, task, worker);
                  packing.run(task - blocks, worker);
                });
  if (call.baked.want_sink) add_sinks(call, memory, wave);
}

// Chunks whose captured gradients share a lane run one after the other, in order.
void run_lanes(const Call& call, const BackwardMemory& memory, const Wave& wave,
               const CapturedRun& captured) {
  call.parallel(captured.lanes(), wave_flops(call, wave), [&](std::int64_t lane, int worker) {
    KeyChunkBackward chunk_backward(call, memory, worker);
    for (std::int64_t i = 0; i < wave.count; ++i) {
      const std::int64_t head = wave.first + i;
      const std::int64_t b = head / call.sizes.hkv, g = head % call.sizes.hkv;
      for (std::int64_t chunk = 0; chunk < memory.chunks; ++chunk) {
        if (captured.lane_of(b, g, chunk) == lane)
          chunk_backward.run(i, head, chunk, &captured, lane);
      }
    }
  });
}

// Of the heads that workers share the first chunks come first: under a causal mask most rows see
// those.
void run_chunks(const Call& call, const BackwardMemory& memory, const Wave& wave) {
  const int most_cuts = memory.parts_done.empty() ? 1 : row_parts;
  std::ranges::fill(memory.parts_done, 0u);
  const WaveSchedule schedule(
      {wave.count, memory.chunks, most_cuts, true, call.plan.tiles.hides_nothing()}, call.workers,
      call.executor.nodes());
  call.parallel(schedule.homes(), wave_flops(call, wave), [&](std::int64_t number, int worker) {
    const WaveSchedule::Task task = schedule.find(number);
    KeyChunkBackward chunk_backward(call, memory, worker);
    if (task.cuts > 1) {
      const int size = row_parts / task.cuts, part = task.cut * size;
      chunk_backward.run_parts(task.head, wave.first + task.head, task.piece, part, part + size);
      return;
    }
    const std::int64_t first = task.whole ? 0 : task.piece;
    const std::int64_t last = task.whole ? memory.chunks : task.piece + 1;
    for (std::int64_t chunk = first; chunk < last; ++chunk) {
      chunk_backward.run(task.head, wave.first + task.head, chunk, nullptr, 0);
    }
  });
}

void write_gradients_of_no_sequence(const Call& call) {
  const Sizes& sizes = call.sizes;
  const Problem& baked = call.baked;
  const auto clear = [&](bool of_keys, const ZeroedTensor& gradient) {
    for_gaps(call, of_keys, [&](const RowRange& range) { write_zeros(gradient, range); });
  };
  if (baked.want_q) clear(false, {call.bound.grad_q, baked.grad_q.dtype, sizes.h, sizes.d});
  if (baked.want_k) clear(true, {call.bound.grad_k, baked.grad_k.dtype, sizes.hkv, sizes.d});
  if (baked.want_v) clear(true, {call.bound.grad_v, baked.grad_v.dtype, sizes.hkv, sizes.dv});
}

void write_sinks(const Call& call, const BackwardMemory& memory) {
  for (std::int64_t head = 0; head < call.sizes.h; ++head) {
    static_cast<float*>(call.bound.grad_sink)[head] =
        static_cast<float>(memory.sink[static_cast<std::size_t>(head)]);
  }
}

}  // namespace

void backward(const Call& call, const BackwardMemory& memory) {
  const CapturedGradients& wanted = call.plan.captured;
  std::optional<CapturedRun> captured;
  if (wanted.any()) {
    captured.emplace(wanted, call.bound, memory.counts, memory.captured.data());
    call.parallel(captured->clear_tasks(), flops_per_number * captured->numbers(),
                  [&](std::int64_t task, int) { captured->clear(task); });
  }
  write_gradients_of_no_sequence(call);
  std::ranges::fill(memory.sink, 0.0);
  const std::int64_t heads = call.sizes.b * call.sizes.hkv;
  for (std::int64_t first = 0; first < heads; first += memory.keys.heads) {
    const Wave wave{first, std::min(memory.keys.heads, heads - first)};
    fill_tables(call, memory.keys, wave);
    read_wave(call, memory, wave);
    if (captured) {
      run_lanes(call, memory, wave, *captured);
      balance_rows(call, memory, wave, *captured);
    } else {
      run_chunks(call, memory, wave);
    }
    write_query_gradients(call, memory, wave);
  }
  if (call.baked.want_sink) write_sinks(call, memory);
  if (captured) {
    call.parallel(captured->write_tasks(), flops_per_number * captured->numbers(),
                  [&](std::int64_t task, int) { captured->write(task); });
  }
}

}  // namespace fovea::cpu
