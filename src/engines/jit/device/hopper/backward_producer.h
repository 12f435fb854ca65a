// The warp of hopper/backward.h that decides what the block works on and loads it into shared
// memory: tiles of keys as blocks become free, the tiles of queries that look at them, and what the
// formula needs of each.
#pragma once

#include "../distances.h"
#include "../live_tiles.h"
#include "../staged.h"
#include "../tile_values.h"
#include "backward_shape.h"
#include "backward_step.h"
#include "backward_turns.h"
#include "tma.h"

namespace fovea::device {

template <class Config>
class BackwardProducer {
  using Shape = HopperBackwardShape<Config>;

 public:
  FOVEA_DEVICE BackwardProducer(const MappedArgumentsOf<Arguments>& a, BackwardBarriers barriers)
      : maps_(a.maps), a_(a.rest), call_(a.rest.call), barriers_(barriers) {}

  FOVEA_DEVICE void run() {
    const int tiles = key_tiles() * call_.hkv * call_.b;
    // The next number is asked for as late as possible: tiles are begun in the order of their
    // numbers, which balances the blocks, and with deterministic=1 others wait for earlier ones.
    for (int tile = next_number(); tile < tiles; tile = next_number()) produce(tile);
    publish_bare(BackwardStep{step_end, 0, 0, 0, 0, {}, 0});
  }

 private:
  struct KeyPlace {
    int b, g, k_first;  // sequence, key head, position of the first key
  };
  struct MaskedTile {
    int index;       // of a tile of queries; -1: there are no more
    unsigned flags;  // step_mixed, and which parts of the mask make it so
  };

  FOVEA_DEVICE int key_tiles() const { return (call_.skv + Shape::keys - 1) / Shape::keys; }
  FOVEA_DEVICE int next_number() const {
    const unsigned mine = lane_index() == 0 ? count_global(call_.tile_counter, 1) : 0u;
    return static_cast<int>(shuffle(mine, 0));
  }
  FOVEA_DEVICE int heads_together(int tiles, int heads) const;
  FOVEA_DEVICE KeyPlace place_of(int tile) const;
  FOVEA_DEVICE static int query_tiles(const Sequence& s) {
    return (s.q_length + Shape::queries - 1) / Shape::queries;
  }
  FOVEA_DEVICE TileClass class_of(const Sequence& s, const KeyPlace& at, int i) const;
  FOVEA_DEVICE void produce(int tile);
  FOVEA_DEVICE void produce_step(const KeyPlace& at, const Sequence& s, int tile, unsigned flags);

  FOVEA_DEVICE void begin_step(const BackwardStep& step);
  FOVEA_DEVICE void end_step(const BackwardStep* has_cells = nullptr);
  FOVEA_DEVICE void load_cells(const BackwardStep& step, Shared full);
  FOVEA_DEVICE void publish_bare(const BackwardStep& step);
  FOVEA_DEVICE void load_queries(const BackwardStep& step);
  FOVEA_DEVICE void load_distances(const BackwardStep& step, Shared signal) const;
  FOVEA_DEVICE void load_keys(const BackwardStep& step);
  FOVEA_DEVICE void stage_values(const BackwardStep& step);
  FOVEA_DEVICE static void clear_rows(Shared tile, int chunks, int rows, int first);

