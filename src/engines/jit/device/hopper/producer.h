// The warp that decides what a block works on: it takes tiles of queries, finds the tiles of keys
// that they see, 32 at a time, and lets the hardware copy both. It runs ahead of the warps that
// multiply as far as there is room.
#pragma once

#include "forward_shared.h"
#include "mbarrier.h"
#include "steps.h"
#include "tma.h"

namespace fovea::device {

// The tiles of keys that a tile of queries sees, from the last to the first: so a causal mask's
// diagonal comes first, and every row finds a score to compare others with.
struct LiveTilesDown {
  int chunk;  // of 32 tiles; those above are done
  unsigned live = 0, mixed = 0;
  FOVEA_DEVICE explicit LiveTilesDown(int tiles) : chunk((tiles + 31) / 32 * 32) {}

  template <class Classify>
  FOVEA_DEVICE LiveTile next(const Classify& classify) {
    while (live == 0) {
      chunk -= 32;
      if (chunk < 0) return {-1, false};
      const Tile kind = classify(chunk + lane_index());
      live = ballot(kind != Tile::Empty);
      mixed = ballot(kind == Tile::Mixed);
    }
    const int bit = last_bit(live);
    live ^= 1u << bit;
    return {chunk + bit, (mixed >> bit & 1) == 0};
  }
};

template <class Layout>
struct Producer {
  static constexpr auto shared = Layout::shared;
  using At = HopperForwardShared;
  static constexpr int rows = Layout::rows, columns = Layout::columns;

  const MappedArgumentsOf<Arguments>& a;
  const Call& call;
  Ring q{0, 1}, k{0, 1}, v{0, 1};
  int place = 0, cleared_parity = 0;
  bool is_first = true;
  // Values are asked for one step after their keys, since they are needed one step later.
  bool waits_for_v = false;
  int v_row, v_head, v_batch, v_keep;  // v_keep: rows that belong to the sequence

  FOVEA_DEVICE explicit Producer(const MappedArgumentsOf<Arguments>& arguments)
      : a(arguments), call(a.rest.call) {}

  FOVEA_DEVICE static Shared barrier(int which, int stage) { return Layout::barrier(which, stage); }

  FOVEA_DEVICE void run() {
    const int tiles = tiles_along(call, rows) * call.h * call.b;
    int tile = take();
    while (tile < tiles) {
      const int next = take();  // in time: the answer comes while this one is worked on
      produce(tile);
      tile = next;
    }
    if (lane_index() == 0) publish({0, Step::end, 0, 0});
    load_values();
  }

  FOVEA_DEVICE int take() const {
    unsigned tile = 0;
    if (lane_index() == 0) tile = count_global(call.taken_tiles, 1);
    return static_cast<int>(shuffle(tile, 0));
  }

  FOVEA_DEVICE void produce(int number) {
    const QueryTile tile = query_tile<Formula>(call, number, rows);
    const Shared at = shared.place + place * place_bytes;
    int count;  // tiles of keys
    {
      const TilePlace found = place_of(call, tile);
      if (!is_written(call, found.s, tile.q0, rows)) return;
      if constexpr (Layout::q_stages == 1) load_values();  // before waiting for who needs them
      if (lane_index() == 0) {
        call.taken_tiles[1 + number] = block_x() + 1;
        wait_for(barrier(At::free_q, q.stage), q.parity);
        store_struct(at, found);
        load_queries(found, tile.q0);
      }
      count = is_decoded(call, found.s) ? 0 : (found.s.k_length + columns - 1) / columns;
      sync_warp();  // from here on all read it there: registers are few
    }
    LiveTilesDown live(count);
    const auto next = [&] {
      return live.next([&](int i) {
        if (i >= count) return Tile::Empty;
        const auto seen_there = load_struct<TilePlace>(at);
        return classify_tile<Formula>(a.rest, seen_there.head, seen_there.s, {tile.q0, rows},
                                      {i * columns, columns});
      });
    };
    const int common = q.stage << Step::q_shift | place << Step::place_shift;
    int flags = common | Step::first;
    LiveTile now = next();
    if (now.index < 0) {
      now = {0, false};
      flags |= Step::hidden;
    }
    while (now.index >= 0) {
      const LiveTile following = (flags & Step::hidden) != 0 ? LiveTile{-1, false} : next();
      if (!now.full) flags |= Step::mixed;
      if (following.index < 0) flags |= Step::last;
      if (lane_index() == 0) {
        publish({now.index * columns, flags, tile.q0, number});
        load_keys(at, now.index * columns);
      }
      k.advance(key_stages);
      if (is_first) {  // values for a step before the first: see forward.h
        remember_values(at, now.index * columns);
        is_first = false;
      }
      load_values();
      remember_values(at, now.index * columns);
      flags = common;
      now = following;
    }
    q.advance(Layout::q_stages);
    place = place + 1 & place_stages - 1;
  }

