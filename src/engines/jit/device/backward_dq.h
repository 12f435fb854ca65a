// dQ without atomics, for deterministic plans: a block owns a tile of queries of one head and goes
// through the live tiles of keys in order. Each warp owns 16 rows of it, and dS stays in its
// registers. Grid: query tiles x h x sequences, in one row, query tiles fastest.
#pragma once

#include "backward_place.h"
#include "backward_scores.h"
#include "careful_backward.h"
#include "tile.h"

namespace fovea::device {

template <class Config>
class BackwardDq {
  using Element = typename Config::Element;
  using GradO = typename Config::GradO;
  static constexpr int rows = Config::rows, columns = Config::columns, threads = Config::threads;
  static constexpr int stages = Config::stages, keys = columns / 8, features = Config::d / 8;
  static_assert(rows == 16 * Config::warps);
  static constexpr TileSizes sizes_ = tile_sizes_of<Config, Formula>();
  static constexpr BackwardDqShared at_{sizes_, stages};
  static_assert(at_.bytes <= Config::shared_bytes);
  using TileOfD = SharedTile<Element, Config::d>;
  using TileOfDv = SharedTile<Element, Config::dv>;
  using TileOfKeys = SharedTile<Element, columns>;

 public:
  FOVEA_DEVICE explicit BackwardDq(const Arguments& a) : a_(a), call_(a.call) {
    const int tiles = (call_.sq + rows - 1) / rows, above = block_x() / tiles;
    q_first_ = (tiles - 1 - block_x() % tiles) * rows;  // under a causal mask the last take longest
    h_ = above % call_.h;
    b_ = above / call_.h;
    s_ = sequence_of(call_, b_);
    head_ = head_of(call_, s_, b_, h_);
    uniform_ = Formula::uniform(a, head_);
    scaled_.scale = value_of(call_.scale);
    if constexpr (Config::dropout) scaled_.dropout = dropout_of(call_, head_);
  }

  FOVEA_DEVICE void run();

 private:
  FOVEA_DEVICE int warp_row() const { return thread_index() / 32 * 16; }
  FOVEA_DEVICE int row_end() const { return call_.q_starts != nullptr ? s_.q_length : call_.sq; }
  FOVEA_DEVICE static TileOfD q_tile() { return {static_cast<Shared>(at_.q)}; }
  FOVEA_DEVICE static TileOfDv grad_o_tile() { return {static_cast<Shared>(at_.grad_o)}; }
  FOVEA_DEVICE static TileOfD k_tile(int stage) {
    return {static_cast<Shared>(at_.k + stage * columns * TileOfD::stride)};
  }
  FOVEA_DEVICE static TileOfDv v_tile(int stage) {
    return {static_cast<Shared>(at_.v + stage * columns * TileOfDv::stride)};
  }
  FOVEA_DEVICE static Shared column_words(int stage) {
    return at_.column_words + stage * 4 * columns * Formula::column_words;
  }
  FOVEA_DEVICE static TileValues values(int stage) {
    return {static_cast<Shared>(at_.diagonal + stage * diagonal_bytes(sizes_)),
            static_cast<Shared>(at_.cells + stage * cells_bytes(sizes_))};
  }
  FOVEA_DEVICE LiveTile next(LiveTiles& tiles) const {
    return next_live(tiles, [&](int tile) {
      return classify_tile<Formula>(a_, head_, s_, {q_first_, rows}, {tile * columns, columns});
    });
  }
  FOVEA_DEVICE void copy_rows() const;
  FOVEA_DEVICE void copy_keys(int tile, int stage) const;
  FOVEA_DEVICE void visit(const LiveTile& tile, int stage);
  FOVEA_DEVICE void write();

