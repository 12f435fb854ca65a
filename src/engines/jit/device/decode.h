// Few queries against many keys. A block owns 16 rows of one kv head (query positions times the
// heads of its group) and one split of the keys. Its warps take turns in groups of 16 keys, each
// with its own softmax and ring of copies, so that no warp waits for another. The results of the
// warps are merged at the end, those of the splits by merge_splits.
//
// Config has: Element, Output, d, dv, warps, stages, dropout.
#pragma once

#include "careful.h"
#include "dropout.h"
#include "live_tiles.h"
#include "softmax.h"
#include "tile.h"

namespace fovea::device {

FOVEA_DEVICE long long decode_slot(const CallArguments& call, const Sequence& s, int b, int split) {
  if (call.k_starts != nullptr) return s.k_first / call.split_keys + b + split;
  return static_cast<long long>(b) * ((call.skv + call.split_keys - 1) / call.split_keys) + split;
}
// The number of a row in partial_rows (times 2) and in partial_o (times dv).
FOVEA_DEVICE long long partial_row(const CallArguments& call, long long slot, int kv_head,
                                   int row) {
  return (slot * call.hkv + kv_head) * decode_group_rows + row;
}

template <class Config>
struct Decode {
  using Element = typename Config::Element;
  static constexpr int keys = decode_keys, tile_keys = keys * Config::warps;
  static constexpr int features = Config::dv / 8;
  static constexpr DecodeShared shared{
      TileSizes{Config::warps, bytes_of<Element>, Config::d, Config::dv, decode_rows, keys, 0, 0},
      Config::stages};
  using QueryTile = SharedTile<Element, Config::d>;
  using ValueTile = SharedTile<Element, Config::dv>;
  using ProbabilityTile = SharedTile<F32, keys>;
  static constexpr QueryTile q_tile{static_cast<Shared>(shared.q)};

  const Arguments& a;
  const CallArguments& call;
  int b, kv_head, row_tile, split, dv_first, warp;
  Sequence s;
  int k_first, k_end;  // of this split
  float scale;

  // Of this lane's rows, lane / 4 and lane / 4 + 8.
  Head head[2];
  typename Formula::Uniform uniform[2];
  int q[2];  // positions of the sequence; -1: no such row
  Dropout dropout[2];
  float top[2], sum[2];
  double base[2];  // of f32 formulas: what top is relative to
  float o[1][features][4];

  FOVEA_DEVICE explicit Decode(const Arguments& arguments, int splits, int row_tiles)
      : a(arguments), call(a.call) {
    int index = block_x();
    row_tile = index % row_tiles;
    index /= row_tiles;
    split = index % splits;
    index /= splits;
    kv_head = index % call.hkv;
    index /= call.hkv;
    b = index % call.b;
    dv_first = index / call.b * Config::dv;
    warp = thread_index() / 32;
    s = sequence_of(call, b);
    k_first = split * call.split_keys;
    k_end = min(k_first + call.split_keys, s.k_length);
    scale = value_of(call.scale);
  }

  // Whether this block has anything to do.
  FOVEA_DEVICE bool works() const {
    return decodes(s.q_length, s.k_length, call.group) && (k_first < k_end || split == 0) &&
           row_tile * decode_rows < s.q_length * call.group;
  }

  FOVEA_DEVICE int group_row(int local) const { return row_tile * decode_rows + local; }

  FOVEA_DEVICE void find_rows() {
    FOVEA_UNROLL for (int r = 0; r < 2; ++r) {
      const int row = group_row(lane_index() / 4 + 8 * r);
      const bool exists = row < s.q_length * call.group;
      const int h = kv_head * call.group + (exists ? row % call.group : 0);
      q[r] = exists ? row / call.group : -1;
      head[r] = head_of(call, s, b, h);
      uniform[r] = Formula::uniform(a, head[r]);
      if constexpr (Config::dropout) dropout[r] = dropout_of(call, head[r]);
    }
  }

