// The warp that decides what a block works on: it takes tiles of queries, finds the tiles of keys
// that they see, 32 at a time, and lets the hardware copy both. It runs ahead of the warps that
// multiply as far as there are free buffers.
#pragma once

#include "cells.h"
#include "forward_shared.h"
#include "mbarrier.h"
#include "steps.h"
#include "tma.h"

namespace fovea::device {

template <class Layout>
struct Producer {
  static constexpr auto shared = Layout::shared;
  using Barriers = HopperForwardShared;
  static constexpr int rows = Layout::rows, columns = Layout::columns;
  static constexpr unsigned all_parts = (1u << Formula::mask_parts) - 1;  // of the mask
  static constexpr int groups = Layout::groups_classified;
  static constexpr unsigned nobody = TileViews::nothing * (groups == 1 ? 1u : 0x111u);

  const MappedArgumentsOf<Arguments>& a;
  const CallArguments& call;
  int tiles;       // of queries, in all
  unsigned taken;  // the number of the next tile to look at, in lane 0
  Ring q{0, 1}, k{0, 1};
  int place = -1;
  unsigned left_out = 0;  // by which warpgroups, of the step before: TileViews::nothing of each
  // Of the tile that is worked on; common: of its flags. k_length is 0 if it sees no key.
  int q0, common, k_length, k_row, kv_head, batch;
  // Its cells in the map of their tensor: slice, query and what is added to a key.
  int cell_slice, cell_q, cell_k;

  FOVEA_DEVICE explicit Producer(const MappedArgumentsOf<Arguments>& arguments)
      : a(arguments),
        call(a.rest.call),
        tiles(query_tiles<Formula>(call, rows)),
        taken(static_cast<unsigned>(block_x())) {}

  FOVEA_DEVICE static Shared barrier(int which, int stage) { return Layout::barrier(which, stage); }
  FOVEA_DEVICE static Shared place_at(int i) {
    return shared.place + (i & place_stages - 1) * tile_place_bytes;
  }
  FOVEA_DEVICE static Shared views_at(int i) {
    return shared.views + (i & views_stages - 1) * views_bytes;
  }

  FOVEA_DEVICE void run() {
    while (produce()) ++place;
    // Two end steps: a warp that has taken the first one still waits for the step behind it.
    FOVEA_NO_UNROLL for (int i = 0; i < 2; ++i) {
      wait_for_room();
      if (lane_index() == 0) announce({0, ForwardStep::end, 0, 0}, 0);
      k.advance(Layout::k_stages);
    }
  }

  // Behind the first tile of every block, which is that of its own number. The answer comes while
  // something else is done. If there are no more tiles than blocks, nobody has cleared the counter.
  FOVEA_DEVICE void take() {
    if (lane_index() != 0) return;
    taken = static_cast<unsigned>(grid_x());
    if (tiles > grid_x()) taken += count_global(call.taken_tiles, 1);
  }

  // Finds the tile of queries for this place, and which keys it sees; false: there are no more.
  FOVEA_DEVICE bool look_ahead(int into) {
    for (;;) {
      const int number = static_cast<int>(shuffle(taken, 0));
      if (number >= tiles) return false;
      take();
      if (lane_index() == 0) call.taken_tiles[1 + number] = block_x() + 1;
      TilePlace found = place_of(call, query_tile<Formula>(call, number, rows));
      if (!is_written(call, found.s, found.q0, TileRows<Formula>::queries(call, rows))) continue;
      found.key_tiles = is_decoded(call, found.s) ? 0 : (found.s.k_length + columns - 1) / columns;
      found.ascends = ascends(found);
      const Shared to = place_at(into);
      if (lane_index() == 0) store_struct(to, found);
      sync_warp();  // from here on all read it there: registers are few
      const unsigned live = classify(into, first_chunk(found));
      if (lane_index() == 0) store_shared(to, live);  // its first field
      sync_warp();
      return true;
    }
  }

  // --- the tiles of keys that a tile of queries sees ---

