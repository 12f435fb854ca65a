// Keys and values as products read them: tiles of K transposed and of V (forward), and of both both
// ways (backward), in panels of f32. Packed once per key/value head and read by every block of its
// queries, for a wave of heads at a time so that memory stays bounded; or, where a head has one
// block only, tile by tile by the worker that needs them.
#pragma once

#include <cstdint>
#include <span>

#include "engines/cpu/blocks.h"
#include "engines/cpu/call.h"

namespace fovea::cpu {

// One tile of keys. What a direction does not use is empty. Under Prepared::pairs, rows are pairs.
struct KeyTile {
  Panels k_transposed;  // [d][columns]
  Panels v;             // [columns][dv]: forward
  Panels v_transposed;  // [dv][columns]: backward
  Panels k;             // [columns][d]: backward
  int columns = 0;
  bool k_finite = true, v_finite = true;
};

// Memory for `count` tiles.
class KeyTiles {
 public:
  KeyTiles() = default;
  KeyTiles(Arena& arena, const Prepared& plan, const Sizes& sizes, std::int64_t count);

  // Reads tile `tile` of head `group` of a sequence into place `at`.
  void pack(const Call& call, const Sequence& sequence, std::int64_t group, std::int64_t tile,
            std::int64_t at) const;
  KeyTile find(const Call& call, const Sequence& sequence, std::int64_t tile,
               std::int64_t at) const;

 private:
  struct Facts {
    bool k_finite = true, v_finite = true;
    float* in_place = nullptr;  // V forward, K backward, where the caller's memory serves as it is
  };
  KeyTile places(const Call& call, const Sequence& sequence, std::int64_t tile,
                 std::int64_t at) const;
  Panels place(const Call& call, const Panels& all, std::int64_t rows, std::int64_t columns,
               std::int64_t at) const;

  bool backward_ = false;
  Panels k_transposed_, v_, v_transposed_, k_;
  std::span<Facts> facts_;
};

// The heads (b, g) that are worked on together, numbered b * Hkv + g.
struct Wave {
  std::int64_t first = 0, count = 0;
};
// How many: enough for many threads, few enough for memory.
std::int64_t wave_heads(const Sizes& sizes, Direction direction);

// What all blocks of a wave's queries read: its keys, and what TileMap knows of captured tensors.
struct WaveKeys {
  // `packed`: false where workers pack for themselves.
  WaveKeys(Arena& arena, const Prepared& plan, const Sizes& sizes, bool packed);

  std::byte* table(std::int64_t head_in_wave) const {
    return tables.data() + static_cast<std::size_t>(head_in_wave) * table_bytes;
  }
  std::byte* walk(int worker) const {
    return walks.data() + static_cast<std::size_t>(worker) * walk_bytes;
  }
  KeyTile find(const Call& call, const Sequence& sequence, std::int64_t head_in_wave,
               std::int64_t tile) const {
    const std::int64_t at = head_in_wave * tiles_of(call.sizes.skv) + tile;
    return tiles.find(call, sequence, tile, at);
  }

  std::int64_t heads;  // of a wave
  KeyTiles tiles;      // [heads][tiles]
  std::size_t table_bytes, walk_bytes;
  std::span<std::byte> tables;  // [heads]
  std::span<std::byte> walks;   // [workers]: scratch of TileMap and TileWalk
};

// Fills both for a wave: only tiles that some query may look at, and only of heads with at least
// `least_blocks` blocks of queries.
void prepare_keys(const Call& call, const WaveKeys& keys, const Wave& wave,
                  std::int64_t least_blocks);

// The rows of one block, or of all blocks of a group, as TileWalk takes them.
RowBlock rows_seen(const Call& call, const Sequence& sequence, std::int64_t first_head,
                   const Block& block);

}  // namespace fovea::cpu
