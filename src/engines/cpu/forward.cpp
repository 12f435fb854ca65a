#include "engines/cpu/forward.h"

#include <algorithm>
#include <limits>

namespace fovea::cpu {
namespace {

constexpr float minus_infinity = -std::numeric_limits<float>::infinity();
constexpr double nothing = -std::numeric_limits<double>::infinity();

// One block of query rows on one worker.
class BlockForward {
 public:
  BlockForward(const Call& call, const ForwardMemory& memory, int worker)
      : call_(call),
        kernels_(call.kernels),
        memory_(memory),
        arena_("cpu",
               memory.workers.data() + static_cast<std::size_t>(worker) * memory.worker_bytes),
        mine_(arena_, call.plan, call.sizes),
        dropout_(call.bound),
        walk_(call.plan.tiles, memory.keys.walk(worker)),
        mod_(mine_.shifts, mine_.mod_state) {
    if (call.plan.mask) mask_.emplace(*call.plan.mask, mine_.mask_state.data());
  }

  // `place`: of the head's keys in WaveKeys.
  void run(const Wave& wave, std::int64_t head_in_wave, std::int64_t place, std::int64_t index,
           std::int64_t split);
  // All blocks of a head whose keys nobody has packed: they go to the place of this worker.
  void run_head(const Wave& wave, std::int64_t head_in_wave, int worker);

 private:
  void start();
  void attend(const Tile& tile);
  void attend(const Part& part, const KeyTile& keys, bool masked);
  Into into_o(bool whole);
  void drop(const Part& part);
  KeyTile keys_of(std::int64_t tile);
  RowSums sums_of(std::size_t row) const;
  void finish();
  void keep_part(std::int64_t split);

  const Call& call_;
  const KernelTable& kernels_;
  const ForwardMemory& memory_;
  Arena arena_;
  ForwardWorker mine_;
  Dropout dropout_;
  TileWalk walk_;
  std::optional<BlockProgram> mask_;
  BlockMod mod_;