  // Of 32 tiles from `first` on, one to a lane.
  FOVEA_DEVICE static int first_chunk(const TilePlace& at) {
    return at.ascends != 0 || at.key_tiles == 0 ? 0 : (at.key_tiles - 1) & ~31;
  }
  // Writes what warpgroups see of them, and returns which are seen at all, a bit for each.
  FOVEA_DEVICE unsigned classify(int of, int first) const {
    const auto found = load_struct<TilePlace>(place_at(of));
    const int i = first + lane_index();
    unsigned views = 0;
    FOVEA_NO_UNROLL for (int group = 0; group < groups; ++group) {
      const TileClass kind =
          i >= found.key_tiles
              ? TileClass::empty()
              : classify_tile<Formula>(a.rest, found.head(call), found.s, rows_of(group, found.q0),
                                       {i * columns, columns}, TileRows<Formula>::heads(call));
      const unsigned view =
          kind.is_empty() ? TileViews::nothing | all_parts : kind.mixed & all_parts;
      views |= view << 4 * group;
    }
    sync_warp();  // all have read those of 32 tiles before
    store_shared(views_at(of) + 2 * lane_index(), static_cast<unsigned short>(views));
    sync_warp();
    return ballot((views & nobody) != nobody);
  }
  // All warpgroups have the same queries if heads share the tile.
  FOVEA_DEVICE TileSpan rows_of(int group, int q0) const {
    if (groups == 1 || TileRows<Formula>::heads(call) > 1) {
      return {q0, TileRows<Formula>::queries(call, rows)};
    }
    return {q0 + warpgroup_rows * group, warpgroup_rows};
  }

  // From the last to the first: so a causal mask's diagonal comes first, and every row finds a
  // score to compare others with. From the first to the last if scores fall along k: they would
  // else grow from tile to tile, and leave the room that sums have above the first reference.
  template <class Lines = Formula>
  FOVEA_DEVICE int ascends(const TilePlace& at) const {
    if constexpr (!Lines::shifts) {
      return 0;
    } else {
      const auto u = Lines::uniform(a.rest, at.head(call));
      unsigned words[Lines::row_words + 1];
      const int q = seen(at.q0, at.s.q_offset);
      Lines::make_row(a.rest, u, q, words);
      const typename Lines::Column nowhere{};
      return Lines::line_k * Lines::slope(a.rest, u, Lines::row(a.rest, u, q, words), nowhere) < 0;
    }
  }
  // -1: there are no more.
  struct Walk {
    int chunk;
    unsigned live;
    int ascends;
  };
  struct SeenTile {
    int index;
    unsigned views;
  };
  FOVEA_DEVICE SeenTile next(Walk& walk) const {
    const bool up = Formula::shifts && walk.ascends != 0;
    while (walk.live == 0) {
      walk.chunk += up ? 32 : -32;
      if (walk.chunk < 0 ||
          (up && walk.chunk >= load_struct<TilePlace>(place_at(place)).key_tiles)) {
        return {-1, 0};
      }
      walk.live = classify(place, walk.chunk);
    }
    const int bit = up ? first_bit(walk.live) : last_bit(walk.live);
    walk.live ^= 1u << bit;
    return {walk.chunk + bit, load_shared<unsigned short>(views_at(place) + 2 * bit)};
  }