  // Query rows are those of several heads and positions: one row at a time.
  FOVEA_DEVICE void copy_queries() const {
    constexpr int columns = Config::d;
    for (int i = thread_index(); i < decode_rows * columns; i += block_threads()) {
      const int row = group_row(i / columns), column = i % columns;
      float value = 0;
      if (row < s.q_length * call.group && column < call.d) {
        value = careful_element<Element>(call.q, s.b, kv_head * call.group + row % call.group,
                                         s.q_first + row / call.group, column);
      }
      store_shared(q_tile.at(i / columns, column), from_float<Element>(value));
    }
  }

  FOVEA_DEVICE TileClass classify(int tile) const {
    const int first = k_first + tile * tile_keys, end = min(first + tile_keys, k_end);
    const int row = group_row(0), last = min(row + decode_rows, s.q_length * call.group) - 1;
    const long long q_first = static_cast<long long>(row / call.group) + s.q_offset;
    const long long q_last = static_cast<long long>(last / call.group) + s.q_offset;
    const long long k_low = static_cast<long long>(first) + s.k_offset;
    const long long k_high = static_cast<long long>(end - 1) + s.k_offset;
    const auto fits = [](long long x) { return x == static_cast<int>(x); };
    if (!fits(q_first) || !fits(q_last) || !fits(k_low) || !fits(k_high))
      return {TileClass::some_part};
    // Rows of two positions have all heads of the group between them.
    const bool one = row / call.group == last / call.group;
    const int h = kv_head * call.group;
    const Head any = head_of(call, s, b, h);
    const int h_first = any.h + (one ? row % call.group : 0);
    const int h_last = any.h + (one ? last % call.group : call.group - 1);
    const Box box{h_first,
                  h_last,
                  static_cast<int>(q_first),
                  static_cast<int>(q_last),
                  static_cast<int>(k_low),
                  static_cast<int>(k_high)};
    const TileClass kind = Formula::classify(a, any, box);
    return kind.is_full() && first + tile_keys > k_end ? TileClass{TileClass::edge} : kind;
  }
  FOVEA_DEVICE LiveTile next(LiveTiles& tiles) const {
    return next_live(tiles, [&](int tile) { return classify(tile); });
  }

  FOVEA_DEVICE int own_key(int tile) const { return k_first + tile * tile_keys + warp * keys; }
  FOVEA_DEVICE QueryTile k_tile(int stage) const {
    return {
        static_cast<Shared>(shared.ring + (warp * Config::stages + stage) * shared.stage_bytes)};
  }
  FOVEA_DEVICE ValueTile v_tile(int stage) const {
    return {k_tile(stage).base + keys * QueryTile::stride};
  }

  FOVEA_DEVICE void copy_group(int tile, int stage) const {
    const int k = own_key(tile);
    copy_tile<Element, keys, 32>(
        k_tile(stage), rows_of<Element>(call.k, s.b, kv_head, s.k_first + k, k_end - k, call.d),
        lane_index());
    Rows from =
        rows_of<Element>(call.v, s.b, kv_head, s.k_first + k, k_end - k, call.dv - dv_first);
    from.data =
        static_cast<const typename Stored<Element>::Type*>(from.data) + dv_first * call.v.feature;
    copy_tile<Element, keys, 32>(v_tile(stage), from, lane_index());
  }

