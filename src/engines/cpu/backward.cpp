#include "engines/cpu/backward.h"

#include <algorithm>
#include <optional>

#include "engines/cpu/gaps.h"
#include "engines/cpu/key_chunk.h"

namespace fovea::cpu {
namespace {

constexpr double flops_per_number = 20;  // how many take as long as reading or writing a number

double wave_flops(const Call& call, const Wave& wave) {
  return 5 * static_cast<double>(wave.count) * static_cast<double>(call.heads_per_group()) *
         static_cast<double>(call.sizes.sq) * static_cast<double>(call.sizes.skv) *
         static_cast<double>(call.sizes.d + call.sizes.dv);
}

// Keys and queries, beside one another.
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

// Of heads that are shared the first chunks, which most rows see under a causal mask, come first.
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
  for_gaps(call, /*of_keys=*/false, [&](const RowRange& range) {
    if (!baked.want_q) return;
    write_zeros({call.bound.grad_q, baked.grad_q.dtype, sizes.h, sizes.d}, range);
  });
  for_gaps(call, /*of_keys=*/true, [&](const RowRange& range) {
    if (baked.want_k) {
      write_zeros({call.bound.grad_k, baked.grad_k.dtype, sizes.hkv, sizes.d}, range);
    }
    if (baked.want_v) {
      write_zeros({call.bound.grad_v, baked.grad_v.dtype, sizes.hkv, sizes.dv}, range);
    }
  });
}

void write_sinks(const Call& call, const BackwardMemory& memory) {
  for (std::int64_t head = 0; head < call.sizes.h; ++head) {
    static_cast<float*>(call.bound.grad_sink)[head] =
        static_cast<float>(memory.sink[static_cast<std::size_t>(head)]);
  }
}

}  // namespace

void backward(const Call& call, const BackwardMemory& memory) {
  const Captured& wanted = call.plan.captured;
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
