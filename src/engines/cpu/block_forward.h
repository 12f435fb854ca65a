// One block of query rows on one worker: its tiles of keys one after the other, then its rows out.
#pragma once

#include <optional>

#include "engines/cpu/rows_out.h"

namespace fovea::cpu {

// What one task does of a block: some of its rows (of blocks with several heads all), with all keys
// or with one part of them.
struct BlockPart {
  std::int64_t index = 0;  // of the block, in its head
  std::int64_t split = 0;
  int first_row = 0, last_row = block_rows;
  int block = block_rows;  // rows of the blocks that `index` counts
};

class BlockForward {
 public:
  BlockForward(const Call& call, const ForwardMemory& memory, int worker)
      : call_(call),
        kernels_(call.kernels),
        memory_(memory),
        arena_("cpu",
               memory.workers.data() + static_cast<std::size_t>(worker) * memory.worker_bytes),
        mine_(arena_, call.plan, call.sizes),
        dropout_(call.bound),
        walk_(call.plan.tiles, memory.keys.walk(worker)),
        mod_(mine_.shifts, mine_.mod_state) {
    if (call.plan.mask) mask_.emplace(*call.plan.mask, mine_.mask_state.data());
  }

  // `place`: of the head's keys in WaveKeys.
  void run(const Wave& wave, std::int64_t head_in_wave, std::int64_t place, const BlockPart& part);
  // All blocks of a head whose keys are not packed yet: they are packed into this worker's place.
  void run_head(const Wave& wave, std::int64_t head_in_wave, int worker);

 private:
  bool cut(const BlockPart& part);
  void start();
  void attend(const Tile& tile);
  void attend(const TilePart& part, const KeyTile& keys, bool masked);
  bool is_whole(const TilePart& part) const { return part.last - part.first == block_.all_rows(); }
  Product score_product(const TilePart& part, const KeyTile& keys) const;
  void modify(const TilePart& part);
  void apply_softmax(const TilePart& part, bool masked);
  Product value_product(const TilePart& part, const KeyTile& keys, bool masked);
  void fetch(Product& product, const TilePart& part, const Panels& panels, std::int64_t wide) const;
  Into into_o(const TilePart& part);
  void drop(const TilePart& part);
  KeyTile keys_of(std::int64_t tile);
  RowSums sums_of(std::size_t row) const;
  void finish();
  void keep_part(std::int64_t split);

  const Call& call_;
  const KernelTable& kernels_;
  const ForwardMemory& memory_;
  Arena arena_;
  ForwardWorker mine_;
  Dropout dropout_;
  TileWalk walk_;
  std::optional<BlockProgram> mask_;
  BlockMod mod_;

  Sequence sequence_;
  Block block_;
  std::int64_t head_in_wave_ = 0, place_ = 0, group_ = 0, first_head_ = 0;
  bool read_once_ = false;
  bool has_o_ = false;  // mine_.o has been written
  std::int64_t tile_ = 0;
  KeyTile next_;  // the tile after the current one
};

}  // namespace fovea::cpu
