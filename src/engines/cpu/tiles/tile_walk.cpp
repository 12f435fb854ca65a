#include <algorithm>

#include "engines/cpu/tiles/tile_scratch.h"
#include "engines/cpu/tiles/tiles.h"

namespace fovea::cpu {
namespace {

// A load that changes with both q and k is looked at if a node reaches a few elements of it (a
// table of blocks), not if it reaches a whole matrix of them.
constexpr std::int64_t most_of_both = 256;

}  // namespace

void TileWalk::start(const KeySequence& sequence, const void* table, const RowBlock& block) {
  const std::int64_t tiles = (sequence.k_length + map_.tile_columns_ - 1) / map_.tile_columns_;
  first_tile_ = std::max(block.first_tile, 0);
  last_tile_ = std::max(first_tile_, std::min<std::int64_t>(block.last_tile, tiles));
  run_next_ = first_tile_;
  run_last_ = map_.hides_nothing() ? last_tile_ : first_tile_;
  stacked_ = 0;
  if (map_.hides_nothing() || first_tile_ >= last_tile_) return;

  const TileScratch scratch(map_, scratch_);
  box_ = map_.box_of(sequence, scratch);
  box_.h = positions(block.h_first, block.h_last);
  box_.q = positions(block.q_first, block.q_last);
  const std::int64_t most = most_searched(box_.q, box_.h);
  for (std::size_t load = 0; load < map_.along_.size(); ++load) {
    const bool now =
        map_.along_[load] == TileMap::Along::Neither || map_.along_[load] == TileMap::Along::Rows;
    if (now) scratch.find_load(map_, load, most, box_, sequence.tensors);
  }
  box_.loads = scratch.loads;
  tensors_ = sequence.tensors;
  table_ = static_cast<const ir::Range*>(table);
  k_offset_ = sequence.k_offset;
  k_length_ = sequence.k_length;
  tree_ = TileTree(tiles);
  stack_[stacked_++] = {static_cast<std::uint32_t>(tree_.levels - 1), 0};
}

// The node as far as it lies in tiles [first, last).
ir::TileClass TileWalk::classify(Node node, std::int64_t first, std::int64_t last) {
  ++visited_;
  const TileScratch scratch(map_, scratch_);
  const std::int64_t width = map_.tile_columns_;
  box_.k = positions(k_offset_ + first * width, k_offset_ + std::min(last * width, k_length_) - 1);
  const std::int64_t number = tree_.first[node.level] + node.index;
  const ir::Range* ranges = table_ + number * static_cast<std::int64_t>(map_.column_loads_.size());
  for (const std::uint32_t load : map_.column_loads_) scratch.loads[load] = *ranges++;
  for (const std::uint32_t load : map_.both_loads_) {
    scratch.find_load(map_, load, most_of_both, box_, tensors_);
  }
  return map_.formulas_.classify(box_, scratch.steps);
}

bool TileWalk::next(Tile& tile) {
  while (run_next_ == run_last_) {
    if (stacked_ == 0) return false;
    const Node node = stack_[--stacked_];
    const std::int64_t first = std::max(node.index << node.level, first_tile_);
    const std::int64_t last = std::min((node.index + 1) << node.level, last_tile_);
    if (first >= last) continue;
    switch (classify(node, first, last)) {
      case ir::TileClass::Empty: break;
      case ir::TileClass::Full: run_next_ = first, run_last_ = last; break;
      case ir::TileClass::Mixed:
        if (node.level == 0) {
          const TileScratch scratch(map_, scratch_);
          tile = {static_cast<int>(first), map_.formulas_.range(scratch.steps, 1).b.always()};
          return true;
        }
        stack_[stacked_++] = {node.level - 1, 2 * node.index + 1};
        stack_[stacked_++] = {node.level - 1, 2 * node.index};
        break;
    }
  }
  tile = {static_cast<int>(run_next_++), true};
  return true;
}

}  // namespace fovea::cpu
