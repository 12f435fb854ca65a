// What share of the scores a mask keeps, to estimate the time of a call and to find work that can
// be skipped. ir/range judges tiles; mixed tiles are split in half and judged again. Takes
// microseconds.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "attention/problem.h"
#include "ir/eval.h"
#include "ir/range.h"

namespace fovea {

// From 0 to 1; a guess of one half if the mask reads a captured tensor or a scalar without a value.
double live_share(const Problem& problem);

// The same for rectangles of positions, with captured values as far as they are known: 0 only if
// nothing in the rectangle can be kept.
class LiveShare {
 public:
  // `keep` is a mask; none keeps all. Tensors by slot, one without data is not known; scalars by
  // slot.
  LiveShare(const Problem& problem, const ir::Expr& keep,
            std::span<const ir::TensorView> tensors = {},
            std::span<const std::optional<ir::ScalarValue>> scalars = {});
  LiveShare(const LiveShare&) = delete;  // its box points into it
  LiveShare& operator=(const LiveShare&) = delete;

  struct Rectangle {
    ir::IntInterval b, q, k;  // as formulas see them
    std::int64_t Sq = 0, Skv = 0;
  };
  // Mixed tiles are halved at most `depth` times.
  double of(const Rectangle& rectangle, int depth);

 private:
  double share(ir::IntInterval q, ir::IntInterval k, int depth);
  ir::TileClass classify();

  std::optional<ir::Ranges> mask_;
  std::optional<ir::LoadRanges> load_ranges_;
  std::span<const ir::TensorView> tensors_;
  std::vector<ir::Range> scalars_, loads_, inner_, steps_;
  std::vector<char> broken_;
  ir::Ranges::Scratch scratch_;
  ir::Box box_;
  int boxes_ = 0;
};

}  // namespace fovea