  const TensorMap (&maps_)[map_count];
  const Arguments& a_;
  const CallArguments& call_;
  BackwardBarriers barriers_;
  Ring ring_{0, 1};
  int number_ = 0;       // of the next step
  int keys_parity_ = 1;  // of the next tile of keys
  int landed_parity_ = 0;
  unsigned staged_columns_ = 0;  // a bit for each stage that has those of this head
  int cell_slice_ = 0;           // of this head, in the map of cells
};

// How many heads take turns: after the first keys of each come the second of each. Blocks that run
// at the same time should have different keys of few heads, which share queries in the cache.
// Under a mask the first keys often have the most queries (causal ones): those of several heads
// come first, so that no long tile is left for the end. With deterministic=1 blocks with keys of
// one head wait for one another, which costs nothing if they begin one after the other: as many
// heads as the blocks can work on.
template <class Config>
FOVEA_DEVICE int BackwardProducer<Config>::heads_together(int tiles, int heads) const {
  if constexpr (Formula::classifies) return min(heads, Shape::heads_together);
  return Config::deterministic ? min(heads, (grid_x() + tiles - 1) / tiles) : 1;
}

template <class Config>
FOVEA_DEVICE typename BackwardProducer<Config>::KeyPlace BackwardProducer<Config>::place_of(
    int tile) const {
  const int tiles = key_tiles(), heads = call_.hkv * call_.b;
  if constexpr (Formula::has_cells && Formula::batches_share_cells) {
    const int rest = tile / call_.b;  // batches follow one another, with the same cells
    return {tile % call_.b, rest / tiles, rest % tiles * Shape::keys};
  }
  const int together = heads_together(tiles, heads);
  const int section = tile / (tiles * together), rest = tile - section * tiles * together;
  const int in_section = min(together, heads - section * together);
  const int k = rest / in_section, head = section * together + rest % in_section;
  return {head / call_.hkv, head % call_.hkv, k * Shape::keys};
}

// Of tile i of queries, counted through all heads of the group. One that is empty adds nothing to
// dQ.
template <class Config>
FOVEA_DEVICE TileClass BackwardProducer<Config>::class_of(const Sequence& s, const KeyPlace& at,
                                                          int i) const {
  const int tiles = query_tiles(s), head = i / tiles, first = (i - head * tiles) * Shape::queries;
  if constexpr (!Formula::classifies) {
    const bool whole =
        first + Shape::queries <= s.q_length && at.k_first + Shape::keys <= s.k_length;
    return {whole ? 0 : TileClass::edge};
  }
  const int h = at.g * call_.group + head;
  const TileClass kind = class_of_tile<Formula>(a_, head_of(call_, s, at.b, h), s,
                                                {first, Shape::queries}, {at.k_first, Shape::keys});
  if (Config::deterministic && kind.is_empty()) {
    QueryTurns<Shape::keys>(call_, sum_tile(call_, s, at.b, h, first, Shape::queries), at.k_first)
        .leave_out();
  }
  return kind;
}

// A tile of keys: which tiles of queries look at it, then a step for each.
template <class Config>
FOVEA_DEVICE void BackwardProducer<Config>::produce(int tile) {
  const KeyPlace at = place_of(tile);
  const Sequence s = sequence_of(call_, at.b);
  if (at.k_first >= (call_.q_starts != nullptr ? s.k_length : call_.skv)) return;
  LiveTiles all(at.k_first < s.k_length ? query_tiles(s) * call_.group : 0);
  // With deterministic=1 from the last to the first: under a causal mask all keys have the last
  // queries in common, so that blocks that wait for one another do so only at their beginning.
  const auto in_order = [count = all.count](int i) {
    return Config::deterministic ? count - 1 - i : i;
  };
  TileClass own{0};  // of this lane, of the 32 that are looked at
  const auto next = [&] {
    const LiveTile found = next_live(all, [&](int i) {
      const TileClass kind = class_of(s, at, in_order(i));
      if constexpr (Formula::mask_parts > 1) own = kind;
      return kind;
    });
    unsigned mixed = found.full ? 0u : step_mixed;
    if constexpr (Formula::mask_parts > 1) {
      mixed |= (shuffle(own.mixed, found.index & 31) & TileClass::some_part) << step_part_shift;
    }
    if (Config::deterministic && found.index >= 0) return MaskedTile{in_order(found.index), mixed};
    return MaskedTile{found.index, mixed};
  };
  // A step says whether it is the last of its keys, so the next one is found before it is
  // announced.
  unsigned first = step_first;
  for (MaskedTile live{-1, 0};;) {
    const MaskedTile following = next();
    if (live.index >= 0) {
      const bool same_head =
          following.index >= 0 && live.index / query_tiles(s) == following.index / query_tiles(s);
      const unsigned last = following.index < 0 ? step_last : 0u;
      const unsigned end = same_head ? 0u : static_cast<unsigned>(step_head_end);
      produce_step(at, s, live.index, first | last | end | live.flags);
      first = same_head ? 0u : static_cast<unsigned>(step_new_head);
    } else if (following.index < 0) {
      return publish_bare(
          BackwardStep{step_nothing, at.b, at.g * call_.group, 0, at.k_first, s, 0});
    }
    if (following.index < 0) return;
    live = following;
  }
}

template <class Config>
FOVEA_DEVICE void BackwardProducer<Config>::produce_step(const KeyPlace& at, const Sequence& s,
                                                         int tile, unsigned flags) {
  const int tiles = query_tiles(s), head = tile / tiles, h = at.g * call_.group + head;
  const int q_first = (tile - head * tiles) * Shape::queries;
  const BackwardStep step{
      flags, at.b, h, q_first, at.k_first, s, sum_tile(call_, s, at.b, h, q_first, Shape::queries)};
  begin_step(step);
  load_queries(step);
  if ((flags & step_first) != 0) load_keys(step);
  if constexpr (Shape::stages_values) stage_values(step);
  end_step(Formula::has_cells ? &step : nullptr);
}

// --- one step ---

template <class Config>
FOVEA_DEVICE void BackwardProducer<Config>::begin_step(const BackwardStep& step) {
  wait_for(barriers_.empty_q(ring_.stage), ring_.parity);
  sync_warp();  // no lane falls two phases behind
  if (lane_index() == 0) {
    step.write(Shape::at.steps + number_ % backward_steps * backward_step_bytes);
  }
  ++number_;
}

// What the formula needs is staged, or its copies are under way.
template <class Config>
FOVEA_DEVICE void BackwardProducer<Config>::end_step(const BackwardStep* has_cells) {
  const Shared full = barriers_.full_q(ring_.stage);
  if constexpr (Formula::has_cells) {
    if (has_cells != nullptr) {
      load_cells(*has_cells, full);
      return ring_.advance(Shape::q_stages);
    }
  }
  if constexpr (Shape::stages_values) {
    sync_warp();
    if (lane_index() == 0) arrive(full);
  }
  ring_.advance(Shape::q_stages);
}

// By the map of their tensor; one by one if they are not all inside of it, since indices are
// clamped then.
template <class Config>
FOVEA_DEVICE void BackwardProducer<Config>::load_cells(const BackwardStep& step, Shared full) {
  const auto uniform = Formula::uniform(a_, head_of(call_, step.s, step.b, step.h));
  const CellSource from = Formula::cells(a_, uniform);
  if ((step.flags & (step_first | step_new_head)) != 0) {
    const long long bytes = reinterpret_cast<long long>(from.data) - from.tensor;
    cell_slice_ = static_cast<int>(bytes / (2 * call_.cell_slices));
  }
  const TileBox box{seen(step.q_first, step.s.q_offset), seen(step.k_first, step.s.k_offset),
                    min(step.s.q_length - step.q_first, Shape::queries),
                    min(step.s.k_length - step.k_first, Shape::keys)};
  const auto to = Shape::cells(ring_.stage);
  const bool inside = box.q_first >= 0 && box.k_first >= 0 &&
                      static_cast<long long>(box.q_first) + box.q_count <= from.q_extent &&
                      static_cast<long long>(box.k_first) + box.k_count <= from.k_extent;
  if (!inside) {
    FOVEA_NO_UNROLL for (int i = lane_index(); i < Shape::queries * Shape::keys; i += 32) {
      const int row = i / Shape::keys, column = i % Shape::keys;
      typename Formula::Cell::Stored value = 0;
      if (row < box.q_count && column < box.k_count) {
        value = load_cell<typename Formula::Cell::Stored>(from, box, row, column);
      }
      store_shared(to.at(row, column), value);
    }
  }
  sync_warp();
  if (lane_index() == 0) {
    arrive_expecting(full, inside ? Shape::cells_bytes : 0);
    FOVEA_UNROLL for (int column = 0; inside && column < Shape::keys; column += piece_columns) {
      load_tile(to.at(0, column), maps_[map_cells], full,
                {box.k_first + column, box.q_first, cell_slice_, 0});
    }
  }
}

// A step without a tile of queries.
template <class Config>
FOVEA_DEVICE void BackwardProducer<Config>::publish_bare(const BackwardStep& step) {
  begin_step(step);
  if (lane_index() == 0) {
    arrive(barriers_.full_q(ring_.stage));
    arrive(barriers_.full_grad_o(ring_.stage));
  }
  end_step();
}

template <class Config>
FOVEA_DEVICE void BackwardProducer<Config>::load_queries(const BackwardStep& step) {
  const int stage = ring_.stage;
  const Shared full_q = barriers_.full_q(stage), full_grad_o = barriers_.full_grad_o(stage);
  const int count = step.s.q_length - step.q_first;
  // Rows behind the end of a padded sequence may hold anything. Those of other sequences are only
  // masked.
  const bool cleared = call_.q_lengths != nullptr && count < Shape::queries;
  const Shared q_signal = cleared ? barriers_.landed() : full_q;
  const Shared grad_o_signal = cleared ? barriers_.landed() : full_grad_o;
  if (lane_index() == 0) {
    const int row = static_cast<int>(step.s.q_first) + step.q_first;
    const float* const terms = call_.row_terms + step.sums * (2 * Shape::queries);
    if (cleared) {
      arrive_expecting(barriers_.landed(), Shape::q_bytes + Shape::grad_o_bytes +
                                               2 * Shape::term_bytes + Shape::diagonal_bytes);
    } else {
      arrive_expecting(full_q, Shape::q_bytes + Shape::term_bytes + Shape::diagonal_bytes);
    }
    FOVEA_UNROLL for (int i = 0; i < Shape::d / 64; ++i) {
      load_tile(Shape::q_tile(stage) + i * Shape::q_chunk, maps_[map_q], q_signal,
                {64 * i, row, step.h, step.s.b});
    }
    load_bytes(Shape::lse(stage), terms, Shape::term_bytes, q_signal);
    load_distances(step, q_signal);
    if (!cleared) arrive_expecting(full_grad_o, Shape::grad_o_bytes + Shape::term_bytes);
    FOVEA_UNROLL for (int i = 0; i < Shape::dv / 64; ++i) {
      load_tile(Shape::grad_o_tile(stage) + i * Shape::q_chunk, maps_[map_grad_o], grad_o_signal,
                {64 * i, row, step.h, step.s.b});
    }
    load_bytes(Shape::delta(stage), terms + Shape::queries, Shape::term_bytes, grad_o_signal);
  }
  if (!cleared) return;
  wait_for(barriers_.landed(), landed_parity_);
  landed_parity_ ^= 1;
  clear_rows(Shape::q_tile(stage), Shape::d / 64, Shape::queries, count);
  clear_rows(Shape::grad_o_tile(stage), Shape::dv / 64, Shape::queries, count);
  fence_for_async();
  sync_warp();
  if (lane_index() == 0) {
    arrive(full_q);
    arrive(full_grad_o);
  }
}

// What the formula has for the diagonals of the step's scores. By one thread.
template <class Config>
FOVEA_DEVICE void BackwardProducer<Config>::load_distances(const BackwardStep& step,
                                                           Shared signal) const {
  if constexpr (Formula::diagonal_words > 0) {
    const unsigned* const from =
        distances_of<Formula>(call_, step.b, step.h) +
        distance_place(call_.sq, step.k_first - step.q_first - Shape::queries + 1);
    constexpr int bytes = Shape::diagonal_bytes / Formula::diagonal_words;
    FOVEA_UNROLL for (int w = 0; w < Formula::diagonal_words; ++w) {
      load_bytes(Shape::diagonal(ring_.stage) + w * bytes,
                 from + w * distance_stride(call_.sq, call_.skv), bytes, signal);
    }
  }
}

template <class Config>
FOVEA_DEVICE void BackwardProducer<Config>::load_keys(const BackwardStep& step) {
  wait_for(barriers_.empty_keys(), keys_parity_);
  sync_warp();
  keys_parity_ ^= 1;
  const int count = step.s.k_length - step.k_first, g = step.h / call_.group;
  const bool cleared = call_.k_lengths != nullptr && count < Shape::keys;
  const Shared signal = cleared ? barriers_.landed() : barriers_.full_keys();
  if (lane_index() == 0) {
    const int row = static_cast<int>(step.s.k_first) + step.k_first;
    arrive_expecting(signal, Shape::k_bytes + Shape::v_bytes);
    FOVEA_UNROLL for (int i = 0; i < Shape::d / 64; ++i) {
      load_tile(Shape::at.k + i * Shape::k_chunk, maps_[map_k], signal, {64 * i, row, g, step.s.b});
    }
    FOVEA_UNROLL for (int i = 0; i < Shape::dv / 64; ++i) {
      load_tile(Shape::at.v + i * Shape::k_chunk, maps_[map_v], signal, {64 * i, row, g, step.s.b});
    }
  }
  if (!cleared) return;
  wait_for(barriers_.landed(), landed_parity_);
  landed_parity_ ^= 1;
  clear_rows(Shape::at.k, Shape::d / 64, Shape::keys, count);
  clear_rows(Shape::at.v, Shape::dv / 64, Shape::keys, count);
  fence_for_async();
  sync_warp();
  if (lane_index() == 0) arrive(barriers_.full_keys());
}

// Zeros in rows from `first` on: the swizzle stays within rows.
template <class Config>
FOVEA_DEVICE void BackwardProducer<Config>::clear_rows(Shared tile, int chunks, int rows,
                                                       int first) {
  const int words = (rows - first) * (Shape::row_bytes / 16);
  FOVEA_NO_UNROLL for (int chunk = 0; chunk < chunks; ++chunk) {
    const Shared at = tile + (chunk * rows + first) * Shape::row_bytes;
    FOVEA_NO_UNROLL for (int i = lane_index(); i < words; i += 32) {
      store_shared(at + 16 * i, Words4{0, 0, 0, 0});
    }
  }
}

// Values of the formula for this step's head, rows and columns. Those of the mask are not needed if
// nothing of the tile is masked.
template <class Config>
FOVEA_DEVICE void BackwardProducer<Config>::stage_values(const BackwardStep& step) {
  if ((step.flags & (step_first | step_new_head)) != 0) staged_columns_ = 0;
  if (!Formula::has_mod && !Config::Terms::any && (step.flags & step_mixed) == 0) return;
  const int stage = ring_.stage;
  const auto uniform = Formula::uniform(a_, head_of(call_, step.s, step.b, step.h));
  const int q = seen(step.q_first, step.s.q_offset), k = seen(step.k_first, step.s.k_offset);
  if constexpr (Shape::has_uniform) {
    if (lane_index() == 0) store_struct(Shape::uniform(stage), uniform);
  }
  if constexpr (Formula::row_words > 0) {
    FOVEA_UNROLL for (int first = 0; first < Shape::queries; first += 32) {
      unsigned words[Formula::row_words > 0 ? Formula::row_words : 1];
      const int i = first + lane_index();
      Formula::make_row(a_, uniform, seen(q, i), words);
      store_words<Formula::row_words>(Shape::row_words(stage), Shape::queries, i, words);
    }
  }
  // Those of keys are the same for all steps of a head.
  if (Formula::column_words > 0 && (staged_columns_ >> stage & 1) == 0) {
    staged_columns_ |= 1 << stage;
    FOVEA_UNROLL for (int first = 0; first < Shape::keys; first += 32) {
      unsigned words[Formula::column_words > 0 ? Formula::column_words : 1];
      const int i = first + lane_index();
      Formula::make_column(a_, uniform, seen(k, i), words);
      store_words<Formula::column_words>(Shape::column_words(stage), Shape::keys, i, words);
    }
  }
}

}  // namespace fovea::device
