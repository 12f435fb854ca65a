// Tensors as the hardware of sm_90 and newer copies tiles of them: 128 bytes that the driver makes.
#pragma once

#include <array>
#include <cstdint>

namespace fovea::cuda {

// In elements of 2 or 4 bytes, the fastest index first, which must be dense. The address and all
// strides are multiples of 16 bytes. Tiles have rows of at most 128 bytes, swizzled.
struct TensorMapSpec {
  const void* data = nullptr;
  std::uint32_t rank = 4;
  std::uint32_t element_bytes = 2;
  std::array<std::uint64_t, 5> extents{};
  std::array<std::uint64_t, 4> stride_bytes{};  // of index 1 and the following
  std::array<std::uint32_t, 5> box{};           // elements of a tile along each index

  bool operator==(const TensorMapSpec&) const = default;
};

// Whether the driver makes such maps.
bool has_tensor_maps();

// Writes the map to 128 bytes. Those that a thread asked for last are remembered: making one takes
// the driver a microsecond. Throws DeviceError for what the hardware does not take.
void write_tensor_map(const TensorMapSpec& spec, void* to);

}  // namespace fovea::cuda