  FOVEA_DEVICE void modify(float (&x)[1][2][4], int k0, bool full) {
    FOVEA_UNROLL for (int r = 0; r < 2; ++r) {
      const int seen_q = seen(q[r], s.q_offset);
      unsigned row_words[Formula::row_words > 0 ? Formula::row_words : 1];
      if constexpr (Formula::row_words > 0) Formula::make_row(a, uniform[r], seen_q, row_words);
      const auto row = Formula::row(a, uniform[r], seen_q, row_words);
      const int key = seen(k0, s.k_offset);
      const RowBase from = row_base<Formula>(a, uniform[r], row, key);
      if constexpr (Formula::shifts) {
        top[r] = moved(top[r], base[r], from.base);
        base[r] = from.base;
      }
      FOVEA_UNROLL for (int i = 0; i < 4; ++i) {
        const int k = k0 + 8 * (i / 2) + 2 * (lane_index() % 4) + i % 2;
        const int seen_k = seen(k, s.k_offset);
        unsigned column_words[Formula::column_words > 0 ? Formula::column_words : 1];
        if constexpr (Formula::column_words > 0) {
          Formula::make_column(a, uniform[r], seen_k, column_words);
        }
        auto column = Formula::column(a, uniform[r], seen_k, column_words);
        Formula::fill_pair(a, uniform[r], row, column);
        float& score = x[0][i / 2][2 * r + i % 2];
        score = near_score<Formula>(a, uniform[r], row, column, score * scale, from, key);
        const bool keep =
            q[r] >= 0 && k < k_end && (full || Formula::keep(a, uniform[r], row, column));
        score = keep ? score : -infinity();
      }
    }
  }

  FOVEA_DEVICE void softmax(float (&x)[1][2][4]) {
    FOVEA_UNROLL for (int r = 0; r < 2; ++r) {
      float largest = fmaxf(fmaxf(x[0][0][2 * r], x[0][0][2 * r + 1]),
                            fmaxf(x[0][1][2 * r], x[0][1][2 * r + 1]));
      largest = fmaxf(largest, shuffle_xor(largest, 1));
      largest = fmaxf(fmaxf(largest, shuffle_xor(largest, 2)), top[r]);
      const float shift = -finite_or_zero(largest) * log2_of_e;
      const float shrink = exp2_approx(fma_rn(top[r], log2_of_e, shift));
      top[r] = largest;
      sum[r] *= shrink;
      FOVEA_UNROLL for (int j = 0; j < 2; ++j) {
        FOVEA_UNROLL for (int e = 2 * r; e < 2 * r + 2; ++e) {
          x[0][j][e] = exp2_approx(fma_rn(x[0][j][e], log2_of_e, shift));
          sum[r] += x[0][j][e];
        }
      }
      FOVEA_UNROLL for (int j = 0; j < features; ++j) {
        o[0][j][2 * r] *= shrink;
        o[0][j][2 * r + 1] *= shrink;
      }
    }
  }

  FOVEA_DEVICE void drop(float (&p)[1][2][4], int k0) const {
    FOVEA_UNROLL for (int i = 0; i < 4; ++i) {
      const int r = i / 2, j = i % 2;
      const KeptPair kept =
          dropout_keeps_pair(dropout[r], seen(q[r], s.q_offset),
                             seen(k0 + 8 * j + 2 * (lane_index() % 4), s.k_offset));
      p[0][j][2 * r] = kept.first ? p[0][j][2 * r] : 0;
      p[0][j][2 * r + 1] = kept.second ? p[0][j][2 * r + 1] : 0;
    }
  }

  FOVEA_DEVICE void attend(const LiveTile& tile, int stage) {
    float x[1][2][4];
    clear(x);
    multiply<false, false, Config::d>(x, q_tile, {0, 0}, k_tile(stage), {0, 0});
    modify(x, own_key(tile.index), tile.full);
    softmax(x);
    if constexpr (Config::dropout) drop(x, own_key(tile.index));
    if constexpr (bytes_of<Element> == 4) {
      const ProbabilityTile p{
          static_cast<Shared>(shared.p + warp * decode_rows * ProbabilityTile::stride)};
      store_sums(p, {0, 0}, x);
      sync_warp();
      multiply<false, true, keys>(o, p, {0, 0}, v_tile(stage), {0, 0});
      sync_warp();
    } else {
      multiply_registers(o, x, v_tile(stage), {0, 0});
    }
  }

