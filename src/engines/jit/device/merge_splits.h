// Merges the partial results of decode.h: one warp for 32 features of a row.
#pragma once

#include "decode.h"

namespace fovea::device {

// A row's splits merged: the logsumexp of all of them and the sink.
struct MergedRow {
  double shift, largest;
  float total;  // lse = shift + log(total)
};
FOVEA_DEVICE MergedRow merge_rows(const CallArguments& call, long long first, long long step,
                                  int splits, float sink) {
  MergedRow row{sink, -infinity(), 0};
  bool nan = false;
  FOVEA_NO_UNROLL for (int i = 0; i < splits; ++i) {
    const double lse = call.partial_rows[2 * (first + i * step)];
    const double top = call.partial_rows[2 * (first + i * step) + 1];
    row.shift = fmax(row.shift, lse);
    nan |= top != top;
    row.largest = fmax(row.largest, top);
  }
  if (!(row.shift - row.shift == 0)) row.shift = 0;  // an infinity
  row.total = exp2_approx(static_cast<float>(sink - row.shift) * log2_of_e);
  FOVEA_NO_UNROLL for (int i = 0; i < splits; ++i) {
    const double lse = call.partial_rows[2 * (first + i * step)];
    row.total += exp2_approx(static_cast<float>(lse - row.shift) * log2_of_e);
  }
  if (nan) row.largest = float_of_bits(0x7fc00000u);
  return row;
}

// A warp for 32 features of a row (b, kv head, row of the group): its splits in order.
template <class Config>
FOVEA_DEVICE void merge_splits(const Arguments& a) {
  const CallArguments& call = a.call;
  const int rows = min(call.sq * call.group, decode_group_rows);
  const int parts = max((call.dv + 31) / 32, 1);  // lse is wanted without features, too
  long long index = (static_cast<long long>(block_x()) * block_threads() + thread_index()) / 32;
  const int part = static_cast<int>(index % parts);
  index /= parts;
  const int row = static_cast<int>(index % rows);
  index /= rows;
  const int kv_head = static_cast<int>(index % call.hkv), b = static_cast<int>(index / call.hkv);
  if (b >= call.b) return;
  const Sequence s = sequence_of(call, b);
  if (row >= s.q_length * call.group || !decodes(s.q_length, s.k_length, call.group)) return;
  const int splits = s.k_length > 0 ? (s.k_length + call.split_keys - 1) / call.split_keys : 1;
  const int h = kv_head * call.group + row % call.group, q = row / call.group;
  const float sink = call.sink != nullptr ? call.sink[h] : -infinity();
  const long long first = partial_row(call, decode_slot(call, s, b, 0), kv_head, row);
  const long long step = static_cast<long long>(call.hkv) * decode_group_rows;
  const MergedRow merged = merge_rows(call, first, step, splits, sink);
  const bool empty = merged.total == 0;
  const float lse = empty ? -infinity() : static_cast<float>(merged.shift + logf(merged.total));
  const Head head = head_of(call, s, b, h);
  const float factor =
      empty ? 0 : (Config::dropout ? dropout_of(call, head).factor : 1) / merged.total;
  const int column = 32 * part + lane_index();
  float value = 0;
  if (column < call.dv) {
    for (int i = 0; i < splits; ++i) {
      const long long at = first + i * step;
      const auto below = static_cast<float>(call.partial_rows[2 * at] - merged.shift);
      const float weight = exp2_approx(below * log2_of_e);
      value = fma_rn(weight, call.partial_o[at * call.dv + column], value);
    }
    value *= factor;
    write_element<typename Config::Output>(
        call.o.data, row_at(call.o, s.b, h, s.q_first + q) + column * call.o.feature, value);
  }
  if (part == 0 && lane_index() == 0) {
    const long long number = row_number(call, s, h, s.q_first + q);
    if (call.lse != nullptr) call.lse[number] = lse;
    if (call.row_max != nullptr) call.row_max[number] = static_cast<float>(merged.largest);
  }
  if (!any_in_warp(value != value) || empty) return;
  careful_o_row<Config>(a, {b, h, s, head}, q, lse, 32 * part, min(32 * part + 32, call.dv));
}

}  // namespace fovea::device
