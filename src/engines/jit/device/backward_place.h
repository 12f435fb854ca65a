// Where a block of the backward works: tiles of queries, the tiles of dQ's sums, which of many
// tiles it visits, and how its warps share each product.
#pragma once

#include "element.h"
#include "live_tiles.h"
#include "shared_layout.h"
#include "softmax.h"

namespace fovea::device {

// A tile of queries of one head.
struct HeadQueryTile {
  int h;      // query head
  int first;  // position of its first row in the sequence
  bool full;  // everything in it is kept
};

// The work of a block, kept in shared memory and read from there whenever it is needed: registers
// are for sums. Numbers of tiles run through all heads that the block visits.
struct BlockPlace {
  Sequence s;
  int b, first_head, tiles;  // tiles: of queries, in a head
  int k_first;               // position of the block's first key
  float scale;

  // By one thread; a barrier must follow.
  FOVEA_DEVICE void write(Shared at) const {
    store_shared(at, s.q_first);
    store_shared(at + 8, s.k_first);
    const int words[9]{s.b, s.q_length, s.k_length, s.q_offset, s.k_offset,
                       b,   first_head, tiles,      k_first};
    FOVEA_UNROLL for (int i = 0; i < 9; ++i) store_shared(at + 16 + 4 * i, words[i]);
    store_shared(at + 52, scale);
  }
  FOVEA_DEVICE static BlockPlace read(Shared at) {
    const auto firsts = load_shared<Words4>(at), sizes = load_shared<Words4>(at + 16);
    const auto numbers = load_shared<Words4>(at + 32);
    const auto rest = load_shared<Words2>(at + 48);
    const auto wide = [](unsigned low, unsigned high) {
      return static_cast<long long>(static_cast<unsigned long long>(high) << 32 | low);
    };
    const auto number = [](unsigned x) { return static_cast<int>(x); };
    BlockPlace place;
    place.s = {number(sizes.x),          number(sizes.y),          number(sizes.z),
               wide(firsts.x, firsts.y), wide(firsts.z, firsts.w), number(sizes.w),
               number(numbers.x)};
    place.b = number(numbers.y);
    place.first_head = number(numbers.z);
    place.tiles = number(numbers.w);
    place.k_first = number(rest.x);
    place.scale = float_of_bits(rest.y);
    return place;
  }
};

// The tile of dQ's sums that belongs to the tile of queries that begins with position `first`.
FOVEA_DEVICE long long sum_tile(const CallArguments& call, const Sequence& s, int b, int h,
                                int first, int rows) {
  if (call.q_starts == nullptr) {
    return (static_cast<long long>(b) * call.h + h) * sum_tiles(call.sq, 0, rows) + first / rows;
  }
  return h * sum_tiles(call.rows_q, call.b, rows) + s.q_first / rows + b + first / rows;
}

// A set of tiles, as bits in shared memory: the words of live ones, then those that say which of
// them are full. Unlike LiveTiles of the forward it needs no registers for classifying while a
// block's sums fill nearly all of them.
class ClassifiedTiles {
 public:
  FOVEA_DEVICE ClassifiedTiles(Shared words, int count) : words_(words), count_(count) {}

  // `classify(i)` says what tile i is. All threads of the block take part; a barrier must follow.
  template <int threads, class Classify>
  FOVEA_DEVICE void write(const Classify& classify) const {
    FOVEA_NO_UNROLL for (int first = thread_index() / 32 * 32; first < count_; first += threads) {
      const int i = first + lane_index();
      const TileClass tile = i < count_ ? classify(i) : TileClass::empty();
      const unsigned live = ballot(!tile.is_empty()), full = ballot(tile.is_full());
      if (lane_index() == 0) {
        store_shared(words_ + first / 8, live);
        store_shared(words_ + classified_tiles / 8 + first / 8, full);
      }
    }
  }

  FOVEA_DEVICE LiveTile next() {
    while (live_ == 0) {
      if (++word_ * 32 >= count_) return {-1, false};
      live_ = load_shared<unsigned>(words_ + 4 * word_);
    }
    const int bit = first_bit(live_);
    live_ &= live_ - 1;
    const auto full = load_shared<unsigned>(words_ + classified_tiles / 8 + 4 * word_);
    return {word_ * 32 + bit, (full >> bit & 1) != 0};
  }

 private:
  Shared words_;
  int count_;
  int word_ = -1;
  unsigned live_ = 0;
};

// How a block's warps share a rows x columns result, and this warp's part of it.
template <int warps, int rows, int columns, int step>
struct WarpPart {
  static constexpr int along_rows = warps_along_rows(warps, rows, columns, step);
  static constexpr int height = rows / along_rows, width = columns / (warps / along_rows);
  static constexpr int m = height / 16, n = width / 8;
  static_assert(height % 16 == 0 && width % step == 0);
  using Sums = float[m][n][4];
  FOVEA_DEVICE static int row() { return thread_index() / 32 % along_rows * height; }
  FOVEA_DEVICE static int column() { return thread_index() / 32 / along_rows * width; }
};

// The least columns that a warp's part of a product can have.
template <class Element>
inline constexpr int column_step = bytes_of<Element> == 4 ? 8 : 16;

// Which warp has which sums of dQ, in backward.h and in backward_finish.h.
template <class Config>
using QueryPart =
    WarpPart<Config::threads / 32, Config::rows, Config::d, column_step<typename Config::Element>>;

// How a warp's sums of dQ lie in global memory: for each piece of 16 x 8 the four sums of each
// lane, or the first sums of 32 lanes, then their second ones and so on.
FOVEA_DEVICE void add_piece(float* piece, const float (&x)[4]) {
  if constexpr (adds_vectors) {
    add_global(piece + 4 * lane_index(), Floats4{x[0], x[1], x[2], x[3]});
  } else {
    FOVEA_UNROLL for (int e = 0; e < 4; ++e) add_global(piece + 32 * e + lane_index(), x[e]);
  }
}
FOVEA_DEVICE Floats4 read_piece(const float* piece) {
  if constexpr (adds_vectors) {
    return *reinterpret_cast<const Floats4*>(piece + 4 * lane_index());
  } else {
    const float* const from = piece + lane_index();
    return {from[0], from[32], from[64], from[96]};
  }
}

}  // namespace fovea::device
