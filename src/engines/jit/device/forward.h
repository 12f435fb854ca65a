// The forward: a block owns a tile of queries of one head and goes through the live tiles of keys
// with an online softmax. Each warp owns 16 m rows of it.
//
// Sums are kept relative to a reference score per row. It moves only if a tile's maximum exceeds it
// by more than 8 in the exponent, so that sums are hardly ever rescaled; probabilities then stay
// below 2^8, which every type can hold.
//
// Config has: Element (of q, k, v), Output (of o), d, dv (the class of the head dims), rows,
// columns, warps, dropout, row_max (whether maxima of rows are wanted).
#pragma once

#include "careful.h"
#include "cells_ahead.h"
#include "dropout.h"
#include "key_tiles.h"
#include "live_tiles.h"
#include "row_base.h"
#include "softmax.h"
#include "staged.h"
#include "tile.h"
#include "tile_values.h"

namespace fovea::device {

// A NaN in o may come from a value that is masked, times a probability of 0: a warp's rows again.
// Lane 4 (row % 8) + row / 8 has the lse of a row.
template <class Config>
FOVEA_DEVICE_CALL void mend_rows(const Arguments& a, CarefulHead at, TileSpan rows, float lse,
                                 int dv_first) {
  FOVEA_NO_UNROLL for (int i = 0; i < rows.count; ++i) {
    const float row_lse = shuffle(lse, i % 8 * 4 + i / 8);
    if (rows.first + i >= at.s.q_length || row_lse == -infinity()) continue;
    careful_o_row<Config>(a, at, rows.first + i, row_lse, dv_first,
                          min(dv_first + Config::dv, a.call.dv));
  }
}

template <class Config>
struct Forward {
  using Element = typename Config::Element;
  static constexpr int rows = Config::rows, columns = Config::columns;
  static constexpr int threads = 32 * Config::warps;
  static constexpr int m = rows / (16 * Config::warps);  // pieces of 16 rows of a warp
  static constexpr int keys = columns / 8, features = Config::dv / 8;
  static constexpr ForwardShared shared{tile_sizes_of<Config, Formula>()};
  using QueryTile = SharedTile<Element, Config::d>;
  using ValueTile = SharedTile<Element, Config::dv>;
  using ProbabilityTile = SharedTile<F32, columns>;
  static constexpr QueryTile q_tile{static_cast<Shared>(shared.q)};
  static constexpr QueryTile k_tile{static_cast<Shared>(shared.k)};
  static constexpr ValueTile v_tile{static_cast<Shared>(shared.v)};
  static constexpr ProbabilityTile p_tile{static_cast<Shared>(shared.p)};
  static constexpr int cells_place = shared.place + 72;
  using Ahead = CellsAhead<Formula, rows, columns, Config::warps, cells_place, shared.cells>;
  static_assert(sizeof(Sequence) + sizeof(Head) <= 72 && 72 + Ahead::place_bytes <= place_bytes);

  const Arguments& a;
  const CallArguments& call;
  int b, h, q0, dv_first;
  typename Formula::Uniform uniform;
  Dropout dropout;
  float scale, factor;  // factor: from the scores that are kept to exponents of 2
  KeyTiles<Element, QueryTile, ValueTile, columns, threads> key_tiles;

  // Of rows 16 i + lane / 4 + 8 r of this warp.
  float reference[m][2], sum[m][2];
  float top[Config::row_max ? m : 1][2];    // the true maximum
  double base[Formula::shifts ? m : 1][2];  // of f32: what all of the former is relative to
  float o[m][features][4];

