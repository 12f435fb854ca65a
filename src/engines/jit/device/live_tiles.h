// Which tiles a block must visit. A warp classifies 32 tiles at a time, one per lane, and walks
// those that are not empty; every warp of a block does the same, so no barrier is needed.
#pragma once

#include "formula.h"
#include "primitives.h"
#include "sequence.h"

namespace fovea::device {

struct LiveTiles {
  int count;  // of tiles in all
  int chunk = -32;
  unsigned live = 0, full = 0;  // of the 32 tiles from `chunk` on
  FOVEA_DEVICE explicit LiveTiles(int tiles) : count(tiles) {}
};

struct LiveTile {
  int index;  // -1: there are no more
  bool full;  // nothing in it is masked
};

// `classify(tile)` gives a TileClass.
template <class Classify>
FOVEA_DEVICE LiveTile next_live(LiveTiles& tiles, const Classify& classify) {
  while (tiles.live == 0) {
    tiles.chunk += 32;
    if (tiles.chunk >= tiles.count) return {-1, false};
    const int tile = tiles.chunk + lane_index();
    const TileClass kind = tile < tiles.count ? classify(tile) : TileClass::empty();
    tiles.live = ballot(!kind.is_empty());
    tiles.full = ballot(kind.is_full());
  }
  const int bit = first_bit(tiles.live);
  tiles.live &= tiles.live - 1;
  return {tiles.chunk + bit, (tiles.full >> bit & 1) != 0};
}

// Positions of a sequence that form a tile, counted from its beginning; the last may be beyond it.
struct TileSpan {
  int first, count;
};

// The class of queries x keys of a head, or of several from that one on, with what lies beyond the
// sequence counted as masked.
template <class Formula, class Arguments>
FOVEA_DEVICE TileClass class_of_tile(const Arguments& a, const Head& head, const Sequence& s,
                                     const TileSpan& q, const TileSpan& k, int heads = 1) {
  const int q_end = min(q.first + q.count, s.q_length), k_end = min(k.first + k.count, s.k_length);
  if (q.first >= q_end || k.first >= k_end) return TileClass::empty();
  const bool edge = q.first + q.count > s.q_length || k.first + k.count > s.k_length;
  const long long q_first = static_cast<long long>(q.first) + s.q_offset;
  const long long k_first = static_cast<long long>(k.first) + s.k_offset;
  const long long q_last = q_first + (q_end - q.first - 1),
                  k_last = k_first + (k_end - k.first - 1);
  // Positions that wrap around are no interval.
  const auto fits = [](long long x) { return x == static_cast<int>(x); };
  TileClass kind{TileClass::some_part};
  if (fits(q_first) && fits(q_last) && fits(k_first) && fits(k_last)) {
    const Box box{head.h,
                  head.h + heads - 1,
                  static_cast<int>(q_first),
                  static_cast<int>(q_last),
                  static_cast<int>(k_first),
                  static_cast<int>(k_last)};
    kind = Formula::classify(a, head, box);
  }
  if (edge) kind.mixed |= TileClass::edge;  // one that is empty stays so
  return kind;
}
// Called, not inlined: it is long, and runs once for 32 tiles.
template <class Formula, class Arguments>
FOVEA_DEVICE_CALL TileClass classify_tile(const Arguments& a, Head head, Sequence s, TileSpan q,
                                          TileSpan k, int heads = 1) {
  return class_of_tile<Formula>(a, head, s, q, k, heads);
}

// What formulas see of head h of sequence b.
FOVEA_DEVICE Head head_of(const CallArguments& call, const Sequence& s, int b, int h) {
  return {seen(b, value_of(call.b_offset)),
          seen(h, value_of(call.h_offset)),
          call.b,
          call.heads_seen,
          call.hkv,
          s.q_length,
          s.k_length};
}

}  // namespace fovea::device
