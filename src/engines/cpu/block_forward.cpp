#include "engines/cpu/block_forward.h"

#include <algorithm>
#include <limits>

namespace fovea::cpu {
namespace {

constexpr float minus_infinity = -std::numeric_limits<float>::infinity();
constexpr double nothing = -std::numeric_limits<double>::infinity();

}  // namespace

void BlockForward::run_head(const Wave& wave, std::int64_t head_in_wave, int worker) {
  const std::int64_t b = (wave.first + head_in_wave) / call_.sizes.hkv;
  const Sequence sequence = call_.geometry.sequence(b);
  const std::int64_t blocks = block_count(sequence.q_length, call_.heads_per_group());
  if (blocks > 1) {
    const std::int64_t tiles = tiles_of(sequence.k_length);
    pack_tiles_of_head(call_, memory_.keys, wave, {head_in_wave, worker, 0, tiles}, worker);
  }
  for (std::int64_t index = 0; index < blocks; ++index) run(wave, head_in_wave, worker, {index});
}

// Sets block_ to the rows of the part. False if it has none.
bool BlockForward::cut(const BlockPart& part) {
  if (block_.heads > 1) return part.first_row == 0;
  const int first = std::min(part.first_row, block_.rows);
  block_.rows = std::min(part.last_row, block_.rows) - first;
  block_.position += first;
  return block_.rows > 0;
}

void BlockForward::run(const Wave& wave, std::int64_t head_in_wave, std::int64_t place,
                       const BlockPart& part) {
  const std::int64_t head = wave.first + head_in_wave;
  sequence_ = call_.geometry.sequence(head / call_.sizes.hkv);
  group_ = head % call_.sizes.hkv;
  head_in_wave_ = head_in_wave;
  place_ = place;
  const std::int64_t heads = call_.heads_per_group();
  const std::int64_t splits = split_count(sequence_.q_length, sequence_.k_length);
  const std::int64_t blocks = block_count(sequence_.q_length, heads, part.block);
  if (part.index >= blocks || part.split >= splits) return;
  read_once_ = blocks == 1;
  block_ = find_block(sequence_.q_length, heads, part.index, part.block);
  first_head_ = group_ * heads + block_.head;
  // Tiles are classified for the whole block, even if this is a part of it. A tile is then mixed
  // for all rows of the block or for none, so a row's bits do not depend on how blocks are cut.
  RowBlock rows = rows_seen(call_, sequence_, first_head_, block_);
  if (splits > 1) {
    const auto tiles = static_cast<int>(split_tiles(sequence_.q_length, sequence_.k_length));
    rows.first_tile = static_cast<int>(part.split) * tiles;
    rows.last_tile = std::min(rows.last_tile, rows.first_tile + tiles);
  }
  if (!cut(part)) return;
  start();
  walk_.start(call_.keys(sequence_, group_), memory_.keys.table(head_in_wave), rows);
  Tile ahead;
  bool more = walk_.next(ahead);
  while (more) {
    const Tile tile = ahead;
    more = walk_.next(ahead);
    next_ =
        more && !read_once_ ? memory_.keys.find(call_, sequence_, place_, ahead.number) : KeyTile{};
    attend(tile);
  }
  if (!has_o_) into_o({});
  if (splits == 1) {
    finish();
  } else {
    keep_part(part.split);
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
    const TilePart part = mine_.keep.trim(first, std::min(rows, first + trim_rows));
    if (part.column_first < part.column_last) attend(part, keys, /*masked=*/true);
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

// One part of a tile: two products, and the softmax between them.
// S = Q K^T, score_mod, softmax, O = diag(rescale) O + P V.
void BlockForward::attend(const TilePart& part, const KeyTile& keys, bool masked) {
  Product scores = score_product(part, keys);
  fetch(scores, part, keys.v, call_.sizes.dv);
  call_.plan.multiply(scores);
  if (mod_) modify(part);
  apply_softmax(part, masked);
  if (dropout_.any()) drop(part);
  if (call_.plan.pairs) {
    kernels_.pairs->narrow(
        mine_.scores, {part.first, part.last, part.column_first, part.column_last}, mine_.p_pairs);
  }
  Product values = value_product(part, keys, masked);
  fetch(values, part, next_.k_transposed, tile_columns);
  call_.plan.multiply(values);
}

Product BlockForward::score_product(const TilePart& part, const KeyTile& keys) const {
  const int width = kernels_.panel_width;
  Product product;
  product.a = from_row(mine_.q, part.first, width);
  product.b = from_column(keys.k_transposed, part.column_first);
  product.c = from_row(from_column(mine_.scores, part.column_first), part.first, width);
  product.m = part.last - part.first;
  product.n = part.column_last - part.column_first;
  product.k_last = static_cast<int>(call_.plan.cells(call_.sizes.d));
  product.factor = call_.scale;  // of pairs; elsewhere q is scaled already
  return product;
}

Product BlockForward::value_product(const TilePart& part, const KeyTile& keys, bool masked) {
  const int width = kernels_.panel_width;
  Product product;
  product.a = from_row(call_.plan.pairs ? mine_.p_pairs : mine_.scores, part.first, width);
  product.b = keys.v;
  product.c = from_row(mine_.o, part.first, width);
  product.m = part.last - part.first;
  product.n = static_cast<int>(call_.sizes.dv);
  product.k_first = static_cast<int>(call_.plan.cells(part.column_first));
  product.k_last = static_cast<int>(call_.plan.cells(part.column_last));
  product.into = into_o(part);
  product.scale = mine_.rescale.data() + part.first;
  product.skip_zeros = masked && !keys.v_finite;
  return product;
}

// While this product runs, what the next one reads is fetched from memory. Not for parts of a tile,
// which would fetch it again.
void BlockForward::fetch(Product& product, const TilePart& part, const Panels& panels,
                         std::int64_t wide) const {
  if (!is_whole(part) || panels.data == nullptr) return;
  product.fetch = panels.data;
  product.fetch_floats = panels.rows * round_up(wide, kernels_.panel_width);
}

void BlockForward::modify(const TilePart& part) {
  const int width = kernels_.panel_width;
  mod_->for_strips(part, kernels_, [&](StripRun::Strip strip, int base) {
    strip.score = from_row(from_column(mine_.scores, strip.column), base + strip.row, width).data;
    mod_->run().elements(0, strip);
  });
}

void BlockForward::apply_softmax(const TilePart& part, bool masked) {
  SoftmaxTile softmax;
  softmax.scores = from_column(mine_.scores, part.column_first);
  softmax.first = part.first;
  softmax.last = part.last;
  softmax.columns = part.column_last - part.column_first;
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
}

// O begins as the first product, if that covers all rows, or as zeros.
Into BlockForward::into_o(const TilePart& part) {
  const bool whole = is_whole(part);
  if (!has_o_ && !whole) {
    std::fill_n(mine_.o.data, block_rows * round_up(call_.sizes.dv, kernels_.panel_width), 0.0f);
  }
  const bool sets = !has_o_ && whole;
  has_o_ = true;
  return sets ? Into::Set : Into::Rescale;
}

void BlockForward::drop(const TilePart& part) {
  std::uint64_t bits[keep_words];
  const auto k_first =
      static_cast<std::int32_t>(tile_ * tile_columns + part.column_first + sequence_.k_offset);
  const int columns = part.column_last - part.column_first;
  for (int row = part.first; row < part.last; ++row) {
    const LeafValues leaves = call_.leaves(sequence_, first_head_ + row / block_.rows);
    const auto q =
        static_cast<std::int32_t>(block_.position + row % block_.rows + sequence_.q_offset);
    dropout_.bits(kernels_, leaves, q, k_first, columns, bits);
    kernels_.apply_dropout(from_column(mine_.scores, part.column_first), row, columns, bits,
                           dropout_.scale());
  }
}

}  // namespace fovea::cpu