  // All steps of one tile of queries, or none in the first turn. After the first of them it looks
  // for the next tile, so that this costs no time; returns whether there is one.
  FOVEA_DEVICE bool produce() {
    const bool exists = place >= 0;
    Walk walk{};
    int flags = ForwardStep::first;
    SeenTile now{-1, 0};
    if (exists) {
      const auto found = load_struct<TilePlace>(place_at(place));
      load_queries(found);
      walk = {first_chunk(found), found.live, found.ascends};
      left_out = 0;
      q0 = found.q0;
      k_length = found.s.k_length;
      k_row = static_cast<int>(found.s.k_first);
      kv_head = found.kv_head;
      batch = found.s.b;
      common = q.stage << ForwardStep::q_shift | (place & place_stages - 1)
                                                     << ForwardStep::place_shift;
      find_cells(found);
    }
    for (bool more = true;;) {
      SeenTile following{-1, 0};
      if (exists) following = next(walk);
      if (exists && now.index < 0 && following.index < 0) {
        now = {0, 0};
        k_length = 0;
      }
      bool looks = !exists;
      if (now.index >= 0) {
        step(now, flags | (following.index < 0 ? ForwardStep::last : 0));
        looks = (flags & ForwardStep::first) != 0;
        flags = 0;
      }
      if (looks) more = look_ahead(place + 1);
      if (following.index < 0) {
        if (exists) q.advance(Layout::q_stages);
        return more;
      }
      now = following;
    }
  }

  // Where the cells of this tile of queries lie, if the hardware copies them: if not all of them
  // are inside of the tensor, indices are clamped, and the stagers do it.
  template <class Cells = Formula>
  FOVEA_DEVICE void find_cells(const TilePlace& at) {
    if constexpr (has_small_cells<Cells>) {
      if (call.cell_slices == 0) return;
      const CellSource from = Cells::cells(a.rest, Cells::uniform(a.rest, at.head(call)));
      const long long bytes = reinterpret_cast<long long>(from.data) - from.tensor;
      cell_slice = static_cast<int>(bytes / (2 * call.cell_slices));
      cell_q = seen(at.q0, at.s.q_offset);
      cell_k = at.s.k_offset;
      const long long q_end =
          static_cast<long long>(at.s.q_offset) + min(at.q0 + rows, at.s.q_length);
      const long long k_end = static_cast<long long>(cell_k) + at.s.k_length;
      if (cell_q >= 0 && cell_k >= 0 && q_end <= from.q_extent && k_end <= from.k_extent) {
        common |= ForwardStep::cells;
      }
    }
  }

  // Does as little as possible, since other warps wait for the keys.
  FOVEA_DEVICE void step(const SeenTile& tile, int flags) {
    const int k0 = tile.index * columns;
    flags |= common | views_of(tile, (flags & ForwardStep::last) != 0) |
             (k0 + columns > k_length ? ForwardStep::cut : 0);
    wait_for_room();
    if (lane_index() == 0) {
      const bool cells = has_small_cells<Formula> && (flags & ForwardStep::cells) != 0;
      announce({k0, flags, q0, k_length - k0}, Layout::k_bytes + (cells ? Layout::cell_bytes : 0));
      FOVEA_UNROLL for (int i = 0; i < pieces_of(Layout::d); ++i) {
        load_tile(shared.k + k.stage * Layout::k_bytes + i * columns * 128, a.maps[map_k],
                  barrier(Barriers::filled_k, k.stage),
                  {i * piece_columns, k_row + k0, kv_head, batch});
      }
      FOVEA_UNROLL for (int i = 0; cells && i < pieces_of(columns); ++i) {
        load_tile(Layout::cells_at(k.stage) + i * rows * 128, a.maps[map_cells],
                  barrier(Barriers::filled_k, k.stage),
                  {cell_k + k0 + i * piece_columns, cell_q, cell_slice, 0});
      }
    }
    k.advance(Layout::k_stages);
  }

  // A warpgroup that sees nothing of a tile leaves it out, but not the last one, at whose end the
  // queries are released, nor two in a row: until it begins another step it holds values of the one
  // before, for which there are but two places.
  FOVEA_DEVICE int views_of(const SeenTile& tile, bool is_last) {
    left_out = is_last || groups == 1 ? 0 : tile.views & nobody & ~left_out;
    const unsigned views = (tile.views & ~nobody) | left_out;
    const unsigned parts = (views | views >> 4 | views >> 8) & all_parts;
    return static_cast<int>(views << ForwardStep::view_shift | parts * ForwardStep::part);
  }

