#include "engines/cpu/forward.h"

#include <algorithm>
#include <atomic>

#include "attention/extents.h"
#include "engines/cpu/block_forward.h"
#include "engines/cpu/rows_out.h"

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
      formulas(arena, plan),
      own_tile(arena, plan, sizes, 1) {
  if (plan.pairs) p_pairs = take_panels(arena, plan.kernels, block_rows, tile_columns / 2);
}

namespace {

// Whether some sequence may have fewer rows than the longest.
bool lengths_vary(const Problem& baked) {
  return baked.has_q_lengths || baked.layout == Layout::Thd;
}

SplitResults take_splits(Arena& arena, const Prepared& plan, const Sizes& sizes,
                         std::int64_t wave) {
  SplitResults out;
  if (sizes.sq > block_rows && !lengths_vary(plan.baked)) return out;
  const std::int64_t longest = std::min<std::int64_t>(sizes.sq, block_rows);
  const std::int64_t shortest = lengths_vary(plan.baked) ? 1 : longest;
  out.count = splits_at_most(shortest, sizes.skv);
  if (out.count == 1) return out;
  out.rows = heads_per_group(sizes) * longest;
  const std::int64_t rows = wave * out.count * out.rows;
  out.sums = arena.take<RowSums>(rows);
  out.o = take_panels(arena, plan.kernels, rows, sizes.dv);
  out.done = arena.take<std::uint32_t>(wave, out.groups() + 1);
  return out;
}

// If heads have one block of queries each, each worker packs keys tile by tile for itself.
bool shares_keys(const Sizes& sizes) { return block_count(sizes.sq, heads_per_group(sizes)) > 1; }

}  // namespace

ForwardMemory::ForwardMemory(Arena& arena, const Prepared& plan, const Sizes& sizes)
    : scalars(arena.take<ir::ScalarValue>(
          static_cast<std::int64_t>(plan.baked.program.scalars().size()))),
      keys(arena, plan, sizes, shares_keys(sizes)),
      splits(take_splits(arena, plan, sizes, keys.heads)) {
  if (plan.baked.max_logit && !plan.baked.row_max) {
    row_max = arena.take<float>(row_count(sizes, plan.baked.layout));
  }
  workers = Copies<ForwardWorker>(arena, plan, sizes, plan.workers);
}

namespace {

// Counts the finished splits of each group, and the merged groups of each head whose keys are
// split. The worker that finishes the last split of a group merges the group, and the worker that
// merges the last group of a head merges those. The order of addition does not depend on which
// workers these are.
class MergeCount {
 public:
  MergeCount(const SplitResults& splits, std::int64_t heads, std::int64_t blocks)
      : done_(splits.done), groups_(splits.groups()), of_group_(blocks * splits_of_piece) {
    if (done_.empty()) return;
    std::ranges::fill(done_.first(static_cast<std::size_t>(heads * (groups_ + 1))), 0u);
  }
  bool ends_group(const SplitGroup& group, int splits) const {
    return add(group, splits) == of_group_;
  }
  bool ends_head(std::int64_t head) const { return add({head, groups_}, 1) == groups_; }

 private:
  std::int64_t add(const SplitGroup& to, int count) const {
    const auto i = static_cast<std::size_t>(to.head_in_wave * (groups_ + 1) + to.number);
    const auto more = static_cast<std::uint32_t>(count);
    const std::atomic_ref<std::uint32_t> done(done_[i]);
    return done.fetch_add(more, std::memory_order_acq_rel) + more;
  }

