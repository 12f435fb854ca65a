#include "engines/cpu/tiles/tiles.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "engines/cpu/blocks.h"
#include "ir/build.h"
#include "ir/modifier.h"
#include "ir/topology.h"

namespace fovea::cpu {
namespace {

using ir::Depends;
using ir::Range;

constexpr std::size_t table_alignment = 64;
// A load that changes with both q and k is searched if a node reaches at most so many elements of
// it (as of a table of blocks).
constexpr std::int64_t most_of_both = 256;

// What is seen (kept, and not -inf by the modifier), and what the mask alone keeps.
std::array<ir::Expr, 2> formulas_of(const ir::Program& program) {
  const ir::Expr mask = program.mask() ? program.mask() : ir::constant(true);
  const ir::Expr hidden =
      program.mod() ? always_minus_infinity(program.mod()) : ir::constant(false);
  return {and_(mask, not_(hidden)), mask};
}

std::vector<std::uint32_t> scalar_slots(std::span<const ir::Expr> formulas) {
  std::vector<std::uint32_t> slots;
  for (const ir::Node* node : ir::operands_first(formulas).nodes) {
    if (ir::info(node->op()).form == ir::Form::Scalar) slots.push_back(node->slot());
  }
  return slots;
}

// [first, last] as formulas see it: positions are i32 and wrap, and an interval that wraps inside
// may be any number.
ir::IntInterval positions(std::int64_t first, std::int64_t last) {
  const auto lo = static_cast<std::int32_t>(first), hi = static_cast<std::int32_t>(last);
  if (last - first > std::numeric_limits<std::uint32_t>::max() || lo > hi) return {};
  return {lo, hi};
}

// How many elements of a load may be searched for that many positions and heads: a multiple of
// them, since what many positions share is searched again for each block or tile.
std::int64_t most_searched(ir::IntInterval positions, ir::IntInterval heads) {
  constexpr std::int64_t per_element = 16, least = 1024, most = std::int64_t{1} << 17;
  const auto length = [=](ir::IntInterval x) { return std::min(x.hi - x.lo + 1, most); };
  return std::clamp(per_element * length(positions) * length(heads), least, most);
}

}  // namespace

// Where TileMap and TileWalk keep ranges while they work, in the caller's memory.
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

TileTree::TileTree(std::int64_t tiles) {
  for (std::int64_t nodes = tiles; nodes > 0; nodes = nodes == 1 ? 0 : (nodes + 1) / 2) {
    first[levels + 1] = first[levels] + nodes;
    ++levels;
  }
}

std::size_t TileScratch::bytes(const TileMap& map) {
  const std::size_t steps = std::max(map.formulas_.step_count(), map.load_ranges_.step_count());
  const std::size_t ranges = map.scalar_count_ + 2 * map.along_.size() + steps;
  return (ranges * sizeof(Range) + steps + table_alignment - 1) / table_alignment * table_alignment;
}

TileScratch::TileScratch(const TileMap& map, void* memory) {
  const std::size_t count = std::max(map.formulas_.step_count(), map.load_ranges_.step_count());
  const std::size_t load_count = map.along_.size();
  auto* next = static_cast<Range*>(memory);
  const auto take = [&](std::size_t n) { return std::span(std::exchange(next, next + n), n); };
  scalars = take(map.scalar_count_);
  loads = take(load_count);
  finding.inner = take(load_count);
  steps.values = take(count);
  steps.broken = {reinterpret_cast<char*>(next), count};
  finding.steps = steps;
}

void TileScratch::find_load(const TileMap& map, std::size_t load, std::int64_t most,
                            const ir::Box& box, std::span<const ir::TensorView> tensors) const {
  loads[load] = map.load_ranges_.find(
      {.load = load, .most = most, .tensors = tensors, .found = loads}, box, finding);
}

TileMap::TileMap(const ir::Program& program, int columns_of_tile)
    : tile_columns_(columns_of_tile),
      formulas_(formulas_of(program)),
      load_ranges_(formulas_),
      scalars_(scalar_slots(formulas_of(program))),
      scalar_count_(program.scalars().size()) {
  for (std::uint32_t i = 0; i < formulas_.loads().size(); ++i) {
    const Depends depends = formulas_.loads()[i]->depends();
    const bool q = any(depends, Depends::Q), k = any(depends, Depends::K);
    along_.push_back(q && k ? Along::Both : q ? Along::Rows : k ? Along::Columns : Along::Neither);
    if (along_[i] == Along::Columns) column_loads_.push_back(i);
    if (along_[i] == Along::Both) both_loads_.push_back(i);
  }
  ir::Ranges::Scratch scratch;
  hides_nothing_ = formulas_.classify(ir::Box{}, scratch) == ir::TileClass::Full;
}

std::size_t TileMap::scratch_bytes() const { return TileScratch::bytes(*this); }

std::size_t TileMap::table_bytes(std::int64_t most_keys) const {
  if (column_loads_.empty()) return 0;
  const TileTree tree(ceil_div(most_keys, tile_columns_));
  return static_cast<std::size_t>(tree.first[tree.levels]) * column_loads_.size() * sizeof(Range);
}

ir::Box TileMap::box_of(const KeySequence& sequence, const TileScratch& scratch) const {
  using ir::IntInterval;
  for (const std::uint32_t slot : scalars_) {
    const ir::ScalarValue& value = sequence.scalars[slot];
    scratch.scalars[slot] = {IntInterval::of(value.i), ir::RealInterval::of(value.f), {}};
  }
  ir::Box box;
  box.b = IntInterval::of(sequence.b);
  box.h = positions(sequence.h_first, sequence.h_last);
  box.B = IntInterval::of(sequence.B), box.H = IntInterval::of(sequence.H);
  box.Hkv = IntInterval::of(sequence.Hkv);
  box.Sq = IntInterval::of(sequence.Sq), box.Skv = IntInterval::of(sequence.Skv);
  box.scalars = scratch.scalars;
  return box;
}

// Each tile's own ranges, one after the other.
void TileMap::fill_tiles(const KeySequence& sequence, std::span<Range> tiles,
                         const TileScratch& scratch) const {
  ir::Box box = box_of(sequence, scratch);
  const std::int64_t most = most_searched({1, tile_columns_}, box.h);
  for (std::size_t load = 0; load < along_.size(); ++load) {
    if (along_[load] != Along::Neither) continue;
    scratch.find_load(*this, load, most, box, sequence.tensors);
  }
  std::size_t at = 0;
  for (std::int64_t k = 0; k < sequence.k_length; k += tile_columns_) {
    const std::int64_t last = std::min(k + tile_columns_, sequence.k_length) - 1;
    box.k = positions(sequence.k_offset + k, sequence.k_offset + last);
    for (const std::uint32_t load : column_loads_) {
      scratch.find_load(*this, load, most, box, sequence.tensors);
      tiles[at++] = scratch.loads[load];
    }
  }
}

void TileMap::fill_table(const KeySequence& sequence, void* table, void* scratch) const {
  if (column_loads_.empty()) return;
  const TileTree tree(ceil_div(sequence.k_length, tile_columns_));
  const std::size_t width = column_loads_.size();
  const auto nodes = static_cast<std::size_t>(tree.first[tree.levels]);
  const std::span ranges(static_cast<Range*>(table), nodes * width);
  fill_tiles(sequence, ranges, TileScratch(*this, scratch));
  for (std::size_t level = 1; level < tree.levels; ++level) {
    const std::int64_t below = tree.first[level] - tree.first[level - 1];
    for (std::int64_t i = 0; i < tree.first[level + 1] - tree.first[level]; ++i) {
      const auto node = static_cast<std::size_t>(tree.first[level] + i) * width;
      const auto left = static_cast<std::size_t>(tree.first[level - 1] + 2 * i) * width;
      const std::size_t right = 2 * i + 1 < below ? left + width : left;
      for (std::size_t j = 0; j < width; ++j) {
        ranges[node + j] = ir::hull(ranges[left + j], ranges[right + j]);
      }
    }
  }
}

void TileWalk::start(const KeySequence& sequence, const void* table, const RowBlock& block) {
  const std::int64_t tiles = ceil_div(sequence.k_length, map_.tile_columns_);
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
