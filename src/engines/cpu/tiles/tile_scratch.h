// Where TileMap and TileWalk keep ranges while they work: pieces of the caller's memory. Private to
// tiles.cpp and tile_walk.cpp.
#pragma once

#include "engines/cpu/tiles/tiles.h"

namespace fovea::cpu {

struct TileScratch {
  TileScratch(const TileMap& map, void* memory);
  static std::size_t bytes(const TileMap& map);

  std::span<ir::Range> scalars;  // by slot; those in use alone are set
  std::span<ir::Range> loads;    // in the order of Ranges::loads()
  ir::LoadRanges::Memory finding;
  ir::Ranges::Memory steps;  // the same memory as finding.steps: used one after the other

  // Sets the range of a load over a box; those before it are set.
  void find_load(const TileMap& map, std::size_t load, std::int64_t most, const ir::Box& box,
                 std::span<const ir::TensorView> tensors) const;
};

// [first, last] as formulas see it: positions are i32 and wrap, and an interval that wraps inside
// is everything.
ir::IntInterval positions(std::int64_t first, std::int64_t last);

// How many elements of a load may be searched for that many positions and heads: a multiple of
// them, since what many positions share is searched again for each block or tile.
std::int64_t most_searched(ir::IntInterval positions, ir::IntInterval heads);

}  // namespace fovea::cpu
