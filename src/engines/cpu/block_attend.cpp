// One part of a tile in a block: two products, and the softmax between them.
#include <algorithm>

#include "engines/cpu/block_forward.h"

namespace fovea::cpu {

// S = Q K^T, score_mod, softmax, O = diag(rescale) O + P V.
void BlockForward::attend(const Part& part, const KeyTile& keys, bool masked) {
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

Product BlockForward::score_product(const Part& part, const KeyTile& keys) const {
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

Product BlockForward::value_product(const Part& part, const KeyTile& keys, bool masked) {
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

// What the product after this one reads comes from memory meanwhile. Parts of a tile would fetch it
// again.
void BlockForward::fetch(Product& product, const Part& part, const Panels& panels,
                         std::int64_t wide) const {
  if (!is_whole(part) || panels.data == nullptr) return;
  product.fetch = panels.data;
  product.fetch_floats = panels.rows * round_up(wide, kernels_.panel_width);
}

void BlockForward::modify(const Part& part) {
  const int width = kernels_.panel_width;
  mod_->for_strips(part, kernels_, [&](StripRun::Strip strip, int base) {
    strip.score = from_row(from_column(mine_.scores, strip.column), base + strip.row, width).data;
    mod_->run().elements(0, strip);
  });
}

void BlockForward::apply_softmax(const Part& part, bool masked) {
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
Into BlockForward::into_o(const Part& part) {
  const bool whole = is_whole(part);
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

}  // namespace fovea::cpu
