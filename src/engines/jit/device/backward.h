// The backward of one tile of keys: dK and dV of a key/value head stay in registers while the block
// walks the query tiles of its group of heads. Five products per tile: S = Q K^T, dP = dO V^T, dV
// += P^T dO, dK += dS^T Q, and dQ's part dS K, which is added to f32 sums in global memory
// (backward_finish.h reads them). A deterministic plan leaves dQ to backward_dq.h.
//
// Grid: key tiles x hkv x sequences, in one row, key tiles fastest. Needs delta (backward_delta.h).
#pragma once

#include "backward_place.h"
#include "backward_scores.h"
#include "careful_backward.h"
#include "tile.h"

namespace fovea::device {

// Which warp computes which part of each product, and where everything lies in shared memory.
template <class Config>
struct BackwardShape {
  using Element = typename Config::Element;
  static constexpr int rows = Config::rows, columns = Config::columns;
  static constexpr int warps = Config::threads / 32;
  static constexpr int step = column_step<Element>;
  static constexpr BackwardShared shared{tile_sizes_of<Config, Formula>(), Config::q_stages,
                                         Config::grad_o_stages, Config::captured_bytes};
  using Scores = WarpPart<warps, rows, columns, step>;
  using KeySums = WarpPart<warps, columns, Config::d, step>;
  using ValueSums = WarpPart<warps, columns, Config::dv, step>;
  using QuerySums = QueryPart<Config>;
  using TileOfD = SharedTile<Element, Config::d>;
  using TileOfDv = SharedTile<Element, Config::dv>;
  using TileOfKeys = SharedTile<Element, columns>;  // P and dS
  static constexpr int q_bytes = rows * TileOfD::stride, grad_o_bytes = rows * TileOfDv::stride;
};

template <class Config, class Terms>
class Backward {
  using Shape = BackwardShape<Config>;
  using Element = typename Config::Element;
  static constexpr BackwardShared at_ = Shape::shared;
  static_assert(at_.bytes <= Config::shared_bytes);
  static constexpr int threads = Config::threads, rows = Shape::rows, columns = Shape::columns;
  static constexpr bool adds_q = Config::want_q && !Config::deterministic;

 public:
  FOVEA_DEVICE explicit Backward(const Arguments& a) : a_(a), call_(a.call) {}

  FOVEA_DEVICE void run();

 private:
  FOVEA_DEVICE static int key_tiles(const CallArguments& call) {
    return (call.skv + columns - 1) / columns;
  }
  FOVEA_DEVICE static BlockPlace place() { return BlockPlace::read(at_.place); }
  FOVEA_DEVICE static HeadQueryTile tile_of(const BlockPlace& here, const LiveTile& tile) {
    const int head = tile.index / here.tiles;
    return {here.first_head + head, (tile.index - head * here.tiles) * rows, tile.full};
  }
  // The class of a tile if the formula keeps everything.
  FOVEA_DEVICE static TileClass edge_class(const BlockPlace& here, const HeadQueryTile& tile) {
    const bool whole =
        tile.first + rows <= here.s.q_length && here.k_first + columns <= here.s.k_length;
    return {whole ? 0 : TileClass::edge};
  }
  FOVEA_DEVICE Head head_of_tile(const BlockPlace& here, const HeadQueryTile& tile) const {
    return head_of(call_, here.s, here.b, tile.h);
  }
  FOVEA_DEVICE static typename Shape::TileOfD q_tile(int stage) {
    return {static_cast<Shared>(at_.q + (Config::q_stages > 1 ? stage * Shape::q_bytes : 0))};
  }
  FOVEA_DEVICE static typename Shape::TileOfDv grad_o_tile(int stage) {
    return {static_cast<Shared>(at_.grad_o +
                                (Config::grad_o_stages > 1 ? stage * Shape::grad_o_bytes : 0))};
  }
  FOVEA_DEVICE static typename Shape::TileOfD k_tile() { return {static_cast<Shared>(at_.k)}; }
  FOVEA_DEVICE static typename Shape::TileOfDv v_tile() { return {static_cast<Shared>(at_.v)}; }
  FOVEA_DEVICE static typename Shape::TileOfKeys p_tile() { return {static_cast<Shared>(at_.p)}; }
  FOVEA_DEVICE static typename Shape::TileOfKeys ds_tile() { return {static_cast<Shared>(at_.ds)}; }

