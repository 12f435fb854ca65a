#include "engines/cpu/block_forward.h"

#include <algorithm>

namespace fovea::cpu {

void BlockForward::run_head(const Wave& wave, std::int64_t head_in_wave, int worker) {
  const Sequence sequence = call_.key_head(wave.first + head_in_wave).sequence;
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
  const KeyHead head = call_.key_head(wave.first + head_in_wave);
  const Sequence& sequence = head.sequence;
  const std::int64_t splits = split_count(sequence.q_length, sequence.k_length);
  const std::optional<QueryBlock> block = call_.query_block(head, part.index, part.block);
  if (!block || part.split >= splits) return;
  block_ = *block;
  head_in_wave_ = head_in_wave;
  place_ = place;
  read_once_ = block_count(sequence.q_length, call_.heads_per_group(), part.block) == 1;
  // Tiles are classified for the whole block, even if this is a part of it. A tile is then mixed
  // for all rows of the block or for none, so a row's bits do not depend on how blocks are cut.
  RowBlock rows = rows_seen(call_, block_);
  if (splits > 1) {
    const auto tiles = static_cast<int>(split_tiles(sequence.q_length, sequence.k_length));
    rows.first_tile = static_cast<int>(part.split) * tiles;
    rows.last_tile = std::min(rows.last_tile, rows.first_tile + tiles);
  }
  if (!cut(part)) return;
  start();
  walk_.start(call_.keys(head), memory_.keys.table(head_in_wave), rows);
  Tile ahead;
  bool more = walk_.next(ahead);
  while (more) {
    const Tile tile = ahead;
    more = walk_.next(ahead);
    next_ =
        more && !read_once_ ? memory_.keys.find(call_, sequence, place_, ahead.number) : KeyTile{};
    attend(tile);
  }
  if (!has_o_) into_o({});
  if (splits == 1) {
    finish();
  } else {
    keep_split(part.split);
  }
}

void BlockForward::start() {
  const auto d = static_cast<int>(call_.sizes.d);
  for (int i = 0; i < block_.heads; ++i) {
    const Strided from =
        call_.rows(call_.bound.q, call_.baked.q, call_.batch(block_.sequence),
                   block_.first_head + i, block_.sequence.q_first + block_.position);
    const Panels to = from_row(mine_.q, i * block_.rows, kernels_.panel_width);
    if (call_.plan.pairs) {
      kernels_.pairs->pack(from, block_.rows, d, to, block_.rows);
    } else {
      kernels_.pack(from, block_.rows, d, call_.scale, to, block_.rows);
    }
  }
  for (const auto& rows : {mine_.row_max, mine_.reference}) std::ranges::fill(rows, minus_infinity);
  for (const auto& rows : {mine_.shifted_max, mine_.shifted_reference}) {
    std::ranges::fill(rows, static_cast<double>(minus_infinity));
  }
  std::ranges::fill(mine_.row_sum, 0.0f);
  has_o_ = false;
  formulas_.start(block_);
}

KeyTile BlockForward::keys_of(std::int64_t tile) {
  if (!read_once_) return memory_.keys.find(call_, block_.sequence, place_, tile);
  mine_.own_tile.pack(call_, block_, tile, 0);
  return mine_.own_tile.find(call_, block_.sequence, tile, 0);
}

void BlockForward::attend(const Tile& tile) {
  const KeyTile keys = keys_of(tile.number);
  if (!formulas_.start_tile(tile, keys.columns)) {
    return attend({0, block_.all_rows(), 0, keys.columns}, keys, /*masked=*/false);
  }
  formulas_.for_kept([&](const MatrixPart& part) { attend(part, keys, /*masked=*/true); });
}

RowSums BlockForward::sums_of(std::size_t row) const {
  const float sum = mine_.row_sum[row], shift = mine_.formulas.shifts.shift[row];
  if (formulas_.relative())
    return {mine_.shifted_max[row], mine_.shifted_reference[row], sum, shift};
  return {static_cast<double>(mine_.row_max[row]), static_cast<double>(mine_.reference[row]), sum,
          shift};
}

void BlockForward::finish() {
  const std::int64_t b = call_.batch(block_.sequence);
  const std::int64_t row = block_.sequence.q_first + block_.position;
  for (int i = 0; i < block_.heads; ++i) {
    const std::int64_t head = block_.first_head + i;
    const float sink = sink_of(call_, head);
    const std::int64_t at = call_.geometry.row_number(block_.sequence.b, head, row);
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

void BlockForward::keep_split(std::int64_t split) {
  const int width = kernels_.panel_width;
  for (int r = 0; r < block_.all_rows(); ++r) {
    const std::int64_t row_in_group =
        block_.head * block_.rows + r;  // split heads are one block long
    const std::int64_t at = memory_.splits.row(head_in_wave_, split, row_in_group);
    memory_.splits.sums[static_cast<std::size_t>(at)] = sums_of(static_cast<std::size_t>(r));
    for (std::int64_t c = 0; c < call_.sizes.dv; c += width) {
      std::copy_n(from_row(from_column(mine_.o, c), r, width).data, width,
                  from_row(from_column(memory_.splits.o, c), at, width).data);
    }
  }
}

// One part of a tile: two products, and the softmax between them.
// S = Q K^T, score_mod, softmax, O = diag(rescale) O + P V.
void BlockForward::attend(const MatrixPart& part, const KeyTile& keys, bool masked) {
  Product scores = score_product(part, keys);
  fetch(scores, part, keys.v, call_.sizes.dv);
  call_.plan.multiply(scores);
  if (formulas_.mod() != nullptr) modify(part);
  apply_softmax(part, masked);
  if (formulas_.drops()) drop(part);
  if (call_.plan.pairs) kernels_.pairs->narrow(mine_.scores, part, mine_.p_pairs);
  Product values = value_product(part, keys, masked);
  fetch(values, part, next_.k_transposed, tile_columns);
  call_.plan.multiply(values);
}

Product BlockForward::score_product(const MatrixPart& part, const KeyTile& keys) const {
  const int width = kernels_.panel_width;
  Product product;
  product.a = from_row(mine_.q, part.first, width);
  product.b = from_column(keys.k_transposed, part.column_first);
  product.c = from_row(from_column(mine_.scores, part.column_first), part.first, width);
  product.m = part.rows();
  product.n = part.columns();
  product.k_last = static_cast<int>(call_.plan.cells(call_.sizes.d));
  product.factor = call_.scale;  // of pairs; elsewhere q is scaled already
  return product;
}

Product BlockForward::value_product(const MatrixPart& part, const KeyTile& keys, bool masked) {
  const int width = kernels_.panel_width;
  Product product;
  product.a = from_row(call_.plan.pairs ? mine_.p_pairs : mine_.scores, part.first, width);
  product.b = keys.v;
  product.c = from_row(mine_.o, part.first, width);
  product.m = part.rows();
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
void BlockForward::fetch(Product& product, const MatrixPart& part, const Panels& panels,
                         std::int64_t wide) const {
  if (!is_whole(part) || panels.data == nullptr) return;
  product.fetch = panels.data;
  product.fetch_floats = panels.rows * round_up(wide, kernels_.panel_width);
}

void BlockForward::modify(const MatrixPart& part) {
  const int width = kernels_.panel_width;
  BlockProgram& mod = *formulas_.mod();
  mod.for_strips(part, [&](StripRun::Strip strip, int base) {
    strip.score = from_row(from_column(mine_.scores, strip.column), base + strip.row, width).data;
    mod.run().elements(0, strip);
  });
}

void BlockForward::apply_softmax(const MatrixPart& part, bool masked) {
  SoftmaxTile softmax;
  softmax.scores = from_column(mine_.scores, part.column_first);
  softmax.first = part.first;
  softmax.last = part.last;
  softmax.columns = part.columns();
  softmax.keep = masked ? mine_.formulas.keep.words.data() + part.column_first / 64 : nullptr;
  softmax.keep_words = keep_words;
  softmax.shift = formulas_.relative() ? mine_.formulas.shifts.of_tile.data() : nullptr;
  softmax.row_max = mine_.row_max.data();
  softmax.reference = mine_.reference.data();
  softmax.shifted_max = mine_.shifted_max.data();
  softmax.shifted_reference = mine_.shifted_reference.data();
  softmax.row_sum = mine_.row_sum.data();
  softmax.rescale = mine_.rescale.data();
  kernels_.softmax(softmax);
}

// O begins as the first product, if that covers all rows, or as zeros.
Into BlockForward::into_o(const MatrixPart& part) {
  const bool whole = is_whole(part);
  if (!has_o_ && !whole) {
    std::fill_n(mine_.o.data, block_rows * round_up(call_.sizes.dv, kernels_.panel_width), 0.0f);
  }
  const bool sets = !has_o_ && whole;
  has_o_ = true;
  return sets ? Into::Set : Into::Rescale;
}

void BlockForward::drop(const MatrixPart& part) {
  std::uint64_t bits[keep_words];
  for (int row = part.first; row < part.last; ++row) {
    formulas_.draw(row, part.column_first, part.columns(), bits);
    kernels_.apply_dropout(from_column(mine_.scores, part.column_first), row, part.columns(), bits,
                           formulas_.drop_scale());
  }
}

}  // namespace fovea::cpu