  FOVEA_DEVICE void run() {
    find_rows();
    copy_queries();
    clear(o);
    FOVEA_UNROLL for (int r = 0; r < 2; ++r) top[r] = -infinity(), sum[r] = 0, base[r] = 0;
    const int tiles = k_first < k_end ? (k_end - k_first + tile_keys - 1) / tile_keys : 0;
    LiveTiles ahead(tiles), now(tiles);
    constexpr int stages = Config::stages;
    const auto begin_copy = [&](int stage) {
      const LiveTile tile = next(ahead);
      if (tile.index >= 0) copy_group(tile.index, stage);
      commit_copies();
    };
    for (int stage = 0; stage < stages - 1; ++stage) begin_copy(stage);
    sync_block();  // the queries are there
    int stage = 0;
    for (LiveTile tile = next(now); tile.index >= 0; tile = next(now)) {
      wait_copies<stages - 2>();
      sync_warp();  // all lanes' copies are there, and nobody reads the stage before
      begin_copy(stage == 0 ? stages - 1 : stage - 1);
      attend(tile, stage);
      stage = stage + 1 == stages ? 0 : stage + 1;
    }
    wait_copies<0>();
    merge_warps();
  }

  // Each warp leaves its sums in shared memory; then they are added up row by row, warp after warp.
  FOVEA_DEVICE void merge_warps() {
    using Sums = SharedTile<F32, Config::dv>;
    sync_block();  // nobody reads queries, keys or values any more
    const Sums own{static_cast<Shared>(warp * decode_rows * Sums::stride)};
    const Shared totals = Config::warps * decode_rows * Sums::stride;
    store_sums(own, {0, 0}, o);
    FOVEA_UNROLL for (int r = 0; r < 2; ++r) {
      float total = sum[r];
      total += shuffle_xor(total, 1);
      total += shuffle_xor(total, 2);
      if (lane_index() % 4 == 0) {
        const int row = warp * decode_rows + lane_index() / 4 + 8 * r;
        store_shared(totals + 16 * row, base[r] + top[r]);
        store_shared(totals + 16 * row + 8, total);
      }
    }
    sync_block();
    for (int i = thread_index(); i < decode_rows * Config::dv; i += block_threads()) {
      merge_element(i / Config::dv, i % Config::dv, totals);
    }
  }

  FOVEA_DEVICE void merge_element(int local, int column, Shared totals) const {
    using Sums = SharedTile<F32, Config::dv>;
    const bool feature = column < call.dv - dv_first, first = column == 0 && dv_first == 0;
    if (group_row(local) >= s.q_length * call.group || !(feature || first)) return;
    double largest = -infinity();
    float total = 0, value = 0;
    FOVEA_UNROLL for (int w = 0; w < Config::warps; ++w) {
      largest = fmax(largest, load_shared<double>(totals + 16 * (w * decode_rows + local)));
    }
    const double shift = largest - largest == 0 ? largest : 0;
    FOVEA_UNROLL for (int w = 0; w < Config::warps; ++w) {
      const Shared at = totals + 16 * (w * decode_rows + local);
      const float shrink =
          exp2_approx(static_cast<float>(load_shared<double>(at) - shift) * log2_of_e);
      total += load_shared<float>(at + 8) * shrink;
      value += load_shared<float>(
                   Sums{static_cast<Shared>(w * decode_rows * Sums::stride)}.at(local, column)) *
               shrink;
    }
    const long long row =
        partial_row(call, decode_slot(call, s, b, split), kv_head, group_row(local));
    const bool empty = total == 0;
    if (feature) call.partial_o[row * call.dv + dv_first + column] = empty ? 0 : value / total;
    if (!first) return;
    call.partial_rows[2 * row] = empty ? -infinity() : shift + logf(total);
    call.partial_rows[2 * row + 1] = total == total ? largest : total;
  }
};

// grid: row tiles x splits x kv heads x batch x chunks of dv, row tiles first.
template <class Config>
FOVEA_DEVICE void decode(const Arguments& a) {
  const CallArguments& call = a.call;
  const int row_tiles =
      (min(call.sq * call.group, decode_group_rows) + decode_rows - 1) / decode_rows;
  Decode<Config> block(a, (max(call.skv, 1) + call.split_keys - 1) / call.split_keys, row_tiles);
  if (block.works()) block.run();
}

}  // namespace fovea::device