  Sequence sequence_;
  Block block_;
  std::int64_t head_in_wave_ = 0, place_ = 0, group_ = 0, first_head_ = 0;
  bool read_once_ = false;
  bool has_o_ = false;  // false: mine_.o holds nothing yet
  std::int64_t tile_ = 0;
  KeyTile fetch_;  // the tile that comes next
};

void BlockForward::run_head(const Wave& wave, std::int64_t head_in_wave, int worker) {
  const std::int64_t b = (wave.first + head_in_wave) / call_.sizes.hkv;
  const Sequence sequence = call_.geometry.sequence(b);
  const std::int64_t blocks = block_count(sequence.q_length, call_.heads_per_group());
  if (blocks > 1) {
    const std::int64_t tiles = tiles_of(sequence.k_length);
    pack_tiles_of_head(call_, memory_.keys, wave, {head_in_wave, worker, 0, tiles}, worker);
  }
  for (std::int64_t index = 0; index < blocks; ++index) run(wave, head_in_wave, worker, index, 0);
}

void BlockForward::run(const Wave& wave, std::int64_t head_in_wave, std::int64_t place,
                       std::int64_t index, std::int64_t split) {
  const std::int64_t head = wave.first + head_in_wave;
  sequence_ = call_.geometry.sequence(head / call_.sizes.hkv);
  group_ = head % call_.sizes.hkv;
  head_in_wave_ = head_in_wave;
  place_ = place;
  const std::int64_t heads = call_.heads_per_group();
  const std::int64_t splits = split_count(sequence_.q_length, sequence_.k_length);
  const std::int64_t blocks = block_count(sequence_.q_length, heads);
  if (index >= blocks || split >= splits) return;
  read_once_ = blocks == 1;
  block_ = find_block(sequence_.q_length, heads, index);
  first_head_ = group_ * heads + block_.head;
  start();

  RowBlock rows = rows_seen(call_, sequence_, first_head_, block_);
  if (splits > 1) {
    constexpr int tiles_of_part = split_keys / tile_columns;
    rows.first_tile = static_cast<int>(split) * tiles_of_part;
    rows.last_tile = std::min(rows.last_tile, rows.first_tile + tiles_of_part);
  }
  walk_.start(call_.keys(sequence_, group_), memory_.keys.table(head_in_wave), rows);
  Tile ahead;
  bool more = walk_.next(ahead);
  while (more) {
    const Tile tile = ahead;
    more = walk_.next(ahead);
    fetch_ =
        more && !read_once_ ? memory_.keys.find(call_, sequence_, place_, ahead.number) : KeyTile{};
    attend(tile);
  }
  if (!has_o_) into_o(/*whole=*/false);
  if (splits == 1) {
    finish();
  } else {
    keep_part(split);
  }
}

void BlockForward::start() {
  const auto d = static_cast<int>(call_.sizes.d);
  for (int i = 0; i < block_.heads; ++i) {
    const Strided from = call_.rows(call_.bound.q, call_.baked.q, call_.batch(sequence_),
                                    first_head_ + i, sequence_.q_first + block_.position);
    const Panels to = from_row(mine_.q, i * block_.rows, kernels_.panel_width);
    if (call_.plan.pairs) {
      kernels_.pairs->pack(from, block_.rows, d, to, block_.rows);
    } else {
      kernels_.pack(from, block_.rows, d, call_.scale, to, block_.rows);
    }
  }
  for (const auto& rows : {mine_.row_max, mine_.reference}) std::ranges::fill(rows, minus_infinity);
  for (const auto& rows : {mine_.shifted_max, mine_.shifted_reference}) {
    std::ranges::fill(rows, nothing);
  }
  std::ranges::fill(mine_.row_sum, 0.0f);
  has_o_ = false;
  if (mask_) mask_->start(call_, sequence_, first_head_, block_);
  mod_.start(call_, sequence_, first_head_, block_);
}

KeyTile BlockForward::keys_of(std::int64_t tile) {
  if (!read_once_) return memory_.keys.find(call_, sequence_, place_, tile);
  mine_.own_tile.pack(call_, sequence_, group_, tile, 0);
  return mine_.own_tile.find(call_, sequence_, tile, 0);
}

void BlockForward::attend(const Tile& tile) {
  tile_ = tile.number;
  const KeyTile keys = keys_of(tile.number);
  const int rows = block_.all_rows();
  const auto k_first = static_cast<std::int32_t>(tile_ * tile_columns + sequence_.k_offset);
  mod_.tile(k_first, keys.columns);
  if (tile.full && keys.columns % kernels_.lanes == 0) {
    attend({0, rows, 0, keys.columns}, keys, /*masked=*/false);
    return;
  }
  if (tile.full) {
    mine_.keep.keep_first(rows, keys.columns);
  } else {
    mask_->tile(k_first, keys.columns);
    find_kept(*mask_, call_, rows, keys.columns, mine_.keep);
  }
  for (int first = 0; first < rows; first += trim_rows) {
    const Part part = mine_.keep.trim(first, std::min(rows, first + trim_rows));
    if (part.column_first < part.column_last) attend(part, keys, /*masked=*/true);
  }
}

// S = Q K^T, score_mod, softmax, O = diag(rescale) O + P V.
void BlockForward::attend(const Part& part, const KeyTile& keys, bool masked) {
  const int width = kernels_.panel_width, rows = part.last - part.first;
  const int columns = part.column_last - part.column_first;
  Product product;
  product.a = from_row(mine_.q, part.first, width);
  product.b = from_column(keys.k_transposed, part.column_first);
  product.c = from_row(from_column(mine_.scores, part.column_first), part.first, width);
  product.m = rows;
  product.n = columns;
  product.k_last = static_cast<int>(call_.plan.cells(call_.sizes.d));
  product.factor = call_.scale;  // of pairs; elsewhere q is scaled already
  const auto fetch = [&](const Panels& panels, std::int64_t wide) {
    product.fetch = panels.data;
    product.fetch_floats =
        panels.data == nullptr ? 0 : panels.rows * round_up(wide, kernels_.panel_width);
  };
  const bool whole = rows == block_.all_rows();  // parts of a tile would fetch it again
  if (whole) fetch(keys.v, call_.sizes.dv);
  call_.plan.multiply(product);
  if (mod_) {
    mod_->for_strips(part, kernels_, [&](StripRun::Strip strip, int base) {
      strip.score = from_row(from_column(mine_.scores, strip.column), base + strip.row, width).data;
      mod_->run().elements(0, strip);
    });
  }
  SoftmaxTile softmax;
  softmax.scores = from_column(mine_.scores, part.column_first);
  softmax.first = part.first;
  softmax.last = part.last;
  softmax.columns = columns;
  softmax.keep = masked ? mine_.keep.words.data() + part.column_first / 64 : nullptr;
  softmax.keep_words = keep_words;
  softmax.shift = mod_.relative() ? mine_.shifts.of_tile.data() : nullptr;
  softmax.row_max = mine_.row_max.data();
  softmax.reference = mine_.reference.data();
  softmax.shifted_max = mine_.shifted_max.data();
  softmax.shifted_reference = mine_.shifted_reference.data();
  softmax.row_sum = mine_.row_sum.data();
  softmax.rescale = mine_.rescale.data();
  kernels_.softmax(softmax);
  if (dropout_.any()) drop(part);
  if (call_.plan.pairs) {
    kernels_.pairs->narrow(
        mine_.scores, {part.first, part.last, part.column_first, part.column_last}, mine_.p_pairs);
  }
  product.a = from_row(call_.plan.pairs ? mine_.p_pairs : mine_.scores, part.first, width);
  product.b = keys.v;
  product.c = from_row(mine_.o, part.first, width);
  product.n = static_cast<int>(call_.sizes.dv);
  product.k_first = static_cast<int>(call_.plan.cells(part.column_first));
  product.k_last = static_cast<int>(call_.plan.cells(part.column_last));
  product.into = into_o(whole);
  product.factor = 1;
  product.scale = mine_.rescale.data() + part.first;
  product.skip_zeros = masked && !keys.v_finite;
  if (whole) fetch(fetch_.k_transposed, tile_columns);
  call_.plan.multiply(product);
}

// O begins as the first product, where that covers all rows, or as zeros.
Into BlockForward::into_o(bool whole) {
  if (!has_o_ && !whole) {
    std::fill_n(mine_.o.data, block_rows * round_up(call_.sizes.dv, kernels_.panel_width), 0.0f);
  }
  const bool sets = !has_o_ && whole;
  has_o_ = true;
  return sets ? Into::Set : Into::Rescale;
}

void BlockForward::drop(const Part& part) {
  std::uint64_t bits[keep_words];
  const auto k_first =
      static_cast<std::int32_t>(tile_ * tile_columns + part.column_first + sequence_.k_offset);
  const int columns = part.column_last - part.column_first;
  for (int row = part.first; row < part.last; ++row) {
    const Place place = call_.place(sequence_, first_head_ + row / block_.rows);
    const auto q =
        static_cast<std::int32_t>(block_.position + row % block_.rows + sequence_.q_offset);
    dropout_.bits(kernels_, place, q, k_first, columns, bits);
    kernels_.apply_dropout(from_column(mine_.scores, part.column_first), row, columns, bits,
                           dropout_.scale());
  }
}

RowSums BlockForward::sums_of(std::size_t row) const {
  const float sum = mine_.row_sum[row], shift = mine_.shifts.shift[row];
  if (mod_.relative()) return {mine_.shifted_max[row], mine_.shifted_reference[row], sum, shift};
  return {static_cast<double>(mine_.row_max[row]), static_cast<double>(mine_.reference[row]), sum,
          shift};
}

void BlockForward::finish() {
  const std::int64_t b = call_.batch(sequence_);
  const std::int64_t row = sequence_.q_first + block_.position;
  for (int i = 0; i < block_.heads; ++i) {
    const std::int64_t head = first_head_ + i;
    const float sink = sink_of(call_, head);
    const std::int64_t at = call_.geometry.row_number(sequence_.b, head, row);
    for (int r = 0; r < block_.rows; ++r) {
      const auto mine = static_cast<std::size_t>(i * block_.rows + r);
      const RowResult result = finish_row(sums_of(mine), sink);
      mine_.rescale[mine] = result.factor;
      write_row(call_, memory_, at + r, result);
    }
    kernels_.unpack(from_row(mine_.o, i * block_.rows, kernels_.panel_width), block_.rows,
                    static_cast<int>(call_.sizes.dv), mine_.rescale.data() + i * block_.rows,
                    call_.rows(call_.bound.o, call_.baked.o, b, head, row));
  }
}

void BlockForward::keep_part(std::int64_t split) {
  const int width = kernels_.panel_width;
  for (int r = 0; r < block_.all_rows(); ++r) {
    const std::int64_t row_in_group =
        block_.head * block_.rows + r;  // split heads are one block long
    const std::int64_t at = memory_.parts.row(head_in_wave_, split, row_in_group);
    const auto from = static_cast<std::size_t>(r), to = static_cast<std::size_t>(at);
    const RowSums sums = sums_of(from);
    memory_.parts.row_max[to] = sums.row_max;
    memory_.parts.reference[to] = sums.reference;
    memory_.parts.row_sum[to] = sums.sum;
    memory_.parts.shift[to] = sums.shift;
    for (std::int64_t c = 0; c < call_.sizes.dv; c += width) {
      std::copy_n(from_row(from_column(mine_.o, c), r, width).data, width,
                  from_row(from_column(memory_.parts.o, c), at, width).data);
    }
  }
}

void attend_wave(const Call& call, const ForwardMemory& memory, const Wave& wave) {
  const std::int64_t whole = memory.parts.splits > 1 ? 0 : whole_heads(call, wave);
  prepare_keys(call, memory.keys, wave, /*least_blocks=*/2, whole);
  const std::int64_t blocks = block_count(call.sizes.sq, call.heads_per_group());
  const std::int64_t splits = memory.parts.splits;
  const double scores = static_cast<double>(wave.count) *
                        static_cast<double>(call.heads_per_group()) *
                        static_cast<double>(call.sizes.sq) * static_cast<double>(call.sizes.skv);
  const double flops = 2 * scores * static_cast<double>(call.sizes.d + call.sizes.dv);
  const std::int64_t tasks = whole + (wave.count - whole) * blocks * splits;
  call.parallel(tasks, flops, [&](std::int64_t task, int worker) {
    BlockForward forward(call, memory, worker);
    if (task < whole) {
      forward.run_head(wave, task, worker);
      return;
    }
    const std::int64_t rest = task - whole, i = whole + rest / (blocks * splits);
    forward.run(wave, i, /*place=*/i, rest / splits % blocks, rest % splits);
  });
}

}  // namespace

void forward(const Call& call, const ForwardMemory& memory) {
  write_rows_of_no_sequence(call, memory);
  const std::int64_t heads = call.sizes.b * call.sizes.hkv;
  for (std::int64_t first = 0; first < heads && call.sizes.sq > 0; first += memory.keys.heads) {
    const Wave wave{first, std::min(memory.keys.heads, heads - first)};
    attend_wave(call, memory, wave);
    if (memory.parts.splits > 1) merge_parts(call, memory, first, wave.count);
  }
  if (call.baked.max_logit) write_max_logit(call, memory);
}

}  // namespace fovea::cpu