  FOVEA_DEVICE void copy_keys() const;
  FOVEA_DEVICE void copy_q(const HeadQueryTile& tile, int stage) const;
  FOVEA_DEVICE void copy_grad_o(const HeadQueryTile& tile, int stage) const;
  FOVEA_DEVICE void stage_words(const HeadQueryTile& tile, bool new_head) const;
  FOVEA_DEVICE void scores(const HeadQueryTile& tile, int stage);
  FOVEA_DEVICE void add_query_sums(const HeadQueryTile& tile) const;
  FOVEA_DEVICE void visit(HeadQueryTile tile, HeadQueryTile next, bool more, int stage);
  FOVEA_DEVICE void visit_segment(int first, int count);

  template <class Part, class Gradient>
  FOVEA_DEVICE bool write_part(const TensorArgument& to, int features, float factor,
                               typename Part::Sums& sums) const;
  FOVEA_DEVICE void write();

  const Arguments& a_;
  const CallArguments& call_;
  Terms captured_;
  int captured_head_ = -1;  // whose sums are in captured_
  typename Shape::KeySums::Sums grad_k_;
  typename Shape::ValueSums::Sums grad_v_;
};

template <class Config, class Terms>
FOVEA_DEVICE void Backward<Config, Terms>::copy_keys() const {
  const BlockPlace here = place();
  const Sequence& s = here.s;
  const long long first = s.k_first + here.k_first;
  const int count = s.k_length - here.k_first, g = here.first_head / call_.group;
  copy_tile<Element, columns, threads>(
      k_tile(), rows_of<Element>(call_.k, s.b, g, first, count, call_.d), thread_index());
  copy_tile<Element, columns, threads>(
      v_tile(), rows_of<Element>(call_.v, s.b, g, first, count, call_.dv), thread_index());
}

// A tile's queries, with lse and delta of its rows.
template <class Config, class Terms>
FOVEA_DEVICE void Backward<Config, Terms>::copy_q(const HeadQueryTile& tile, int stage) const {
  const Sequence s = place().s;
  const long long first = s.q_first + tile.first;
  const int count = s.q_length - tile.first;
  copy_tile<Element, rows, threads>(
      q_tile(stage), rows_of<Element>(call_.q, s.b, tile.h, first, count, call_.d), thread_index());
  const long long at = row_number(call_, s, tile.h, first);
  for (int i = thread_index(); i < 2 * rows; i += threads) {
    const int row = i < rows ? i : i - rows;
    const float* const from = i < rows ? call_.lse : call_.delta;
    const int to = (i < rows ? at_.lse : at_.delta) + (stage * rows + row) * 4;
    copy_async<4>(to, row < count ? from + at + row : from, row < count ? 4 : 0);
  }
}

template <class Config, class Terms>
FOVEA_DEVICE void Backward<Config, Terms>::copy_grad_o(const HeadQueryTile& tile, int stage) const {
  using GradO = typename Config::GradO;
  const Sequence s = place().s;
  copy_tile<GradO, rows, threads>(grad_o_tile(stage),
                                  rows_of<GradO>(call_.grad_o, s.b, tile.h, s.q_first + tile.first,
                                                 s.q_length - tile.first, call_.dv),
                                  thread_index());
}

template <class Config, class Terms>
FOVEA_DEVICE void Backward<Config, Terms>::stage_words(const HeadQueryTile& tile,
                                                       bool new_head) const {
  if constexpr (Formula::row_words > 0 || Formula::column_words > 0 ||
                Formula::diagonal_words > 0 || Formula::has_cells) {
    const BlockPlace here = place();
    const auto uniform = Formula::uniform(a_, head_of_tile(here, tile));
    stage_rows<Formula>(a_, uniform, at_.row_words, seen(tile.first, here.s.q_offset), rows);
    if (new_head) {
      stage_columns<Formula>(a_, uniform, at_.column_words, seen(here.k_first, here.s.k_offset),
                             columns);
    }
    const TileBox box{seen(tile.first, here.s.q_offset), seen(here.k_first, here.s.k_offset),
                      here.s.q_length - tile.first, here.s.k_length - here.k_first};
    copy_cells<Formula, rows, columns, threads>(a_, uniform, at_.cells, box);
    if constexpr (Formula::has_cells) commit_copies();
    stage_diagonals<Formula, rows, columns>(a_, uniform, at_.diagonal, box);
  }
}

// S, dP, and what is made of them: P and dS in shared memory.
template <class Config, class Terms>
FOVEA_DEVICE void Backward<Config, Terms>::scores(const HeadQueryTile& tile, int stage) {
  using Part = typename Shape::Scores;
  typename Part::Sums p, ds;
  clear(p);
  clear(ds);
  const int row = Part::row(), column = Part::column();
  multiply<false, false, Config::d>(p, q_tile(stage), {row, 0}, k_tile(), {column, 0});
  multiply<false, false, Config::dv>(ds, grad_o_tile(stage), {row, 0}, v_tile(), {column, 0});
  const BlockPlace here = place();
  const Shared at_row = stage * rows * 4;
  const ScorePlace at{row + lane_index() / 4,
                      column + lane_index() % 4 * 2,
                      seen(tile.first, here.s.q_offset),
                      seen(here.k_first, here.s.k_offset),
                      here.s.q_length - tile.first,
                      here.s.k_length - here.k_first,
                      at_.lse + at_row,
                      at_.delta + at_row,
                      static_cast<Shared>(at_.row_words),
                      static_cast<Shared>(at_.column_words),
                      {static_cast<Shared>(at_.diagonal), static_cast<Shared>(at_.cells)}};
  ScoreRow score_rows[2 * Part::m];
  const bool has_empty_row = load_score_rows<Element>(at, score_rows);
  const Head head = head_of_tile(here, tile);
  const auto uniform = Formula::uniform(a_, head);
  ScoreScale scaled;
  scaled.scale = here.scale;
  if constexpr (Config::dropout) scaled.dropout = dropout_of(call_, head);
  const bool masked = !tile.full || has_empty_row;
  score_gradients<Config>(a_, uniform, scaled, at, score_rows, masked, p, ds, captured_);
  if constexpr (Config::want_v) store_sums(p_tile(), {row, column}, p);
  if constexpr (Config::want_k || adds_q || Terms::reads_ds) {
    store_sums(ds_tile(), {row, column}, ds);
  }
}

// Each warp adds its own sums, 512 bytes in a row for each piece of 16 x 8.
template <class Config, class Terms>
FOVEA_DEVICE void Backward<Config, Terms>::add_query_sums(const HeadQueryTile& tile) const {
  using Part = typename Shape::QuerySums;
  typename Part::Sums sums;
  clear(sums);
  multiply<false, true, columns>(sums, ds_tile(), {Part::row(), 0}, k_tile(), {0, Part::column()});
  const BlockPlace here = place();
  float* const to = call_.grad_q_sum +
                    sum_tile(call_, here.s, here.b, tile.h, tile.first, rows) * (rows * Config::d) +
                    thread_index() / 32 * Part::m * Part::n * 128;
  FOVEA_UNROLL for (int i = 0; i < Part::m; ++i) {
    FOVEA_UNROLL for (int j = 0; j < Part::n; ++j) {
      add_piece(to + (i * Part::n + j) * 128, sums[i][j]);
    }
  }
}

// One tile, whose copies are under way. Begins the copies of the next tile as soon as there is
// room.
template <class Config, class Terms>
FOVEA_DEVICE void Backward<Config, Terms>::visit(HeadQueryTile tile, HeadQueryTile next, bool more,
                                                 int stage) {
  wait_copies<0>();
  sync_block();
  if (Config::q_stages > 1 && more) copy_q(next, 1 - stage);
  if (Config::grad_o_stages > 1 && more) copy_grad_o(next, 1 - stage);
  commit_copies();
  if constexpr (Terms::any) {
    if (tile.h != captured_head_) {
      captured_head_ = tile.h;
      captured_.new_head(a_, Formula::uniform(a_, head_of_tile(place(), tile)));
    }
  }
  scores(tile, stage);
  sync_block();
  if constexpr (Terms::reads_ds) {
    const BlockPlace here = place();
    const TileBox box{seen(tile.first, here.s.q_offset), seen(here.k_first, here.s.k_offset), rows,
                      columns};
    captured_.read(a_, Formula::uniform(a_, head_of_tile(here, tile)), ds_tile(), box,
                   static_cast<Shared>(at_.diagonal));
  }
  if (more) stage_words(next, next.h != tile.h);
  if constexpr (Config::want_v) {
    using Part = typename Shape::ValueSums;
    multiply<true, true, rows>(grad_v_, p_tile(), {0, Part::row()}, grad_o_tile(stage),
                               {0, Part::column()});
  }
  if (Config::grad_o_stages == 1 && more) {
    sync_block();
    copy_grad_o(next, 1 - stage);
    commit_copies();
  }
  if constexpr (adds_q) add_query_sums(tile);
  if constexpr (Config::want_k) {
    using Part = typename Shape::KeySums;
    multiply<true, true, rows>(grad_k_, ds_tile(), {0, Part::row()}, q_tile(stage),
                               {0, Part::column()});
  }
  if (Config::q_stages == 1 && more) {
    sync_block();
    copy_q(next, 1 - stage);
    commit_copies();
  }
}

// `count` tiles from number `first` on, counted through all heads of the group.
template <class Config, class Terms>
FOVEA_DEVICE void Backward<Config, Terms>::visit_segment(int first, int count) {
  ClassifiedTiles tiles(at_.classes, count);
  sync_block();
  tiles.template write<threads>([&](int i) {
    const BlockPlace here = place();
    const HeadQueryTile tile = tile_of(here, {first + i, false});
    if constexpr (!Formula::classifies) return edge_class(here, tile);
    return classify_tile<Formula>(a_, head_of_tile(here, tile), here.s, {tile.first, rows},
                                  {here.k_first, columns});
  });
  sync_block();
  LiveTile live = tiles.next();
  if (live.index < 0) return;
  HeadQueryTile tile = tile_of(place(), {first + live.index, live.full});
  copy_q(tile, 0);
  copy_grad_o(tile, 0);
  commit_copies();
  stage_words(tile, true);
  for (int stage = 0; live.index >= 0; stage ^= 1) {
    live = tiles.next();
    const HeadQueryTile next =
        live.index >= 0 ? tile_of(place(), {first + live.index, live.full}) : tile;
    visit(tile, next, live.index >= 0, stage);
    tile = next;
  }
}

// This warp's part of dK or dV, through shared memory. Says whether this thread has a NaN.
template <class Config, class Terms>
template <class Part, class Gradient>
FOVEA_DEVICE bool Backward<Config, Terms>::write_part(const TensorArgument& to, int features,
                                                      float factor,
                                                      typename Part::Sums& sums) const {
  const BlockPlace here = place();
  const Sequence& s = here.s;
  // A warp has the same memory for both: there is no barrier between them.
  constexpr int widest = larger(Shape::KeySums::width, Shape::ValueSums::width);
  const SharedTile<F32, Part::width> through{
      static_cast<Shared>(thread_index() / 32 * writing_bytes(1, widest))};
  static_assert(writing_bytes(Shape::warps, widest) <= at_.lse);
  bool nan = false;
  FOVEA_UNROLL for (int i = 0; i < Part::m; ++i) {
    const int at = here.k_first + Part::row() + 16 * i;
    const int exist = call_.q_starts != nullptr ? s.k_length : call_.skv;
    RowsOut rows_to = rows_out<Gradient>(to, s.b, here.first_head / call_.group, s.k_first + at,
                                         features - Part::column());
    rows_to.data =
        static_cast<typename Stored<Gradient>::Type*>(rows_to.data) + Part::column() * to.feature;
    nan |= device::write_sums<Gradient>(through, sums[i], rows_to, s.k_length - at, exist - at,
                                        {factor, 0});
  }
  return nan;
}

template <class Config, class Terms>
FOVEA_DEVICE void Backward<Config, Terms>::write() {
  bool nan = false;
  sync_block();  // the tiles of the other warps are free
  if constexpr (Config::want_k) {
    nan |= write_part<typename Shape::KeySums, typename Config::GradK>(call_.grad_k, call_.d,
                                                                       place().scale, grad_k_);
  }
  if constexpr (Config::want_v) {
    nan |= write_part<typename Shape::ValueSums, typename Config::GradV>(call_.grad_v, call_.dv,
                                                                         1.0f, grad_v_);
  }
  if (any_in_block(nan)) mend_keys<Config>(a_, place(), columns);
}

template <class Config, class Terms>
FOVEA_DEVICE void Backward<Config, Terms>::run() {
  const int above = block_x() / key_tiles(call_), b = above / call_.hkv, g = above % call_.hkv;
  const Sequence s = sequence_of(call_, b);
  const int k_first = block_x() % key_tiles(call_) * columns;
  if (k_first >= (call_.q_starts != nullptr ? s.k_length : call_.skv)) return;
  const int tiles = (s.q_length + rows - 1) / rows;
  if (thread_index() == 0) {
    BlockPlace{s, b, g * call_.group, tiles, k_first, value_of(call_.scale)}.write(at_.place);
  }
  sync_block();
  if constexpr (Config::want_k) clear(grad_k_);
  if constexpr (Config::want_v) clear(grad_v_);
  if constexpr (Terms::any) captured_.begin(at_.captured);
  const int total = k_first < s.k_length ? tiles * call_.group : 0;
  if (total > 0) copy_keys();
  FOVEA_NO_UNROLL
  for (int first = 0; first < total; first += classified_tiles) {
    visit_segment(first, total - first < classified_tiles ? total - first : classified_tiles);
  }
  if constexpr (Terms::any) {
    sync_block();
    captured_.end(a_);
  }
  commit_copies();  // of keys that no query looked at
  wait_copies<0>();
  write();
}

// Config::Terms: NoCaptured, or what engines/jit/captured_text writes.
template <class Config>
FOVEA_DEVICE void backward(const Arguments& a) {
  Backward<Config, typename Config::Terms>(a).run();
}

}  // namespace fovea::device
