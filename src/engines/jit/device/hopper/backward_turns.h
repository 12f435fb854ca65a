// With deterministic=1: who may add to a tile of dQ's sums next. Tiles of keys do so in their
// order; those that no query of the tile looks at are skipped.
//
// Each tile of sums has five sets of tiles of keys, as bits: those that are skipped, and for each
// of the four warps of backward_queries.h those that it has added. Blocks take tiles of keys in
// order, so a block that another one waits for has begun, and itself waits only for earlier ones.
#pragma once

#include "../arguments.h"
#include "../primitives.h"
#include "backward_layout.h"

namespace fovea::device {

template <int tile_keys>
class QueryTurns {
 public:
  // keys: position of the first of a tile of keys
  FOVEA_DEVICE QueryTurns(const CallArguments& call, long long sums, int keys)
      : words_(backward_turn_words(call.skv, tile_keys)),
        left_out_(call.query_turns + sums * (backward_turn_sets * words_)),
        tile_(keys / tile_keys) {}

  FOVEA_DEVICE void leave_out() const { or_global(left_out_ + tile_ / 32, 1u << tile_ % 32); }

  // By a warp, until all tiles before this one have been added by their warps of this number.
  // Nothing is fenced: sums are added in the cache that all blocks share, where the sets are as
  // well, and pass() comes after they have arrived there. Measured: a release in pass() makes
  // backwards 11 to 18 % slower.
  FOVEA_DEVICE void wait(int warp) const {
    const unsigned* const added = of_warp(warp);
    FOVEA_NO_UNROLL for (int i = lane_index(); i <= tile_ / 32; i += 32) {
      const unsigned before = i < tile_ / 32 ? ~0u : (1u << tile_ % 32) - 1;
      wait_for_bits(added + i, left_out_ + i, before);
    }
    sync_warp();
  }
  // By the thread that has added, and waited for it.
  FOVEA_DEVICE void pass(int warp) const {
    or_global(of_warp(warp) + tile_ / 32, 1u << tile_ % 32);
  }

  // Before the first turn, by all threads of a block.
  FOVEA_DEVICE static void clear(const CallArguments& call, long long sums) {
    const int words = backward_turn_sets * backward_turn_words(call.skv, tile_keys);
    for (int i = thread_index(); i < words; i += block_threads()) {
      call.query_turns[sums * words + i] = 0;
    }
  }

 private:
  FOVEA_DEVICE unsigned* of_warp(int warp) const { return left_out_ + (1 + warp) * words_; }

  int words_;  // of a set
  unsigned* left_out_;
  int tile_;
};

}  // namespace fovea::device
