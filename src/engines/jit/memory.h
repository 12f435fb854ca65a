// The workspace of one call: where each piece lies, or how much all of them take. Used by plan.
#pragma once

#include <array>

#include "attention/arena.h"
#include "engines/jit/prepare.h"

namespace fovea::jit {

inline constexpr std::size_t most_summaries = 16;  // tables of minima and maxima of one formula

struct Memory {
  // Without memory the arena only measures.
  Memory(Arena& arena, const Prepared& prepared, const Sizes& sizes);

  float *delta = nullptr, *grad_q_sum = nullptr, *row_terms = nullptr;
  unsigned *key_nans = nullptr, *tile_counter = nullptr, *query_turns = nullptr;
  int split_keys = 0;
  float* partial_o = nullptr;
  double* partial_rows = nullptr;
  std::byte* captured = nullptr;  // sums of captured gradients: see captured_run.h
  float* row_max = nullptr;       // if max_logit needs it and the caller does not
  std::array<void*, most_summaries> summaries{};
  unsigned* taken_tiles = nullptr;  // of blocks that take tiles as they come
  std::int64_t taken_words = 0;
  unsigned* distances = nullptr;  // values of the formula by k - q
};

}  // namespace fovea::jit