  // All lanes wait: a single lane would be woken late. They meet again behind it: a lane that falls
  // two phases behind would wait for ever.
  FOVEA_DEVICE void wait_for_room() const {
    wait_for(barrier(Barriers::free_k, k.stage), k.parity);
    if constexpr (Formula::has_cells) {  // they come with the keys
      wait_for(barrier(Barriers::free_staged, k.stage), k.parity);
    }
    sync_warp();
  }

  FOVEA_DEVICE void load_queries(const TilePlace& at) const {
    wait_for(barrier(Barriers::free_q, q.stage), q.parity);
    sync_warp();
    if (lane_index() != 0) return;
    const Shared filled = barrier(Barriers::filled_q, q.stage);
    arrive_expecting(filled, Layout::q_bytes);
    FOVEA_UNROLL for (int i = 0; i < pieces_of(Layout::d); ++i) {
      load_tile(shared.q + q.stage * Layout::q_bytes + i * rows * 128, a.maps[map_q], filled,
                {i * piece_columns, static_cast<int>(at.s.q_first) + at.q0, at.h, at.s.b});
    }
  }

  // By one lane.
  FOVEA_DEVICE void announce(const ForwardStep& step, int bytes) const {
    store_step(shared.step + 16 * k.stage, step);
    arrive_expecting(barrier(Barriers::filled_k, k.stage), bytes);
    arrive(barrier(Barriers::announced, k.stage));
  }
};

// The warp that copies values, for each step that the producer announces.
template <class Layout>
struct ValueLoader {
  static constexpr auto shared = Layout::shared;
  using Barriers = HopperForwardShared;
  static constexpr int columns = Layout::columns;

  const MappedArgumentsOf<Arguments>& a;
  Ring v{0, 1};
  int cleared_parity = 0;

  FOVEA_DEVICE explicit ValueLoader(const MappedArgumentsOf<Arguments>& arguments) : a(arguments) {}

  FOVEA_DEVICE static Shared barrier(int which, int stage) { return Layout::barrier(which, stage); }

  FOVEA_DEVICE void run() {
    bool is_first = true;
    for (Ring k;; k.advance(Layout::k_stages)) {
      wait_for(barrier(Barriers::announced, k.stage), k.parity);
      const ForwardStep step = load_step(shared.step + 16 * k.stage);
      sync_warp();
      if (lane_index() == 0) arrive(barrier(Barriers::free_k, k.stage));  // the step was read
      if (step.is(ForwardStep::end)) return;
      if (is_first) load(step);  // for a step before the first: see forward.h
      is_first = false;
      load(step);
    }
  }

  FOVEA_DEVICE void load(const ForwardStep& step) {
    const auto from = load_struct<TilePlace>(shared.place + step.place() * tile_place_bytes);
    // Rows that the tensor does not have come as zeros. Those of something else are cleared: what
    // they hold may be NaN, and 0 times that is NaN.
    const int keep =
        from.s.k_first + from.s.k_length < a.rest.call.rows_k ? from.s.k_length - step.k0 : columns;
    const bool clears = keep < columns;
    const Shared filled =
        clears ? barrier(Barriers::cleared, 0) : barrier(Barriers::filled_v, v.stage);
    const Shared to = shared.v + v.stage * Layout::v_bytes;
    wait_for(barrier(Barriers::free_v, v.stage), v.parity);
    sync_warp();
    if (lane_index() == 0) {
      arrive_expecting(filled, Layout::v_bytes);
      FOVEA_UNROLL for (int i = 0; i < pieces_of(Layout::dv); ++i) {
        load_tile(to + i * columns * 128, a.maps[map_v], filled,
                  {i * piece_columns, static_cast<int>(from.s.k_first) + step.k0, from.kv_head,
                   from.s.b});
      }
    }
    if (clears) {
      wait_for(filled, cleared_parity);
      cleared_parity ^= 1;
      clear_rows(to, keep < 0 ? 0 : keep);
      fence_for_async();
      sync_warp();
      if (lane_index() == 0) arrive(barrier(Barriers::filled_v, v.stage));
    }
    v.advance(value_stages);
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
