// Keys and values as products read them, in panels of f32: tiles of K transposed and of V
// (forward), and of both in both orientations (backward). They are packed once per key/value head
// and read by every block of its queries, for a wave of heads at a time so that memory stays
// bounded; or by the worker that does all blocks of a head, so that they stay in its cache; or tile
// by tile, if a head has only one block.
#pragma once

#include <cstdint>
#include <span>

#include "engines/cpu/call.h"
#include "engines/cpu/schedule.h"

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

// Keys [first, last) of a tile: all of them, or one half.
struct KeysOfTile {
  int first = 0, last = tile_columns;
};

// Memory for `count` tiles.
class KeyTiles {
 public:
  KeyTiles() = default;
  KeyTiles(Arena& arena, const Prepared& plan, const Sizes& sizes, std::int64_t count);

  // Reads tile `tile` of a head into place `at`.
  void pack(const Call& call, const KeyHead& head, std::int64_t tile, std::int64_t at,
            const KeysOfTile& keys = {}) const;
  KeyTile find(const Call& call, const Sequence& sequence, std::int64_t tile,
               std::int64_t at) const;

 private:
  struct TileInfo {
    bool k_finite = true, v_finite = true;
    float* in_place = nullptr;  // V forward, K backward, if the caller's memory serves as it is
  };
  KeyTile places(const Call& call, const Sequence& sequence, std::int64_t tile,
                 std::int64_t at) const;
  Panels place(const Call& call, const Panels& all, std::int64_t rows, std::int64_t columns,
               std::int64_t at) const;

  bool backward_ = false;
  Panels k_transposed_, v_, v_transposed_, k_;
  std::span<TileInfo> infos_;  // [tiles][2]: of each half
};

// The key/value heads that are worked on together, numbered b * Hkv + g.
struct Wave {
  std::int64_t first = 0, count = 0;
};
// How many: enough for many threads, few enough for memory.
std::int64_t wave_heads(const Sizes& sizes, Direction direction);

// What all blocks of a wave's queries read: its keys, and the tables of TileMap.
struct WaveKeys {
  // `packed`: whether keys of whole heads are kept; false if workers pack tile by tile.
  WaveKeys(Arena& arena, const Prepared& plan, const Sizes& sizes, bool packed);

  std::byte* table(std::int64_t head_in_wave) const {
    return tables.data() + static_cast<std::size_t>(head_in_wave) * table_bytes;
  }
  std::byte* walk(int worker) const {
    return walks.data() + static_cast<std::size_t>(worker) * walk_bytes;
  }
  // `place`: where a head's tiles lie, one of `heads`. Its number in the wave, or the worker's.
  KeyTile find(const Call& call, const Sequence& sequence, std::int64_t place,
               std::int64_t tile) const {
    return tiles.find(call, sequence, tile, place * tiles_of(call.sizes.skv) + tile);
  }

  std::int64_t heads;  // of a wave
  KeyTiles tiles;      // [places][tiles]
  std::size_t table_bytes, walk_bytes;
  std::span<std::byte> tables;  // [heads]
  std::span<std::byte> walks;   // [workers]: scratch of TileMap and TileWalk
};

// Tiles [first, last) of a head, to be packed: only those that some query may look at.
struct TilesToPack {
  std::int64_t head_in_wave = 0, place = 0;
  std::int64_t first = 0, last = 0;
  KeysOfTile keys = {};  // of each tile
};
void pack_tiles_of_head(const Call& call, const WaveKeys& keys, const Wave& wave,
                        const TilesToPack& tiles, int worker);

void fill_tables(const Call& call, const WaveKeys& keys, const Wave& wave);
// After that: tiles of those heads that have at least `least_blocks` blocks of queries and that no
// worker takes whole, as tasks that can run beside others.
class KeyPacking {
 public:
  KeyPacking(const Call& call, const WaveKeys& keys, const Wave& wave, const WaveSchedule& schedule,
             std::int64_t least_blocks);

  std::int64_t tasks() const { return tasks_; }
  double flops() const;  // so many take about as long
  void run(std::int64_t task, int worker) const;

 private:
  const Call& call_;
  const WaveKeys& keys_;
  const Wave& wave_;
  const WaveSchedule& schedule_;
  std::int64_t least_blocks_;
  std::int64_t tasks_ = 0;
  std::int64_t together_ = 1;  // tiles of a task
  int halves_ = 1;             // 2: a task has one half of a tile
  std::int64_t parts_ = 0;     // tasks of a head
};

// The rows of one block, or of all blocks of a group, as TileWalk takes them.
RowBlock rows_seen(const Call& call, const QueryBlock& block);

}  // namespace fovea::cpu