  FOVEA_DEVICE explicit Forward(const Arguments& arguments) : a(arguments), call(a.call) {
    const int together = Formula::batches_share_cells ? batches_together(call.b) : 1;
    int index = block_x() / together;
    const int tiles = (call.sq + rows - 1) / rows;
    q0 = (tiles - 1 - index % tiles) * rows;  // under a causal mask the last take longest
    index /= tiles;
    h = index % call.h;
    index /= call.h;
    b = index % (call.b / together) * together + block_x() % together;
    dv_first = index / (call.b / together) * Config::dv;
    const Sequence s = sequence_of(call, b);
    const Head head = head_of(call, s, b, h);
    if (thread_index() == 0) {
      store_struct(shared.place, s);
      store_struct(shared.place + sizeof(Sequence), head);
      Ahead::keep(a, Formula::uniform(a, head),
                  {seen(q0, s.q_offset), s.k_offset, s.q_length - q0, s.k_length});
    }
    sync_block();
    uniform = Formula::uniform(a, head);
    if constexpr (Config::dropout) dropout = dropout_of(call, head);
    key_tiles.find(call, s, h / call.group, dv_first);
    scale = value_of(call.scale);
    // Without a modifier the scale is part of the exponent, unless it turns maxima into minima.
    factor = folds_scale() ? scale * log2_of_e : log2_of_e;
  }

  FOVEA_DEVICE static Sequence sequence() { return load_struct<Sequence>(shared.place); }
  FOVEA_DEVICE static Head head() { return load_struct<Head>(shared.place + sizeof(Sequence)); }
  FOVEA_DEVICE bool folds_scale() const { return !Formula::has_mod && scale > 0; }
  FOVEA_DEVICE int first_row() const { return thread_index() / 32 * 16 * m; }  // of this warp
  FOVEA_DEVICE int row(int i, int r) const {
    return first_row() + 16 * i + 8 * r + lane_index() / 4;
  }
  FOVEA_DEVICE Shared column_words(int buffer) const {
    return shared.column_words + buffer * 4 * columns * Formula::column_words;
  }

  FOVEA_DEVICE LiveTile next(LiveTiles& tiles) const {
    return next_live(tiles, [&](int tile) {
      return classify_tile<Formula>(a, head(), sequence(), {q0, rows}, {tile * columns, columns});
    });
  }

  FOVEA_DEVICE void copy_queries() const {
    const Sequence s = sequence();
    copy_tile<Element, rows, threads>(
        q_tile, rows_of<Element>(call.q, s.b, h, s.q_first + q0, s.q_length - q0, call.d),
        thread_index());
  }
  FOVEA_DEVICE void copy_keys(int tile, int buffer) const {
    key_tiles.copy_keys(call, sequence, tile * columns, k_tile);
    if constexpr (Formula::column_words > 0) {
      stage_columns<Formula>(a, uniform, column_words(buffer),
                             seen(tile * columns, sequence().k_offset), columns);
    }
  }

  // Diagonals, and cells that were not begun ahead: nobody reads them before the next barrier but
  // one.
  FOVEA_DEVICE void stage_tile(const LiveTile& tile) const {
    if constexpr (Formula::diagonal_words > 0 || Formula::has_cells) {
      const Sequence s = sequence();
      const int k0 = tile.index * columns;
      const TileBox box{seen(q0, s.q_offset), seen(k0, s.k_offset), s.q_length - q0,
                        s.k_length - k0};
      if (!Ahead::has(tile.index)) {
        copy_cells<Formula, rows, columns, threads>(a, uniform, shared.cells, box);
      }
      if constexpr (Formula::diagonal_words > 0) {
        // Formula::uniform is computed again here: kept as a member, what only this reads would
        // take registers.
        stage_diagonals<Formula, rows, columns>(a, Formula::uniform(a, head()), shared.diagonal,
                                                box);
      }
    }
  }

  // Scores of a tile, modified and masked, with -inf for what is not kept.
  FOVEA_DEVICE void modify(float (&x)[m][keys][4], const LiveTile& tile, int buffer) {
    if (!folds_scale()) {
      FOVEA_UNROLL for (int i = 0; i < m * keys * 4; ++i) {
        x[i / 4 / keys][i / 4 % keys][i % 4] *= scale;
      }
    }
    if constexpr (Formula::has_mod) apply<false>(x, tile.index * columns, buffer);
    if (!tile.full) apply<true>(x, tile.index * columns, buffer);
  }

