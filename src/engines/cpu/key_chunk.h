// The backward of one chunk of the keys of a head, on one worker, against all query rows of its
// group.
#pragma once

#include <cstdint>
#include <span>

#include "engines/cpu/backward.h"
#include "engines/cpu/captured/captured_run.h"

namespace fovea::cpu {

class KeyChunkBackward {
 public:
  KeyChunkBackward(const Call& call, const BackwardMemory& memory, int worker);

  // `captured`: null if no gradients of captured tensors or scalars are wanted.
  void run(std::int64_t head_in_wave, std::int64_t head, std::int64_t chunk,
           const CapturedRun* captured, std::int64_t lane);
  // Parts [first, last) of its query rows. The worker that finishes the last of all parts adds them
  // up.
  void run_parts(std::int64_t head_in_wave, std::int64_t head, std::int64_t chunk, int first,
                 int last);

 private:
  bool start(std::int64_t head_in_wave, std::int64_t head, std::int64_t chunk);
  // The row of a block at which a part begins.
  struct RowCut {
    std::int64_t block = 0;
    int row = 0;
  };
  bool sum_part(int part, const KeySums& into);
  RowCut begin_of(int part) const;
  std::int64_t row_work(std::int64_t index) const;
  std::int64_t work_of_row(std::int64_t index) const;
  void add_up(const KeySums& to, std::span<const float* const> terms) const;
  void start_block(std::int64_t index, int first, int last);
  void differentiate(const Tile& tile);
  void score_products(const MatrixPart& part);
  void strips(const MatrixPart& part, bool masked);
  void strip(StripRun::Strip strip, int base, bool masked);
  const float* modified_scores(StripRun::Strip& strip);
  void modified_gradients(const StripRun::Strip& strip, int row, float* grad_scores);
  void store_row_sums() const;
  Into into_grad_q(bool whole);
  Into into_keys(const MatrixPart& part);
  void clear_keys(std::size_t panel) const;
  void query_product(const MatrixPart& part, bool masked);
  void key_products(const MatrixPart& part, bool masked);
  void key_products_of_mixed(std::span<const MatrixPart> parts);
  void write_keys(const KeySums& sums);

  const Call& call_;
  const KernelTable& kernels_;
  const BackwardMemory& memory_;
  BackwardWorker mine_;
  BlockFormulas formulas_;
  TileWalk walk_;
  const CapturedRun* captured_ = nullptr;
  std::int64_t lane_ = 0;

  KeyHead head_;
  std::int64_t head_in_wave_ = 0, chunk_ = 0;
  std::int64_t first_tile_ = 0, last_tile_ = 0;

  std::int64_t blocks_ = 0;
  int parts_ = 0;          // of the query rows
  std::int64_t work_ = 0;  // of all rows; a full tile counts 4
  KeySums sums_;           // of the part at hand

  // The block at hand, or those of its rows that belong to the part.
  QueryBlock block_;
  std::int64_t block_index_ = 0;
  int first_row_ = 0;  // in the block
  Panels q_, grad_o_, q_rows_, grad_o_rows_, grad_q_;
  bool has_grad_q_ = false;  // whether grad_q_ has been written
  const double* lse_ = nullptr;
  const float* row_term_ = nullptr;
  QueryBlocks::BlockFlags flags_;

  // The tile at hand.
  KeyTile keys_;
  std::int64_t tile_ = 0;
};

}  // namespace fovea::cpu
