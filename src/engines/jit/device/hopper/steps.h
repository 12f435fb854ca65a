// What the producer of a block tells the other warps: which tile of queries meets which tile of
// keys next. All warps work in this order.
#pragma once

#include "../formula.h"
#include "../live_tiles.h"
#include "../sequence.h"
#include "../staged.h"
#include "forward_shared.h"

namespace fovea::device {

struct ForwardStep {
  static constexpr int first = 1;  // of a tile of queries
  static constexpr int last = 2;   // of it: its queries are needed no more
  static constexpr int end = 4;    // there are no more
  static constexpr int cut = 8;    // the keys end in it
  static constexpr int part = 16;  // the first part of the mask hides some of it; others follow
  static constexpr int masked = (part << most_mask_parts) - cut;  // any of these
  static constexpr int unseen = part << most_mask_parts;  // no row of this warpgroup sees the keys
  static constexpr int q_shift = 8;
  static constexpr int cells = 1 << 9;          // the cells of a captured tensor come with the keys
  static constexpr int after_unseen = 1 << 10;  // this warpgroup left out the step before
  static constexpr int place_shift = 12;
  static constexpr int view_shift = 16;  // four bits for each warpgroup: see TileViews

  int k0, flags, q0;
  int keys;  // that the sequence has from k0 on
  FOVEA_DEVICE bool is(int flag) const { return (flags & flag) != 0; }
  FOVEA_DEVICE int q_stage() const { return flags >> q_shift & 1; }
  FOVEA_DEVICE int place() const { return flags >> place_shift & (place_stages - 1); }
  // The same step with the flags of one warpgroup's rows instead of those of all rows.
  FOVEA_DEVICE ForwardStep of_warpgroup(int group) const {
    constexpr int own = unseen | (part << most_mask_parts) - part;
    const int view = flags >> (view_shift + 4 * group) << 4;
    return {k0, (flags & ~own) | (view & own), q0, keys};
  }
};
static_assert(ForwardStep::part == 1 << 4 && ForwardStep::unseen == 1 << 7);

FOVEA_DEVICE void store_step(Shared at, const ForwardStep& step) {
  store_shared(at, Words4{static_cast<unsigned>(step.k0), static_cast<unsigned>(step.flags),
                          static_cast<unsigned>(step.q0), static_cast<unsigned>(step.keys)});
}
FOVEA_DEVICE ForwardStep load_step(Shared at) {
  const auto words = load_shared<Words4>(at);
  return {static_cast<int>(words.x), static_cast<int>(words.y), static_cast<int>(words.z),
          static_cast<int>(words.w)};
}

// What the rows of each warpgroup see of a tile of keys: four bits for each, of which the first
// ones are those parts of the mask that hide some of it, and the last one says that they see
// nothing.
struct TileViews {
  static constexpr unsigned nothing = 1u << most_mask_parts;
};

// What is known of a tile of queries before it is worked on.
struct TilePlace {
  // Of the 32 tiles of keys with which it begins, a bit for each: those that are seen. Written when
  // the rest is known.
  unsigned live;
  Sequence s;
  int b, h, kv_head, q0;
  int key_tiles;  // of the sequence
  int ascends;    // whether the tiles of keys are walked from the first to the last

  FOVEA_DEVICE Head head(const CallArguments& call) const { return head_of(call, s, b, h); }
  // The same tile as a later one of its heads sees it.
  FOVEA_DEVICE TilePlace of_head(int i) const {
    TilePlace other = *this;
    other.h += i;
    return other;
  }
};
static_assert(sizeof(TilePlace) <= tile_place_bytes);

// Rows of the tensors beyond a sequence belong to it if it is not packed: they are empty.
FOVEA_DEVICE int row_end(const CallArguments& call, const Sequence& s) {
  return call.q_starts != nullptr ? s.q_length : call.sq;
}
FOVEA_DEVICE bool is_decoded(const CallArguments& call, const Sequence& s) {
  return call.split_keys > 0 && decodes(s.q_length, s.k_length, call.group);
}

// How the rows of a tile are shared by heads: only one has them if the formula stages values, which
// are those of one head.
template <class Formula>
struct TileRows {
  static constexpr bool shares = Formula::row_words + Formula::column_words == 0 &&
                                 Formula::diagonal_words == 0 && !Formula::has_cells;
  FOVEA_DEVICE static int heads(const CallArguments& call) { return shares ? call.tile_heads : 1; }
  FOVEA_DEVICE static int queries(const CallArguments& call, int rows) {
    return shares ? call.tile_queries : rows;
  }
  FOVEA_DEVICE static int head_tiles(const CallArguments& call) {
    return shares ? call.head_tiles : call.h;
  }
};

// A tile of queries by its number: which one comes first, so that blocks that run at the same time
// share keys, and long tiles do not come last.
struct QueryTileOrigin {
  int b, h, q0;  // h: the first of its heads
};
template <class Formula>
FOVEA_DEVICE int tiles_along(const CallArguments& call, int rows) {
  const int queries = TileRows<Formula>::queries(call, rows);
  return (call.sq + queries - 1) / queries;
}
template <class Formula>
FOVEA_DEVICE int query_tiles(const CallArguments& call, int rows) {
  return tiles_along<Formula>(call, rows) * TileRows<Formula>::head_tiles(call) * call.b;
}

template <class Formula>
FOVEA_DEVICE QueryTileOrigin query_tile(const CallArguments& call, int number, int rows) {
  const int along = tiles_along<Formula>(call, rows);
  const int heads = TileRows<Formula>::head_tiles(call), in_tile = TileRows<Formula>::heads(call);
  const int queries = TileRows<Formula>::queries(call, rows);
  if constexpr (Formula::batches_share_cells) {
    const int together = batches_together(call.b);
    const int index = number / together, head = index / along;
    return {head / call.h * together + number % together, head % call.h, index % along * rows};
  } else if constexpr (Formula::has_mask) {
    // Under a causal mask the last tiles of a head take longest: they come first, of so many heads.
    // Measured on an H200: sections of 16 heads, 2 to 10 % faster than 4, 8, 32 or 64.
    constexpr int section = 16;
    const int before = number / (along * section) * section;
    const int here = min(section, call.b * heads - before), index = number - before * along;
    const int head = before + index % here;
    return {head / heads, head % heads * in_tile, (along - 1 - index / here) * queries};
  } else {
    const int head = number / along;
    return {head / heads, head % heads * in_tile, (number - head * along) * queries};
  }
}

FOVEA_DEVICE TilePlace place_of(const CallArguments& call, const QueryTileOrigin& tile) {
  TilePlace place;
  place.s = sequence_of(call, tile.b);
  place.b = tile.b;
  place.h = tile.h;
  place.kv_head = tile.h / call.group;
  place.q0 = tile.q0;
  return place;
}

// Whether a tile is written at all: other kernels write what belongs to no packed sequence, and,
// after this one, the rows of sequences that are decoded.
FOVEA_DEVICE bool is_written(const CallArguments& call, const Sequence& s, int q0, int queries) {
  return q0 < row_end(call, s) && (!is_decoded(call, s) || q0 + queries > s.q_length);
}

}  // namespace fovea::device
