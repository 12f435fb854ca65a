#include "engines/jit/grid.h"

#include "attention/refuse.h"

namespace fovea::jit {

Grid in_line(std::int64_t a, std::int64_t b, const Shape& shape) {
  constexpr std::int64_t most = (std::int64_t{1} << 31) - 1;
  if (b > 0 && a > most / b) refuse("sizes", a, "engine jit launches at most 2^31 - 1 blocks");
  return {static_cast<unsigned>(a * b), 1, 1, static_cast<unsigned>(32 * shape.warps)};
}

Grid over_heads(const device::Call& call, const Shape& shape) { return in_line(call.h, 1, shape); }

Grid over_gaps(const device::Call& call, const Shape& shape) {
  return in_line(std::int64_t{call.b} + 1, 1, shape);
}

Grid over_distances(const device::Call& call, const Shape& shape) {
  return in_line(ceil_div(std::int64_t{call.sq} + call.skv, 32 * shape.warps),
                 std::int64_t{call.h} * call.b, shape);
}

}  // namespace fovea::jit