  // The modifier, or the mask: apart, since most tiles need no mask and the modifier's code is
  // long.
  template <bool masks>
  FOVEA_DEVICE void apply(float (&x)[m][keys][4], int k0, int buffer) {
    const Sequence s = sequence();
    const int key = seen(k0, s.k_offset);
    typename Formula::Row row_values[m][2];
    RowBase bases[m][2];
    FOVEA_UNROLL for (int i = 0; i < 2 * m; ++i) {
      const int at = row(i / 2, i % 2);
      row_values[i / 2][i % 2] =
          staged_row<Formula>(a, uniform, shared.row_words, rows, at, seen(q0 + at, s.q_offset));
      if constexpr (!masks) {
        bases[i / 2][i % 2] = row_base<Formula>(a, uniform, row_values[i / 2][i % 2], key);
        if constexpr (Formula::shifts) move_base(i / 2, i % 2, bases[i / 2][i % 2].base);
      }
    }
    constexpr PairReads reads = masks ? Formula::keep_reads : Formula::score_reads;
    LanePairs<Formula, rows, columns, 2 * m, reads.diagonal, reads.cell> pairs(
        {static_cast<Shared>(shared.diagonal), static_cast<Shared>(shared.cells)}, row(0, 0),
        2 * (lane_index() % 4));
    FOVEA_UNROLL for (int j = 0; j < keys; ++j) {
      pairs.load(j);
      FOVEA_UNROLL for (int e = 0; e < 2; ++e) {
        const int at = 8 * j + 2 * (lane_index() % 4) + e;
        auto column = staged_column<Formula>(a, uniform, column_words(buffer), columns, at,
                                             seen(k0 + at, s.k_offset));
        FOVEA_UNROLL for (int i = 0; i < 2 * m; ++i) {
          float& score = x[i / 2][j][i % 2 * 2 + e];
          const auto& row_value = row_values[i / 2][i % 2];
          column.pair = pairs.pair(i, e);
          if constexpr (masks) {
            const bool keep = k0 + at < s.k_length && Formula::keep(a, uniform, row_value, column);
            score = keep ? score : -infinity();
          } else {
            score =
                near_score<Formula>(a, uniform, row_value, column, score, bases[i / 2][i % 2], key);
          }
        }
      }
    }
  }

  FOVEA_DEVICE void move_base(int i, int r, double to) {
    reference[i][r] = moved(reference[i][r], base[i][r], to);
    if constexpr (Config::row_max) top[i][r] = moved(top[i][r], base[i][r], to);
    base[i][r] = to;
  }

  // Scores to probabilities relative to the rows' references, which move if they must.
  FOVEA_DEVICE void softmax(float (&x)[m][keys][4]) {
    bool moves = false;
    FOVEA_UNROLL for (int i = 0; i < 2 * m; ++i) {
      const float most = row_maximum(x[i / 2], i % 2), now = reference[i / 2][i % 2];
      if constexpr (Config::row_max) top[i / 2][i % 2] = fmaxf(top[i / 2][i % 2], most);
      moves |= most > now && !((most - now) * factor <= 8);
    }
    if (any_in_warp(moves)) move_references(x);
    FOVEA_UNROLL for (int i = 0; i < m; ++i) {
      FOVEA_UNROLL for (int r = 0; r < 2; ++r) {
        const float shift = -finite_or_zero(reference[i][r]) * factor;
        float part = 0;
        FOVEA_UNROLL for (int j = 0; j < keys; ++j) {
          FOVEA_UNROLL for (int e = 2 * r; e < 2 * r + 2; ++e) {
            x[i][j][e] = exp2_approx(fma_rn(x[i][j][e], factor, shift));
            part += x[i][j][e];
          }
        }
        sum[i][r] += part;
      }
    }
  }

