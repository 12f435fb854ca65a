// Where a block of the backward works: its sequence, its keys, and the query tiles that it visits.
#pragma once

#include "arguments.h"
#include "formula.h"
#include "primitives.h"
#include "sequence.h"
#include "shared_layout.h"

namespace fovea::device {

inline constexpr float log2_of_e = 1.4426950408889634f;

FOVEA_DEVICE Head head_of(const Call& call, const Sequence& s, int b, int h) {
  return {b + value_of(call.b_offset),
          h + value_of(call.h_offset),
          call.b,
          call.heads_seen,
          call.hkv,
          s.q_length,
          s.k_length};
}

// A tile of queries of one head.
struct QueryTile {
  int h;      // query head
  int first;  // position of its first row in the sequence
  bool full;  // everything in it is kept
};

// The tile of dQ's sums that belongs to a tile of queries: sequences that are packed have theirs
// one after the other, and each may end within a tile.
FOVEA_DEVICE long long sum_tile(const Call& call, const Sequence& s, int b, int h, int first,
                                int rows) {
  if (call.q_starts == nullptr) {
    const int tiles = (call.sq + rows - 1) / rows;
    return (static_cast<long long>(b) * call.h + h) * tiles + first / rows;
  }
  const long long tiles = call.rows_q / rows + call.b;
  return h * tiles + s.q_first / rows + b + first / rows;
}

// What a tile is to the formula, cut at the sequence's lengths.
template <int rows, int columns>
FOVEA_DEVICE Tile classify_tile(const Arguments& a, const Sequence& s, const Head& head,
                                int q_first, int k_first) {
  const int q_last = q_first + rows - 1, k_last = k_first + columns - 1;
  const bool whole = q_last < s.q_length && k_last < s.k_length;
  Box box;
  box.h_first = box.h_last = head.h;
  box.q_first = q_first + s.q_offset;
  box.k_first = k_first + s.k_offset;
  box.q_last = (q_last < s.q_length ? q_last : s.q_length - 1) + s.q_offset;
  box.k_last = (k_last < s.k_length ? k_last : s.k_length - 1) + s.k_offset;
  const Tile tile = Formula::classify(a, head, box);
  return tile == Tile::Full && !whole ? Tile::Mixed : tile;
}

// Goes through the set bits of words in shared memory: a tile's number is its bit's. The words of
// live tiles come first, then those that say which are full.
class LiveTiles {
 public:
  FOVEA_DEVICE LiveTiles(Shared words, int count) : words_(words), count_(count) {}

  // False: there are no more.
  FOVEA_DEVICE bool next(int& tile, bool& full) {
    while (live_ == 0) {
      if (++word_ * 32 >= count_) return false;
      live_ = load_shared<unsigned>(words_ + 4 * word_);
      full_ = load_shared<unsigned>(words_ + classified_tiles / 8 + 4 * word_);
    }
    const unsigned lowest = live_ & (0u - live_);
    live_ ^= lowest;
    full = (full_ & lowest) != 0;
    // The exponent of a power of two is the number of its bit.
    tile = word_ * 32 + static_cast<int>(bits_of(static_cast<float>(lowest)) >> 23) - 127;
    return true;
  }

 private:
  Shared words_;
  int count_;
  int word_ = -1;
  unsigned live_ = 0, full_ = 0;
};

// Writes the words of LiveTiles for one tile after the other; `classify(i)` says what tile i is.
// All threads of the block take part.
template <int threads, class Classify>
FOVEA_DEVICE void write_live_tiles(Shared words, int count, const Classify& classify) {
  FOVEA_NO_UNROLL
  for (int first = 0; first < count; first += threads) {
    const int i = first + thread_index();
    if (first + thread_index() / 32 * 32 >= count) break;
    const Tile tile = i < count ? classify(i) : Tile::Empty;
    const unsigned live = ballot(tile != Tile::Empty), full = ballot(tile == Tile::Full);
    if (lane_index() == 0) {
      store_shared(words + i / 32 * 4, live);
      store_shared(words + classified_tiles / 8 + i / 32 * 4, full);
    }
  }
}

}  // namespace fovea::device