  // --- by one lane ---

  FOVEA_DEVICE void load_queries(const TilePlace& at, int q0) const {
    const Shared filled = barrier(At::filled_q, q.stage);
    arrive_expecting(filled, Layout::q_bytes);
    FOVEA_UNROLL for (int i = 0; i < pieces_of(Layout::d); ++i) {
      load_tile(shared.q + q.stage * Layout::q_bytes + i * rows * 128, a.maps[map_q], filled,
                {i * piece_columns, static_cast<int>(at.s.q_first) + q0, at.h, at.s.b});
    }
  }

  FOVEA_DEVICE void publish(const Step& step) const {
    wait_for(barrier(At::free_k, k.stage), k.parity);
    if constexpr (Layout::stages_values) {
      wait_for(barrier(At::free_staged, k.stage), k.parity);
    }
    store_step(shared.step + 16 * k.stage, step);
    if constexpr (Layout::stages_values) arrive(barrier(At::announced, k.stage));
    if (step.is(Step::end)) {
      arrive(barrier(At::filled_k, k.stage));
    } else {
      arrive_expecting(barrier(At::filled_k, k.stage), Layout::k_bytes);
    }
  }

  FOVEA_DEVICE void load_keys(Shared place_at, int k0) const {
    const auto at = load_struct<TilePlace>(place_at);
    FOVEA_UNROLL for (int i = 0; i < pieces_of(Layout::d); ++i) {
      load_tile(
          shared.k + k.stage * Layout::k_bytes + i * columns * 128, a.maps[map_k],
          barrier(At::filled_k, k.stage),
          {i * piece_columns, static_cast<int>(at.s.k_first) + k0, at.h / call.group, at.s.b});
    }
  }

  // --- values, by the warp ---

  FOVEA_DEVICE void remember_values(Shared place_at, int k0) {
    const auto at = load_struct<TilePlace>(place_at);
    waits_for_v = true;
    v_row = static_cast<int>(at.s.k_first) + k0;
    v_head = at.h / call.group;
    v_batch = at.s.b;
    // Rows that the tensor does not have come as zeros. Those of something else are cleared: what
    // they hold may be NaN, and 0 times that is NaN.
    v_keep = at.s.k_first + at.s.k_length < call.rows_k ? at.s.k_length - k0 : columns;
  }

  FOVEA_DEVICE void load_values() {
    if (!waits_for_v) return;
    waits_for_v = false;
    const bool clears = v_keep < columns;
    const Shared filled = clears ? barrier(At::cleared, 0) : barrier(At::filled_v, v.stage);
    const Shared to = shared.v + v.stage * Layout::v_bytes;
    if (lane_index() == 0) {
      wait_for(barrier(At::free_v, v.stage), v.parity);
      arrive_expecting(filled, Layout::v_bytes);
      FOVEA_UNROLL for (int i = 0; i < pieces_of(Layout::dv); ++i) {
        load_tile(to + i * columns * 128, a.maps[map_v], filled,
                  {i * piece_columns, v_row, v_head, v_batch});
      }
    }
    if (clears) {
      wait_for(filled, cleared_parity);
      cleared_parity ^= 1;
      clear_rows(to, v_keep < 0 ? 0 : v_keep);
      fence_for_async();
      sync_warp();
      if (lane_index() == 0) arrive(barrier(At::filled_v, v.stage));
    }
    v.advance(key_stages);
  }

  FOVEA_DEVICE static void clear_rows(Shared tile, int first) {
    FOVEA_NO_UNROLL for (int piece = 0; piece < pieces_of(Layout::dv); ++piece) {
      const Shared begin = tile + piece * columns * 128;
      FOVEA_NO_UNROLL for (int i = first * 8 + lane_index(); i < columns * 8; i += 32) {
        store_shared(begin + 16 * i, Words4{0, 0, 0, 0});
      }
    }
  }
};

}  // namespace fovea::device