  // This is rare, so the maxima are found again rather than kept in registers.
  FOVEA_DEVICE void move_references(const float (&x)[m][keys][4]) {
    FOVEA_UNROLL for (int i = 0; i < m; ++i) {
      FOVEA_UNROLL for (int r = 0; r < 2; ++r) {
        const float to = fmaxf(row_maximum(x[i], r), reference[i][r]);
        const float shrink = exp2_approx((reference[i][r] - finite_or_zero(to)) * factor);
        reference[i][r] = to;
        sum[i][r] *= shrink;
        FOVEA_UNROLL for (int j = 0; j < features; ++j) {
          o[i][j][2 * r] *= shrink;
          o[i][j][2 * r + 1] *= shrink;
        }
      }
    }
  }

  FOVEA_DEVICE void add_values(const float (&p)[m][keys][4]) {
    if constexpr (bytes_of<Element> == 4) {
      store_sums(p_tile, {first_row(), 0}, p);
      sync_warp();
      multiply<false, true, columns>(o, p_tile, {first_row(), 0}, v_tile, {0, 0});
      sync_warp();
    } else {
      multiply_registers(o, p, v_tile, {0, 0});
    }
  }

  // Other kernels write what belongs to no packed sequence, and, after this one, the rows of
  // sequences that are decoded.
  FOVEA_DEVICE bool works() const {
    return q0 < row_end() && (!is_decoded() || q0 + rows > sequence().q_length);
  }
  FOVEA_DEVICE bool is_decoded() const {
    const Sequence s = sequence();
    return call.split_keys > 0 && decodes(s.q_length, s.k_length, call.group);
  }

  FOVEA_DEVICE void run() {
    clear(o);
    FOVEA_UNROLL for (int i = 0; i < 2 * m; ++i) {
      reference[i / 2][i % 2] = -infinity();
      if constexpr (Config::row_max) top[i / 2][i % 2] = -infinity();
      if constexpr (Formula::shifts) base[i / 2][i % 2] = 0;
      sum[i / 2][i % 2] = 0;
    }
    const Sequence s = sequence();
    LiveTiles tiles(is_decoded() ? 0 : (s.k_length + columns - 1) / columns);
    LiveTile tile = next(tiles);
    if (tile.index >= 0) {
      copy_queries();
      copy_keys(tile.index, 0);
      commit_copies();
      Ahead::begin(a, uniform, tile.index);
      stage_rows<Formula>(a, uniform, shared.row_words, seen(q0, s.q_offset), rows);
    }
    for (int buffer = 0; tile.index >= 0; buffer ^= 1) {
      wait_copies<Ahead::exists ? 1 : 0>();
      sync_block();  // keys are there, and nobody reads the last values any more
      key_tiles.copy_values(call, sequence, tile.index * columns, v_tile);
      stage_tile(tile);
      commit_copies();
      float x[m][keys][4];
      clear(x);
      multiply<false, false, Config::d>(x, q_tile, {first_row(), 0}, k_tile, {0, 0});
      wait_copies<0>();
      sync_block();  // values are there, and nobody reads the keys any more
      const LiveTile following = next(tiles);
      if (following.index >= 0) copy_keys(following.index, buffer ^ 1);
      commit_copies();
      modify(x, tile, buffer);
      Ahead::begin(a, uniform, following.index);
      softmax(x);
      if constexpr (Config::dropout) {
        const Sequence at = sequence();
        drop_scores(dropout, seen(q0 + row(0, 0), at.q_offset),
                    seen(tile.index * columns + 2 * (lane_index() % 4), at.k_offset), x);
      }
      add_values(x);
      tile = following;
    }
    finish();
  }