  std::span<std::uint32_t> done_;
  std::int64_t groups_, of_group_;
};

constexpr double flops_of_packing = 20;  // this many take as long as packing a number

double wave_flops(const Call& call, const Wave& wave, bool read_once) {
  const auto numbers = static_cast<double>(call.sizes.d + call.sizes.dv);
  const double keys = static_cast<double>(wave.count) * static_cast<double>(call.sizes.skv);
  const double rows =
      static_cast<double>(call.heads_per_group()) * static_cast<double>(call.sizes.sq);
  return keys * numbers * (2 * rows + (read_once ? flops_of_packing : 0));
}

// Rows of a block such that few workers wait for others at the end. A row's bits do not depend on
// it as long as no tile is mixed: see BlockForward::run.
int rows_of_block(const Call& call, const Wave& wave) {
  const std::int64_t heads = wave.count * call.heads_per_group();
  if (!call.plan.tiles.hides_nothing() || wave.count >= 2 * call.workers) return block_rows;
  // As the schedule does it: whole rounds of blocks, the rest in slices. What a task costs besides
  // its rows was measured with AVX2: as much as 3 of them.
  constexpr int step = group_rows, least = block_rows / 2, rows_besides = 3;
  const auto time = [&](int rows) {
    const std::int64_t blocks = heads * ceil_div(call.sizes.sq, rows);
    const std::int64_t rounds = blocks / call.workers, rest = blocks % call.workers;
    return most_slices * rounds * (rows + rows_besides) +
           ceil_div(rest * most_slices, call.workers) * (rows + most_slices * rows_besides);
  };
  int best = block_rows;
  for (int rows = block_rows - step; rows >= least; rows -= step) {
    if (time(rows) < time(best)) best = rows;
  }
  return best;
}

// The pieces of a head: its blocks, and of each, if keys are split, groups of splits.
struct Pieces {
  int rows = block_rows;  // of a block
  std::int64_t blocks = 0;
  std::int64_t groups = 1;
  bool split = false;

  std::int64_t count() const { return blocks * groups; }
  int most_cuts() const { return split ? splits_of_piece : blocks > 1 ? most_slices : 1; }

  void run(BlockForward& forward, const Wave& wave, const WaveSchedule::Task& task) const {
    const std::int64_t block = task.piece / groups, group = task.piece % groups;
    if (!split) {
      // The last part has all that is left: a sequence of one block may have more than `rows`.
      const auto begin = [&](int cut) { return rows * cut / task.cuts / group_rows * group_rows; };
      const int first = begin(task.cut);
      const int last = task.cut + 1 == task.cuts ? block_rows : begin(task.cut + 1);
      forward.run(wave, task.head, /*place=*/task.head, {block, 0, first, last, rows});
      return;
    }
    const int size = splits_of_piece / task.cuts, first = task.cut * size;
    for (int part = first; part < first + size; ++part) {
      forward.run(wave, task.head, /*place=*/task.head, {block, group * splits_of_piece + part});
    }
  }
};

void attend_wave(const Call& call, const ForwardMemory& memory, const Wave& wave) {
  Pieces pieces;
  pieces.rows = rows_of_block(call, wave);
  pieces.blocks = block_count(call.sizes.sq, call.heads_per_group(), pieces.rows);
  pieces.groups = memory.splits.groups();
  pieces.split = memory.splits.count > 1;
  fill_tables(call, memory.keys, wave);
  const WaveSchedule schedule({wave.count, pieces.count(), pieces.most_cuts(), !pieces.split,
                               call.plan.tiles.hides_nothing() && !pieces.split},
                              call.workers, call.executor.nodes());
  const KeyPacking packing(call, memory.keys, wave, schedule, /*least_blocks=*/2);
  call.parallel(packing.tasks(), packing.flops(),
                [&](std::int64_t task, int worker) { packing.run(task, worker); });
  const MergeCount merged(memory.splits, wave.count, pieces.blocks);
  call.parallel(schedule.homes(), wave_flops(call, wave, pieces.blocks == 1),
                [&](std::int64_t number, int worker) {
                  const WaveSchedule::Task task = schedule.find(number);
                  BlockForward forward(call, memory, worker);
                  if (task.whole) return forward.run_head(wave, task.head, worker);
                  pieces.run(forward, wave, task);
                  const SplitGroup group{task.head, task.piece % pieces.groups};
                  if (!pieces.split || !merged.ends_group(group, splits_of_piece / task.cuts))
                    return;
                  merge_group(call, memory.splits, wave, group);
                  if (merged.ends_head(task.head)) merge_head(call, memory, wave, task.head);
                });
}

}  // namespace

void forward(const Call& call, const ForwardMemory& memory) {
  write_rows_of_no_sequence(call, memory);
  const std::int64_t heads = call.sizes.b * call.sizes.hkv;
  for (std::int64_t first = 0; first < heads && call.sizes.sq > 0; first += memory.keys.heads) {
    const Wave wave{first, std::min(memory.keys.heads, heads - first)};
    attend_wave(call, memory, wave);
  }
  if (call.baked.max_logit) write_max_logit(call, memory);
}

}  // namespace fovea::cpu