  const Arguments& a_;
  const CallArguments& call_;
  int b_, h_, q_first_;
  Sequence s_;
  Head head_;
  typename Formula::Uniform uniform_;
  ScoreScale scaled_;
  float grad_q_[1][features][4];
};

template <class Config>
FOVEA_DEVICE void BackwardDq<Config>::copy_rows() const {
  const long long first = s_.q_first + q_first_;
  const int count = s_.q_length - q_first_;
  copy_tile<Element, rows, threads>(
      q_tile(), rows_of<Element>(call_.q, s_.b, h_, first, count, call_.d), thread_index());
  copy_tile<GradO, rows, threads>(grad_o_tile(),
                                  rows_of<GradO>(call_.grad_o, s_.b, h_, first, count, call_.dv),
                                  thread_index());
  const long long number = row_number(call_, s_, h_, first);
  for (int i = thread_index(); i < rows; i += threads) {
    const bool exists = i < count;
    const long long at = exists ? number + i : 0;
    copy_async<4>(at_.lse + 4 * i, call_.lse + at, exists ? 4 : 0);
    copy_async<4>(at_.delta + 4 * i, call_.delta + at, exists ? 4 : 0);
  }
  stage_rows<Formula>(a_, uniform_, at_.row_words, seen(q_first_, s_.q_offset), rows);
}

template <class Config>
FOVEA_DEVICE void BackwardDq<Config>::copy_keys(int tile, int stage) const {
  const int first = tile * columns, count = s_.k_length - first, g = h_ / call_.group;
  copy_tile<Element, columns, threads>(
      k_tile(stage), rows_of<Element>(call_.k, s_.b, g, s_.k_first + first, count, call_.d),
      thread_index());
  copy_tile<Element, columns, threads>(
      v_tile(stage), rows_of<Element>(call_.v, s_.b, g, s_.k_first + first, count, call_.dv),
      thread_index());
  stage_columns<Formula>(a_, uniform_, column_words(stage), seen(first, s_.k_offset), columns);
  const TileBox box{seen(q_first_, s_.q_offset), seen(first, s_.k_offset), s_.q_length - q_first_,
                    count};
  copy_cells<Formula, rows, columns, threads>(a_, uniform_, values(stage).cells, box);
  stage_diagonals<Formula, rows, columns>(a_, uniform_, values(stage).diagonal, box);
}

template <class Config>
FOVEA_DEVICE void BackwardDq<Config>::visit(const LiveTile& tile, int stage) {
  float p[1][keys][4], ds[1][keys][4];
  clear(p);
  clear(ds);
  multiply<false, false, Config::d>(p, q_tile(), {warp_row(), 0}, k_tile(stage), {0, 0});
  multiply<false, false, Config::dv>(ds, grad_o_tile(), {warp_row(), 0}, v_tile(stage), {0, 0});
  const int k_first = tile.index * columns;
  const ScorePlace place{warp_row() + lane_index() / 4,
                         lane_index() % 4 * 2,
                         seen(q_first_, s_.q_offset),
                         seen(k_first, s_.k_offset),
                         s_.q_length - q_first_,
                         s_.k_length - k_first,
                         static_cast<Shared>(at_.lse),
                         static_cast<Shared>(at_.delta),
                         static_cast<Shared>(at_.row_words),
                         column_words(stage),
                         values(stage)};
  NoCaptured none;
  ScoreRow score_rows[2];
  const bool has_empty_row = load_score_rows<Element>(place, score_rows);
  const bool masked = !tile.full || has_empty_row;
  score_gradients<Config>(a_, uniform_, scaled_, place, score_rows, masked, p, ds, none);
  if constexpr (bytes_of<Element> == 4) {
    const TileOfKeys through{static_cast<Shared>(at_.ds)};
    store_sums(through, {warp_row(), 0}, ds);
    sync_warp();
    multiply<false, true, columns>(grad_q_, through, {warp_row(), 0}, k_tile(stage), {0, 0});
    sync_warp();
  } else {
    multiply_registers(grad_q_, ds, k_tile(stage), {0, 0});
  }
}

template <class Config>
FOVEA_DEVICE void BackwardDq<Config>::write() {
  using GradQ = typename Config::GradQ;
  sync_block();  // the tiles of the other warps are free
  const SharedTile<F32, Config::d> through{
      static_cast<Shared>(warp_row() * SharedTile<F32, Config::d>::stride)};
  const int at = q_first_ + warp_row();
  const bool nan = write_sums<GradQ>(
      through, grad_q_[0], rows_out<GradQ>(call_.grad_q, s_.b, h_, s_.q_first + at, call_.d),
      s_.q_length - at, row_end() - at, {scaled_.scale, 0});
  if (any_in_block(nan)) mend_queries<Config>(a_, b_, h_, s_, q_first_);
}

template <class Config>
FOVEA_DEVICE void BackwardDq<Config>::run() {
  if (q_first_ >= row_end()) return;
  clear(grad_q_);
  LiveTiles tiles((s_.k_length + columns - 1) / columns);
  LiveTile tile = next(tiles);
  if (tile.index >= 0) {
    copy_rows();
    copy_keys(tile.index, 0);
    commit_copies();
  }
  for (int stage = 0; tile.index >= 0;) {
    wait_copies<0>();
    sync_block();  // this tile is there, and nobody reads the one before it any more
    const LiveTile following = next(tiles);
    if (stages > 1 && following.index >= 0) {
      stage ^= 1;
      copy_keys(following.index, stage);
      commit_copies();
      visit(tile, stage ^ 1);
    } else {
      visit(tile, stage);
      if (following.index >= 0) {
        sync_block();
        copy_keys(following.index, stage);
        commit_copies();
      }
    }
    tile = following;
  }
  write();
}

template <class Config>
FOVEA_DEVICE void backward_dq(const Arguments& a) {
  BackwardDq<Config>(a).run();
}

}  // namespace fovea::device