  // Sums to outputs: the sink joins, o is divided by the sum of its row. Four lanes have parts of
  // the same rows; each of them finishes one.
  FOVEA_DEVICE void finish() {
    static_assert(2 * m <= 4);
    const int own = lane_index() % 4;
    float total = 0, highest = 0, true_highest = 0;
    double origin = 0;
    FOVEA_UNROLL for (int i = 0; i < 2 * m; ++i) {
      float whole = sum[i / 2][i % 2];
      whole += shuffle_xor(whole, 1);
      whole += shuffle_xor(whole, 2);
      if (i != own) continue;
      total = whole;
      highest = reference[i / 2][i % 2];
      if constexpr (Config::row_max) true_highest = top[i / 2][i % 2];
      if constexpr (Formula::shifts) origin = base[i / 2][i % 2];
    }
    const float unit = folds_scale() ? scale : 1.0f;
    const float from = finite_or_zero(highest) * unit;
    float joined = total, shift = from, shrink = 1;
    if (call.sink != nullptr) {
      const auto sink = static_cast<float>(call.sink[h] - origin);
      shift = finite_or_zero(fmaxf(total > 0 ? from : -infinity(), sink));
      shrink = total > 0 ? exp2_approx((from - shift) * log2_of_e) : 1;
      joined = total * shrink + exp2_approx((sink - shift) * log2_of_e);
    }
    const bool empty = joined == 0;
    const float lse = empty ? -infinity() : static_cast<float>(origin + (shift + logf(joined)));
    const float inverse = shrink * (Config::dropout ? dropout.factor : 1) / joined;
    const auto largest = static_cast<float>(origin + true_highest * unit);
    if (dv_first == 0 && own < 2 * m) write_row(own, lse, total == total ? largest : total);
    // What is empty is zeros, also if a hidden NaN came in.
    const bool nan = write_o(inverse, empty);
    if (any_in_warp(nan)) {
      const Sequence s = sequence();
      mend_rows<Config>(a, {b, h, s, head()}, {q0 + first_row(), 16 * m}, lse, dv_first);
    }
  }

  // Rows of the tensors beyond a sequence belong to it if it is not packed: they are empty.
  FOVEA_DEVICE int row_end() const {
    return call.q_starts != nullptr ? sequence().q_length : call.sq;
  }

  FOVEA_DEVICE void write_row(int number_of_lane, float lse, float largest) const {
    const Sequence s = sequence();
    const int at = q0 + row(number_of_lane / 2, number_of_lane % 2);
    if (at >= row_end()) return;
    const bool inside = at < s.q_length;
    const long long number = row_number(call, s, h, s.q_first + at);
    if (call.lse != nullptr) call.lse[number] = inside ? lse : -infinity();
    if (Config::row_max) call.row_max[number] = inside ? largest : -infinity();
  }

  // Of the row that this lane has finished; see RowFactor.
  FOVEA_DEVICE bool write_o(float factor, bool zero) {
    using Output = typename Config::Output;
    const Sequence s = sequence();
    sync_block();  // the tiles of the other warps are free
    const SharedTile<F32, Config::dv> through{static_cast<Shared>(
        shared.q + thread_index() / 32 * 16 * SharedTile<F32, Config::dv>::stride)};
    bool nan = false;
    FOVEA_UNROLL for (int i = 0; i < m; ++i) {
      const int at = q0 + first_row() + 16 * i;
      RowsOut to = rows_out<Output>(call.o, s.b, h, s.q_first + at, call.dv - dv_first);
      to.data = static_cast<typename Stored<Output>::Type*>(to.data) + dv_first * call.o.feature;
      nan |= write_sums<Output>(through, o[i], to, s.q_length - at, row_end() - at,
                                {factor, i, zero ? 1 : 0});
    }
    return nan;
  }
};

template <class Config>
FOVEA_DEVICE void forward(const Arguments& a) {
  Forward<Config> block(a);
  if (block.works()) block.run();
}

}  // namespace fovea::device
