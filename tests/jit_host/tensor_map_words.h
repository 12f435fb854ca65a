// What the stand-in driver writes into a tensor map, and the host's copies of tiles read from it.
#pragma once

#include <cstdint>

namespace fovea::on_host {

struct TensorMapWords {
  std::uint64_t data;
  std::uint64_t stride_bytes[4];  // of index 1 and the following
  std::uint32_t extent[5];
  std::uint32_t box[5];
  std::uint32_t rank, element_bytes, swizzle;  // 0: none, 3: 128 bytes
  std::uint32_t mark;                          // map_mark if the driver made it
};
inline constexpr std::uint32_t map_mark = 0x7e4507a9;
static_assert(sizeof(TensorMapWords) <= 128);

}  // namespace fovea::on_host
