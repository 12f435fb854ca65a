// One block of query rows on one worker: its tiles of keys one after the other, then its rows out.
#pragma once

#include <cstdint>

#include "engines/cpu/rows_out.h"

namespace fovea::cpu {

// What one task does of a block: some of its rows (of blocks with several heads all), with all keys
// or with one split of them.
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
        mine_(memory.workers.find(call, worker)),
        formulas_(call, mine_.formulas),
        walk_(call.plan.tiles, memory.keys.walk(worker)) {}

  // `place`: of the head's keys in WaveKeys.
  void run(const Wave& wave, std::int64_t head_in_wave, std::int64_t place, const BlockPart& part);
  // All blocks of a head whose keys are not packed yet: they are packed into this worker's place.
  void run_head(const Wave& wave, std::int64_t head_in_wave, int worker);

 private:
  bool cut(const BlockPart& part);
  void start();
  void attend(const Tile& tile);
  void attend(const MatrixPart& part, const KeyTile& keys, bool masked);
  bool is_whole(const MatrixPart& part) const { return part.rows() == block_.all_rows(); }
  Product score_product(const MatrixPart& part, const KeyTile& keys) const;
  void modify(const MatrixPart& part);
  void apply_softmax(const MatrixPart& part, bool masked);
  Product value_product(const MatrixPart& part, const KeyTile& keys, bool masked);
  void fetch(Product& product, const MatrixPart& part, const Panels& panels,
             std::int64_t wide) const;
  Into into_o(const MatrixPart& part);
  void drop(const MatrixPart& part);
  KeyTile keys_of(std::int64_t tile);
  RowSums sums_of(std::size_t row) const;
  void finish();
  void keep_split(std::int64_t split);

  const Call& call_;
  const KernelTable& kernels_;
  const ForwardMemory& memory_;
  ForwardWorker mine_;
  BlockFormulas formulas_;
  TileWalk walk_;

  QueryBlock block_;
  std::int64_t head_in_wave_ = 0, place_ = 0;
  bool read_once_ = false;
  bool has_o_ = false;  // mine_.o has been written
  KeyTile next_;        // the tile after the current one
};

}  // namespace fovea::cpu
