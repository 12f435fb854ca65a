// Where one captured tensor's gradient is summed, and how its elements are walked.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>

#include "attention/bindings.h"
#include "engines/cpu/captured/captured_lanes.h"
#include "ir/program.h"

namespace fovea::cpu {

using Indices = std::array<std::int64_t, ir::limits::rank>;

// The elements of a tensor in memory.
struct ElementShape {
  int rank = 0;
  Indices extent{}, stride{};

  std::int64_t elements() const {
    std::int64_t count = 1;
    for (std::size_t i = 0; i < static_cast<std::size_t>(rank); ++i) count *= extent[i];
    return count;
  }
};

struct CapturedTarget {
  SumPlace kept = SumPlace::Nowhere;
  DType type = DType::F64;     // what elements are added up as: of a float type
  void* sums = nullptr;        // Private: of lane 0
  std::int64_t lane_step = 0;  // elements from one lane's sums to the next; 0: not private
  ElementShape shape;          // of the sums
  std::int64_t elements = 0;
  BoundGradient gradient;  // where it is written to
  ElementShape out;        // of the gradient

  bool in_output() const { return sums == gradient.data; }
};

// Calls run(number, at, count) for elements [first, last), counted with the last index fastest, in
// runs along the last index: element `number` lies at `at`, the others follow by its stride.
template <class Run>
void for_runs(const ElementShape& shape, std::int64_t first, std::int64_t last, Run run) {
  if (shape.rank == 0) {
    if (first < last) run(first, std::int64_t{0}, std::int64_t{1});
    return;
  }
  const auto inner = static_cast<std::size_t>(shape.rank - 1);
  while (first < last) {
    std::int64_t at = 0, rest = first / shape.extent[inner];
    const std::int64_t column = first % shape.extent[inner];
    for (std::size_t i = inner; i-- > 0;) {
      at += rest % shape.extent[i] * shape.stride[i];
      rest /= shape.extent[i];
    }
    const std::int64_t count = std::min(last - first, shape.extent[inner] - column);
    run(first, at + column * shape.stride[inner], count);
    first += count;
  }
}

}  // namespace fovea::cpu
