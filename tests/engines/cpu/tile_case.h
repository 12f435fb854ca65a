// One walk over tiles, checked against every score of every tile. Shared by the tests of tiles.
#pragma once

#include <string>

#include "engines/cpu/tiles/tiles.h"
#include "ir/program.h"

namespace fovea::test {

struct TileCase {
  ir::Program program;
  int tile_columns = 1;
  cpu::KeySequence sequence;
  cpu::RowBlock block;
  int rows = 1;  // of the block: q_last = q_first + rows - 1 may have wrapped
};

struct TileResult {
  std::string failure;        // empty: sound
  long tiles = 0, given = 0;  // in the block; that the walk gave
  long full = 0, vague = 0;   // given as full; given though nothing in it is seen
  long missed_full = 0;       // not given as full, though the mask keeps all of it
  long visited = 0;           // nodes of the tree
};

// Fills a table for the sequence and walks the block.
TileResult run_tile_case(const TileCase& test);

}  // namespace fovea::test
