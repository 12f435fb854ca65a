#include "engines/jit/splits.h"

#include <algorithm>

#include "engines/jit/bake.h"
#include "engines/jit/device/shared_layout.h"

namespace fovea::jit {
namespace {

constexpr std::int64_t step = 64, shortest = 256;
constexpr std::int64_t deterministic_keys = 2048;

// Blocks for each multiprocessor: three run at a time, and the last of many leave little idle.
constexpr std::int64_t blocks_wanted = 16;

}  // namespace

int split_keys(const Problem& baked, const Sizes& sizes, int multiprocessors) {
  if (!splits_keys(baked) || sizes.hkv == 0 || sizes.skv == 0) return 0;
  const std::int64_t group = sizes.h / sizes.hkv;
  const bool varies = baked.layout == Layout::Thd || baked.has_q_lengths || baked.has_k_lengths;
  const bool decodes = device::decodes(sizes.sq, sizes.skv, static_cast<int>(group));
  // A sequence is then computed as if it were alone, also if others have more queries.
  if (baked.deterministic) return decodes || varies ? deterministic_keys : 0;
  if (!decodes) return 0;
  const std::int64_t row_tiles = (sizes.sq * group + device::decode_rows - 1) / device::decode_rows;
  const std::int64_t blocks = std::max<std::int64_t>(sizes.b * sizes.hkv * row_tiles, 1);
  const std::int64_t splits =
      std::max<std::int64_t>((blocks_wanted * multiprocessors + blocks - 1) / blocks, 1);
  const std::int64_t keys = (sizes.skv + splits - 1) / splits;
  return static_cast<int>(std::max((keys + step - 1) / step * step, shortest));
}

std::int64_t split_slots(const Problem& baked, const Sizes& sizes, int keys) {
  if (keys == 0) return 0;
  return baked.layout == Layout::Thd ? device::decode_slots_packed(sizes.b, sizes.t_k, keys)
                                     : device::decode_slots(sizes.b, sizes.skv, keys);
}

}  // namespace fovea::jit
